//! Rows of `squeue`, `sacct` and `scontrol show job`. The requested text form is the same in every release
//! from 22.05 to 26.05: separators that no name can contain, epoch seconds, free text last.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use weftrun_core::fabric::Fabric;
use weftrun_core::job::{JobPhase, SubmissionId};
use weftrun_core::log::clean_text;
use weftrun_core::spec::Tasks;
use weftrun_core::{Error, ErrorKind, Result};

use super::ids::JobId;

/// Separates two fields: squeue and sacct accept any separator (seen on 22.05, 24.11, 26.05).
pub const FIELD: char = '\u{1f}';
/// Ends a row of squeue, since a name may contain newlines.
pub const ROW: char = '\u{1e}';

/// The columns of a [`Job`] for `squeue -o`; the free texts are last.
const QUEUE: [&str; 14] =
    ["%i", "%A", "%K", "%T", "%r", "%N", "%D", "%P", "%V", "%S", "%e", "%u", "%k", "%j"];
/// The columns of a [`Job`] for `sacct --format`.
const ACCOUNTING: [&str; 12] = [
    "JobID",
    "JobIDRaw",
    "State",
    "ExitCode",
    "NodeList",
    "NNodes",
    "Partition",
    "Submit",
    "Start",
    "End",
    "SubmitLine",
    "JobName",
];

/// One row: a job, a task of an array, a component of a heterogeneous job, or one run of a requeued job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Job {
    /// The id as printed (`50_3`, `55+1`).
    pub printed: String,
    /// Number of the job, array or first component.
    pub number: u64,
    /// Task of an array, if it is one task.
    pub task: Option<u64>,
    /// Component of a heterogeneous job.
    pub component: Option<u32>,
    /// State word.
    pub state: String,
    /// Slurm's reason for the state.
    pub reason: String,
    /// Node list, not expanded.
    pub nodes: String,
    /// Number of nodes.
    pub node_count: u32,
    pub partition: String,
    /// Time of submission.
    pub submitted: Option<Timestamp>,
    /// Actual or expected start.
    pub started: Option<Timestamp>,
    /// Actual or expected end.
    pub ended: Option<Timestamp>,
    /// Owner.
    pub user: String,
    /// weftrun's marker, if the row contains it.
    pub marker: Option<Marker>,
    pub name: String,
    /// Exit code, if the source has it.
    pub exit_code: Option<i32>,
    /// Number of requeues, where `scontrol` was asked for them.
    pub restarts: u32,
}

#[cfg(test)]
impl Job {
    /// Makes a task of the array 7.
    pub fn task_of_array(number: u64, state: &str) -> Self {
        Self {
            printed: format!("7_{number}"),
            number: 7,
            task: Some(number),
            state: state.to_owned(),
            ..Self::default()
        }
    }
}

impl Job {
    /// Returns the list of the tasks that a row of an array's pending part stands for.
    fn pending_tasks(&self) -> Option<&str> {
        self.printed.split_once("_[")?.1.strip_suffix(']')
    }

    /// Returns whether it is a part of an array.
    pub fn is_of_array(&self) -> bool {
        self.task.is_some() || self.pending_tasks().is_some()
    }

    /// Returns how many tasks the row stands for.
    pub fn tasks(&self) -> u32 {
        self.pending_tasks().and_then(Tasks::parse).map_or(1, |tasks| tasks.count())
    }

    /// Returns the numbers of the waiting tasks that the row stands for; none where it is one job or one task, or stands for more
    /// than can be listed.
    fn waiting_numbers(&self) -> Option<BTreeSet<u32>> {
        self.pending_tasks().and_then(Tasks::parse)?.few()
    }

    /// Returns the numbers of the tasks that the row stands for, as far as they can be listed.
    pub fn task_numbers(&self) -> impl Iterator<Item = u64> {
        self.task.into_iter().chain(self.waiting_numbers().into_iter().flatten().map(u64::from))
    }

    /// Returns a row for each task that it stands for; itself where it is one job, or stands for more than can be listed.
    pub fn each_task(&self) -> Vec<Self> {
        let Some(tasks) = self.waiting_numbers() else { return vec![self.clone()] };
        let one = |task: u32| Self {
            printed: format!("{}_{task}", self.number),
            task: Some(task.into()),
            ..self.clone()
        };
        tasks.into_iter().map(one).collect()
    }
}

/// The comment of a job that weftrun submitted: `weftrun:SUBMISSION:FABRIC`, for several components `:ROLE,ROLE`, and for a
/// job with labels a further `:KEY=VALUE,KEY=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// The submission that created it.
    pub submission: SubmissionId,
    /// The fabric it was planned for, if that is known.
    pub fabric: Option<Fabric>,
    /// The role of each component, where it has several.
    pub roles: Vec<String>,
    /// The labels of the job.
    pub labels: BTreeMap<String, String>,
}

