//! The folders of jobs: made whole or not at all, and read for what they say.
//!
//! Each question is a few small files, so that plain blocking reads do.

use std::fs;
use std::io::ErrorKind as IoKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use jiff::Timestamp;
use weftrun_core::backend::Rendered;
use weftrun_core::job::{JobFilter, JobHandle, JobPhase, JobSummary, ReplicaStatus, SubmissionId};
use weftrun_core::{Error, ErrorKind, Finding, Result};

use crate::NAME;

/// The folder of a target.
#[derive(Clone, Debug)]
pub(crate) struct Spool {
    target: String,
    root: PathBuf,
}

/// One job's folder.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// Its handle.
    pub handle: JobHandle,
    /// Where it lies.
    pub path: PathBuf,
    submission: SubmissionId,
}

impl Spool {
    pub fn new(target: String, root: PathBuf) -> Self {
        Self { target, root }
    }

    /// Says before a submit what would stop it.
    pub fn check(&self, _rendered: &Rendered) -> Result<Vec<Finding>> {
        let mut place = self.root.as_path();
        while !place.exists() {
            place = place.parent().unwrap_or(Path::new("/"));
        }
        let read_only = fs::metadata(place).map_err(io("look at", place))?.permissions().readonly();
        let finding = || Finding::error("SPOOL-READ-ONLY", format!("{} may not be written", place.display()));
        Ok(if read_only { vec![finding()] } else { Vec::new() })
    }

