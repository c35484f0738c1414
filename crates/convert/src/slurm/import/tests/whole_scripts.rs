//! Scripts that are carried as they are.

use super::*;

/// A script with more than one launch runs once, never once on each node.
#[test]
fn a_script_of_several_steps_is_kept_whole() {
    for body in [
        "srun hostname\nsrun ./train",
        "for i in 1 2; do srun ./train; done",
        "srun ./train | tee log",
        "srun ./train &\nsrun ./watch &\nwait",
        "bash launch.sh",
        "mpirun -np 16 ./train",
        "srun ./train\ncp -r out /fsx",
        "srun -N 1 ./train",
        "if true; then srun ./train; fi",
        "run() { srun \"$@\"; }\nrun ./train",
    ] {
        let (spec, said) = imported(&format!("{HEAD}{body}\n"));
        let Some(Code::Script { text, .. }) = &spec.code else { panic!("{body}") };
        assert_eq!((spec.launch, spec.roles[0].ranks_per_node), (Launch::Once, Some(1)), "{body}");
        assert!(
            text.ends_with(&format!("{body}\n")) && said.iter().any(|one| one.contains("runs once")),
            "{text}"
        );
    }
    // An `exit` with the launch's result changes nothing; any other last command gives the script another one.
    let (spec, _) = imported(&format!("{HEAD}srun ./train\n# done\nexit $?\n"));
    assert_eq!(spec.roles[0].command, ["./train"]);
    for last in ["echo done", "exit 0", "exit 3", "wait", "true"] {
        let (spec, said) = imported(&format!("{HEAD}srun ./train\n{last}\n"));
        assert_eq!(spec.roles[0].command, ["bash", "job.sh"], "{last}");
        assert!(said.iter().any(|one| one.contains("follows the command")), "{said:?}");
    }
}

/// What the ranks of a script see, and those of a rendered one would not: the script is carried.
#[test]
fn what_reaches_the_ranks_is_kept_whole() {
    for (before, whole) in [
        ("set -a; source .env; set +a", true),
        ("set -o allexport", true),
        ("set -f", true),
        ("set -- $L", true),
        ("if true; then set -e; fi", true),
        ("set -euo pipefail", false),
        ("shopt -s nullglob", true),
        ("trap 'echo end' EXIT", true),
        ("exec > log.txt", true),
        ("retry() { \"$@\"; }\nexport -f retry", true),
        ("IFS=,", true),
        ("export MASTER_ADDR=$MASTER\"i\"", true),
        ("export MASTER_ADDR=$(hostname -i)", true),
        ("export MASTER_ADDR=$(hostname)", false),
        ("export MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)", false),
        ("head=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1)\nexport MASTER_ADDR=$head", false),
        ("head=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1)\nexport MASTER_ADDR=${head}i", true),
        ("export WORLD_SIZE=$SLURM_NTASKS", true),
        ("A=1; export WORLD_SIZE=4", true),
        ("export MASTER_PORT=29500 MASTER_ADDR=10.0.0.5", true),
        ("export MASTER_PORT=29500 MASTER_ADDR=$(hostname)", false),
        ("export NNODES=$SLURM_NNODES", false),
        ("module load cuda\nsource env/bin/activate", false),
    ] {
        let (spec, said) = imported(&format!("{HEAD}{before}\nsrun ./a\n"));
        assert_eq!(spec.launch == Launch::Once, whole, "{before}: {said:?}");
    }
    for (address, whole) in
        [("$MASTER_ADDR", false), ("$head", true), ("10.0.0.1", true), ("${HOSTNAME}", false)]
    {
        let before = "export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1)";
        let launch =
            format!("srun torchrun --nnodes 2 --nproc-per-node 8 --rdzv-endpoint {address}:29500 /a.py");
        let (spec, said) = imported(&format!("{HEAD}{before}\n{launch}\n"));
        assert_eq!(spec.launch == Launch::Once, whole, "{address}: {said:?}");
    }
}

