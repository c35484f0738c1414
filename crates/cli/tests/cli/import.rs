//! `import`: a manifest becomes a job file that plans to the same thing.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::cases::{case, read};
use crate::place::Place;

/// Rule and value of each decision on the workers, without the rules that only job files have.
fn decisions(value: &Value, worker: &str) -> BTreeSet<(String, String, String)> {
    let only_job_files = ["efa.colocate", "detect.nccl-debug", "efa.mpirun"];
    let text = |one: &Value, key: &str| one[key].as_str().unwrap_or_default().to_owned();
    value["decisions"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| !only_job_files.contains(&one["rule"].as_str().unwrap_or_default()))
        .filter_map(|one| {
            let (role, target) = one["target"].as_str()?.split_once(": ")?;
            (role == worker).then(|| (text(one, "rule"), target.to_owned(), text(one, "value")))
        })
        .collect()
}

#[test]
fn an_sbatch_script_is_recognised_without_its_form() {
    let place = Place::new();
    place.write(
        "train.sbatch",
        "#!/bin/bash\n#SBATCH -J llama -N 2 --gpus-per-node=8\nsrun torchrun --nproc_per_node 8 train.py\n",
    );
    let plain = place.run("import train.sbatch").ok();
    assert!(
        plain.out.contains("name = \"llama\"") && plain.out.contains("launch = \"torchrun\""),
        "{}",
        plain.out
    );
    assert_eq!(plain.out, place.run("import sbatch train.sbatch").ok().out);
}

#[test]
fn what_is_imported_plans_to_what_is_mutated() {
    for name in [
        "01-pytorchjob-full-nodes",
        "02-pytorchjob-user-env",
        "03-mpijob-v2beta1-argv",
        "04-mpijob-v2beta1-shell",
        "05-mpijob-v1-timeout",
        "06-partial-node",
        "11-instance-p5en",
    ] {
        let place = Place::new();
        place.write("job.yaml", case(name, "before.yaml"));
        let imported = place.run("import job.yaml");
        assert_eq!(imported.code, 0, "{name}: {}", imported.err);
        place.write("job.toml", &imported.out);
        let plan = place.run("plan job.toml -b kubeflow --profile dgxc -o json");
        assert_eq!(plan.code, 0, "{name}: {}\n{}", plan.err, imported.out);
        let planned: Value = serde_json::from_str(&plan.out).unwrap();
        place.run("mutate --profile dgxc job.yaml --report report.json");
        let report: Value = serde_json::from_str(&read(&place, "report.json")).unwrap();
        let mutated = decisions(&report["documents"][0], "Worker");
        assert_eq!(decisions(&planned, "worker"), mutated, "{name}\n{}", imported.out);
        let rendered = place.run("render job.toml -b kubeflow --profile dgxc");
        assert_eq!(rendered.code, 0, "{name}: {}", rendered.err);
        let kind = report["documents"][0]["kind"].as_str().unwrap();
        assert!(rendered.out.contains(&format!("kind: {kind}")), "{name}\n{}", rendered.out);
    }
}

#[test]
fn what_a_job_file_has_no_word_for_is_said() {
    let place = Place::new();
    let text = "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a, namespace: team}\nspec:\n  \
                pytorchReplicaSpecs:\n    Worker:\n      replicas: 2\n      template:\n        spec:\n          \
                hostNetwork: true\n          containers:\n          - name: pytorch\n            image: x\n            \
                command: [python, -m, torch.distributed.run, --nproc_per_node=4, --rdzv_endpoint=x:1, t.py]\n            \
                resources: {limits: {nvidia.com/gpu: 8}}\n            env: [{name: HOST, valueFrom: {fieldRef: \
                {fieldPath: status.hostIP}}}]\n";
    let ran = place.feed("import", text.as_bytes());
    assert_eq!(ran.code, 0, "{}", ran.err);
    for part in ["launch = \"torchrun\"", "nodes = 2", "ranks_per_node = 4", "command = [\"t.py\"]"] {
        assert!(ran.out.contains(part), "{part} in\n{}", ran.out);
    }
    for part in ["hostNetwork", "W-IMPORT-LOST", ".env`", "-n team"] {
        assert!(ran.err.contains(part), "{part} in\n{}", ran.err);
    }
    assert_eq!(place.feed("import", b"kind: Pod\n").code, 3);
    let unready = text.replace("replicas: 2", "replicas: 0");
    let ran = place.feed("import manifest", unready.as_bytes());
    assert_eq!((ran.code, ran.out.as_str()), (3, ""), "{}", ran.err);
}

