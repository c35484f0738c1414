//! Compares the rendered document with the one without the fabric's changes; each changed line refers to its
//! change.

use std::collections::BTreeSet;
use std::time::Duration;

use weftrun::LineDiff;
use weftrun::core::backend::Rendered;
use weftrun::core::fabric::{Change, Op};
use weftrun::core::log::clean_line;

/// How long documents are compared before the rest is compared less precisely: a job of thousands of
/// processes has a long one.
const PATIENCE: Duration = Duration::from_millis(300);

/// A line of the comparison, safe to draw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Row {
    /// The same in both documents.
    Same(String),
    /// On one side only, or another on each.
    Other {
        /// Without the changes.
        before: Option<String>,
        /// As it is sent.
        after: Option<String>,
        /// The change behind it, by its index.
        change: Option<usize>,
    },
}

impl Row {
    pub fn change(&self) -> Option<usize> {
        match self {
            Self::Same(_) => None,
            Self::Other { change, .. } => *change,
        }
    }
}

/// A line of the diff as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line<'r> {
    /// The same in both.
    Same(&'r str),
    /// So many lines that are the same in both.
    Skipped(usize),
    /// The change above comes so many more times.
    Repeated(usize),
    /// Only without the changes.
    Removed(&'r str, Option<usize>),
    /// Only with them.
    Added(&'r str, Option<usize>),
    /// A change that is switched off, and so in neither.
    Off(usize),
}

impl Line<'_> {
    pub fn change(self) -> Option<usize> {
        match self {
            Self::Same(_) | Self::Skipped(_) | Self::Repeated(_) => None,
            Self::Removed(_, change) | Self::Added(_, change) => change,
            Self::Off(change) => Some(change),
        }
    }
}

/// Lines around a change that are shown though they are the same.
const CONTEXT: usize = 2;

/// Returns the comparison as a diff: the changes with some context, then what is switched off. A change that is repeated
/// (the processes of a job often get the same) is shown once, with the number of its repeats.
pub fn diff(rows: &[Row], off: impl Iterator<Item = usize>) -> Vec<Line<'_>> {
    let mut lines = Vec::new();
    let (mut at, mut repeats) = (0, 0);
    // The rows that are the same since the last change, and that change.
    let (mut same, mut last): (&[Row], &[Row]) = (&[], &[]);
    while at < rows.len() {
        let changes = matches!(rows[at], Row::Other { .. });
        let run = rows[at..].iter().take_while(|row| matches!(row, Row::Other { .. }) == changes).count();
        let chunk = &rows[at..at + run];
        at += run;
        if !changes {
            same = chunk;
        } else if chunk == last {
            (repeats, same) = (repeats + 1, &[]);
        } else {
            lines.extend((repeats > 0).then_some(Line::Repeated(repeats)));
            let head = if lines.is_empty() { 1 } else { CONTEXT };
            around(same, head, CONTEXT, &mut lines);
            hunk(chunk, &mut lines);
            (repeats, same, last) = (0, &[], chunk);
        }
    }
    lines.extend((repeats > 0).then_some(Line::Repeated(repeats)));
    around(same, if lines.is_empty() { 1 } else { CONTEXT }, 0, &mut lines);
    lines.extend(off.map(Line::Off));
    lines
}

/// Adds what is removed, then what is added.
fn hunk<'r>(rows: &'r [Row], lines: &mut Vec<Line<'r>>) {
    lines.extend(rows.iter().filter_map(|row| match row {
        Row::Other { before: Some(text), change, .. } => Some(Line::Removed(text, *change)),
        _ => None,
    }));
    lines.extend(rows.iter().filter_map(|row| match row {
        Row::Other { after: Some(text), change, .. } => Some(Line::Added(text, *change)),
        _ => None,
    }));
}

/// Adds the first and the last of some lines that are the same.
fn around<'r>(rows: &'r [Row], head: usize, tail: usize, lines: &mut Vec<Line<'r>>) {
    let text = |row: &'r Row| if let Row::Same(text) = row { Some(Line::Same(text)) } else { None };
    if rows.len() <= head + tail + 1 {
        lines.extend(rows.iter().filter_map(text));
        return;
    }
    lines.extend(rows[..head].iter().filter_map(text));
    lines.push(Line::Skipped(rows.len() - head - tail));
    lines.extend(rows[rows.len() - tail..].iter().filter_map(text));
}

