//! Shell strings: the `mpirun` in command position is rewritten, the surrounding bytes stay.

use std::ops::Range;

use super::command::{Verdict, judge};
use super::reader::{self, Construct, Contents, Simple};
use super::{Found, Mpirun, MpirunNote, wrapper};

/// Returns whether a text is an sbatch script.
pub fn is_sbatch(text: &str) -> bool {
    text.starts_with("#!") && text.lines().any(|line| line.starts_with("#SBATCH"))
}

/// What is said of [such a script](is_script_without_interpreter).
pub const SCRIPT_WITHOUT_INTERPRETER: &str = "this is an sbatch script with lines before its `#!` line, and `sbatch` takes no file whose first line is not that";

/// Returns whether a text is an sbatch script whose `#!` line is not the first.
pub fn is_script_without_interpreter(text: &str) -> bool {
    let begins = |words: &str| text.lines().any(|line| line.starts_with(words));
    !text.starts_with("#!") && begins("#!/") && begins("#SBATCH")
}

/// Returns a line without the comment at its end; a `#` in quotes that the line itself opens is none.
pub fn without_comment(line: &str) -> &str {
    let (mut quote, mut before) = (None, ' ');
    for (at, c) in line.char_indices() {
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '"' || c == '\'' => quote = Some(c),
            None if c == '#' && (before.is_whitespace() || before == ';') => {
                return line.get(..at).unwrap_or(line);
            }
            _ => {}
        }
        before = c;
    }
    line
}

/// Returns of each byte of a script whether a command runs it: not the words that `echo` and the like write, nor
/// here-documents that no shell reads.
pub fn runs(text: &str) -> Vec<bool> {
    let mut kept = vec![true; text.len()];
    keep_what_runs(text, 0..text.len(), &mut kept, 0);
    kept
}

/// Returns a script in which blanks replace what no command runs: the words that `echo`, `printf` and the like
/// write, and here-documents that no shell reads. Line ends stay.
pub(crate) fn without_output(text: &str) -> String {
    let kept = runs(text);
    let blank = |(at, c): (usize, char)| {
        let keep = c == '\n' || kept.get(at).copied().unwrap_or(true);
        if keep { c } else { ' ' }
    };
    text.char_indices().map(blank).collect()
}

fn keep_what_runs(text: &str, part: Range<usize>, kept: &mut [bool], depth: usize) {
    const WRITERS: [&str; 4] = ["echo", "printf", ":", "logger"];
    if depth > MAX_DEPTH {
        return;
    }
    let mut mark = |range: Range<usize>, keep: bool| {
        kept.get_mut(range).into_iter().flatten().for_each(|byte| *byte = keep);
    };
    let Contents { commands, documents } = reader::read_some(text, part);
    let mut inner = Vec::new();
    for command in &commands {
        let (Some(first), Some(last)) = (command.words.first(), command.words.last()) else { continue };
        let words: Vec<&str> = command.words.iter().map(|word| unquoted(&text[word.clone()])).collect();
        let writes = wrapper::command_word(&words, 0).is_some_and(|at| WRITERS.contains(&words[at]));
        // A substitution in the words of `echo` is a later command, and runs.
        mark(first.start..last.end, !writes);
        let strings = (0..words.len()).filter_map(|at| wrapper::shell_string(&words, at));
        inner.extend(strings.filter_map(|at| quoted_text(text, &command.words[at])));
    }
    for document in documents {
        let on_line = commands.iter().rfind(|command| {
            command.words.last().is_some_and(|word| {
                text.get(word.end..document.start).is_some_and(|between| between.matches('\n').count() == 1)
            })
        });
        let is_read = on_line.is_some_and(|command| {
            let reads = |word: &str| wrapper::is_shell(word) || word == "sbatch";
            command.words.iter().any(|word| reads(&text[word.clone()]))
                || is_run_later(text, &commands, command, &document)
        });
        if is_read {
            inner.push(document);
        } else {
            mark(document, false);
        }
    }
    for script in inner {
        keep_what_runs(text, script, kept, depth + 1);
    }
}

