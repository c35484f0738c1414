use weftrun_core::backend::{ClusterFacts, PlannedJob};
use weftrun_core::fabric::{Change, Op};
use weftrun_core::fabric::{Fabric, FabricPlan, Origin, Profile};
use weftrun_core::job::SubmissionId;
use weftrun_core::spec::{Code, JobSpec, Launch, RestartPolicy, Role, Volume, VolumeSource};

use super::*;
use weftrun_convert::NoCounterpart;
use weftrun_testkit::child;

fn planned(spec: JobSpec, ops: Vec<Op>) -> PlannedJob {
    let mut plan = FabricPlan::unchanged(Fabric::Efa);
    plan.ops = ops;
    PlannedJob::new(
        spec,
        plan,
        Profile::default(),
        ClusterFacts::default(),
        SubmissionId::from_random(0x0a1b_2c3d << 96),
    )
}

pub(super) fn text(spec: JobSpec, ops: Vec<Op>) -> String {
    render(&SlurmTarget::default(), &planned(spec, ops)).expect("renders").documents[0].text.clone()
}

fn efa() -> Vec<Op> {
    let op = |rule: &str, change, why: &str| Op::new(rule, "worker", change, why, Origin::Default);
    vec![
        op(
            "efa.devices",
            Change::Resource { name: "vpc.amazonaws.com/efa".into(), quantity: "4".into() },
            "p4de.24xlarge has 4 interfaces",
        ),
        op(
            "efa.hugepages",
            Change::Resource { name: "hugepages-2Mi".into(), quantity: "5Gi".into() },
            "buffers",
        ),
        op(
            "efa.device-rdma",
            Change::Env { name: "FI_EFA_USE_DEVICE_RDMA".into(), value: "1".into() },
            "p4de reads and writes over RDMA",
        ),
        op(
            "efa.library-path",
            Change::Env { name: "LD_LIBRARY_PATH".into(), value: "/opt/amazon/efa/lib:$x'y".into() },
            "libfabric\nof the AMI",
        ),
    ]
}

fn llama() -> weftrun_core::spec::JobSpecBuilder {
    JobSpec::builder("llama-8b").role(
        Role::worker().nodes(4).gpus_per_node(8).instance_type("p4de.24xlarge").command([
            "train.py",
            "--lr",
            "3e-4",
            "it's $HOME",
        ]),
    )
}

#[test]
fn torchrun_on_whole_nodes() {
    let spec = llama()
        .launch(Launch::Torchrun)
        .time_limit(std::time::Duration::from_secs(93_600))
        .queue("compute-gpu")
        .build()
        .expect("valid");
    insta::assert_snapshot!(text(spec, efa()));
}

#[test]
fn pyxis_with_every_variable_named() {
    let volume = Volume {
        name: "data".into(),
        mount: "/data".into(),
        source: VolumeSource::HostPath("/fsx/data set".into()),
        read_only: true,
    };
    let spec = llama()
        .launch(Launch::PerRank)
        .image("nvcr.io/nvidia/pytorch:25.09-py3")
        .env("WANDB", "a b")
        .volume(volume)
        .restart(RestartPolicy::OnFailure { max: 2 });
    insta::assert_snapshot!(text(spec.build().expect("valid"), efa()));
}

#[test]
fn components_of_a_heterogeneous_job() {
    let spec = JobSpec::builder("het")
        .launch(Launch::PerRank)
        .role(Role::new("actor").nodes(2).gpus_per_node(8).command(["actor"]).env("A", "1"))
        .role(
            Role::new("learner").nodes(1).gpus_per_node(4).instance_type("g5.12xlarge").command(["learner"]),
        )
        .code(Code::Script { name: "x.py".into(), text: "print('$HOME')\n".into() });
    insta::assert_snapshot!(text(spec.build().expect("valid"), Vec::new()));
}

