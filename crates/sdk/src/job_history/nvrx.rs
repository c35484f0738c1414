//! The files of NVIDIA's Resiliency Extension (NVRx) about the cycles of a job: which nodes ran in each, from one start of its
//! processes to the next.
//!
//! `cycle_info.JOB.ATTEMPT.CYCLE` in the folder of `--ft-cycle-info-dir` is the JSON of the message `NVRxCycleInfo`
//! (`fault_tolerance/cycle_info_writer.py` of github.com/NVIDIA/nvidia-resiliency-ext at d8686d9), with the names of its fields in
//! snake or camel case; `cycle_info.JOB.current` is a link to the newest.

use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde_json::Value;
use weftrun_backends::remote::nodelist;
use weftrun_core::backend::TargetConfig;
use weftrun_core::job::{JobDetail, JobHandle, JobPhase, JobSummary, ReplicaStatus};
use weftrun_core::nccl::FabricSeen;
use weftrun_core::spec::is_node_name;
use weftrun_core::{Error, ErrorKind, Result};
use weftrun_diagnose::Sources;
use weftrun_diagnose::cause::WhyState;
use weftrun_diagnose::nodes::JobRecord;

use super::JobHistory;
use crate::files;

/// The beginning of the name of a cycle's file.
const PREFIX: &str = "cycle_info.";
/// Largest file of a cycle.
const LARGEST: u64 = 1 << 20;

/// What an import found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Imported {
    /// Cycles that were added, or were known already.
    pub cycles: usize,
    /// Those whose log shows why they failed.
    pub with_cause: usize,
    /// Cycles without an end: they run, or their launcher was killed.
    pub without_end: usize,
    /// Files that are no cycles.
    pub unread: usize,
}

/// A cycle that has ended.
#[derive(Debug, PartialEq)]
struct Cycle {
    job: String,
    attempt: u32,
    number: u32,
    ended: Timestamp,
    nodes: Vec<String>,
    log: Option<PathBuf>,
}

impl JobHistory {
    /// Adds the cycles of jobs that ran under NVRx, from a file or from a folder of them. Where the log of a cycle is there, the
    /// cause of its failure is read from it.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for a path without files of cycles; those of [`JobHistory::append`].
    pub fn import_cycles(&self, target: &TargetConfig, path: &Path) -> Result<Imported> {
        let files = cycle_files(path)?;
        if files.is_empty() {
            let message = format!("{} has no `{PREFIX}JOB.ATTEMPT.CYCLE` files of NVRx", path.display());
            return Err(Error::new(ErrorKind::NotFound, message)
                .hint("name the folder of `--ft-cycle-info-dir`, or one of its files"));
        }
        let mut imported = Imported::default();
        for file in files {
            let Some(value) = files::read_text(&file, LARGEST).ok().flatten().and_then(|text| object(&text))
            else {
                imported.unread += 1;
                continue;
            };
            match cycle(&value, &file) {
                Ok(Some(cycle)) => {
                    let record = record_of(&cycle, target);
                    imported.cycles += 1;
                    imported.with_cause += usize::from(record.cause.is_some());
                    self.append(&record)?;
                }
                Ok(None) => imported.without_end += 1,
                Err(()) => imported.unread += 1,
            }
        }
        Ok(imported)
    }
}

/// Returns a file, or those of the cycles in a folder, in the order of their names.
fn cycle_files(path: &Path) -> Result<Vec<PathBuf>> {
    let failed = |error: std::io::Error| {
        let is_missing = error.kind() == std::io::ErrorKind::NotFound;
        let kind = if is_missing { ErrorKind::NotFound } else { ErrorKind::Io };
        Error::new(kind, format!("cannot read {}: {error}", path.display()))
    };
    if !fs::metadata(path).map_err(failed)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = fs::read_dir(path).map_err(failed)?.flatten();
    // A link names a file that is in the folder, too.
    let is_file = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_file());
    let named = |entry: &fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        // A file that is being written ends in `.tmp`.
        name.starts_with(PREFIX) && name.ends_with(|end: char| end.is_ascii_digit())
    };
    let mut found: Vec<PathBuf> =
        entries.filter(|entry| is_file(entry) && named(entry)).map(|entry| entry.path()).collect();
    found.sort();
    Ok(found)
}

