//! Claims a job by renaming its folder, and starts its supervisor.
//!
//! The folder that appears by the rename is both the claim and the job, and a supervisor holds the folder's lock, so that
//! each step may be taken again: nothing is there twice.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use process_wrap::std::{CommandWrap, ProcessSession};
use weftrun_core::backend::Rendered;
use weftrun_core::job::JobHandle;
use weftrun_core::spec::Code;
use weftrun_core::{Error, ErrorKind, Result};

use super::document::ProcessList;
use super::folder::{self, Folder};
use super::record::Origin;
use super::status::Snapshot;
use super::store::{Job, Store};
use super::{error, process, supervisor};
use crate::refusals;
use crate::submit_once::{Created, Policy, SearchResult, Submission, prepared, submit_once};

/// How long a live supervisor may take to write its first record. It takes milliseconds, except on an
/// overloaded machine.
const START: Duration = Duration::from_secs(60);

/// A supervisor that does not start is started a second time.
const POLICY: Policy = Policy {
    absence: Duration::ZERO,
    requests: 1,
    sends: 2,
    blind: true,
    patience: START,
    pause: Duration::from_millis(100),
};

pub(super) async fn submit(store: &Store, rendered: &Rendered) -> Result<JobHandle> {
    let list = prepared::<Arc<ProcessList>>(rendered)?;
    submit_once(&Claiming { store, list }, POLICY).await
}

struct Claiming<'a> {
    store: &'a Store,
    list: &'a Arc<ProcessList>,
}

#[async_trait]
impl Submission for Claiming<'_> {
    type Made = JobHandle;

    async fn create(&self) -> Result<Created<JobHandle>> {
        let (store, list) = (self.store.clone(), Arc::clone(self.list));
        match error::blocking(move || store.claim_and_start(&list)).await {
            Ok(handle) => Ok(Created::Made(handle)),
            Err(error) if error.is_retryable() => Ok(Created::Unsent(error)),
            Err(error) => Err(error),
        }
    }

    /// A job without a record has no supervisor yet.
    async fn search(&self) -> Result<SearchResult<JobHandle>> {
        let job = self.store.job(self.list.submission.as_str(), &self.list.name);
        Ok(if job.folder.of(folder::RECORD).exists() {
            SearchResult::Ours(job.handle)
        } else {
            SearchResult::Absent
        })
    }
}

impl Store {
    fn claim_and_start(&self, list: &ProcessList) -> Result<JobHandle> {
        let job = self.job(list.submission.as_str(), &list.name);
        if !job.folder.path().is_dir() {
            self.claim(list, &job)?;
        }
        if !job.folder.of(folder::RECORD).exists() {
            let given_up = job.folder.of(folder::GIVEN_UP);
            let _ = fs::remove_file(&given_up);
            self.start(&job).inspect_err(|_| {
                // Its name is free again, and the same submission may still start it.
                let _ = folder::write_new(&given_up, b"");
            })?;
        }
        Ok(job.handle)
    }

    fn claim(&self, list: &ProcessList, job: &Job) -> Result<()> {
        folder::make(&self.root)?;
        folder::make(&self.jobs())?;
        folder::has_room(&self.jobs())?;
        let lock = self.root.join("lock");
        let lock = folder::private_file()
            .create(true)
            .truncate(false)
            .open(&lock)
            .and_then(|file| file.lock().map(|()| file))
            .map_err(|e| error::file("lock the target's jobs", &lock, e))?;
        self.tidy()?;
        self.refuse_taken_name(list)?;
        self.sweep_cut_off_claims();
        let new = tempfile::Builder::new()
            .prefix(".new-")
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir_in(self.jobs());
        let new = new.map_err(|e| error::file("make the job's folder", &self.jobs(), e))?;
        let draft = Folder::new(new.path());
        let list = &self.resolved(list)?;
        let folder = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        let origin = Origin::of(list, folder, !self.detaches());
        folder::write_new(&draft.of(folder::JOB), list.to_toml()?.as_bytes())?;
        let origin = serde_json::to_vec(&origin)
            .map_err(|e| Error::new(ErrorKind::Unexpected, "the origin cannot be written").with_source(e))?;
        folder::write_new(&draft.of(folder::ORIGIN), &origin)?;
        if let Some(Code::Folder { content: Some(content), .. }) = &list.code {
            folder::write_new(&draft.of(folder::ARCHIVE), content.archive.bytes())?;
        }
        let claimed = fs::rename(new.path(), job.folder.path());
        drop(lock);
        match claimed {
            Ok(()) => {
                let _ = new.keep();
                Ok(())
            }
            // Another submit of the same id was faster: its claim is also valid for this one.
            Err(_) if job.folder.of(folder::ORIGIN).exists() => Ok(()),
            Err(e) => Err(error::file("claim the job's folder", job.folder.path(), e)),
        }
    }