/// A pipeline that fails ends a rendered script only where it ends the original.
#[test]
fn pipelines_fail_as_in_the_script() {
    let setup = |before: &str| {
        let (spec, _) = imported(&format!("{HEAD}{before}\nsrun ./a\n"));
        spec.backend["slurm"]["setup"].clone()
    };
    let line = "export P=$(grep -o p=1 f | cut -c3-)";
    assert_eq!(setup(&format!("set -e\n{line}")), json!(["set +o pipefail", line, "set -o pipefail"]));
    assert_eq!(setup(&format!("set -eo pipefail\n{line}")), json!([line]));
    assert_eq!(setup(&format!("set -o pipefail\n{line}")), json!(["set +e", line, "set -e"]));
}

/// pyxis runs a whole script in the container of its directives, which are kept as they stand.
#[test]
fn a_script_in_a_container_is_kept_whole() {
    let head = "#!/bin/bash -l\n#SBATCH -N 2 --gpus-per-node=8\n#SBATCH --container-image=nvcr.io\\#nvidia/pytorch:24.01-py3\n\
        #SBATCH --container-mounts=/a:/a,/b:/b";
    let (spec, _) = imported(&format!("{head}\npip list\nsrun python a.py\n"));
    let own = ["--container-image=nvcr.io#nvidia/pytorch:24.01-py3", "--container-mounts=/a:/a,/b:/b"];
    assert_eq!((spec.launch, &spec.backend["slurm"]["sbatch"]), (Launch::Once, &json!(own)));
    assert_eq!(spec.roles[0].command, ["bash", "-l", "job.sh"]);
    let (spec, _) = imported(&format!("{head}\nexport A=1\nsrun python a.py\n"));
    assert_eq!(spec.image.as_deref(), Some("nvcr.io/nvidia/pytorch:24.01-py3"));
}

/// What a carried script requests is requested by its own lines: Slurm sets variables for each, which it reads.
#[test]
fn a_whole_script_has_its_own_requests() {
    for (head, kept) in [
        ("-N 1 --gpus=4", json!(["--gpus=4"])),
        ("-N 2 --gres=gpu:4 -n 8 -c 3", json!(["--gres=gpu:4", "--ntasks=8", "--cpus-per-task=3"])),
        ("-N 2 --gres=gpu:a100:4,nvme:1", json!(["--gres=gpu:a100:4,nvme:1"])),
        ("-N 2 --ntasks-per-gpu=1 --gpus-per-node=2", json!(["--ntasks-per-gpu=1"])),
        ("-N 2 --gpus-per-node=4 --ntasks-per-node=4", json!(null)),
        // Each of two for one thing has variables of its own.
        ("-N 2 -n 8 --ntasks-per-node=4 -G 8", json!(["--gpus=8", "--ntasks=8", "--ntasks-per-node=4"])),
        ("-N 2 --gpus-per-node=4 --gres=gpu:4", json!(["--gres=gpu:4", "--gpus-per-node=4"])),
        ("-N 4 -n 10 --gpus-per-node=1", json!(["--ntasks=10"])),
    ] {
        let (spec, _) = imported(&format!("#!/bin/bash -l\n#SBATCH {head}\nsrun a $X\nsrun b $X\n"));
        let own = &spec.backend.get("slurm").map_or(json!(null), |own| own["sbatch"].clone());
        assert_eq!((spec.launch, own), (Launch::Once, &kept), "{head}");
        assert!(spec.roles[0].gpus_per_node > 0, "the fabric is decided by it: {head}");
        assert!(spec.backend.get("slurm").is_none_or(|own| own.get("shell").is_none()), "one login");
    }
}

/// What the first line and `sbatch $0` mean in the script, they mean in the job.
#[test]
fn a_script_of_sh_or_that_submits_itself_is_carried() {
    let spec = |text: &str| imported(text).0;
    let of_sh = |before: &str| spec(&format!("#!/bin/sh\n#SBATCH -N 2\n{before}srun ./a\n")).launch;
    assert_eq!((of_sh("source ~/.bashrc\n"), of_sh("")), (Launch::Once, Launch::PerNode));
    let text = "#!/bin/bash\n#SBATCH -N 2\nsrun ./a || sbatch $0\n";
    let Some(Code::Script { text: carried, .. }) = spec(text).code else { panic!("it is carried") };
    assert_eq!(carried, text);
    let verbose = spec("#!/bin/bash\n#SBATCH -N 2\nsrun -vv ./a\n");
    assert_eq!(verbose.backend["slurm"]["srun"], json!(["--verbose", "--verbose"]));
}

