//! Every code that a report can name, with its page: the Markdown files in this folder, one a section.
//! `weftrun_diagnose::explain` has them together with the rules.
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

static SECTIONS: LazyLock<Vec<(&str, Vec<CodePage>)>> = LazyLock::new(|| FILES.map(section).into());

const FILES: [&str; 11] = [
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
    include_str!("history.md"),
];

/// Reads a file: its heading and its pages.
fn section(file: &'static str) -> (&'static str, Vec<CodePage>) {
    let mut pages = file.trim_end().split("\n\n## ");
    let heading = pages.next().unwrap_or_default();
    (heading.trim_start_matches("# "), pages.filter_map(CodePage::read).collect())
}

/// Returns the sections of the reference page, each with its codes.
pub fn sections() -> impl Iterator<Item = (&'static str, &'static [CodePage])> {
    SECTIONS.iter().map(|(heading, codes)| (*heading, codes.as_slice()))
}

/// Returns all codes: errors, warnings and notes, lints, reasons of a skip, mistakes in files, reports of
/// clusters and logs.
pub fn codes() -> impl Iterator<Item = &'static CodePage> {
    SECTIONS.iter().flat_map(|(_, codes)| codes)
}

/// Sets a finding's source to that of its code's page, where it has none.
pub fn with_source(finding: crate::Finding) -> crate::Finding {
    let known = codes().find(|code| code.code == finding.code && !code.source.is_empty());
    match known.filter(|_| finding.source.is_none()) {
        Some(code) => finding.cite(code.source),
        None => finding,
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

    /// Returns the page as text: a heading, the meaning, the fix, the source.
    pub fn text(&self) -> String {
        let source =
            if self.source.is_empty() { String::new() } else { format!("\n\nSource: {}", self.source) };
        format!("{}: {}\n\n{}\n\nWhat to do: {}{source}", self.code, self.title, self.meaning, self.fix)
    }
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
