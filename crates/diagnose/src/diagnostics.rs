//! What NCCL's own diagnostics found, as findings: in NCCL's words where no sentence of ours says more.

use std::collections::BTreeMap;

use weftrun_core::text::counted;
use weftrun_core::{Confidence, Finding, Severity};
use weftrun_nccl::diagnostics::{Check, Detail, Outcome};
use weftrun_nccl::{OwnDiagnostic, Trace, is_of_one_process};

use crate::cause::named;
use crate::fabric::add_traces;
use crate::rule_input::RuleInput;

/// What the codes of these findings begin with.
const PREFIX: &str = "NCCL-DIAG-";
/// Most sentences of one finding.
const MOST: usize = 4;
const SOURCE: &str =
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/diagnostics.html";

/// What is found by some checks.
struct Kind {
    code: &'static str,
    severity: Severity,
    checks: &'static [Check],
    /// What the sentences are about.
    about: &'static str,
    fix: &'static str,
}

const KINDS: [Kind; 9] = [
    Kind {
        code: "NCCL-DIAG-ENVIRONMENT",
        severity: Severity::Warning,
        checks: &[Check::Environment],
        about: "variables of NCCL differ between ranks",
        fix: "set them for all ranks alike, unless the difference is intended: look at the image, the launcher's forwarding and the start-up files of the node",
    },
    Kind {
        code: "NCCL-DIAG-XID",
        severity: Severity::Warning,
        checks: &[Check::Xid],
        about: "the driver reported errors of GPUs while the job ran",
        fix: "do what NVIDIA's catalogue of Xids says of the code; keep jobs off the node if it says to reset the GPU",
    },
    Kind {
        code: "NCCL-DIAG-ECC",
        severity: Severity::Warning,
        checks: &[Check::Ecc],
        about: "GPUs count memory errors",
        fix: "uncorrected errors: have the GPU reset before the next job, and examined if they come again (`nvidia-smi -q -d ECC,ROW_REMAPPER`)",
    },
    Kind {
        code: "NCCL-DIAG-NVLINK",
        severity: Severity::Warning,
        checks: &[Check::NvLink],
        about: "the NVLinks of the GPUs are not alike, or not active",
        fix: "run the job without that node, and have it examined: `nvidia-smi nvlink --status` and the state of its fabric manager",
    },
    Kind {
        code: "NCCL-DIAG-P2P",
        severity: Severity::Warning,
        checks: &[Check::P2p],
        about: "not every GPU can use the memory of the others",
        fix: "follow what NCCL advises in the line; `nvidia-smi topo -p2p n` shows the same without a job",
    },
    Kind {
        code: "NCCL-DIAG-NET-BANDWIDTH",
        severity: Severity::Warning,
        checks: &[Check::NetBandwidth],
        about: "not all NICs are equally fast",
        fix: "compare the NIC of that rank with the others (link rate, cable, error counters), or run without the node; `weftrun verify` measures the nodes",
    },
    Kind {
        code: "NCCL-DIAG-NODES-DIFFER",
        severity: Severity::Warning,
        checks: &[Check::Gpus, Check::CudaDriver, Check::Driver],
        about: "nodes have different GPUs or drivers",
        fix: "use nodes of one kind with one driver, unless the difference is intended",
    },
    Kind {
        code: "NCCL-DIAG-PCI",
        severity: Severity::Warning,
        checks: &[Check::RdmaTopology, Check::IommuMode, Check::IommuGroups],
        about: "settings of the PCIe bus may keep GPUs and NICs from direct traffic",
        fix: "on bare metal switch ACS and the IOMMU's remapping off (`iommu=pt`); a virtual machine needs them, with ATS",
    },
    Kind {
        code: "NCCL-DIAG-NOTE",
        severity: Severity::Info,
        checks: &[Check::Ats, Check::Paths, Check::Other],
        about: "NCCL notes",
        fix: "nothing by itself: it is worth knowing where a job is slow",
    },
];

