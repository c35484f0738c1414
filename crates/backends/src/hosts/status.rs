//! What the hosts of a job say becomes a phase, a summary and a detail, and what is to be done about it.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use weftrun_core::Finding;
use weftrun_core::backend::Rendered;
use weftrun_core::job::{
    JobDetail, JobHandle, JobPhase, JobSummary, ReplicaStatus, SubmissionId, TIME_LIMIT_REACHED,
};
use weftrun_core::spec::Launch;

use super::BACKEND;
use super::allocation::Allocation;
use super::look::{AttemptEnd, AttemptPhase, HostLook, Looks, NoAnswer, Node, Supervisor, Verdict};

/// One host of a job, as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It answered.
    Answered(Node),
    /// It answered, and has no such job.
    Absent,
    /// It did not answer, and why.
    Silent(NoAnswer),
}

/// What a host of a job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The job is there and was not started.
    Prepared,
    Starting,
    Running,
    Suspended,
    Stopping,
    Ended,
    /// It ended without a word: the host was restarted, or the supervisor was killed.
    Lost,
    Absent,
    Silent,
}

/// The jobs among what the hosts answered.
pub type Jobs = BTreeMap<SubmissionId, Job>;

/// A job as its hosts describe it.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its hosts and numbers.
    pub place: Allocation,
    /// What each answered, in the order of the place.
    pub seen: Vec<Seen>,
}

/// Something to do on a host of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Start this attempt.
    Go(u32),
    /// Tell the supervisor.
    Ask(String),
    /// Keep how the job ended.
    Conclude(String),
}

impl Job {
    /// Returns the jobs of several hosts: each host's name, and what it answered or why not.
    pub fn gather(looks: &Looks) -> Jobs {
        let mut jobs = Jobs::new();
        for (place, ..) in looks.values().flatten().flat_map(|look| look.jobs.values()) {
            jobs.entry(place.submission.clone()).or_insert_with(|| Self::of(place, looks));
        }
        jobs
    }

