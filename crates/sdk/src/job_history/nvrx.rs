//! The files of NVIDIA's Resiliency Extension (NVRx) about the cycles of a job: which nodes ran in each, from one start of its
//! processes to the next.
//!
//! `cycle_info.JOB.ATTEMPT.CYCLE` in the folder of `--ft-cycle-info-dir` is the JSON of the message `NVRxCycleInfo`
//! (`fault_tolerance/cycle_info_writer.py` of github.com/NVIDIA/nvidia-resiliency-ext at d8686d9), with the names of its fields in
//! snake or camel case; `cycle_info.JOB.current` is a link to the newest.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use weftrun_core::backend::TargetConfig;
use weftrun_core::job::{JobDetail, JobHandle, JobPhase, JobSummary, ReplicaStatus};
use weftrun_core::nccl::{FabricSeen, SourceId, TransportMap};
use weftrun_core::spec::is_node_name;
use weftrun_core::text::nodelist;
use weftrun_core::{Error, ErrorKind, Result};
use weftrun_diagnose::Sources;
use weftrun_diagnose::cause::WhyState;
use weftrun_diagnose::nodes::{JobRecord, RunId};

use super::JobHistory;
use crate::diagnosis::MOST as LONGEST_LOG;
use crate::files;

/// The beginning of the name of a cycle's file.
const PREFIX: &str = "cycle_info.";
/// Largest file of a cycle.
const LARGEST: u64 = 1 << 20;
/// The backend whose jobs NVRx names as their handles do: by the number that Slurm gives them.
const SLURM: &str = "slurm";
/// How far the times of a log and of its cycle may differ: they are of different clocks.
const SKEW: SignedDuration = SignedDuration::from_secs(60);
/// How long one import reads logs.
const READING: Duration = Duration::from_mins(10);
/// Bytes that are read at once.
const CHUNK: usize = 1 << 20;

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
    /// Logs that were not used: another cycle names them too, they were last written at another time than their cycle, they are
    /// longer than 1 GiB or cannot be read, or ten minutes of reading were over.
    pub logs_left_out: usize,
}

/// What tells a cycle from all others: the job, the attempt and its number.
type CycleId = (String, u32, u32);

/// A cycle that has ended.
#[derive(Debug, PartialEq)]
struct Cycle {
    job: String,
    attempt: u32,
    number: u32,
    started: Timestamp,
    ended: Timestamp,
    nodes: Vec<String>,
    log: Option<PathBuf>,
}

