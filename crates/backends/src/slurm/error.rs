//! Maps the standard error of Slurm's commands to weftrun's errors.

use std::fmt;

use weftrun_core::ErrorKind::{Credentials, InvalidConfig, NotFound, Refused, Unreachable};
use weftrun_core::{Error, ErrorKind};

pub use crate::remote::error::clean;

/// A row of the table: a substring, the error kind, the hint.
type Row = (&'static str, ErrorKind, &'static str);

/// The first row whose substring occurs applies. The texts were seen on 22.05, 24.11 and 26.05.
const SLURM: &[Row] = &[
    (
        "Unable to contact slurm controller",
        Unreachable,
        "slurmctld is down or not reachable; check it with `scontrol ping`",
    ),
    ("Socket timed out", Unreachable, "slurmctld is busy; try again in a minute"),
    (
        "Zero Bytes were transmitted",
        Credentials,
        "slurmctld refused the connection: wrong credentials, or another Slurm version",
    ),
    ("Connection refused", Unreachable, "slurmctld is down; check it with `scontrol ping`"),
    ("Munge", Credentials, "munged does not run on that host, or its key is another than the cluster's"),
    ("munge", Credentials, "munged does not run on that host, or its key is another than the cluster's"),
    (
        "Protocol authentication error",
        Credentials,
        "the credentials do not fit: munge key, clock, or an expired token",
    ),
    (
        "Invalid partition",
        Refused,
        "`sinfo -s` lists the partitions; set `queue` in the job or `partition` in the target",
    ),
    (
        "invalid partition",
        Refused,
        "`sinfo -s` lists the partitions; set `queue` in the job or `partition` in the target",
    ),
    (
        "nvalid node name",
        Refused,
        "`avoid`, `exclude` or `nodelist` names a node that the cluster does not have; `sinfo -N` lists them",
    ),
    ("Invalid account", Refused, "`sacctmgr show assoc user=$USER format=account,partition,qos` lists yours"),
    ("Invalid qos", Refused, "`sacctmgr show assoc user=$USER format=account,qos` lists yours"),
    ("Requested reservation is invalid", Refused, "`scontrol show reservation` lists them"),
    (
        "Invalid feature",
        Refused,
        "`sinfo -o '%P %f'` lists the features; the constraint comes from the instance type",
    ),
    ("Invalid generic resource", Refused, "`sinfo -o '%P %G'` lists the GPUs of each partition"),
    (
        "Requested node configuration is not available",
        Refused,
        "no node has what is requested: compare GPUs, memory and CPUs with `sinfo -o '%P %D %G %m %c %f'`",
    ),
    (
        "Requested partition configuration not available",
        Refused,
        "the partition is down or cannot run the job now; check it with `sinfo`",
    ),
    ("Node count specification invalid", Refused, "the partition has fewer nodes"),
    ("More processors requested than permitted", Refused, "the partition or QOS allows fewer"),
    ("Requested time limit is invalid", Refused, "the partition's limit is lower; set `time_limit`"),
    ("Job dependency problem", Refused, "the job it depends on is unknown"),
    (
        "Invalid job array",
        Refused,
        "`scontrol show config | grep MaxArraySize` says how large an array may be",
    ),
    (
        "Access/permission denied",
        Credentials,
        "the job belongs to another user, or the account may not do this",
    ),
    ("Invalid user id", Credentials, "this needs a Slurm administrator or the owner of the job"),
    ("Invalid job id", NotFound, "the job ended long ago, or belongs to another cluster"),
    ("does not exist", NotFound, "`weftrun list` prints the jobs there are"),
    ("violates accounting/QOS policy", Refused, "a limit of your association or QOS is reached"),
    ("No space left on device", Refused, "the file system on the cluster is full"),
    ("Disk quota exceeded", Refused, "your quota on the cluster is used up"),
    ("Read-only file system", Refused, "set `log-dir` of the target to a folder that can be written"),
    ("Permission denied", Refused, "set `log-dir` of the target to a folder that you may write"),
    (
        "not found",
        InvalidConfig,
        "set `bin-dir` of the target to the folder of sbatch (ParallelCluster: /opt/slurm/bin)",
    ),
    ("No such file or directory", InvalidConfig, "set `bin-dir` of the target to the folder of sbatch"),
];

/// Returns the error of a Slurm command that failed.
pub fn of_command(what: &str, stderr: &str, code: i32) -> Error {
    let said = essence(stderr);
    let row = SLURM.iter().find(|(part, ..)| stderr.contains(part));
    let (kind, hint) = row.map_or((ErrorKind::Refused, None), |(_, kind, hint)| (*kind, Some(*hint)));
    let message = if said.is_empty() {
        format!("{what} failed with exit code {code}")
    } else {
        format!("{what}: {said}")
    };
    let error = Error::new(kind, message);
    let error = hint.into_iter().fold(error, weftrun_core::Error::hint);
    if kind == ErrorKind::Unreachable { error.retryable() } else { error }
}

