//! Every case under `tests/cases/slurm/render`: a job file, planned with a profile and possibly a recorded
//! cluster, renders exactly this script.

use std::path::{Path, PathBuf};

use weftrun_core::backend::{ClusterFacts, PlannedJob, Scope, TargetConfig};
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::{FabricPlan, Profiles};
use weftrun_core::job::SubmissionId;
use weftrun_core::spec::JobFile;

use super::render;
use crate::slurm::config::SlurmTarget;
use crate::slurm::discover::tests_of_other_modules::recorded;
use weftrun_testkit::child;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/slurm/render")
}

/// Reads `target.toml`: its settings, its profile and its recorded cluster.
fn target(case: &Path) -> (TargetConfig, String, ClusterFacts) {
    let text = std::fs::read_to_string(case.join("target.toml")).unwrap_or_default();
    let mut table: toml::Table = text.parse().expect("target.toml is TOML");
    let mut take = |key: &str| table.remove(key).and_then(|value| value.as_str().map(str::to_owned));
    let profile = take("profile").unwrap_or_else(|| "parallelcluster".to_owned());
    let facts = take("facts").map(|release| recorded(&release, &Scope::default())).unwrap_or_default();
    let mut target = TargetConfig::new("case", "slurm", "/state");
    for (key, value) in table {
        target = target.with(&key, serde_json::to_value(value).expect("a value"));
    }
    (target, profile, facts)
}

fn script(case: &Path) -> String {
    let bytes = std::fs::read(case.join("job.toml")).expect("job.toml is there");
    let file =
        JobFile::parse("job.toml", &bytes).unwrap_or_else(|error| panic!("{}: {error}", case.display()));
    let (target, profile, facts) = target(case);
    let profile = Profiles::builtin().get(&profile).expect("a shipped profile");
    let catalogue = Catalogue::builtin();
    let plan = FabricPlan::new(&file.spec, &catalogue, &facts, &profile);
    let submission = SubmissionId::from_random(0x0a1b_2c3d << 96);
    let job = PlannedJob::new(file.spec, plan, profile, facts, submission);
    let rendered = render(&SlurmTarget::of(&target).expect("good settings"), &job)
        .unwrap_or_else(|error| panic!("{}: {error}", case.display()));
    rendered.documents[0].text.clone()
}

#[test]
fn each_case_becomes_its_script() {
    let mut cases: Vec<PathBuf> = std::fs::read_dir(folder())
        .expect("the cases are in the tree")
        .map(|entry| entry.expect("readable").path())
        .collect();
    cases.sort();
    assert!(cases.len() >= 18, "only {} cases", cases.len());
    for case in cases {
        let (text, file) = (script(&case), case.join("script.sh"));
        if std::env::var_os("WEFTRUN_BLESS").is_some() {
            std::fs::write(&file, &text).expect("written");
        }
        let kept = std::fs::read_to_string(&file).unwrap_or_default();
        let name = case.file_name().unwrap_or_default().display();
        assert!(text == kept, "{name}: the script differs; WEFTRUN_BLESS=1 writes it, then read it:\n{text}");
        let parsed = child::command("bash").arg("-n").arg(&file).output().expect("bash runs");
        assert!(parsed.status.success(), "{name}: {}", String::from_utf8_lossy(&parsed.stderr));
    }
}
