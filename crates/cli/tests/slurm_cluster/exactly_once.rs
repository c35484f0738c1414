//! One `submit` creates one job, whatever happens to sbatch's answer.

use std::time::{Duration, Instant};

use crate::cluster::{TestCluster, WAYS, Way};
use crate::run::{User, said};

/// The state of the only submission in a user's journal.
fn journalled(user: &User<'_>) -> String {
    let folder = user.dir().join("state/journal");
    let mut files =
        std::fs::read_dir(&folder).expect("a journal").map(|entry| entry.expect("an entry").path());
    let file = files.find(|path| path.extension().is_some_and(|end| end == "json")).expect("a record");
    let text = std::fs::read_to_string(file).expect("it can be read");
    let record: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    record["state"].as_str().expect("a state").to_owned()
}

/// Point B1 of issue 14: an unknown outcome is recorded as unknown, and a later `list` reports what happened.
#[test]
fn b1_an_unknown_submission_is_found_by_list_once_it_appears() {
    let Some(cluster) = TestCluster::find() else { return };
    for way in WAYS {
        for said_by_sbatch in ["Socket timed out on send/recv operation", "Unexpected message received"] {
            let script = format!(
                "case \" $* \" in *' --test-only '*) exec \"$real\" \"$@\";; esac\nt=$(mktemp); cat > \"$t\"\n\
                 (sleep 20; \"$real\" \"$@\" < \"$t\") > /dev/null 2>&1 &\n\
                 echo 'sbatch: error: Batch job submission failed: {said_by_sbatch}' >&2; exit 1"
            );
            let programs = cluster.wrapper(way, "sbatch", &script);
            let bin_dir = programs.display().to_string();
            let name =
                format!("unknown-{}-{way:?}-{}", &said_by_sbatch[..3], std::process::id()).to_lowercase();
            let user = User::new(&cluster, way, &[("bin-dir", &bin_dir), ("absence-seconds", "4")]);
            user.file("job.toml", &format!("name = \"{name}\"\ncommand = [\"sleep\", \"60\"]\n"));
            let output = user.weftrun(&["submit", "job.toml"]);
            let text = said(&output);
            assert_ne!(output.status.code(), Some(0), "{text}");
            assert!(text.contains("weftrun list"), "it says how to find out: {text}");
            assert!(["intended", "unknown"].contains(&journalled(&user).as_str()), "{text}");
            let end = Instant::now() + Duration::from_mins(2);
            while cluster.count(&name) == 0 {
                assert!(Instant::now() < end, "the job was never queued");
                std::thread::sleep(Duration::from_millis(300));
            }
            let output = user.weftrun(&["list"]);
            let text = said(&output);
            assert!(
                text.contains(&format!(
                    "the submission of `{name}` had lost its answer; it is slurm://cluster/"
                )),
                "{text}"
            );
            assert_eq!((journalled(&user).as_str(), cluster.count(&name)), ("submitted", 1), "{text}");
            cluster.ctl(&format!("head scancel -n {name}"));
        }
    }
}

/// Point B1 of issue 14: a submission is reported as never arrived only when that is certain.
#[test]
fn b1_list_says_that_a_submission_never_arrived_only_when_that_is_certain() {
    let Some(cluster) = TestCluster::find() else { return };
    let script = "case \" $* \" in *' --test-only '*) exec \"$real\" \"$@\";; esac\n\
        echo 'sbatch: error: Batch job submission failed: Message receive failure' >&2; exit 1";
    let bin_dir = cluster.wrapper(Way::Ssh, "sbatch", script).display().to_string();
    let user = User::new(&cluster, Way::Ssh, &[("bin-dir", &bin_dir), ("absence-seconds", "12")]);
    user.file("job.toml", "name = \"never-came\"\ncommand = [\"true\"]\n");
    let submitting = Instant::now();
    let output = user.weftrun(&["submit", "job.toml"]);
    assert_ne!(output.status.code(), Some(0), "{}", said(&output));
    assert!(submitting.elapsed() >= Duration::from_secs(11), "it was looked for: {}", said(&output));
    // With a longer bound the same record is open again.
    let longer = User::new(&cluster, Way::Ssh, &[("bin-dir", &bin_dir), ("absence-seconds", "600")]);
    cluster.sh(&format!("cp -r {}/state {}/state", user.dir().display(), longer.dir().display()));
    let text = said(&longer.weftrun(&["list"]));
    assert!(text.contains("`never-came`") && text.contains("still may"), "{text}");
    std::thread::sleep(Duration::from_secs(3));
    let text = said(&user.weftrun(&["list"]));
    assert!(text.contains("never reached"), "{text}");
}

#[test]
fn a_lost_answer_of_sbatch_makes_no_second_job() {
    let Some(cluster) = TestCluster::find() else { return };
    for way in WAYS {
        for (case, script) in [
            ("silent", "\"$real\" \"$@\" > /dev/null; exit 1"),
            ("killed", "\"$real\" \"$@\"; kill -9 $PPID"),
        ] {
            // Only the answer of the real submission is lost, not that of the test before it.
            let script =
                format!("case \" $* \" in *' --test-only '*) exec \"$real\" \"$@\";; esac\n{script}");
            let programs = cluster.wrapper(way, "sbatch", &script);
            let name = format!("once-{case}-{way:?}-{}", std::process::id()).to_lowercase();
            let user = User::new(
                &cluster,
                way,
                &[("bin-dir", &programs.display().to_string()), ("command-seconds", "5")],
            );
            user.file("job.toml", &format!("name = \"{name}\"\ncommand = [\"sleep\", \"60\"]\n"));
            let output = user.weftrun(&["submit", "job.toml"]);
            assert_eq!(output.status.code(), Some(0), "{way:?} {case}: {}", said(&output));
            assert_eq!(cluster.count(&name), 1, "{way:?} {case}");
            let handle = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            let output = user.weftrun(&["cancel", &handle]);
            assert_eq!(output.status.code(), Some(0), "{way:?} {case}: {}", said(&output));
        }
    }
}
