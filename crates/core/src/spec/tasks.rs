//! Jobs of many tasks: an array of numbers, or a sweep over the values of parameters.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{EnvVar, JobSpec};

/// Largest number of tasks of a sweep, and of an array where each task is a job of its own.
pub const MAX_TASKS: u32 = 1000;
/// The variable with the number of a task.
pub const TASK_VARIABLE: &str = "WEFTRUN_TASK";
/// The variable with the number of tasks of the job.
pub const TASKS_VARIABLE: &str = "WEFTRUN_TASKS";
/// Most bytes of the name of a parameter.
const LONGEST_NAME: usize = 64;
/// The placeholder of the number of a task in a command.
pub(crate) const TASK: &str = "task";

/// One parameter of a sweep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Parameter {
    /// Its name: lower-case letters, digits and `_`.
    pub name: String,
    /// Its values, as written.
    pub values: Vec<String>,
}

impl Parameter {
    /// Returns the variable that holds its value in a task: `WEFTRUN_SWEEP_LR` for `lr`.
    pub fn variable(&self) -> String {
        format!("WEFTRUN_SWEEP_{}", self.name.to_ascii_uppercase())
    }
}

/// The numbers of a job's tasks, and how many of them run at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tasks {
    /// First and last number and step, of each part of the list.
    parts: Vec<(u32, u32, u32)>,
    /// Largest number of tasks that run at once; none for no limit.
    pub parallel: Option<u32>,
}

impl Tasks {
    /// Reads a list as `sbatch --array` does: `0-31,40,50-60:2%4`.
    ///
    /// ```
    /// use weftrun_core::spec::Tasks;
    /// let tasks = Tasks::parse("0-6:2,9%2").ok_or("not a list")?;
    /// assert_eq!((tasks.count(), tasks.parallel), (5, Some(2)));
    /// assert_eq!(Tasks::parse("1,3,5-7:2,1").map(|tasks| tasks.count()), Some(4));
    /// assert!(tasks.numbers().eq([0, 2, 4, 6, 9]));
    /// # Ok::<(), &str>(())
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        let number = |text: &str| {
            let plain = !text.is_empty() && text.len() < 10 && text.bytes().all(|b| b.is_ascii_digit());
            plain.then(|| text.parse::<u32>().ok()).flatten()
        };
        let positive = |text: &str| number(text).filter(|number| *number > 0);
        let (list, parallel) = match text.split_once('%') {
            // With `%0` no task would start.
            Some((list, most)) => (list, Some(positive(most)?)),
            None => (text, None),
        };
        let part = |part: &str| {
            let Some((first, rest)) = part.split_once('-') else {
                return number(part).map(|one| (one, one, 1));
            };
            let (last, step) = match rest.split_once(':') {
                Some((last, step)) => (last, positive(step)?),
                None => (rest, 1),
            };
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some((first, last, step))
        };
        Some(Self { parts: list.split(',').map(part).collect::<Option<_>>()?, parallel })
    }

    /// Returns how many tasks there are: a number that stands twice in a list is one task.
    pub fn count(&self) -> u32 {
        // More than any cluster's arrays hold.
        const MOST_COMPARED: u32 = 1 << 22;
        let size = |(first, last, step): &(u32, u32, u32)| (last - first) / step + 1;
        let sum = self.parts.iter().map(size).fold(0, u32::saturating_add);
        if self.parts.len() < 2 || sum > MOST_COMPARED {
            return sum;
        }
        u32::try_from(self.numbers().collect::<BTreeSet<_>>().len()).unwrap_or(u32::MAX)
    }

    /// Returns how many different tasks there are, where there are few enough to compare them.
    pub fn different(&self) -> u32 {
        self.few().and_then(|few| u32::try_from(few.len()).ok()).unwrap_or_else(|| self.count())
    }

    /// Returns the numbers of the tasks, in the order of the list.
    pub fn numbers(&self) -> impl Iterator<Item = u32> {
        self.parts.iter().flat_map(|(first, last, step)| {
            (*first..=*last).step_by(usize::try_from(*step).unwrap_or(usize::MAX))
        })
    }

    /// Returns the numbers once each, in order; none where there are too many for a job each.
    pub fn few(&self) -> Option<BTreeSet<u32>> {
        (self.count() <= MAX_TASKS).then(|| self.numbers().collect())
    }

    /// Returns the list as `sbatch --array` reads it.
    pub fn to_array(&self) -> String {
        let part = |(first, last, step): &(u32, u32, u32)| match (first == last, step) {
            (true, _) => first.to_string(),
            (false, 1) => format!("{first}-{last}"),
            (false, step) => format!("{first}-{last}:{step}"),
        };
        let list: Vec<String> = self.parts.iter().map(part).collect();
        let parallel = self.parallel.map(|most| format!("%{most}")).unwrap_or_default();
        format!("{}{parallel}", list.join(","))
    }
}