/// Returns whether a here-document is written into a file (`cat > FILE`, `tee FILE`) that another command runs in a shell.
fn is_run_later(text: &str, commands: &[Simple], writer: &Simple, document: &Range<usize>) -> bool {
    const RUNNERS: [&str; 6] = ["sbatch", "srun", "source", ".", "ssh", "pdsh"];
    let first_line = text[document.clone()].lines().next().unwrap_or_default();
    let of_shell = first_line.split(['/', ' ']).any(wrapper::is_shell) || !first_line.starts_with("#!");
    let words = |command: &Simple| -> Vec<&str> {
        command.words.iter().map(|word| unquoted(&text[word.clone()])).collect()
    };
    let Some(start) = writer.words.first().map(|word| word.start).filter(|_| of_shell) else { return false };
    // The reader keeps no redirections: they stand on the line.
    let line = text.get(start..document.start).unwrap_or_default();
    let target = line.rsplit('>').next().filter(|_| line.contains('>')).unwrap_or_default();
    let target = target.split_whitespace().next().unwrap_or_default();
    let of_writer = words(writer);
    let tee =
        || of_writer.iter().skip(1).find(|word| of_writer.first() == Some(&"tee") && !word.starts_with('-'));
    let file = if target.is_empty() { tee().copied().unwrap_or_default() } else { unquoted(target) };
    let bare = |word: &str| word.trim_start_matches("./").to_owned();
    !file.is_empty()
        && commands.iter().filter(|command| command.words != writer.words).any(|command| {
            let words = words(command);
            let Some(program) = wrapper::command_word(&words, 0).and_then(|at| words.get(at).copied()) else {
                return false;
            };
            let runs = wrapper::is_shell(program)
                || RUNNERS.contains(&program)
                || super::is_mpirun(program)
                || bare(program) == bare(file);
            runs && words.iter().any(|word| bare(word) == bare(file))
        })
}

/// Deepest nesting of shell strings (`bash -c 'bash -c …'`).
const MAX_DEPTH: usize = 8;

/// A simple command of a script: its bytes and its words, without quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptCommand {
    /// First byte of its first word.
    pub start: usize,
    /// The byte after its last word.
    pub end: usize,
    /// Its words, without the assignments before it.
    pub words: Vec<String>,
    /// The bytes of each word, quotes included.
    pub spans: Vec<(usize, usize)>,
    /// Index of the word that is run after wrappers such as `timeout 60`.
    pub program: usize,
}

/// Returns the simple commands of a script, in order, without those of substitutions, and without the words
/// of here-documents and comments.
pub fn commands(text: &str) -> Result<Vec<ScriptCommand>, String> {
    let Contents { commands, .. } = reader::read(text, 0..text.len())?;
    let of_the_script = commands.into_iter().filter(|command| command.place == Construct::Script);
    Ok(of_the_script.filter_map(|command| script_command(text, &command)).collect())
}

/// Returns the words of the first command that runs a program, those of substitutions included. A script that cannot be
/// parsed is read up to there.
pub fn first_run(text: &str, program: &str) -> Option<Vec<String>> {
    let commands = reader::read_some(text, 0..text.len()).commands;
    let mut read = commands.iter().filter_map(|command| script_command(text, command));
    let runs =
        |command: &ScriptCommand| command.words.get(command.program).is_some_and(|word| word == program);
    read.find(runs).map(|command| command.words)
}

/// Returns the lines of a script's outermost commands, each with the lines that continue it, and their simple
/// commands, with places in those lines. None if the script cannot be parsed.
pub fn command_lines(text: &str) -> Option<Vec<(Range<usize>, Vec<ScriptCommand>)>> {
    let moved = |start: usize, mut command: ScriptCommand| {
        (command.start, command.end) = (command.start - start, command.end - start);
        command.spans.iter_mut().for_each(|span| *span = (span.0 - start, span.1 - start));
        command
    };
    let commands = |(line, contents): (Range<usize>, Contents)| {
        let of_the_script = contents.commands.iter().filter(|command| command.place == Construct::Script);
        let read = of_the_script.filter_map(|command| script_command(text, command));
        let read = read.map(|command| moved(line.start, command)).collect();
        (line, read)
    };
    Some(reader::read_lines(text)?.into_iter().map(commands).collect())
}

/// Returns the bytes of a script's here-documents, and the byte up to which the script can be parsed.
pub fn documents(text: &str) -> (Vec<Range<usize>>, usize) {
    reader::documents(text)
}

/// Returns the line at which no shell can parse a script, and why. None where it can be parsed, or is only
/// over our limit.
pub fn syntax_error(text: &str) -> Option<(usize, String)> {
    let error = reader::read(text, 0..text.len()).err()?;
    let (line, why) = error.strip_prefix("line ")?.split_once(": ")?;
    Some((line.parse().ok()?, why.to_owned()))
}