    /// Removes abandoned drafts. A draft exists only while the lock is held, so one that is found under the
    /// lock was left by a crash.
    fn sweep_cut_off_claims(&self) {
        for entry in fs::read_dir(self.jobs()).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(".new-") {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }

    pub(super) fn refuse_taken_name(&self, list: &ProcessList) -> Result<()> {
        for job in self.all()? {
            if job.handle.name() != list.name || job.submission == list.submission.as_str() {
                continue;
            }
            let now = Snapshot::read(&job.folder, &job.submission)?;
            if let Some(now) = now.filter(|now| !now.phase.is_terminal() && !now.is_void) {
                return Err(refusals::taken_name(&job.handle, &now.origin.labels));
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
            // In this order: an ended supervisor may have written its record just before.
            let ended = ended.load(Ordering::Acquire);
            let over = ended || began.elapsed() > START;
            if job.folder.of(folder::RECORD).exists() {
                return Ok(());
            }
            if over {
                // One that is only slow may still begin.
                let kind = if ended { ErrorKind::Refused } else { ErrorKind::Io };
                let said =
                    crate::files::read_text(&job.folder.of(folder::SUPERVISOR_LOG), crate::files::MAX_STATE)
                        .unwrap_or_default();
                return Err(Error::new(kind, "the job's supervisor does not start; nothing of the job runs")
                    .with("handle", &job.handle)
                    .with("it said", said.lines().last().unwrap_or("nothing"))
                    .retryable());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Starts `weftrun supervise DIR` in a new session, so that neither a closed terminal nor the end of this
    /// program affects it. The result becomes true when it has ended.
    fn start_detached(&self, binary: &Path, job: &Job) -> Result<Arc<AtomicBool>> {
        let path = job.folder.of(folder::SUPERVISOR_LOG);
        let log = OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
        let log = log.map_err(|e| error::file("open the supervisor's log", &path, e))?;
        let mut command = Command::new(binary);
        command.arg("supervise").arg(job.folder.path()).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        if !self.environment.is_empty() {
            command.env_clear().envs(&self.environment);
        }
        // A job that submits another job must not own it.
        command.env_remove(process::MARK);
        let mut command = CommandWrap::from(command);
        let child = command.wrap(ProcessSession).spawn();
        let mut child = child.map_err(|e| {
            error::of_kind(ErrorKind::Refused, "start the supervisor", binary, e)
                .hint("nothing of the job runs; submit it again")
        })?;
        let ended = Arc::new(AtomicBool::new(false));
        let over = ended.clone();
        let reap = move || {
            let _ = child.wait();
            over.store(true, Ordering::Release);
        };
        // Without a thread, an end of the supervisor is noticed only by the time limit.
        let thread = std::thread::Builder::new().name("weftrun-reap".to_owned()).stack_size(64 << 10);
        if let Err(error) = thread.spawn(reap) {
            tracing::debug!(%error, "the supervisor is not waited for");
        }
        Ok(ended)
    }

    fn start_attached(&self, job: &Job) -> Result<Arc<AtomicBool>> {
        let mut environment = self.environment.clone();
        if environment.is_empty() {
            environment = std::env::vars_os()
                .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
                .collect();
        }
        environment.remove(process::MARK);
        let (folder, log) = (job.folder.clone(), job.folder.of(folder::SUPERVISOR_LOG));
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
}