#[test]
fn what_slurm_cannot_express_is_said_with_a_reason() {
    let rendered = render(
        &SlurmTarget::default(),
        &planned(llama().launch(Launch::Torchrun).build().expect("valid"), efa()),
    )
    .expect("renders");
    let said: Vec<_> =
        rendered.inexpressible.iter().map(|item| (item.op.rule.as_str(), item.reason.is_empty())).collect();
    assert_eq!(said, [("efa.hugepages", false)]);
    assert_eq!(rendered.applied.len() + rendered.inexpressible.len(), efa().len());
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/backends/slurm.md"))
        .expect("the page is in the tree");
    for kind in NoCounterpart::ALL {
        let reason = kind.why();
        assert!(page.contains(&format!("| `{kind}` | {reason} |")), "docs/backends/slurm.md lacks `{kind}`");
    }
}

fn with_own(own: serde_json::Value) -> weftrun_core::Result<String> {
    let mut spec = llama().launch(Launch::PerRank).build().expect("valid");
    spec.backend.insert("slurm".to_owned(), own);
    render(&SlurmTarget::default(), &planned(spec, efa())).map(|rendered| rendered.documents[0].text.clone())
}

/// Point 7 of issue 16.
#[test]
fn options_of_the_users_own_win_or_are_refused() {
    for (option, wanted, not) in [
        ("--partition=debug", "#SBATCH --partition=debug", "compute-gpu"),
        ("--mem-per-cpu=2G", "#SBATCH --mem-per-cpu=2G", "--mem=0"),
        ("--requeue", "#SBATCH --requeue", "--no-requeue"),
        ("--gres=gpu:h100:8", "#SBATCH --gres=gpu:h100:8", "--gpus-per-node"),
        ("--oversubscribe", "#SBATCH --oversubscribe", "--exclusive"),
        ("--open-mode=truncate", "#SBATCH --open-mode=truncate", "append"),
        ("--time=1:00", "#SBATCH --time=1:00", "\u{0}"),
        (
            "--comment=my run",
            "#SBATCH --comment=\"weftrun:0a1b2c3d000000000000000000000000:efa my run\"",
            "\u{0}",
        ),
        ("--output=/fsx/%x-%j.out", "#SBATCH --output=/fsx/%x-%j.out", "#SBATCH --output=weftrun"),
        ("--exclus=user", "#SBATCH --exclusive=user", "#SBATCH --exclusive\n"),
    ] {
        let own = serde_json::json!({"sbatch": [option], "partition": "compute-gpu", "requeue": false});
        let text = with_own(own).expect("renders");
        assert!(text.lines().any(|line| line == wanted) && !text.contains(not), "{option}:\n{text}");
    }
    for option in [
        "--nodes=9",
        "--job-name=x",
        "--ntasks-per-node=3",
        "--array=1-4",
        "--error=e",
        "--chdir=/",
        "--wrap=x",
        "--ntasks=9",
    ] {
        let refused = with_own(serde_json::json!({ "sbatch": [option] })).expect_err(option);
        assert!(refused.message().contains(option) && !refused.hints().is_empty(), "{refused}");
    }
}

#[test]
fn an_array_that_sbatch_would_refuse_is_refused_first() {
    for array in ["0-31", "7", "1,3,5-7", "0-100:10", "0-31%4", "1,2-4:2,9%2"] {
        let text = with_own(serde_json::json!({ "array": array })).expect(array);
        assert!(text.contains(&format!("#SBATCH --array={array}\n")), "{text}");
    }
    for array in
        ["1-x", "", "1-", "-3", "1%", "1,,2", "%4", "1-3:", "a", "1-2-3", "1 2", "7-3", "1-3:0", "1-3%0"]
    {
        let refused = with_own(serde_json::json!({ "array": array })).expect_err(array);
        assert!(refused.message().contains("is not a list of tasks"), "{array}: {refused}");
    }
}

