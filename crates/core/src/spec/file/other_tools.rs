//! Files that are for other tools: manifests and scripts, which are named for what they are.

use super::keys::JOB;
use crate::finding::Finding;
use crate::shell;
use crate::span::{SpanTree, Value};

const CODE: &str = "SPEC-OTHER-FILE";

/// Returns the finding of a file that is no job file but one of another tool.
pub(super) fn finding(
    file: &str,
    text: &str,
    root: Option<&SpanTree<'_>>,
    is_broken: bool,
) -> Option<Finding> {
    let text_of = |key: &str| root.and_then(|root| root.get(key)).and_then(SpanTree::as_str);
    let is_table = root.is_some_and(|root| matches!(root.value, Value::Map(_)));
    if let (Some(_), Some(kind)) = (text_of("apiVersion"), text_of("kind")) {
        return Some(of_manifest(file, &shown(kind)));
    }
    if let Some(tool) = root.and_then(tool_of) {
        let fix = "write a job file (`weftrun init`) with its command, nodes and GPUs".to_owned();
        return Some(other(file, tool, fix));
    }
    if !is_broken && is_table {
        return None;
    }
    if text.lines().take(200).any(|line| line.starts_with("#SBATCH ")) {
        return Some(of_sbatch(file, text));
    }
    kinds_of(text).map(|kinds| of_manifest(file, &kinds)).or_else(|| of_script(file, text))
}

/// Returns what a file of another tool is, by keys that neither an object of Kubernetes nor a job file has. A job file may have
/// `run` where `command` is meant, and both tools have `name` and `resources`, with other contents.
pub fn tool_of(root: &SpanTree<'_>) -> Option<&'static str> {
    const OF_DSTACK: [&str; 6] = ["task", "service", "dev-environment", "fleet", "gateway", "volume"];
    let has = |key: &str| root.get(key).is_some();
    let is_type =
        || root.get("type").and_then(SpanTree::as_str).is_some_and(|word| OF_DSTACK.contains(&word));
    if has("apiVersion") || has("kind") {
        None
    } else if is_type() {
        Some("a dstack configuration")
    } else if has("run") && is_of_skypilot(root) {
        Some("a SkyPilot task")
    } else if has("services") {
        Some("a Compose file")
    } else {
        None
    }
}

/// Returns whether a file has keys that only SkyPilot has, and none that only job files have (`get_task_schema` of its
/// sky/utils/schemas.py, commit 00052dfe, read 2026-11-27).
fn is_of_skypilot(root: &SpanTree<'_>) -> bool {
    const OF_BOTH: [&str; 5] = ["name", "resources", "volumes", "workdir", "secrets"];
    const OWN: [&str; 4] = ["num_nodes", "setup", "file_mounts", "envs"];
    const OF_RESOURCES: [&str; 7] =
        ["accelerators", "infra", "cloud", "region", "use_spot", "any_of", "ordered"];
    let Value::Map(entries) = &root.value else { return false };
    let is_own_word = |key: &str| JOB.key(key).is_some() && !OF_BOTH.contains(&key);
    if entries.iter().any(|entry| is_own_word(&entry.key)) {
        return false;
    }
    let resources = root.get("resources");
    OWN.iter().any(|key| root.get(key).is_some())
        || OF_RESOURCES.iter().any(|key| resources.and_then(|resources| resources.get(key)).is_some())
}

fn other(file: &str, what: &str, fix: String) -> Finding {
    Finding::error(CODE, format!("{file} is {what}, not a job file")).fix(fix)
}

fn of_manifest(file: &str, kinds: &str) -> Finding {
    other(file, &format!("a Kubernetes manifest ({kinds})"), both_ways(file, "kubectl apply -f -"))
}

fn both_ways(file: &str, program: &str) -> String {
    format!(
        "`weftrun mutate -f {file} | {program}` submits it with its fabric, and `weftrun import {file}` makes a job file of it"
    )
}

/// Reports an sbatch script, also one without a first line `#!`, which sbatch would refuse.
fn of_sbatch(file: &str, text: &str) -> Finding {
    if shell::is_script_without_interpreter(text) {
        let why = shell::SCRIPT_WITHOUT_INTERPRETER;
        let fix =
            format!("move the `#!` line to the top; then `weftrun import {file}` makes a job file of it");
        return Finding::error(CODE, format!("{file} is not a job file: {why}")).fix(fix);
    }
    other(file, "an sbatch script", both_ways(file, "sbatch"))
}

/// Reports a script without `#SBATCH` lines.
fn of_script(file: &str, text: &str) -> Option<Finding> {
    let words = text.lines().next()?.strip_prefix("#!")?.split_whitespace();
    let mut names = words.filter_map(|word| word.rsplit('/').next());
    let name = names.find(|name| *name != "env" && !name.starts_with('-')).unwrap_or_default();
    let fix = if shell::first_run(text, "sbatch").is_some() {
        "it submits a job with `sbatch`: give the script that it submits to `weftrun import`"
    } else {
        "`weftrun init` writes a job file whose `command` can start it; with `#SBATCH` lines, `weftrun import` reads it"
    };
    Some(other(file, &format!("a script for {} without `#SBATCH` lines", shown(name)), fix.to_owned()))
}

fn shown(word: &str) -> String {
    word.chars().filter(char::is_ascii_alphanumeric).take(40).collect()
}

/// Returns the kinds of a text of several objects, or of a template that is no YAML yet; none where it shows no object.
fn kinds_of(text: &str) -> Option<String> {
    const MOST: usize = 3;
    text.lines().find(|line| line.starts_with("apiVersion:"))?;
    let kinds = text.lines().filter_map(|line| line.strip_prefix("kind:"));
    let mut kinds: Vec<String> = kinds.map(shown).filter(|kind| !kind.is_empty()).collect();
    let more = kinds.len().saturating_sub(MOST);
    kinds.truncate(MOST);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!kinds.is_empty()).then(|| kinds.join(", ") + &rest)
}