/// Compares a document without the changes (`bare`) with the one that is sent.
pub fn compare(bare: Option<&Rendered>, sent: &Rendered, changes: &[Op]) -> Vec<Row> {
    let after = text(sent);
    // Each plan has its own id, which is not a change by the fabric.
    let before = bare.map_or_else(
        || after.clone(),
        |bare| text(bare).replace(bare.submission.as_str(), sent.submission.as_str()),
    );
    let compared = LineDiff::new(&before, &after, Some(PATIENCE));
    let mut causes = Causes::new(changes);
    let mut rows = Vec::new();
    for run in compared.runs() {
        let (left, right) = (&compared.old[run.old], &compared.new[run.new]);
        if run.same {
            causes.last = None;
            rows.extend(right.iter().map(|line| Row::Same(safe(line))));
            continue;
        }
        for at in 0..left.len().max(right.len()) {
            let line = |side: &[&str]| side.get(at).map(|line| safe(line));
            let (before, after) = (line(left), line(right));
            let change = causes.of(after.as_deref().or(before.as_deref()).unwrap_or_default());
            rows.push(Row::Other { before, after, change });
        }
    }
    fill(&mut rows);
    rows
}

/// Returns the changes in the order of the document; those it does not show are last.
pub fn order(rows: &[Row], changes: usize) -> Vec<usize> {
    let mut seen = BTreeSet::new();
    let shown = rows.iter().filter_map(Row::change).filter(|change| seen.insert(*change)).collect::<Vec<_>>();
    let rest = (0..changes).filter(|change| !seen.contains(change));
    shown.iter().copied().chain(rest).collect()
}

fn text(rendered: &Rendered) -> String {
    rendered.documents.iter().map(|d| format!("# {}\n{}\n", d.title, d.text.trim_end())).collect()
}

fn safe(line: &str) -> String {
    clean_line(line.trim_end_matches('\n').as_bytes()).text
}

/// Finds the change behind a line: the one it names, else one whose value it contains, else that of the
/// previous line (`value:` under `name:`).
struct Causes {
    names: Vec<(String, usize)>,
    values: Vec<(String, usize)>,
    last: Option<usize>,
}

impl Causes {
    fn new(changes: &[Op]) -> Self {
        let (mut names, mut values) = (Vec::new(), Vec::new());
        for (at, op) in changes.iter().enumerate() {
            let (of_name, of_value) = words(op);
            names.extend(of_name.into_iter().map(|word| (word, at)));
            values.extend(of_value.into_iter().map(|word| (word, at)));
        }
        Self { names, values, last: None }
    }

    fn of(&mut self, line: &str) -> Option<usize> {
        let line = line.trim();
        let tokens: BTreeSet<&str> = line.split(is_border).map(|token| token.trim_end_matches(':')).collect();
        let named = |words: &[(String, usize)]| {
            words.iter().find(|(word, _)| tokens.contains(word.as_str())).map(|(_, at)| *at)
        };
        let held = || {
            let values = self.values.iter().filter(|(word, _)| word.len() > 3);
            values.clone().find(|(word, _)| line.contains(word.as_str())).map(|(_, at)| *at)
        };
        // A new item of a list is seldom of the change before it; a heading belongs to what follows.
        let goes_on = self.last.filter(|_| !line.starts_with("- "));
        self.last = match named(&self.names) {
            Some(change) => Some(change),
            None if line.ends_with(':') => None,
            None => goes_on.or_else(|| named(&self.values)).or_else(held).or(self.last),
        };
        self.last
    }
}

/// Assigns to headings the change of the line below them.
fn fill(rows: &mut [Row]) {
    let mut below = None;
    for row in rows.iter_mut().rev() {
        match row {
            Row::Same(_) => below = None,
            Row::Other { change, .. } => {
                *change = change.or(below);
                below = *change;
            }
        }
    }
}