    pub fn on<'j>(look: &HostLook, jobs: &'j Jobs) -> Option<&'j Self> {
        jobs.get(&SubmissionId::parse(look.busy.as_deref()?)?)
    }

    /// Returns the other job that has the name of a submission and has not ended.
    pub fn with_name_of<'j>(rendered: &Rendered, jobs: &'j Jobs) -> Option<&'j Self> {
        let has_name = |job: &&Self| {
            job.place.name == rendered.name && job.place.submission != rendered.submission && job.is_active()
        };
        jobs.values().find(has_name)
    }

    /// Returns one of the jobs of several hosts.
    pub fn of(place: &Allocation, looks: &Looks) -> Self {
        let seen = |seat: &super::allocation::Seat| match looks.get(&seat.host) {
            Some(Ok(look)) => match look.jobs.get(&place.submission) {
                Some((_, _, node)) => Seen::Answered(node.clone()),
                None => Seen::Absent,
            },
            Some(Err(why)) => Seen::Silent(why.clone()),
            None => Seen::Silent(NoAnswer::unlisted()),
        };
        Self { place: place.clone(), seen: place.hosts.iter().map(seen).collect() }
    }

    /// Returns whether the job was started: its first host was told to. Until then it is not there.
    pub fn is_committed(&self) -> bool {
        match self.seen.first() {
            Some(Seen::Answered(node)) => !node.gos.is_empty(),
            _ => self.told().any(|(_, node)| !node.gos.is_empty()),
        }
    }

    fn told(&self) -> impl Iterator<Item = (usize, &Node)> {
        self.seen.iter().enumerate().filter_map(|(at, seen)| match seen {
            Seen::Answered(node) => Some((at, node)),
            _ => None,
        })
    }

    /// Returns the present attempt.
    pub fn attempt(&self) -> u32 {
        self.told().filter_map(|(_, node)| node.gos.last()).max().copied().unwrap_or(0)
    }

    fn stage(&self, at: usize) -> Stage {
        let Some(seen) = self.seen.get(at) else { return Stage::Absent };
        let node = match seen {
            Seen::Absent => return Stage::Absent,
            Seen::Silent(_) => return Stage::Silent,
            Seen::Answered(node) => node,
        };
        let attempt = self.attempt();
        if !node.gos.contains(&attempt) {
            return Stage::Prepared;
        }
        // The state may still be that of the attempt before.
        let Some(phase) = node.phase.filter(|_| node.attempt >= attempt) else {
            return match node.supervisor {
                Supervisor::Killed | Supervisor::Rebooted => Stage::Lost,
                Supervisor::Absent | Supervisor::Alive => Stage::Starting,
            };
        };
        match phase {
            AttemptPhase::Ended => Stage::Ended,
            _ if node.supervisor != Supervisor::Alive && node.orphans == 0 => Stage::Lost,
            AttemptPhase::Starting => Stage::Starting,
            AttemptPhase::Suspended => Stage::Suspended,
            AttemptPhase::Stopping => Stage::Stopping,
            AttemptPhase::Running => Stage::Running,
        }
    }

    /// Returns the hosts that only wait for the launcher on the first one.
    fn is_member(&self, at: usize) -> bool {
        matches!(self.place.launch, Launch::Mpi | Launch::Once) && at > 0
    }

    fn stages(&self) -> Vec<Stage> {
        (0..self.seen.len()).map(|at| self.stage(at)).collect()
    }

    fn host(&self, at: usize) -> &str {
        self.place.hosts.get(at).map_or("", |seat| seat.host.as_str())
    }

    /// Returns why the attempt failed and the exit code, if it did.
    fn failure(&self, stages: &[Stage]) -> Option<(String, Option<i32>, bool)> {
        let (mut lost, mut stopped) = (None, None);
        for (at, stage) in stages.iter().enumerate() {
            let host = self.host(at);
            match (stage, self.seen.get(at)) {
                (Stage::Ended, Some(Seen::Answered(node)))
                    if matches!(node.end, Some(AttemptEnd::Failed | AttemptEnd::TimeLimit)) =>
                {
                    let why = match (node.end, node.rank, node.code) {
                        (Some(AttemptEnd::TimeLimit), ..) => {
                            format!("{TIME_LIMIT_REACHED} ({} s)", self.place.limit)
                        }
                        (_, Some(rank), Some(code)) => format!("rank {rank} on {host} {}", exited(code)),
                        (_, None, Some(code)) if node.why.is_empty() => {
                            format!("{} {}", self.process_of(at), exited(code))
                        }
                        _ => format!("{host}: {}", node.why),
                    };
                    return Some((why, node.code, node.end == Some(AttemptEnd::Failed)));
                }
                (Stage::Lost, Some(Seen::Answered(node))) => {
                    let why = if node.supervisor == Supervisor::Rebooted {
                        format!("{host} was started again while the job ran")
                    } else {
                        format!("the supervisor on {host} was killed; exit codes are lost, logs are not")
                    };
                    lost.get_or_insert((why, None, false));
                }
                (Stage::Absent, _) => {
                    lost.get_or_insert((format!("the job's folder on {host} is gone"), None, false));
                }
                // It was told to, since another host failed, which may not answer now.
                (Stage::Ended, Some(Seen::Answered(node))) if node.end == Some(AttemptEnd::Stopped) => {
                    stopped.get_or_insert((node.why.clone(), None, true));
                }
                _ => {}
            }
        }
        lost.or(stopped)
    }

    fn process_of(&self, at: usize) -> String {
        let what = match self.place.launch {
            Launch::Torchrun => "torchrun",
            Launch::Mpi => "mpirun",
            Launch::PerRank | Launch::PerNode | Launch::Once => "the command",
        };
        format!("{what} on {}", self.host(at))
    }

    /// Returns whether the processes of a host ended by themselves, so that they have written logs.
    pub fn ended_well(&self, at: usize) -> bool {
        matches!(self.seen.get(at), Some(Seen::Answered(node)) if node.end == Some(AttemptEnd::Done) && !self.is_member(at))
    }

    /// Returns the exit code of a rank, or of what started the ranks of a host, where it is known: a supervisor keeps the code of the
    /// process that ended its attempt, and ends the others.
    pub fn code_of(&self, at: usize, rank: Option<u32>) -> Option<i32> {
        if self.phase().0 == JobPhase::Succeeded {
            return Some(0);
        }
        match self.seen.get(at) {
            Some(Seen::Answered(node)) if node.end == Some(AttemptEnd::Failed) && node.rank == rank => {
                node.code
            }
            Some(Seen::Answered(_)) if self.ended_well(at) => Some(0),
            _ => None,
        }
    }

    fn cancelled(&self) -> bool {
        // Without a supervisor, processes are ended before that is written.
        let ends = |at, node: &Node| node.asked && self.stage(at) == Stage::Lost;
        self.told().any(|(at, node)| node.end == Some(AttemptEnd::Cancelled) || ends(at, node))
    }

    /// Returns the hosts whose disk was full, with their numbers.
    pub fn full(&self) -> Vec<(usize, &str)> {
        self.told().filter(|(_, node)| node.full).map(|(at, _)| (at, self.host(at))).collect()
    }

    /// Returns whether a host answered that has nothing of the job.
    pub fn is_partly_gone(&self) -> bool {
        self.seen.contains(&Seen::Absent)
    }

    /// Returns the hosts that did not answer, and why.
    pub fn silent(&self) -> impl Iterator<Item = (&str, &NoAnswer)> {
        self.seen.iter().enumerate().filter_map(|(at, seen)| match seen {
            Seen::Silent(why) => Some((self.host(at), why)),
            _ => None,
        })
    }

    /// Returns whether the job has been started and has not ended.
    pub fn is_active(&self) -> bool {
        self.is_committed() && !self.phase().0.is_terminal()
    }

    /// Returns the phase, the reason, and the exit code. A phase that is final stays so.
    pub fn phase(&self) -> Verdict {
        if let Some(verdict) = self.told().find_map(|(_, node)| node.verdict.clone()) {
            return verdict;
        }
        let stages = self.stages();
        let counts = |wanted: &[Stage]| {
            stages.iter().enumerate().any(|(at, stage)| {
                wanted.contains(stage) && !(self.is_member(at) && *stage == Stage::Running)
            })
        };
        let active = counts(&[Stage::Starting, Stage::Running, Stage::Suspended, Stage::Stopping]);
        let silent: Vec<&str> = self.silent().map(|(host, _)| host).collect();
        let not_answering = match silent.as_slice() {
            [] => String::new(),
            [one] => format!("{one} does not answer: its ranks may still run"),
            several => format!("{} do not answer: their ranks may still run", several.join(", ")),
        };
        let active = active || !silent.is_empty();
        let and = |text: String| match (text.is_empty(), not_answering.is_empty()) {
            (_, true) => text,
            (true, false) => not_answering.clone(),
            (false, false) => format!("{text}; {not_answering}"),
        };
        if self.cancelled() {
            let phase = if active { JobPhase::Stopping } else { JobPhase::Cancelled };
            return (phase, and(String::new()), None);
        }
        if let Some((why, code, restarts)) = self.failure(&stages) {
            let attempt = self.attempt();
            let again = restarts && attempt < self.place.restarts;
            if active && !(again && self.is_idle(&stages)) {
                return (JobPhase::Stopping, and(why), code);
            }
            return match again {
                true => (JobPhase::Restarting, and(why), None),
                false if attempt > 0 => (
                    JobPhase::Failed,
                    and(format!("{why}, after {attempt} of {} restarts", self.place.restarts)),
                    code,
                ),
                false => (JobPhase::Failed, and(why), code),
            };
        }
        let done = |at: usize, stage: Stage| {
            stage == Stage::Ended || (self.is_member(at) && matches!(stages.first(), Some(Stage::Ended)))
        };
        if stages.iter().enumerate().all(|(at, stage)| done(at, *stage)) {
            return (JobPhase::Succeeded, String::new(), Some(0));
        }
        let phase = if counts(&[Stage::Starting]) || stages.contains(&Stage::Prepared) {
            JobPhase::Starting
        } else if counts(&[Stage::Suspended]) {
            JobPhase::Suspended
        } else if self.is_idle(&stages) {
            // The hosts that answer have ended.
            JobPhase::Unknown
        } else {
            JobPhase::Running
        };
        let unsupervised: u32 = self.told().map(|(_, node)| node.orphans).sum();
        let why = match unsupervised {
            0 => String::new(),
            n => format!("{n} processes run on without their supervisor"),
        };
        (phase, and(why), None)
    }

    /// Returns whether no host that answers does anything.
    fn is_idle(&self, stages: &[Stage]) -> bool {
        !stages.iter().any(|stage| {
            matches!(stage, Stage::Starting | Stage::Running | Stage::Suspended | Stage::Stopping)
        })
    }

    /// Returns what is to be done so that the job continues or comes to its end. There is no scheduler that would do it: each
    /// weftrun that looks at the job does.
    pub fn orders(&self) -> Vec<(usize, Order)> {
        if !self.is_committed() {
            return Vec::new();
        }
        let steps = self.steps();
        if steps.is_empty() { self.conclusions() } else { steps }
    }

    /// Returns where it is to be kept how the job ended: on every host that answers, once it is known and nothing is left to do.
    pub fn conclusions(&self) -> Vec<(usize, Order)> {
        let (phase, why, code) = self.phase();
        if !self.is_committed() || !phase.is_terminal() || !self.steps().is_empty() {
            return Vec::new();
        }
        let code = code.map_or_else(|| "-".to_owned(), |code| code.to_string());
        let unwritten = self.told().filter(|(_, node)| node.verdict.is_none());
        unwritten.map(|(at, _)| (at, Order::Conclude(format!("{phase} {code} {why}")))).collect()
    }

    /// Returns what is to be done with the processes.
    fn steps(&self) -> Vec<(usize, Order)> {
        let stages = self.stages();
        let failure = self.failure(&stages);
        let runs = |stage: &Stage| matches!(stage, Stage::Starting | Stage::Running | Stage::Suspended);
        let running: Vec<usize> =
            stages.iter().enumerate().filter(|(_, stage)| runs(stage)).map(|(at, _)| at).collect();
        let all = |order: Order| running.iter().map(|at| (*at, order.clone())).collect();
        if self.cancelled() {
            return all(Order::Ask("cancel".to_owned()));
        }
        if let Some((why, _, restarts)) = failure {
            let idle = !stages.iter().any(|stage| matches!(stage, Stage::Stopping | Stage::Silent))
                && running.is_empty();
            if idle && restarts && self.attempt() < self.place.restarts && !stages.contains(&Stage::Prepared)
            {
                return (0..stages.len())
                    .map(|at| (at, Order::Go(self.attempt().saturating_add(1))))
                    .collect();
            }
            return all(Order::Ask(format!("stop {why}")));
        }
        if matches!(self.place.launch, Launch::Mpi | Launch::Once)
            && matches!(stages.first(), Some(Stage::Ended))
        {
            return all(Order::Ask("finish".to_owned()));
        }
        let prepared = stages.iter().enumerate().filter(|(_, stage)| **stage == Stage::Prepared);
        prepared.map(|(at, _)| (at, Order::Go(self.attempt()))).collect()
    }

    pub fn handle(&self, target: &str) -> JobHandle {
        let uid: String = self.place.submission.as_str().chars().take(8).collect();
        JobHandle::new(BACKEND, target, [self.place.name.as_str()]).with_uid(uid)
    }

    /// Returns its line in a list.
    pub fn summary(&self, target: &str) -> JobSummary {
        let (phase, reason, exit_code) = self.phase();
        let mut summary = JobSummary::new(self.handle(target), phase);
        let created = Timestamp::from_second(self.place.created).ok();
        let elapsed = self.told().map(|(_, node)| node.elapsed).max().unwrap_or(0);
        let nodes = u32::try_from(self.place.hosts.len()).unwrap_or(u32::MAX);
        let up =
            self.stages().iter().filter(|stage| matches!(stage, Stage::Running | Stage::Stopping)).count();
        summary.reason = reason;
        summary.kind = "hosts".to_owned();
        summary.ready = (u32::try_from(up).unwrap_or(u32::MAX), nodes);
        // Durations of the hosts on the clock of the machine that submitted: no host's clock is read.
        summary.ended = created.filter(|_| phase.is_terminal()).and_then(|created| {
            created.checked_add(SignedDuration::try_from(Duration::from_secs(elapsed)).ok()?).ok()
        });
        summary.created = created;
        // Nothing waits here.
        summary.started = created;
        summary.exit_code = exit_code.filter(|_| phase.is_terminal());
        summary.submission = Some(self.place.submission.clone());
        summary.fabric = self.place.fabric;
        summary.labels.clone_from(&self.place.labels);
        summary
    }

    /// Returns its hosts.
    pub fn replicas(&self) -> Vec<ReplicaStatus> {
        let stages = self.stages();
        let (whole, ..) = self.phase();
        let one = |(at, seat): (usize, &super::allocation::Seat)| {
            let node = match self.seen.get(at) {
                Some(Seen::Answered(node)) => node.clone(),
                _ => Node::default(),
            };
            let phase = match stages.get(at).copied().unwrap_or(Stage::Absent) {
                Stage::Prepared => JobPhase::Submitted,
                Stage::Starting => JobPhase::Starting,
                Stage::Running if self.is_member(at) && whole.is_terminal() => whole,
                Stage::Running => JobPhase::Running,
                Stage::Suspended => JobPhase::Suspended,
                Stage::Stopping => JobPhase::Stopping,
                Stage::Ended => match node.end {
                    Some(AttemptEnd::Done) => JobPhase::Succeeded,
                    Some(AttemptEnd::Cancelled | AttemptEnd::Stopped) => JobPhase::Cancelled,
                    Some(AttemptEnd::Failed | AttemptEnd::TimeLimit) | None => JobPhase::Failed,
                },
                Stage::Lost => JobPhase::Failed,
                Stage::Absent | Stage::Silent => JobPhase::Unknown,
            };
            let mut replica = ReplicaStatus::new(&seat.host, &seat.role, seat.replica, phase);
            replica.node = Some(seat.host.clone());
            replica.restarts = self.attempt();
            replica.exit_code = node.code;
            replica.failed_rank = node.rank;
            replica.reason = match (self.seen.get(at), node.rank, node.code) {
                (Some(Seen::Silent(why)), ..) => why.to_string(),
                (Some(Seen::Absent), ..) => "the job's folder is gone".to_owned(),
                (_, Some(rank), Some(code)) => format!("rank {rank} {}", exited(code)),
                _ => node.why,
            };
            replica
        };
        self.place.hosts.iter().enumerate().map(one).collect()
    }

    /// Returns what went wrong on its hosts and is in no phase: full disks, and processes without a supervisor.
    pub fn troubles(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (_, host) in self.full() {
            let text = format!("the disk of {host} was full: what its ranks wrote to their logs may be lost");
            findings.push(
                Finding::error("HOSTS-DISK-FULL", text)
                    .fix("free space there, or set `folder` of the target to another file system"),
            );
        }
        for (at, node) in self.told() {
            if node.orphans > 0 {
                let text =
                    format!("{} processes run on {} without their supervisor", node.orphans, self.host(at));
                findings.push(Finding::warning("HOSTS-ORPHANS", text).fix("`weftrun cancel` ends them"));
            }
        }
        findings
    }

    /// Returns everything known of it.
    pub fn detail(&self, target: &str, folder: &str) -> JobDetail {
        let mut detail = JobDetail::new(self.summary(target));
        detail.replicas = self.replicas();
        detail.findings = self.troubles();
        let silent = self.silent().map(|(host, why)| {
            why.finding(format!("{host} does not answer: the state of its ranks is not known"))
        });
        detail.findings.extend(silent);
        let hosts: Vec<&str> = self.place.hosts.iter().map(|seat| seat.host.as_str()).collect();
        detail.facts = vec![
            ("hosts".to_owned(), hosts.join(" ")),
            ("folder".to_owned(), format!("{folder}/hosts/$(uname -n)/jobs/{}", self.place.submission)),
            ("attempt".to_owned(), self.attempt().saturating_add(1).to_string()),
        ];
        if let Some(first) = self.place.hosts.first() {
            detail.facts.push(("rendezvous".to_owned(), format!("{}:{}", first.address, self.place.port)));
        }
        detail
    }
}

fn exited(code: i32) -> String {
    match code {
        129..=192 => format!("ended by signal {} (exit code {code})", code - 128),
        _ => format!("exited with code {code}"),
    }
}

#[cfg(test)]
mod tests;
