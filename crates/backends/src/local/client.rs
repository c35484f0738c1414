//! The job folders of a target: claimed, listed, acted on.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use process_wrap::std::{CommandWrap, ProcessSession};
use weftrun_core::backend::TargetConfig;
use weftrun_core::job::{Action, JobDetail, JobFilter, JobHandle, JobPhase, JobSummary, SubmissionId};
use weftrun_core::{Error, ErrorKind, Finding, Result};

use super::config::Config;
use super::document::ProcessList;
use super::folder::{self, Folder};
use super::record::{Origin, Record};
use super::status::Snapshot;
use super::supervisor::{self, Request};
use super::watch::{Ended, Look};
use super::{NAME, error, process};

/// How long a supervisor that lives may take to write its first record. It takes milliseconds, but not on a machine
/// that is busy with something else.
const START: Duration = Duration::from_secs(60);

/// The job folders of a target, and how supervisors are started.
#[derive(Clone)]
pub(super) struct Store {
    target: String,
    root: PathBuf,
    binary: Option<PathBuf>,
    environment: BTreeMap<String, String>,
    grace: Duration,
}

/// The environment holds secrets.
impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Store");
        shown.field("target", &self.target).field("root", &self.root).finish_non_exhaustive()
    }
}

/// A job of this target.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// Its handle.
    pub handle: JobHandle,
    /// Its submission.
    pub submission: String,
    /// Its folder.
    pub folder: Folder,
}

impl Store {
    /// The store of a target; nothing is made before the first submit.
    pub fn new(target: &TargetConfig, config: &Config) -> Self {
        Self {
            target: target.name.clone(),
            root: target.state_dir.clone(),
            binary: target.binary.clone(),
            environment: target.env.clone(),
            grace: config.grace,
        }
    }

    /// Whether jobs go on when this program ends.
    pub fn detaches(&self) -> bool {
        self.binary.is_some()
    }

    fn jobs(&self) -> PathBuf {
        self.root.join("jobs")
    }

    fn job(&self, submission: &str, name: &str) -> Job {
        let uid: String = submission.chars().take(8).collect();
        Job {
            handle: JobHandle::new(NAME, &self.target, [name]).with_uid(uid),
            submission: submission.to_owned(),
            folder: Folder::new(self.jobs().join(submission)),
        }
    }

    // ---- submit ----------------------------------------------------------------------------------------------

    /// What would stop the job, without taking it.
    pub fn check(&self, list: &ProcessList) -> Result<Vec<Finding>> {
        let mut findings: Vec<_> =
            list.notes.iter().map(|note| Finding::info("LOCAL-NOTE", note.clone())).collect();
        for name in &list.secrets {
            if !self.environment.contains_key(name) {
                let text =
                    format!("this machine has no secret store, and `{name}` is not in your environment");
                findings.push(
                    Finding::error("LOCAL-SECRET", text).fix(format!("export {name} before you submit")),
                );
            }
        }
        if !self.detaches() {
            let text = "the job is a part of this program (capability detach = false): it is left without a \
                        supervisor when the program ends";
            findings.push(Finding::warning("LOCAL-ATTACHED", text));
        }
        if let Err(taken) = self.refuse_taken_name(list) {
            let finding = Finding::error("LOCAL-NAME", taken.to_string());
            findings.push(finding.fix(taken.hints().join("; ")));
        }
        Ok(findings)
    }

    /// Takes a job and starts it: once, whatever is lost in between, since the folder that appears by a rename is
    /// both the claim and the job.
    pub fn submit(&self, list: &ProcessList, text: &str) -> Result<JobHandle> {
        let job = self.job(list.submission.as_str(), &list.name);
        if !job.folder.path().is_dir() {
            self.claim(list, text, &job)?;
        }
        if !job.folder.record().exists() {
            self.start(&job)?;
        }
        Ok(job.handle)
    }

    fn claim(&self, list: &ProcessList, text: &str, job: &Job) -> Result<()> {
        folder::make(&self.jobs())?;
        folder::has_room(&self.jobs())?;
        let lock = self.root.join("lock");
        let lock = folder::private_file()
            .create(true)
            .truncate(false)
            .open(&lock)
            .and_then(|file| file.lock().map(|()| file))
            .map_err(|e| error::file("lock the target's jobs", &lock, e))?;
        self.refuse_taken_name(list)?;
        self.sweep_cut_off_claims();
        let new = tempfile::Builder::new()
            .prefix(".new-")
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir_in(self.jobs());
        let new = new.map_err(|e| error::file("make the job's folder", &self.jobs(), e))?;
        let draft = Folder::new(new.path());
        let folder = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        let origin = Origin::of(list, folder, !self.detaches());
        folder::write_new(&draft.job(), text.as_bytes())?;
        let origin = serde_json::to_vec(&origin)
            .map_err(|e| Error::new(ErrorKind::Unexpected, "the origin cannot be written").source(e))?;
        folder::write_new(&draft.origin(), &origin)?;
        let claimed = fs::rename(new.path(), job.folder.path());
        drop(lock);
        match claimed {
            Ok(()) => {
                let _ = new.keep();
                Ok(())
            }
            // Another submit of the same id was faster: its claim is ours too.
            Err(_) if job.folder.origin().exists() => Ok(()),
            Err(e) => Err(error::file("claim the job's folder", job.folder.path(), e)),
        }
    }

