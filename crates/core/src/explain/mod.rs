//! Every code, rule and reason that a report can name, with its page: the source of `weftrun explain CODE` and
//! docs/reference/codes.md. The pages of codes are the Markdown files in this folder, one a section:
//!
//! ```text
//! ## W-LDPATH-SHADOW: the meaning in one line
//!
//! What happens, and why it matters.
//!
//! What to do: …
//!
//! Source: the URL of the fact; left out where it is weftrun's own decision
//! ```

use std::sync::LazyLock;

use crate::diagnose;
use crate::request::rules::{FabricRule, RULES};

/// A code and its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodePage {
    /// The code (`W-LDPATH-SHADOW`).
    pub code: &'static str,
    /// The meaning in one line.
    pub title: &'static str,
    /// What happens, and why it matters.
    pub meaning: &'static str,
    /// What to do.
    pub fix: &'static str,
    /// The source of the fact; empty where it is weftrun's own decision.
    pub source: &'static str,
}

/// The kind of a page.
#[derive(Clone, Copy, Debug)]
pub enum Page {
    /// Of a code.
    Code(&'static CodePage),
    /// Of a rule.
    Rule(&'static FabricRule),
    /// Of a diagnosis.
    Diagnosis(&'static diagnose::Rule),
}

/// The codes with a page in this folder, by the sections of the reference page.
static SECTIONS: LazyLock<Vec<(&str, Vec<CodePage>)>> = LazyLock::new(|| FILES.map(section).into());

const FILES: [&str; 10] = [
    include_str!("errors.md"),
    include_str!("warnings.md"),
    include_str!("lints.md"),
    include_str!("skips.md"),
    include_str!("spec.md"),
    include_str!("clusters.md"),
    include_str!("hosts.md"),
    include_str!("runai.md"),
    include_str!("images.md"),
    include_str!("logs.md"),
];

/// Reads a file: its heading and its pages.
fn section(file: &'static str) -> (&'static str, Vec<CodePage>) {
    let mut pages = file.trim_end().split("\n\n## ");
    let heading = pages.next().unwrap_or_default();
    (heading.trim_start_matches("# "), pages.filter_map(CodePage::read).collect())
}

/// Returns all codes: errors, warnings and notes, lints, reasons of a skip, mistakes in files, reports of
/// clusters and logs. The diagnoses of [`diagnose::rules`] have pages too.
pub fn codes() -> impl Iterator<Item = &'static CodePage> {
    SECTIONS.iter().flat_map(|(_, codes)| codes)
}

/// Returns the page of a code, of a rule id, or of a diagnosis by its code or its number (`R01`), in any
/// case.
///
/// ```
/// use weftrun_core::explain;
/// assert!(explain::page("w-ldpath-shadow").is_some());
/// assert!(explain::page("efa.devices").is_some());
/// assert!(explain::page("NCCL-NET-SOCKET-FALLBACK").is_some());
/// assert!(explain::page("nothing").is_none());
/// ```
pub fn page(name: &str) -> Option<Page> {
    let is = |known: &str| known.eq_ignore_ascii_case(name);
    let code = || codes().find(|code| is(code.code)).map(Page::Code);
    let rule = || RULES.iter().find(|rule| is(rule.id)).map(Page::Rule);
    let diagnosis = || diagnose::rules().find(|rule| is(rule.code) || is(rule.id)).map(Page::Diagnosis);
    diagnosis().or_else(code).or_else(rule)
}

/// Sets a finding's source to that of its code's page, where it has none.
pub(crate) fn with_source(finding: crate::Finding) -> crate::Finding {
    let known = codes().find(|code| code.code == finding.code && !code.source.is_empty());
    match known.filter(|_| finding.source.is_none()) {
        Some(code) => finding.cite(code.source),
        None => finding,
    }
}

/// Returns the names of all pages, each once, for completion and "did you mean".
pub fn names() -> impl Iterator<Item = &'static str> {
    let diagnoses = diagnose::rules().map(|rule| rule.code);
    let known: Vec<&str> = diagnoses.clone().collect();
    let own = codes().map(|code| code.code).filter(move |code| !known.contains(code));
    own.chain(diagnoses).chain(RULES.iter().map(|rule| rule.id))
}

impl Page {
    /// Returns the page as text: a heading, the meaning, the fix, the source.
    pub fn text(self) -> String {
        match self {
            Self::Code(code) => code.text(),
            Self::Rule(rule) => rule_text(rule),
            Self::Diagnosis(rule) => diagnosis_text(rule),
        }
    }
}

impl CodePage {
    /// Reads a page; none if it lacks a part.
    fn read(page: &'static str) -> Option<Self> {
        let (head, body) = page.split_once("\n\n")?;
        let (code, title) = head.split_once(": ")?;
        let (meaning, rest) = body.split_once("\n\nWhat to do: ")?;
        let (fix, source) = rest.split_once("\n\nSource: ").unwrap_or((rest, ""));
        Some(Self { code, title, meaning, fix, source })
    }