#[cfg(test)]
mod tests {
    use crate::spec::JobFile;

    #[test]
    fn a_file_of_another_tool_is_named_for_what_it_is() {
        for (file, text, said) in [
            ("a.yaml", "apiVersion: v1\nkind: Pod\n", "a Kubernetes manifest (Pod)"),
            (
                "a.yaml",
                "apiVersion: v1\nkind: ConfigMap\n---\napiVersion: v1\nkind: Pod\n",
                "a Kubernetes manifest (ConfigMap, Pod)",
            ),
            ("a.yaml", "apiVersion: v1\nkind: Pod\nspec: {{ .Values.x }}\n", "a Kubernetes manifest (Pod)"),
            ("a.sh", "#!/bin/bash\n#SBATCH -N 2\nsrun ./a\n", "an sbatch script"),
            ("a.sh", "# licence\n#!/bin/bash\n#SBATCH -N 2\nsrun ./a\n", "lines before its `#!` line"),
            ("a.sh", "#!/bin/bash\nsrun -N 8 ./a\n", "a script for bash without `#SBATCH` lines"),
            ("a.py", "#!/usr/bin/env python3\nimport os\n", "a script for python3"),
            ("a.yaml", "num_nodes: 2\nrun: ./a\n", "a SkyPilot task"),
            ("a.yaml", "name: a\nresources: {accelerators: H100:8}\nrun: ./a\n", "a SkyPilot task"),
            ("a.yaml", "type: task\nname: a\ncommands: [b]\n", "a dstack configuration"),
            ("a.yaml", "services:\n  a: {image: b}\n", "a Compose file"),
        ] {
            let error = JobFile::parse(file, text.as_bytes()).unwrap_err();
            let [finding] = error.findings() else { panic!("{text}: {error:?}") };
            assert_eq!(finding.code, "SPEC-OTHER-FILE", "{text}");
            assert!(finding.message.contains(said), "{}", finding.message);
        }
        let submits = JobFile::parse("a.sh", b"#!/bin/bash\nsbatch job.sbatch\n").unwrap_err();
        let fix = submits.findings()[0].fix.as_ref().map_or("", |fix| fix.text.as_str());
        assert!(fix.contains("the script that it submits"), "{fix}");
        for text in ["#!/usr/bin/env weftrun\nname = \"a\"\ncommand = [\"b\"]\n", "name: a\ncommand: [b]\n"] {
            let file = if text.starts_with('#') { "a.toml" } else { "a.yaml" };
            JobFile::parse(file, text.as_bytes()).unwrap();
        }
        for text in [
            "name: a\nrun: [./a]\nresources: {vpc.amazonaws.com/efa: 32}\n",
            "name: a\nnodes: 2\nrun: [./a]\nsetup: [b]\n",
            "name: a\ncommand: [./a]\nrun: [./a]\nresources: {accelerators: 8}\n",
        ] {
            let error = JobFile::parse("a.yaml", text.as_bytes()).unwrap_err();
            let codes: Vec<&str> = error.findings().iter().map(|finding| finding.code.as_str()).collect();
            assert!(!codes.contains(&"SPEC-OTHER-FILE"), "{text}: {codes:?}");
        }
        let two = JobFile::parse("a.yaml", b"name: a\n---\nname: b\n").unwrap_err();
        assert_eq!(two.findings()[0].code, "SPEC-SYNTAX");
    }
}
