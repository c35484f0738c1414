//! The commands of a script: which of them starts the ranks, and which run before it.

use std::collections::HashSet;

use super::literal::{literal, raw_words};
use weftrun_core::shell::{ScriptCommand, command_lines, is_variable};

/// A command of the script's outermost level, with all of its lines.
#[derive(Debug)]
pub(super) struct Chunk {
    pub text: String,
    /// Its simple commands, including those inside loops, conditions and functions.
    pub commands: Vec<ScriptCommand>,
}

/// Cuts a script into its outermost commands; none where it cannot be parsed.
pub(super) fn chunks(body: &str) -> Option<Vec<Chunk>> {
    // A script may end in a continued line, which a shell reads as its last one.
    let trimmed = body.trim_end();
    let whole = trimmed.trim_end_matches('\\');
    let last = trimmed.lines().next_back().unwrap_or_default();
    let goes_on = (trimmed.len() - whole.len()) % 2 == 1 && !last.trim_start().starts_with('#');
    let body = if goes_on { whole } else { body };
    let mut chunks = Vec::new();
    for (place, commands) in command_lines(body)? {
        let text = body.get(place)?.to_owned();
        chunks.push(Chunk { text, commands });
    }
    Some(chunks)
}

impl Chunk {
    /// Returns whether it holds only blanks and comments.
    pub fn is_empty(&self) -> bool {
        self.text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
    }

    /// Returns whether it defines a function.
    pub fn is_function(&self) -> bool {
        let text = self.text.trim_start();
        let name = text.split(['(', ' ']).next().unwrap_or_default();
        name == "function" || text.get(name.len()..).is_some_and(|rest| rest.trim_start().starts_with("()"))
    }

    /// Returns the number of `srun` commands in it.
    pub fn sruns(&self) -> usize {
        self.commands.iter().filter(|command| base(command, command.program) == "srun").count()
    }

    /// Returns the assignments before a single command, and the command; none for anything else: a
    /// pipeline, a list, a redirection, a compound command.
    pub fn single(&self) -> Option<(Vec<&str>, &ScriptCommand)> {
        let [command] = self.commands.as_slice() else { return None };
        let (before, behind) = (self.text.get(..command.start)?, self.text.get(command.end..)?);
        let before = raw_words(before);
        let behind = behind.split_once('#').map_or(behind, |(behind, _)| behind);
        let words_fit = command.spans.windows(2).all(|pair| {
            let between = pair.first().zip(pair.last()).and_then(|(a, b)| self.text.get(a.1..b.0));
            between.is_some_and(|text| text.chars().all(|c| c.is_whitespace() || c == '\\'))
        });
        let assigned =
            before.iter().all(|word| word.split_once('=').is_some_and(|(name, _)| is_variable(name)));
        let dense = |text: &str| text.replace([' ', '\t', '\n', '\\'], "");
        let only = dense(&before.concat()) == dense(self.text.get(..command.start)?);
        (words_fit && assigned && only && behind.chars().all(|c| c.is_whitespace() || c == '\\'))
            .then_some((before, command))
    }

    /// Returns the raw words of the single command, starting at one of them.
    pub fn raw(&self, command: &ScriptCommand, from: usize) -> Vec<&str> {
        let spans = command.spans.get(from..).unwrap_or_default();
        spans.iter().filter_map(|(start, end)| self.text.get(*start..*end)).collect()
    }

    /// Returns whether it starts nothing that a job could be about.
    pub fn is_farewell(&self) -> bool {
        const HARMLESS: [&str; 8] = ["echo", "printf", "date", "exit", "wait", "true", ":", "set"];
        self.is_empty()
            || self.single().is_some_and(|(_, command)| HARMLESS.contains(&base(command, command.program)))
    }

    /// Returns whether it may see how many tasks and CPUs the job has, or in which folder it runs: any program but those that set up the
    /// environment, and what names a variable of Slurm for them.
    pub fn sees_the_job(&self) -> bool {
        const BLIND: [&str; 12] = [
            "module",
            "ml",
            "export",
            "unset",
            "ulimit",
            "hostname",
            "nvidia-smi",
            "date",
            "umask",
            "alias",
            "which",
            "pwd",
        ];
        // What a command expands may see it, too, and a path may be relative.
        const EXPANDS: [&str; 5] = ["$(", "`", "PWD", " ./", "=./"];
        const OF_SHAPE: [&str; 6] =
            ["SLURM_NTASKS", "SLURM_NPROCS", "SLURM_TASKS", "SLURM_CPUS", "SLURM_JOB_CPUS", "SLURM_STEP"];
        let is_blind = |command: &ScriptCommand| BLIND.contains(&base(command, command.program));
        let reads = OF_SHAPE.iter().chain(&EXPANDS).any(|part| self.text.contains(part));
        reads || !(self.is_farewell() || self.single().is_some_and(|(_, command)| is_blind(command)))
    }

