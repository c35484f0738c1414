//! What the rules of NCCL's lines say of the end of a job, as candidates for its cause.

use std::collections::BTreeSet;

use weftrun_nccl::{Signature, SourceIndex, Trace};

use super::super::class::CauseClass;
use super::super::scene::Scene;
use super::ends::host_in_brackets;
use super::{Candidate, class_of_cuda, key, remote};
use crate::cause::grade::Grade;
use crate::rule_input::RuleInput;
use crate::rules::{
    Blame, NCCL_NO_REASON, PEER_ENDED, Rule, UNKNOWN_WARNING, peer_of, ranks_of_one_gpu, rule_of_error, rules,
};
use weftrun_core::Severity;
use weftrun_core::finding::Evidence;

/// What a rule says of a failure: its grade, its class and its sentence.
#[derive(Clone)]
pub(super) struct Ruling {
    pub grade: Grade,
    class: CauseClass,
    what: String,
    rule: &'static Rule,
    pub fix: String,
    /// Whether the rule knows that what it found ends a job.
    pub is_proof: bool,
}

impl Ruling {
    fn new(rule: &'static Rule, blame: Blame, seen: &RuleInput<'_>) -> Self {
        let (grade, class) = match blame {
            Blame::Rank(CauseClass::Rendezvous) => (Grade::Rendezvous, CauseClass::Rendezvous),
            Blame::Rank(class) => (Grade::Nccl, class),
            Blame::Link => (Grade::Link, CauseClass::Nccl),
            Blame::Peer => (Grade::Remote, CauseClass::Nccl),
        };
        let of = Self::of(rule, grade, class, rule.sentence(seen));
        Self { fix: rule.fix_for(seen), is_proof: true, ..of }
    }

    /// A single error that a rule is about.
    pub fn of(rule: &'static Rule, grade: Grade, class: CauseClass, what: String) -> Self {
        Self { grade, class, fix: rule.fix_of(&what), what, rule, is_proof: false }
    }

    pub fn is_of(&self, rule: &Rule) -> bool {
        self.rule.code == rule.code
    }

    /// Gives the fix of its rule in this case.
    pub fn advised(self, seen: &RuleInput<'_>) -> Self {
        match self.rule.advice_for(seen) {
            Some(fix) => Self { fix, ..self },
            None => self,
        }
    }

    /// Returns the candidate that a line proves, of no known rank.
    pub fn candidate(self, evidence: Evidence) -> Candidate {
        let Self { grade, class, what, rule, fix, is_proof } = self;
        Candidate {
            key: if is_proof && !rule.is_end() { rule.code.to_owned() } else { key(class, &what) },
            grade,
            class,
            what,
            frame: None,
            ranks: BTreeSet::new(),
            host: None,
            gpu: None,
            first: false,
            source: SourceIndex::from(0),
            line: evidence.line,
            time: None,
            evidence,
            rule,
            fix,
            is_proof,
        }
    }

    fn quote(text: &str) -> Self {
        if let Some(what) = text.find("Cuda failure").and_then(|at| text.get(at..)) {
            let class = class_of_cuda(what);
            return Self::of(rule_of_error(class, &[what]), Grade::Crashed, class, what.to_owned());
        }
        Self::of(rule_of_error(CauseClass::Nccl, &[text]), Grade::Warned, CauseClass::Nccl, text.to_owned())
    }

    /// Returns what NCCL's own words below an exception say; none where they only tell of a peer that ended.
    pub fn of_last_error(text: &str, seen: &RuleInput<'_>) -> Option<Self> {
        let signatures = Signature::of_warning(text);
        let fits = |rule: &&Rule| {
            let about = rule.signatures.iter().any(|signature| signatures.contains(signature));
            about && (!rule.is_conditional() || rule.applies(seen))
        };
        let named = |mut ruling: Self| {
            if let Some(peer) = peer_of(text) {
                ruling.what = ruling.what.replacen("a peer", &format!("the peer {peer}"), 1);
            }
            ruling
        };
        let ruled = rules().filter(fits).find_map(|rule| Some(named(Self::new(rule, rule.blame?, seen))));
        let echo = || {
            signatures.iter().any(|one| {
                matches!(one, Signature::PeerClosed | Signature::IbFlushed)
                    || *one == Signature::ProxyFailed && !text.contains("failed (Connect)")
            })
        };
        ruled.or_else(|| (!text.is_empty() && !echo()).then(|| Self::quote(text)))
    }
}

