//! Checks the README and the pages of `docs/`: links have targets, commands are valid and run, job files and
//! configurations are parsed by the real parsers.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use weftrun::core::config::{self, Input, Layer, Source};
use weftrun::core::spec::JobFile;

use crate::commands_in_pages::{self as commands, Ours};
use crate::markdown::{Block, Page, pages, root};
use crate::place::{Done, Place};
use weftrun_testkit::child;

/// Verbs that need no cluster with any arguments.
const OFFLINE: [&str; 11] = [
    "plan",
    "render",
    "mutate",
    "lint",
    "explain",
    "transport",
    "init",
    "instances",
    "backends",
    "targets",
    "config",
];

/// Collects what is wrong, so that a reader sees all of it at once.
#[derive(Default)]
struct Wrong(String);

impl Wrong {
    fn say(&mut self, page: &Page, line: usize, what: impl std::fmt::Display) {
        let _ = writeln!(self.0, "{}:{line}: {what}", page.path.display());
    }

    #[track_caller]
    fn none(self) {
        assert!(self.0.is_empty(), "\n{}", self.0);
    }
}

fn each_block(language: &str, mut look: impl FnMut(&Page, &Block)) {
    let pages = pages();
    let of = |page: &Page| page.blocks.iter().position(|block| block.language() == language).is_some();
    assert!(pages.iter().any(of), "no page has a block of {language}");
    for page in &pages {
        page.blocks.iter().filter(|block| block.language() == language).for_each(|block| look(page, block));
    }
}

#[test]
fn every_link_leads_somewhere() {
    let (root, pages, mut wrong) = (root(), pages(), Wrong::default());
    for page in &pages {
        for (line, target) in &page.links {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let folder = page.path.parent().unwrap_or(Path::new(""));
            let path = if file.is_empty() { root.join(&page.path) } else { root.join(folder).join(file) };
            let Ok(path) = path.canonicalize() else {
                wrong.say(page, *line, format!("there is no {target}"));
                continue;
            };
            let other = pages.iter().find(|other| root.join(&other.path) == path);
            if !anchor.is_empty() && !other.is_some_and(|other| other.anchors.iter().any(|own| own == anchor))
            {
                wrong.say(page, *line, format!("there is no heading #{anchor} in {}", path.display()));
            }
        }
    }
    wrong.none();
}

#[test]
fn every_page_is_in_the_book() {
    let (pages, mut wrong) = (pages(), Wrong::default());
    let book = pages.iter().find(|page| page.path.ends_with("docs/SUMMARY.md")).unwrap();
    let listed: BTreeSet<_> = book.links.iter().map(|(_, target)| Path::new("docs").join(target)).collect();
    for page in
        pages.iter().filter(|page| page.path.starts_with("docs") && !page.path.ends_with("SUMMARY.md"))
    {
        if !listed.contains(&page.path) {
            wrong.say(page, 1, "not in docs/SUMMARY.md");
        }
    }
    wrong.none();
}

#[test]
fn every_block_says_its_language() {
    let mut wrong = Wrong::default();
    for page in &pages() {
        for block in page.blocks.iter().filter(|block| block.info.is_empty()) {
            wrong.say(page, block.line, "a block without a language");
        }
    }
    wrong.none();
}

#[test]
fn every_command_is_understood() {
    let mut wrong = Wrong::default();
    for language in ["sh", "console"] {
        each_block(language, |page, block| {
            for ours in commands::of(&block.text) {
                let argv = ["weftrun".to_owned()].into_iter().chain(ours.words.iter().cloned());
                if let Err(error) = weftrun_cli::command().try_get_matches_from(argv)
                    && error.use_stderr()
                {
                    let first = error.to_string().lines().next().unwrap_or_default().to_owned();
                    wrong.say(page, block.line, format!("weftrun {}: {first}", ours.words.join(" ")));
                }
            }
        });
    }
    wrong.none();
}