/// Returns whether a character separates words in YAML, TOML, JSON and shell.
fn is_border(c: char) -> bool {
    c.is_whitespace() || matches!(c, '"' | '\'' | ',' | '=' | '{' | '}' | '[' | ']' | '(' | ')' | ';')
}

/// Returns the words by which a change is found in a document: its names and its values.
fn words(op: &Op) -> (Vec<String>, Vec<String>) {
    match &op.change {
        Change::Env { name, value } => (vec![name.clone()], vec![value.clone()]),
        Change::Mount { name, host_path, mount_path, .. } => {
            (vec![name.clone()], vec![mount_path.clone(), host_path.clone()])
        }
        Change::Resource { name, .. } | Change::Capability { name } => (vec![name.clone()], Vec::new()),
        Change::Annotation { key, value } | Change::NodeSelector { key, value } => {
            (vec![key.clone()], vec![value.clone()])
        }
        Change::Colocate { topology_key } => (vec![topology_key.clone()], Vec::new()),
        Change::Toleration { key, .. } => (vec![key.clone()], Vec::new()),
        Change::Command { after, .. } | Change::Wrap { argv: after } => {
            (Vec::new(), after.iter().filter(|word| word.len() > 3).cloned().collect())
        }
        Change::Mpirun { path, .. } => (Vec::new(), vec![path.clone()]),
        _ => (Vec::new(), Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_changes_are_shown_once() {
        let same = |text: &str| Row::Same(text.to_owned());
        let added = |text: &str| Row::Other { before: None, after: Some(text.to_owned()), change: Some(0) };
        let mut rows = vec![same("head")];
        for rank in 0..32 {
            rows.extend([same(&format!("rank {rank}")), added("NCCL_DEBUG=INFO")]);
        }
        rows.extend([same("end"), added("other"), same("last")]);
        let shown = diff(&rows, [3].into_iter());
        let wanted = [
            Line::Same("head"),
            Line::Same("rank 0"),
            Line::Added("NCCL_DEBUG=INFO", Some(0)),
            Line::Repeated(31),
            Line::Same("end"),
            Line::Added("other", Some(0)),
            Line::Same("last"),
            Line::Off(3),
        ];
        assert_eq!(shown, wanted);
    }

    #[test]
    fn a_line_is_of_the_change_it_names() {
        let env = |name: &str, value: &str| Change::Env { name: name.into(), value: value.into() };
        let mount = Change::Mount {
            name: "ofi".into(),
            host_path: "/opt/ofi".into(),
            mount_path: "/opt/ofi".into(),
            read_only: true,
        };
        let resource = Change::Resource { name: "vpc.amazonaws.com/efa".into(), quantity: "32".into() };
        let changes = [mount, env("LD_LIBRARY_PATH", "/opt/ofi/lib"), env("FI_EFA_FORK_SAFE", "1"), resource];
        let origin = weftrun::core::fabric::Origin::Default;
        let op = |(at, change): (usize, &Change)| {
            Op::new(format!("rule.{at}"), "worker", change.clone(), "because", origin.clone())
        };
        let ops: Vec<Op> = changes.iter().enumerate().map(op).collect();
        let mut causes = Causes::new(&ops);
        let lines = [
            ("  - name: LD_LIBRARY_PATH", Some(1)),
            ("    value: /opt/ofi/lib:/usr/lib", Some(1)),
            ("  - name: \"FI_EFA_FORK_SAFE\"", Some(2)),
            ("    value: \"1\"", Some(2)),
            ("  volumeMounts:", None),
            ("  - mountPath: /opt/ofi", Some(0)),
            ("    readOnly: true", Some(0)),
            ("  vpc.amazonaws.com/efa: 32", Some(3)),
            ("export LD_LIBRARY_PATH=/opt/ofi/lib", Some(1)),
        ];
        for (line, change) in lines {
            assert_eq!(causes.of(line), change, "{line}");
        }
        let other = |after: &str, change| Row::Other { before: None, after: Some(after.into()), change };
        let mut rows =
            [other("volumes:", None), other("- hostPath: /opt/ofi", Some(0)), Row::Same("x".into())];
        fill(&mut rows);
        assert_eq!(rows[0].change(), Some(0));
        assert_eq!(order(&rows, 3), [0, 1, 2]);
    }
}
