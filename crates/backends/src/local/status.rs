//! Converts a job's folder to a phase, a summary and a detail. The record is valid as long as its writer
//! lives; after that the processes themselves are inspected.

use jiff::SignedDuration;
use weftrun_core::job::{JobDetail, JobEvent, JobHandle, JobPhase, JobSummary, ReplicaStatus};
use weftrun_core::{Finding, Result, Severity};

use super::document::ProcessList;
use super::folder::{self, Folder};
use super::process;
use super::record::{Origin, Record};

/// How long a supervisor that its submitter has just started may take to take the lock.
const STARTS: SignedDuration = SignedDuration::from_secs(3);

/// The contents of a job's folder at one time.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    /// The origin of the job.
    pub origin: Origin,
    /// The supervisor's last record.
    pub record: Option<Record>,
    /// The actual phase.
    pub phase: JobPhase,
    /// The reason for the phase.
    pub reason: String,
    /// Processes that run without a supervisor.
    pub orphans: Vec<i32>,
    /// Whether it was claimed, has no supervisor, and will get none unless the same submission is sent again.
    pub is_void: bool,
}

/// The observed state of a job besides its record.
#[derive(Clone, Copy, Debug)]
struct Witness {
    supervised: bool,
    rebooted: bool,
    orphans: usize,
    abandoned: bool,
}

impl Snapshot {
    pub fn read(folder: &Folder, submission: &str) -> Result<Option<Self>> {
        let Some(origin) = folder::read::<Origin>(&folder.of(folder::ORIGIN))? else { return Ok(None) };
        let record = folder::read::<Record>(&folder.of(folder::RECORD))?;
        let supervised = record.as_ref().is_some_and(|record| record.supervisor.is_alive());
        let over = record.as_ref().is_some_and(|record| record.phase.is_terminal());
        let orphans = match &record {
            Some(record) if !(supervised || over) => process::left(submission, record),
            _ => Vec::new(),
        };
        let is_void = record.is_none() && (folder.of(folder::GIVEN_UP).exists() || origin.is_abandoned());
        let witness = Witness {
            supervised,
            rebooted: record.as_ref().is_some_and(|record| record.supervisor.is_of_another_boot()),
            orphans: orphans.len(),
            abandoned: is_void && crate::clock::now().duration_since(origin.created) > STARTS,
        };
        // A supervisor that ended between the two reads wrote its last record in between.
        let record =
            if supervised || over { record } else { folder::read::<Record>(&folder.of(folder::RECORD))? };
        let (phase, reason) = judge(record.as_ref(), witness);
        let is_void = is_void && record.is_none();
        Ok(Some(Self { origin, record, phase, reason, orphans, is_void }))
    }

    /// Returns its summary for a list.
    pub fn summary(&self, handle: JobHandle, submission: &str) -> JobSummary {
        let mut job = JobSummary::new(handle, self.phase);
        job.name.clone_from(&self.origin.name);
        job.reason.clone_from(&self.reason);
        job.kind = "processes".to_owned();
        job.created = Some(self.origin.created);
        job.submission = weftrun_core::job::SubmissionId::parse(submission);
        job.fabric = Some(self.origin.fabric);
        job.labels.clone_from(&self.origin.labels);
        let nodes = self.origin.nodes;
        let up = matches!(self.phase, JobPhase::Running | JobPhase::Stopping);
        job.ready = (if up { nodes } else { 0 }, nodes);
        if let Some(record) = &self.record {
            job.started = record.history.iter().find(|event| event.what == "started").map(|event| event.time);
            job.ended = record.ended;
            job.exit_code = record.exit_code;
        }
        job
    }

    /// Returns its present attempt.
    pub fn attempt(&self) -> u32 {
        self.record.as_ref().map_or(0, |record| record.attempt)
    }

    /// Returns its processes.
    pub fn replicas(&self, list: &ProcessList) -> Vec<ReplicaStatus> {
        let over = self.phase.is_terminal();
        let one = |(index, process): (usize, &super::Process)| {
            let mut replica =
                ReplicaStatus::new(&process.name, &process.role, process.replica, JobPhase::Submitted);
            replica.node = Some(format!("node{}", process.node));
            replica.restarts = self.attempt();
            if let Some(known) = self.record.as_ref().and_then(|record| record.processes.get(index)) {
                replica.phase = known.phase;
                replica.reason.clone_from(&known.reason);
                replica.exit_code = known.exit_code;
                if over && !known.phase.is_terminal() {
                    replica.phase = JobPhase::Unknown;
                    replica.reason = "ended unseen".to_owned();
                }
            }
            replica
        };
        list.processes.iter().enumerate().map(one).collect()
    }