fn script_command(text: &str, command: &Simple) -> Option<ScriptCommand> {
    let words: Vec<String> =
        command.words.iter().map(|word| unquoted(&text[word.clone()]).to_owned()).collect();
    let program = wrapper::command_word(&words, 0)?;
    let spans = command.words.iter().map(|word| (word.start, word.end)).collect();
    Some(ScriptCommand {
        start: command.words.first()?.start,
        end: command.words.last()?.end,
        words,
        spans,
        program,
    })
}

/// Rewrites every `mpirun` in command position; returns the text unchanged if there is none to change.
pub(super) fn rewrite(text: &str, rule: &Mpirun, found: &mut Found) -> Result<String, String> {
    let mut splices = Vec::new();
    Rewriter { text, rule, found, splices: &mut splices }.part(0..text.len(), 0)?;
    let count = splices.len();
    let out = crate::text::splice(text, splices).map_err(|_| "two changes overlap")?;
    // Only here: an unreadable part leaves the whole text unchanged, even after earlier finds.
    found.changed += count;
    Ok(out)
}

struct Rewriter<'a> {
    text: &'a str,
    rule: &'a Mpirun,
    found: &'a mut Found,
    splices: &'a mut Vec<(Range<usize>, String)>,
}

impl<'a> Rewriter<'a> {
    /// Finds the changes of a part of the text that is a script.
    fn part(&mut self, part: Range<usize>, depth: usize) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return Err("it nests too deeply".into());
        }
        let Contents { commands, documents } = reader::read(self.text, part)?;
        for command in commands.iter().filter(|command| command.place != Construct::Quoted) {
            if let Some(script) = self.command(command) {
                self.part(script, depth + 1)?;
            }
        }
        if documents.into_iter().any(|document| names_mpirun(&self.text[document])) {
            self.found.note(MpirunNote::Document);
        }
        Ok(())
    }

    /// Finds the change of one command; returns the place of the script that it passes to a shell.
    fn command(&mut self, command: &Simple) -> Option<Range<usize>> {
        let text: &'a str = self.text;
        let words: Vec<&str> = command.words.iter().map(|word| &text[word.clone()]).collect();
        let plain: Vec<&str> = words.iter().map(|word| unquoted(word)).collect();
        let at = wrapper::command_word(&plain, 0)?;
        if let Some(script) = wrapper::shell_string(&plain, at) {
            let inside = quoted_text(text, &command.words[script]);
            if inside.is_none() {
                self.found.note(MpirunNote::Unreadable("a shell string with escapes".into()));
            }
            return inside;
        }
        // By quoting or escaping a word in command position, the user selects exactly this command.
        if words[at] != plain[at] || words[at].contains(['\\', '"', '\'', '$', '`', '*', '?']) {
            return None;
        }
        match judge(plain[at], &plain[at + 1..], self.rule) {
            Verdict::NotMpirun => {
                let script = wrapper::script_file(&plain, at).map(str::to_owned);
                self.found.script = self.found.script.take().or(script);
            }
            Verdict::Left(note) => {
                self.found.mpirun = true;
                self.found.note(note);
            }
            Verdict::Becomes { word, add, notes } => {
                self.found.mpirun = true;
                notes.into_iter().for_each(|note| self.found.note(note));
                if word != words[at] || !add.is_empty() {
                    let text = std::iter::once(word).chain(add).collect::<Vec<_>>().join(" ");
                    self.splices.push((command.words[at].clone(), text));
                }
            }
        }
        None
    }
}

/// Returns whether a line of a here-document begins like a command that weftrun rewrites: the text may run
/// later.
fn names_mpirun(document: &str) -> bool {
    document.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let program = wrapper::command_word(&words, 0).map(|at| words[at]);
        program.is_some_and(super::command::is_mpirun)
    })
}

/// Returns the bytes inside a word that is one quoted text without escapes.
fn quoted_text(text: &str, word: &Range<usize>) -> Option<Range<usize>> {
    let whole = &text[word.clone()];
    let inside = unquoted(whole);
    let quoted = inside.len() + 2 == whole.len() && !inside.contains(['\\', '`']);
    quoted.then_some(word.start + 1..word.end - 1)
}

/// Returns a word without the one pair of quotes around it.
fn unquoted(word: &str) -> &str {
    for quote in ['"', '\''] {
        if let Some(inside) = word.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote))
            && !inside.contains(quote)
        {
            return inside;
        }
    }
    word
}