/// The source of an error about slurmdbd: what the command printed.
#[derive(Debug)]
struct NoDatabase(String);

impl std::error::Error for NoDatabase {}

impl fmt::Display for NoDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "no answer" } else { &self.0 })
    }
}

/// Returns whether a Slurm command or slurmrestd reports that slurmdbd does not answer.
pub fn is_no_database(said: &str) -> bool {
    ["slurm_persist_conn", "PersistInit", "persist_init", "talking to the database", "slurmdbd", "SlurmDBD"]
        .iter()
        .any(|part| said.contains(part))
}

/// Returns the error of a slurmdbd that does not answer.
pub fn no_database(said: &str) -> Error {
    let source = NoDatabase(essence(said));
    let why = if source.0.is_empty() { String::new() } else { format!(": {source}") };
    let message = format!("slurmdbd, Slurm's accounting daemon, does not answer{why}");
    Error::new(ErrorKind::Unreachable, message)
        .hint("jobs that slurmctld has forgotten are known by their exit files only until it is back; tell your cluster administrator")
        .retryable()
        .with_source(source)
}

pub fn is_down_database(error: &Error) -> bool {
    said_without_database(error).is_some()
}

/// Returns the command output that an error made by [`no_database`] contains; none for any other error.
pub fn said_without_database(error: &Error) -> Option<&str> {
    std::error::Error::source(error)?.downcast_ref().map(|NoDatabase(said)| said.as_str())
}

/// What a failed `sbatch` means for its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// slurmctld or sbatch refused it: there is no job.
    Refused,
    /// slurmctld was never reached: there is no job, and the submission may be sent again.
    NotSent,
    /// slurmctld may have it.
    Unknown,
}

/// Classifies a failed `sbatch`. It is a refusal only if sbatch itself ended (not by a signal or a time
/// limit) and printed a reason that is not about the connection: `slurm_strerror` has the texts of
/// slurm_errno.h, and the system's for all other codes. In doubt the job may exist.
pub fn verdict(code: i32, stderr: &str) -> Verdict {
    // Exit codes of shells: 126 and 127 if sbatch could not be started, higher ones for signals. `timeout`
    // exits with 124.
    let could_not_start = matches!(code, 126 | 127);
    if could_not_start
        && ["not found", "Permission denied", "No such file"].iter().any(|part| stderr.contains(part))
    {
        return Verdict::Refused;
    }
    if !(1..=123).contains(&code) || code == NO_ANSWER {
        return Verdict::Unknown;
    }
    // The request could not be signed, so it was not sent.
    if stderr.contains("Munge encode failed") && stderr.contains("REQUEST_SUBMIT_BATCH_JOB") {
        return Verdict::Refused;
    }
    let failed = |text: &str| text.contains("submission failed:") || text.contains("allocation failure");
    let last = stderr.lines().rfind(|line| failed(line));
    // An earlier line may report that a message went out to the other controller.
    let went_out = |line: &str| ["timed out", "recv", "receive"].iter().any(|part| line.contains(part));
    if last.is_some_and(|line| line.contains("(connect failure)")) && !stderr.lines().any(went_out) {
        return Verdict::NotSent;
    }
    // Other lines may be a site's own (a job_submit plugin that names a contact); only Slurm's count.
    let is_slurms =
        |line: &&str| last.is_none_or(|last| last == *line) || STRONG.iter().any(|part| line.contains(part));
    if stderr.lines().filter(is_slurms).any(|line| speaks_of_the_connection(&line.to_ascii_lowercase())) {
        return Verdict::Unknown;
    }
    let is_clear = last.is_some() || stderr.contains("error:") || stderr.contains("unrecognized option");
    if is_clear { Verdict::Refused } else { Verdict::Unknown }
}

/// Exit code of the submitting program if an earlier run of it started and left no answer.
pub const NO_ANSWER: i32 = 93;

/// Substrings of Slurm's own lines about a lost message.
const STRONG: [&str; 6] =
    ["slurm_", "timed out", "Unexpected message", "Zero Bytes", "Unable to contact", "Connection re"];

/// Returns whether a line, in lower case, is about the connection and not about the job.
fn speaks_of_the_connection(line: &str) -> bool {
    const WORDS: [&str; 30] = [
        "socket",
        "timed out",
        "timeout",
        "time-out",
        "contact",
        "connection",
        "connect to",
        "connected",
        "communication",
        "transmitted",
        "received",
        "bytes",
        "message",
        "send failure",
        "receive failure",
        "shutdown failure",
        "unexpected",
        "protocol",
        "incompatible versions",
        "insane",
        "interrupted",
        "broken pipe",
        "temporarily unavailable",
        "try again",
        "unreachable",
        "no route",
        "input/output error",
        "unknown error",
        "out of memory",
        "cannot allocate",
    ];
    WORDS.iter().any(|word| line.contains(word))
}