/// A place with the files a page shows, and files of the names that pages talk about.
fn place_of(page: &Page) -> Place {
    let place = Place::new();
    let samples = root().join("crates/cli/tests/pages");
    for name in ["job.toml", "job.yaml", "train.sbatch", "train.py", "main.py", "slurm-1234.out"] {
        place.write(name, std::fs::read(samples.join(name)).unwrap());
    }
    for rank in 0..4 {
        let name = format!("rank{rank}.log");
        let captures = root().join("crates/diagnose/tests/cases/nccl/captures/socket_2x2");
        place.write(&format!("logs/{name}"), std::fs::read(captures.join(&name)).unwrap());
    }
    for block in &page.blocks {
        match block.file() {
            Some("~/.config/weftrun/config.toml") => place.configure(&block.text),
            Some(name) if !name.contains(['/', '~']) => drop(place.write(name, &block.text)),
            _ => {}
        }
    }
    place
}

/// Returns whether a command can be run here: it needs no cluster and no input.
fn runs_here(ours: &Ours) -> bool {
    let verb = ours.words.iter().find(|word| OFFLINE.contains(&word.as_str()));
    let online =
        ["--online", "trust", "--follow", "-"].iter().any(|word| ours.words.iter().any(|own| own == word));
    let handle = ours.words.iter().any(|word| word.contains("://") || word.contains('$'));
    verb.is_some() && !online && !handle && !ours.fed
}

#[test]
fn every_command_without_a_cluster_runs() {
    let mut wrong = Wrong::default();
    let mut count = 0;
    for page in &pages() {
        let place = place_of(page);
        let blocks = page.blocks.iter().filter(|block| block.language() == "sh" && !block.has("run"));
        for block in blocks {
            for ours in commands::of(&block.text).iter().filter(|ours| runs_here(ours)) {
                count += 1;
                let done = Done::of(place.command(&ours.words));
                // What a lint finds and what a log proves are answers, not failures.
                let said =
                    ["lint", "transport"].iter().any(|verb| ours.words.iter().any(|word| word == verb));
                if done.code != 0 && !(said && [3, 7].contains(&done.code)) {
                    wrong.say(
                        page,
                        block.line,
                        format!("weftrun {}: {}\n{}", ours.words.join(" "), done.code, done.err),
                    );
                }
            }
        }
    }
    assert!(count > 20, "only {count} commands were run");
    wrong.none();
}

#[test]
fn blocks_that_say_so_run_whole() {
    let mut wrong = Wrong::default();
    for page in &pages() {
        let scripts: Vec<&Block> =
            page.blocks.iter().filter(|block| block.language() == "sh" && block.has("run")).collect();
        if scripts.is_empty() {
            continue;
        }
        if page.path.ends_with("python-json.md") && child::command("python3").arg("-V").output().is_err() {
            weftrun_testkit::skipped(format_args!("{}: python3 is not installed", page.path.display()));
            continue;
        }
        let place = place_of(page);
        for block in scripts {
            let done = Done::of(shell(&place, &block.text));
            if done.code != 0 {
                wrong.say(page, block.line, format!("ended with {}\n{}\n{}", done.code, done.out, done.err));
            }
        }
    }
    wrong.none();
}

/// The folders of programs, the binary's own one first.
pub fn own_first() -> String {
    let folder = Path::new(env!("CARGO_BIN_EXE_weftrun")).parent().unwrap();
    format!("{}:{}", folder.display(), child::path())
}

/// A shell that runs a script in a place, with the binary in its PATH.
fn shell(place: &Place, script: &str) -> Command {
    let mut command = place.program("sh");
    command.args(["-euc", script]).env("PATH", own_first());
    command
}

/// What a block of TOML is.
enum Toml {
    Config,
    Job(String),
    Cargo,
}

fn kind_of(block: &Block) -> Toml {
    let keys = ["default_target", "[target", "[profile", "[instances", "[job", "[tui", "[history", "lock ="];
    let is = |keys: &[&str]| block.text.lines().any(|line| keys.iter().any(|key| line.starts_with(key)));
    match block.file() {
        _ if is(&["[dependencies]", "[dev-dependencies]", "[package]"]) => Toml::Cargo,
        Some(name) if name.ends_with("config.toml") || name.ends_with(".weftrun.toml") => Toml::Config,
        None if is(&keys) => Toml::Config,
        // A part of a job: the keys of every job are put before it.
        _ if !is(&["name ="]) => Toml::Job(format!("name = \"x\"\ncommand = [\"true\"]\n{}", block.text)),
        _ => Toml::Job(block.text.clone()),
    }
}

