mod whole_scripts;

use super::*;
use weftrun_core::spec::{Code, to_toml};

fn imported(text: &str) -> (JobSpec, Vec<String>) {
    let (spec, findings) = import_sbatch(text, false).unwrap();
    (spec, findings.into_iter().map(|finding| format!("{} {}", finding.code, finding.message)).collect())
}

#[test]
fn a_script_of_a_site() {
    let (spec, said) = imported(
        "#!/bin/bash\n#SBATCH --job-name=Llama_8B\n#SBATCH -N 4 --gpus-per-node=8 --exclusive\n#SBATCH -p compute-gpu -A ml-research\n\
         #SBATCH --time=1-02:00:00 --mem=0 --constraint=p4de.24xlarge\n#SBATCH --output=%x_%j.out --nice=100 # log\n\nset -euo pipefail\n\
         module load cuda/12.8\nexport FI_PROVIDER=efa NCCL_DEBUG=\"INFO\"\nexport MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)\n\
         srun -l --container-image nvcr.io#nvidia/pytorch:25.09-py3 --container-mounts=/fsx:/fsx,/fsx/data:/data:ro \\\n  \
         torchrun --nnodes=4 --nproc_per_node 8 --rdzv_endpoint=$MASTER_ADDR:29500 train.py --lr 3e-4\n",
    );
    insta::assert_snapshot!(format!("{}\n{}", to_toml(&spec), said.join("\n")));
}

/// `cases/README.md` lists the sources.
#[test]
fn public_scripts_are_imported() {
    for (name, text) in [
        ("nccl-tests-container", include_str!("cases/nccl-tests-container.sbatch")),
        ("megatron-gpt3", include_str!("cases/megatron-gpt3.sbatch")),
        ("fsdp-llama2", include_str!("cases/fsdp-llama2.sbatch")),
        ("uccl-internode", include_str!("cases/uccl-internode.sbatch")),
        ("nvshmem-put-bw", include_str!("cases/nvshmem-put-bw.sbatch")),
    ] {
        let shown = match import_sbatch(text, false) {
            Ok((spec, findings)) => {
                let said = findings.iter().map(|finding| format!("{} {}", finding.code, finding.message));
                format!("{}\n{}", to_toml(&spec), said.collect::<Vec<_>>().join("\n"))
            }
            Err(refused) => format!("refused: {}: {}", refused.subject.unwrap_or_default(), refused.message),
        };
        insta::assert_snapshot!(format!("public_{name}"), shown);
        // A refused script can still be kept whole.
        assert!(import_sbatch(text, true).is_ok(), "{name}");
    }
}

#[test]
fn an_mpi_plugin_does_not_multiply_the_tasks() {
    for (tasks, ranks) in
        [("", Some(1)), ("#SBATCH --ntasks-per-node=8\n", None), ("#SBATCH --ntasks-per-node=4\n", Some(4))]
    {
        let head = format!("#!/bin/bash\n#SBATCH -N 4\n#SBATCH --gpus-per-node=8\n{tasks}");
        for program in ["torchrun --nproc_per_node 8 t.py", "python t.py"] {
            let (spec, said) = imported(&format!("{head}srun --mpi=pmix {program}\n"));
            let role = &spec.roles[0];
            assert_eq!(
                (spec.launch, role.nodes, role.ranks_per_node),
                (Launch::Mpi, 4, ranks),
                "{program} {said:?}"
            );
        }
    }
}

#[test]
fn a_script_may_end_in_a_line_that_goes_on() {
    for end in ["\\", "\\\n", " \\\n\n"] {
        let (spec, said) = imported(&format!("{HEAD}srun python train.py \\\n  --lr 1 {end}"));
        assert_eq!(spec.roles[0].command, ["python", "train.py", "--lr", "1"], "{end:?} {said:?}");
    }
}

#[test]
fn the_environment_that_sbatch_passes_on() {
    let of = |what: &str| {
        let (spec, _) = imported(&format!("{HEAD}#SBATCH --export={what}\nsrun python train.py\n"));
        let env: Vec<String> = spec.env.iter().map(|var| format!("{}={}", var.name, var.value)).collect();
        let none = spec.backend.get("slurm").and_then(|own| own.get("export")).is_some();
        (env.join(" "), none)
    };
    assert_eq!(of("ALL,A=1,B=two"), ("A=1 B=two".to_owned(), false));
    assert_eq!(of("A=1"), ("A=1".to_owned(), true), "nothing else is passed on");
    assert_eq!(of("NONE"), (String::new(), true));
    assert_eq!(of("all"), (String::new(), false));
}

