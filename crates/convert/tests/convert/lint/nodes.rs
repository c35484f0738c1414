//! Findings that depend on the number of nodes and GPUs, or on the NCCL that is shown.

use super::*;
use weftrun_core::Finding;

/// A script of some nodes with a type of AWS.
fn on_nodes(options: &str, line: &str) -> Vec<Finding> {
    let (profile, catalogue, options_of) =
        (Profile::default(), Catalogue::builtin(), FabricRequest::default());
    let sites = Profiles::builtin().of_sites().unwrap();
    let settings = MutateOptions {
        by_evidence: Some(&sites),
        ..MutateOptions::offline(&profile, &options_of, &catalogue)
    };
    let text = format!("#!/bin/bash\n#SBATCH {options}\n{line}\nsrun torchrun a.py\n");
    lint_sbatch(&text, Start::of("a.sbatch"), &settings)
}

fn codes_on(options: &str, line: &str) -> Vec<String> {
    on_nodes(options, line).into_iter().map(|one| one.code).collect()
}

/// Inside one node nothing uses the network, so its settings change nothing there.
#[test]
fn settings_of_the_network_matter_between_nodes_only() {
    for (line, code) in [
        ("export NCCL_BUFFSIZE=4194304", "L-EFA-TUNING"),
        ("export NCCL_PROTO=simple", "L-PROTO-SIMPLE"),
        ("export FI_EFA_FORK_SAFE=1", "L-FORK-SAFE"),
        ("export NCCL_SOCKET_NTHREADS=4", "L-SOCKET-TUNING"),
        ("export NCCL_NET_PLUGIN=none", "L-PLUGIN-NONE"),
        ("export RDMAV_FORK_SAFE=1", "L-RDMAV"),
    ] {
        let line = format!("export FI_PROVIDER=efa\n{line}");
        assert_eq!(codes_on("-N 2 --gpus-per-node=8", &line), [code], "{line}");
        assert_eq!(codes_on("-N 1 --gpus-per-node=8", &line), [""; 0], "{line}");
        assert_eq!(codes_on("-N 1 --gpus-per-node=1", &line), [""; 0], "{line}");
    }
    let role = |replicas| RoleView { replicas, ..role(&[("NCCL_IB_DISABLE", "1")], RDMA) };
    assert_eq!(by_profile(role(2), "roce"), ["L-IB-DISABLED"]);
    assert_eq!(by_profile(role(1), "roce"), [""; 0]);
    // NVLS is of one node, and GPUDirect RDMA aborts wherever EFA is opened.
    assert_eq!(
        codes_on("-N 1 --gpus-per-node=8 -C p5.48xlarge", "export FI_PROVIDER=efa NCCL_NVLS_ENABLE=0"),
        ["L-NVLS-OFF"]
    );
    let abort = "export FI_EFA_USE_DEVICE_RDMA=1";
    assert_eq!(codes_on("-N 1 --gpus-per-node=8 -C g5.48xlarge", abort), ["E-RDMA-UNSUPPORTED"]);
}

/// One pod that requests EFA can be one of several; one of a workload of one replica is not.
#[test]
fn a_pod_with_efa_may_be_one_of_several() {
    let with = |kind: &str| {
        let pod = "containers: [{name: a, image: i, command: [a_perf], env: [{name: NCCL_PROTO, value: simple}], \
                   resources: {limits: {nvidia.com/gpu: 8, vpc.amazonaws.com/efa: 4, hugepages-2Mi: 5Gi, memory: 1Ti}}}]";
        let spec = if kind == "Pod" {
            format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec: {{{pod}}}\n")
        } else {
            format!(
                "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: a}}\nspec: {{parallelism: 1, completions: 1, template: {{spec: {{{pod}}}}}}}\n"
            )
        };
        let (profile, catalogue, options) =
            (Profile::default(), Catalogue::builtin(), FabricRequest::default());
        let settings = MutateOptions::offline(&profile, &options, &catalogue);
        let found = lint_document(&spec, Start::of("a.yaml"), &settings);
        found.iter().any(|one| one.code == "L-PROTO-SIMPLE")
    };
    assert!(with("Pod") && !with("Job"));
}

/// Up to 2.20 the index must be set; since 2.21 NCCL finds it; where nothing shows the version, the condition is said.
#[test]
fn a_gid_index_is_judged_by_the_nccl_that_is_shown() {
    for (shown, answer) in [
        ("module load nccl/2.18.3-CUDA-12.1", None),
        ("module load nccl/2.22.3-CUDA-12.4", Some("remove NCCL_IB_GID_INDEX")),
        ("#SBATCH --container-image=nvcr.io#nvidia/pytorch:23.08-py3", None),
        ("#SBATCH --container-image=pytorch/pytorch:2.3.1-cuda12.1", None),
        (
            "IMG=--container-image=nvcr.io#nvidia/pytorch:23.08-py3",
            Some("remove NCCL_IB_GID_INDEX if NCCL is 2.21 or later"),
        ),
        ("srun --container-image=nvcr.io#nvidia/pytorch:23.08-py3 ./a", None),
        ("#SBATCH --container-image=x/tests:nccl2.27.5-1", Some("remove NCCL_IB_GID_INDEX")),
        ("", Some("remove NCCL_IB_GID_INDEX if NCCL is 2.21 or later")),
    ] {
        let found = on_nodes("-N 2 --gpus-per-node=8", &format!("{shown}\nexport NCCL_IB_GID_INDEX=3"));
        let told = found.iter().find(|one| one.code == "L-GID-INDEX");
        assert_eq!(told.and_then(|one| Some(one.fix.as_ref()?.text.as_str())), answer, "{shown}: {found:?}");
        if answer.is_some_and(|fix| fix.contains("if")) {
            assert!(told.is_some_and(|one| one.message.starts_with("NCCL 2.21 and later")), "{found:?}");
        }
    }
}

