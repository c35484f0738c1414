//! Published command lines of the official `runai`, imported and rendered. Each is shortened to the relevant
//! part, with changed names; the forms are those of the sources named beside them (read 2026-11-22).

use std::fmt::Write as _;

use weftrun_convert::import_runai;
use weftrun_core::spec::to_toml;

use crate::common::{connect, planned, target_of};

const LINES: [(&str, &str); 14] = [
    // A workspace with a notebook (vendor's CLI examples).
    (
        "notebook",
        "runai workspace submit --image jupyter/scipy-notebook -p team --gpu-devices-request 1 --external-url container=8888 \
                  --name-prefix jupyter --command -- start-notebook.sh --NotebookApp.base_url='/${RUNAI_PROJECT}/${RUNAI_JOB_NAME}'",
    ),
    // TensorFlow workers without a master (vendor's CLI examples).
    (
        "tensorflow",
        "runai distributed submit -f TF --workers=5 --no-master -g 1 -i kubeflow/tf-mnist:latest -p team --command -- python /var/mnist.py --max_steps 10",
    ),
    // A part of a GPU on each node, no command (vendor's quick start).
    (
        "portions",
        "runai training pytorch submit pytorch-dt -i kubeflow/pytorch-dist-mnist:latest --workers 2 --gpu-request-type portion \
                  --gpu-portion-request 0.1 --gpu-devices-request 1 --cpu-memory-request 100M",
    ),
    // Several pods of one training (vendor's CLI examples).
    ("parallel", "runai training submit -i alpine -p test --parallelism 2 --completions 2 -- sleep 100000"),
    // Master and workers with commands of their own (vendor's CLI examples).
    ("two-commands", "runai pytorch submit m -i ubuntu --master-args \"-a master_arg\" -- '-a worker_arg'"),
    // NCCL over racks, an interactive launcher (a cluster's benchmark notes).
    (
        "nccl",
        "runai training mpi submit nccl -p bench -i nvcr.io/org/nccl:26.01 --image-pull-policy Always -g 4 --workers 2 --slots-per-worker 4 \
              --large-shm --capability IPC_LOCK --host-path path=/dev/nvidia-caps,mount=/dev/nvidia-caps --node-pools default -- bash -c 'sleep 1d'",
    ),
    // Four nodes over NFS, the master like the workers (a benchmark's instructions).
    (
        "isaac",
        "runai training pytorch submit bench --project p --image i:1 --node-pools \"${POOL}\" --workers 3 --gpu-devices-request 4 \
               --master-gpu-devices-request 4 --large-shm --nfs \"server=nas,path=/x,mountpath=/mnt/nfs,readwrite\" --backoff-limit 0 \
               --restart-policy Never --master-restart-policy Never --clean-pod-policy None --user-group-source fromTheImage \
               --environment \"VERSION=3\" --command -- /run.sh \"pytorch task\"",
    ),
    // A claim for shared memory and a repository (a university's fine-tuning script).
    (
        "ephemeral",
        "runai workspace submit fm --image harbor/fm:latest --cpu-core-limit 25 --cpu-core-request 4 --cpu-memory-limit  245G --cpu-memory-request 32G \
                   --gpu-devices-request 1 --backoff-limit 1 --new-pvc \"claimname=shm,storageclass=fast,size=512G,path=/dev/shm,accessmode-rwm,ephemeral\" \
                   --existing-pvc \"claimname=data,path=/data\" --git-sync \"name=fm,repository=https://github.com/example/fm,path=/code/,rev=main\" \
                   --environment KEY=\"$WANDB\" --command -- torchrun --nproc-per-node=1 src/train.py",
    ),
    // 2.13 with ids of a user (a laboratory's getting started).
    (
        "older-ids",
        "MSYS_NO_PATHCONV=1 runai submit --image reg/img:1 --name tissue --gpu 1 --node-pools default --environment HOME=\"/home/me\" --project p \
                   --run-as-uid 296712 --run-as-gid 84257 --existing-pvc claimname=scratch,path=/data --large-shm --interactive -- sleep infinity",
    ),
    // 2.13 with GPU memory (an experiment's header).
    (
        "gpu-memory",
        "runai submit --name e47 --gpu-memory 24G -i pytorch/pytorch:2.10.0 --pvc=storage:/storage --large-shm --command -- bash /storage/job.sh --sub20",
    ),
    // 2.13 with the words behind --command (a biology group's README).
    (
        "older-command",
        "runai submit --name tune -i ghcr.io/org/tune:1 --command \"python3 src/tune.py --num_gpus 4\" -e TRACKING=SECRET:mlflow,user -g 4",
    ),
    // `-c` for --command in 2.18 and newer (an HPC centre's recipes).
    (
        "namd",
        "JOB_NAME=\"namd\"\nrunai training submit \"${JOB_NAME}\" \\\n  -p \"${RUNAI_PROJECT}\" \\\n  --image nvcr.io/hpc/namd:3.0.1 \\\n  -c \\\n  --gpu-devices-request 1 \\\n  -- bash -c 'cd $HOME && namd3 +p8 stmv.namd'",
    ),
    // Several nodes from 2.13, arguments only (a model's README).
    (
        "titan",
        "runai submit-dist pytorch --name titan --workers=1 -g 8 -i nvcr.io/org/titan -e CONFIG_FILE=\"./llama3.toml\" -e HF_TOKEN=$HF_TOKEN",
    ),
    // Elastic, a port, a user of the machine (a course's handout).
    (
        "elastic",
        "runai training pytorch submit elastic --image x/y:v2 --workers 2 --min-replicas 1 --max-replicas 3 --port service-type=NodePort,container=8888,external=30022 \
                 --run-as-user --preemptible --ttl-after-finish 1h -- torchrun --nproc-per-node 1 main.py",
    ),
];

/// Each becomes a valid job, and a body without a field that the API lacks.
#[test]
fn published_command_lines_are_jobs() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let backend =
        runtime.block_on(connect(target_of("https://tenant.example.test").with("version", "2.24"))).unwrap();
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.add_filter(r#""value": "[0-9a-f]{16,}""#, r#""value": "ID""#);
    settings.bind(|| {
        for (name, line) in LINES {
            let imported = import_runai(line).unwrap_or_else(|error| panic!("{name}: {}", error.message));
            let errors: Vec<_> =
                imported.spec.validate().into_iter().filter(weftrun_core::Finding::is_error).collect();
            assert!(errors.is_empty(), "{name}: {errors:?}");
            let mut text = to_toml(&imported.spec);
            for finding in &imported.findings {
                writeln!(text, "# {}: {}", finding.code, finding.message).unwrap();
            }
            let rendered = backend.render(&planned(imported.spec, None, Default::default()));
            let rendered = rendered.unwrap_or_else(|error| panic!("{name}: {error}"));
            writeln!(text, "---\n{}", rendered.documents[0].text).unwrap();
            insta::assert_snapshot!(format!("import-{name}"), text);
        }
    });
}