#[test]
fn ranks_mpi_and_what_has_no_single_srun() {
    let head = "#!/bin/bash\n#SBATCH -J x --nodes=2 --ntasks-per-node=8 --gres=gpu:8\n";
    let (spec, said) = imported(&format!("{head}srun --mpi=pmix /x/all_reduce -b 8\n"));
    assert_eq!(
        (spec.launch, spec.roles[0].command.join(" ")),
        (Launch::Mpi, "/x/all_reduce -b 8".to_owned())
    );
    assert!(said.is_empty(), "{said:?}");
    let (spec, _) = imported(&format!("{head}srun -K1 -u python train.py\n"));
    assert_eq!((spec.launch, spec.roles[0].procs_per_node()), (Launch::PerRank, 8));
    assert_eq!(import_sbatch("#!/bin/sh\necho\n", false).unwrap_err().code, "E-NO-JOB");
    assert_eq!(import_sbatch("#!/bin/sh\n#SBATCH -N1\n", false).unwrap_err().code, "E-IMPORT-JOB");
}

const HEAD: &str =
    "#!/bin/bash\n#SBATCH -J x --nodes=2 --ntasks-per-node=1 --gpus-per-node=8 --cpus-per-task=12\n";

#[test]
fn a_long_text_is_cut_where_a_message_quotes_it() {
    let long = "x".repeat(80 << 10);
    let (_, said) = imported(&format!("{HEAD}srun ./train $(cat {long})\n"));
    assert!(said[0].len() < 300, "{} bytes", said[0].len());
}

/// Outside the simple form the script is carried as it is: nothing in it is evaluated.
#[test]
fn what_a_shell_expands_is_left_to_the_shell() {
    for body in [
        "A=\nif [ -d /opt/x ]; then\n  A=--auto-resume=1\nfi\nsrun $A ./train",
        "T=$((SLURM_JOB_NUM_NODES * 8))\nsrun -n $T -N $SLURM_JOB_NUM_NODES ./train",
        "srun ./train --out \"$OUT\"",
        "srun torchrun --nproc_per_node=8 train.py ~/data",
        "srun ./train $'a\\nb'",
        "ARGS=(--nproc_per_node=8)\nsrun torchrun \"${ARGS[@]}\" train.py",
        "CMD=\"./train\"\nsrun $CMD",
        "srun torchrun --nproc_per_node=$GPUS train.py",
        "srun ./train *.yaml",
    ] {
        let (spec, said) = imported(&format!("{HEAD}{body}\n"));
        let Some(Code::Script { text, .. }) = &spec.code else { panic!("{body}: {spec:?}") };
        assert_eq!(text, &format!("#!/bin/bash\n{body}\n"));
        assert_eq!((spec.launch, spec.nodes(), spec.env.len()), (Launch::Once, 2, 0), "{body}");
        assert!(said[0].contains("is carried as it is"), "{said:?}");
    }
    // What weftrun writes itself need not be resolved.
    let (spec, said) = imported(&format!(
        "{HEAD}export MASTER=$(hostname)\nsrun torchrun --nnodes=$SLURM_NNODES --nproc_per_node=8 --rdzv_endpoint=\"$MASTER:29500\" --node_rank \"$SLURM_NODEID\" /x/train.py 'a $b'\n"
    ));
    assert_eq!(spec.roles[0].command, ["/x/train.py", "a $b"], "{said:?}");
    assert_eq!((spec.launch, said.len()), (Launch::Torchrun, 0), "{said:?}");
    let finding = import_sbatch("#!/bin/bash\n#SBATCH -N $NODES\nsrun x\n", false).unwrap_err();
    assert!(finding.message.contains("sbatch expands no variables"), "{}", finding.message);
    let (spec, _) = imported("#!/usr/bin/env python3\n#SBATCH -N1\nprint()\n");
    assert_eq!(spec.roles[0].command, ["python3", "job.sh"]);
    let (spec, _) = imported(&format!("{HEAD}#SBATCH -o $HOME/a.log\nsrun ./train\n"));
    assert_eq!(spec.roles[0].command, ["./train"], "the name of the log is weftrun's own");
}

