//! kill -9 at every step of a submit: `weftrun list` explains what is left, and the job runs at most once.
//!
//! The steps are those of the real command line with the real local backend: this test binary runs them as a process of
//! its own, with a barrier before and behind each call that the backend gets ([`Barriers`]). What lies between the
//! barriers is swept with strace where it is installed: each system call that changes a file is a step.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use serde_json::Value;
use weftrun::core::backend::{
    BackendEntry, ClusterFacts, PlannedJob, Registry, Rendered, Scope, TargetConfig,
};
use weftrun::core::job::{Action, JobDetail, JobEvent, JobFilter, JobHandle, JobSummary, SubmissionId};
use weftrun::core::log::{LogBatch, LogOptions};
use weftrun::{Backend, Capability, Finding, Result};

use crate::place::{Done, Place};
use weftrun_testkit::child;

/// The local backend, stopped at the points that a file names.
#[derive(Debug)]
struct Barriers {
    inner: Arc<dyn Backend>,
    folder: PathBuf,
}

impl Barriers {
    /// Blocks here forever if the file `stop-at` names this step.
    async fn step(&self, name: &str) {
        if fs::read_to_string(self.folder.join("stop-at")).is_ok_and(|step| step == name) {
            fs::write(self.folder.join("reached"), name).unwrap();
            std::future::pending::<()>().await;
        }
    }
}

#[async_trait]
impl Backend for Barriers {
    fn capability(&self) -> Capability {
        self.inner.capability()
    }
    async fn discover(&self, scope: &Scope) -> Result<ClusterFacts> {
        self.step("discover").await;
        self.inner.discover(scope).await
    }
    fn render(&self, job: &PlannedJob) -> Result<Rendered> {
        self.inner.render(job)
    }
    async fn check(&self, rendered: &Rendered) -> Result<Vec<Finding>> {
        self.step("check").await;
        self.inner.check(rendered).await
    }
    async fn submit(&self, rendered: &Rendered) -> Result<JobHandle> {
        self.step("before submit").await;
        let handle = self.inner.submit(rendered).await;
        self.step("behind submit").await;
        handle
    }
    async fn find(&self, id: &SubmissionId) -> Result<Option<JobHandle>> {
        self.inner.find(id).await
    }
    async fn list(&self, filter: &JobFilter) -> Result<Vec<JobSummary>> {
        self.inner.list(filter).await
    }
    async fn describe(&self, job: &JobHandle) -> Result<JobDetail> {
        self.inner.describe(job).await
    }
    async fn act(&self, job: &JobHandle, action: Action) -> Result<()> {
        self.inner.act(job, action).await
    }
    fn watch(&self, filter: JobFilter) -> BoxStream<'static, Result<JobEvent>> {
        self.inner.watch(filter)
    }
    fn logs(&self, job: &JobHandle, options: LogOptions) -> BoxStream<'static, Result<LogBatch>> {
        self.inner.logs(job, options)
    }
}

async fn connect(mut target: TargetConfig) -> Result<Arc<dyn Backend>> {
    weftrun::link();
    // The supervisor is the real binary; this one is a test.
    target.binary = Some(env!("CARGO_BIN_EXE_weftrun").into());
    let folder = PathBuf::from(target.env.get("WEFTRUN_TEST_BARRIERS").unwrap());
    let inner = (Registry::linked().get("local")?.connect)(target).await?;
    Ok(Arc::new(Barriers { inner, folder }))
}

#[test]
#[ignore = "the process that the test below kills"]
fn submit_with_barriers() {
    if std::env::var_os("WEFTRUN_TEST_BARRIERS").is_none() {
        return;
    }
    let mut entry = BackendEntry::new("local", "", "cli-tests", |target| Box::pin(connect(target)));
    (entry.form, entry.ignores_images) = (weftrun::core::fabric::evidence::Form::Script, true);
    let code = weftrun_cli::run(Registry::empty().with(entry), ["weftrun", "submit", "job.toml"]);
    std::process::exit(i32::from(code));
}

const JOB: &str = "name = \"once\"\ncommand = [\"sh\", \"-c\", \"echo ran >> $OLDPWD_RUNS\"]\n";

/// A place with a job that leaves a line in a file each time it runs.
fn place() -> Place {
    let place = Place::new();
    let runs = place.path("runs");
    place.write("job.toml", JOB.replace("$OLDPWD_RUNS", runs.to_str().unwrap()));
    place
}

fn runs(place: &Place) -> usize {
    fs::read_to_string(place.path("runs")).unwrap_or_default().lines().count()
}

