//! The commands of a script: which of them starts the ranks, and which run before it.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::pieces::raw_words;
use super::words::{Value, Variables};
use crate::shell::{ScriptCommand, command_lines, is_variable};

/// A command of the script's outermost level, with all of its lines.
#[derive(Debug)]
pub(super) struct Chunk {
    pub text: String,
    /// Line of the script, from 1.
    pub line: usize,
    /// Its simple commands, including those inside loops, conditions and functions.
    pub commands: Vec<ScriptCommand>,
}

/// Cuts a script into its outermost commands; none where it cannot be parsed.
pub(super) fn chunks(body: &str, first_line: usize) -> Option<Vec<Chunk>> {
    // A script may end in a continued line, which a shell reads as its last one.
    let trimmed = body.trim_end();
    let whole = trimmed.trim_end_matches('\\');
    let last = trimmed.lines().next_back().unwrap_or_default();
    let goes_on = (trimmed.len() - whole.len()) % 2 == 1 && !last.trim_start().starts_with('#');
    let body = if goes_on { whole } else { body };
    let (mut chunks, mut line) = (Vec::new(), first_line);
    for (place, commands) in command_lines(body)? {
        let text = body.get(place)?.to_owned();
        let lines = memchr::memchr_iter(b'\n', text.as_bytes()).count();
        chunks.push(Chunk { text, line, commands });
        line += lines;
    }
    Some(chunks)
}

impl Chunk {
    /// Returns whether it holds only blanks and comments.
    pub fn is_empty(&self) -> bool {
        self.text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
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

    /// Returns whether it cannot change the job's result, since it runs after the ranks.
    pub fn is_farewell(&self) -> bool {
        const HARMLESS: [&str; 8] = ["echo", "printf", "date", "exit", "wait", "true", ":", "set"];
        self.is_empty()
            || self.single().is_some_and(|(_, command)| HARMLESS.contains(&base(command, command.program)))
    }
}

/// Returns the name of the program at an index, without its folder.
pub(super) fn base(command: &ScriptCommand, at: usize) -> &str {
    let word = command.words.get(at).map_or("", String::as_str);
    word.rsplit('/').next().unwrap_or(word)
}

/// The effect of a chunk before the ranks on the variables.
struct Step<'c> {
    chunk: &'c Chunk,
    /// Whether it only assigns known values: it may be left out where no other command reads the names.
    literal: bool,
    names: Vec<String>,
    exports: Vec<(String, String)>,
}

/// Reads the chunks before the ranks and their variables; returns the job's environment, and the lines that
/// stay shell.
pub(super) fn setup(chunks: &[Chunk], variables: &mut Variables) -> (Vec<(String, String)>, Vec<String>) {
    let steps: Vec<Step<'_>> =
        chunks.iter().filter(|chunk| !chunk.is_empty()).map(|chunk| step(chunk, variables)).collect();
    let kept = kept(&steps);
    let (mut exports, mut lines): (Vec<(String, String)>, Vec<String>) = (Vec::new(), Vec::new());
    let last_program = steps.iter().zip(&kept).rposition(|(step, kept)| *kept && runs_program(step.chunk));
    let last_lookup = steps.iter().zip(&kept).rposition(|(step, kept)| *kept && looks_up(step.chunk));
    for (index, (step, kept)) in steps.iter().zip(kept).enumerate() {
        let is_before = |last: Option<usize>| last.is_some_and(|last| index < last);
        let is_read = is_before(last_program)
            || is_before(last_lookup) && step.exports.iter().any(|(name, _)| is_of_lookups(name));
        // A program that runs before the ranks has the variables that were exported before it.
        if (kept || !step.exports.is_empty() && is_read) && !is_shell_option(step.chunk) {
            lines.push(step.chunk.text.trim_end().to_owned());
        }
        if kept {
            continue;
        }
        exports.extend(step.exports.iter().cloned());
    }
    // The last value of a name counts.
    let mut seen = HashSet::new();
    let last: Vec<bool> = exports.iter().rev().map(|(name, _)| seen.insert(name.clone())).collect();
    let mut last = last.into_iter().rev();
    exports.retain(|_| last.next() == Some(true));
    (exports, lines)
}

/// Returns which steps stay shell. A variable that a shell command reads must be set before it, by the shell.
fn kept(steps: &[Step<'_>]) -> Vec<bool> {
    let mut kept: Vec<bool> = steps.iter().map(|step| !step.literal).collect();
    let mut setters: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, step) in steps.iter().enumerate().filter(|(_, step)| step.literal) {
        for name in &step.names {
            setters.entry(name).or_default().push(at);
        }
    }
    let mut unread: Vec<&Step<'_>> = steps.iter().filter(|step| !step.literal).collect();
    while let Some(step) = unread.pop() {
        for name in step.chunk.text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            for at in setters.remove(name).unwrap_or_default() {
                if let (Some(kept @ false), Some(step)) = (kept.get_mut(at), steps.get(at)) {
                    *kept = true;
                    unread.push(step);
                }
            }
        }
    }
    kept
}

/// Commands that behave the same with or without the exported variables of the fabric and the ranks.
const INDIFFERENT: &str = "set ulimit cd echo printf mkdir module export declare typeset readonly unset : scontrol \
    hostname head date cat ls nvidia-smi sleep true chmod rm";

/// Returns whether a chunk loads modules or queries Slurm.
fn looks_up(chunk: &Chunk) -> bool {
    chunk.commands.iter().any(|command| matches!(base(command, 0), "module" | "scontrol"))
}