/// Returns whether a finding is one of these.
pub fn is_one(finding: &Finding) -> bool {
    finding.code.starts_with(PREFIX)
}

/// Returns what NCCL's own diagnostics found, and what they could not check.
pub(crate) fn findings(seen: &RuleInput<'_>) -> Vec<Finding> {
    let mut all: Vec<Finding> = KINDS.iter().filter_map(|kind| of_kind(kind, seen)).collect();
    all.extend(unchecked(seen));
    all
}

fn of_kind(kind: &Kind, seen: &RuleInput<'_>) -> Option<Finding> {
    let found: Vec<&OwnDiagnostic> = seen
        .map
        .own_diagnostics()
        .filter(|one| one.said.outcome == Outcome::Found && kind.checks.contains(&one.said.check))
        .collect();
    let (sentences, cited) = match kind.checks {
        [Check::Environment] => variables(&found, seen),
        [Check::NetBandwidth] => bandwidths(&found, seen),
        _ => quotes(&found, seen),
    };
    if sentences.is_empty() {
        return None;
    }
    let about = kind.about;
    let mut finding = Finding::new(
        kind.severity,
        kind.code,
        format!("NCCL's own diagnostics: {about}: {}", first(&sentences, "; ")),
    );
    finding.confidence = Some(Confidence::High);
    finding.source = Some(SOURCE.to_owned());
    let proved = cited.iter().flat_map(|one| seen.map.ranks_of_diagnostic(one).into_values().flatten());
    finding.ranks = proved.collect();
    finding.ranks.sort_unstable();
    finding.ranks.dedup();
    let lines: Vec<Trace> = cited.iter().map(|one| one.trace.clone()).collect();
    add_traces(&mut finding, &lines, seen);
    Some(finding.fix(kind.fix))
}

type Told<'a> = (Vec<String>, Vec<&'a OwnDiagnostic>);

/// Names the values of each variable that differs: `NCCL_BUFFSIZE is 8388608 on rank 1, not set on rank 0`.
fn variables<'a>(found: &[&'a OwnDiagnostic], seen: &RuleInput<'_>) -> Told<'a> {
    let mut of_name: BTreeMap<(&str, Option<u64>), Vec<&'a OwnDiagnostic>> = BTreeMap::new();
    for one in found.iter().copied() {
        if let Detail::Variable { name, .. } = &one.said.detail
            && !is_of_one_process(name)
            && !seen.differences().iter().any(|difference| difference.name == name)
        {
            of_name.entry((name, one.said.comm)).or_default().push(one);
        }
    }
    let mut sentences = Vec::new();
    for ((name, _), values) in &of_name {
        let said = values.iter().filter_map(|one| match &one.said.detail {
            Detail::Variable { value: Some(value), .. } => Some(format!("`{value}` on {}", who(one, seen))),
            Detail::Variable { value: None, .. } => Some(format!("not set on {}", who(one, seen))),
            _ => None,
        });
        add(&mut sentences, format!("{name} is {}", said.collect::<Vec<_>>().join(", ")));
    }
    (sentences, of_name.into_values().flatten().collect())
}

/// Names the rank of each NIC that is off the median, and quotes pairs without a result.
fn bandwidths<'a>(found: &[&'a OwnDiagnostic], seen: &RuleInput<'_>) -> Told<'a> {
    let mut sentences = Vec::new();
    let mut cited = Vec::new();
    for one in found.iter().copied() {
        let Detail::Bandwidth { gbits, median, mode } = &one.said.detail else { continue };
        let host = one.said.host.as_deref().map_or_else(String::new, |host| format!(" on {host}"));
        let off = if *median > 0.0 { (gbits / median - 1.0) * 100.0 } else { 0.0 };
        let side = if off < 0.0 { "below" } else { "above" };
        let off = off.abs();
        let who = who(one, seen);
        add(
            &mut sentences,
            format!(
                "{who}{host} has {gbits:.1} Gbit/s ({mode}), {off:.0} % {side} the median of {median:.1}"
            ),
        );
        cited.push(one);
    }
    let rest: Vec<&OwnDiagnostic> =
        found.iter().copied().filter(|one| one.said.detail == Detail::None).collect();
    // The line with the least and the most belongs to those that name a rank.
    let spread = |one: &&OwnDiagnostic| one.said.words.contains(" min/median/max ");
    let keep = rest.iter().copied().filter(|one| cited.is_empty() || !spread(one));
    let (others, lines) = quotes(&keep.collect::<Vec<_>>(), seen);
    sentences.extend(others);
    cited.extend(lines);
    (sentences, cited)
}