    pub fn detail(
        &self,
        handle: &JobHandle,
        submission: &str,
        list: &ProcessList,
        folder: &Folder,
    ) -> JobDetail {
        let mut detail = JobDetail::new(self.summary(handle.clone(), submission));
        detail.replicas = self.replicas(list);
        detail.findings = self.findings();
        detail.facts = vec![
            ("folder".to_owned(), folder.path().display().to_string()),
            ("attempt".to_owned(), self.attempt().saturating_add(1).to_string()),
        ];
        if self.origin.attached {
            detail.facts.push(("supervisor".to_owned(), "a thread of the submitter (attached)".to_owned()));
        } else if let Some(record) = &self.record {
            detail.facts.push(("supervisor".to_owned(), format!("process {}", record.supervisor.pid)));
        }
        detail.facts.extend(list.notes.iter().map(|note| ("note".to_owned(), note.clone())));
        let happenings = self.record.iter().flat_map(|record| &record.history);
        detail.history = happenings
            .map(|happening| JobEvent::Message {
                job: handle.clone(),
                severity: happening.severity,
                reason: happening.what.clone(),
                text: happening.text.clone(),
                time: Some(happening.time),
            })
            .collect();
        detail
    }

    fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        if !self.orphans.is_empty() {
            let pids: Vec<_> = self.orphans.iter().take(8).map(ToString::to_string).collect();
            findings.push(
                Finding::warning("LOCAL-ORPHANS", format!("{} (processes {})", self.reason, pids.join(", ")))
                    .fix("`weftrun cancel` ends them; until then they write to their logs"),
            );
        }
        let bad = self.record.iter().flat_map(|record| &record.history);
        findings.extend(
            bad.filter(|h| h.severity != Severity::Info && h.what != "ended")
                .map(|h| Finding::new(h.severity, code(&h.what), h.text.clone())),
        );
        findings
    }
}

/// Returns the code of an event of the supervisor.
fn code(what: &str) -> &'static str {
    match what {
        "disk-full" => "LOCAL-DISK-FULL",
        "killed" => "LOCAL-KILLED",
        "left-behind" => "LOCAL-LEFT-BEHIND",
        "restarted" => "LOCAL-RESTARTED",
        _ => "LOCAL-FAILED",
    }
}

/// Derives the phase of a job from its supervisor's record and from its present state.
fn judge(record: Option<&Record>, seen: Witness) -> (JobPhase, String) {
    let Some(record) = record else {
        return if seen.abandoned {
            let text =
                "it was never started: weftrun ended between taking the job and starting it; nothing ran";
            (JobPhase::Failed, text.to_owned())
        } else {
            (JobPhase::Submitted, "its supervisor has not started yet".to_owned())
        };
    };
    if record.phase.is_terminal() || seen.supervised {
        return (record.phase, record.reason.clone());
    }
    if seen.rebooted {
        return (
            JobPhase::Failed,
            "the machine was started again while it ran; its processes are gone".to_owned(),
        );
    }
    match seen.orphans {
        0 => {
            let text = "its supervisor was killed and its processes have ended; their exit codes are lost, their \
                        logs are not";
            (JobPhase::Failed, text.to_owned())
        }
        1 => (JobPhase::Running, "its supervisor was killed; 1 process runs on without it".to_owned()),
        n => (JobPhase::Running, format!("its supervisor was killed; {n} processes run on without it")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEN: Witness = Witness { supervised: true, rebooted: false, orphans: 0, abandoned: false };

    fn running() -> Record {
        let mut record = Record::starting(2);
        record.phase = JobPhase::Running;
        record
    }

    #[test]
    fn the_record_and_what_is_left_of_the_job_give_its_phase() {
        let lone = Witness { supervised: false, orphans: 3, ..SEEN };
        let gone = Witness { supervised: false, ..SEEN };
        let rebooted = Witness { rebooted: true, ..gone };
        let mut ended = running();
        ended.end(JobPhase::Succeeded, "", Some(0));
        for (record, seen, phase, why) in [
            (Some(&running()), SEEN, JobPhase::Running, ""),
            (Some(&running()), lone, JobPhase::Running, "3 processes run on"),
            (Some(&running()), gone, JobPhase::Failed, "exit codes are lost"),
            (Some(&running()), rebooted, JobPhase::Failed, "started again"),
            (Some(&ended), rebooted, JobPhase::Succeeded, ""),
            (None, SEEN, JobPhase::Submitted, "not started yet"),
            (None, Witness { abandoned: true, ..SEEN }, JobPhase::Failed, "never started"),
        ] {
            let (found, reason) = judge(record, seen);
            assert!(found == phase && reason.contains(why), "{seen:?}: {found} {reason}");
        }
    }
}