const SCRIPT: &str = r#"#!/bin/bash
#SBATCH --job-name=llama
#SBATCH -N 4 --ntasks-per-node=1
#SBATCH --gpus-per-node=8 -p compute-gpu
#SBATCH --constraint=p4de.24xlarge
#SBATCH --time=1-00:00:00
#SBATCH --account=ml-research --requeue
export NCCL_DEBUG=INFO
export NOTE='it is $HOME; "x"'
srun --container-image nvcr.io#nvidia/pytorch:25.09-py3 --container-mounts /fsx/data:/data \
  torchrun --nnodes=$SLURM_NNODES --nproc-per-node=8 --rdzv-backend=c10d train.py --lr 3e-4
"#;

#[test]
fn an_sbatch_script_becomes_a_job_that_renders_to_its_like() {
    let place = Place::new();
    place.write("train.sbatch", SCRIPT);
    let imported = place.run("import sbatch train.sbatch");
    assert_eq!(imported.code, 0, "{}", imported.err);
    assert_eq!(place.feed("import sbatch", SCRIPT.as_bytes()).out, imported.out, "from standard input, too");
    place.write("job.toml", &imported.out);
    let rendered = place.run("render job.toml -b slurm --profile parallelcluster");
    assert_eq!(rendered.code, 0, "{}\n{}", rendered.err, imported.out);
    for line in [
        "#SBATCH --job-name=llama",
        "#SBATCH --nodes=4",
        "#SBATCH --ntasks-per-node=1",
        "#SBATCH --gpus-per-node=8",
        "#SBATCH --partition=compute-gpu",
        "#SBATCH --constraint=p4de.24xlarge",
        "#SBATCH --time=1-00:00:00",
        "#SBATCH --account=ml-research",
        "#SBATCH --requeue",
        "export NOTE='it is $HOME; \"x\"'",
    ] {
        assert!(rendered.out.lines().any(|own| own == line), "{line} in\n{}", rendered.out);
    }
    for part in [
        "'nvcr.io#nvidia/pytorch:25.09-py3'",
        "/fsx/data:/data",
        "torchrun train.py --lr 3e-4",
        "FI_EFA_USE_DEVICE_RDMA=1",
    ] {
        assert!(rendered.out.contains(part), "{part} in\n{}", rendered.out);
    }
    let odd = place.feed("import sbatch", b"no script at all\n");
    assert_eq!((odd.code, odd.out.as_str()), (3, ""), "{}", odd.err);
}

/// What the shell expands in the launch is left to the shell: the script is carried as it is, and can be rendered.
#[test]
fn a_script_that_depends_on_a_condition_is_carried_as_it_is() {
    let place = Place::new();
    let script = SCRIPT.replace("srun ", "if [ -d /x ]; then\n  MORE=--auto-resume=1\nfi\nsrun $MORE ");
    place.write("train.sbatch", &script);
    let whole = place.run("import sbatch train.sbatch");
    assert_eq!(whole.code, 0, "{}", whole.err);
    for part in ["the shell expands `$MORE`", "is carried as it is"] {
        assert!(whole.err.contains(part), "{part} in\n{}", whole.err);
    }
    assert_eq!(place.run("import sbatch --whole train.sbatch").out, whole.out);
    place.write("job.toml", &whole.out);
    let rendered = place.run("render job.toml -b slurm --profile parallelcluster");
    assert_eq!(rendered.code, 0, "{}\n{}", rendered.err, whole.out);
    let (own, _) = rendered.out.split_once("\n}\n").unwrap();
    assert_eq!(
        own.lines().next_back().unwrap_or_default(),
        "weftrun_program bash \"$weftrun_source\"/job.sh",
        "{}",
        rendered.out
    );
    let elsewhere = place.run("render job.toml -b kubeflow --profile dgxc");
    assert!(elsewhere.code != 0 && elsewhere.err.contains("once"), "{}", elsewhere.err);
}

/// Points 2 and 9 of issue 16.
#[test]
fn a_plan_for_slurm_says_where_the_job_runs_and_what_a_node_failure_does() {
    let place = Place::new();
    place.write("job.toml", "name = \"a\"\nnodes = 2\ncommand = [\"./a\"]\n");
    let plan = place.run("plan job.toml -b slurm");
    assert_eq!(plan.code, 0, "{}", plan.err);
    assert!(
        plan.err.contains("the folder where `submit` is called") && plan.err.contains("JobRequeue"),
        "{}",
        plan.err
    );
    place.write(
        "job.toml",
        "name = \"a\"\nworkdir = \"/fsx/a\"\nrestart = \"on-failure\"\ncommand = [\"./a\"]\n",
    );
    let plan = place.run("plan job.toml -b slurm");
    assert!(
        plan.err.contains("`/fsx/a` (`workdir`)") && plan.err.contains("as the job file says"),
        "{}",
        plan.err
    );
}