/// Labels are kept in the comment, of which slurmctld takes 1,024 bytes.
#[test]
fn labels_that_do_not_fit_into_the_comment_are_refused() {
    let comment = |length: usize| {
        let labels = (0..14).map(|key| (format!("k{key:02}"), "v".repeat(61)));
        let mut job = llama().label("k99", "v".repeat(length)).build().unwrap();
        job.labels.extend(labels);
        let job = planned(job, Vec::new());
        let text = render(&SlurmTarget::default(), &job)?.documents[0].text.clone();
        let line = text.lines().find_map(|line| line.strip_prefix("#SBATCH --comment="));
        Ok::<usize, Error>(line.unwrap_or_default().len())
    };
    let overhead = comment(1).unwrap() - 1;
    assert_eq!(comment(1024 - overhead).unwrap(), 1024);
    let refused = comment(1025 - overhead).unwrap_err();
    assert!(
        refused.message().contains("would have 1025 bytes; Slurm takes 1024")
            && refused.context().contains(&("key", "labels".to_owned())),
        "{refused:?}"
    );
}

/// Point 12 of issue 16.
#[test]
fn keys_of_slurm_become_its_options() {
    let own = serde_json::json!({
        "nodelist": "a[1-4]", "exclude": "b1", "switches": "1@10:00", "segment": 2, "licenses": "x:2", "mail": "me@example.org",
        "wckey": "w", "dependency": "afterok:slurm://pc/12:slurm://pc/13_4,afterany:15?singleton", "container": "singularity",
    });
    let text = with_own(own).expect("renders");
    for line in [
        "--nodelist=a[1-4]",
        "--exclude=b1",
        "--switches=1@10:00",
        "--segment=2",
        "--licenses=x:2",
        "--mail-type=END,FAIL",
        "--mail-user=me@example.org",
        "--wckey=w",
    ] {
        assert!(text.lines().any(|own| own == format!("#SBATCH {line}")), "{line}:\n{text}");
    }
    assert!(text.contains("afterok:12:13_4,afterany:15?singleton"), "{text}");
    let mut spec = llama().launch(Launch::PerRank).image("a/b:1").build().expect("valid");
    spec.backend.insert("slurm".to_owned(), serde_json::json!({ "container": "singularity" }));
    assert!(self::text(spec, Vec::new()).contains("  singularity exec --nv "));
}

/// Point 10 of issue 16: the CPUs follow Slurm's own rules, and the plan explains them.
#[test]
fn cpus_follow_the_job_file_or_slurms_default_and_the_plan_explains_them() {
    let render_of = |role: Role, own: serde_json::Value| {
        let mut spec = JobSpec::builder("c")
            .launch(Launch::PerRank)
            .role(role.command(["./train"]))
            .build()
            .expect("valid");
        spec.backend.insert("slurm".to_owned(), own);
        let rendered = render(&SlurmTarget::default(), &planned(spec, Vec::new())).expect("renders");
        let finding = rendered.findings.iter().find(|finding| finding.code == "SLURM-CPUS");
        (
            rendered.documents[0].text.clone(),
            finding.map(|finding| finding.message.clone()).unwrap_or_default(),
        )
    };
    let none = || serde_json::json!({});
    let role = |nodes, gpus| Role::worker().nodes(nodes).gpus_per_node(gpus).instance_type("g5.xlarge");
    // One GPU on a node that has only one: an ordinary job, which shares the node.
    let (text, message) = render_of(role(1, 1), none());
    assert!(!text.contains("--exclusive") && !text.contains("--cpu"), "{text}");
    assert!(message.contains("DefCpuPerGPU, or one CPU"), "{message}");
    let (text, message) = render_of(role(2, 1), none());
    assert!(text.contains("#SBATCH --exclusive\n") && !text.contains("--cpu"), "{text}");
    assert!(message.contains("all GPUs of each node are requested"), "{message}");
    assert!(text.contains("#SBATCH --mem=0\n") && message.contains("`--exclusive --mem=0`"), "{message}");
    let mut both = role(2, 1);
    (both.cpus, both.memory) = (Some("3".to_owned()), Some("1Gi".to_owned()));
    let (text, message) = render_of(both.clone(), none());
    assert!(text.contains("#SBATCH --exclusive\n") && !text.contains("--mem=0"), "{text}");
    assert!(message.starts_with("whole nodes (`--exclusive`), because"), "{message}");
    both.memory = None;
    let (_, message) = render_of(both, none());
    assert!(message.contains("`--exclusive --mem=0`"), "{message}");
    // The settings of the job or the user's options are passed to srun, which does not inherit them from
    // sbatch.
    let mut three = role(1, 1);
    three.cpus = Some("3".to_owned());
    let (text, message) = render_of(three, none());
    assert!(
        text.contains("#SBATCH --cpus-per-task=3\n") && text.contains(" --cpus-per-task=3 \\\n"),
        "{text}"
    );
    assert_eq!(message, "");
    let (text, message) = render_of(role(1, 1), serde_json::json!({ "sbatch": ["--cpus-per-task=5"] }));
    assert!(text.contains(" --cpus-per-task=5 \\\n"), "{text}");
    assert_eq!(message, "");
}

