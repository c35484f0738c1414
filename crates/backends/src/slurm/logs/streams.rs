//! Line labels. `srun -l` puts the task's number before each line (` 3: `); the script's first line defines
//! what a task is.

use weftrun_core::log::SourceId;

/// Largest number of tasks of a job, ten times the largest known run.
const MOST_TASKS: u32 = 1 << 20;

/// The script's first line: `#weftrun log=1 attempt=0 labels=rank tasks=worker:32`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Number of the attempt.
    pub attempt: u32,
    labels: Labels,
    /// Roles with their numbers of tasks, in task order.
    roles: Vec<(String, u32)>,
    /// Ranks of the job, if the script names them.
    ranks: Option<u32>,
    /// The files of the tasks, if their output is not in this file.
    files: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Labels {
    Rank,
    Node,
    None,
}

/// The writer of a line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    /// The script, srun, Slurm.
    Batch,
    Task(u32),
}

impl Header {
    /// Parses the line; none if it is not a header.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(line.strip_prefix(b"#weftrun log=1 ")?).ok()?;
        // A path may contain blanks, so it is the last field.
        let (text, files) = match text.split_once(" files=") {
            Some((text, files)) => (text, Some(files.trim_end_matches('\n').to_owned())),
            None => (text, None),
        };
        let value =
            |key: &str| text.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
        let labels = match value("labels")? {
            "rank" => Labels::Rank,
            "node" => Labels::Node,
            _ => Labels::None,
        };
        let role = |part: &str| {
            part.rsplit_once(':').and_then(|(name, tasks)| Some((name.to_owned(), tasks.parse().ok()?)))
        };
        let roles = value("tasks")?.split(',').map(role).collect::<Option<Vec<_>>>()?;
        // A program can print such a line too; the script never writes a sum beyond what any job has.
        let tasks = roles.iter().try_fold(0u32, |sum, (_, tasks)| sum.checked_add(*tasks));
        tasks.filter(|tasks| *tasks <= MOST_TASKS)?;
        let ranks = value("ranks").and_then(|ranks| ranks.parse().ok());
        Some(Self { attempt: value("attempt")?.parse().ok()?, labels, roles, ranks, files })
    }

    /// Returns the stream of a line, and the line without its label.
    pub fn stream_of<'a>(&self, line: &'a [u8]) -> (Stream, &'a [u8]) {
        let blanks = line.iter().take_while(|byte| **byte == b' ').count();
        let rest = line.get(blanks..).unwrap_or_default();
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let number =
            rest.get(..digits).and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<u32>().ok());
        let text = rest.get(digits..).and_then(|rest| rest.strip_prefix(b": "));
        match (number, text) {
            (Some(task), Some(text))
                if self.labels != Labels::None && self.files.is_none() && task < self.tasks() =>
            {
                (Stream::Task(task), text)
            }
            _ => (Stream::Batch, line),
        }
    }

    /// Returns whether another header can be of the same job after a requeue: it differs only in the attempt.
    pub fn continues_as(&self, later: &Self) -> bool {
        later.attempt > self.attempt
            && (self.labels, &self.roles, &self.files) == (later.labels, &later.roles, &later.files)
    }

    /// Returns the pattern of the files of the tasks.
    pub fn files(&self) -> Option<&str> {
        self.files.as_deref()
    }

    /// Returns the header for the files of the tasks. A file that several tasks write has labels on its lines.
    pub fn of_files(&self) -> Self {
        Self { files: None, ..self.clone() }
    }

    /// Returns the number of ranks of the job, if known.
    pub fn ranks(&self) -> Option<u32> {
        self.ranks.or_else(|| (self.labels == Labels::Rank).then(|| self.tasks()))
    }

    /// Returns the ranks behind each node's label; none if labels are ranks, or if the nodes have different
    /// numbers of them.
    pub fn ranks_per_node(&self) -> Option<u32> {
        let (ranks, nodes) = (self.ranks?, self.tasks());
        (self.labels == Labels::Node && self.roles.len() == 1 && nodes > 0 && ranks % nodes == 0)
            .then_some(ranks / nodes)
    }

    /// Returns the ranks of each component of the job, given their numbers of nodes; none if the header does
    /// not contain them.
    pub fn ranks_of(&self, nodes: &[u32]) -> Option<Vec<u32>> {
        match (self.labels, nodes) {
            (_, [_]) => Some(vec![self.ranks()?]),
            (Labels::Rank, _) if nodes.len() == self.roles.len() => {
                Some(self.roles.iter().map(|(_, tasks)| *tasks).collect())
            }
            _ => None,
        }
    }

    /// Returns the number of tasks that srun numbers as the labels do; 0 for a job of several roles.
    pub fn tasks_of_one_role(&self) -> u32 {
        if self.roles.len() == 1 { self.tasks() } else { 0 }
    }

    /// Returns the number of tasks of all roles.
    pub fn tasks(&self) -> u32 {
        self.roles.iter().map(|(_, tasks)| *tasks).fold(0, u32::saturating_add)
    }

    pub fn source(&self, stream: &Stream) -> SourceId {
        let Stream::Task(task) = stream else { return SourceId::new("batch") };
        let word = if self.labels == Labels::Rank { "rank" } else { "node" };
        let mut source = SourceId::new(format!("{word}{task}"));
        let mut first = 0;
        for (role, tasks) in &self.roles {
            if *task < first + tasks {
                source.role.clone_from(role);
                source.replica = task - first;
                break;
            }
            first += tasks;
        }
        source.rank = (self.labels == Labels::Rank).then_some(*task);
        source
    }
}

/// Returns the exit codes of the first `count` tasks in a line of srun, as `srun: error: node1: tasks 0-1,3: Terminated`; none for any
/// other line. A signal is 128 and its number, as in a shell.
pub fn ends_in(line: &[u8], count: u32) -> Option<impl Iterator<Item = (u32, i32)>> {
    let text = std::str::from_utf8(line.strip_prefix(b"srun: error: ")?).ok()?.trim_end();
    let (_, text) = text.split_once(": task")?;
    let (tasks, how) = text.strip_prefix('s').unwrap_or(text).split_once(": ")?;
    let code = match how.strip_prefix("Exited with exit code ") {
        Some(code) => code.parse().ok()?,
        None => 128 + SIGNALS.iter().find(|(word, _)| how.starts_with(word))?.1,
    };
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse::<u32>().ok()?, last.trim().parse::<u32>().ok()?);
        (last < MOST_TASKS).then_some(first..last.saturating_add(1).min(count))
    };
    let ranges: Vec<_> = tasks.split(',').map(range).collect::<Option<_>>()?;
    // A job wrote the line: it may name a task again and again.
    Some(ranges.into_iter().flatten().take(count as usize).map(move |task| (task, code)))
}

/// The words of srun for the signals that end tasks.
const SIGNALS: [(&str, i32); 8] = [
    ("Terminated", 15),
    ("Killed", 9),
    ("Aborted", 6),
    ("Segmentation fault", 11),
    ("Bus error", 7),
    ("Interrupt", 2),
    ("Illegal instruction", 4),
    ("Floating point exception", 8),
];