impl Marker {
    /// Makes the marker of a submission of which nothing else is known.
    pub fn of(submission: &SubmissionId) -> Self {
        Self { submission: submission.clone(), fabric: None, roles: Vec::new(), labels: BTreeMap::new() }
    }

    /// Returns the comment.
    pub fn text(&self) -> String {
        let labels: Vec<String> = self.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let mut text = format!("weftrun:{}:{}", self.submission, self.fabric.map_or("", Fabric::as_str));
        match self.roles.as_slice() {
            [_, _, ..] => text.push_str(&format!(":{}", self.roles.join(","))),
            _ if !labels.is_empty() => text.push(':'),
            _ => {}
        }
        if !labels.is_empty() {
            text.push_str(&format!(":{}", labels.join(",")));
        }
        text
    }

    /// Finds the marker in a comment or a command line.
    pub fn find(text: &str) -> Option<Self> {
        let rest = text.split_once("weftrun:")?.1;
        let end = rest
            .find(|c: char| {
                !c.is_ascii_alphanumeric() && !matches!(c, ':' | ',' | '-' | '=' | '.' | '_' | '/')
            })
            .unwrap_or(rest.len());
        let mut parts = rest.get(..end)?.split(':');
        let (submission, fabric) = (parts.next()?, parts.next()?);
        let roles = parts.next().unwrap_or_default();
        let roles = roles.split(',').filter(|role| !role.is_empty()).map(str::to_owned).collect();
        let labels = parts.next().unwrap_or_default().split(',').filter_map(|pair| pair.split_once('='));
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let fabric = serde_json::from_value(fabric.into()).ok();
        Some(Self { submission: SubmissionId::parse(submission)?, fabric, roles, labels })
    }
}

impl Job {
    /// Returns the id of the whole job that this row belongs to.
    pub fn whole(&self) -> JobId {
        JobId::whole(self.number)
    }

    /// Returns the phase of its state.
    pub fn phase(&self) -> JobPhase {
        super::state::phase(&self.state, &self.reason)
    }

    /// Returns whether the row belongs to this id: the whole job, or one task of it.
    pub fn belongs_to(&self, id: &JobId) -> bool {
        self.number == id.number && (id.task.is_none() || id.task == self.task)
    }
}

/// Returns the argument of squeue's `-o`.
pub fn queue_format() -> String {
    let mut format = QUEUE.join(&FIELD.to_string());
    format.push(ROW);
    format
}

/// Returns the argument of sacct's `--format`.
pub fn accounting_format() -> String {
    ACCOUNTING.join(",")
}

/// Parses squeue's rows; a malformed row is skipped. Text without a single row is not output of squeue:
/// treating it as an empty queue would report all jobs as gone.
///
/// # Errors
/// [`ErrorKind::Protocol`] with the beginning of such a text.
pub fn queue(text: &str) -> Result<Vec<Job>> {
    let rows: Vec<Job> =
        text.split(ROW).filter_map(|text| row(&QUEUE, text.trim_start_matches('\n'))).collect();
    known_output("squeue", "squeue --me", text, rows)
}

/// Returns what was read of the output of a command, unless nothing was: text without a single job is not its output.
fn known_output<T>(program: &str, try_it: &str, text: &str, read: Vec<T>) -> Result<Vec<T>> {
    if !read.is_empty() || text.trim().is_empty() {
        return Ok(read);
    }
    let begins: String = text.trim().chars().take(80).collect();
    Err(Error::new(ErrorKind::Protocol, format!("unexpected {program} output"))
        .with("it begins with", clean_text(&begins))
        .hint(format!("run `{try_it}` on that host: another program replaces it, or weftrun does not support its release")))
}

/// Parses sacct's rows, oldest run first. A name or the submit line may contain newlines, which continue
/// their row.
///
/// # Errors
/// As [`queue`].
pub fn accounting(text: &str) -> Result<Vec<Job>> {
    let begins = |line: &str| {
        let mut fields = line.split(FIELD);
        let id = fields.next().and_then(JobId::parse);
        let raw = fields.next().filter(|raw| !raw.is_empty() && raw.bytes().all(|b| b.is_ascii_digit()));
        id.is_some() && raw.is_some() && fields.next().is_some()
    };
    let (mut rows, mut open) = (Vec::new(), String::new());
    for line in text.lines() {
        if begins(line) && !open.is_empty() {
            rows.extend(row(&ACCOUNTING, &open));
            open.clear();
        }
        if !open.is_empty() {
            open.push('\n');
        }
        open.push_str(line);
    }
    rows.extend(row(&ACCOUNTING, &open));
    known_output("sacct", "sacct", text, rows)
}

