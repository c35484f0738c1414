//! Every code, rule and reason that a report can name, with its page: the source of `weftrun explain CODE` and
//! docs/reference/codes.md.

use weftrun_core::Severity;
use weftrun_core::explain::sections;
pub use weftrun_core::explain::{CodePage, codes};
use weftrun_core::request::{FabricRule, RULES};

use crate::nodes::faults;
use crate::{Rule, rules};

/// The kind of a page.
#[derive(Clone, Copy, Debug)]
pub enum Page {
    /// Of a code.
    Code(&'static CodePage),
    /// Of a rule.
    Rule(&'static FabricRule),
    /// Of a diagnosis.
    Diagnosis(&'static Rule),
    /// Whose failure each cause is: what counts against a node, and what is retried.
    Faults,
}

/// Returns the page of a code, of a rule id, or of a diagnosis by its code or its number (`R01`), in any
/// case.
///
/// ```
/// use weftrun_diagnose::explain;
/// assert!(explain::page("w-ldpath-shadow").is_some());
/// assert!(explain::page("efa.devices").is_some());
/// assert!(explain::page("NCCL-NET-SOCKET-FALLBACK").is_some());
/// assert!(explain::page("nothing").is_none());
/// ```
pub fn page(name: &str) -> Option<Page> {
    let is = |known: &str| known.eq_ignore_ascii_case(name);
    let code = || codes().find(|code| is(code.code)).map(Page::Code);
    let rule = || RULES.iter().find(|rule| is(rule.id)).map(Page::Rule);
    let diagnosis = || rules().find(|rule| is(rule.code) || is(rule.id)).map(Page::Diagnosis);
    let faults = || is(FAULTS).then_some(Page::Faults);
    diagnosis().or_else(code).or_else(rule).or_else(faults)
}

/// The name of the page of [`Page::Faults`].
const FAULTS: &str = "faults";

/// Returns the names of all pages, each once, for completion and "did you mean".
pub fn names() -> impl Iterator<Item = &'static str> {
    let diagnoses = rules().map(|rule| rule.code);
    let known: Vec<&str> = diagnoses.clone().collect();
    let own = codes().map(|code| code.code).filter(move |code| !known.contains(code));
    own.chain(diagnoses).chain(RULES.iter().map(|rule| rule.id)).chain([FAULTS])
}

impl Page {
    /// Returns the page as text: a heading, the meaning, the fix, the source.
    pub fn text(self) -> String {
        match self {
            Self::Code(code) => code.text(),
            Self::Rule(rule) => rule_text(rule),
            Self::Diagnosis(rule) => diagnosis_text(rule),
            Self::Faults => faults_text(),
        }
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

fn diagnosis_text(rule: &Rule) -> String {
    let severity = severity(rule.severity);
    let fault = rule.fault.map_or_else(String::new, |fault| format!("\n\nRetry: {}", fault.sentence()));
    format!(
        "{} ({}, {severity}): {}\n\nWhat to do: {}{fault}\n\nSource: {}",
        rule.code, rule.id, rule.message, rule.fix, rule.source
    )
}

/// Returns what counts against a node, and what `--retry` submits again.
fn faults_text() -> String {
    let mut text = String::from(
        "faults: whose failure a cause is, for `weftrun nodes` and `--retry`\n\nA cause that is not named here is the program's, or would come \
         again: it counts against no node, and is not retried. Retries leave out 2 nodes at most.\n",
    );
    for (fault, rules) in faults() {
        let codes: Vec<&str> = rules.iter().map(|rule| rule.code).collect();
        text.push_str(&format!("\n{}: {}\n  {}\n", fault.as_str(), fault.sentence(), codes.join(", ")));
    }
    text.push_str(
        "\nWhat the cluster itself reports has the fault of what it says: a node that failed (SLURM-NODE-FAILED, K8S-NODE-LOST) is the node's, a \
         job whose nodes were taken away (SLURM-PREEMPTED, K8S-PREEMPTED, K8S-DRAINED, K8S-DISRUPTED) the cluster's.\n\
         GPU-XID is the hardware's where the driver's number means so (48, 63, 64, 74, 79, 92, 94, 95), IB-ASYNC-EVENT where a port \
         went down or the HCA is dead.",
    );
    text
}

fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "an error",
        Severity::Warning => "a warning",
        Severity::Info => "a note",
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
    for (heading, codes) in sections() {
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
    for rule in rules() {
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
    page.push_str("\n## Faults\n\nWhat counts against a node (`weftrun nodes`), and what `--retry` submits again; every other cause is the program's, or would come again.\n\n| fault | what follows | codes |\n|---|---|---|\n");
    for (fault, rules) in faults() {
        let codes: Vec<String> = rules.iter().map(|rule| format!("`{}`", rule.code)).collect();
        page.push_str(&format!("| {} | {} | {} |\n", fault.as_str(), fault.sentence(), codes.join(", ")));
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
