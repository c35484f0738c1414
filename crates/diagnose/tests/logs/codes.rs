//! The table of codes: every code in the sources has its page, and the reference page is that table.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking, and say when they are skipped")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use weftrun_core::fabric::SkipReason;
use weftrun_core::request::RULES;
use weftrun_diagnose::explain;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            found.push(path);
        }
    }
}

/// Returns the codes in the sources, including their unit tests: everything that looks like a code.
fn codes_in_sources() -> BTreeSet<String> {
    let mut files = Vec::new();
    for name in ["core", "diagnose", "backends", "sdk", "cli", "tui"] {
        rust_files(&root().join("crates").join(name).join("src"), &mut files);
    }
    let beginnings: BTreeSet<&str> =
        explain::codes().filter_map(|code| Some(code.code.split_once('-')?.0)).collect();
    // A word with `-` at its end is the beginning of several codes.
    let is_code = |word: &&str| {
        !word.ends_with('-')
            && word
                .split_once('-')
                .is_some_and(|(beginning, rest)| beginnings.contains(beginning) && rest.len() > 1)
            && word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '-')
    };
    let texts: Vec<String> = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    // What a finding is made with is a code, whatever it begins with.
    let of_findings = texts.iter().flat_map(|text| text.split("Finding::").skip(1)).filter_map(|rest| {
        let (maker, rest) = rest.split_once('(')?;
        let word = rest.trim_start().strip_prefix('"')?.split('"').next()?;
        (["error", "warning", "info"].contains(&maker) && word.len() > 4).then_some(word)
    });
    let words = texts.iter().flat_map(|text| text.split('"').filter(is_code));
    words.chain(of_findings).map(str::to_owned).collect()
}

#[test]
fn every_code_in_the_sources_has_its_page() {
    let missing: Vec<String> =
        codes_in_sources().into_iter().filter(|code| explain::page(code).is_none()).collect();
    assert!(missing.is_empty(), "no page in core/src/explain for {missing:?}");
}

#[test]
fn every_reason_of_a_skip_has_its_page() {
    let missing: Vec<_> =
        SkipReason::ALL.into_iter().filter(|reason| explain::page(reason.as_str()).is_none()).collect();
    assert!(missing.is_empty(), "no page in core/src/explain for {missing:?}");
}

#[test]
fn codes_and_rules_are_unique_and_say_something() {
    let mut seen = BTreeSet::new();
    for name in explain::names() {
        assert!(seen.insert(name), "{name} stands twice");
        assert!(
            explain::page(name).unwrap().text().contains("Source") || !name.starts_with("L-"),
            "{name} has no source"
        );
    }
    for code in explain::codes() {
        assert!(
            !code.title.ends_with('.') && code.meaning.ends_with('.') && code.fix.ends_with('.'),
            "{}",
            code.code
        );
    }
    for rule in RULES {
        assert!(rule.depends_on.is_none_or(|base| RULES.iter().any(|rule| rule.id == base)), "{}", rule.id);
    }
}

#[test]
fn the_reference_page_is_the_table() {
    let path = root().join("docs/reference/codes.md");
    if std::env::var_os("WEFTRUN_WRITE_DOCS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, explain::markdown()).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == explain::markdown(),
        "run this test with WEFTRUN_WRITE_DOCS=1 to write {}",
        path.display()
    );
}
