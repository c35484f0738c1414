//! One attempt: all processes from their start to the end of the last one.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::process::Command;
use weftrun_core::fabric::PROFILER_PATH;
use weftrun_core::job::JobPhase;
use weftrun_core::text::counted;
use weftrun_core::{Result, Severity};

use super::requests::Requests;
use super::{Request, Stop, Supervisor, TICK};
use crate::local::document::{MASTER_PORT, Process};
use crate::local::process;
use crate::local::{error, folder};
use crate::process::Identity;

/// How an attempt ended.
pub(super) enum Outcome {
    /// Every process ended with 0.
    Ended,
    /// A process failed first.
    Failed { reason: String, code: i32 },
    /// A request or a limit stopped it.
    Stopped(Stop),
}

type Waiting = FuturesUnordered<BoxFuture<'static, (usize, std::io::Result<ExitStatus>)>>;

/// The processes of an attempt that have not ended.
struct Attempt {
    living: HashMap<usize, i32>,
    waiting: Waiting,
    /// The first failure, which becomes the job's.
    failure: Option<(String, i32)>,
    stop: Option<Stop>,
    /// When ending them began, and whether KILL was sent.
    ending: Option<(Instant, bool)>,
}

impl Supervisor {
    /// Starts all processes and waits until all have ended.
    pub(super) async fn attempt(&mut self, requests: &mut Requests) -> Outcome {
        let mut attempt = Attempt {
            living: HashMap::new(),
            waiting: FuturesUnordered::new(),
            failure: None,
            stop: None,
            ending: None,
        };
        self.start(&mut attempt);
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut disk_looked = Instant::now();
        while !attempt.living.is_empty() {
            tokio::select! {
                biased;
                Some((index, status)) = attempt.waiting.next() => self.ended(&mut attempt, index, status),
                () = requests.terminated() => self.stop(&mut attempt, Stop::Cancelled("a signal ended its supervisor".into())),
                _ = tick.tick() => {
                    let taken = requests.requests(&self.folder, |_| true);
                    for request in &taken.requests {
                        self.obey(&mut attempt, *request);
                    }
                    self.keep_deadlines(&mut attempt);
                    if disk_looked.elapsed() > Duration::from_secs(1) {
                        disk_looked = Instant::now();
                        self.look_at_the_disk();
                        let known: Vec<i32> = attempt.living.values().copied().collect();
                        self.adopt(&known);
                    }
                    self.write();
                    // The requesters are notified once the record shows the effect.
                    drop(taken);
                }
            }
        }
        match (attempt.stop, attempt.failure) {
            (Some(stop), _) => Outcome::Stopped(stop),
            (None, Some((reason, code))) => Outcome::Failed { reason, code },
            (None, None) => Outcome::Ended,
        }
    }