/// Point 10 of issue 16: the user's part comes first, weftrun's own part last.
#[test]
fn the_job_stands_before_the_bookkeeping() {
    let text = text(llama().launch(Launch::Torchrun).build().expect("valid"), efa());
    let (own, rest) = text.split_once("\n}\n\n# weftrun's own part").expect("two parts");
    assert!(own.lines().next_back().is_some_and(|line| line.contains("exec torchrun ")), "{own}");
    assert!(!own.contains("weftrun_once") && !own.contains("weftrun_end"), "{own}");
    assert!(rest.trim_end().ends_with("\nweftrun_job") && rest.lines().count() < 50, "{rest}");
}

/// Bash reads a function whole before it runs a line of it.
#[test]
fn shell_options_of_the_setup_come_before_the_function() {
    let setup = serde_json::json!({ "setup": ["shopt -s extglob", "ls !(x)"] });
    let text = with_own(setup).expect("valid");
    let function = text.find("weftrun_job() {").expect("the job");
    assert!(text.find("shopt -s extglob\n").is_some_and(|at| at < function), "{text}");
    let script = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(script.path(), &text).expect("written");
    let mut read = child::command("bash");
    read.arg("-O").arg("extglob").arg("-n").arg(script.path());
    assert!(read.status().expect("bash").success(), "{text}");
}

#[test]
fn an_image_may_be_a_file_beside_the_job() {
    for (image, container, wanted) in [
        ("./a.sqsh", "pyxis", "--container-image=./a.sqsh "),
        ("../b/a.sqsh", "pyxis", "--container-image=../b/a.sqsh "),
        ("nvcr.io/a/b:1", "pyxis", "--container-image='nvcr.io#a/b:1' "),
        ("./a.sqsh", "enroot", " ./a.sqsh "),
        ("./a.sif", "apptainer", " ./a.sif "),
        ("a/b:1", "apptainer", " docker://a/b:1 "),
    ] {
        let mut spec = llama().launch(Launch::PerRank).image(image).build().expect("valid");
        spec.backend.insert("slurm".to_owned(), serde_json::json!({ "container": container }));
        let text = text(spec, Vec::new());
        assert!(text.contains(wanted), "{image}: {text}");
    }
}

/// Point 9 of issue 16.
#[test]
fn the_site_decides_about_a_requeue_unless_the_job_does() {
    let requeue = |text: &str| {
        text.lines().find(|line| line.contains("requeue") && line.starts_with("#SBATCH")).map(str::to_owned)
    };
    assert_eq!(requeue(&with_own(serde_json::json!({})).expect("renders")), None);
    assert_eq!(
        requeue(&with_own(serde_json::json!({"requeue": false})).expect("renders")).as_deref(),
        Some("#SBATCH --no-requeue")
    );
    let restarts =
        llama().launch(Launch::PerRank).restart(RestartPolicy::OnFailure { max: 2 }).build().expect("valid");
    assert_eq!(requeue(&text(restarts, Vec::new())).as_deref(), Some("#SBATCH --requeue"));
    let spec = llama().launch(Launch::PerRank).build().expect("valid");
    let said = |value: Option<&str>| {
        let mut job = planned(spec.clone(), Vec::new());
        if let Some(value) = value {
            job.facts.extra.insert("JobRequeue".to_owned(), value.into());
        }
        let findings = render(&SlurmTarget::default(), &job).expect("renders").findings;
        findings.into_iter().find(|finding| finding.code == "SLURM-REQUEUE").expect("is said").message
    };
    assert!(said(Some("1")).contains("queued again (JobRequeue=1"), "{}", said(Some("1")));
    assert!(said(Some("0")).contains("ends (JobRequeue=0"), "{}", said(Some("0")));
    assert!(said(None).contains("default decides"), "{}", said(None));
}