fn object(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok().filter(Value::is_object)
}

/// Returns a field by its name in snake case or in camel case.
fn field<'v>(value: &'v Value, name: &str) -> &'v Value {
    let mut camel = String::new();
    for (at, part) in name.split('_').enumerate() {
        let (first, rest) = part.split_at(part.len().min(1));
        camel.push_str(&if at == 0 { first.to_owned() } else { first.to_ascii_uppercase() });
        camel.push_str(rest);
    }
    if value[name].is_null() { &value[camel] } else { &value[name] }
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    field(value, name).as_str().unwrap_or_default().trim()
}

/// Returns a number, which JSON of protobuf may write as text, and leaves out where it is 0.
fn number(value: &Value, name: &str) -> std::result::Result<u32, ()> {
    match field(value, name) {
        Value::Null => Ok(0),
        Value::String(text) => text.parse().map_err(drop),
        value => value.as_u64().and_then(|number| u32::try_from(number).ok()).ok_or(()),
    }
}

/// Reads a cycle; none for one without an end, and an error for what is none.
fn cycle(value: &Value, file: &Path) -> std::result::Result<Option<Cycle>, ()> {
    let job = text(value, "job_id");
    let is_id = |job: &str| !job.is_empty() && job.len() <= 256 && !job.contains(char::is_control);
    if !is_id(job) || text(value, "cycle_start_time").is_empty() {
        return Err(());
    }
    let (attempt, number) = (number(value, "attempt_index")?, number(value, "cycle_number")?);
    let ended = text(value, "cycle_end_time");
    if ended.is_empty() {
        return Ok(None);
    }
    let ended = ended.parse().or_else(|_| format!("{ended}Z").parse()).map_err(drop)?;
    let mut nodes = nodelist::expand(text(value, "active_nodes"));
    nodes.retain(|node| is_node_name(node));
    nodes.sort();
    nodes.dedup();
    let log = log_of(text(value, "cycle_log_file"), file);
    Ok(Some(Cycle { job: job.to_owned(), attempt, number, ended, nodes, log }))
}

/// Returns the log of a cycle, where it was written or beside the cycle's file; none that is no regular file.
fn log_of(named: &str, file: &Path) -> Option<PathBuf> {
    let named = Path::new(named);
    let beside = file.parent().zip(named.file_name()).map(|(folder, name)| folder.join(name));
    let is_file = |path: &PathBuf| fs::metadata(path).is_ok_and(|found| found.is_file());
    [named.is_absolute().then(|| named.to_owned()), beside].into_iter().flatten().find(is_file)
}