/// A piece of a word of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece<'t> {
    /// Text, taken literally.
    Text(&'t str),
    /// The value of this variable of the task.
    Variable(String),
}

impl JobSpec {
    /// Returns the tasks of a job of many; none for a job of one, and for a list that cannot be read.
    pub fn tasks(&self) -> Option<Tasks> {
        let mut tasks = match &self.array {
            Some(array) => Tasks::parse(array)?,
            None if self.sweep.is_empty() => return None,
            None => Tasks { parts: vec![(0, self.combinations()?.checked_sub(1)?, 1)], parallel: None },
        };
        tasks.parallel = self.parallel.or(tasks.parallel);
        Some(tasks)
    }

    /// Returns the number of combinations of the sweep's values; none above what a number holds.
    pub(crate) fn combinations(&self) -> Option<u32> {
        let mut sizes = self.sweep.iter().map(|parameter| u32::try_from(parameter.values.len()).ok());
        sizes.try_fold(1_u32, |product, size| product.checked_mul(size?))
    }

    /// Returns the values of a task: the last parameter of the sweep changes first.
    pub fn task_values(&self, task: u32) -> Vec<(&Parameter, &str)> {
        let mut rest = usize::try_from(task).unwrap_or(usize::MAX);
        let mut values: Vec<(&Parameter, &str)> = Vec::new();
        for parameter in self.sweep.iter().rev().filter(|parameter| !parameter.values.is_empty()) {
            let count = parameter.values.len();
            values.extend(parameter.values.get(rest % count).map(|value| (parameter, value.as_str())));
            rest /= count;
        }
        values.reverse();
        values
    }

    /// Returns the values of a task in one line: `lr=1e-3 seed=2`; empty without a sweep.
    pub fn task_line(&self, task: u32) -> String {
        let values = self.task_values(task);
        let pairs: Vec<String> =
            values.iter().map(|(parameter, value)| format!("{}={value}", parameter.name)).collect();
        pairs.join(" ")
    }

    /// Splits a word of a command at the placeholders `{NAME}` of the sweep's parameters and `{task}`. Other braces are text.
    pub fn pieces<'t>(&self, word: &'t str) -> Vec<Piece<'t>> {
        let variable = |name: &str| match self.sweep.iter().find(|parameter| parameter.name == name) {
            Some(parameter) => Some(parameter.variable()),
            None => (name == TASK).then(|| TASK_VARIABLE.to_owned()),
        };
        let (mut pieces, mut from) = (Vec::new(), 0);
        if self.tasks().is_some() {
            for (at, name) in placeholders(word) {
                let Some(variable) = variable(name) else { continue };
                pieces.extend(word.get(from..at).filter(|text| !text.is_empty()).map(Piece::Text));
                pieces.push(Piece::Variable(variable));
                from = at + name.len() + 2;
            }
        }
        pieces.extend(word.get(from..).filter(|text| !text.is_empty()).map(Piece::Text));
        pieces
    }

    /// Returns the placeholders of the commands that no parameter has.
    pub(crate) fn unknown_placeholders(&self) -> BTreeSet<&str> {
        let words = self.roles.iter().flat_map(|role| &role.command);
        let known = |name: &str| name == TASK || self.sweep.iter().any(|parameter| parameter.name == name);
        words.flat_map(|word| placeholders(word)).map(|(_, name)| name).filter(|name| !known(name)).collect()
    }

    /// Returns the variables of a task.
    pub(crate) fn task_variables(&self, task: u32) -> Vec<(String, String)> {
        let count = self.tasks().map_or(1, |tasks| tasks.count());
        let own =
            [(TASK_VARIABLE.to_owned(), task.to_string()), (TASKS_VARIABLE.to_owned(), count.to_string())];
        let values = self.task_values(task).into_iter();
        own.into_iter().chain(values.map(|(name, value)| (name.variable(), value.to_owned()))).collect()
    }

    /// Returns a word of a command with the values of a task in place of its placeholders.
    #[must_use]
    pub fn filled(&self, word: &str, task: u32) -> String {
        let variables = self.task_variables(task);
        let value = |piece: Piece<'_>| match piece {
            Piece::Text(text) => text.to_owned(),
            Piece::Variable(name) => {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| value.clone()).unwrap_or_default()
            }
        };
        self.pieces(word).into_iter().map(value).collect()
    }

    /// Returns one task of it as a job of its own, with the task's number and values in its environment and its command.
    #[must_use]
    pub fn task(&self, task: u32) -> Self {
        let variables = self.task_variables(task);
        let mut job = self.clone();
        job.name = format!("{}-{task}", self.name);
        for word in job.roles.iter_mut().flat_map(|role| &mut role.command) {
            *word = self.filled(word, task);
        }
        (job.array, job.parallel) = (None, None);
        job.sweep.clear();
        job.env.retain(|known| variables.iter().all(|(name, _)| known.name != *name));
        job.env.extend(variables.into_iter().map(|(name, value)| EnvVar { name, value }));
        job
    }
}