/// Parses a row of squeue or sacct by its columns.
fn row(columns: &[&str], row: &str) -> Option<Job> {
    let fields: Vec<&str> = row.splitn(columns.len(), FIELD).collect();
    if fields.len() < columns.len() {
        return None;
    }
    let mut job = Job::default();
    for (column, field) in columns.iter().zip(fields) {
        match *column {
            "%i" | "JobID" => {
                let id = JobId::parse(field)?;
                (job.number, job.task, job.component) = (id.number, id.task, component(field));
                field.clone_into(&mut job.printed);
            }
            "%K" => job.task = field.parse().ok(),
            "%T" | "State" => field.clone_into(&mut job.state),
            "%r" => field.clone_into(&mut job.reason),
            "NodeList" if field == "None assigned" => {}
            "%N" | "NodeList" => field.clone_into(&mut job.nodes),
            "%D" | "NNodes" => job.node_count = field.parse().unwrap_or(0),
            "%P" | "Partition" => field.clone_into(&mut job.partition),
            "%V" | "Submit" => job.submitted = time(field),
            "%S" | "Start" => job.started = time(field),
            "%e" | "End" => job.ended = time(field),
            "%u" => field.clone_into(&mut job.user),
            "%k" | "SubmitLine" => job.marker = Marker::find(field),
            "%j" | "JobName" => field.clone_into(&mut job.name),
            "ExitCode" => job.exit_code = super::state::exit_code(field),
            _ => {}
        }
    }
    Some(job)
}

fn component(printed: &str) -> Option<u32> {
    printed.split_once('+')?.1.parse().ok()
}

/// Parses epoch seconds, as `SLURM_TIME_FORMAT=%s` prints them; `N/A`, `Unknown` and `0` are none.
pub fn time(text: &str) -> Option<Timestamp> {
    text.trim()
        .parse()
        .ok()
        .filter(|seconds| *seconds > 0)
        .and_then(|seconds| Timestamp::from_second(seconds).ok())
}

/// What only `scontrol show job` reports of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// State word.
    pub state: String,
    /// Task of an array, if it is one task.
    pub task: Option<u64>,
    /// Exit code as in a shell: 128 + signal for a signal.
    pub exit_code: Option<i32>,
    /// The highest exit code of its steps.
    pub step_exit_code: Option<i32>,
    /// Number of requeues.
    pub restarts: u32,
    /// File of its standard output.
    pub stdout: Option<String>,
    /// File of its standard error, if different.
    pub stderr: Option<String>,
    /// Further display rows: key, value.
    pub facts: Vec<(String, String)>,
}

/// Parses `scontrol show job -d ID`, also with `-o`. Without `-o` each path is on a line of its own and may
/// contain blanks.
///
/// # Errors
/// As [`queue`].
pub fn shown(text: &str) -> Result<Vec<Shown>> {
    let mut jobs = Vec::new();
    for line in text.lines() {
        if line.starts_with("JobId=") {
            jobs.push(Shown::default());
        }
        if let Some(job) = jobs.last_mut() {
            shown_line(job, line);
        }
    }
    known_output("scontrol", "scontrol show job", text, jobs)
}

fn shown_line(job: &mut Shown, line: &str) {
    let line = line.trim();
    for (key, slot) in [("StdOut=", &mut job.stdout), ("StdErr=", &mut job.stderr)] {
        if let Some(value) = path_value(line, key) {
            *slot = known(value).map(|path| without_no_task(&path));
        }
    }
    for word in line.split(' ') {
        let Some((key, value)) = word.split_once('=') else { continue };
        match key {
            "JobState" => value.clone_into(&mut job.state),
            "ArrayTaskId" => job.task = value.parse().ok(),
            "ExitCode" => job.exit_code = super::state::exit_code(value),
            "DerivedExitCode" => job.step_exit_code = super::state::exit_code(value),
            "Restarts" => job.restarts = value.parse().unwrap_or(0),
            "Account" | "QOS" | "TimeLimit" | "Dependency" | "Features" | "Reservation" | "TresPerNode"
            | "Priority" => {
                if let Some(value) = known(value) {
                    job.facts.push((key.to_owned(), value));
                }
            }
            _ => {}
        }
    }
}

/// Returns the path of a key: up to the end of the line, or (with `-o`) up to the next key.
fn path_value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let at = line.find(key).filter(|at| *at == 0 || line.as_bytes().get(at - 1) == Some(&b' '))?;
    let value = line.get(at + key.len()..)?;
    let next = value.match_indices(' ').find(|(at, _)| {
        let word = value.get(at + 1..).unwrap_or_default();
        let end = word.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(word.len());
        end > 0 && word.as_bytes().get(end) == Some(&b'=')
    });
    Some(next.map_or(value, |(at, _)| value.get(..at).unwrap_or(value)).trim_end())
}

/// Returns the path of a log with `%a` in place of the number that Slurm has for the tasks of an array that wait (`NO_VAL`).
pub fn without_no_task(path: &str) -> String {
    path.replace("4294967294", "%a")
}

fn known(value: &str) -> Option<String> {
    (!matches!(value, "" | "(null)" | "N/A" | "None" | "Unknown")).then(|| value.to_owned())
}

#[cfg(test)]
mod tests;