/// 16 tasks are not 16 ranks where the script starts its ranks itself.
#[test]
fn a_plan_of_a_whole_script_counts_tasks() {
    let place = Place::new();
    let body = "if true; then srun torchrun --nnodes 2 --nproc_per_node 8 a.py; fi\n";
    for (head, counted) in [
        ("-N 2 --ntasks-per-node=8", "2 nodes, 16 tasks, ranks unknown"),
        // The total is among the lines of the script.
        ("-n 16", "2 nodes, ranks unknown"),
        ("-N 2", "2 nodes, ranks unknown"),
    ] {
        place.write("a.sbatch", format!("#!/bin/bash\n#SBATCH -J a {head}\n{body}"));
        let job = place.run("import sbatch a.sbatch");
        place.write("a.toml", &job.out);
        let plan = place.run("plan a.toml -b slurm");
        assert!(plan.out.starts_with(&format!("a: {counted}")), "{}", plan.out);
    }
}

/// Point 2 of issue 15: what is reported is also in the script.
#[test]
fn what_a_script_cannot_carry_is_named_as_not_applied() {
    let place = Place::new();
    place.write("a.sbatch", "#!/bin/bash\n#SBATCH -J a -N 2 --gpus-per-node=8\nsrun ./a\n");
    let mutated = place.run("mutate --profile dgxc -f a.sbatch --report report.json");
    assert_eq!(mutated.code, 0, "{}", mutated.err);
    let report: Value = serde_json::from_str(&read(&place, "report.json")).unwrap();
    let actions = report["documents"][0]["actions"].to_string();
    assert!(!actions.contains("resources") && !actions.contains("mount"), "{actions}");
    for part in ["not applied", "vpc.amazonaws.com/efa=32", "/opt/amazon-efa-ofi"] {
        assert!(mutated.err.contains(part), "{part} in\n{}", mutated.err);
    }
    assert!(!mutated.out.contains("container-mounts"));
}

/// EPFL's line (shared/runai/contract.md §9): three nodes are two workers and a master.
#[test]
fn a_command_line_of_runai_renders_to_the_body_it_made() {
    let place = Place::new();
    let line = "runai submit-dist pytorch --name readme --workers=2 -g 4 -i train:v1 \\\n  \
                --annotation k8s.v1.cni.cncf.io/networks=kube-system/roce --extended-resource rdma/rdma=1 -- \"sleep infinity\"\n";
    let imported = place.feed("import runai -", line.as_bytes());
    assert_eq!(imported.code, 0, "{}", imported.err);
    assert!(!imported.err.contains("W-IMPORT-LOST"), "{}", imported.err);
    place.write("job.toml", &imported.out);
    let rendered = place.run("render job.toml -b runai -p mlo --profile roce -o json");
    assert_eq!(rendered.code, 0, "{}\n{}", rendered.err, imported.out);
    for part in ["\"numWorkers\":2", "kube-system/roce", "rdma/rdma", "train:v1"] {
        assert!(
            rendered.out.replace('\\', "").replace(": ", ":").contains(part),
            "{part} in\n{}",
            rendered.out
        );
    }
    assert_eq!(place.feed("import runai -", b"runai list\n").code, 3);
}

#[test]
fn options_that_a_key_holds_in_part_are_rendered_as_they_were() {
    let place = Place::new();
    let text = "#!/bin/bash\n#SBATCH -J a -N 2 --ntasks-per-node=4 --gres=gpu:a100:4 --gpus-per-task=1\n\
                #SBATCH --mem=0 --time=UNLIMITED --comment=proj7 -p a,b\nsrun python /fsx/train.py\n";
    let imported = place.feed("import sbatch", text.as_bytes());
    assert_eq!((imported.code, imported.err.as_str()), (0, ""));
    place.write("job.toml", &imported.out);
    let rendered = place.run("render job.toml -b slurm");
    assert_eq!(rendered.code, 0, "{}", rendered.err);
    for line in [
        "#SBATCH --ntasks-per-node=4",
        "#SBATCH --gpus-per-task=1",
        "#SBATCH --gres=gpu:a100:4",
        "#SBATCH --mem=0",
        "#SBATCH --time=UNLIMITED",
        "#SBATCH --partition=a,b",
    ] {
        assert!(rendered.out.lines().any(|own| own == line), "{line} in\n{}", rendered.out);
    }
    assert!(rendered.out.contains(" proj7\"\n") && !rendered.out.contains("--gpus-per-node"));
    // The comment of a rendered script names its submission, which an import does not repeat.
    let again = place.feed("import sbatch", rendered.out.as_bytes());
    assert!(again.out.contains("\"--comment=proj7\""), "{}", again.out);
}