    fn start(&mut self, attempt: &mut Attempt) {
        let port = free_port();
        for index in 0..self.list.processes.len() {
            match self.spawn(index, &port) {
                Ok(mut child) => {
                    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).unwrap_or(0);
                    let record = &mut self.record.processes[index];
                    record.identity = Some(Identity::of(pid));
                    record.phase = JobPhase::Running;
                    attempt.living.insert(index, pid);
                    attempt.waiting.push(Box::pin(async move { (index, child.wait().await) }));
                }
                Err((reason, code)) => {
                    self.failed(attempt, index, reason, code);
                    break;
                }
            }
        }
        if attempt.failure.is_none() {
            self.record.phase = JobPhase::Running;
            self.record.reason = match self.record.attempt {
                0 => String::new(),
                n => format!("restart {n} of {}", self.list.restarts),
            };
            let text = format!(
                "{} on {}",
                counted(self.list.processes.len(), "process"),
                counted(self.list.nodes as usize, "node")
            );
            self.record.note(Severity::Info, "started", text);
        }
        self.unwritten = true;
        self.write();
    }

    /// Starts one process in its own group, with its own log file; the error contains the reason, and the
    /// exit code a shell would return.
    fn spawn(&self, index: usize, port: &str) -> Result<tokio::process::Child, (String, i32)> {
        let it = &self.list.processes[index];
        let Some((program, arguments)) = it.argv.split_first() else {
            return Err((format!("{} has no command", it.name), 126));
        };
        let log = self.log(it).map_err(|e| (e.to_string(), 126))?;
        let both = log.try_clone().map_err(|e| (format!("cannot share a log: {e}"), 126))?;
        let workdir = self.workdir();
        if !workdir.is_dir() {
            return Err((format!("the working folder `{}` is not there", workdir.display()), 126));
        }
        let mut command = Command::new(program);
        let argument = |text: &String| match text.strip_suffix(MASTER_PORT) {
            Some("--master-port=") => format!("--master-port={port}"),
            _ => text.clone(),
        };
        command.args(arguments.iter().map(argument)).current_dir(workdir).process_group(0);
        command.stdin(Stdio::null()).stdout(log).stderr(both);
        if let Some(environment) = &self.environment {
            command.env_clear().envs(environment);
        }
        for (name, value) in self.list.env.iter().chain(&it.env) {
            match value.as_str() {
                MASTER_PORT => command.env(name, port),
                PROFILER_PATH => command.env(name, self.folder.of(folder::LIBRARY)),
                _ => command.env(name, value),
            };
        }
        let attempt = self.record.attempt;
        command.env(process::MARK, self.list.submission.as_str());
        command.env("TORCHELASTIC_RUN_ID", self.list.submission.as_str());
        command.env("TORCHELASTIC_RESTART_COUNT", attempt.to_string());
        command.env("TORCHELASTIC_MAX_RESTARTS", self.list.restarts.to_string());
        command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                (format!("the command `{program}` of {} was not found", it.name), 127)
            }
            _ => (
                format!("the command `{program}` of {} cannot be run: {}", it.name, error::plain(&error)),
                126,
            ),
        })
    }

    fn log(&self, it: &Process) -> Result<std::fs::File> {
        let path = self.folder.log(self.record.attempt, &it.name);
        if let Some(parent) = path.parent() {
            folder::make(parent)?;
        }
        let opened = OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
        opened.map_err(|e| error::file("open a log", &path, e))
    }

    pub(super) fn workdir(&self) -> std::path::PathBuf {
        let folder =
            if self.list.code.is_some() { self.folder.of(folder::CODE) } else { self.origin.folder.clone() };
        match &self.list.workdir {
            Some(given) => folder.join(given),
            None => folder,
        }
    }

    fn ended(&mut self, attempt: &mut Attempt, index: usize, status: std::io::Result<ExitStatus>) {
        attempt.living.remove(&index);
        let (code, how) = match status {
            Ok(status) => read_status(status),
            Err(error) => (255, format!("could not be waited for: {}", error::plain(&error))),
        };
        let name = self.list.processes[index].name.clone();
        let record = &mut self.record.processes[index];
        record.exit_code = Some(code);
        self.unwritten = true;
        if code == 0 {
            record.phase = JobPhase::Succeeded;
        } else if attempt.ending.is_some() {
            record.phase = JobPhase::Cancelled;
            record.reason = format!("{how} when the job was stopped");
        } else {
            self.failed(attempt, index, format!("{name} {how}"), code);
        }
    }

    /// Records the first failure and ends the others: a collective that lacks one of its ranks only hangs.
    fn failed(&mut self, attempt: &mut Attempt, index: usize, reason: String, code: i32) {
        let record = &mut self.record.processes[index];
        record.phase = JobPhase::Failed;
        record.reason.clone_from(&reason);
        record.exit_code = Some(code);
        self.record.note(Severity::Error, "failed", reason.clone());
        attempt.failure = Some((reason, code));
        self.end(attempt);
    }

    fn stop(&mut self, attempt: &mut Attempt, stop: Stop) {
        if attempt.stop.is_none() {
            self.record.phase = JobPhase::Stopping;
            self.unwritten = true;
            attempt.stop = Some(stop);
        }
        self.end(attempt);
    }

    fn end(&mut self, attempt: &mut Attempt) {
        if attempt.ending.is_none() {
            attempt.ending = Some((Instant::now(), false));
            // Stopped processes cannot handle TERM until they continue.
            signal_all(attempt, 15);
            signal_all(attempt, 18);
        }
    }

    fn obey(&mut self, attempt: &mut Attempt, request: Request) {
        self.unwritten = true;
        match request {
            Request::Cancel => self.stop(attempt, Stop::Cancelled("".into())),
            Request::Signal(number) => {
                self.record.note(Severity::Info, "signalled", format!("{} was sent", process::name(number)));
                signal_all(attempt, number);
            }
            Request::Suspend | Request::Resume if attempt.ending.is_some() => {}
            Request::Suspend => {
                signal_all(attempt, 19);
                self.set_phase(attempt, JobPhase::Suspended, "its processes were stopped (SIGSTOP)");
            }
            Request::Resume => {
                signal_all(attempt, 18);
                self.set_phase(attempt, JobPhase::Running, "");
            }
        }
    }

    fn set_phase(&mut self, attempt: &Attempt, phase: JobPhase, reason: &str) {
        self.record.phase = phase;
        reason.clone_into(&mut self.record.reason);
        for index in attempt.living.keys() {
            self.record.processes[*index].phase = phase;
        }
        self.record.note(Severity::Info, phase.as_str(), reason);
    }

    fn keep_deadlines(&mut self, attempt: &mut Attempt) {
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            self.stop(attempt, Stop::TimeLimit);
        }
        if let Some((since, false)) = attempt.ending
            && since.elapsed() >= Duration::from_millis(self.list.grace_ms)
        {
            let names: Vec<_> =
                attempt.living.keys().map(|i| self.list.processes[*i].name.as_str()).collect();
            let text = format!("{} did not end on TERM and got KILL", names.join(", "));
            self.record.note(Severity::Warning, "killed", text);
            self.unwritten = true;
            signal_all(attempt, 9);
            attempt.ending = Some((since, true));
        }
    }
}

/// Signals the groups that have not been reaped, whose numbers therefore are not reused.
fn signal_all(attempt: &Attempt, number: i32) {
    for leader in attempt.living.values() {
        process::signal_group(*leader, number);
    }
}

/// Returns the exit code as in a shell, and a description of the end.
fn read_status(status: ExitStatus) -> (i32, String) {
    if let Some(number) = status.signal() {
        let memory = if number == 9 { ", as the kernel does when memory runs out" } else { "" };
        return (128 + number, format!("was ended by {}{memory}", process::name(number)));
    }
    let code = status.code().unwrap_or(255);
    let what = match code {
        137 => " (as a container does that ran out of memory)",
        126 => " (the shell could not run the command)",
        127 => " (the shell did not find the command)",
        _ => "",
    };
    (code, format!("ended with exit code {code}{what}"))
}

/// Returns a port that is free now. Another program may take it before rank 0 listens on it; this race is
/// inherent to every choice.
fn free_port() -> String {
    let bound = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    bound.map_or_else(|_| "29500".to_owned(), |address| address.port().to_string())
}
