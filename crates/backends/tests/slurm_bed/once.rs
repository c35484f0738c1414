//! Points B1 and B2 of issue 14: one submission is one job that runs, whatever becomes of sbatch's or slurmrestd's answer, and
//! what is not known is never taken for a refusal.

use std::time::{Duration, Instant};

use weftrun_backends::slurm::Slurm;
use weftrun_core::ErrorKind;
use weftrun_core::backend::{Backend, Rendered};
use weftrun_core::job::{Action, JobFilter, JobHandle};
use weftrun_core::spec::{JobSpec, Launch, Role};
use weftrun_testkit::planned;

use crate::bed::{Bed, WAYS, Way};

/// Where jobs note that they ran; jobs see it as `/fsx`.
const RAN: &str = "/fsx/logs/ran";

fn unique(name: &str) -> String {
    format!("{name}-{:06x}", fastrand::u32(..0x00ff_ffff))
}

/// A job that notes each of its runs and then goes on for a while.
fn job(name: &str) -> JobSpec {
    let script = format!("echo $SLURM_JOB_ID >> {RAN}-{name}; sleep 20");
    let role = Role::worker().command(["sh", "-c", &script]);
    JobSpec::builder(name).launch(Launch::PerNode).role(role).build().expect("valid")
}

fn runs(bed: &Bed, name: &str) -> Vec<String> {
    let text = bed.sh(&format!("cat \"$BED/shared{RAN}-{name}\" 2> /dev/null"));
    text.lines().map(str::to_owned).collect()
}