/// Returns whether modules or Slurm's commands read a variable.
fn is_of_lookups(name: &str) -> bool {
    ["MODULE", "LMOD", "SLURM", "TCL"].iter().any(|family| name.starts_with(family))
        || matches!(name, "PATH" | "LD_LIBRARY_PATH" | "LOADEDMODULES" | "HOME")
}

/// Returns whether a chunk runs a program that may read its environment.
fn runs_program(chunk: &Chunk) -> bool {
    chunk.commands.iter().any(|command| !INDIFFERENT.split(' ').any(|name| name == base(command, 0)))
}

/// Returns whether a chunk is a `set -ex` or the like: the rendered script has its own.
fn is_shell_option(chunk: &Chunk) -> bool {
    chunk.single().is_some_and(|(_, command)| base(command, 0) == "set")
}

/// Returns whether a script ends at its first failure.
pub(super) fn stops_at_errors(chunks: &[Chunk]) -> bool {
    let sets = |chunk: &Chunk| {
        chunk.single().is_some_and(|(_, command)| {
            let option = |word: &String| word == "errexit" || word.starts_with('-') && word.contains('e');
            base(command, 0) == "set" && command.words.iter().skip(1).any(option)
        })
    };
    chunks.iter().any(sets)
}

fn step<'c>(chunk: &'c Chunk, variables: &mut Variables) -> Step<'c> {
    variables.line = chunk.line;
    let mut step = Step { chunk, literal: false, names: Vec::new(), exports: Vec::new() };
    if chunk.commands.is_empty() && !is_compound(chunk) {
        return assignments(step, &raw_words(&chunk.text), false, variables);
    }
    let Some((before, command)) = chunk.single() else {
        return compound(step, variables);
    };
    let words = chunk.raw(command, 1);
    match base(command, 0) {
        "export" => assignments(step, &words, true, variables),
        "readonly" | "declare" | "typeset" => {
            let exported = words.iter().any(|word| word.starts_with('-') && word.contains('x'));
            let words: Vec<&str> = words.into_iter().filter(|word| !word.starts_with('-')).collect();
            assignments(step, &words, exported, variables)
        }
        // `: "${NAME:=default}"`
        ":" if before.is_empty() => {
            step.literal = true;
            for word in words {
                variables.expand(word);
                step.names.extend(assigned_names(word));
            }
            step
        }
        "unset" => {
            words.iter().for_each(|name| variables.remove(name));
            step.names = words.iter().map(|word| (*word).to_owned()).collect();
            step
        }
        "read" | "mapfile" | "readarray" | "local" | "let" => compound(step, variables),
        _ => step,
    }
}

fn assignments<'c>(
    mut step: Step<'c>,
    words: &[&str],
    exported: bool,
    variables: &mut Variables,
) -> Step<'c> {
    step.literal = !words.is_empty();
    for word in words {
        let name = match variables.assign(word) {
            Some(name) => name,
            None if exported && is_variable(word) => (*word).to_owned(),
            None => {
                step.literal = false;
                continue;
            }
        };
        match variables.get(&name) {
            Some(Value::Text(text)) if variables.unresolved(text).is_none() => {
                if exported {
                    step.exports.push((name.clone(), text.clone()));
                }
            }
            Some(Value::List(_)) if !exported && variables.knows_list(&name) => {}
            _ => step.literal = false,
        }
        step.names.push(name);
    }
    step
}

/// Handles a loop, a condition, a function: an assignment in it depends on what happens where the script
/// runs.
fn compound<'c>(mut step: Step<'c>, variables: &mut Variables) -> Step<'c> {
    let first = step.chunk.text.split_whitespace().next().unwrap_or_default();
    let what = match first {
        "if" | "for" | "while" | "until" | "case" => format!("the `{first}`"),
        _ => "the command".to_owned(),
    };
    let why = format!("it depends on {what} in line {}", step.chunk.line);
    step.names = assigned_names(&step.chunk.text);
    for name in &step.names {
        variables.set_unknown(name, &why);
    }
    step
}

fn is_compound(chunk: &Chunk) -> bool {
    let first = chunk.text.split_whitespace().find(|word| !word.starts_with('#')).unwrap_or_default();
    matches!(first, "if" | "for" | "while" | "until" | "case" | "function" | "select" | "{" | "[[")
        || first.starts_with('(')
}

/// Returns every name that a text may set.
fn assigned_names(text: &str) -> Vec<String> {
    let mut names = BTreeSet::new();
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    for (at, _) in text.match_indices('=') {
        let before = text.get(..at).unwrap_or_default();
        let before = before.strip_suffix(['+', ':']).unwrap_or(before);
        let before = before
            .rfind('[')
            .filter(|_| before.ends_with(']'))
            .and_then(|at| before.get(..at))
            .unwrap_or(before);
        let start = before
            .char_indices()
            .rev()
            .take_while(|(_, c)| is_part(*c))
            .last()
            .map_or(before.len(), |(at, _)| at);
        names.extend(before.get(start..).filter(|name| is_variable(name)).map(str::to_owned));
    }
    let words: Vec<&str> =
        text.split(|c: char| c.is_whitespace() || c == ';').filter(|word| !word.is_empty()).collect();
    for (index, word) in words.iter().enumerate() {
        if matches!(*word, "for" | "select" | "read" | "mapfile" | "readarray" | "unset" | "let") {
            let set =
                words.iter().skip(index + 1).take_while(|word| is_variable(word) || word.starts_with('-'));
            names.extend(set.filter(|word| is_variable(word)).map(|word| (*word).to_owned()));
        }
    }
    names.into_iter().collect()
}