/// Where the commands before `srun` may see the tasks of the job, and `srun` has others, the script is carried.
#[test]
fn commands_before_the_ranks_see_the_job_of_the_script() {
    let launch =
        |head: &str, body: &str| imported(&format!("#!/bin/bash\n#SBATCH {head}\n{body}\n")).0.launch;
    for (head, body, converted) in [
        (
            "-N 2 --ntasks=8 --ntasks-per-node=4",
            "mpirun python pre.py\nsrun --ntasks-per-node=1 -n 2 python a.py",
            false,
        ),
        ("-N 2 --ntasks-per-node=4", "python pre.py\nsrun python a.py", true),
        ("-N 2", "module load cuda\nsrun --ntasks-per-node=4 python a.py", true),
        ("-N 2", "module load cuda/$SLURM_NTASKS\nsrun --ntasks-per-node=4 python a.py", false),
        ("-N 2 -c 2 --exclusive", "srun -n 8 python a.py", false),
        ("-N 2 -c 2 --exclusive", "srun -n 8 -c 4 python a.py", true),
        ("-N 2", "source venv/bin/activate\nsrun --chdir=/tmp python a.py", false),
        ("-N 2", "srun --chdir=/tmp python a.py", true),
        ("-N 2 --ntasks-per-node=2", "module load $1\nsrun python a.py", false),
        ("-N 2 --export=ALL,VENV=/x", "echo go\nsrun python a.py", true),
        ("-N 2 --export=ALL,NCCL_DEBUG=WARN", "export NCCL_DEBUG=INFO\nsrun python a.py", false),
        ("-N 2", "export DATA=$PWD/data\nsrun --chdir=/scratch python a.py", false),
        ("-N 2", "export OMP_NUM_THREADS=$(nproc)\nsrun -c 8 --ntasks-per-node=4 python a.py", false),
        ("-N 2", "export OMP_NUM_THREADS=8\nsrun -c 8 --ntasks-per-node=4 python a.py", true),
        ("-N 2 --export=ALL,VENV=/x", "source $VENV/bin/activate\nsrun python a.py", false),
        ("-N 2 --export=ALL,VENV=/x", "source /VENV/bin/activate\nsrun python a.py", false),
        ("-N 2 --ntasks-per-node=2", "f() { module load $1; }\nf cuda\nsrun -ul python a.py", true),
    ] {
        assert_eq!(launch(head, body) != Launch::Once, converted, "{head} {body}");
    }
}

/// One task on each node is one rank there, whatever GPUs it has.
#[test]
fn a_task_for_each_node_is_one_rank() {
    let (spec, _) =
        imported("#!/bin/bash\n#SBATCH -N 2 --ntasks-per-node=1 --gpus-per-node=8\nsrun ./train.sh\n");
    assert_eq!((spec.launch, spec.roles[0].ranks_per_node), (Launch::PerNode, Some(1)));
}

/// The options of the first line are those of the script.
#[test]
fn options_of_the_first_line_are_kept() {
    let of = |first: &str, body: &str| imported(&format!("{}{body}", HEAD.replacen("#!/bin/bash", first, 1)));
    let (spec, _) = of("#!/bin/bash -e", "module load cuda\nsrun ./train\n");
    assert_eq!(spec.backend["slurm"]["setup"], serde_json::json!(["module load cuda"]));
    let (spec, _) = of("#!/bin/bash -ex", "./a\nsrun ./train\nsrun ./b\n");
    assert_eq!(spec.roles[0].command, ["bash", "-ex", "job.sh"]);
    let (spec, _) = of("#!/bin/sh", "./a\nsrun ./train\nsrun ./b\n");
    assert_eq!(spec.roles[0].command, ["sh", "job.sh"]);
    let (_, said) = of("#!/bin/bash -u", "cd $FOO\nsrun ./train\n");
    assert!(said.iter().any(|one| one.contains("`set -u`")), "{said:?}");
}