async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !done() {
        assert!(Instant::now() < end, "{what}: not within two minutes");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// A target whose sbatch is the script, and whose lost submissions are settled soon.
fn slurm(bed: &Bed, way: Way, script: &str, absence: u64) -> Slurm {
    let target = bed.wrapped(way, "sbatch", script).with("absence-seconds", absence);
    Slurm::new(&target.with("command-seconds", 5)).expect("the target is good")
}

/// An sbatch that says why it failed, and whose job is queued only after some seconds. `once` leaves a note of each call.
fn late(seconds: u32, said: &str, note: &str) -> String {
    format!(
        "case \" $* \" in *' --test-only '*) exec \"$real\" \"$@\";; esac\necho call >> {note}\n\
         t=$(mktemp); cat > \"$t\"\n(sleep {seconds}; \"$real\" \"$@\" < \"$t\") > /dev/null 2>&1 &\n\
         echo 'sbatch: error: Batch job submission failed: {said}' >&2; exit 1"
    )
}

fn note(bed: &Bed, way: Way, name: &str) -> (String, String) {
    // The wrapper runs on the head node over ssh, where the shared folder has another path.
    let here = format!("{}/shared/fsx/logs/calls-{name}", bed.dir.display());
    let there = if way == Way::Here { here.clone() } else { format!("/fsx/logs/calls-{name}") };
    (here, there)
}

fn calls(path: &str) -> usize {
    std::fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

fn rendered(slurm: &Slurm, name: &str) -> Rendered {
    slurm.render(&planned(job(name))).expect("renders")
}

async fn cancel(slurm: &Slurm, handle: &JobHandle) {
    slurm.act(handle, Action::Cancel).await.expect("is cancelled");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b1_a_job_that_appears_late_is_submitted_once() {
    let Some(bed) = Bed::find() else { return };
    for way in WAYS {
        for (said, seconds) in [
            ("Socket timed out on send/recv operation", 6),
            ("Unexpected message received", 9),
            ("Zero Bytes were transmitted or received", 3),
        ] {
            let name = unique("late");
            let (here, there) = note(&bed, way, &name);
            let slurm = slurm(&bed, way, &late(seconds, said, &there), 60);
            let rendered = rendered(&slurm, &name);
            let found =
                slurm.submit(&rendered).await.unwrap_or_else(|error| panic!("{way:?} {said}: {error}"));
            assert_eq!((calls(&here), bed.count(&name)), (1, 1), "{way:?} {said}");
            assert_eq!(slurm.submit(&rendered).await.expect("the same"), found, "{way:?} {said}");
            assert_eq!((calls(&here), bed.count(&name)), (1, 1), "{way:?} {said}: submitted again");
            cancel(&slurm, &found).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b1_a_job_that_appears_after_all_patience_is_unknown_and_found_later() {
    let Some(bed) = Bed::find() else { return };
    for way in WAYS {
        let name = unique("patience");
        let (here, there) = note(&bed, way, &name);
        let slurm = slurm(&bed, way, &late(20, "Socket timed out on send/recv operation", &there), 5);
        let rendered = rendered(&slurm, &name);
        let lost = slurm.submit(&rendered).await.expect_err("nothing was seen within the time");
        assert!(matches!(lost.kind(), ErrorKind::Unreachable | ErrorKind::Timeout), "{way:?}: {lost}");
        assert_eq!((calls(&here), bed.count(&name)), (1, 0), "{way:?}: it was not sent again");
        until("the job is queued", || bed.count(&name) == 1).await;
        let found = slurm.find(&rendered.submission).await.expect("an answer").expect("the job");
        assert_eq!(slurm.submit(&rendered).await.expect("the same"), found, "{way:?}");
        assert_eq!((calls(&here), bed.count(&name)), (1, 1), "{way:?}");
        cancel(&slurm, &found).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b1_absence_is_said_only_when_the_bound_has_passed() {
    let Some(bed) = Bed::find() else { return };
    let name = unique("absent");
    let refuses = "case \" $* \" in *' --test-only '*) exec \"$real\" \"$@\";; esac\n\
        echo 'sbatch: error: Batch job submission failed: Message receive failure' >&2; exit 1";
    let quick = slurm(&bed, Way::Ssh, refuses, 1);
    let rendered = rendered(&quick, &name);
    let lost = quick.submit(&rendered).await.expect_err("it never arrives");
    assert_eq!(lost.kind(), ErrorKind::Unreachable, "{lost}");
    let patient = slurm(&bed, Way::Ssh, refuses, 600);
    let open = patient.find(&rendered.submission).await.expect_err("not certain yet");
    assert_eq!((open.kind(), open.is_retryable()), (ErrorKind::Timeout, true), "{open}");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(quick.find(&rendered.submission).await.expect("certain"), None);
    let never_sent = rendered_elsewhere(&patient);
    assert_eq!(patient.find(&never_sent.submission).await.expect("certain"), None, "no sbatch was started");
}

fn rendered_elsewhere(slurm: &Slurm) -> Rendered {
    rendered(slurm, &unique("never-sent"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b1_an_sbatch_slower_than_the_time_allowed_is_no_refusal() {
    let Some(bed) = Bed::find() else { return };
    for way in WAYS {
        let name = unique("slow");
        let slow =
            "case \" $* \" in *' --test-only '*) exec \"$real\" \"$@\";; esac\nsleep 25; \"$real\" \"$@\"";
        let slurm = slurm(&bed, way, slow, 3);
        let rendered = rendered(&slurm, &name);
        let lost = match slurm.submit(&rendered).await {
            Err(lost) => lost,
            Ok(early) => panic!("{way:?}: {early} before it was queued"),
        };
        assert!(matches!(lost.kind(), ErrorKind::Unreachable | ErrorKind::Timeout), "{way:?}: {lost}");
        let open = slurm.find(&rendered.submission).await;
        if bed.count(&name) == 0 {
            assert_eq!(open.expect_err("sbatch still runs").kind(), ErrorKind::Timeout, "{way:?}");
        }
        until("the job is queued", || bed.count(&name) == 1).await;
        let found = slurm.find(&rendered.submission).await.expect("an answer").expect("the job");
        assert_eq!(bed.count(&name), 1, "{way:?}");
        cancel(&slurm, &found).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b1_a_silent_squeue_leaves_a_submission_unknown() {
    let Some(bed) = Bed::find() else { return };
    let name = unique("silent");
    let slurm = slurm(&bed, Way::Here, &late(0, "Unexpected message received", "/dev/null"), 3);
    let rendered = rendered(&slurm, &name);
    // squeue and sacct fail too: nothing can be asked.
    let dir = bed.wrapper(Way::Here, "sbatch", &late(0, "Unexpected message received", "/dev/null"));
    for program in ["squeue", "sacct"] {
        let from =
            bed.wrapper(Way::Here, program, "echo \"$0: error: Unexpected message received\" >&2; exit 1");
        std::fs::copy(from.join(program), dir.join(program)).expect("copied");
    }
    let target = bed.target(Way::Here).with("bin-dir", dir.display().to_string()).with("absence-seconds", 3);
    let blind = Slurm::new(&target).expect("the target is good");
    let lost = blind.submit(&rendered).await.expect_err("nothing can be known");
    assert!(matches!(lost.kind(), ErrorKind::Unreachable | ErrorKind::Timeout), "{lost}");
    until("the job is queued", || bed.count(&name) == 1).await;
    let found = slurm.find(&rendered.submission).await.expect("an answer").expect("the job");
    cancel(&slurm, &found).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b1_of_two_copies_one_runs_and_the_other_is_not_listed() {
    let Some(bed) = Bed::find() else { return };
    let twice = "case \" $* \" in *' --test-only '*) exec \"$real\" \"$@\";; esac\n\
        t=$(mktemp); cat > \"$t\"; \"$real\" \"$@\" < \"$t\"; \"$real\" \"$@\" < \"$t\" > /dev/null";
    for (case, own) in [("plain", serde_json::json!({})), ("array", serde_json::json!({ "array": "1-3" }))] {
        let name = unique(case);
        let slurm = slurm(&bed, Way::Ssh, twice, 30);
        let mut spec = job(&name);
        spec.backend.insert("slurm".to_owned(), own);
        let rendered = slurm.render(&planned(spec)).expect("renders");
        slurm.submit(&rendered).await.expect("is taken");
        let wanted = if case == "array" { 3 } else { 1 };
        until("the copies are done", || {
            let states = bed.ctl(&format!("head squeue -h -t all -n {name} -o %T -r"));
            let copies = states.lines().filter(|state| *state == "FAILED").count();
            copies == wanted && runs(&bed, &name).len() == wanted
        })
        .await;
        assert_eq!(runs(&bed, &name).len(), wanted, "{case}");
        let listed = slurm.list(&JobFilter::all()).await.expect("a list");
        let listed: Vec<_> = listed.iter().filter(|job| job.name == name).collect();
        assert_eq!(listed.len(), 1, "{case}: {listed:?}");
        let found = slurm.find(&rendered.submission).await.expect("an answer").expect("the job");
        assert_eq!(listed[0].handle, found, "{case}");
        cancel(&slurm, &found).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b1_the_same_job_passes_its_claim_again_after_a_requeue() {
    let Some(bed) = Bed::find() else { return };
    let name = unique("requeued");
    let slurm = Slurm::new(&bed.target(Way::Ssh).with("requeue", true)).expect("the target is good");
    let handle = slurm.submit(&rendered(&slurm, &name)).await.expect("is taken");
    until("it runs", || runs(&bed, &name).len() == 1).await;
    bed.ctl(&format!("head scontrol requeue {}", handle.name()));
    // Slurm waits two minutes before it starts a requeued job again, unless it is asked for.
    let start = format!("head -u root scontrol update JobId={} StartTime=now", handle.name());
    until("it runs again", || {
        bed.ctl(&start);
        runs(&bed, &name).len() == 2
    })
    .await;
    let ran = runs(&bed, &name);
    assert_eq!(ran[0], ran[1]);
    cancel(&slurm, &handle).await;
}
