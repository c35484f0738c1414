//! What earlier versions left in a home is read by this one: configuration, journal, jobs of the local backend. There is a
//! folder for each version under `tests/upgrade`, made by its own binary; folders are added at a release and never changed.

use std::fs;
use std::path::{Path, PathBuf};

use crate::place::Place;

fn versions() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/upgrade");
    let mut all: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.sort();
    assert!(!all.is_empty());
    all
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for path in fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()) {
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::write(target, fs::read(path).unwrap()).unwrap();
        }
    }
}

#[test]
fn a_home_of_every_version_is_read() {
    for version in versions() {
        let place = Place::new();
        copy(&version.join("home"), place.config().ancestors().nth(3).unwrap());
        let targets = place.run("targets").ok().out;
        for name in ["prod", "pc", "cloud"] {
            assert!(targets.contains(name), "{}: {targets}", version.display());
        }
        let shown = place.run("config show").ok();
        assert!(!shown.err.contains("error") && shown.out.contains("target.prod.context"), "{shown:?}");
        assert!(place.run("instances x9.48xlarge").ok().out.contains("64"));
        // The settings of each backend are read when it is connected.
        place.write("job.toml", "name = \"new\"\ncommand = [\"true\"]\n");
        for target in ["prod", "pc", "local"] {
            place.run(&format!("render job.toml -b {target}")).ok();
        }
        // A job of that time: listed, described with its plan, its log printed.
        let listed = place.run("list -a -b local").ok();
        assert!(listed.out.contains("local://local/kept#d9374d85") && listed.err.is_empty(), "{listed:?}");
        let described = place.run("describe local://local/kept#d9374d85").ok().out;
        assert!(
            described.contains("succeeded") && described.contains("vpc.amazonaws.com/efa = 32"),
            "{described}"
        );
        let log = place.run("logs local://local/kept#d9374d85").ok();
        assert!(format!("{}{}", log.out, log.err).contains("rank 1 of 2"), "{log:?}");
    }
}

#[test]
fn what_a_later_version_wrote_is_left_alone_and_said() {
    let place = Place::new();
    place.configure("from_the_future = 1\n");
    let done = place.run("targets");
    assert!(done.code != 0 && done.err.contains("from_the_future"), "{done:?}");
    place.configure("");
    // A record with additional fields is still valid.
    let folder = versions()[0].join("home/.local/state/weftrun/journal");
    let record = fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    let mut value: serde_json::Value = serde_json::from_slice(&fs::read(record).unwrap()).unwrap();
    value["of_tomorrow"] = true.into();
    value["state"] = "intended".into();
    value["handle"] = serde_json::Value::Null;
    let path = place.state().join("journal/d9374d852b9a6a96de1935bad71bdd75.json");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, value.to_string()).unwrap();
    let listed = place.run("list -a").ok();
    assert!(listed.err.contains("`kept`") && listed.err.contains("never reached"), "{listed:?}");
}