/// Returns the failures that the rules find in NCCL's lines of the last attempt.
pub(super) fn of_rules(scene: &Scene<'_>, seen: &RuleInput<'_>) -> Vec<Candidate> {
    let mut found = Vec::new();
    let ended = |trace: &Trace, rank: Option<u32>| {
        let source = seen.map.source_of(trace);
        scene.is_current(source, trace.line)
            && !seen.map.went_on(trace)
            && !(scene.running && scene.goes_on(seen, source, trace.line, rank))
    };
    let mut add = |signature: Signature, of: &dyn Fn(&Trace) -> Ruling| {
        let Some(hits) = seen.map.signatures().get(signature) else { return };
        let traces: Vec<_> = hits.traces.iter().map(|trace| (trace, seen.map.rank_of(trace))).collect();
        let mut left = seen.map.ranks_of(hits);
        let all = traces.iter().all(|(trace, rank)| ended(trace, *rank));
        traces.iter().for_each(|(_, rank)| left.retain(|one| Some(*one) != *rank));
        for (trace, rank) in traces.into_iter().filter(|(trace, rank)| ended(trace, *rank)) {
            let ruling = of(trace);
            // Ranks whose lines are not kept are named with the first that is.
            let mut ranks: BTreeSet<u32> = if all { std::mem::take(&mut left) } else { BTreeSet::new() };
            ranks.extend(rank);
            ranks.extend(ranks_of_one_gpu(&trace.text).into_iter().flatten());
            if ruling.class == CauseClass::CollectiveMismatch && scene.world == 2 {
                ranks = BTreeSet::from([0, 1]);
            }
            let host = seen.map.host_of(trace).map(str::to_owned).or_else(|| host_in_brackets(&trace.text));
            let gpu = seen.map.gpu_of(trace);
            let source = seen.map.source_of(trace);
            let evidence = Evidence {
                source: seen.map.source_name(trace).to_owned(),
                line: trace.line,
                text: trace.text.clone(),
            };
            found.push(Candidate { ranks, host, gpu, source, ..ruling.candidate(evidence) });
        }
    };
    let applying: Vec<&'static Rule> = rules().filter(|rule| rule.applies(seen)).collect();
    for rule in &applying {
        // What a job survives does not end it, unless it explains what does.
        let of_explained =
            || applying.iter().filter(|other| rule.explains(other)).find_map(|other| other.blame);
        let Some(blame) = rule.blame.or_else(of_explained) else { continue };
        for signature in rule.signatures {
            add(*signature, &|_| Ruling::new(rule, blame, seen));
        }
    }
    add(UNKNOWN_WARNING, &|trace| Ruling::quote(&trace.text));
    add(Signature::ProxyFailed, &|trace| {
        if is_of_peer(&trace.text) {
            return remote(scene, seen);
        }
        let what =
            format!("NCCL's proxy thread failed and passed an error on without its reason: {}", trace.text);
        Ruling::of(&NCCL_NO_REASON, Grade::Warned, CauseClass::Nccl, what)
    });
    add(Signature::IbFlushed, &|trace| {
        Ruling::of(&PEER_ENDED, Grade::Remote, CauseClass::ExitCode, flushed(&trace.text))
    });
    if let Some(what) = first_of_node(scene, seen) {
        add(Signature::LocalRankClosed, &|_| {
            Ruling::of(&PEER_ENDED, Grade::Quoted, CauseClass::ExitCode, what.clone())
        });
    }
    add(Signature::PeerClosed, &|_| remote(scene, seen));
    // What a line above says that need not have ended anything is the reason nonetheless.
    let above = |trace: &Trace| {
        let near = |other: &Trace| {
            seen.map.source_of(other) == seen.map.source_of(trace)
                && (1..=REACH).contains(&trace.line.saturating_sub(other.line))
        };
        let hits = |signature: &Signature| {
            seen.map.signatures().get(*signature).is_some_and(|hits| hits.traces.iter().any(near))
        };
        let is_reason = |rule: &&&'static Rule| rule.blame.is_none() && rule.severity != Severity::Info;
        applying.iter().filter(is_reason).find(|rule| rule.signatures.iter().any(hits)).copied()
    };
    add(Signature::ErrorTrace, &|trace| {
        if let Some(rule) = above(trace) {
            return Ruling::of(rule, Grade::Quoted, CauseClass::Nccl, rule.sentence(seen));
        }
        let what =
            format!("NCCL passed an error on without its reason: {}{}", trace.text, stage(&trace.text));
        Ruling::of(&NCCL_NO_REASON, Grade::Quoted, CauseClass::Unexplained, what)
    });
    found
}

/// Most lines between a reason and the place where NCCL passes its error on.
const REACH: u64 = 6;

/// Says what NCCL did where it passed an error on, by the file of the place.
fn stage(text: &str) -> &'static str {
    const STAGES: &[(&str, &str)] = &[
        ("transport/p2p.cc", " (while it shared GPU memory between processes; NCCL_P2P_DISABLE=1 as a test)"),
        ("transport/shm.cc", " (while it made shared memory; look at /dev/shm)"),
        ("transport/nvls.cc", " (while it set up NVLink SHARP; NCCL_NVLS_ENABLE=0 as a test)"),
        ("transport/net_ib", " (in InfiniBand or RoCE)"),
        ("bootstrap.cc", " (while the ranks found each other over TCP)"),
        ("misc/socket.cc", " (in a TCP connection)"),
    ];
    STAGES.iter().find(|(file, _)| text.contains(file)).map_or("", |(_, stage)| stage)
}

/// Returns whether NCCL's proxy passed on that a peer is gone (6, `ncclRemoteError`), or does not say what it passed on.
fn is_of_peer(text: &str) -> bool {
    let code = ["retcode ", "res="].iter().find_map(|words| text.split_once(words)?.1.chars().next());
    !code.is_some_and(|code| ('1'..='5').contains(&code)) && !text.contains("Accept failed")
}

/// Says which process of a node ended first, where all others name the same one and no rank ended in order.
fn first_of_node(scene: &Scene<'_>, seen: &RuleInput<'_>) -> Option<String> {
    let found = seen.map.signatures().get(Signature::LocalRankClosed)?;
    let local = |trace: &Trace| {
        let rest = trace.text.split_once("closed by localRank ")?.1;
        rest.split(' ').next()?.parse::<u32>().ok()
    };
    let locals: BTreeSet<u32> = found.traces.iter().filter_map(local).collect();
    let local = locals.first().copied().filter(|_| locals.len() == 1)?;
    let told = found.traces.len() > 1 && scene.finished.is_empty();
    told.then(|| {
        format!(
            "local rank {local} closed its connections to the others of its node first: it ended before them"
        )
    })
}

/// Says that requests were flushed, as after every error of a connection; the line names the peer.
fn flushed(text: &str) -> String {
    let peer = peer_of(text).map_or_else(|| "a peer".to_owned(), |peer| format!("the peer {peer}"));
    format!("RDMA requests to {peer} were flushed: the error before that, on either side, is not in the log")
}