/// What a job does not have of the script's surroundings is told.
#[test]
fn arguments_files_and_nodes_of_the_command_line_are_told() {
    let told = |text: &str, part: &str| {
        let (spec, said) = imported(text);
        assert!(said.iter().any(|one| one.contains(part)), "{text}: {part} is not in {said:?}");
        spec
    };
    told(&format!("{HEAD}srun prepare\nsrun train --data \"$1\"\n"), "`$1`, an argument");
    told(&format!("{HEAD}srun prepare\nsrun train \"${{@:2}}\"\n"), "`$@`, an argument");
    told(&format!("{HEAD}source ./env.sh\nsrun train $A\n"), "`./env.sh` is looked up");
    told(&format!("{HEAD}cd $(dirname $0)\nsrun train $A\n"), "beside itself");
    told("#!/bin/bash\nsrun -N $SLURM_NNODES ./a\n#SBATCH -N 1\n", "on the command line");
    let spec = told("#!/bin/bash\n#SBATCH --gpus-per-node=8\nsrun --nodes=2 ./a\n", "uses 2");
    assert_eq!(spec.nodes(), 2);
    let spec = imported("#!/bin/bash\n#SBATCH -n 32 --gpus-per-node=8 --exclusive\nsrun -n $T ./a\n").0;
    assert_eq!((spec.nodes(), &spec.backend["slurm"]["sbatch"]), (4, &serde_json::json!(["--ntasks=32"])));
    told("#!/bin/bash\n#SBATCH -n 32\nsrun ./a\n", "Slurm chooses the nodes");
    for (body, part) in [
        (
            "while getopts n:m: flag; do\n  case $flag in n) N=$OPTARG;; esac\ndone\nsrun a $N",
            "`getopts`, an argument",
        ),
        ("N=${OPTARG:-2}\nsrun a $N", "`$OPTARG`, an argument"),
        ("eval set -- \"$(getopt -o n: -- x)\"\nsrun a $N", "`getopt`, an argument"),
        ("if true; then shift; fi\nsrun a $N", "`shift`, an argument"),
        ("shift 2\nsrun a $N", "`shift`, an argument"),
        ("srun a \"${@}\"", "`$@`, an argument"),
        ("[ ${#} -lt 2 ] && exit 1\nsrun a $N", "`$#`, an argument"),
        (
            "F=$(scontrol show job \"$SLURM_JOB_ID\" | awk -F= '/Command=/{print $2}')\nsrun a $F",
            "beside itself",
        ),
        ("D=$(cd \"$(dirname \"${0}\")\" && pwd)\nsrun a $D", "beside itself"),
        ("D=$(realpath $0)\nsrun a $D", "beside itself"),
        ("D=${0%/*}\nsrun a $D", "beside itself"),
    ] {
        told(&format!("{HEAD}{body}\n"), part);
    }
    for body in ["echo \"usage: $0 FILE\" >&2\nsrun a $N", "echo $0; dirname /a/b\nsrun a $N"] {
        let (_, said) = imported(&format!("{HEAD}{body}\n"));
        assert!(!said.iter().any(|one| one.contains("beside itself")), "{body}: {said:?}");
    }
    for (head, uses) in [
        ("--exclusive", "uses whole nodes"),
        ("--exclusive --gpus-per-node=8", "uses whole nodes"),
        ("--gpus-per-node=8", "requests 8 GPUs on each node"),
        ("--gres=gpu:8", "requests 8 GPUs on each node"),
    ] {
        let part = format!("{uses}, and no line of it names the nodes, so that their number is not known");
        told(&format!("#!/bin/bash\n#SBATCH {head}\nsrun ./a $N\n"), &part);
    }
    for text in [
        "#SBATCH --gpus-per-node=8\n#SBATCH -N 1\nsrun ./a\n",
        "#SBATCH --gpus-per-node=8\n#SBATCH -n 1\nsrun ./a\n",
        "#SBATCH --gpus-per-node=8\ntorchrun --standalone a.py\n",
        "#SBATCH --gpus-per-node=1\nsrun ./a\n",
    ] {
        let (_, said) = imported(&format!("#!/bin/bash\n{text}"));
        assert!(!said.iter().any(|one| one.contains("not known")), "{text}: {said:?}");
    }
    for fine in [
        "awk \"{print \\$1}\" a > b\nsrun ./a $A\n",
        "echo \"shift of nodes\"; echo $$1\nsrun ./a $A\n",
        "awk '{print $1}' a > b\nsrun ./a $A\n",
        "run() { srun \"$@\"; }\nrun a\n",
        "echo done # $1\nsrun a $A\n",
        "a=(1 2)\necho ${#a[@]}\nsrun a $A\n",
    ] {
        let (_, said) = imported(&format!("{HEAD}{fine}"));
        assert!(!said.iter().any(|one| one.contains("an argument")), "{fine}: {said:?}");
    }
}

