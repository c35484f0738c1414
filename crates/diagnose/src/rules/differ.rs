//! The odd one out: what differs between ranks and should not.

use weftrun_nccl::{Difference, Holders, NCCL_VERSION, NVLINK_DOMAIN, Trace};

use super::{MEDIUM, NOTE, Rule, TROUBLESHOOTING, rule};
use crate::cause::named;
use crate::rule_input::RuleInput;
use weftrun_core::text::counted;

pub(super) const RULES: &[Rule] = &[rule(
    "R69",
    "RANKS-DIFFER",
    MEDIUM,
    "ranks differ in what should be the same on all of them",
    "use one image, one environment and nodes of one kind for all ranks, unless the difference is intended",
    TROUBLESHOOTING,
)
.when(differ)
.cites(lines)
.detail(differences),
rule(
    "R79",
    "NVLINK-DOMAINS",
    NOTE,
    "the ranks are in several domains of multi-node NVLink: between these the network carries the data",
    "nothing, if the job needs more GPUs than a domain has; else ask for nodes of one domain (the label nvidia.com/gpu.clique, Slurm's topology/block)",
    "https://docs.nvidia.com/multi-node-nvlink-systems/",
)
.when(several_domains)
.cites(domain_lines)
.detail(domains)];

/// Most differences, and most odd values of one, that are described.
const MOST: usize = 4;

fn others<'s>(seen: &'s RuleInput<'_>) -> impl Iterator<Item = &'s Difference<'s>> {
    let has_own_rule =
        |difference: &&Difference<'_>| [NCCL_VERSION, NVLINK_DOMAIN].contains(&difference.name);
    seen.differences().iter().filter(move |difference| !has_own_rule(difference))
}

fn differ(seen: &RuleInput<'_>) -> bool {
    others(seen).next().is_some()
}

/// Returns the first line of each odd value, and of the usual one.
fn lines<'s>(seen: &'s RuleInput<'_>) -> Vec<&'s Trace> {
    let both = |difference: &'s Difference<'s>| difference.odd.iter().chain([&difference.usual]);
    others(seen).take(MOST).flat_map(both).map(|holders| holders.first).collect()
}

fn domains_of<'s>(seen: &'s RuleInput<'_>) -> Option<&'s Difference<'s>> {
    seen.differences().iter().find(|difference| difference.name == NVLINK_DOMAIN)
}

fn several_domains(seen: &RuleInput<'_>) -> bool {
    domains_of(seen).is_some()
}

fn domain_lines<'s>(seen: &'s RuleInput<'_>) -> Vec<&'s Trace> {
    let all = domains_of(seen).map(|difference| difference.odd.iter().chain([&difference.usual]));
    all.into_iter().flatten().map(|holders| holders.first).collect()
}

fn domains(seen: &RuleInput<'_>) -> Option<String> {
    let difference = domains_of(seen)?;
    let all = [&difference.usual].into_iter().chain(&difference.odd);
    let told: Vec<String> =
        all.take(MOST).map(|holders| format!("{} in {}", who(holders), holders.value)).collect();
    let more = if difference.odd.len() >= MOST { "; …" } else { "" };
    Some(format!(": {}{more}", told.join("; ")))
}

fn differences(seen: &RuleInput<'_>) -> Option<String> {
    let told: Vec<String> = others(seen).take(MOST).map(describe).collect();
    (!told.is_empty()).then(|| format!(": {}", told.join("; ")))
}

/// Says who has another version of NCCL than the others.
pub(super) fn odd_version(seen: &RuleInput<'_>) -> Option<String> {
    let difference = seen.differences().iter().find(|difference| difference.name == NCCL_VERSION)?;
    Some(format!(": {}", describe(difference)))
}

/// Describes a difference: `rank 5 on n3 has NCCL_IB_HCA=mlx5_0, the other 63 have mlx5`.
fn describe(difference: &Difference<'_>) -> String {
    let Difference { name, usual, odd } = difference;
    let is_variable = name.starts_with("NCCL_");
    let said = |holders: &Holders<'_>| {
        let value = if is_variable {
            format!("{name}={}", holders.value)
        } else {
            format!("{name} {}", holders.value)
        };
        let verb = if holders.processes == 1 { "has" } else { "have" };
        format!("{} {verb} {value}", who(holders))
    };
    let told: Vec<String> = odd.iter().take(MOST).map(said).collect();
    let more = if odd.len() > MOST { ", …" } else { "" };
    let (others, verb) = match usual.processes {
        1 => (who(usual), "has"),
        many if odd.iter().any(|holders| holders.processes == many) => (who(usual), "have"),
        many => (format!("the other {many}"), "have"),
    };
    format!("{}{more}, {others} {verb} {}", told.join(", "), usual.value)
}

/// Returns `rank 5 on n3`, or the hosts where the ranks are not known.
fn who(holders: &Holders<'_>) -> String {
    let Holders { processes, ranks, hosts, .. } = holders;
    let on = match hosts.iter().collect::<Vec<_>>().as_slice() {
        [] => String::new(),
        [one] => format!(" on {one}"),
        many if many.len() <= MOST => {
            format!(" on {}", many.iter().map(|host| **host).collect::<Vec<_>>().join(", "))
        }
        many => format!(" on {}", counted(many.len(), "host")),
    };
    if ranks.len() == *processes {
        let ranks: Vec<u32> = ranks.iter().copied().collect();
        format!("{}{on}", named(&ranks))
    } else if *processes == 1 {
        format!("a rank{on}")
    } else {
        format!("{processes} ranks{on}")
    }
}
