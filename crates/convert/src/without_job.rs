//! Files without a job: empty ones, and scripts that are no job themselves.

use crate::lint::script::holds;
use crate::mutate::Start;
use weftrun_core::Finding;
use weftrun_core::shell::{documents, first_run};

const CODE: &str = "E-NO-JOB";

/// Reports a document of blank lines, comments and markers only.
pub fn nothing_in(text: &str, start: Start<'_>) -> Option<Finding> {
    let is_nothing = |line: &str| {
        let line = line.trim();
        line.is_empty() || line.starts_with(['#', '%']) || matches!(line, "---" | "...")
    };
    (!text.starts_with("#!") && text.lines().all(is_nothing)).then(|| {
        let text = if text.trim().is_empty() { "the file is empty" } else { "the file holds comments only" };
        let fix = "give a manifest, an sbatch script or a job file";
        Finding::error(CODE, format!("there is no job: {text}"))
            .fix(fix)
            .span(start.of_text("").span(&(0..0)))
    })
}

/// Reports a script without `#SBATCH` lines of its own: it is no job, and may submit or write one.
pub(crate) fn script_is_no_job(text: &str) -> Option<Finding> {
    let submits = first_run(text, "sbatch");
    if !text.starts_with("#!") && submits.is_none() {
        return None;
    }
    let (mut documents, readable) = documents(text);
    documents.sort_by_key(|document| document.start);
    // Behind a fault it is unknown what is in a here-document.
    let reads_document = |line: &str| {
        let mut words = line.split_whitespace();
        words.any(|word| word.trim_start_matches(['"', '$', '(']) == "sbatch") && line.contains("<<")
    };
    let hidden = text.get(readable..).unwrap_or_default().lines().any(reads_document);
    let starts = text.split_inclusive('\n').scan(0, |at, line| {
        let start = *at;
        *at += line.len();
        Some((start, line))
    });
    let mut directives = starts.filter(|(_, line)| line.starts_with("#SBATCH")).map(|(start, _)| start);
    let is_own = |start: usize| !(holds(&documents, start) || hidden && start >= readable);
    if directives.clone().any(is_own) {
        return None;
    }
    let of_job =
        directives.next().and_then(|start| documents.iter().find(|document| document.contains(&start)));
    let line =
        of_job.map(|document| 1 + text.get(..document.start).unwrap_or_default().matches('\n').count());
    let wraps = submits.iter().flatten().any(|word| word == "--wrap" || word.starts_with("--wrap="));
    let (what, fix) = match (line, submits) {
        (Some(line), Some(_)) => (
            format!("it submits a job with `sbatch`, and the job is the here-document from line {line} on"),
            "write the here-document into a file, and give that file",
        ),
        (Some(line), None) => (
            format!("those in it belong to the job that it writes, the here-document from line {line} on"),
            "give the file that it writes",
        ),
        (None, Some(_)) if wraps => (
            "it submits a job with `sbatch --wrap`, and the job is the command given there".to_owned(),
            "write that command into a script with `#SBATCH` lines, or into a job file (`weftrun init`)",
        ),
        (None, Some(_)) => (
            "it submits a job with `sbatch`, and the job is the script that it names".to_owned(),
            "give the script that it submits",
        ),
        (None, None) if hidden => (
            "it submits a job with `sbatch`, and the job is a here-document".to_owned(),
            "write the here-document into a file, and give that file",
        ),
        (None, None) => (
            "no line of it shows a job".to_owned(),
            "add the options that `sbatch` is given as `#SBATCH` lines, or write a job file (`weftrun init`)",
        ),
    };
    Some(Finding::error(CODE, format!("the script has no `#SBATCH` lines of its own: {what}")).fix(fix))
}