#[test]
fn every_job_and_configuration_is_read() {
    let mut wrong = Wrong::default();
    each_block("toml", |page, block| {
        let problem = match kind_of(block) {
            Toml::Cargo => block.text.parse::<toml_edit::DocumentMut>().err().map(|error| error.to_string()),
            Toml::Job(text) => JobFile::parse("job.toml", text.as_bytes()).err().map(|error| said(&error)),
            Toml::Config => {
                let source =
                    |layer| Source { layer, file: "config.toml".to_owned(), text: block.text.clone() };
                let input = |layer| Input { sources: vec![source(layer)], ..Input::default() };
                let read = config::resolve(&input(Layer::User));
                let read = read.or_else(|_| config::resolve(&input(Layer::System)));
                read.err().map(|error| said(&error))
            }
        };
        if let Some(problem) = problem {
            wrong.say(page, block.line, problem);
        }
    });
    wrong.none();
}

fn said(error: &weftrun::Error) -> String {
    let findings: Vec<_> = error.findings().iter().map(|finding| finding.message.clone()).collect();
    format!("{error}: {}", findings.join("; "))
}

#[test]
fn every_json_and_yaml_is_read() {
    let mut wrong = Wrong::default();
    for page in &pages() {
        for block in &page.blocks {
            let problem = match block.language() {
                "json" => serde_json::from_str::<serde_json::Value>(&block.text)
                    .err()
                    .map(|error| error.to_string()),
                "yaml" => serde_saphyr::from_multiple::<serde_json::Value>(&block.text)
                    .err()
                    .map(|error| error.to_string()),
                _ => None,
            };
            if let Some(problem) = problem {
                wrong.say(page, block.line, problem);
            }
        }
    }
    wrong.none();
}

/// Pages whose Rust is compiled as documentation tests of the SDK.
const COMPILED: [&str; 3] = ["README.md", "docs/start/rust.md", "docs/guides/verify.md"];

#[test]
fn rust_is_compiled_or_says_that_it_is_a_piece() {
    let mut wrong = Wrong::default();
    let sdk = std::fs::read_to_string(root().join("crates/sdk/src/lib.rs")).unwrap();
    for page in COMPILED {
        assert!(sdk.contains(&format!("{page}\"")), "crates/sdk/src/lib.rs does not include {page}");
    }
    each_block("rust", |page, block| {
        let compiled = COMPILED.iter().any(|path| page.path == Path::new(path));
        if compiled && block.has("ignore") {
            wrong.say(page, block.line, "the page is compiled, and this is not");
        }
        if !compiled && !is_in_the_example(&block.text) {
            wrong.say(page, block.line, "add the page to COMPILED, or show lines of examples/custom-backend");
        }
    });
    wrong.none();
}

/// Returns whether every line of a piece is in the example, which `.ci/example` compiles, but for comments and what `…` leaves out.
fn is_in_the_example(piece: &str) -> bool {
    let folder = root().join("examples/custom-backend");
    let mut sources = String::new();
    for part in ["src", "tests"] {
        for path in std::fs::read_dir(folder.join(part)).unwrap().map(|entry| entry.unwrap().path()) {
            sources.push_str(&std::fs::read_to_string(path).unwrap());
        }
    }
    let known: BTreeSet<&str> = sources.lines().map(without_comment).collect();
    let is_known = |line: &str| match line.split_once('…') {
        Some((before, _)) => known.iter().any(|own| own.starts_with(before.trim_end())),
        None => known.contains(line),
    };
    let unknown: Vec<&str> = piece.lines().map(without_comment).filter(|line| !is_known(line)).collect();
    assert!(unknown.is_empty(), "not in the example: {unknown:#?}");
    true
}

fn without_comment(line: &str) -> &str {
    line.split_once("//").map_or(line, |(code, _)| code).trim()
}

