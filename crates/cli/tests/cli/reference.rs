//! `docs/reference/cli.md`, made of the command line itself; man pages and completions.

use std::fmt::Write;
use std::path::Path;

use clap::{Arg, Command};

use crate::pages::own_first;
use crate::place::{Place, repo};

#[test]
fn the_page_is_current() {
    current(&repo("docs/reference/cli.md"), &page());
}

/// Asserts that a made file is what would be made now; with `WEFTRUN_WRITE_DOCS` it is written.
#[track_caller]
pub fn current(path: &Path, text: &str) {
    if std::env::var_os("WEFTRUN_WRITE_DOCS").is_some() {
        std::fs::write(path, text).unwrap();
    }
    let there = std::fs::read_to_string(path).unwrap_or_default();
    assert!(there == text, "{} is not current: run the tests with WEFTRUN_WRITE_DOCS=1", path.display());
}

fn page() -> String {
    let mut root = weftrun_cli::command();
    root.build();
    let mut page = String::from(
        "# Command line\n\nGenerated from `--help`. Results go to stdout, messages to stderr. See also the \
         [JSON schemas](json.md) and the [exit codes](exit-codes.md).\n\n`weftrun` alone opens the terminal UI.\n\n",
    );
    for verb in root.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        let name = verb.get_name();
        let _ = writeln!(page, "- [`{name}`](#weftrun-{name}): {}", about(verb));
    }
    page.push_str("\n## Global options\n\n");
    options(&mut page, &root, Arg::is_global_set);
    for verb in root.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        section(&mut page, verb, &format!("weftrun {}", verb.get_name()), 2);
    }
    page
}

fn section(page: &mut String, verb: &Command, name: &str, level: usize) {
    let _ = writeln!(page, "\n{} {name}\n\n{}\n", "#".repeat(level), about(verb));
    let usage = verb.clone().render_usage().to_string();
    let _ = writeln!(page, "```text\n{}\n```\n", usage.trim_start_matches("Usage: ").trim());
    options(page, verb, |arg| !arg.is_global_set());
    if let Some(text) = verb.get_after_help() {
        let _ = writeln!(page, "\n```text\n{}\n```", text.to_string().trim_end());
    }
    for inner in verb.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help") {
        section(page, inner, &format!("{name} {}", inner.get_name()), level + 1);
    }
}

fn options(page: &mut String, verb: &Command, wanted: impl Fn(&Arg) -> bool) {
    for arg in verb.get_arguments().filter(|arg| wanted(arg) && !arg.is_hide_set()) {
        if ["help", "version"].contains(&arg.get_id().as_str()) {
            continue;
        }
        let values: Vec<String> =
            arg.get_value_names().unwrap_or_default().iter().map(ToString::to_string).collect();
        let takes = arg.get_action().takes_values();
        let value = if takes { format!(" {}", values.join(" ")) } else { String::new() };
        let name = match (arg.get_short(), arg.get_long()) {
            (Some(short), Some(long)) => format!("-{short}, --{long}{value}"),
            (None, Some(long)) => format!("--{long}{value}"),
            (Some(short), None) => format!("-{short}{value}"),
            (None, None) => values.join(" "),
        };
        let mut said = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let words: Vec<String> = arg
            .get_possible_values()
            .iter()
            .filter(|v| !v.is_hide_set())
            .map(|v| format!("`{}`", v.get_name()))
            .collect();
        if takes && !words.is_empty() && arg.get_id().as_str() != "capture" {
            let _ = write!(said, ": {}", words.join(", "));
        }
        if let Some(env) = arg.get_env() {
            let _ = write!(said, " (`{}`)", env.display());
        }
        let _ = writeln!(page, "- `{name}`: {said}");
    }
}

fn about(verb: &Command) -> String {
    verb.get_about().map(ToString::to_string).unwrap_or_default()
}

/// Every verb has a sentence, and those with more to them an example.
#[test]
fn every_verb_is_described() {
    for verb in weftrun_cli::command().get_subcommands() {
        assert!(!about(verb).is_empty(), "{}", verb.get_name());
    }
    for verb in ["submit", "mutate", "lint", "transport", "why", "config", "init", "instances", "demo"] {
        let place = Place::new();
        let help = place.run(&format!("{verb} --help")).ok().out;
        assert!(help.contains("Examples:") && help.contains(&format!("weftrun {verb}")), "{verb}:\n{help}");
    }
}

#[test]
fn the_manual_has_a_page_for_each_verb() {
    let place = Place::new();
    assert!(place.run("man").ok().out.contains(".TH"));
    place.run("man --dir pages").ok();
    for verb in ["weftrun", "weftrun-submit", "weftrun-transport", "weftrun-config-show"] {
        let page = std::fs::read_to_string(place.path(&format!("pages/{verb}.1"))).unwrap();
        assert!(page.contains(".TH"), "{verb}");
    }
    assert!(!place.path("pages/weftrun-supervise.1").exists(), "hidden verbs have no page");
}

#[test]
fn shells_complete() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = place.run(&format!("completions {shell}")).ok().out;
        assert!(script.contains("_WEFTRUN_COMPLETE"), "{shell}: {script}");
    }
    place.write("complete.bash", place.run("completions bash").ok().out);
    place.configure("[target.rack]\nbackend = \"local\"\n");
    place.write("job.toml", "name = \"seen-before\"\ncommand = [\"true\"]\n");
    place.run("submit job.toml --wait").ok();
    // What was typed, and a word that must be offered then.
    for (typed, offered) in [
        ("tran", "transport"),
        ("plan --no-fabric-r", "--no-fabric-rule"),
        ("plan --no-fabric-rule efa.", "efa.devices"),
        ("plan --instance-type p5", "p5.48xlarge"),
        ("list --backend ra", "rack"),
        ("describe se", "seen-before"),
        ("why jo", "job.toml"),
        ("explain E-ROCE-", "E-ROCE-NOCMD"),
    ] {
        let words = format!("(weftrun {typed})");
        let check = format!(
            "source complete.bash; COMP_TYPE=9; COMP_WORDS={words}; COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 )); \
             _clap_complete_weftrun weftrun \"${{COMP_WORDS[COMP_CWORD]}}\"; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let mut bash = place.program("bash");
        bash.args(["-c", &check]).env("PATH", own_first());
        let answer = String::from_utf8(bash.output().unwrap().stdout).unwrap();
        assert!(answer.split_whitespace().any(|word| word == offered), "{typed}: {answer}");
    }
}