    /// A draft is there only while the lock is held, so one that is found under the lock was left by a crash.
    fn sweep_cut_off_claims(&self) {
        for entry in fs::read_dir(self.jobs()).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(".new-") {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }

    fn refuse_taken_name(&self, list: &ProcessList) -> Result<()> {
        for job in self.all()? {
            if job.handle.name() != list.name || job.submission == list.submission.as_str() {
                continue;
            }
            if Snapshot::read(&job.folder, &job.submission)?.is_some_and(|now| !now.phase.is_terminal()) {
                return Err(Error::new(
                    ErrorKind::AlreadyExists,
                    format!("a job named `{}` still runs", list.name),
                )
                .with("handle", &job.handle)
                .hint("`--name-suffix` makes a new name")
                .hint(format!("`weftrun cancel {}` ends the other", job.handle)));
            }
        }
        Ok(())
    }

    fn start(&self, job: &Job) -> Result<()> {
        let ended = match &self.binary {
            Some(binary) => self.start_detached(binary, job)?,
            None => self.start_attached(job)?,
        };
        let began = Instant::now();
        loop {
            // In this order: what ended may have written its record just before.
            let over = ended.load(Ordering::Acquire) || began.elapsed() > START;
            if job.folder.record().exists() {
                return Ok(());
            }
            if over {
                let said = crate::files::read_text(&job.folder.supervisor_log(), crate::files::MAX_STATE)
                    .unwrap_or_default();
                return Err(Error::new(
                    ErrorKind::Io,
                    "the job was taken, but its supervisor does not start",
                )
                .with("handle", &job.handle)
                .with("it said", said.lines().last().unwrap_or("nothing"))
                .retryable());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Starts `weftrun supervise DIR` in a session of its own, so that neither a closed terminal nor the end of this
    /// program reaches it. The result becomes true when it has ended.
    fn start_detached(&self, binary: &Path, job: &Job) -> Result<Arc<AtomicBool>> {
        let path = job.folder.supervisor_log();
        let log = OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
        let log = log.map_err(|e| error::file("open the supervisor's log", &path, e))?;
        let mut command = Command::new(binary);
        command.arg("supervise").arg(job.folder.path()).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        if !self.environment.is_empty() {
            command.env_clear().envs(&self.environment);
        }
        // A job that submits a job must not own it.
        command.env_remove(process::MARK);
        let mut command = CommandWrap::from(command);
        let child = command.wrap(ProcessSession).spawn();
        let mut child = child.map_err(|e| {
            error::file("start the supervisor", binary, e)
                .hint("the job was taken and nothing of it runs; submit it again, or `weftrun delete` it")
        })?;
        let ended = Arc::new(AtomicBool::new(false));
        let over = ended.clone();
        let reap = move || {
            let _ = child.wait();
            over.store(true, Ordering::Release);
        };
        let thread =
            std::thread::Builder::new().name("weftrun-reap".to_owned()).stack_size(64 << 10).spawn(reap);
        thread.map(|_| ended).map_err(|e| error::file("start a thread", binary, e))
    }

    fn start_attached(&self, job: &Job) -> Result<Arc<AtomicBool>> {
        let mut environment = self.environment.clone();
        if environment.is_empty() {
            environment = std::env::vars_os()
                .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
                .collect();
        }
        environment.remove(process::MARK);
        let (folder, log) = (job.folder.clone(), job.folder.supervisor_log());
        let ended = Arc::new(AtomicBool::new(false));
        let over = ended.clone();
        let run = move || {
            if let Err(error) = supervisor::run(&folder, Some(environment)) {
                let _ = folder::write_new(&log, error.to_string().as_bytes());
            }
            over.store(true, Ordering::Release);
        };
        let thread = std::thread::Builder::new().name("weftrun-job".to_owned()).spawn(run);
        thread.map(|_| ended).map_err(|e| error::file("start a thread", job.folder.path(), e))
    }

    // ---- look ------------------------------------------------------------------------------------------------

    /// The job of a submission.
    pub fn find(&self, id: &SubmissionId) -> Result<Option<JobHandle>> {
        let job = self.job(id.as_str(), "");
        let origin = folder::read::<Origin>(&job.folder.origin())?;
        Ok(origin.map(|origin| self.job(id.as_str(), &origin.name).handle))
    }

    /// All jobs, newest first. A folder whose origin cannot be read keeps its place under its submission's name.
    pub fn all(&self) -> Result<Vec<Job>> {
        let entries = match fs::read_dir(self.jobs()) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(error::file("read the target's jobs", &self.jobs(), e)),
        };
        let mut jobs = Vec::new();
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if SubmissionId::parse(&name).is_none() {
                continue;
            }
            let path = Folder::new(entry.path()).origin();
            let (created, title) = match folder::read::<Origin>(&path) {
                Ok(Some(origin)) => (origin.created, origin.name),
                _ => (jiff::Timestamp::UNIX_EPOCH, name.clone()),
            };
            jobs.push((created, self.job(&name, &title)));
        }
        jobs.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.submission.cmp(&b.1.submission)));
        Ok(jobs.into_iter().map(|(_, job)| job).collect())
    }

