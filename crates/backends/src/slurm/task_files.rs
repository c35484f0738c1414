//! Output files of single tasks or nodes, named by a pattern of `srun --output`: `%j/%N-%t.log`.
//!
//! srun replaces the patterns of the node and the task. The script replaces those of the job (`%j`, `%A`, `%a`, `%x`,
//! `%u`), since it creates the folders, which Slurm before 25.05 does not, and since srun of 22.05 writes `(null)`
//! for `%x`.

use weftrun_core::{Error, ErrorKind, Result};

use super::quote;

/// A pattern, split into parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskFiles(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    /// A shell expression of the script, for use inside double quotes.
    Shell(String),
    /// The short name of the node.
    Node,
    /// The number of the node in the job, with its width.
    NodeNumber(String),
    /// The number of the task, with its width.
    Task(String),
}

/// The task or the node that a file belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    pub node: Option<String>,
    pub node_number: Option<u32>,
    pub task: Option<u32>,
}

impl TaskFiles {
    /// Parses the pattern of a job.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSpec`] for a pattern that Slurm does not support, or that gives two jobs the same file.
    pub fn of_job(key: &str, pattern: &str, name: &str, array: bool) -> Result<Self> {
        let bad = |message: String, hint: &str| {
            Err(Error::new(ErrorKind::InvalidSpec, format!("`{key}`: {message}"))
                .with("value", pattern.escape_debug())
                .hint(hint.to_owned()))
        };
        if pattern.chars().any(|c| c.is_control() || c == '\\') {
            return bad(
                "a file name may hold no control character and no `\\`".to_owned(),
                "write a path such as `%j/%N-%t.log`",
            );
        }
        if pattern.is_empty() || pattern.ends_with('/') || pattern.starts_with('~') {
            return bad(
                "it names no file".to_owned(),
                "write a path such as `%j/%N-%t.log`; `~` is not expanded, and a relative path is below the job's folder",
            );
        }
        let mut parts = Vec::new();
        for (width, kind) in split(pattern) {
            if let Kind::Pattern(digit @ '0'..='9') = kind {
                return bad(
                    format!("`%{width}{digit}`: a number has at most 99 digits"),
                    "write a width such as `%4t`",
                );
            }
            let number = |expression: &str| {
                Part::Shell(match width.parse::<u8>() {
                    Ok(width) => format!("$(printf %0{width}d \"{expression}\")"),
                    Err(_) => expression.to_owned(),
                })
            };
            parts.push(match kind {
                Kind::Text(text) => Part::Text(text.to_owned()),
                Kind::Pattern('%') => Part::Text("%".to_owned()),
                Kind::Pattern('j') => number("$SLURM_JOB_ID"),
                Kind::Pattern('A') => number("${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}"),
                Kind::Pattern('a') => number("${SLURM_ARRAY_TASK_ID:-0}"),
                Kind::Pattern('u') => Part::Shell("$(id -un)".to_owned()),
                Kind::Pattern('x') => Part::Text(name.to_owned()),
                Kind::Pattern('N') => Part::Node,
                Kind::Pattern('n') => Part::NodeNumber(width.to_owned()),
                Kind::Pattern('t') => Part::Task(width.to_owned()),
                Kind::Pattern(c @ ('J' | 's')) => {
                    return bad(format!("`%{c}` holds the number of a step"), "name the job with `%j`");
                }
                Kind::Pattern(c) => {
                    return bad(
                        format!("`%{c}` is not a pattern of Slurm"),
                        "the patterns are %j, %A, %a, %x, %u, %N, %n and %t; `%%` is a percent sign",
                    );
                }
            });
        }
        let has = |letter: char| split(pattern).iter().any(|(_, kind)| *kind == Kind::Pattern(letter));
        match (has('j'), has('A'), has('a')) {
            (true, ..) | (_, true, true) => Ok(Self(parts)),
            (_, true, _) if !array => Ok(Self(parts)),
            (_, _, _) if array => bad(
                "the tasks of the array would write to the same file".to_owned(),
                "name the job with `%A_%a`",
            ),
            _ => bad("two jobs would write to the same file".to_owned(), "name the job with `%j`"),
        }
    }