/// sbatch reads a relative folder from where it runs, which a job file cannot say.
#[test]
fn a_relative_working_directory_is_no_path_of_a_job() {
    for (head, body, workdir, lost) in [
        ("-D .", "srun ./a", None, false),
        ("-D ./", "srun ./a", None, false),
        ("--chdir=logs", "srun ./a", None, true),
        ("-D ../run", "srun ./a", None, true),
        ("-D /scratch/run", "srun ./a", Some("/scratch/run"), false),
        ("-J a", "srun -D . ./a", None, false),
        ("-J a", "srun --chdir=logs ./a", None, true),
        ("-D /scratch", "srun --chdir=. ./a", Some("/scratch"), false),
    ] {
        let (spec, said) = imported(&format!("{HEAD}#SBATCH {head}\n{body}\n"));
        assert_eq!(spec.workdir.as_deref(), workdir, "{head} {body}");
        assert_eq!(said.iter().any(|one| one.contains("working directory")), lost, "{head} {body}: {said:?}");
        assert!(!spec.validate().iter().any(|one| one.code == "SPEC-PATH"), "{head} {body}");
    }
}

/// Commands and what is exported before them stay in their order; exports of plain text behind them are the job's.
#[test]
fn an_export_stays_where_its_order_matters() {
    let (spec, said) = imported(&format!(
        "{HEAD}export A=1 B=2\nmodule load cuda\nC=3\nexport D=4 PATH=/opt/bin:$PATH\nexport E='x y'\nexport F=$E\nexport G=\"7\"\nH=8 srun ./train\n"
    ));
    let env: Vec<String> = spec.env.iter().map(|var| format!("{}={}", var.name, var.value)).collect();
    assert_eq!(env, ["G=7", "H=8"], "{said:?}");
    let setup = spec.backend["slurm"]["setup"].as_array().unwrap();
    let setup: Vec<&str> = setup.iter().filter_map(|line| line.as_str()).collect();
    assert_eq!(
        setup,
        [
            "set +e +o pipefail",
            "export A=1 B=2",
            "module load cuda",
            "C=3",
            "export D=4 PATH=/opt/bin:$PATH",
            "export E='x y'",
            "export F=$E",
            "set -e -o pipefail"
        ]
    );
    let (spec, _) = imported(&format!("{HEAD}set -e\nmodule load cuda\nsrun -n 2 ./train\n"));
    assert_eq!(spec.backend["slurm"]["setup"], serde_json::json!(["module load cuda"]));
}

#[test]
fn flags_of_srun_are_kept() {
    let head = HEAD.replace(" --cpus-per-task=12", "");
    let (spec, said) = imported(&format!(
        "{head}srun -l -K --mpi pmix --cpu-bind=none --export=ALL,X=1 --container-image=a/b#c --network=no_vni --ntasks-per-node 8 bash -c 'exec ./a $SLURM_PROCID'\n"
    ));
    assert_eq!((spec.launch, spec.roles[0].procs_per_node()), (Launch::Mpi, 8));
    assert_eq!(spec.backend["slurm"]["srun"], serde_json::json!(["--cpu-bind=none", "--network=no_vni"]));
    assert_eq!(spec.roles[0].command, ["bash", "-c", "exec ./a $SLURM_PROCID"], "a task's shell expands it");
    assert_eq!((spec.image.as_deref(), spec.env[0].name.as_str()), (Some("a/b/c"), "X"));
    assert!(said.is_empty(), "{said:?}");
    let (spec, _) = imported(
        "#!/bin/bash\n#SBATCH -N2 --exclusive\nsrun --gpus-per-node=h100:8 --ntasks=16 python t.py\n",
    );
    assert_eq!(
        (spec.launch, spec.roles[0].gpus_per_node, spec.roles[0].procs_per_node()),
        (Launch::PerRank, 8, 8)
    );
    let (spec, _) = imported(&format!("{HEAD}srun torchrun --standalone --nproc-per-node=8 train.py\n"));
    assert_eq!(
        (spec.launch, spec.roles[0].command[0].as_str()),
        (Launch::PerNode, "torchrun"),
        "each node is a job of its own"
    );
}

/// Returns a job's options for sbatch and the messages, of a script with only these directives.
fn kept(directives: &str) -> (JobSpec, Vec<String>, Vec<String>) {
    let (spec, said) = imported(&format!("#!/bin/bash\n#SBATCH {directives}\nsrun python /x/t.py\n"));
    let own = spec.backend.get("slurm").and_then(|own| own.get("sbatch")).and_then(|list| list.as_array());
    let options = own.into_iter().flatten().filter_map(|one| one.as_str().map(str::to_owned)).collect();
    (spec, options, said)
}