    /// The job of a handle: the newest of its name, or exactly the one of its uid.
    pub fn get(&self, handle: &JobHandle) -> Result<Job> {
        if handle.backend() != NAME || handle.target() != self.target {
            return Err(Error::new(
                ErrorKind::Usage,
                format!("{handle} is not a job of target `{}`", self.target),
            ));
        }
        let fits = |job: &Job| {
            job.handle.name() == handle.name()
                && handle.uid().is_none_or(|uid| job.submission.starts_with(uid))
        };
        self.all()?.into_iter().find(fits).ok_or_else(|| error::no_job(handle))
    }

    /// A job's list of processes.
    pub fn list_of(job: &Job) -> Result<ProcessList> {
        let path = job.folder.job();
        let text = crate::files::read_text(&path, crate::files::MAX_STATE).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => error::no_job(&job.handle),
            _ => error::file("read the process list", &path, e),
        })?;
        ProcessList::parse(&text)
    }

    /// What is there of a job now.
    pub fn snapshot(job: &Job) -> Result<Snapshot> {
        Snapshot::read(&job.folder, &job.submission)?.ok_or_else(|| error::no_job(&job.handle))
    }

    fn chosen(&self, filter: &JobFilter) -> Result<Vec<Job>> {
        if filter.handles.is_empty() {
            self.all()
        } else {
            filter.handles.iter().map(|h| self.get(h)).collect()
        }
    }

    /// Lists jobs. One that cannot be read is listed with the reason.
    pub fn list(&self, filter: &JobFilter) -> Result<Vec<JobSummary>> {
        let read = |job: Job| match Self::snapshot(&job) {
            Ok(snapshot) => snapshot.summary(job.handle, &job.submission),
            Err(error) => {
                let mut summary = JobSummary::new(job.handle, JobPhase::Unknown);
                summary.reason = error.to_string();
                summary
            }
        };
        let jobs = self.chosen(filter)?.into_iter().map(read);
        let wanted =
            jobs.filter(|job| filter.ended || !filter.handles.is_empty() || !job.phase.is_terminal());
        Ok(wanted.take(filter.limit.unwrap_or(usize::MAX)).collect())
    }

    /// One look of a watch. A job that is not there is an error only at the first; later it is gone.
    pub fn look(&self, filter: &JobFilter, first: bool, ended: &mut Ended) -> Result<Vec<Look>> {
        let jobs = if first || filter.handles.is_empty() {
            self.chosen(filter)?
        } else {
            filter.handles.iter().filter_map(|handle| self.get(handle).ok()).collect()
        };
        let mut looks = Vec::new();
        for job in jobs {
            let record = modified(&job.folder.record());
            if let Some(look) = ended.get(job.folder.path(), record) {
                if filter.ended || !filter.handles.is_empty() {
                    looks.push(look);
                }
                continue;
            }
            let (Ok(snapshot), Ok(list)) = (Self::snapshot(&job), Self::list_of(&job)) else { continue };
            if snapshot.phase.is_terminal() && !filter.ended && filter.handles.is_empty() {
                continue;
            }
            let look = Look {
                summary: snapshot.summary(job.handle, &job.submission),
                replicas: snapshot.replicas(&list),
                attempt: snapshot.attempt(),
            };
            if look.summary.phase.is_terminal() && look.summary.ended.is_some() && snapshot.orphans.is_empty()
            {
                ended.put(job.folder.path(), record, &look);
            }
            looks.push(look);
        }
        Ok(looks)
    }

    /// When a job was last added or removed.
    pub fn changed(&self) -> Option<SystemTime> {
        modified(&self.jobs())
    }

    /// Everything known of one job.
    pub fn describe(&self, handle: &JobHandle) -> Result<JobDetail> {
        let job = self.get(handle)?;
        Ok(Self::snapshot(&job)?.detail(&job.handle, &job.submission, &Self::list_of(&job)?, &job.folder))
    }

    // ---- act -------------------------------------------------------------------------------------------------

    /// Acts on a job.
    pub fn act(&self, handle: &JobHandle, action: Action) -> Result<()> {
        let job = self.get(handle)?;
        match action {
            Action::Cancel => self.cancel(&job),
            Action::Delete => self.delete(&job),
            Action::Suspend => self.request(&job, Request::Suspend),
            Action::Resume => self.request(&job, Request::Resume),
            Action::Signal(number) if process::by_number(number).is_none() => {
                Err(Error::new(ErrorKind::Usage, format!("there is no signal {number}")))
            }
            Action::Signal(number) => self.request(&job, Request::Signal(number)),
            Action::Hold | Action::Release => Err(Error::unsupported(NAME, "hold")),
            Action::Requeue => Err(Error::unsupported(NAME, "requeue")),
            _ => Err(Error::unsupported(NAME, "action")),
        }
    }

    fn cancel(&self, job: &Job) -> Result<()> {
        let now = Self::snapshot(job)?;
        if now.phase.is_terminal() && now.orphans.is_empty() {
            return Ok(());
        }
        self.request(job, Request::Cancel)
    }

    /// Passes a request to the supervisor, or does it in its place if it is gone.
    fn request(&self, job: &Job, request: Request) -> Result<()> {
        let now = Self::snapshot(job)?;
        if now.phase.is_terminal() {
            return Err(Error::new(ErrorKind::Refused, format!("the job has ended ({})", now.phase))
                .with("handle", &job.handle));
        }
        if let Some(record) = &now.record
            && supervisor::ask(&job.folder, request, &record.supervisor)?
        {
            return Ok(());
        }
        let now = Self::snapshot(job)?;
        if now.phase.is_terminal() && request == Request::Cancel {
            return Ok(());
        }
        let Some(_lock) = job.folder.try_lock()? else {
            return Err(Error::new(ErrorKind::Timeout, "the job's supervisor does not answer")
                .with("handle", &job.handle)
                .retryable());
        };
        match request {
            Request::Cancel => self.end_orphans(job, now.record),
            Request::Suspend => Self::signal_orphans(job, 19),
            Request::Resume => Self::signal_orphans(job, 18),
            Request::Signal(number) => Self::signal_orphans(job, number),
        }
    }

    #[allow(clippy::unnecessary_wraps, reason = "one arm of a match of results")]
    fn signal_orphans(job: &Job, number: i32) -> Result<()> {
        for pid in process::marked(&job.submission) {
            process::signal(pid, number);
        }
        Ok(())
    }

    /// Ends processes whose supervisor is gone; the lock is held, so the record is ours.
    fn end_orphans(&self, job: &Job, record: Option<Record>) -> Result<()> {
        let began = Instant::now();
        loop {
            let left = process::marked(&job.submission);
            if left.is_empty() {
                break;
            }
            let number = if began.elapsed() < self.grace { 15 } else { 9 };
            for pid in left {
                process::signal(pid, number);
                process::signal(pid, 18);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let mut record = record.unwrap_or_else(|| Record::starting(0));
        record.end(JobPhase::Cancelled, "cancelled after its supervisor was gone", None);
        folder::replace(&job.folder.record(), &record)
    }

    fn delete(&self, job: &Job) -> Result<()> {
        // A folder that cannot be read must still be removable.
        if Self::snapshot(job).is_ok() {
            self.cancel(job)?;
            let patience = self.grace + Duration::from_secs(10);
            let began = Instant::now();
            while Self::snapshot(job).is_ok_and(|now| !now.phase.is_terminal()) {
                if began.elapsed() > patience {
                    return Err(Error::new(ErrorKind::Timeout, "the job does not end; nothing was removed")
                        .with("handle", &job.handle)
                        .retryable());
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        // Out of sight at once, whatever interrupts the removal.
        let trash = self.jobs().join(format!(".new-deleted-{}", job.submission));
        let moved = fs::rename(job.folder.path(), &trash).and_then(|()| fs::remove_dir_all(&trash));
        moved.map_err(|e| error::file("remove the job's folder", job.folder.path(), e))
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).ok()?.modified().ok()
}