/// Makes the record of a cycle. NVRx does not say how a cycle ended: only its log shows a failure.
fn record_of(cycle: &Cycle, target: &TargetConfig) -> JobRecord {
    let handle = JobHandle::new(&target.backend, &target.name, [cycle.job.clone()]);
    let mut summary = JobSummary::new(handle, JobPhase::Failed);
    summary.ended = Some(cycle.ended);
    let mut detail = JobDetail::new(summary);
    let replica = |(index, node): (u32, &String)| {
        let mut replica = ReplicaStatus::new(node, "worker", index, JobPhase::Failed);
        replica.node = Some(node.clone());
        replica
    };
    detail.replicas = (0..).zip(&cycle.nodes).map(replica).collect();
    let map = cycle.log.as_ref().and_then(|log| crate::open_logs([log.to_string_lossy()]).ok()?.map().ok());
    let diagnosis = map.as_ref().map(|map| Sources::of_logs(map).diagnose());
    let failed = diagnosis.as_ref().filter(|diagnosis| diagnosis.why.state == WhyState::Failed);
    let mut record = JobRecord::new(detail.summary.handle.to_string(), cycle.ended, JobPhase::Unknown);
    record.nodes.clone_from(&cycle.nodes);
    if let Some(diagnosis) = failed
        && let Some(known) = JobRecord::of(&detail, Some(&diagnosis.why), cycle.ended)
    {
        (record.outcome, record.cause) = (JobPhase::Failed, known.cause);
    }
    let fabric = diagnosis.map_or(FabricSeen::Unknown, |diagnosis| diagnosis.verdict.fabric);
    record.fabric = (fabric != FabricSeen::Unknown).then(|| fabric.label().to_owned());
    (record.attempt, record.cycle) = (cycle.attempt, Some(cycle.number));
    record
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn file(folder: &Path, name: &str, text: &str) {
        fs::write(folder.join(name), text).unwrap();
    }

    fn snake(number: u32, ended: &str, nodes: &str) -> String {
        format!(
            "{{\"job_id\":\"4711\",\"attempt_index\":0,\"cycle_number\":{number},\"cycle_start_time\":\"2026-08-07T10:00:00Z\",\"cycle_end_time\":\"{ended}\",\"cycle_log_file\":\"/nowhere/train_cycle{number}.log\",\"active_nodes\":\"{nodes}\",\"standby_nodes\":\"gpu-9\",\"generation\":1}}"
        )
    }

    fn history(state: &Path) -> (JobHistory, TargetConfig) {
        let target = TargetConfig::new("pc", "slurm", state);
        (JobHistory::of(&Config::empty(state), &target).unwrap(), target)
    }

    #[test]
    fn cycles_are_runs_of_one_job() {
        let (state, cycles) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (history, target) = history(state.path());
        let folder = cycles.path();
        file(folder, "cycle_info.4711.0.0", &snake(0, "2026-08-07T11:00:00Z", "gpu-[1-2]"));
        file(
            folder,
            "cycle_info.4711.0.1",
            "{\"jobId\":\"4711\",\"cycleNumber\":1,\"cycleStartTime\":\"2026-08-07T11:01:00\",\"cycleEndTime\":\"2026-08-07T12:00:00\",\"activeNodes\":\"gpu-[1,3]\"}",
        );
        file(folder, "cycle_info.4711.0.2", &snake(2, "", "gpu-[1,3]"));
        file(folder, "cycle_info.4711.0.3", "{\"job_id\": \"47");
        std::os::unix::fs::symlink("cycle_info.4711.0.2", folder.join("cycle_info.4711.current")).unwrap();
        file(folder, "cycle_info.4711.0.4.tmp", "{}");
        // The log of the first cycle lies beside its file now.
        let line = "gpu-2: NVRM: Xid (PCI:0000:b3:00): 79, pid=7, name=python, GPU has fallen off the bus.\n";
        file(folder, "train_cycle0.log", line);
        let imported = history.import_cycles(&target, folder).unwrap();
        assert_eq!((imported.cycles, imported.without_end, imported.unread), (2, 1, 1), "{imported:?}");
        // A second time, nothing is new.
        history.import_cycles(&target, folder).unwrap();
        let records = history.read().unwrap().records;
        let seen: Vec<_> = records.iter().map(|record| (record.cycle, record.nodes.join(","))).collect();
        assert_eq!(seen, [(Some(0), "gpu-1,gpu-2".to_owned()), (Some(1), "gpu-1,gpu-3".to_owned())]);
        assert_eq!((imported.with_cause, records[0].outcome), (1, JobPhase::Failed), "{records:?}");
        assert_eq!((&records[0].job, records[1].outcome), (&"slurm://pc/4711".to_owned(), JobPhase::Unknown));
        let nodes = history.nodes().unwrap();
        assert_eq!(nodes.iter().find(|node| node.node == "gpu-1").unwrap().runs, 2);
    }

    #[test]
    fn what_is_no_cycle_is_said() {
        let (state, empty) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (history, target) = history(state.path());
        assert_eq!(history.import_cycles(&target, empty.path()).unwrap_err().kind(), ErrorKind::NotFound);
        for hostile in [
            "[]",
            "{}",
            "{\"job_id\":\"a\\u001b\",\"cycle_start_time\":\"x\"}",
            "{\"job_id\":\"a\",\"cycle_start_time\":\"x\",\"cycle_end_time\":\"yesterday\"}",
            "{\"job_id\":\"a\",\"cycle_start_time\":\"x\",\"cycle_number\":-1}",
        ] {
            file(empty.path(), "one", hostile);
            let imported = history.import_cycles(&target, &empty.path().join("one")).unwrap();
            assert_eq!((imported.cycles, imported.unread), (0, 1), "{hostile}");
        }
        file(empty.path(), "one", &snake(0, "2026-08-07T11:00:00Z", "gpu-[1-99999999999],x\\u001b[2J"));
        history.import_cycles(&target, &empty.path().join("one")).unwrap();
    }
}