/// NCCL reads levels in any case, and prints nothing with another word.
#[test]
fn a_word_that_is_no_level_of_nccl_is_found() {
    let two = "-N 2 --gpus-per-node=8";
    for (level, fix) in
        [("DEBUG", "INFO"), ("ERROR", "INFO"), ("1", "INFO"), ("warning", "WARN"), ("VERBOSE", "INFO")]
    {
        let found = on_nodes(two, &format!("export NCCL_DEBUG={level}"));
        assert_eq!(found.len(), 1, "{level}: {found:?}");
        assert!(
            found[0].code == "L-DEBUG-LEVEL" && found[0].fix.as_ref().unwrap().text.contains(fix),
            "{found:?}"
        );
    }
    for level in [
        "INFO",
        "info",
        "Warn",
        "version",
        "TRACE",
        "ABORT",
        "0",
        "none",
        "$LEVEL",
        "${NCCL_DEBUG:-INFO}",
        "\"\"",
    ] {
        assert_eq!(codes_on(two, &format!("export NCCL_DEBUG={level}")), [""; 0], "{level}");
    }
    // Without a level that is above VERSION the file is not opened.
    let file =
        |level: &str| codes_on(two, &format!("export NCCL_DEBUG={level} NCCL_DEBUG_FILE=/fsx/nccl.log"));
    assert_eq!(
        (file("INFO"), file("DEBUG")),
        (vec!["L-DEBUG-FILE".to_owned()], vec!["L-DEBUG-LEVEL".to_owned()])
    );
}

/// The number of nodes of a template is not known, and not one.
#[test]
fn a_template_may_have_several_nodes() {
    assert_eq!(
        codes_on("-N {{ nodes }} --gpus-per-node=8", "export FI_PROVIDER=efa NCCL_PROTO=simple"),
        ["L-PROTO-SIMPLE"]
    );
    let template = |replicas: &str| {
        format!(
            "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {{name: a}}\nspec: {{pytorchReplicaSpecs: {{Worker: {{replicas: {replicas}, template: {{spec: \
             {{containers: [{{name: pytorch, image: i, env: [{{name: NCCL_PROTO, value: simple}}], resources: {{limits: {{nvidia.com/gpu: 8, vpc.amazonaws.com/efa: 4, \
             hugepages-2Mi: 5120Mi, memory: 1Ti}}}}}}]}}}}}}}}}}\n"
        )
    };
    let (profile, catalogue, options) = (Profile::default(), Catalogue::builtin(), FabricRequest::default());
    let settings = MutateOptions::offline(&profile, &options, &catalogue);
    for (replicas, told) in [("NUM_NODES_PLACEHOLDER", true), ("2", true), ("1", false)] {
        let found = lint_document(&template(replicas), Start::of("a.yaml"), &settings);
        assert_eq!(found.iter().any(|one| one.code == "L-PROTO-SIMPLE"), told, "{replicas}: {found:?}");
    }
}

/// A type that is named decides whether the setting aborts; that the catalogue does not know it proves nothing.
#[test]
fn rdma_is_a_default_to_remove_where_no_type_is_named() {
    let with = |types: &[&str]| {
        let mut role = role(&[("FI_EFA_USE_DEVICE_RDMA", "1")], EFA);
        role.instance_types = types.iter().map(|name| (*name).to_owned()).collect();
        let found = by_profile(role, "eks-image");
        found.into_iter().filter(|code| code.contains("RDMA")).collect::<Vec<_>>()
    };
    assert_eq!(with(&[]), ["L-EFA-RDMA-DEFAULT"]);
    for named in ["p5.48xlarge", "p6e-gb300.36xlarge", "p99.48xlarge"] {
        assert_eq!(with(&[named]), [""; 0], "{named}");
    }
    assert_eq!(with(&["g5.48xlarge"]), ["E-RDMA-UNSUPPORTED"]);
}

/// A request of none is no request.
#[test]
fn none_of_a_device_shows_no_fabric() {
    let with = |efa: &str| {
        let asked = [
            ("nvidia.com/gpu", "8"),
            ("vpc.amazonaws.com/efa", efa),
            ("memory", "1Ti"),
            ("hugepages-2Mi", "5Gi"),
        ];
        let job = JobView {
            kind: JobKind::MpiJobV2,
            roles: vec![role(&[("FI_PROVIDER", "sockets")], &asked)],
            ..JobView::default()
        };
        let found = lint::job(&job, Fabric::Auto, &Profile::default(), &Catalogue::builtin());
        found.into_iter().map(|one| one.finding.code).collect::<Vec<_>>()
    };
    assert_eq!((with("0"), with("4")), (Vec::new(), vec!["L-ON-SOCKETS".to_owned()]));
}
