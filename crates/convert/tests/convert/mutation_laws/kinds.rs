//! The laws for the other kinds that people write, known ones and those of controllers that weftrun does not know, and for
//! sbatch scripts.

use super::*;
use weftrun_convert::{lint_sbatch, mutate_sbatch};

/// An object that makes pods of a template: `replicas` of it, where the kind has the field.
fn object_of(kind: &str, replicas: u32, pod: &Json) -> Json {
    let of = |version: &str, kind: &str, spec: Json| json!({"apiVersion": version, "kind": kind, "metadata": {"name": "j"}, "spec": spec});
    let group = json!({"groupName": "g", "replicas": replicas, "rayStartParams": {}, "template": pod});
    let head = json!({"template": {"spec": {"containers": [{"name": "head", "image": "ray"}]}}});
    match kind {
        "Pod" => json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "j"}, "spec": pod["spec"]}),
        "Job" => {
            of("batch/v1", kind, json!({"parallelism": replicas, "completions": replicas, "template": pod}))
        }
        "JobSet" => of(
            "jobset.x-k8s.io/v1alpha2",
            kind,
            json!({"replicatedJobs": [{"name": "w", "replicas": replicas, "template": {"spec": {"template": pod}}}]}),
        ),
        "LeaderWorkerSet" => of(
            "leaderworkerset.x-k8s.io/v1",
            kind,
            json!({"replicas": 1, "leaderWorkerTemplate": {"size": replicas, "workerTemplate": pod}}),
        ),
        "RayCluster" => of("ray.io/v1", kind, json!({"headGroupSpec": head, "workerGroupSpecs": [group]})),
        "RayJob" => of(
            "ray.io/v1",
            kind,
            json!({"rayClusterSpec": {"headGroupSpec": head, "workerGroupSpecs": [group]}}),
        ),
        "VolcanoJob" => of(
            "batch.volcano.sh/v1alpha1",
            "Job",
            json!({"tasks": [{"name": "w", "replicas": replicas, "template": pod}]}),
        ),
        "HyperPodPyTorchJob" => of(
            "sagemaker.amazonaws.com/v1",
            kind,
            json!({"nprocPerNode": "8", "replicaSpecs": [{"name": "pods", "replicas": replicas, "template": pod}]}),
        ),
        "ElasticJob" => of(
            "elastic.pytorch.org/v1alpha1",
            kind,
            json!({"replicaSpecs": {"Worker": {"replicas": replicas, "template": pod}}}),
        ),
        _ => of("apps/v1", kind, json!({"replicas": replicas, "selector": {}, "template": pod})),
    }
}

/// Lines of the scripts of strangers.
const LINES: [&str; 14] = [
    "export FI_PROVIDER=efa",
    "export FI_EFA_USE_DEVICE_RDMA=1",
    "export FI_EFA_FORK_SAFE=1 NCCL_PROTO=simple",
    "export NCCL_DEBUG=DEBUG NCCL_DEBUG_FILE=/fsx/log",
    "export LD_LIBRARY_PATH=/opt/amazon/efa/lib:$LD_LIBRARY_PATH",
    "export NCCL_NET_PLUGIN=none",
    "export NCCL_IB_HCA=mlx5 NCCL_IB_DISABLE=1",
    "export NEURON_RT_NUM_CORES=32",
    "source /opt/parallelcluster/env.sh",
    "GPUS_PER_NODE=8",
    "srun --container-image=a#b --container-mounts=/fsx:/fsx python train.py",
    "srun torchrun --nnodes 2 --nproc_per_node 8 train.py",
    "mpirun -np 16 -x NCCL_DEBUG ./all_reduce_perf",
    "cat > a.sh <<EOF\n#SBATCH -N 2\nexport NCCL_PROTO=simple\nEOF",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_laws_hold_for_objects_of_other_kinds(
        kind in one_of(&[
            "Pod", "Job", "JobSet", "LeaderWorkerSet", "RayCluster", "RayJob", "VolcanoJob", "Deployment", "StatefulSet",
            "HyperPodPyTorchJob", "ElasticJob",
        ]),
        replicas in one_of(&[1_u32, 2, 4]),
        pod in pod("main"),
        call in call(),
    ) {
        let text = serde_saphyr::to_string(&object_of(kind, replicas, &pod)).unwrap();
        prop_assert!(holds(&text, &call).is_ok(), "{:?}\n{}", holds(&text, &call).err(), text);
    }

    /// `lint` finds no error afterwards that it did not find before, and a second pass changes nothing.
    #[test]
    fn the_laws_hold_for_scripts(
        nodes in one_of(&["-N 1", "-N 2", "-n 16", ""]),
        options in one_of(&["--gpus-per-node=8", "--exclusive", "--gres=gpu:4", "-p p5en", "-C g5.48xlarge --exclusive"]),
        lines in prop::collection::vec(one_of(&LINES), 1..6),
        call in call(),
    ) {
        let text = format!("#!/bin/bash\n#SBATCH {nodes} {options}\n{}\n", lines.join("\n"));
        call.with(|settings| {
            let start = Start::of("a.sbatch");
            let errors = |text: &str| -> Vec<String> {
                let found = lint_sbatch(text, start, settings).into_iter();
                found.filter(weftrun_core::Finding::is_error).map(|one| one.code).collect()
            };
            let done = mutate_sbatch(&text, start, settings);
            let known = errors(&text);
            prop_assert!(errors(&done.text).iter().all(|code| known.contains(code)), "{}\n{}", text, done.text);
            prop_assert_eq!(&mutate_sbatch(&done.text, start, settings).text, &done.text, "{}", text);
            Ok(())
        })?;
    }
}
