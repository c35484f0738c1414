//! Mistakes in batch scripts that Slurm and the shell do not report, or only once the nodes are allocated.

use std::ops::Range;

use weftrun_core::Finding;
use weftrun_core::mask;
use weftrun_core::shell;

/// Checks the text of a batch script. Bytes in `skip` are not the user's.
pub(crate) fn check(text: &str, skip: &[Range<usize>]) -> Vec<(Finding, Range<usize>)> {
    let mut found = Vec::new();
    directives(text, skip, &mut found);
    if is_shell(text)
        && let Some((line, why)) = shell::syntax_error(text)
    {
        let finding = Finding::error("L-SHELL-SYNTAX", format!("the shell cannot read the script: {why}"))
            .fix("correct it; `bash -n FILE` reads the script without running it");
        found.push((finding, line_range(text, line)));
    }
    found
}

/// Returns whether a shell runs the script: the first line may name another interpreter, such as Python.
fn is_shell(text: &str) -> bool {
    let first = text.lines().next().unwrap_or_default();
    first.starts_with("#!")
        && ["/bash", "/sh", " bash", " sh", "/dash"].iter().any(|name| {
            let words = first.split(" -").next().unwrap_or(first).trim_end();
            words.ends_with(name)
        })
}

fn line_range(text: &str, number: usize) -> Range<usize> {
    let lines = text.split_inclusive('\n');
    let start: usize = lines.clone().take(number.saturating_sub(1)).map(str::len).sum();
    let length = lines.skip(number.saturating_sub(1)).map(|line| line.trim_end().len()).next().unwrap_or(0);
    start..start + length
}

/// Returns whether one of some ranges, which are in order and apart, holds a place.
pub(crate) fn holds(ranges: &[Range<usize>], place: usize) -> bool {
    let before = ranges.partition_point(|range| range.start <= place);
    before.checked_sub(1).and_then(|at| ranges.get(at)).is_some_and(|range| range.contains(&place))
}

/// Reports `#SBATCH` lines that Slurm does not read, and variables in those that it reads.
fn directives(text: &str, skip: &[Range<usize>], found: &mut Vec<(Finding, Range<usize>)>) {
    // Behind a fault it is unknown what is a command, and what the text of a here-document.
    let (mut documents, readable) = shell::documents(text);
    documents.sort_by_key(|document| document.start);
    let is_shell = is_shell(text);
    let (mut at, mut first_command) = (0, None);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let (start, body) = (at, line.trim_end());
        at += line.len();
        if holds(skip, start) || holds(&documents, start) {
            continue;
        }
        let place = start..start + body.len();
        if mask::holds_secret(body) {
            found.push((super::settings::secret_in("the script", super::settings::OF_SCRIPT), place.clone()));
        }
        match (body.strip_prefix("#SBATCH"), first_command) {
            (Some(_), Some(_)) if is_shell && start >= readable => {}
            (Some(_), Some(command)) => {
                let message =
                    format!("Slurm ignores this line: it follows the first command (line {command})");
                let finding =
                    Finding::warning("L-SBATCH-LATE", message).fix("move it above the first command");
                found.push((finding, place));
            }
            (Some(options), None) => {
                if let Some(variable) = variable(options) {
                    let message = format!(
                        "Slurm takes `{variable}` literally: it expands no variables in #SBATCH lines"
                    );
                    let finding = Finding::warning("L-SBATCH-VARIABLE", message)
                        .fix("write the value out, or give the option to sbatch on the command line");
                    found.push((finding, place));
                }
            }
            (None, None) if is_command(body.trim_start()) => {
                first_command = Some(number + 1);
            }
            (None, _) => {}
        }
    }
}

/// Returns whether a line of a script holds a command. Lines of a template language (Jinja, ERB) are gone when
/// Slurm reads the script.
pub(crate) fn is_command(line: &str) -> bool {
    !line.is_empty() && !["#", "{%", "{{", "<%"].iter().any(|start| line.starts_with(start))
}

/// Returns the first `$NAME` or `${NAME}` of a directive, without its comment.
fn variable(options: &str) -> Option<&str> {
    let options = options.split(" #").next().unwrap_or(options);
    let at = options.match_indices('$').map(|(at, _)| at).find(|at| {
        let escaped = options.get(..*at).is_some_and(|before| before.ends_with('\\'));
        let next = options.as_bytes().get(at + 1);
        !escaped && next.is_some_and(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'{'))
    })?;
    let rest = options.get(at..)?;
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '$' | '_' | '{' | '}')));
    rest.get(..end.unwrap_or(rest.len()))
}