impl JobHistory {
    /// Adds the cycles of jobs that ran under NVRx, from a file or from a folder of them. Where the log of a cycle is there, the
    /// cause of its failure is read from it. A cycle whose cause is known is not read again.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for a target that is not Slurm, [`ErrorKind::NotFound`] for a path without files of cycles; those
    /// of [`JobHistory::append`], with what had been added by then.
    pub fn import_cycles(&self, target: &TargetConfig, path: &Path) -> Result<Imported> {
        if target.backend != SLURM {
            let message = format!(
                "cycles of NVRx cannot be added to `{}` ({}): their jobs are named by Slurm",
                target.name, target.backend
            );
            return Err(Error::new(ErrorKind::Unsupported, message)
                .hint("name the target of Slurm that ran them with `-b`"));
        }
        let files = cycle_files(path)?;
        if files.is_empty() {
            let message = format!("{} has no `{PREFIX}JOB.ATTEMPT.CYCLE` files of NVRx", path.display());
            return Err(Error::new(ErrorKind::NotFound, message)
                .hint("name the folder of `--ft-cycle-info-dir`, or one of its files"));
        }
        let named = named_logs(path, &files)?;
        let known = self.read()?.records;
        let explained: HashSet<RunId<'_>> =
            known.iter().filter(|record| record.cause.is_some()).map(JobRecord::run).collect();
        let until = Instant::now() + READING;
        let mut imported = Imported::default();
        for file in &files {
            let Some(value) = object(file) else {
                imported.unread += 1;
                continue;
            };
            match cycle(&value, file) {
                Ok(Some(cycle)) => {
                    let mut record = bare_record(&cycle, target);
                    if explained.contains(&record.run()) {
                        imported.cycles += 1;
                        imported.with_cause += 1;
                        continue;
                    }
                    let map = cycle.log.as_ref().and_then(|log| {
                        let map =
                            is_its_own(&named, log, &cycle).then(|| read_log(log, &cycle, until)).flatten();
                        imported.logs_left_out += usize::from(map.is_none());
                        map
                    });
                    if let Some(map) = &map {
                        add_log(&mut record, map, &cycle, target);
                    }
                    let before = format!("{} of {}", imported.cycles, files.len());
                    self.append(&record).map_err(|error| error.with("files added before", before))?;
                    imported.cycles += 1;
                    imported.with_cause += usize::from(record.cause.is_some());
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

/// Returns which cycles name each log, also of those in the folder of a file that is imported alone: NVRx leaves the attempt out of
/// the name, so that the log of an attempt may be that of a later one.
fn named_logs(path: &Path, files: &[PathBuf]) -> Result<HashMap<PathBuf, HashSet<CycleId>>> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let beside = if path.is_dir() { Vec::new() } else { cycle_files(folder)? };
    let mut named: HashMap<PathBuf, HashSet<CycleId>> = HashMap::new();
    for file in files.iter().chain(&beside) {
        let Some(value) = object(file) else { continue };
        if let Some(log) = log_of(text(&value, "cycle_log_file"), file) {
            named.entry(log).or_default().insert(id(&value).unwrap_or_default());
        }
    }
    Ok(named)
}

/// Returns whether no other cycle names a log.
fn is_its_own(named: &HashMap<PathBuf, HashSet<CycleId>>, log: &Path, cycle: &Cycle) -> bool {
    let own = |(job, attempt, number): &CycleId| {
        (job, attempt, number) == (&cycle.job, &cycle.attempt, &cycle.number)
    };
    named.get(log).is_some_and(|cycles| cycles.iter().all(own))
}

fn object(file: &Path) -> Option<Value> {
    let text = files::read_text(file, LARGEST).ok().flatten()?;
    serde_json::from_str(&text).ok().filter(Value::is_object)
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

fn id(value: &Value) -> std::result::Result<CycleId, ()> {
    let job = text(value, "job_id");
    if job.is_empty() || job.len() > 256 || job.contains(char::is_control) {
        return Err(());
    }
    Ok((job.to_owned(), number(value, "attempt_index")?, number(value, "cycle_number")?))
}

/// Returns a time, which is one of UTC where it does not say so.
fn time(value: &Value, name: &str) -> std::result::Result<Timestamp, ()> {
    let written = text(value, name);
    written.parse().or_else(|_| format!("{written}Z").parse()).map_err(drop)
}

/// Reads a cycle; none for one without an end, and an error for what is none.
fn cycle(value: &Value, file: &Path) -> std::result::Result<Option<Cycle>, ()> {
    let (job, attempt, number) = id(value)?;
    let started = time(value, "cycle_start_time")?;
    if text(value, "cycle_end_time").is_empty() {
        return Ok(None);
    }
    let ended = time(value, "cycle_end_time")?;
    let mut nodes = nodelist::expand(text(value, "active_nodes"));
    nodes.retain(|node| is_node_name(node));
    nodes.sort();
    nodes.dedup();
    let log = log_of(text(value, "cycle_log_file"), file);
    Ok(Some(Cycle { job, attempt, number, started, ended, nodes, log }))
}

/// Returns the log of a cycle, where it was written or beside the cycle's file, by the one path that it has; none that is no
/// regular file.
fn log_of(named: &str, file: &Path) -> Option<PathBuf> {
    let named = Path::new(named);
    let beside = file.parent().zip(named.file_name()).map(|(folder, name)| folder.join(name));
    let is_file = |path: &PathBuf| fs::metadata(path).is_ok_and(|found| found.is_file());
    let found =
        [named.is_absolute().then(|| named.to_owned()), beside].into_iter().flatten().find(is_file)?;
    fs::canonicalize(found).ok()
}

/// Reads the log of a cycle; none if it was last written at another time or is too long, and where there is no time for it.
fn read_log(log: &Path, cycle: &Cycle, until: Instant) -> Option<TransportMap> {
    let mut file = weftrun_backends::files::open(log).ok()?;
    let found = file.metadata().ok()?;
    let written = Timestamp::try_from(found.modified().ok()?).ok()?;
    let is_of_cycle =
        written.duration_since(cycle.started) >= -SKEW && written.duration_since(cycle.ended) <= SKEW;
    if !is_of_cycle || found.len() > u64::try_from(LONGEST_LOG).unwrap_or(u64::MAX) {
        return None;
    }
    let (name, mut map) = (Arc::new(SourceId::new(log.file_name()?.to_string_lossy())), TransportMap::new());
    let (mut buffer, mut left) = (vec![0; CHUNK], LONGEST_LOG);
    // It may grow meanwhile.
    while left > 0 && Instant::now() < until {
        let most = left.min(CHUNK);
        match file.read(buffer.get_mut(..most)?) {
            Ok(0) => {
                map.end_all();
                return Some(map);
            }
            Ok(length) => {
                map.read(&name, buffer.get(..length)?);
                left = left.saturating_sub(length);
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    None
}

fn handle_of(cycle: &Cycle, target: &TargetConfig) -> JobHandle {
    JobHandle::new(&target.backend, &target.name, [cycle.job.clone()])
}

/// Makes the record of a cycle. NVRx does not say how a cycle ended: only its log shows a failure.
fn bare_record(cycle: &Cycle, target: &TargetConfig) -> JobRecord {
    let mut record = JobRecord::new(handle_of(cycle, target).to_string(), cycle.ended, JobPhase::Unknown);
    record.nodes.clone_from(&cycle.nodes);
    (record.attempt, record.cycle) = (cycle.attempt, Some(cycle.number));
    record
}

/// Adds what the log of a cycle shows.
fn add_log(record: &mut JobRecord, map: &TransportMap, cycle: &Cycle, target: &TargetConfig) {
    let mut summary = JobSummary::new(handle_of(cycle, target), JobPhase::Failed);
    summary.ended = Some(cycle.ended);
    let mut detail = JobDetail::new(summary);
    let replica = |(index, node): (u32, &String)| {
        let mut replica = ReplicaStatus::new(node, "worker", index, JobPhase::Failed);
        replica.node = Some(node.clone());
        replica
    };
    detail.replicas = (0..).zip(&cycle.nodes).map(replica).collect();
    let diagnosis = Sources::of_logs(map).diagnose();
    if diagnosis.why.state == WhyState::Failed
        && let Some(known) = JobRecord::of(&detail, Some(&diagnosis.why), cycle.ended)
    {
        (record.outcome, record.cause) = (JobPhase::Failed, known.cause);
    }
    let fabric = diagnosis.verdict.fabric;
    record.fabric = (fabric != FabricSeen::Unknown).then(|| fabric.label().to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn file(folder: &Path, name: &str, text: &str) {
        fs::write(folder.join(name), text).unwrap();
    }

    /// Says when a file was last written.
    fn written(folder: &Path, name: &str, at: &str) {
        let file = fs::File::options().write(true).open(folder.join(name)).unwrap();
        file.set_modified(at.parse::<Timestamp>().unwrap().into()).unwrap();
    }

    /// An Xid of a node that each cycle of the tests has.
    const LOST: &str =
        "gpu-2: NVRM: Xid (PCI:0000:b3:00): 79, pid=7, name=python, GPU has fallen off the bus.\n";

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
        file(folder, "train_cycle0.log", LOST);
        written(folder, "train_cycle0.log", "2026-08-07T11:00:05Z");
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

    /// The log of a requeued job has the name of the one before: a failure of one attempt is none of another.
    #[test]
    fn a_log_of_another_cycle_accuses_nobody() {
        let (first, again) = (snake(0, "2026-08-07T11:00:00Z", "gpu-[1-2]"), |text: &str| {
            text.replace("\"attempt_index\":0", "\"attempt_index\":1").replace("11:00:00Z", "10:30:00Z")
        });
        let import = |others: &[(&str, String)], at: &str, named: &str| {
            let (state, cycles) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let (history, target) = history(state.path());
            let folder = cycles.path();
            file(folder, "cycle_info.4711.0.0", &first);
            others.iter().for_each(|(name, text)| file(folder, name, text));
            file(folder, "train_cycle0.log", LOST);
            written(folder, "train_cycle0.log", at);
            let imported = history.import_cycles(&target, &folder.join(named)).unwrap();
            (imported.with_cause, imported.logs_left_out)
        };
        let own = "2026-08-07T10:59:00Z";
        assert_eq!(import(&[], own, ""), (1, 0));
        assert_eq!(import(&[], "2026-08-07T12:00:00Z", ""), (0, 1), "written after the cycle");
        assert_eq!(import(&[], "2026-08-07T09:00:00Z", ""), (0, 1), "written before the cycle");
        let second = [("cycle_info.4711.1.0", again(&first))];
        assert_eq!(import(&second, own, ""), (0, 2), "named by two cycles");
        assert_eq!(import(&second, own, "cycle_info.4711.0.0"), (0, 1), "also where one is imported alone");
        let running = [("cycle_info.4711.1.0", again(&snake(0, "", "gpu-3")))];
        assert_eq!(import(&running, own, ""), (0, 1), "the other one runs still");
        let copy = [("cycle_info.4711.0.00", first.clone())];
        assert_eq!(import(&copy, own, ""), (2, 0), "the same cycle twice");
    }

    #[test]
    fn a_cycle_whose_cause_is_known_is_not_read_again() {
        let (state, cycles) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (history, target) = history(state.path());
        file(cycles.path(), "cycle_info.4711.0.0", &snake(0, "2026-08-07T11:00:00Z", "gpu-[1-2]"));
        file(cycles.path(), "train_cycle0.log", LOST);
        written(cycles.path(), "train_cycle0.log", "2026-08-07T11:00:00Z");
        let first = history.import_cycles(&target, cycles.path()).unwrap();
        // It could not be read now.
        written(cycles.path(), "train_cycle0.log", "2026-08-07T12:00:00Z");
        assert_eq!(history.import_cycles(&target, cycles.path()).unwrap(), first);
        assert_eq!((first.with_cause, first.logs_left_out), (1, 0));
    }

    #[test]
    fn a_log_that_is_too_long_or_late_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        file(folder.path(), "one", &snake(0, "2026-08-07T11:00:00Z", "gpu-1"));
        file(folder.path(), "train_cycle0.log", LOST);
        let log = folder.path().join("train_cycle0.log");
        let at = || written(folder.path(), "train_cycle0.log", "2026-08-07T11:00:00Z");
        at();
        let one = folder.path().join("one");
        let cycle = cycle(&object(&one).unwrap(), &one).unwrap().unwrap();
        let later = Instant::now() + READING;
        assert!(read_log(&log, &cycle, later).is_some());
        assert!(read_log(&log, &cycle, Instant::now()).is_none(), "there is no time");
        // Without its blocks.
        let sparse = fs::File::options().write(true).open(&log).unwrap();
        sparse.set_len(u64::try_from(LONGEST_LOG).unwrap() + 1).unwrap();
        at();
        assert!(read_log(&log, &cycle, later).is_none());
    }

    /// What was added before a line that cannot be written is said, and cycles of other backends are refused.
    #[test]
    fn an_import_that_fails_says_how_far_it_came() {
        let (state, cycles) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (history, mut target) = history(state.path());
        file(cycles.path(), "cycle_info.4711.0.0", &snake(0, "2026-08-07T11:00:00Z", "gpu-1"));
        // More than a line may have.
        let nodes = format!("{}[1-20000]", "g".repeat(60));
        file(cycles.path(), "cycle_info.4711.0.1", &snake(1, "2026-08-07T12:00:00Z", &nodes));
        let error = history.import_cycles(&target, cycles.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        assert!(error.to_string().contains("files added before: 1 of 2"), "{error}");
        assert_eq!(history.read().unwrap().records.len(), 1);
        target.backend = "kubeflow".to_owned();
        let error = history.import_cycles(&target, cycles.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
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