#[test]
fn annotations_are_named_as_unused() {
    let unused = |spec: JobSpec| {
        let findings = render(&SlurmTarget::default(), &planned(spec, Vec::new())).expect("renders").findings;
        let unused = findings.into_iter().filter(|finding| finding.code == "SLURM-UNUSED");
        unused.filter_map(|finding| finding.subject).collect::<Vec<_>>()
    };
    let job = || llama().launch(Launch::PerRank);
    assert_eq!(
        unused(job().label("team", "nlp").annotation("a", "b").build().expect("valid")),
        ["annotations"]
    );
    assert_eq!(unused(job().build().expect("valid")), [""; 0]);
}

#[test]
fn a_command_that_starts_the_ranks_itself_runs_once() {
    let role = Role::worker().nodes(2).gpus_per_node(8).ranks_per_node(4).command(["bash", "job.sh", "a b"]);
    let spec = JobSpec::builder("once").launch(Launch::Once).role(role);
    let spec = spec.code(Code::Script { name: "job.sh".into(), text: "srun hostname\n".into() });
    let text = text(spec.build().expect("valid"), Vec::new());
    let (own, _) = text.split_once("\n}\n").expect("a function");
    assert_eq!(
        own.lines().next_back().unwrap_or_default(),
        "weftrun_program bash \"$weftrun_source\"/job.sh 'a b'",
        "{text}"
    );
    assert!(text.contains("#SBATCH --ntasks-per-node=4\n") && !text.contains("MASTER_ADDR"), "{text}");
    // A script that is carried has the requests of its own lines.
    let own = serde_json::json!(["--gpus=16", "--gpus-per-node=8", "--ntasks=8", "--ntasks-per-node=4"]);
    let role = Role::worker().nodes(2).gpus_per_node(8).command(["bash", "job.sh"]);
    let spec = JobSpec::builder("once").launch(Launch::Once).role(role).backend("slurm", "sbatch", own);
    let text = super::tests::text(spec.build().expect("valid"), Vec::new());
    for line in ["--gpus=16", "--gpus-per-node=8", "--ntasks=8", "--ntasks-per-node=4"] {
        assert!(text.contains(&format!("#SBATCH {line}\n")), "{line}: {text}");
    }
    assert!(!text.contains("weftrun_code=$weftrun_cause"), "its exit code is its own");
    let image =
        JobSpec::builder("x").launch(Launch::Once).image("a/b:1").role(Role::worker().command(["bash", "x"]));
    assert!(render(&SlurmTarget::default(), &planned(image.build().expect("valid"), Vec::new())).is_err());
}

#[test]
fn what_cannot_be_rendered_is_refused() {
    let refused = |spec: weftrun_core::spec::JobSpecBuilder| {
        let spec = spec.build().expect("valid for other backends");
        render(&SlurmTarget::default(), &planned(spec, Vec::new())).expect_err("refused").to_string()
    };
    let claim = Volume {
        name: "d".into(),
        mount: "/d".into(),
        source: VolumeSource::Claim("pvc".into()),
        read_only: false,
    };
    assert!(refused(llama().volume(claim)).contains("PersistentVolumeClaim"));
    let mpirun =
        JobSpec::builder("m").launch(Launch::Mpi).role(Role::worker().command(["/opt/bin/mpirun", "a"]));
    assert!(refused(mpirun).contains("without `mpirun`"));
}