/// Slurm's own options as `sbatch --help` of 22.05.8 prints them, and those that sbatch(1) of 25.05 adds.
const OF_SBATCH: &str = "array account bb bbf begin comment cpu-freq cpus-per-task dependency deadline delay-boot \
    chdir error export export-file get-user-env gid gres gres-flags hold ignore-pbs input job-name no-kill licenses \
    clusters container distribution mail-type mail-user mcs-label ntasks nice no-requeue ntasks-per-node nodes output \
    overcommit partition parsable power priority profile propagate qos quiet reboot requeue oversubscribe core-spec \
    signal spread-job switches thread-spec time time-min uid use-min-nodes verbose wait wckey wrap \
    cluster-constraint contiguous constraint nodefile mem mincpus reservation tmp nodelist exclude exclusive \
    mem-per-cpu sockets-per-node cores-per-socket threads-per-core extra-node-info ntasks-per-core \
    ntasks-per-socket cpus-per-gpu gpus gpu-bind gpu-freq gpus-per-node gpus-per-socket gpus-per-task mem-per-gpu \
    acctg-freq batch container-id extra hint kill-on-invalid-dep network ntasks-per-gpu open-mode prefer segment \
    stepmgr tres-bind tres-per-task wait-all-nodes oom-kill-step";

/// Every option leaves a key, an entry of `sbatch = […]` or a message.
#[test]
fn no_option_goes_without_a_trace() {
    let known: Vec<&str> = weftrun_core::shell::sbatch::option_names().collect();
    for name in OF_SBATCH.split_whitespace() {
        assert!(known.contains(&name), "{name} is not known");
    }
    let (before, no_message) = imported(&format!("{HEAD}srun python t.py\n"));
    // The rendered script has the excepted one anyway.
    for name in known.into_iter().filter(|name| *name != "no-container-mount-home") {
        let (spec, said) = imported(&format!("{HEAD}#SBATCH --{name}=4\nsrun python t.py\n"));
        assert!(spec != before || said != no_message, "--{name}=4");
    }
}

/// The six options of a script that lost them all, and what stands for them.
#[test]
fn an_option_that_a_key_holds_in_part_is_kept() {
    let (spec, options, said) = kept(
        "-N 2-4 --ntasks-per-node=4 --gres=gpu:a100:4 --gpus-per-task=1 --mem=0 --time=UNLIMITED --comment=proj7",
    );
    assert_eq!((spec.nodes(), spec.roles[0].gpus_per_node, spec.roles[0].procs_per_node()), (2, 4, 4));
    assert_eq!(
        options,
        ["--gpus-per-task=1", "--gres=gpu:a100:4", "--mem=0", "--time=UNLIMITED", "--comment=proj7"]
    );
    assert!(said.len() == 1 && said[0].contains("`--nodes=2-4`: the job gets 2"), "{said:?}");
    for (directives, gpus, wanted) in [
        ("--gpus-per-node=h100:4", 4, "--gpus-per-node=h100:4"),
        ("-N2 --gpus=a100:16", 8, "--gpus-per-node=a100:8"),
        ("-N2 --gpus=16", 8, ""),
        ("-N2 --gpus=7", 3, "--gpus=7"),
        ("--gres=gpu:8", 8, ""),
        ("--gres=gpu:1g.5gb:2", 2, "--gres=gpu:1g.5gb:2"),
        ("--gres=gpu", 1, ""),
        ("--gres=gpu:a100", 1, "--gres=gpu:a100"),
        ("--gres=tmp:9,gpu:4", 4, "--gres=tmp:9"),
        ("--gres=gpu:a100:2,tmp:9,gpu:v100:2", 4, "--gres=gpu:a100:2,tmp:9,gpu:v100:2"),
        ("-n4 --gpus-per-task=2", 8, "--gpus-per-task=2"),
        ("--gpus-per-task=1 --gpus-per-node=4 -n4", 4, "--gpus-per-task=1 --gpus-per-node=4"),
        ("-N2 --gpus-per-node=4 --ntasks-per-gpu=2", 4, "--gpu-bind=single:2"),
        ("--ntasks=8 --ntasks-per-gpu=2", 4, "--gpu-bind=single:2"),
        ("--mem=0 --exclusive", 0, ""),
        ("--time=0", 0, "--time=0"),
        ("--open-mode=truncate", 0, "--open-mode=truncate"),
        ("--open-mode=append", 0, ""),
        ("--comment=\"weftrun:0a1b:efa of mine\"", 0, "--comment=of mine"),
    ] {
        let (spec, options, said) = kept(directives);
        assert_eq!((spec.roles[0].gpus_per_node, options.join(" ").as_str()), (gpus, wanted), "{directives}");
        assert!(said.iter().all(|one| one.starts_with("W-IMPORT-NODES")), "{directives}: {said:?}");
    }
    let (spec, ..) = kept("-N2 --gpus-per-node=4 --ntasks-per-gpu=2");
    assert_eq!(spec.roles[0].procs_per_node(), 8);
    // `--ntasks-per-node` is only the most of a node.
    let (spec, ..) = kept("-N2 -n 8 --ntasks-per-node=8");
    assert_eq!(spec.roles[0].procs_per_node(), 4);
    let (spec, ..) = kept("-p a,b");
    assert_eq!((spec.queue, &spec.backend["slurm"]["partition"]), (None, &json!("a,b")));
}

