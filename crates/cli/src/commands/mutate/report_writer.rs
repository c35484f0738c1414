//! The report of a run, written piece by piece, so that memory is bounded by the largest document.

use std::io::Write;

use serde::Serialize;
use serde_json::Value as Json;
use weftrun::convert::MutatedJob;
use weftrun::report::MutateReport;
use weftrun::{Error, ErrorKind, Finding, Result};

use super::buffer::Buffer;

/// The syntax of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// JSON, one list item per line.
    Json,
    Yaml,
}

/// A [`MutateReport`] whose lists are collected as text.
pub struct ReportWriter {
    syntax: Syntax,
    changed: bool,
    skip: Option<String>,
    /// The first error of a document that cannot be parsed, and the first of a job.
    errors: [Option<Finding>; 2],
    lists: [(&'static str, List); 4],
}

#[derive(Default)]
struct List {
    buffer: Buffer,
    filled: bool,
}

impl ReportWriter {
    pub fn new(syntax: Syntax) -> Self {
        let list = |name| (name, List::default());
        Self {
            syntax,
            changed: false,
            skip: None,
            errors: [None, None],
            lists: [list("actions"), list("notes"), list("documents"), list("findings")],
        }
    }

    pub fn job(&mut self, job: &MutatedJob) -> Result<()> {
        self.changed |= job.changed;
        self.skip = self.skip.take().or_else(|| job.skip().map(str::to_owned));
        self.errors[1] = self.errors[1].take().or_else(|| job.error().cloned());
        let [actions, notes, documents, _] = &mut self.lists;
        job.actions.iter().try_for_each(|action| actions.1.add(self.syntax, action))?;
        job.notes().try_for_each(|note| notes.1.add(self.syntax, note))?;
        documents.1.add(self.syntax, job)
    }

    /// Adds a finding about a document that is not a job.
    pub fn finding(&mut self, finding: &Finding) -> Result<()> {
        self.errors[0].get_or_insert_with(|| finding.clone());
        self.lists[3].1.add(self.syntax, finding)
    }

    pub fn write(self, out: &mut dyn Write) -> Result<()> {
        let [unreadable, of_job] = &self.errors;
        let error = unreadable.as_ref().or(of_job.as_ref());
        let (changed, skip) = (self.changed && error.is_none(), self.skip.as_deref());
        let mut head = MutateReport::new(&[], &[]);
        (head.changed, head.skip, head.error) = (changed, skip, error);
        let head = serde_json::to_value(&head).map_err(|error| bug(&error))?;
        let json = self.syntax == Syntax::Json;
        let mut lists: Vec<_> = self.lists.into_iter().collect();
        for (index, (key, value)) in head.as_object().into_iter().flatten().enumerate() {
            if json {
                write(out, &format!("{}{}:", if index == 0 { "{" } else { "," }, Json::from(key.as_str())))?;
            }
            match lists.iter().position(|(name, _)| name == key) {
                Some(at) => lists.swap_remove(at).1.write(self.syntax, key, out)?,
                None if json => write(out, &value.to_string())?,
                None => write(out, &yaml(&serde_json::json!({ key: value }))?)?,
            }
        }
        write(out, if json { "}\n" } else { "" })
    }
}

impl List {
    fn add(&mut self, syntax: Syntax, item: &impl Serialize) -> Result<()> {
        let text = match syntax {
            Syntax::Json => {
                let text = serde_json::to_string(item).map_err(|error| bug(&error))?;
                if self.filled { format!(",\n{text}") } else { text }
            }
            Syntax::Yaml => yaml(&[item])?,
        };
        self.filled = true;
        self.buffer.write(text.as_bytes())
    }

    fn write(self, syntax: Syntax, key: &str, out: &mut dyn Write) -> Result<()> {
        match syntax {
            Syntax::Json => {
                write(out, "[")?;
                self.buffer.copy_to(out)?;
                write(out, "]")
            }
            Syntax::Yaml if !self.filled => write(out, &format!("{key}: []\n")),
            Syntax::Yaml => {
                write(out, &format!("{key}:\n"))?;
                self.buffer.copy_to(out)
            }
        }
    }
}

fn yaml(value: &impl Serialize) -> Result<String> {
    let text = serde_saphyr::to_string(value).map_err(|error| bug(&error))?;
    Ok(if text.ends_with('\n') { text } else { text + "\n" })
}

fn write(out: &mut dyn Write, text: &str) -> Result<()> {
    out.write_all(text.as_bytes()).map_err(|error| {
        Error::new(ErrorKind::Io, format!("cannot write the report: {error}")).with_source(error)
    })
}

fn bug(error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unexpected, format!("the report cannot be written as text: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str, error: bool) -> MutatedJob {
        let mut job = MutatedJob::default();
        name.clone_into(&mut job.name);
        job.changed = !error;
        job.actions = vec![format!("{name}: did\n- this"), "x: y".into()];
        job.plan.findings = vec![Finding::warning("W-A", "a\n\nb # c").fix("é\u{1b}")];
        job.plan.findings.extend(error.then(|| Finding::error("E-A", "no")));
        job
    }

    #[test]
    fn piece_by_piece_is_the_same_report() {
        let unread = vec![Finding::error("E-YAML-SYNTAX", "what")];
        let cases = [
            (vec![], vec![]),
            (vec![job("a", false)], vec![]),
            (vec![job("a", false), job("- b", true), job("c", true)], vec![]),
            (vec![job("a", true)], unread),
        ];
        for (jobs, findings) in cases {
            let whole = serde_json::to_value(MutateReport::new(&jobs, &findings)).unwrap();
            for syntax in [Syntax::Json, Syntax::Yaml] {
                let mut report = ReportWriter::new(syntax);
                jobs.iter().for_each(|job| report.job(job).unwrap());
                findings.iter().for_each(|finding| report.finding(finding).unwrap());
                let mut text = Vec::new();
                report.write(&mut text).unwrap();
                let text = String::from_utf8(text).unwrap();
                let read: Json = match syntax {
                    Syntax::Json => serde_json::from_str(&text).unwrap(),
                    Syntax::Yaml => weftrun::core::span::yaml(&text).unwrap().root.to_json(),
                };
                assert_eq!(read, whole, "{text}");
            }
        }
    }
}
