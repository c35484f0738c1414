//! Writes the operations of a plan into a script.

use std::collections::BTreeSet;
use std::ops::Range;

use super::script::Script;
use super::{BLOCK_BEGIN, BLOCK_END, NoCounterpart, ScriptChange, ScriptContext, script_change};
use crate::edit::emit::newline_of;
use crate::mutate::MutateOptions;
use weftrun_core::Finding;
use weftrun_core::fabric::{FabricPlan, Op};
use weftrun_core::shell::{ScriptCommand, commands};

impl Script<'_> {
    /// Keeps the operations that a script can express, and reports the others as not applied.
    pub(super) fn keep_expressible(&self, plan: &mut FabricPlan) {
        let context = ScriptContext { container: !self.contained(&self.bare()).is_empty(), topology: true };
        let mut left = Vec::new();
        plan.ops.retain(|op| {
            let kind = match script_change(&op.change, context) {
                Ok(ScriptChange::Env(..) | ScriptChange::Mount(..) | ScriptChange::Command(_)) => {
                    return true;
                }
                Ok(ScriptChange::InPlace) => NoCounterpart::Mount,
                Ok(ScriptChange::WholeNodes) => NoCounterpart::WholeNodes,
                Ok(ScriptChange::Constraint(_) | ScriptChange::OneSwitch) => NoCounterpart::Directive,
                Ok(ScriptChange::Memlock) => NoCounterpart::Memlock,
                Ok(ScriptChange::Wrap(_)) => NoCounterpart::Wrapper,
                Err(kind) => kind,
            };
            left.push((op.clone(), kind));
            false
        });
        for (op, kind) in left {
            let (what, value, why) = (op.change.target(), op.change.value(), kind.why());
            plan.leave_out(&[&op], format!("{what}={value} is not applied: {why}"));
            plan.findings.push(Finding::info(
                "I-NOT-APPLIED",
                format!("not applied to the script: {what}={value}; {why}"),
            ));
        }
    }

    /// Returns the script with the operations that [`Script::keep_expressible`] kept.
    pub(super) fn with(&self, ops: &[Op], settings: &MutateOptions<'_>) -> Option<String> {
        let newline = newline_of(self.text);
        let (mut set, mut mounts, mut rewritten) = (Vec::new(), Vec::new(), None);
        for op in ops {
            match script_change(&op.change, ScriptContext { container: true, topology: true }) {
                Ok(ScriptChange::Env(name, value)) => set.push((name, value)),
                Ok(ScriptChange::Mount(from, to, read_only)) => {
                    mounts.push(format!("{from}:{to}{}", if read_only { ":ro" } else { "" }));
                }
                Ok(ScriptChange::Command(after)) => rewritten = after.get(2).cloned(),
                _ => {}
            }
        }
        let mut text = rewritten.unwrap_or_else(|| self.bare());
        let names: Vec<&str> = set.iter().map(|(name, _)| *name).collect();
        text = self.containers(&text, &names, &mounts)?;
        if set.is_empty() {
            return Some(text);
        }
        let mut block = format!(
            "{BLOCK_BEGIN}{newline}# profile {}; `# weftrun: fabric=off` keeps this out{newline}",
            settings.profile.name
        );
        for (name, value) in &set {
            let value = shlex::try_quote(value).ok()?;
            let tail =
                if *name == "LD_LIBRARY_PATH" { "\"${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\"" } else { "" };
            block.push_str(&format!("export {name}={value}{tail}{newline}"));
        }
        block.push_str(BLOCK_END);
        block.push_str(newline);
        // The head contains no command, so nothing before its end was rewritten.
        let at = self.bare_head_end();
        let (head, rest) = (text.get(..at)?, text.get(at..)?);
        let gap = if head.ends_with('\n') { "" } else { newline };
        Some(format!("{head}{gap}{block}{rest}"))
    }

    /// Returns the `srun` commands of a text that start containers.
    fn contained(&self, text: &str) -> Vec<ScriptCommand> {
        let for_all = self.has("container-image");
        let is_contained = |command: &ScriptCommand| {
            let words = command.words.get(command.program..).unwrap_or_default();
            let names = for_all || words.iter().any(|word| word.starts_with("--container-"));
            names && words.first().is_some_and(|word| word == "srun")
        };
        commands(text).unwrap_or_default().into_iter().filter(is_contained).collect()
    }

    /// Adds variables and folders to the containers that `srun` starts.
    fn containers(&self, text: &str, names: &[&str], mounts: &[String]) -> Option<String> {
        let mut splices = Vec::new();
        for command in self.contained(text) {
            let words = command.words.get(command.program..)?;
            let spans = command.spans.get(command.program..)?;
            let wanted: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            for (option, values) in [("--container-env", &wanted[..]), ("--container-mounts", mounts)] {
                splices.extend(with_list(text, words, spans, option, values));
            }
        }
        weftrun_core::text::splice(text, splices).ok()
    }
}

/// Returns the change that adds values to an option's list, or adds the option after the program.
fn with_list(
    text: &str,
    words: &[String],
    spans: &[(usize, usize)],
    option: &str,
    values: &[String],
) -> Option<(Range<usize>, String)> {
    let found = list_of(words, option);
    let have: BTreeSet<&str> =
        found.iter().flat_map(|(_, list)| list.split(',')).map(|one| one.trim_matches(['"', '\''])).collect();
    let missing: Vec<&str> =
        values.iter().map(String::as_str).filter(|value| !have.contains(value)).collect();
    if missing.is_empty() {
        return None;
    }
    match found {
        None => {
            let end = spans.first()?.1;
            Some((end..end, format!(" {option}={}", missing.join(","))))
        }
        Some((index, _)) => {
            let (start, end) = *spans.get(index)?;
            let quoted = text.get(start..end)?.ends_with(['"', '\'']);
            let at = end - usize::from(quoted);
            Some((at..at, format!(",{}", missing.join(","))))
        }
    }
}

/// Options of pyxis that take a value, which may be the next word.
const CONTAINER: [&str; 5] =
    ["--container-env", "--container-mounts", "--container-image", "--container-workdir", "--container-name"];

/// Returns the value of an option, and the word that holds it. The value of another option is not an
/// option.
fn list_of<'w>(words: &'w [String], option: &str) -> Option<(usize, &'w str)> {
    let mut rest = words.iter().map(String::as_str).enumerate();
    while let Some((index, word)) = rest.next() {
        if let Some(list) = word.strip_prefix(option).and_then(|rest| rest.strip_prefix('=')) {
            return Some((index, list));
        }
        if CONTAINER.contains(&word) {
            let value = rest.next()?;
            if word == option {
                return Some(value);
            }
        }
    }
    None
}
