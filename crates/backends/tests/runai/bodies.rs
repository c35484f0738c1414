//! What is sent for every kind of job, fabric and version: case files in, snapshots of the bodies out, each held
//! against the vendor's schema with unknown fields forbidden.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use weftrun_core::ErrorKind;
use weftrun_core::backend::{ClusterFacts, PlannedJob, Rendered, TargetConfig};
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::{Fabric, FabricPlan, Profile, Profiles};
use weftrun_core::job::SubmissionId;
use weftrun_core::spec::{JobFile, JobSpec, Launch, Role};
use weftrun_core::{Error, Result};
use weftrun_testkit::fake_runai::{CLUSTER_ID, PROJECT, PROJECT_ID};

use crate::common::connect;
use weftrun_testkit::child;

/// The versions that are looked at: the first, the middle and the last that are known.
pub const MINORS: [u32; 3] = [18, 21, 24];

/// Renders a job as for a control plane of a version.
pub fn render(spec: JobSpec, minor: u32) -> Result<Rendered> {
    let mut target =
        TargetConfig::new("nlp", "runai", std::env::temp_dir()).with("url", "https://runai.example.test");
    target.project = Some(PROJECT.into());
    let mut facts = ClusterFacts::default();
    facts.version = Some(format!("2.{minor}.1"));
    facts.ids =
        BTreeMap::from([("project-id".into(), PROJECT_ID.into()), ("cluster-id".into(), CLUSTER_ID.into())]);
    let profile =
        spec.profile.as_ref().map_or_else(Profile::default, |name| Profiles::builtin().get(name).unwrap());
    let plan = FabricPlan::new(&spec, &Catalogue::builtin(), &facts, &profile);
    let job = PlannedJob::new(spec, plan, profile, facts, SubmissionId::from_random(8));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(connect(target)).unwrap().render(&job)
}

/// The body of a rendered job.
pub fn body(rendered: &Rendered) -> Value {
    serde_json::from_str(&rendered.documents[0].text).unwrap()
}

/// The kind of workload: the last word of the path.
pub fn kind(rendered: &Rendered) -> &str {
    rendered.documents[0].title.rsplit('/').next().unwrap()
}

/// The case files, by name.
pub fn cases() -> Vec<(String, JobSpec)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/runai/cases");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let read = |path: PathBuf| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let job = JobFile::parse(&format!("{name}.toml"), &std::fs::read(&path).unwrap());
        (
            name,
            job.unwrap_or_else(|error| panic!("{}: {error}\n{:#?}", path.display(), error.findings())).spec,
        )
    };
    files.into_iter().map(read).collect()
}

fn shown(rendered: &Result<Rendered, Error>) -> String {
    match rendered {
        Ok(rendered) => {
            let mut text = format!("{}\n{}\n", rendered.documents[0].title, rendered.documents[0].text);
            for lost in &rendered.inexpressible {
                let _ = writeln!(
                    text,
                    "not expressible: {} {}: {}",
                    lost.op.rule,
                    lost.op.change.target(),
                    lost.reason
                );
            }
            text
        }
        Err(error) => format!("refused: {}\n", error.message()),
    }
}

/// One snapshot for each case: the body for the newest version in full, and of the older ones what differs.
#[test]
fn bodies_are_these() {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| {
        for (name, spec) in cases() {
            let newest = shown(&render(spec.clone(), 24));
            let mut text = newest.clone();
            for minor in [21, 18] {
                let older = shown(&render(spec.clone(), minor));
                let _ = writeln!(text, "--- 2.{minor} ---\n{}", difference(&newest, &older));
            }
            insta::assert_snapshot!(name, text);
        }
    });
}

/// The lines only one of two texts has.
fn difference(newest: &str, older: &str) -> String {
    if older.starts_with("refused") {
        return older.trim_end().to_owned();
    }
    let (new, old): (Vec<&str>, Vec<&str>) = (newest.lines().collect(), older.lines().collect());
    let gone = new.iter().filter(|line| !old.contains(line)).map(|line| format!("- {line}"));
    let come = old.iter().filter(|line| !new.contains(line)).map(|line| format!("+ {line}"));
    let lines: Vec<String> = gone.chain(come).collect();
    if lines.is_empty() { "the same".to_owned() } else { lines.join("\n") }
}

/// Three nodes are a master and two workers.
#[test]
fn the_epfl_job_is_a_master_and_two_workers() {
    let (_, epfl) = cases().into_iter().find(|(name, _)| name == "epfl-roce").unwrap();
    for minor in MINORS {
        let body = body(&render(epfl.clone(), minor).unwrap());
        assert_eq!(body["spec"]["numWorkers"], 2);
        assert_eq!(body["masterSpecSameAsWorker"], true);
        assert!(body.get("masterSpec").is_none());
        assert_eq!(body["spec"]["compute"]["gpuDevicesRequest"], 4);
        let devices = json!([{"resource": "rdma/rdma", "quantity": "1"}]);
        assert_eq!(body["spec"]["compute"]["extendedResources"], devices);
        let networks = json!({"name": "k8s.v1.cni.cncf.io/networks", "value": "kube-system/roce"});
        assert!(body["spec"]["annotations"].as_array().unwrap().contains(&networks));
    }
}