/// Returns the journal's records on disk.
fn records(place: &Place) -> Vec<Value> {
    let entries = fs::read_dir(place.state().join("journal")).into_iter().flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    let paths = paths.filter(|path| path.extension().is_some_and(|end| end == "json"));
    paths.map(|path| serde_json::from_slice(&fs::read(path).unwrap()).expect("a record is whole")).collect()
}

/// Returns the output of `weftrun list`: the jobs, and the messages.
fn list(place: &Place) -> (Vec<Value>, String) {
    let done = place.run("list -a -o json").ok();
    (done.json()["jobs"].as_array().unwrap().clone(), done.err)
}

fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_mins(2), "waited two minutes for: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Starts a submit that stops at a step, and kills it there.
fn kill_at(place: &Place, step: &str) {
    let mut child = start_at(place, step);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Starts a submit that stops at a step.
pub fn start_at(place: &Place, step: &str) -> Child {
    let folder = place.path("barriers");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("stop-at"), step).unwrap();
    let mut command = place.program(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "killed::submit_with_barriers", "--nocapture"]);
    command.env("WEFTRUN_TEST_BARRIERS", &folder);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for(step, || {
        assert!(child.try_wait().unwrap().is_none(), "the submit ended before it came to `{step}`");
        folder.join("reached").exists()
    });
    fs::remove_dir_all(&folder).unwrap();
    child
}

/// Submits again, as a user would after reading the output of `list`, and checks that it ran once more.
fn submit_again(place: &Place) {
    let before = runs(place);
    place.run("submit --wait job.toml").ok();
    assert_eq!(runs(place), before + 1);
}

#[test]
fn killed_before_anything_was_sent_nothing_is_left() {
    for step in ["discover", "check"] {
        let place = place();
        kill_at(&place, step);
        let (jobs, said) = list(&place);
        assert!(jobs.is_empty() && said.is_empty() && records(&place).is_empty(), "{step}: {jobs:?} {said}");
        submit_again(&place);
    }
}

#[test]
fn killed_between_journal_and_cluster_list_says_to_submit_it_again() {
    let place = place();
    kill_at(&place, "before submit");
    let (jobs, said) = list(&place);
    assert!(jobs.is_empty(), "{jobs:?}");
    assert!(
        said.contains("`once`") && said.contains("never reached local") && said.contains("submit it again"),
        "{said}"
    );
    assert_eq!(runs(&place), 0);
    submit_again(&place);
    let (jobs, said) = list(&place);
    assert_eq!((jobs.len(), said.as_str()), (1, ""), "a submission that was made up for is told no more");
}

#[test]
fn killed_before_the_answer_was_noted_list_finds_the_job() {
    let place = place();
    kill_at(&place, "behind submit");
    assert_eq!(records(&place)[0]["state"], "intended");
    let (jobs, said) = list(&place);
    let handle = jobs[0]["handle"].as_str().unwrap();
    assert!(said.contains("`once`") && said.contains("lost its answer") && said.contains(handle), "{said}");
    place.run(&format!("wait {handle}")).ok();
    assert_eq!(runs(&place), 1);
    let (jobs, said) = list(&place);
    assert_eq!((jobs.len(), said.as_str()), (1, ""), "once it is found, it is a job as any other");
}

#[test]
fn the_same_submit_after_a_kill_continues_with_the_job_that_is_there() {
    let place = place();
    kill_at(&place, "behind submit");
    let again = place.run("submit --wait job.toml").ok();
    assert!(again.err.contains("was interrupted") && again.err.contains("--again"), "{}", again.err);
    let (jobs, said) = list(&place);
    assert_eq!((jobs.len(), runs(&place), said.as_str()), (1, 1, ""));
    assert_eq!(jobs[0]["handle"].as_str().unwrap(), again.out.trim());
    // The job is known now, so that the same command is a new submission.
    submit_again(&place);

    // Another job of the same name is another job, and the user may want the same one twice.
    for (change, words) in [(Some("env = { A = \"1\" }\n"), ""), (None, " --again")] {
        let place = super::killed::place();
        kill_at(&place, "behind submit");
        if let Some(change) = change {
            place.write("job.toml", fs::read_to_string(place.path("job.toml")).unwrap() + change);
        }
        wait_for("the first run", || runs(&place) == 1);
        wait_for("its end", || list_without_note(&place).iter().all(|job| job["phase"] == "succeeded"));
        place.run(&format!("submit --wait{words} job.toml")).ok();
        assert_eq!(runs(&place), 2, "{change:?}");
    }
}