/// Returns the line of a command's standard error that gives the reason, without the program's name; at most
/// 400 bytes.
pub fn essence(stderr: &str) -> String {
    let lines: Vec<&str> = stderr.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let failed = lines.iter().rfind(|line| line.contains("failed:") || line.contains("failure:"));
    let line = failed.or_else(|| lines.iter().rfind(|line| line.contains("error:"))).or(lines.last());
    let text = line.map_or("", |line| {
        let line = line.rsplit_once("failed: ").map_or(*line, |(_, why)| why);
        let line = line.split_once("error: ").map_or(line, |(_, why)| why);
        line.split_once("allocation failure: ").map_or(line, |(_, why)| why)
    });
    // A job_submit plugin prints the reason on a line of its own, and Slurm adds only this.
    let mut reasons = lines.iter().rev().filter_map(|line| line.split_once("error: ")).map(|(_, why)| why);
    if text == "Unspecified error"
        && let Some(plugin) = reasons.find(|why| !why.contains("Unspecified"))
    {
        return clean(plugin);
    }
    clean(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_has_its_kind_and_one_line() {
        let error = of_command(
            "sbatch",
            "sbatch: error: invalid partition specified: nope\nsbatch: error: Batch job submission failed: Invalid partition name specified\n",
            1,
        );
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert_eq!(error.to_string(), "sbatch: Invalid partition name specified");
        let error = of_command(
            "sbatch",
            "sbatch: error: site policy: no\nsbatch: error: Batch job submission failed: Unspecified error\n",
            1,
        );
        assert_eq!(error.to_string(), "sbatch: site policy: no");
        assert_eq!(
            of_command(
                "squeue",
                "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
                1
            )
            .kind(),
            ErrorKind::Unreachable
        );
    }

    #[test]
    fn only_a_clear_refusal_is_one() {
        let failed = |why: &str| verdict(1, &format!("sbatch: error: Batch job submission failed: {why}\n"));
        for why in [
            "Invalid qos specification",
            "Requested node configuration is not available",
            "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
            "Requested time limit is invalid (missing or exceeds some limit)",
            "Access/permission denied",
            "Unspecified error",
        ] {
            assert_eq!(failed(why), Verdict::Refused, "{why}");
        }
        for why in [
            "Socket timed out on send/recv operation",
            "Unexpected message received",
            "Message receive failure",
            "Zero Bytes were transmitted or received",
            "Unable to contact slurm controller (receive failure)",
            "Unable to contact slurm controller (send failure)",
            "Connection reset by peer",
            "Connection timed out",
            "Transport endpoint is not connected",
            "Broken pipe",
            "Insane message length",
            "Protocol authentication error",
            "Resource temporarily unavailable",
            "Slurm temporarily unable to accept job, sleeping and retrying; try again later",
        ] {
            assert_eq!(failed(why), Verdict::Unknown, "{why}");
        }
        let plugin = "sbatch: error: no account: contact help@site\nsbatch: error: Batch job submission failed: Unspecified error";
        assert_eq!(verdict(1, plugin), Verdict::Refused);
        let lost = "sbatch: error: slurm_receive_msg: Socket timed out\nsbatch: error: Batch job submission failed: Unspecified error";
        assert_eq!(verdict(1, lost), Verdict::Unknown);
        assert_eq!(failed("Unable to contact slurm controller (connect failure)"), Verdict::NotSent);
        let both = "sbatch: error: slurm_receive_msg: Socket timed out on send/recv operation\nsbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)";
        assert_eq!(verdict(1, both), Verdict::Unknown);
        assert_eq!(verdict(127, "sh: 1: sbatch: not found\n"), Verdict::Refused);
        assert_eq!(verdict(1, "sbatch: unrecognized option '--nope'\n"), Verdict::Refused);
        assert_eq!(verdict(1, "sbatch: error: invalid partition specified: nope\n"), Verdict::Refused);
        for (code, said) in
            [(1, ""), (0, ""), (137, "sbatch: error: x"), (124, ""), (93, ""), (255, "sbatch: error: x")]
        {
            assert_eq!(verdict(code, said), Verdict::Unknown, "{code} {said}");
        }
    }

    #[test]
    fn escapes_do_not_reach_the_terminal() {
        assert_eq!(essence("\u{1b}[31msbatch: error: a\u{7}b"), "ab");
    }
}