    fn text(&self) -> String {
        let source =
            if self.source.is_empty() { String::new() } else { format!("\n\nSource: {}", self.source) };
        format!("{}: {}\n\n{}\n\nWhat to do: {}{source}", self.code, self.title, self.meaning, self.fix)
    }
}

fn rule_text(rule: &FabricRule) -> String {
    let depends = rule.depends_on.map_or_else(String::new, |base| format!(" It goes where `{base}` goes."));
    format!(
        "{}: {}\n\nWhy: {}.{depends}\n\nTo leave it out: --no-fabric-rule {} (or `rules = {{\"{}\" = \"off\"}}` under \
         [fabric] of the job file).\n\nSource: {}",
        rule.id, rule.what, rule.why, rule.id, rule.id, rule.source
    )
}

fn diagnosis_text(rule: &diagnose::Rule) -> String {
    let severity = severity(rule.severity);
    format!(
        "{} ({}, {severity}): {}\n\nWhat to do: {}\n\nSource: {}",
        rule.code, rule.id, rule.message, rule.fix, rule.source
    )
}

fn severity(severity: crate::Severity) -> &'static str {
    match severity {
        crate::Severity::Error => "an error",
        crate::Severity::Warning => "a warning",
        crate::Severity::Info => "a note",
    }
}

/// Returns the reference page, as Markdown. A test keeps docs/reference/codes.md equal to it.
pub fn markdown() -> String {
    let mut page = String::from(
        "# Codes and rules\n\n`weftrun explain CODE` prints one entry. A code never changes its meaning; new ones are added.\n\nLetters: `E-` an error (nothing is changed, exit \
         code 3), `W-` a warning, `I-` a note, `L-` a finding of `weftrun lint`, `SPEC-` and \
         `CONFIG-` a mistake in a job file or a config file; `K8S-`, \
         `SLURM-`, `RUNAI-`, `HOSTS-` and `LOCAL-` what a cluster says; without a letter, the reason why a fabric \
         was not applied.\n",
    );
    for (heading, codes) in SECTIONS.iter() {
        page.push_str(&format!("\n## {heading}\n"));
        for code in codes {
            let (title, source) = (capitalised(code.title), code.source);
            page.push_str(&format!("\n### {}\n\n{title}.\n\n{}\n", code.code, code.meaning));
            page.push_str(&format!("\n*What to do:* {}\n", code.fix));
            if !source.is_empty() {
                page.push_str(&format!("\n*Source:* {source}\n"));
            }
        }
    }
    page.push_str(
        "\n## Diagnoses\n\nWhat `weftrun transport`, `--follow` and the TUI conclude from NCCL's log. The number is the \
         finding's `ref`; a code may stand for several.\n",
    );
    for rule in diagnose::rules() {
        page.push_str(&format!(
            "\n### {} ({})\n\n{}: {}.\n\n*What to do:* {}.\n\n*Source:* {}\n",
            rule.code,
            rule.id,
            capitalised(severity(rule.severity)),
            rule.message,
            rule.fix,
            rule.source
        ));
    }
    page.push_str("\n## Rules\n\nEach is `auto`, `on` or `off`; see [mutation](../concepts/mutation.md).\n");
    for rule in RULES {
        let depends = rule.depends_on.map_or_else(String::new, |base| format!(" Depends on `{base}`."));
        page.push_str(&format!(
            "\n### {}\n\n{}: {}.{depends}\n\n*Source:* {}\n",
            rule.id,
            capitalised(rule.what),
            rule.why,
            rule.source
        ));
    }
    page
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_of_the_files_is_read() {
        for file in FILES {
            let pages = file.lines().filter(|line| line.starts_with("## ")).count();
            let (heading, codes) = section(file);
            assert!(
                codes.len() == pages && pages > 0,
                "{heading}: {} of {pages} pages were read",
                codes.len()
            );
            let again: String = codes.iter().map(|code| format!("\n## {}\n", code.text())).collect();
            assert_eq!(file, format!("# {heading}\n{again}"), "{heading}: a page has another form");
        }
    }
}