/// The jobs by another journal, so that the submission that was cut off stays unresolved in this one.
fn list_without_note(place: &Place) -> Vec<Value> {
    let kept = place.path("kept");
    let journal = place.state().join("journal");
    fs::rename(&journal, &kept).unwrap();
    let jobs = list(place).0;
    let _ = fs::remove_dir_all(&journal);
    fs::rename(&kept, &journal).unwrap();
    jobs
}

#[test]
fn killed_before_the_handle_was_printed_the_job_is_listed() {
    let place = place();
    // A full pipe: a process that writes to it blocks.
    let (reader, writer) = std::io::pipe().unwrap();
    let mut child = full(&writer, place.command(["submit", "job.toml"]));
    wait_for("the journal", || records(&place).iter().any(|record| record["state"] == "submitted"));
    child.kill().unwrap();
    child.wait().unwrap();
    drop((reader, writer));
    let (jobs, said) = list(&place);
    assert_eq!((jobs.len(), said.as_str()), (1, ""));
    place.run(&format!("wait {}", jobs[0]["handle"].as_str().unwrap())).ok();
    assert_eq!(runs(&place), 1);
}

#[test]
fn killed_before_the_handle_was_printed_the_same_submit_names_the_job() {
    for with_list in [false, true] {
        let place = place();
        let (reader, writer) = std::io::pipe().unwrap();
        let mut child = full(&writer, place.command(["submit", "job.toml"]));
        wait_for("the journal", || records(&place).iter().any(|record| record["state"] == "submitted"));
        child.kill().unwrap();
        child.wait().unwrap();
        drop((reader, writer));
        let handle = records(&place)[0]["handle"].as_str().unwrap().to_owned();
        if with_list {
            list(&place);
        }
        let again = place.run("submit --wait job.toml").ok();
        assert_eq!((again.out.trim(), runs(&place)), (handle.as_str(), 1), "{}", again.err);
        assert!(again.err.contains("was interrupted") && again.err.contains("--again"), "{}", again.err);
        // The handle was printed, so that the same command is a new submission.
        submit_again(&place);
    }
}

/// A scheduled command that was killed once runs the job again the next time.
#[test]
fn the_same_submit_long_after_the_job_ended_names_it_once_and_runs_the_job() {
    for (end, outcome) in [("exit 0", "has succeeded"), ("exit 3", "has failed")] {
        let place = place();
        let job = fs::read_to_string(place.path("job.toml")).unwrap();
        place.write("job.toml", job.replace("\"]", &format!("; {end}\"]")));
        let (reader, writer) = std::io::pipe().unwrap();
        let mut child = full(&writer, place.command(["submit", "job.toml"]));
        wait_for("the journal", || records(&place).iter().any(|record| record["state"] == "submitted"));
        child.kill().unwrap();
        child.wait().unwrap();
        drop((reader, writer));
        let mut record = records(&place).remove(0);
        let handle = record["handle"].as_str().unwrap().to_owned();
        place.run(&format!("wait {handle}"));
        // As if it had been submitted the day before.
        record["created"] =
            Value::from((jiff::Timestamp::now() - jiff::SignedDuration::from_hours(24)).to_string());
        let file = format!("journal/{}.json", record["submission"].as_str().unwrap());
        fs::write(place.state().join(file), record.to_string()).unwrap();
        for told in [true, false] {
            let before = runs(&place);
            let again = place.run("submit --wait job.toml");
            assert_eq!(runs(&place), before + 1, "{}", again.err);
            assert_ne!(again.out.trim(), handle);
            assert_eq!(again.err.contains(&handle), told, "{}", again.err);
            let said = format!("that job {outcome}; submitting another one");
            assert_eq!(again.err.contains(&said), told, "{}", again.err);
        }
    }
}

/// Without file descriptors the supervisor cannot be started, or ends at once.
#[test]
fn without_file_descriptors_a_submit_fails_and_the_next_one_runs_the_job() {
    for limit in 8..24 {
        for between in [None, Some("list")] {
            let place = place();
            let like = place.command(["submit", "job.toml"]);
            let script = format!("ulimit -n {limit}; exec \"$0\" \"$@\"");
            let output = child::within("sh", ["-c", &script], &like).output().unwrap();
            if output.status.success() {
                continue;
            }
            if let Some(verb) = between {
                place.run(verb).ok();
            }
            let again = place.run("submit --wait job.toml").ok();
            assert_eq!(runs(&place), 1, "{limit} {between:?}: {}", again.err);
        }
    }
}

