//! Every code a report can name, and every rule and reason, with its page: one table, from which `weftrun explain CODE`
//! and docs/reference/codes.md are made.

mod errors;
mod lints;
mod skips;
mod warnings;

use super::rule_table::{RULES, Rule};

/// A code and its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// The code (`W-LDPATH-SHADOW`).
    pub code: &'static str,
    /// What it says, in one line.
    pub title: &'static str,
    /// What happens, and why it matters.
    pub meaning: &'static str,
    /// What to do.
    pub fix: &'static str,
    /// Where the fact is written down; empty where it is weftrun's own decision.
    pub source: &'static str,
}

/// What sort of page there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// Of a code.
    Code(&'static Code),
    /// Of a rule.
    Rule(&'static Rule),
}

/// All codes: errors, warnings and notes, lints, reasons of a skip.
pub fn codes() -> impl Iterator<Item = &'static Code> {
    [errors::ERRORS, warnings::WARNINGS, lints::LINTS, skips::SKIPS].into_iter().flatten()
}

/// The page of a code or of a rule id, whatever its case.
///
/// ```
/// use weftrun_core::mutation::codes;
/// assert!(codes::page("w-ldpath-shadow").is_some());
/// assert!(codes::page("efa.devices").is_some());
/// assert!(codes::page("nothing").is_none());
/// ```
pub fn page(name: &str) -> Option<Page> {
    let code = codes().find(|code| code.code.eq_ignore_ascii_case(name)).map(Page::Code);
    code.or_else(|| RULES.iter().find(|rule| rule.id.eq_ignore_ascii_case(name)).map(Page::Rule))
}

/// The names of all pages, for completion and "did you mean".
pub fn names() -> impl Iterator<Item = &'static str> {
    codes().map(|code| code.code).chain(RULES.iter().map(|rule| rule.id))
}

/// The name nearest to one that has no page.
pub fn nearest(name: &str) -> Option<&'static str> {
    crate::spec::did_you_mean(name, names())
}

impl Page {
    /// The page as text: a heading, what it means, what to do, where the fact stands.
    pub fn text(self) -> String {
        match self {
            Self::Code(code) => code.text(),
            Self::Rule(rule) => rule_text(rule),
        }
    }
}

impl Code {
    fn text(&self) -> String {
        let source =
            if self.source.is_empty() { String::new() } else { format!("\n\nSource: {}", self.source) };
        format!("{}: {}\n\n{}\n\nWhat to do: {}{source}", self.code, self.title, self.meaning, self.fix)
    }
}

fn rule_text(rule: &Rule) -> String {
    let depends = rule.depends_on.map_or_else(String::new, |base| format!(" It goes where `{base}` goes."));
    format!(
        "{}: {}\n\nWhy: {}.{depends}\n\nTo leave it out: --no-fabric-rule {} (or `rules = {{\"{}\" = \"off\"}}` under \
         [fabric] of the job file).\n\nSource: {}",
        rule.id, rule.what, rule.why, rule.id, rule.id, rule.source
    )
}

/// The reference page, as Markdown. A test keeps docs/reference/codes.md equal to it.
pub fn markdown() -> String {
    let mut page = String::from(
        "# Codes and rules\n\nMade from the table in `crates/core/src/mutation/codes/`; `weftrun explain CODE` prints one \
         entry. A code never changes its meaning; new ones are added.\n\nLetters: `E-` an error (nothing is changed, exit \
         code 3), `W-` a warning, `I-` a note, `L-` a finding of `weftrun lint`; without a letter, the reason why a fabric \
         was not applied.\n",
    );
    let sections = [
        ("Errors", errors::ERRORS),
        ("Warnings and notes", warnings::WARNINGS),
        ("Lints", lints::LINTS),
        ("Why a fabric was not applied", skips::SKIPS),
    ];
    for (heading, codes) in sections {
        page.push_str(&format!("\n## {heading}\n"));
        for code in codes {
            page.push_str(&format!(
                "\n### {}\n\n{}.\n\n{}\n\n*What to do:* {}\n",
                code.code,
                capitalised(code.title),
                code.meaning,
                code.fix
            ));
            if !code.source.is_empty() {
                page.push_str(&format!("\n*Source:* {}\n", code.source));
            }
        }
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