    /// Parses the pattern that the script wrote into the log, which contains only the patterns that srun replaces.
    pub fn expanded(pattern: &str) -> Option<Self> {
        let parts = split(pattern).into_iter().map(|(width, kind)| match kind {
            Kind::Text(text) => Some(Part::Text(text.to_owned())),
            Kind::Pattern('%') => Some(Part::Text("%".to_owned())),
            Kind::Pattern('N') => Some(Part::Node),
            Kind::Pattern('n') => Some(Part::NodeNumber(width.to_owned())),
            Kind::Pattern('t') => Some(Part::Task(width.to_owned())),
            Kind::Pattern(_) => None,
        });
        Some(Self(parts.collect::<Option<_>>()?))
    }

    /// Returns whether a pattern differs between the tasks or nodes of a job.
    pub fn is_of_tasks(pattern: &str) -> bool {
        split(pattern).iter().any(|(_, kind)| matches!(kind, Kind::Pattern('N' | 'n' | 't')))
    }

    /// Returns whether the folder of a path depends on the job.
    pub fn has_folder_of_job(pattern: &str) -> bool {
        let folder = pattern.rsplit_once('/').map_or("", |(folder, _)| folder);
        split(folder).iter().any(|(_, kind)| matches!(kind, Kind::Pattern(_)))
    }

    /// Returns whether every task has its own file, so that no line needs a label.
    pub fn one_for_each_task(&self) -> bool {
        self.0.iter().any(|part| matches!(part, Part::Task(_)))
    }

    /// Returns the pattern as a word of the script's shell, below `root` if it is relative.
    pub fn word(&self, root: &str) -> String {
        let text = |part: &Part| match part {
            Part::Text(text) => in_quotes(&text.replace('%', "%%")),
            Part::Shell(expression) => expression.clone(),
            Part::Node => "%N".to_owned(),
            Part::NodeNumber(width) => format!("%{width}n"),
            Part::Task(width) => format!("%{width}t"),
        };
        self.below(root, &self.0.iter().map(text).collect::<String>())
    }

    /// Returns the file of the script itself, as Slurm names it for the batch step: the first node and task.
    pub fn word_of_batch(&self, root: &str) -> String {
        let zero = |width: &str| format!("{:0width$}", 0, width = width.parse().unwrap_or(1));
        let text = |part: &Part| match part {
            Part::Text(text) => in_quotes(text),
            Part::Shell(expression) => expression.clone(),
            Part::Node => "$SLURMD_NODENAME".to_owned(),
            Part::NodeNumber(width) | Part::Task(width) => zero(width),
        };
        self.below(root, &self.0.iter().map(text).collect::<String>())
    }

    /// Returns the lines of the script that create the folders.
    pub fn folders(&self, root: &str, nodes: u32, tasks: u32) -> String {
        let Some(last) =
            self.0.iter().rposition(|part| matches!(part, Part::Text(text) if text.contains('/')))
        else {
            return String::new();
        };
        let (mut path, mut loops) = (String::new(), Vec::new());
        for (at, part) in self.0.iter().enumerate().take(last + 1) {
            let mut counted = |name: &str, width: &str, most: u32| {
                let width: u8 = width.parse().unwrap_or(0);
                path.push_str(&format!("${name}"));
                loops.push(format!("{name} in $(seq -f %0{width}.0f 0 {})", most.saturating_sub(1)));
            };
            match part {
                Part::Text(text) if at == last => {
                    path.push_str(&in_quotes(text.rsplit_once('/').map_or("", |(folder, _)| folder)));
                }
                Part::Text(text) => path.push_str(&in_quotes(text)),
                Part::Shell(expression) => path.push_str(expression),
                Part::Node => {
                    path.push_str("$weftrun_n");
                    loops.push("weftrun_n in $(scontrol show hostnames \"$SLURM_JOB_NODELIST\")".to_owned());
                }
                Part::NodeNumber(width) => counted("weftrun_i", width, nodes),
                Part::Task(width) => counted("weftrun_t", width, tasks),
            }
        }
        loops.dedup();
        let opened: String = loops.iter().map(|each| format!("for {each}; do ")).collect();
        let closed = "; done".repeat(loops.len());
        format!("{opened}mkdir -p -- {} || :{closed}\n", self.below(root, &path))
    }

