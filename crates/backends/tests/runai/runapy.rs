//! The vendor's own Python client (`runapy`, PyPI) as the referee: its requests are what our control plane takes, and
//! our bodies are what its models take, in its version for each control plane.
//!
//! `.ci/runapy` puts the versions into the cache folder. Without them, the tests report that they were
//! skipped.

use std::path::{Path, PathBuf};
use std::process::Output;

use weftrun_testkit::fake_runai::{CLIENT_ID, CLIENT_SECRET, FakeRunAi};

use crate::bodies;
use weftrun_testkit::child;

/// The folder of `.ci/runapy`: a Python of its own, and a folder for each version of the client.
fn folder() -> Option<PathBuf> {
    let set = std::env::var_os("WEFTRUN_RUNAPY").map(PathBuf::from);
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache")));
    let folder = set.or_else(|| Some(cache?.join("weftrun-ci/runapy")))?;
    if folder.join("venv/bin/python").is_file() {
        return Some(folder);
    }
    weftrun_testkit::skipped(format_args!("no runapy in {}; `.ci/runapy` installs it", folder.display()));
    None
}

fn referee(folder: &Path, minor: u32, arguments: &[&str]) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/runai/runapy.py");
    let python = folder.join("venv/bin/python");
    let version = folder.join(format!("1.2{minor}"));
    assert!(version.is_dir(), "{} is not there: `.ci/runapy` was interrupted", version.display());
    child::command(python).arg(script).args(arguments).env("PYTHONPATH", version).output().unwrap()
}

fn assert_ok(output: &Output, what: &str) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_official_models_take_our_bodies() {
    let Some(folder) = folder() else { return };
    for minor in bodies::MINORS {
        let rendered = tempfile::tempdir().unwrap();
        let mut written = 0;
        for (name, spec) in bodies::cases() {
            let Ok(job) = bodies::render(spec, minor) else { continue };
            let file = rendered.path().join(format!("{}.{name}.json", bodies::kind(&job)));
            std::fs::write(file, &job.documents[0].text).unwrap();
            written += 1;
        }
        let output = referee(&folder, minor, &["bodies", &rendered.path().display().to_string()]);
        assert_eq!(assert_ok(&output, &format!("2.{minor}")), format!("checked {written}\n"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn our_control_plane_takes_the_official_requests() {
    let Some(folder) = folder() else { return };
    for minor in bodies::MINORS {
        let fake = FakeRunAi::start(minor).await.unwrap();
        let url = fake.url();
        let folder = folder.clone();
        let output = tokio::task::spawn_blocking(move || {
            referee(&folder, minor, &["requests", &url, CLIENT_ID, CLIENT_SECRET])
        });
        assert_eq!(assert_ok(&output.await.unwrap(), &format!("2.{minor}")), "done\n");
        let refused: Vec<_> =
            fake.state().journal.iter().filter(|seen| seen.status >= 400).cloned().collect();
        assert!(refused.is_empty(), "2.{minor}: {refused:#?}");
    }
}