/// A reader copies the manifest and the program into an empty folder.
#[test]
fn the_manifest_for_rust_programs_has_what_the_program_uses() {
    let page = pages().into_iter().find(|page| page.path.ends_with("docs/start/rust.md")).unwrap();
    let block = page.blocks.iter().find(|block| block.file() == Some("Cargo.toml")).unwrap();
    let manifest: toml_edit::DocumentMut = block.text.parse().unwrap();
    let program = page.blocks.iter().find(|block| block.language() == "rust").unwrap();
    let words = program.text.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
    let used: BTreeSet<String> = words
        .filter_map(|word| word.split_once("::"))
        .map(|(name, _)| name.replace('_', "-"))
        .filter(|name| name.starts_with(|c: char| c.is_ascii_lowercase()))
        .collect();
    assert!(used.contains("weftrun") && used.contains("tokio"), "{used:?}");
    for name in used {
        assert!(manifest["dependencies"].get(&name).is_some(), "{name} is not in the manifest");
    }
}

#[test]
fn the_page_on_backends_shows_the_manifest_of_the_example() {
    let page = pages().into_iter().find(|page| page.path.ends_with("docs/adding-a-backend.md")).unwrap();
    let shown = page.blocks.iter().find(|block| block.file() == Some("Cargo.toml")).unwrap();
    let example = std::fs::read_to_string(root().join("examples/custom-backend/Cargo.toml")).unwrap();
    for line in shown.text.lines().skip(1).map(|line| line.replace("../weftrun/", "../../")) {
        assert!(example.lines().any(|own| own == line), "not in the example: {line}");
    }
}

/// Everything in backticks in a page, with its line.
fn code_spans(path: &str) -> Vec<(usize, String)> {
    let text = std::fs::read_to_string(root().join(path)).unwrap();
    let spans = |line: &str| line.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    text.lines()
        .enumerate()
        .flat_map(|(at, line)| spans(line).into_iter().map(move |span| (at + 1, span)))
        .collect()
}

#[test]
fn every_path_that_newcomers_are_sent_to_is_there() {
    let mut missing = Vec::new();
    for page in ["CONTRIBUTING.md", "docs/architecture.md", "docs/security.md"] {
        for (line, span) in code_spans(page) {
            let ours = ["crates/", "docs/", ".ci/", "test-cluster/", "examples/"]
                .iter()
                .any(|root| span.starts_with(root));
            if ours && !span.contains(['*', 'N', ' ']) && !root().join(&span).exists() {
                missing.push(format!("{page}:{line}: {span}"));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn every_defence_names_tests_that_are_there() {
    let text = std::fs::read_to_string(root().join("docs/security.md")).unwrap();
    let mut sources = String::new();
    let mut folders = vec![root().join("crates")];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            match path.extension() {
                _ if path.is_dir() => folders.push(path),
                Some(end) if end == "rs" => sources.push_str(&std::fs::read_to_string(&path).unwrap()),
                _ => {}
            }
        }
    }
    let (mut rows, mut missing) = (0, Vec::new());
    let table = text.lines().skip_while(|line| !line.starts_with("| threat")).skip(2);
    for row in table.take_while(|line| line.starts_with('|')) {
        let held_by = row.rsplit(" | ").next().unwrap_or_default();
        let tests: Vec<&str> = held_by.split('`').skip(1).step_by(2).collect();
        rows += 1;
        let absent = |name: &&str| !sources.contains(&format!("fn {name}("));
        missing.extend(
            tests
                .iter()
                .filter(|name| !name.contains(['/', '.']))
                .filter(|name| absent(name))
                .map(|name| (*name).to_owned()),
        );
        if tests.is_empty() {
            missing.push(format!("nothing holds: {row}"));
        }
    }
    assert!(rows > 10 && missing.is_empty(), "{rows} rows, missing: {missing:#?}");
}

#[test]
fn the_oldest_rust_is_one_number_everywhere() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let manifest: toml_edit::DocumentMut = read("Cargo.toml").parse().unwrap();
    let version = manifest["workspace"]["package"]["rust-version"].as_str().unwrap();
    for page in
        ["README.md", "crates/sdk/src/lib.rs", "docs/start/rust.md", "examples/custom-backend/Cargo.toml"]
    {
        assert!(read(page).contains(version), "{page} does not say {version}");
    }
}