/// Returns each `{name}` of a word with its place.
fn placeholders(word: &str) -> impl Iterator<Item = (usize, &str)> {
    word.match_indices('{').filter_map(|(at, _)| {
        let rest = word.get(at + 1..)?;
        // No further than a name is long: a word of many braces is read once.
        let end = rest.bytes().take(LONGEST_NAME + 1).position(|byte| byte == b'}')?;
        let name = rest.get(..end)?;
        is_name(name).then_some((at, name))
    })
}

/// Returns whether a text can be the name of a parameter.
pub(crate) fn is_name(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    text.len() <= LONGEST_NAME
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Role;

    fn sweep() -> JobSpec {
        let command = ["train.py", "--lr={lr}", "{task}:{seed}", "{other}", "{", "{lr", "a{{lr}}b"];
        let mut job = JobSpec::builder("lr").role(Role::worker().command(command)).build().unwrap();
        let parameter = |name: &str, values: &[&str]| Parameter {
            name: name.to_owned(),
            values: values.iter().map(|value| (*value).to_owned()).collect(),
        };
        job.sweep = vec![parameter("lr", &["1e-3", "1e-4"]), parameter("seed", &["1", "2", "3"])];
        job
    }

    #[test]
    fn a_task_of_a_sweep_has_its_values() {
        let job = sweep();
        assert_eq!(job.tasks().map(|tasks| tasks.to_array()).as_deref(), Some("0-5"));
        let lines: Vec<String> = (0..6).map(|task| job.task_line(task)).collect();
        assert_eq!(lines[0], "lr=1e-3 seed=1");
        assert_eq!(lines[2], "lr=1e-3 seed=3");
        assert_eq!(lines[5], "lr=1e-4 seed=3");
        assert_eq!(lines.iter().collect::<BTreeSet<_>>().len(), 6, "each combination once");
        let task = job.task(4);
        assert_eq!(task.name, "lr-4");
        assert_eq!(
            task.roles[0].command,
            ["train.py", "--lr=1e-4", "4:2", "{other}", "{", "{lr", "a{1e-4}b"],
            "only the names of parameters are placeholders"
        );
        let env: Vec<String> = task.env.iter().map(|var| format!("{}={}", var.name, var.value)).collect();
        assert_eq!(
            env,
            ["WEFTRUN_TASK=4", "WEFTRUN_TASKS=6", "WEFTRUN_SWEEP_LR=1e-4", "WEFTRUN_SWEEP_SEED=2"]
        );
        assert!(task.tasks().is_none() && job.unknown_placeholders().into_iter().eq(["other"]));
    }

    #[test]
    fn a_job_of_one_task_keeps_its_braces() {
        let mut job = sweep();
        job.sweep.clear();
        assert_eq!(job.pieces("{task}"), [Piece::Text("{task}")]);
    }

    #[test]
    fn a_word_of_braces_is_read_in_linear_time() {
        let word = "{".repeat(1 << 20);
        let began = std::time::Instant::now();
        assert_eq!(placeholders(&word).count(), 0);
        assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
        let longest = "a".repeat(LONGEST_NAME);
        let found = [format!("{{{longest}}}"), format!("{{{longest}a}}")];
        let count = |word: &String| placeholders(word).count();
        assert_eq!(found.iter().map(count).collect::<Vec<_>>(), [1, 0]);
    }

    #[test]
    fn lists_are_read_as_sbatch_reads_them() {
        for text in ["0-31", "7", "1,3,5-7", "0-100:10", "0-31%4", "1,2-4:2,9%2"] {
            let tasks = Tasks::parse(text).unwrap();
            assert_eq!(tasks.to_array(), text);
            assert_eq!(tasks.numbers().count(), usize::try_from(tasks.count()).unwrap());
        }
        for text in ["", "a", "-1", "5-1", "1,,2", "0-3%0", "0-3%", "0-9:0", "1-", "1 - 2", "9999999999"] {
            assert!(Tasks::parse(text).is_none(), "{text}");
        }
        let many = Tasks::parse("0-999999999,0-999999999,0-999999999,0-999999999,0-999999999").unwrap();
        assert_eq!((many.count(), many.few()), (u32::MAX, None), "nothing is built of it");
    }
}
