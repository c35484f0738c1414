//! The scripts themselves: every rendered case is taken by `sbatch --test-only`, and one job of each kind really runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use futures_util::StreamExt as _;
use serde_json::json;
use weftrun_backends::slurm::Slurm;
use weftrun_core::backend::{Backend, ClusterFacts, PlannedJob};
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::{FabricPlan, Profiles};
use weftrun_core::job::{Action, JobFilter, JobHandle, JobPhase};
use weftrun_core::log::{LogBatch, LogOptions, Mark};
use weftrun_core::spec::{Code, JobSpec, JobSpecBuilder, Launch, Role, Volume, VolumeSource};
use weftrun_testkit::{planned, random_submission};

use crate::cluster::{EVERY, TestCluster, WAYS, Way};
use crate::hostile::{bounded, output};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slurm_takes_every_rendered_case() {
    let Some(cluster) = TestCluster::find() else { return };
    cluster.ctl("head -u root scontrol create reservationname=capacity-block users=researcher nodes=compute-p5-st-p5-[1-2] starttime=now+10hours duration=600 flags=FLEX");
    let held = cluster
        .ctl("head bash -c 'cd /fsx && sbatch --parsable -H -J cases-depend -o /dev/null --wrap true'");
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/slurm/render");
    let mut cases: Vec<PathBuf> =
        std::fs::read_dir(cases).expect("cases").map(|entry| entry.expect("readable").path()).collect();
    cases.sort();
    for case in cases {
        let name = case.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let script = std::fs::read_to_string(case.join("script.sh")).expect("a script");
        let script = script.replace("afterok:1234", &format!("afterok:{}", held.trim()));
        // The test cluster has one g5 node, and no InfiniBand.
        let script = if name.contains("g5") { script.replace("--nodes=2", "--nodes=1") } else { script };
        let script = script.replace("#SBATCH --constraint=h100\n", "");
        let file = cluster.dir.join("case.sh");
        std::fs::write(&file, script).expect("written");
        let ask = "ssh -F $CLUSTER/ssh/config head-node 'cd /fsx && sbatch --test-only; echo code $?' < $CLUSTER/case.sh";
        // Another test may have a node of the partition powered off just now, or every connection cut.
        let mut said = cluster.sh(ask);
        for _ in 0..60 {
            if said.contains("code ") && !said.contains("node configuration is not available") {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            said = cluster.sh(ask);
        }
        assert!(said.contains("code 0") && said.contains("to start at"), "{name}: {said}");
    }
    cluster.ctl(&format!("head scancel {}", held.trim()));
}

fn built(builder: JobSpecBuilder) -> JobSpec {
    builder.build().expect("valid")
}

fn shell(name: &str, launch: Launch, nodes: u32, ranks: u32, script: &str) -> JobSpecBuilder {
    let role = Role::worker().nodes(nodes).ranks_per_node(ranks).command(["sh", "-c", script]);
    JobSpec::builder(name).launch(launch).role(role)
}

fn with(mut spec: JobSpec, settings: serde_json::Value) -> JobSpec {
    spec.backend.insert("slurm".to_owned(), settings);
    spec
}

async fn submit(backend: &dyn Backend, job: &PlannedJob) -> JobHandle {
    backend.submit(&backend.render(job).expect("renders")).await.expect("is taken")
}

/// The lines of a job, sorted, and how it ended.
async fn lines(backend: &dyn Backend, job: &PlannedJob) -> (Vec<String>, JobPhase) {
    let handle = submit(backend, job).await;
    let mut lines: Vec<String> = output(backend, &handle).await.lines().map(str::to_owned).collect();
    lines.sort();
    let phase = backend.describe(&handle).await.expect("is there").summary.phase;
    (lines, phase)
}

/// What was decided for the ranks reaches them, though no mpirun forwards it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mpi_ranks_know_their_number_and_the_fabric() {
    let Some(cluster) = TestCluster::find() else { return };
    let backend = cluster.connect(Way::Ssh);
    for mpi in ["pmix", "pmi2"] {
        let script = "echo rank ${PMIX_RANK:-$PMI_RANK} $FI_EFA_USE_DEVICE_RDMA $MINE ${LD_LIBRARY_PATH%%:*}";
        let role = Role::worker()
            .nodes(2)
            .gpus_per_node(8)
            .instance_type("p4de.24xlarge")
            .command(["sh", "-c", script]);
        let spec =
            JobSpec::builder(format!("mpi-{mpi}")).launch(Launch::Mpi).role(role).env("MINE", "my own");
        let spec = with(built(spec), serde_json::json!({ "mpi": mpi }));
        let profile = Profiles::builtin().get("parallelcluster").expect("shipped");
        let plan = FabricPlan::new(&spec, &Catalogue::builtin(), &ClusterFacts::default(), &profile);
        let job = PlannedJob::new(spec, plan, profile, ClusterFacts::default(), random_submission());
        let (mut lines, phase) = lines(&*backend, &job).await;
        lines.retain(|line| !line.starts_with("srun: "));
        let mut wanted: Vec<String> =
            (0..16).map(|rank| format!("rank {rank} 1 my own /opt/amazon/efa/lib")).collect();
        wanted.sort();
        assert_eq!((lines, phase), (wanted, JobPhase::Succeeded), "{mpi}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pyxis_arrays_components_and_the_rest_run() {
    let Some(cluster) = TestCluster::find() else { return };
    let backend = cluster.connect(Way::Ssh);
    cluster.sh("mkdir -p \"$CLUSTER/shared/fsx/data set\"; echo from the mount > \"$CLUSTER/shared/fsx/data set/file\"");
    let volume = Volume {
        name: "data".into(),
        mount: "/mnt".into(),
        source: VolumeSource::HostPath("/fsx/data set".into()),
        read_only: true,
    };
    let code = Code::Script {
        name: "show.sh".into(),
        text: "cat /mnt/file; echo $MINE; basename \"$PWD\" .code\n".into(),
    };
    let role = Role::worker().command(["sh", "show.sh"]);
    let pyxis = JobSpec::builder("pyxis").image("nvcr.io/nvidia/pytorch:25.09-py3").role(role);
    let (got, phase) =
        lines(&*backend, &planned(built(pyxis.volume(volume).env("MINE", "it's mine").code(code)))).await;
    assert_eq!(phase, JobPhase::Succeeded, "{got:?}");
    assert!(got.contains(&"from the mount".to_owned()) && got.contains(&"it's mine".to_owned()), "{got:?}");
    assert!(
        got.iter().any(|line| line.starts_with("pyxis-") && !line.contains(' ')),
        "the code's folder: {got:?}"
    );

    let array = with(
        built(shell(
            "array",
            Launch::PerNode,
            1,
            1,
            "echo task $SLURM_ARRAY_TASK_ID; exit $((SLURM_ARRAY_TASK_ID == 2))",
        )),
        serde_json::json!({ "array": "0-3%2" }),
    );
    let handle = submit(&*backend, &planned(array)).await;
    let text = output(&*backend, &handle).await;
    let mut got: Vec<&str> = text.lines().filter(|line| line.starts_with("task")).collect();
    got.sort_unstable();
    assert_eq!(got, ["task 0", "task 1", "task 2", "task 3"]);
    let detail = backend.describe(&handle).await.expect("is there");
    assert_eq!(
        (detail.summary.phase, detail.replicas.len()),
        (JobPhase::Failed, 4),
        "{:?}",
        detail.summary.reason
    );

    let batches: Vec<_> = bounded(backend.logs(&handle, LogOptions::follow()))
        .map(|batch| batch.expect("a batch"))
        .collect()
        .await;
    let mut codes: Vec<(String, i32)> = batches
        .iter()
        .filter_map(|batch| match batch.mark {
            Some(Mark::Ended { exit_code: Some(code) }) => Some((batch.source.name.clone(), code)),
            _ => None,
        })
        .filter(|(name, _)| name.ends_with("/rank0") || name.ends_with("/node0"))
        .map(|(name, code)| (name.split('/').next().unwrap_or_default().to_owned(), code))
        .collect();
    codes.sort();
    let wanted: Vec<(String, i32)> =
        (0..4).map(|task| (format!("{}_{task}", handle.name()), i32::from(task == 2))).collect();
    assert_eq!(codes, wanted, "each task ends with its own code");

    let role = |name: &str, nodes, word: &str| {
        Role::new(name).nodes(nodes).ranks_per_node(2).command([
            "sh",
            "-c",
            &format!("echo {word} $RANK of $WORLD_SIZE on $NODE_RANK"),
        ])
    };
    let het = JobSpec::builder("components")
        .launch(Launch::PerRank)
        .role(role("actor", 2, "act"))
        .role(role("judge", 1, "judge"));
    let (got, phase) = lines(&*backend, &planned(built(het))).await;
    let wanted = [
        "act 0 of 6 on 0",
        "act 1 of 6 on 0",
        "act 2 of 6 on 1",
        "act 3 of 6 on 1",
        "judge 4 of 6 on 2",
        "judge 5 of 6 on 2",
    ];
    assert_eq!((got, phase), (wanted.map(str::to_owned).to_vec(), JobPhase::Succeeded));

    // torchrun is not installed on the test cluster: a fake one prints how it was called.
    let programs = cluster.dir.join("shared/fsx/programs");
    std::fs::create_dir_all(&programs).expect("a folder");
    std::fs::write(programs.join("torchrun"), "#!/bin/sh\necho \"$@\"\n").expect("written");
    cluster.sh("chmod 755 $CLUSTER/shared/fsx/programs/torchrun");
    let role = Role::worker().nodes(2).ranks_per_node(8).command(["train.py", "--lr", "1e-4"]);
    let torchrun = built(JobSpec::builder("torchrun").launch(Launch::Torchrun).role(role));
    let torchrun = with(torchrun, serde_json::json!({ "setup": ["PATH=/fsx/programs:$PATH"] }));
    let (got, phase) = lines(&*backend, &planned(torchrun)).await;
    assert_eq!((got.len(), phase), (2, JobPhase::Succeeded), "{got:?}");
    for (number, line) in got.iter().enumerate() {
        let start = format!("--nnodes=2 --nproc-per-node=8 --node-rank={number} --master-addr=compute-");
        assert!(line.starts_with(&start) && line.ends_with("train.py --lr 1e-4"), "{line}");
    }

    let files = with(
        built(shell("rank-files", Launch::PerRank, 2, 2, "echo I am $RANK")),
        serde_json::json!({ "rank-logs": true }),
    );
    let (got, phase) = lines(&*backend, &planned(files)).await;
    assert_eq!((got, phase), ((0..4).map(|rank| format!("I am {rank}")).collect(), JobPhase::Succeeded));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checkpoints_before_the_limit_and_dependencies_that_fail() {
    let Some(cluster) = TestCluster::find() else { return };
    let backend = Slurm::new(&cluster.target(Way::Ssh)).expect("the target is good");
    // Due 10 s after the start; Slurm is coarse about it.
    let waits = "trap 'echo checkpointed; exit 0' USR1; while :; do sleep 0.2; done";
    let mut spec = with(
        built(shell("checkpoint", Launch::PerRank, 2, 1, waits)),
        serde_json::json!({ "signal": "USR1@50" }),
    );
    spec.time_limit = Some(std::time::Duration::from_mins(1));
    let checkpoint = submit(&backend, &planned(spec)).await;

    let fails =
        submit(&backend, &planned(built(shell("fails-first", Launch::PerNode, 1, 1, "exit 4")))).await;
    let after = serde_json::json!({ "dependency": format!("afterok:{}", fails.name()) });
    let after =
        submit(&backend, &planned(with(built(shell("never-runs", Launch::PerNode, 1, 1, "true")), after)))
            .await;
    let ended = wait(&backend, &after).await;
    assert_eq!(
        ended,
        JobPhase::Cancelled,
        "a dependency that failed ends the job instead of letting it wait for ever"
    );

    // The shell also reports that the signal ended its `sleep`.
    let text = output(&backend, &checkpoint).await;
    let told = text.lines().filter(|line| *line == "checkpointed").count();
    assert_eq!((told, wait(&backend, &checkpoint).await), (2, JobPhase::Succeeded), "{text}");
    assert!(backend.act(&checkpoint, Action::Requeue).await.is_err(), "it has ended");
}

async fn wait(backend: &dyn Backend, job: &JobHandle) -> JobPhase {
    let mut events = bounded(backend.watch(JobFilter::one(job)));
    let mut last = JobPhase::Unknown;
    while let Some(event) = events.next().await {
        last = event.expect("an event").phase().unwrap_or(last);
    }
    last
}

/// Points 2 and 7 of issue 16: the folder, the user's own output file and comment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_runs_where_it_is_submitted_or_where_it_says() {
    let Some(cluster) = TestCluster::find() else { return };
    cluster.sh("mkdir -p \"$CLUSTER/shared/fsx/my project\" $CLUSTER/shared/fsx/out && chmod 777 \"$CLUSTER/shared/fsx/my project\" $CLUSTER/shared/fsx/out");
    let pwd = || built(shell("where", Launch::PerNode, 2, 1, "pwd"));
    let called_in = |folder: &str| {
        let mut target = cluster.target(Way::Ssh);
        target.env.insert("PWD".to_owned(), folder.to_owned());
        Slurm::new(&target).expect("the target is good")
    };
    let plan = async |backend: &Slurm, spec: JobSpec| {
        let facts = backend.discover(&weftrun_core::backend::Scope::default()).await.expect("facts");
        let mut job = planned(spec);
        job.facts = facts;
        job
    };
    let backend = called_in("/fsx/my project");
    let job = plan(&backend, pwd()).await;
    let findings = backend.render(&job).expect("renders").findings;
    assert!(
        findings.iter().any(|finding| finding.message.contains("`/fsx/my project`, where")),
        "{findings:?}"
    );
    assert_eq!(lines(&backend, &job).await, (vec!["/fsx/my project".to_owned(); 2], JobPhase::Succeeded));

    let backend = called_in("/nowhere/here");
    let job = plan(&backend, pwd()).await;
    let findings = backend.render(&job).expect("renders").findings;
    assert!(findings.iter().any(|finding| finding.message.contains("home directory")), "{findings:?}");
    let (got, _) = lines(&backend, &job).await;
    assert!(got.iter().all(|line| line.starts_with("/home/")), "{got:?}");

    let mut spec = pwd();
    spec.workdir = Some("/fsx/out".to_owned());
    let own = serde_json::json!({ "sbatch": ["--output=/fsx/out/%x-%j.txt", "--comment=my own words"] });
    let job = plan(&backend, with(spec.clone(), own)).await;
    let handle = submit(&backend, &job).await;
    let text = output(&backend, &handle).await;
    assert_eq!(text.lines().collect::<Vec<_>>(), ["/fsx/out"; 2]);
    let kept = cluster.sh(&format!("cat $CLUSTER/shared/fsx/out/where-{}.txt", handle.name()));
    assert!(kept.contains("/fsx/out"), "the user's own file has it: {kept}");
    let comment = cluster.ctl(&format!("head squeue -h -t all -j {0},{0} -o %k", handle.name()));
    assert!(comment.starts_with("weftrun:") && comment.trim_end().ends_with(" my own words"), "{comment}");
    assert_eq!(backend.find(&job.submission).await.expect("is found"), Some(handle));

    spec.workdir = Some("/fsx/none such".to_owned());
    let rendered = backend.render(&plan(&backend, spec).await).expect("renders");
    let findings = backend.check(&rendered).await.expect("asks");
    assert!(
        findings.iter().any(|finding| finding.code == "SLURM-NO-WORKDIR" && finding.is_error()),
        "{findings:?}"
    );
}

/// Each way to name the files gives each job a folder with a file for each rank or node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folders_of_logs_by_job_hold_each_rank_or_node_and_are_followed() {
    let Some(cluster) = TestCluster::find() else { return };
    cluster.sh("mkdir -p $CLUSTER/shared/fsx/out && chmod 777 $CLUSTER/shared/fsx/out");
    let script = "for i in 1 2 3; do echo rank $RANK line $i; sleep 0.3; done; echo 99: not a label";
    let cases = [
        // Key, pattern, files below the folder of the job, and the start of a line of a file.
        (json!({ "rank-logs": "byjob/%j/%N-%t.log" }), "$LOGS/byjob/ID", 4, "rank "),
        (
            json!({ "sbatch": ["--output=/fsx/out/by job/%x-%j/%N/%3t.out"] }),
            "/fsx/out/by job/files-ID",
            4,
            "rank ",
        ),
        (json!({ "srun": ["--output=/fsx/out/%j/%n.txt"] }), "/fsx/out/ID", 2, ""),
        (json!({ "rank-logs": true }), "$LOGS/files-ID-*.rank", 4, "rank "),
        (json!({ "array": "2-3", "rank-logs": "byjob/%A_%a/%t" }), "$LOGS/byjob/ID_", 8, "rank "),
    ];
    for (number, (own, folder, count, begins)) in cases.into_iter().enumerate() {
        let way = EVERY[number % EVERY.len()];
        let backend = cluster.connect(way);
        let array = own.get("array").is_some();
        let spec = with(built(shell("files", Launch::PerRank, 2, 2, script)), own);
        let job = submit(&*backend, &planned(spec)).await;
        // One reader stops after its first lines, and another resumes where it stopped.
        let mut batches: Vec<LogBatch> = Vec::new();
        let mut first = bounded(backend.logs(&job, LogOptions::follow()));
        while batches.iter().all(|batch| batch.bytes.is_empty()) {
            batches.push(first.next().await.expect("lines").expect("a batch"));
        }
        drop(first);
        let mut options = LogOptions::follow();
        let cursors: BTreeMap<String, _> =
            batches.iter().map(|batch| (batch.cursor.uid.clone(), batch.cursor.clone())).collect();
        options.from = cursors.into_values().collect();
        let mut rest = bounded(backend.logs(&job, options));
        while let Some(batch) = rest.next().await {
            batches.push(batch.expect("a batch"));
        }
        let mut got = BTreeMap::<String, String>::new();
        for batch in batches.iter().filter(|batch| !batch.bytes.is_empty()) {
            let text = String::from_utf8_lossy(&batch.bytes);
            got.entry(batch.source.name.clone()).or_default().push_str(&text);
        }
        got.retain(|source, _| !source.ends_with("batch"));
        let text = |rank: u32| {
            (1..=3).map(|line| format!("rank {rank} line {line}\n")).collect::<String>() + "99: not a label\n"
        };
        let wanted: BTreeMap<String, String> = if array {
            let task = |task: u32| (0..4).map(move |rank| (task, rank));
            let name = |(task, rank)| (format!("{}_{task}/rank{rank}", job.name()), text(rank));
            (2..4).flat_map(task).map(name).collect()
        } else {
            (0..4).map(|rank| (format!("rank{rank}"), text(rank))).collect()
        };
        assert_eq!(got, wanted, "{way:?}: {folder}");
        if !array {
            let mut one = LogOptions::default();
            one.ranks = vec![3];
            let batches: Vec<_> = bounded(backend.logs(&job, one)).collect().await;
            let text: Vec<u8> = batches.into_iter().flat_map(|batch| batch.expect("a batch").bytes).collect();
            assert_eq!(String::from_utf8_lossy(&text), wanted["rank3"], "{way:?}: {folder}");
        }
        let logs = if way == Way::Ssh { "/home/researcher/weftrun" } else { "/fsx/logs" };
        let folder = folder.replace("$LOGS", logs).replace("ID", job.name()).replace(' ', "\\ ");
        let found = cluster.ctl(&format!(
            "head bash -c 'find {folder}* -type f -not -path \"*.exit\" -exec head -n 1 {{}} \\;'"
        ));
        let lines: Vec<&str> = found.lines().collect();
        assert_eq!(lines.len(), count, "{folder}: {found}");
        assert!(lines.iter().all(|line| line.starts_with(begins)), "{folder}: {found}");
    }
    // The whole output goes to a folder of the job. Slurm would not create it, and the job would end without a message.
    for way in WAYS {
        let backend = cluster.connect(way);
        let own = json!({ "sbatch": ["--output=/fsx/out/whole/%j/%x.out"] });
        let job = planned(with(built(shell("whole", Launch::PerRank, 2, 1, "echo rank $RANK")), own));
        let handle = submit(&*backend, &job).await;
        let mut got: Vec<String> = output(&*backend, &handle).await.lines().map(str::to_owned).collect();
        got.sort();
        assert_eq!(got, ["rank 0", "rank 1"], "{way:?}");
        let kept = cluster.ctl(&format!("head cat /fsx/out/whole/{}/whole.out", handle.name()));
        assert!(kept.contains("0: rank 0\n") && kept.contains("1: rank 1\n"), "{way:?}: {kept}");
    }
    let two = json!({ "rank-logs": "%j/%t", "srun": ["--output=%j/%N"] });
    let refused = cluster
        .connect(Way::Ssh)
        .render(&planned(with(built(shell("two", Launch::PerRank, 1, 1, "true")), two)));
    assert!(refused.expect_err("two names").message().contains("both name the files"));
}

/// Point 1 of issue 16 and point 6 of issue 17: what an imported script runs is what sbatch would have run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_imported_script_runs_what_the_script_would_have_run() {
    let Some(cluster) = TestCluster::find() else { return };
    let backend = cluster.connect(Way::Ssh);
    let stub = "#!/bin/sh\nprintf '[%s]' \"$@\"; echo \" $MODE $NOTE\"\n";
    std::fs::create_dir_all(cluster.dir.join("shared/fsx/stubs")).expect("a folder");
    std::fs::write(cluster.dir.join("shared/fsx/stubs/train"), stub).expect("written");
    cluster.sh("chmod -R 755 $CLUSTER/shared/fsx/stubs");
    let head = "#!/bin/bash -l\n#SBATCH -J imported -N 2 --ntasks-per-node=2\nexport PATH=/fsx/stubs:$PATH\n";
    let scripts = [
        "export NOTE='a b'\nif true; then export MODE=slow; fi\nARGS=(--lr 1e-4 --name \"x y\")\nARGS+=(--nodes $SLURM_NNODES)\nsrun -l \"${ARGS[@]}\" train 2>/dev/null || :\nsrun train \"${ARGS[@]}\" ${EXTRA:-}\n",
        "export NOTE='a b'\nif true; then export MODE=slow; fi\nARGS=(--lr 1e-4 --name \"x y\")\nARGS+=(--nodes $SLURM_NNODES)\nsrun --kill-on-bad-exit=1 train \"${ARGS[@]}\" ${EXTRA:-}\n",
        "for lr in 1 2; do srun train --lr $lr; done\nsrun -N1 -n1 train last\n",
        "srun train piped | sort\n",
        "export MODE=fast\ntrain first\nexport NOTE=later\nsrun train second\n",
    ];
    for (number, body) in scripts.iter().enumerate() {
        let script = format!("{head}{body}");
        std::fs::write(cluster.dir.join("shared/fsx/imported.sh"), &script).expect("written");
        cluster.sh("chmod 644 $CLUSTER/shared/fsx/imported.sh");
        let direct = cluster
            .ctl("head bash -c 'cd /fsx/logs && sbatch --parsable --wait -o direct-%j.txt /fsx/imported.sh'");
        let id = direct.lines().next().unwrap_or_default().trim().to_owned();
        let wanted = cluster.sh(&format!("cat $CLUSTER/shared/fsx/logs/direct-{id}.txt"));
        let mut wanted: Vec<String> =
            wanted.lines().filter(|line| line.starts_with('[')).map(str::to_owned).collect();
        wanted.sort();
        assert!(wanted.len() > 1, "{number}: {direct} {wanted:?}");
        let (spec, findings) = weftrun_convert::import_sbatch(&script, false).expect("is imported");
        let (mut got, phase) = lines(&*backend, &planned(spec)).await;
        got.retain(|line| line.starts_with('['));
        assert_eq!((got, phase), (wanted, JobPhase::Succeeded), "{number}: {findings:?}");
    }
    // A script that is carried as it is ends with a code of its own, whatever its ranks had.
    let script = format!("{head}srun bash -c 'exit 3'\nexit 200\n");
    let (spec, _) = weftrun_convert::import_sbatch(&script, false).expect("is imported");
    let job = submit(&*backend, &planned(spec)).await;
    output(&*backend, &job).await;
    assert_eq!(backend.describe(&job).await.expect("is there").summary.exit_code, Some(200));
}