/// After github.com/oracle-quickstart/oci-hpc-oke, manifests/nccl-tests/kueue (2026-11-23).
#[test]
fn an_sshd_of_the_workers_own_is_rendered_and_a_launcher_has_no_devices() {
    let place = Place::new();
    let text = "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata: {name: a}\nspec:\n  slotsPerWorker: 8\n  \
                mpiReplicaSpecs:\n    Launcher:\n      template:\n        spec:\n          containers:\n          \
                - {name: m, image: x, command: [mpirun, -np, '16', ./a]}\n    Worker:\n      replicas: 2\n      template:\n        \
                spec:\n          volumes: [{name: ib, hostPath: {path: /dev/infiniband}}]\n          containers:\n          \
                - name: m\n            image: x\n            command: [/usr/sbin/sshd, -D, -p, '2222']\n            \
                resources: {limits: {nvidia.com/gpu: 8}}\n            volumeMounts: [{name: ib, mountPath: /dev/infiniband}]\n";
    let imported = place.feed("import manifest", text.as_bytes());
    assert!(imported.code == 0 && !imported.err.contains("W-IMPORT-LOST"), "{}", imported.err);
    place.write("job.toml", &imported.out);
    let rendered = place.run("render job.toml -b kubeflow");
    assert_eq!(rendered.code, 0, "{}", rendered.err);
    let (launcher, worker) = rendered.out.split_once("    Worker:\n").unwrap();
    assert!(worker.contains("/dev/infiniband") && !launcher.contains("/dev/infiniband"), "{}", rendered.out);
    let command = "            - /usr/sbin/sshd\n            - -D\n            - -p\n            - '2222'\n";
    assert!(worker.contains(command) && !launcher.contains("sshd"), "{}", rendered.out);
}

/// Kubernetes reads `$$` and `$(NAME)` of a command; a job file is literal.
#[test]
fn a_command_with_dollars_comes_back_as_kubernetes_reads_it() {
    let place = Place::new();
    let manifest = "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\nspec:\n  pytorchReplicaSpecs:\n    \
        Worker:\n      replicas: 2\n      template:\n        spec:\n          containers:\n          - name: pytorch\n            \
        image: x:1\n            command: [sh, -c, 'echo $$RANK $$(hostname) $HOME $(date)']\n            \
        env: [{name: OUT, value: '$$A/$(date)'}]\n";
    place.write("a.yaml", manifest);
    let job = place.run("import a.yaml").ok();
    assert!(job.out.contains("echo $RANK $(hostname) $HOME $(date)"), "{}", job.out);
    assert!(!job.err.contains("literally"), "{}", job.err);
    place.write("a.toml", &job.out);
    let rendered = place.run("render a.toml -b kubeflow").ok();
    // `$R` and `$$R`, and `$(date)` and `$$(date)`, are equal for Kubernetes, where `date` is no variable.
    assert!(rendered.out.contains("echo $RANK $$(hostname) $HOME $$(date)"), "{}", rendered.out);
    assert!(rendered.out.contains("$A/$$(date)"), "{}", rendered.out);

    place.write("b.yaml", manifest.replace("$$RANK", "$(RANK)"));
    let job = place.run("import b.yaml").ok();
    assert!(
        job.err.contains("the command refers to $(RANK), which a job file takes literally"),
        "{}",
        job.err
    );
}

#[test]
fn more_shared_memory_than_memory_is_a_warning_of_lint_and_import() {
    let place = Place::new();
    let manifest = |shm: &str| {
        format!(
            "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {{name: a}}\nspec:\n  pytorchReplicaSpecs:\n    \
             Worker:\n      replicas: 2\n      template:\n        spec:\n          \
             volumes: [{{name: s, emptyDir: {{medium: Memory, sizeLimit: {shm}}}}}]\n          containers:\n          \
             - name: pytorch\n            image: x:1\n            command: [./a]\n            \
             resources: {{limits: {{nvidia.com/gpu: 8, memory: 32Gi}}}}\n            \
             volumeMounts: [{{name: s, mountPath: /dev/shm}}]\n"
        )
    };
    for (shm, said) in [("64Gi", true), ("16Gi", false)] {
        place.write("a.yaml", manifest(shm));
        for command in ["lint a.yaml", "import a.yaml"] {
            let told = place.run(command).ok();
            let all = format!("{}{}", told.out, told.err);
            assert_eq!(all.contains("SPEC-SHM"), said, "{command}: {all}");
        }
    }
}
