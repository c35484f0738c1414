//! `--diff`: a unified diff in which every hunk has its reasons.

use std::collections::BTreeSet;

use anstyle::Style;
use weftrun::convert::{Mutated, Start};
use weftrun::core::fabric::{Change, Op};
use weftrun::core::log::clean_text;
use weftrun::core::text::counted;
use weftrun::{LineDiff, Result, Run};

use super::buffer::Buffer;
use super::report::name;
use crate::output::{Output, style};

/// Lines shown around a change.
const AROUND: usize = 3;

/// Writes the diff of one document; nothing if it did not change.
pub fn write(
    buffer: &mut Buffer,
    out: &Output,
    old: &str,
    done: &Mutated<'_>,
    start: Start<'_>,
) -> Result<()> {
    if done.text == old {
        return Ok(());
    }
    let mut text = String::new();
    for job in done.jobs.iter().filter(|job| job.changed) {
        let title = format!("{}: {}", name(job), counted(job.actions.len(), "change"));
        text.push_str(&marked(out, style::BOLD, "# ", &clean_text(&title)));
    }
    let file = clean_text(start.file);
    text.push_str(&marked(out, style::BOLD, "--- a/", &file));
    text.push_str(&marked(out, style::BOLD, "+++ b/", &file));
    let diff = LineDiff::new(old, done.text.as_ref(), None);
    let mut untold: Vec<Untold<'_>> = done
        .jobs
        .iter()
        .map(|job| Untold {
            line: job.line.saturating_sub(start.line + 1),
            ops: job.plan.ops.iter().collect(),
        })
        .collect();
    for group in diff.groups(AROUND) {
        hunk(&mut text, out, &diff, &group, start, &mut untold);
    }
    buffer.write(text.as_bytes())
}

/// The ops of a job that no hunk has explained yet.
struct Untold<'o> {
    /// The job's first line in the old text, from 0.
    line: usize,
    ops: Vec<&'o Op>,
}

/// Formats one line of the diff: styled and with control characters escaped for a terminal, exact otherwise.
fn marked(out: &Output, style: Style, sign: &str, line: &str) -> String {
    let style = if out.is_styled(true) { style } else { Style::new() };
    format!("{style}{sign}{}{style:#}\n", out.diff_text(line))
}

fn hunk(
    text: &mut String,
    out: &Output,
    diff: &LineDiff<'_>,
    group: &[Run],
    start: Start<'_>,
    untold: &mut [Untold<'_>],
) {
    let (Some(first), Some(last)) = (group.first(), group.last()) else { return };
    let range = |from: usize, to: usize| {
        let count = to - from;
        let line = start.line + from + usize::from(count > 0);
        if count == 1 { line.to_string() } else { format!("{line},{count}") }
    };
    let old = range(first.old.start, last.old.end);
    let new = range(first.new.start, last.new.end);
    let mut body = String::new();
    let mut added = String::new();
    let mut say = |lines: &[&str], sign: &str, color: Style| {
        for line in lines {
            let bare = line.trim_end_matches(['\n', '\r']);
            body.push_str(&marked(out, color, sign, bare));
            if !line.ends_with('\n') {
                body.push_str("\\ No newline at end of file\n");
            }
        }
    };
    for run in group {
        let (left, right) = (&diff.old[run.old.clone()], &diff.new[run.new.clone()]);
        if run.same {
            say(left, " ", Style::new());
            continue;
        }
        say(left, "-", style::ERROR);
        say(right, "+", style::GOOD);
        added.extend(right.iter().copied());
    }
    text.push_str(&marked(out, style::NOTE, "@@ ", &format!("-{old} +{new} @@")));
    // The jobs of these lines: each begins at a line of its own, in the order of the text.
    let begin = untold.partition_point(|job| job.line <= first.old.start).saturating_sub(1);
    let end = untold.partition_point(|job| job.line <= last.old.end).max(begin + 1).min(untold.len());
    for why in reasons(&added, untold.get_mut(begin..end).unwrap_or_default()) {
        text.push_str(&marked(out, style::DIM, "# ", &clean_text(&why)));
    }
    text.push_str(&body);
}

/// Returns the reasons of the ops that show in added lines, each op once: the same rule on another role is
/// explained in its own hunk.
fn reasons(added: &str, untold: &mut [Untold<'_>]) -> Vec<String> {
    let (mut found, mut texts) = (BTreeSet::new(), Vec::new());
    for job in untold {
        job.ops.retain(|op| {
            let is_new = !found.contains(&(&op.rule, &op.why)) && shows(&op.change, added);
            if is_new {
                found.insert((&op.rule, &op.why));
                texts.push(format!("{}: {}", op.rule, op.why));
            }
            !is_new
        });
    }
    texts
}

/// Returns whether added lines were made by a change.
fn shows(change: &Change, added: &str) -> bool {
    let line_with = |words: &[&str]| added.lines().any(|line| words.iter().all(|word| line.contains(word)));
    match change {
        Change::Env { name, value } => {
            line_with(&["name", name]) || line_with(&["export", name]) || line_with(&["value", value])
        }
        Change::Mount { mount_path, .. } => {
            line_with(&["mountPath", mount_path]) || line_with(&["--container-mounts"])
        }
        Change::Resource { name, .. } | Change::Capability { name } => line_with(&[name]),
        Change::Annotation { key, .. }
        | Change::NodeSelector { key, .. }
        | Change::Toleration { key, .. } => line_with(&[key]),
        Change::Colocate { topology_key } => line_with(&[topology_key]),
        Change::Command { before, after, .. } => {
            let new = |word: &&String| !before.contains(word);
            after.iter().find(new).is_some_and(|word| word.lines().any(|line| added.contains(line.trim())))
        }
        _ => false,
    }
}