    fn below(&self, root: &str, path: &str) -> String {
        let absolute = matches!(self.0.first(), Some(Part::Text(text)) if text.starts_with('/'));
        if absolute { format!("\"{path}\"") } else { format!("{root}/\"{path}\"") }
    }

    /// Returns shell words that match the files.
    ///
    /// # Errors
    /// As [`quote::word`].
    pub fn glob(&self) -> Result<String> {
        let word = |part: &Part| match part {
            Part::Text(text) => quote::word(text),
            _ => Ok("*".to_owned()),
        };
        self.0.iter().map(word).collect()
    }

    /// Returns the owner of a file that has this pattern.
    pub fn owner(&self, path: &str) -> Option<Owner> {
        owner(&self.0, path)
    }
}

fn owner(parts: &[Part], path: &str) -> Option<Owner> {
    let Some((part, rest)) = parts.split_first() else {
        return path.is_empty().then(Owner::default);
    };
    let of_value = |allowed: fn(char) -> bool| {
        let longest = path.find(|c| !allowed(c)).unwrap_or(path.len());
        // Takes the longest value for which the rest matches, since node names may contain `-` and digits.
        let ends = path.get(..longest)?.char_indices().rev().map(|(at, c)| at + c.len_utf8());
        ends.into_iter().find_map(|end| {
            let (value, after) = path.split_at_checked(end)?;
            Some((value, owner(rest, after)?))
        })
    };
    match part {
        Part::Text(text) => owner(rest, path.strip_prefix(text.as_str())?),
        Part::Shell(_) => None,
        Part::Node => {
            let (value, mut found) = of_value(|c| c != '/')?;
            found.node = Some(value.to_owned());
            Some(found)
        }
        Part::NodeNumber(_) => {
            let (value, mut found) = of_value(|c| c.is_ascii_digit())?;
            found.node_number = Some(value.parse().ok()?);
            Some(found)
        }
        Part::Task(_) => {
            let (value, mut found) = of_value(|c| c.is_ascii_digit())?;
            found.task = Some(value.parse().ok()?);
            Some(found)
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind<'a> {
    Text(&'a str),
    Pattern(char),
}

/// Splits a path into texts and patterns, each with its width (`%4t`).
fn split(pattern: &str) -> Vec<(&str, Kind<'_>)> {
    let (mut parts, mut rest) = (Vec::new(), pattern);
    while let Some((before, after)) = rest.split_once('%') {
        if !before.is_empty() {
            parts.push(("", Kind::Text(before)));
        }
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len()).min(2);
        let (width, after) = after.split_at_checked(digits).unwrap_or(("", after));
        let mut letters = after.chars();
        match letters.next() {
            Some(letter) => parts.push((width, Kind::Pattern(letter))),
            None => parts.push((width, Kind::Pattern(' '))),
        }
        rest = letters.as_str();
    }
    if !rest.is_empty() {
        parts.push(("", Kind::Text(rest)));
    }
    parts
}

/// Returns a text for use inside double quotes.
fn in_quotes(text: &str) -> String {
    let mut quoted = String::new();
    for c in text.chars() {
        if matches!(c, '"' | '\\' | '$' | '`') {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use weftrun_testkit::child;

    fn parsed(pattern: &str, array: bool) -> Result<TaskFiles> {
        TaskFiles::of_job("rank-logs", pattern, "it's $x", array)
    }

    #[test]
    fn a_pattern_that_gives_two_writers_one_file_is_refused_with_the_reason() {
        for (pattern, array, reason) in [
            ("%N-%t.log", false, "two jobs"),
            ("%x/%t.log", false, "two jobs"),
            ("%A/%t.log", true, "tasks of the array"),
            ("%a/%t.log", true, "tasks of the array"),
            ("%j/%s.log", false, "number of a step"),
            ("%j/%q.log", false, "not a pattern"),
            ("%j/%", false, "not a pattern"),
            ("%j\\%t.log", false, "no `\\`"),
            ("%j\n%t.log", false, "no control character"),
        ] {
            let refused = parsed(pattern, array).expect_err(pattern);
            assert!(refused.message().contains(reason), "{pattern}: {refused}");
        }
        for (pattern, array) in [("%j/%t.log", true), ("%A_%a/%t", true), ("%A-%n", false)] {
            assert!(parsed(pattern, array).is_ok(), "{pattern}");
        }
    }

    /// The shell creates the folders and prints the pattern, from which the reader derives the owner of each file.
    #[test]
    fn the_shell_and_the_reader_agree_on_every_file() {
        let nodes = ["gpu-st-p5-1", "gpu-st-p5-2"];
        for (pattern, files) in [
            ("%j/%N-%t.log", ["7/gpu-st-p5-1-0.log", "7/gpu-st-p5-2-3.log"]),
            ("%x %j/%N/%3t", ["it's $x 7/gpu-st-p5-1/000", "it's $x 7/gpu-st-p5-2/003"]),
            ("100%%/%4j.%2n/%t", ["100%/0007.00/0", "100%/0007.01/3"]),
            ("%j/%2t/out", ["7/00/out", "7/03/out"]),
        ] {
            let home = tempfile::tempdir().unwrap();
            let files_of = parsed(pattern, false).unwrap();
            let script = format!(
                "scontrol() {{ printf '%s\\n' {}; }}\n{}printf %s {}",
                nodes.join(" "),
                files_of.folders("\"$HOME\"", 2, 4),
                files_of.word("\"$HOME\"")
            );
            let done = child::command("bash")
                .args(["-c", &script])
                .envs([("HOME", home.path()), ("SLURM_JOB_ID", "7".as_ref())])
                .output()
                .unwrap();
            let printed = String::from_utf8(done.stdout).unwrap();
            let read = TaskFiles::expanded(&printed).expect("what the script prints is read");
            assert_eq!(read.one_for_each_task(), pattern.contains('t'));
            for (file, (node, number, task)) in files.iter().zip([(nodes[0], 0, 0), (nodes[1], 1, 3)]) {
                let path = home.path().join(file);
                std::fs::write(&path, "x").unwrap_or_else(|error| panic!("{pattern}: {file}: {error}"));
                let owner = read.owner(path.to_str().unwrap()).expect("an owner");
                assert!(owner.node.is_none_or(|name| name == node), "{pattern}");
                assert!(owner.node_number.is_none_or(|found| found == number), "{pattern}");
                assert!(owner.task.is_none_or(|found| found == task), "{pattern}");
                let listed = child::command("sh")
                    .args([
                        "-c",
                        &format!("for f in {}; do printf '%s\\n' \"$f\"; done", read.glob().unwrap()),
                    ])
                    .output()
                    .unwrap();
                let listed = String::from_utf8(listed.stdout).unwrap();
                assert!(listed.lines().any(|line| line == path.to_str().unwrap()), "{pattern}: {listed}");
            }
            assert_eq!(read.owner("/elsewhere/7/gpu-st-p5-1-0.log"), None);
        }
    }
}