    /// Makes the job's folder beside its place, moves it there, and starts its script. The move is the claim: a second
    /// submit of the same id finds the folder, and its script runs once however often it is started.
    pub fn submit(&self, rendered: &Rendered) -> Result<JobHandle> {
        let path = self.root.join(rendered.submission.as_str());
        if !path.is_dir() {
            let new = self.root.join(format!(".{}.{}", rendered.submission, std::process::id()));
            fs::create_dir_all(&new).map_err(io("make", &new))?;
            let script = rendered.documents.first().map_or("", |document| document.text.as_str());
            fs::write(new.join("job.sh"), script).map_err(io("write", &new))?;
            fs::write(new.join("name"), &rendered.name).map_err(io("write", &new))?;
            if let Err(error) = fs::rename(&new, &path) {
                let _ = fs::remove_dir_all(&new);
                if !path.is_dir() {
                    return Err(io("make", &path)(error));
                }
            }
        }
        let start = Command::new("setsid")
            .args(["--fork", "sh"])
            .arg(path.join("job.sh"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        match start {
            Ok(status) if status.success() => Ok(self.job(rendered.submission.clone())?.handle),
            Ok(status) => Err(Error::new(ErrorKind::Io, format!("the job's script did not start: {status}"))),
            Err(error) => Err(io("start", Path::new("setsid"))(error)),
        }
    }

    fn job(&self, submission: SubmissionId) -> Result<Job> {
        let path = self.root.join(submission.as_str());
        let name = fs::read_to_string(path.join("name")).map_err(io("read", &path))?;
        let handle = JobHandle::new(NAME, &self.target, [name]).with_uid(submission.as_str());
        Ok(Job { handle, path, submission })
    }

    /// Finds a job by the id of its submission.
    pub fn find(&self, id: &SubmissionId) -> Result<Option<Job>> {
        match self.job(id.clone()) {
            Ok(job) => Ok(Some(job)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Finds a job by its handle: by id where it carries one, else the newest of its name.
    pub fn get(&self, handle: &JobHandle) -> Result<Job> {
        let of_ours = handle.backend() == NAME && handle.target() == self.target;
        let missing = || {
            Error::new(ErrorKind::NotFound, format!("there is no job {handle}"))
                .hint(format!("`weftrun list -a -b {}` shows those there are", self.target))
        };
        let id = handle.uid().map(|uid| SubmissionId::parse(uid).ok_or_else(missing)).transpose()?;
        let found = match id {
            _ if !of_ours => None,
            Some(id) => self.find(&id)?.filter(|job| job.handle == *handle),
            None => self.jobs()?.into_iter().find(|job| job.handle.name() == handle.name()),
        };
        found.ok_or_else(missing)
    }

    /// All jobs, newest first.
    fn jobs(&self) -> Result<Vec<Job>> {
        let entries = match fs::read_dir(&self.root) {
            Ok(entries) => entries,
            Err(error) if error.kind() == IoKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(io("list", &self.root)(error)),
        };
        let ids = entries.filter_map(|entry| SubmissionId::parse(entry.ok()?.file_name().to_str()?));
        // A folder that goes while we look was deleted: it is no error.
        let mut jobs: Vec<_> = ids.filter_map(|id| self.job(id).ok()).collect();
        jobs.sort_by_key(|job| std::cmp::Reverse(job.created()));
        Ok(jobs)
    }

    /// Lists jobs.
    pub fn list(&self, filter: &JobFilter) -> Result<Vec<JobSummary>> {
        let asked = |job: &Job| filter.handles.is_empty() || filter.handles.contains(&job.handle);
        let summaries = self.jobs()?.into_iter().filter(asked).filter_map(|job| job.summary().ok());
        let wanted =
            summaries.filter(|job| filter.ended || !filter.handles.is_empty() || !job.phase.is_terminal());
        Ok(wanted.take(filter.limit.unwrap_or(usize::MAX)).collect())
    }
}

impl Job {
    /// What a file of the folder says; none while it is not there.
    fn read(&self, name: &str) -> Result<Option<String>> {
        match fs::read_to_string(self.path.join(name)) {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(error) if error.kind() == IoKind::NotFound && self.path.is_dir() => Ok(None),
            Err(error) => Err(io("read", &self.path.join(name))(error)),
        }
    }

    fn code(&self, name: &str) -> Result<Option<i32>> {
        Ok(self.read(name)?.and_then(|text| text.parse().ok()))
    }

    fn created(&self) -> Option<Timestamp> {
        Timestamp::try_from(fs::metadata(self.path.join("job.sh")).ok()?.modified().ok()?).ok()
    }

    /// Whether the script runs: a number is given to another process one day, so its command line must name this folder.
    fn runs(&self) -> Result<bool> {
        let Some(pid) = self.read("runner")? else { return Ok(false) };
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        Ok(String::from_utf8_lossy(&line).contains(self.submission.as_str()))
    }

    /// Its nodes.
    pub fn nodes(&self) -> Result<u32> {
        let script = self.read("job.sh")?.unwrap_or_default();
        let count = script.lines().find_map(|line| line.strip_prefix("nodes=")?.parse().ok());
        Ok(count.unwrap_or(0))
    }

    /// Phase and reason.
    fn phase(&self) -> Result<(JobPhase, String, Option<i32>)> {
        let cancelled = self.path.join("cancelled").exists();
        // Whether it runs is asked first: a script that ends between the two questions has then written its end.
        let runs = self.runs()?;
        let started = self.read("runner")?.is_some();
        Ok(match self.code("ended")? {
            Some(_) if cancelled => (JobPhase::Cancelled, "cancelled".to_owned(), None),
            Some(0) => (JobPhase::Succeeded, String::new(), Some(0)),
            Some(code) => (JobPhase::Failed, format!("a node exited with {code}"), Some(code)),
            None if runs && cancelled => (JobPhase::Stopping, "cancelled".to_owned(), None),
            None if runs => (JobPhase::Running, String::new(), None),
            None if !started => (JobPhase::Submitted, String::new(), None),
            None if cancelled => (JobPhase::Cancelled, "cancelled".to_owned(), None),
            None => (
                JobPhase::Failed,
                "its script is gone without a word: killed, or the host was restarted".to_owned(),
                None,
            ),
        })
    }

    /// Its line in a list.
    pub fn summary(&self) -> Result<JobSummary> {
        let (phase, reason, code) = self.phase()?;
        let nodes = self.nodes()?;
        let mut summary = JobSummary::new(self.handle.clone(), phase);
        summary.reason = reason;
        summary.kind = "folder".to_owned();
        summary.ready = (if phase == JobPhase::Running { nodes } else { 0 }, nodes);
        summary.created = self.created();
        summary.exit_code = code;
        summary.submission = Some(self.submission.clone());
        Ok(summary)
    }

    /// Its nodes, each with its phase.
    pub fn replicas(&self) -> Result<Vec<ReplicaStatus>> {
        let (phase, ..) = self.phase()?;
        (0..self.nodes()?)
            .map(|node| {
                let code = self.code(&format!("node{node}.code"))?;
                let phase = match code {
                    Some(0) => JobPhase::Succeeded,
                    Some(_) => JobPhase::Failed,
                    None => phase,
                };
                let mut replica = ReplicaStatus::new(format!("node{node}"), "worker", node, phase);
                replica.exit_code = code;
                Ok(replica)
            })
            .collect()
    }

    /// Asks the script to end its nodes; a job that has ended stays as it is.
    pub fn cancel(&self) -> Result<()> {
        if self.phase()?.0.is_terminal() {
            return Ok(());
        }
        let path = self.path.join("cancelled");
        fs::write(&path, "").map_err(io("write", &path))
    }

    /// Removes the folder.
    pub fn remove(&self) -> Result<()> {
        fs::remove_dir_all(&self.path).map_err(io("remove", &self.path))
    }
}

/// The error of a file operation: what was tried, on which path.
pub(crate) fn io(what: &'static str, path: &Path) -> impl Fn(std::io::Error) -> Error {
    let path = path.display().to_string();
    move |error| {
        let kind = if error.kind() == IoKind::NotFound { ErrorKind::NotFound } else { ErrorKind::Io };
        Error::new(kind, format!("could not {what} {path}")).with_source(error)
    }
}