    /// Returns whether the job does and ends the same without it, behind the command that starts the ranks: nothing, or an
    /// `exit` with that command's result. A script ends with the result of its last command, whatever it is.
    pub fn is_no_change(&self) -> bool {
        let exits = |command: &ScriptCommand| {
            base(command, command.program) == "exit"
                && matches!(
                    self.raw(command, command.program + 1).as_slice(),
                    [] | ["$?" | "\"$?\"" | "${?}"]
                )
        };
        self.is_empty() || self.single().is_some_and(|(before, command)| before.is_empty() && exits(command))
    }
}

/// Returns the name of the program at an index, without its folder.
pub(super) fn base(command: &ScriptCommand, at: usize) -> &str {
    let word = command.words.get(at).map_or("", String::as_str);
    word.rsplit('/').next().unwrap_or(word)
}

/// Divides the chunks before the ranks: into lines that stay shell, up to the last that does more than exporting
/// plain text, and the variables that are exported behind them.
pub(super) fn setup(chunks: &[Chunk]) -> (Vec<String>, Vec<(String, String)>) {
    let chunks: Vec<&Chunk> =
        chunks.iter().filter(|chunk| !chunk.is_empty() && !is_shell_option(chunk)).collect();
    let last = chunks.iter().rposition(|chunk| chunk.exports().is_none()).map_or(0, |last| last + 1);
    let (lines, exports) = chunks.split_at(last.min(chunks.len()));
    let mut env: Vec<(String, String)> =
        exports.iter().filter_map(|chunk| chunk.exports()).flatten().collect();
    // The last value of a name counts, in its place.
    let mut known = HashSet::new();
    env.reverse();
    env.retain(|(name, _)| known.insert(name.clone()));
    env.reverse();
    (lines.iter().map(|chunk| chunk.text.trim_end().to_owned()).collect(), env)
}

impl Chunk {
    /// Returns whether the ranks see something of it that a rendered script does not pass on: an option of the shell that it does not
    /// set itself, a trap, a redirection of all that follows, or functions of the environment.
    pub fn reaches_the_ranks(&self) -> bool {
        let reaches = |command: &ScriptCommand| {
            let words = command.words.get(command.program + 1..).unwrap_or_default();
            match base(command, command.program) {
                "set" => self.commands.len() > 1 || !words.iter().all(|word| is_known_option(word)),
                "exec" => words.is_empty(),
                "export" | "declare" | "typeset" => {
                    words.iter().any(|word| word.starts_with('-') && word.contains('f'))
                }
                "trap" | "shopt" => true,
                _ => false,
            }
        };
        let redirects = self.commands.is_empty() && self.text.trim_start().starts_with("exec ");
        redirects || self.commands.iter().any(reaches)
    }

    /// Returns the variables of an `export` of plain text; none for any other command.
    pub fn exports(&self) -> Option<Vec<(String, String)>> {
        let (before, command) = self.single()?;
        if !before.is_empty() || base(command, 0) != "export" {
            return None;
        }
        let variable = |raw: &str| {
            let (name, value) = raw.split_once('=')?;
            is_variable(name).then(|| literal(value).map(|value| (name.to_owned(), value))).flatten()
        };
        self.raw(command, 1).into_iter().map(variable).collect()
    }
}

/// Returns whether a chunk is a `set -ex` or the like: the rendered script has its own.
fn is_shell_option(chunk: &Chunk) -> bool {
    chunk.single().is_some_and(|(_, command)| base(command, 0) == "set")
}

/// Returns whether a word of `set` switches on what the rendered script knows of, or traces commands.
fn is_known_option(word: &str) -> bool {
    let letters = word.strip_prefix('-').is_some_and(|letters| letters.chars().all(|c| "euoxv".contains(c)));
    letters || ["errexit", "nounset", "pipefail", "xtrace", "verbose"].contains(&word)
}

/// Returns whether a script sets an option of the shell, in its first line or before the ranks: `errexit`, by its letter `e` where it
/// has one.
pub(super) fn has_option(chunks: &[Chunk], of_first_line: &str, letter: Option<char>, name: &str) -> bool {
    let has_letter = |word: &str| letter.is_some_and(|letter| word.contains(letter));
    let sets = |chunk: &Chunk| {
        chunk.single().is_some_and(|(_, command)| {
            let option = |word: &String| word == name || word.starts_with('-') && has_letter(word);
            base(command, 0) == "set" && command.words.iter().skip(1).any(option)
        })
    };
    has_letter(of_first_line) || chunks.iter().any(sets)
}