#[test]
fn killed_before_the_supervisor_began_the_next_submit_runs_the_job() {
    if !strace() {
        weftrun_testkit::skipped("strace is not installed, or may not trace");
        return;
    }
    for between in [None, Some("list"), Some("list -a")] {
        let place = place();
        if !kill_at_call(&place, "clone", 1) {
            weftrun_testkit::skipped("this system starts processes by another system call than clone");
            return;
        }
        assert_eq!(runs(&place), 0);
        if let Some(verb) = between {
            let said = place.run(verb).ok().err;
            assert!(said.contains("never reached local") && said.contains("submit it again"), "{said}");
        }
        submit_again(&place);
        submit_again(&place);
    }
}

/// Starts a command whose stdout can take no more.
fn full(writer: &std::io::PipeWriter, mut command: Command) -> Child {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    let flags = fcntl_getfl(writer).unwrap();
    fcntl_setfl(writer, flags | OFlags::NONBLOCK).unwrap();
    while rustix::io::write(writer, &[0; 4096]).is_ok() {}
    while rustix::io::write(writer, &[0; 1]).is_ok() {}
    fcntl_setfl(writer, flags).unwrap();
    command.stdout(writer.try_clone().unwrap()).stderr(Stdio::null()).spawn().unwrap()
}

/// The system calls that change a file or make a process.
const CHANGES: [&str; 8] =
    ["mkdir", "rename", "renameat2", "fsync", "fdatasync", "unlink", "clone3", "execve"];

fn strace() -> bool {
    let works = child::command("strace").args(["-qq", "-o", "/dev/null", "true"]).status();
    works.is_ok_and(|status| status.success())
}

/// Runs a submit that is killed when it, or a process of its own, makes a system call for the n-th time. False if it was
/// not made so often.
fn kill_at_call(place: &Place, call: &str, nth: usize) -> bool {
    let like = place.command(["submit", "job.toml"]);
    let log = place.path("strace");
    let (trace, inject) = (format!("trace={call}"), format!("inject={call}:signal=KILL:when={nth}"));
    let before = ["-f", "-qq", "-e", &trace, "-e", &inject, "-o", log.to_str().unwrap()];
    drop(child::within("strace", before, &like).output().unwrap());
    fs::read_to_string(log).unwrap_or_default().contains("killed by SIGKILL")
}

#[test]
fn killed_at_any_change_of_a_file_list_explains_what_is_left() {
    if !strace() {
        weftrun_testkit::skipped("strace is not installed, or may not trace");
        return;
    }
    let mut kills = 0;
    for call in CHANGES {
        for nth in 1..=12 {
            let place = place();
            if !kill_at_call(&place, call, nth) {
                break;
            }
            kills += 1;
            explained(&place, &format!("{call} {nth}"));
        }
    }
    assert!(kills > 10, "only {kills} kills");
}

#[track_caller]
fn explained(place: &Place, at: &str) {
    let (jobs, said) = list(place);
    let handles: Vec<&Value> = jobs.iter().map(|job| &job["handle"]).collect();
    for record in records(place) {
        let told = match record["state"].as_str() {
            Some("submitted") => handles.contains(&&record["handle"]),
            Some("intended") => said.contains("never reached"),
            _ => said.is_empty(),
        };
        assert!(told, "{at}: {record}\n{jobs:?}\n{said}");
    }
    assert!(jobs.len() <= 1, "{at}: {jobs:?}");
    for job in &jobs {
        let (phase, reason) = (job["phase"].as_str().unwrap(), job["reason"].as_str().unwrap());
        assert!(["submitted", "running", "succeeded"].contains(&phase) || !reason.is_empty(), "{at}: {job}");
    }
    assert!(runs(place) <= 1, "{at}: it ran {} times", runs(place));
    // In any state, the same job can be submitted again, or an error names the obstacle.
    let again = place.run("submit --wait job.toml");
    assert!(again.code == 0 || again.err.contains("still runs"), "{at}: {again:?}");
    assert!(leftovers(&place.state()).is_empty(), "{at}: {:?}", leftovers(&place.state()));
}

/// Folders of claims that were cut off and not swept away.
fn leftovers(state: &Path) -> Vec<PathBuf> {
    let jobs = fs::read_dir(state.join("targets/local/jobs")).into_iter().flatten();
    let paths = jobs.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(".new-")).collect()
}

#[test]
fn a_journal_that_cannot_be_read_hides_no_job() {
    let place = place();
    let handle = place.run("submit --wait job.toml").ok().out.trim().to_owned();
    fs::write(place.state().join("journal/00000000000000000000000000000000.json"), b"{\"half\":").unwrap();
    let Done { out, .. } = place.run("list -a").ok();
    assert!(out.contains(&handle), "{out}");
}