#[test]
fn what_a_rendered_script_cannot_have_is_named() {
    for (directives, part) in [
        ("--clusters=a", "`--clusters=a`"),
        ("--wait", "`--wait`"),
        ("-n many", "`--ntasks=many`"),
        ("--nodes=1k", "`--nodes=1k`"),
        ("--container-mounts=/a:/b:nosuid", "`nosuid` of the mount `/a:/b`"),
        ("--container-workdir=/b", "the whole script runs in the container"),
    ] {
        let (.., said) = kept(directives);
        assert!(said.len() == 1 && said[0].contains(part), "{directives}: {said:?}");
    }
    for (words, part) in [
        ("--gpus-per-node=4", "`--gpus-per-node=4` of 8 GPUs"),
        ("-c 4", "`--cpus-per-task=4` of 12 CPUs"),
        ("--error=e.log", "`--error=e.log`"),
        ("--output=o.log", "`--output=o.log`"),
        ("-i data", "`--input=data`"),
        ("--container-name=c", "`--container-name=c`"),
        ("-K0", "`--kill-on-bad-exit=0`"),
    ] {
        let (_, said) = imported(&format!("{HEAD}srun {words} /x/t.py\n"));
        assert!(said.len() == 1 && said[0].contains(part), "{words}: {said:?}");
    }
    let (spec, said) =
        imported("#!/bin/bash\n#SBATCH -N2\nsrun --gpus-per-node=h100:8 -n16 --wait=60 /x/t\n");
    let own = &spec.backend["slurm"];
    assert_eq!((&own["sbatch"], &own["srun"]), (&json!(["--gpus-per-node=h100:8"]), &json!(["--wait=60"])));
    assert!(said.is_empty(), "{said:?}");
}

#[test]
fn values_in_slurms_units() {
    assert_eq!(options::memory("64G").as_deref(), Some("64Gi"));
    assert_eq!(options::memory("512000").as_deref(), Some("512000Mi"));
    assert_eq!(options::memory("0"), None);
    assert_eq!(options::slurm_duration("1-12").map(|time| time.as_secs()), Some(129_600));
    assert_eq!(options::slurm_duration("2-00:00:00").map(|time| time.as_secs()), Some(172_800));
    assert_eq!(options::slurm_duration("30").map(|time| time.as_secs()), Some(1800));
    assert_eq!(
        (options::slurm_duration("UNLIMITED"), options::slurm_duration("99999999999999999-00")),
        (None, None)
    );
    assert_eq!(
        (label("Llama_8B").as_str(), label("8b").as_str(), label("---").as_str()),
        ("llama-8b", "job-8b", "job")
    );
}

proptest::proptest! {
    #[test]
    fn no_text_panics(body in "(?s).{0,200}") {
        let _ = import_sbatch(&format!("#!/bin/bash\n#SBATCH {body}\nsrun {body}\n"), false);
    }
}

/// An option of torchrun without a key in the job file is kept with the whole command.
#[test]
fn options_of_torchrun_without_a_key_stay_in_the_command() {
    for (options, kept) in [
        ("--nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$(hostname):29500 --max_restarts=0", false),
        ("--max_restarts=3", true),
        ("--rdzv_conf=timeout=900", true),
        ("--rdzv-conf timeout=900,read_timeout=60", true),
        ("--nnodes=1:4", true),
        ("--log-dir=/fsx/logs --tee 3", true),
        ("--local-addr=h", true),
    ] {
        let (spec, said) =
            imported(&format!("{HEAD}srun torchrun --nproc_per_node=8 {options} /x/train.py --lr 1\n"));
        let launch = if kept { Launch::PerNode } else { Launch::Torchrun };
        assert_eq!((spec.launch, &said[..]), (launch, &[][..]), "{options}");
        let command = spec.roles[0].command.join(" ");
        let whole = format!("torchrun --nproc_per_node=8 {options} /x/train.py --lr 1");
        assert_eq!(command, if kept { whole.as_str() } else { "/x/train.py --lr 1" });
    }
    // The shell expands a word of it: the whole script.
    let (spec, _) = imported(&format!(
        "{HEAD}srun torchrun --nproc_per_node=8 --rdzv_endpoint=$H:1 --max_restarts=3 /x/train.py\n"
    ));
    assert_eq!(spec.launch, Launch::Once);
}

