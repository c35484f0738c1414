//! `mpirun` in argv and in shell strings.
//!
//! The word is made absolute since Open MPI treats an absolute `mpirun` as `--prefix`, so that the `orted`
//! of the same stack is found on the other nodes (Open MPI 4.1, `mpirun(1)`, "The --prefix option"). `-x`
//! is needed since sshd does not pass a container's environment to the ranks.

mod command;
pub mod gid;
mod mpirun;
mod reader;
pub mod sbatch;
mod script;
mod variables;
mod wrapper;

use command::Verdict;
pub use command::is_mpirun;
pub use reader::{piece_length, words};

pub use mpirun::{Mpirun, MpirunNote, Rewrite};
pub(crate) use script::without_output;
pub use script::{
    SCRIPT_WITHOUT_INTERPRETER, ScriptCommand, commands, is_sbatch, is_script_without_interpreter, runs,
};
pub use script::{command_lines, documents, first_run, syntax_error, without_comment};
pub use variables::is_variable;
pub use variables::{is_evaluated, taken_literally, unexpanded, variable};

/// Rewrites the `mpirun` of a command line: the first command word of an argv, or every one in command position of a
/// shell string.
///
/// ```
/// use weftrun_core::shell::{self, Mpirun};
/// let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
/// let rule = Mpirun { bin: Some("/opt/efa/bin".into()), forward: words("LD_LIBRARY_PATH"), ..Mpirun::default() };
/// let done = shell::rewrite(&words("timeout 60 mpirun"), &words("-np 2 app"), &rule);
/// assert_eq!(done.command, words("timeout 60 /opt/efa/bin/mpirun -x LD_LIBRARY_PATH"));
/// assert_eq!(done.args, words("-np 2 app"));
/// ```
pub fn rewrite(command: &[String], args: &[String], rule: &Mpirun) -> Rewrite {
    let mut words: Vec<String> = command.iter().chain(args).cloned().collect();
    let mut border = command.len();
    let mut found = Found::default();
    // The user's command is after our own wrapper.
    let start = gid::wrapped_from(&words).unwrap_or(0);
    rewrite_argv(&mut words, start, &mut border, rule, &mut found);
    if !found.mpirun && found.notes.is_empty() {
        found.notes.push(MpirunNote::Opaque { script: found.script });
    }
    let args = words.split_off(border);
    Rewrite { command: words, args, changed: found.changed, notes: found.notes }
}

/// Completes a command that calls `mpirun` itself, also inside a shell script: by the `mpirun` at `path`, and `-x` for what it does not
/// forward yet. Returns none for a command in which no `mpirun` can be seen.
pub fn complete_mpirun(command: &[String], path: &str, forward: &[String]) -> Option<Vec<String>> {
    let bin = path.rsplit_once('/').map(|(folder, _)| folder.to_owned());
    let rule = Mpirun { bin, forward: forward.to_vec(), ..Mpirun::default() };
    let rewritten = rewrite(command, &[], &rule);
    let opaque = rewritten.notes.iter().any(|note| matches!(note, MpirunNote::Opaque { .. }));
    (!opaque).then(|| rewritten.command.into_iter().chain(rewritten.args).collect())
}

/// What was found during the rewriting.
#[derive(Default)]
struct Found {
    /// Whether there was an `mpirun` at all, changed or not.
    mpirun: bool,
    changed: usize,
    /// The first script file that runs.
    script: Option<String>,
    notes: Vec<MpirunNote>,
}

impl Found {
    fn note(&mut self, note: MpirunNote) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

fn rewrite_argv(words: &mut Vec<String>, start: usize, border: &mut usize, rule: &Mpirun, found: &mut Found) {
    let Some(at) = wrapper::command_word(words, start) else { return };
    if let Some(script_at) = wrapper::shell_string(words, at) {
        match script::rewrite(&words[script_at], rule, found) {
            Ok(text) => words[script_at] = text,
            Err(why) => found.note(MpirunNote::Unreadable(why)),
        }
        return;
    }
    let rest: Vec<&str> = words[at + 1..].iter().map(String::as_str).collect();
    match command::judge(&words[at], &rest, rule) {
        Verdict::NotMpirun => found.script = wrapper::script_file(words, at).map(str::to_owned),
        Verdict::Left(note) => {
            found.mpirun = true;
            found.note(note);
        }
        Verdict::Becomes { word, add, notes } => {
            found.mpirun = true;
            notes.into_iter().for_each(|note| found.note(note));
            if word != words[at] || !add.is_empty() {
                found.changed += 1;
                words[at] = word;
                if at < *border {
                    *border += add.len();
                }
                words.splice((at + 1)..=at, add);
            }
        }
    }
}

#[cfg(test)]
mod tests;