/// Quotes NCCL, with the ranks of the job where they are others than those of the communicator.
fn quotes<'a>(found: &[&'a OwnDiagnostic], seen: &RuleInput<'_>) -> Told<'a> {
    let mut sentences = Vec::new();
    for one in found {
        let ranks = seen.map.ranks_of_diagnostic(one);
        let other = ranks.iter().any(|(own, global)| global.is_some_and(|global| global != *own));
        let global: Vec<u32> = ranks.into_values().flatten().collect();
        let of_job = if other { format!(" ({} of the job)", named(&global)) } else { String::new() };
        add(&mut sentences, format!("\"{}\"{of_job}", one.said.words));
    }
    (sentences, found.to_vec())
}

/// Returns what could not be checked, so that silence is not taken for health.
fn unchecked(seen: &RuleInput<'_>) -> Option<Finding> {
    let mut sentences = Vec::new();
    let mut lines = Vec::new();
    for one in seen.map.own_diagnostics().filter(|one| one.said.outcome == Outcome::Unchecked) {
        if add(&mut sentences, format!("\"{}\"", one.said.words)) {
            lines.push(one.trace.clone());
        }
    }
    if let Some(skipped) = seen.map.own_diagnostics_skipped() {
        add(&mut sentences, format!("\"{}\"", skipped.text));
        lines.push(skipped.clone());
    }
    if seen.map.own_diagnostics_dropped() > 0 {
        let dropped = usize::try_from(seen.map.own_diagnostics_dropped()).unwrap_or(usize::MAX);
        add(&mut sentences, format!("{} not kept", counted(dropped, "further result")));
    }
    if sentences.is_empty() {
        return None;
    }
    let message = format!("NCCL's own diagnostics could not check everything: {}", first(&sentences, "; "));
    let fix = "nothing, unless it is needed: NCCL says in each line what it lacks (`ib_write_bw`, `rdma_topo` or `lspci` in the image, the kernel's log)";
    let mut finding = Finding::info("NCCL-DIAG-UNCHECKED", message).fix(fix);
    finding.confidence = Some(Confidence::High);
    finding.source = Some(SOURCE.to_owned());
    add_traces(&mut finding, &lines, seen);
    Some(finding)
}

/// Names the ranks of a result: those of the job where the logs prove them.
fn who(one: &OwnDiagnostic, seen: &RuleInput<'_>) -> String {
    let ranks = seen.map.ranks_of_diagnostic(one);
    let global: Option<Vec<u32>> = ranks.values().copied().collect();
    match global {
        Some(mut global) if !global.is_empty() => {
            global.sort_unstable();
            named(&global)
        }
        _ if ranks.is_empty() => "ranks that are not named".to_owned(),
        _ => format!("{} of the communicator", named(&ranks.into_keys().collect::<Vec<_>>())),
    }
}

/// Adds a sentence that is not there; returns whether it did.
fn add(sentences: &mut Vec<String>, sentence: String) -> bool {
    let fresh = !sentences.contains(&sentence);
    if fresh {
        sentences.push(sentence);
    }
    fresh
}

/// Joins the first sentences.
fn first(sentences: &[String], between: &str) -> String {
    let mut text = sentences.iter().take(MOST).map(String::as_str).collect::<Vec<_>>().join(between);
    if sentences.len() > MOST {
        text.push_str(&format!("{between}and {} more", sentences.len() - MOST));
    }
    text
}