#[test]
fn lines_of_other_batch_systems_are_named() {
    for (line, told) in [
        ("#YBATCH -r an_4", true),
        ("#PJM -L node=2", true),
        ("#$ -l h_rt=1:00:00", true),
        ("#BSUB -nnodes 2", true),
        ("# PBS is gone", false),
        ("#PBSPRO", false),
        ("srun a\n#PBS -l nodes=2", false),
    ] {
        let text = format!("#!/bin/bash\n#SBATCH -N 2 --gpus-per-node=8\n{line}\nsrun ./a\n");
        let (_, said) = imported(&text);
        assert_eq!(
            said.iter().any(|one| one.contains("only `#SBATCH` lines are read")),
            told,
            "{line}: {said:?}"
        );
    }
    let refused = import_sbatch("#!/bin/bash\n#PBS -l nodes=2\nmpirun ./a\n", false).unwrap_err();
    assert!(format!("{:?}", refused.fix).contains("another batch system"));
}

/// A name of the log that weftrun cannot keep is told, and the others are kept.
#[test]
fn names_of_the_log_are_kept_or_told() {
    for (path, kept) in [
        ("logs/%x/%j.out", true),
        ("%j/%3t.log", true),
        ("100%%/%A_%a.out", true),
        ("logs/%x.out", false),
        ("logs/%q/%j.out", false),
        ("%j-%b.out", false),
        ("%J.out", false),
        ("~/%j.out", false),
        ("a\\\\%j.out", false),
    ] {
        let (spec, said) = imported(&format!("{HEAD}#SBATCH --output={path}\nsrun ./a\n"));
        let own = spec.backend.get("slurm").map(ToString::to_string).unwrap_or_default();
        assert_eq!(own.contains("--output"), kept, "{path}: {own}");
        assert_eq!(said.iter().any(|one| one.contains("the log's file")), !kept, "{path}: {said:?}");
    }
}

#[test]
fn a_long_name_fits_with_its_prefix() {
    let name = |name: &str| imported(&format!("#!/bin/bash\n#SBATCH -J {name} -N 1\n./a\n")).0.name;
    let long = name(&format!("8{}", "b".repeat(70)));
    assert_eq!((long.len(), long.starts_with("job-8b")), (63, true), "{long}");
    assert_eq!((name("8b"), name("llama"), name("a-_-")), ("job-8b".into(), "llama".into(), "a".into()));
}

#[test]
fn a_torchrun_that_does_not_join_its_nodes_is_said_to_do_it_now() {
    let said = |nodes: u32, option: &str| {
        let text = format!(
            "#!/bin/bash\n#SBATCH -N {nodes} --gpus-per-node=8\nsrun torchrun {option} --nproc_per_node=8 a.py\n"
        );
        let (spec, said) = imported(&text);
        assert_eq!(spec.launch, Launch::Torchrun);
        said.iter().any(|one| one.starts_with("W-IMPORT-COMMAND `torchrun` has no `--nnodes`"))
    };
    assert!(said(2, ""));
    assert!(!said(2, "--nnodes=2") && !said(2, "--nnodes=$SLURM_NNODES") && !said(1, ""));
}

/// Tasks of all nodes are divided among those that only a command names.
#[test]
fn tasks_are_divided_among_the_nodes_that_a_command_names() {
    for (head, body, nodes, gpus) in [
        (
            "-n 16 --gpus-per-task=1",
            "if true; then srun torchrun --nnodes 2 --nproc_per_node 8 a.py; fi",
            2,
            8,
        ),
        ("-n 16", "srun -N 4 bash -c \"python $X\"", 4, 0),
        ("-n 10", "if true; then srun torchrun --nnodes 4 a.py; fi", 4, 0),
    ] {
        let (spec, said) = imported(&format!("#!/bin/bash\n#SBATCH {head}\n{body}\n"));
        let role = &spec.roles[0];
        assert_eq!((role.nodes, role.gpus_per_node), (nodes, gpus), "{head} {body}");
        // Their number is kept as it stands.
        let kept = spec.backend["slurm"]["sbatch"].to_string();
        assert!(kept.contains(&format!("--ntasks={}", &head[3..5])), "{kept}");
        assert!(said.iter().any(|one| one.starts_with("W-IMPORT-NODES")), "{said:?}");
        assert_eq!(spec.ranks(), None, "the script starts them");
    }
}