/// The launcher requests no fabric devices and runs `mpirun`; the workers have no command, so that they run
/// sshd.
#[test]
fn an_mpi_job_has_a_launcher_of_its_own() {
    for (_, spec) in cases().into_iter().filter(|(_, spec)| spec.launch == Launch::Mpi) {
        let body = body(&render(spec, 24).unwrap());
        assert_eq!(body["spec"]["distributedFramework"], "MPI");
        assert_eq!(body["spec"]["numWorkers"], 2);
        assert!(body["spec"].get("command").is_none());
        let launcher = &body["masterSpec"];
        assert!(launcher["command"].as_str().unwrap().ends_with("mpirun"), "{launcher:#}");
        assert!(launcher["args"].as_str().unwrap().contains("-np"), "{launcher:#}");
        assert!(launcher["compute"].get("extendedResources").is_none(), "{launcher:#}");
        assert!(launcher["compute"].get("gpuDevicesRequest").is_none(), "{launcher:#}");
        assert!(!body["spec"]["compute"]["extendedResources"].as_array().unwrap().is_empty());
    }
}

fn long(bytes: usize) -> JobSpec {
    let role = Role::worker().nodes(2).gpus_per_node(1).command(["train.py".to_owned(), "x".repeat(bytes)]);
    JobSpec::builder("long")
        .image("example.test/pytorch:1")
        .launch(Launch::Torchrun)
        .role(role)
        .fabric(Fabric::Off)
        .build()
        .unwrap()
}

/// Above what the API carries the words travel in an environment variable, and the rendezvous is filled in there.
#[test]
fn a_long_command_line_travels_in_the_environment() {
    let body = body(&render(long(12_000), 24).unwrap());
    assert_eq!(body["spec"]["command"], "/bin/sh");
    assert_eq!(body["spec"]["args"], "-c 'eval \"exec $WEFTRUN_ARGV\"'");
    let variables = body["spec"]["environmentVariables"].as_array().unwrap();
    let carrier = variables.iter().find(|var| var["name"] == "WEFTRUN_ARGV").unwrap();
    let carried = carrier["value"].as_str().unwrap();
    let output = child::command("/bin/sh")
        .args(["-c", "torchrun() { printf '%s\\n' \"$@\"; }; eval \"$WEFTRUN_ARGV\""])
        .env("WEFTRUN_ARGV", carried)
        .envs([("RANK", "1"), ("MASTER_ADDR", "long-master-0"), ("MASTER_PORT", "23456")])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let words: Vec<&str> = text.lines().collect();
    assert_eq!(
        words[2..6],
        ["--node-rank=1", "--master-addr=long-master-0", "--master-port=23456", "train.py"]
    );
    assert_eq!(words[6].len(), 12_000);
    let error = render(long(200_000), 24).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidSpec);
    assert!(error.message().contains("131008 fit"), "{error}");
}

/// A field that no version has would be ignored by the server without a word; one that is newer than the server too.
#[test]
fn fields_that_would_be_lost_are_refused() {
    let mut spec = long(1);
    let mut set = |field: Value| {
        spec.backend = BTreeMap::from([("runai".into(), json!({"spec": field}))]);
        render(spec.clone(), 21)
    };
    let error = set(json!({"imagePullPolcy": "Always"})).unwrap_err();
    assert_eq!(error.hints()[0], "did you mean `imagePullPolicy`?");
    let error = set(json!({"preemptibility": "preemptible"})).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("2.24"), "{error}");
    assert!(set(json!({"terminateAfterPreemption": true})).is_ok());
}

/// A role of one node beside the workers is the master, with fields of its own.
#[test]
fn a_second_role_of_one_node_is_the_master() {
    let role =
        |name: &str, nodes, gpus| Role::new(name).nodes(nodes).gpus_per_node(gpus).command(["train.py"]);
    let spec = JobSpec::builder("two").image("example.test/pytorch:1").launch(Launch::PerNode);
    let spec = spec.role(role("head", 1, 1)).role(role("worker", 3, 8)).fabric(Fabric::Off).build().unwrap();
    let body = body(&render(spec, 24).unwrap());
    assert_eq!(body["spec"]["numWorkers"], 3);
    assert_eq!(body["masterSpec"]["compute"]["gpuDevicesRequest"], 1);
    assert!(body.get("masterSpecSameAsWorker").is_none());
}

#[test]
fn a_name_too_long_for_the_pods_of_several_nodes_is_refused() {
    let outcome = |length: usize, nodes: u32| {
        let role = Role::worker().nodes(nodes).gpus_per_node(8).command(["./a"]);
        let spec = JobSpec::builder("a".repeat(length)).image("x").role(role).build().unwrap();
        render(spec, 24).map(drop).map_err(|error| error.findings()[0].code.clone())
    };
    assert_eq!((outcome(54, 2), outcome(60, 1)), (Ok(()), Ok(())));
    assert_eq!(outcome(55, 2), Err("K8S-NAME-LENGTH".to_owned()));
}