#[test]
fn values_of_repeated_options_that_add_up_are_all_kept() {
    let (spec, _) = imported("#!/bin/bash\n#SBATCH --mail-type=begin\n#SBATCH --mail-type=end\nsrun a\n");
    assert_eq!(spec.backend["slurm"]["sbatch"], serde_json::json!(["--mail-type=begin,end"]));
}

/// One file for both is what a job has anyway.
#[test]
fn a_file_of_errors_is_told_where_it_is_another() {
    for (files, told) in [
        ("--output=%u_%j.o --error=%u_%j.o", false),
        ("-o %u_%j.o -e %u_%j.o", false),
        ("--output=%u_%j.o --error=%u_%j.e", true),
        ("--error=%u_%j.e", true),
        ("--output=%u_%j.o", false),
    ] {
        let (.., said) = kept(files);
        assert_eq!(!said.is_empty(), told, "{files}: {said:?}");
    }
}

/// What the script gives its ranks or takes from Slurm, and the job does otherwise, is told.
#[test]
fn what_a_job_does_otherwise_is_told() {
    let told = |text: &str, what: &str| {
        let (spec, said) = imported(text);
        (spec, said.iter().any(|one| one.contains(what)))
    };
    for (line, port) in
        [("export MASTER_PORT=29500", true), ("MASTER_PORT=$((10000 + 7))", true), ("true", false)]
    {
        let (spec, found) = told(&format!("{HEAD}{line}\nsrun ./a\n"), "`MASTER_PORT` of the script");
        assert_eq!(found, port, "{line}");
        assert!(spec.env.is_empty(), "{:?}", spec.env);
    }
    let whole = "export MASTER_PORT=29500\nsrun ./a $MASTER_PORT\n";
    assert!(!told(&format!("{HEAD}{whole}"), "`MASTER_PORT`").1, "a script that is carried keeps its port");
    for (head, found) in
        [("-N 1 -o %x-%j.out", true), ("-N 1 -J a -o %x-%j.out", false), ("-N 1 -o %j.out", false)]
    {
        let text = format!("#!/bin/bash\n#SBATCH {head}\n./a\n");
        assert_eq!(told(&text, "no `#SBATCH` line names the job").1, found, "{head}");
    }
    for (first, found) in [("/bin/bash –l", true), ("/bin/bash -l", false), ("/usr/bin/env bash", false)] {
        let text = format!("#!{first}\n#SBATCH -N 1\n./a\n");
        assert_eq!(told(&text, "is no option").1, found, "{first}");
    }
    let both = format!("{HEAD}#SBATCH -o out.log -e err.log\nsrun ./a\n");
    assert!(told(&both, "nor is that of the errors").1);
}

/// `mutate` leaves the libraries of a script to it, and so does the job that is made of it.
#[test]
fn an_imported_job_keeps_the_libraries_of_its_script() {
    let head = "#!/bin/bash\n#SBATCH -N 2 --gpus-per-node=8";
    for (body, off) in [
        ("export FI_PROVIDER=efa\nsrun python /x/a.py", true),
        ("export FI_PROVIDER=efa\nsrun python /x/a.py $A", true),
        ("export FI_PROVIDER=efa\nsrun --container-image=x/y python /x/a.py", false),
        ("export FI_PROVIDER=efa\nsrun docker run x/y python /x/a.py", false),
        ("srun python /x/a.py", false),
    ] {
        let (spec, _) = imported(&format!("{head}\n{body}\n"));
        let rule = spec.fabric.rules.get("efa.library-path");
        assert_eq!(rule, off.then_some(&RuleSetting::Off), "{body}");
        let (catalogue, facts, profiles) =
            (Catalogue::builtin(), ClusterFacts::default(), Profiles::builtin());
        let (plan, _) = FabricPlan::by_evidence(&spec, &catalogue, &facts, &profiles, Form::Script).unwrap();
        assert!(plan.ops.iter().all(|op| op.change.target() != "env LD_LIBRARY_PATH"), "{body}");
    } // A script that weftrun rendered has them from the rule.
    let block =
        format!("{}\nexport LD_LIBRARY_PATH=/opt\n{}\n", crate::slurm::BLOCK_BEGIN, crate::slurm::BLOCK_END);
    let (spec, _) = imported(&format!("{head}\n{block}export FI_PROVIDER=efa\nsrun python /x/a.py\n"));
    assert!(spec.fabric.rules.is_empty(), "{:?}", spec.fabric.rules);
}
