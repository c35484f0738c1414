//! Sanitizes text from clusters before it enters the model.

use std::borrow::Cow;

use weftrun::Finding;
use weftrun::core::job::{JobDetail, JobEvent, JobSummary, ReplicaStatus};
use weftrun::core::log::clean_text;
use weftrun::diagnose::Measured;
use weftrun::report::HealthReport;

use crate::model::transport_view::TransportView;

/// Longest text of one name, reason or event that is kept.
const MAX: usize = 4096;

fn clean(text: &mut String) {
    if text.len() > MAX {
        let end = (0..=MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
    if let Cow::Owned(safe) = clean_text(text) {
        *text = safe;
    }
}

pub fn summary(mut job: JobSummary) -> JobSummary {
    clean(&mut job.name);
    clean(&mut job.reason);
    clean(&mut job.kind);
    job.queue.iter_mut().for_each(clean);
    job
}

pub fn replica(mut replica: ReplicaStatus) -> ReplicaStatus {
    clean(&mut replica.name);
    clean(&mut replica.role);
    clean(&mut replica.reason);
    replica.node.iter_mut().for_each(clean);
    replica
}

pub fn finding(mut finding: Finding) -> Finding {
    clean(&mut finding.code);
    clean(&mut finding.message);
    for text in [&mut finding.subject, &mut finding.rule, &mut finding.source].into_iter().flatten() {
        clean(text);
    }
    if let Some(fix) = &mut finding.fix {
        clean(&mut fix.text);
    }
    for evidence in &mut finding.evidence {
        clean(&mut evidence.source);
        clean(&mut evidence.text);
    }
    finding
}

/// Makes an answer of NCCL's RAS service safe.
pub fn health(mut report: HealthReport) -> HealthReport {
    clean(&mut report.reason);
    report.nccl_version.iter_mut().chain(&mut report.notes).for_each(clean);
    for culprit in &mut report.culprits {
        clean(&mut culprit.host);
        clean(&mut culprit.why);
    }
    if let Some(own) = &mut report.diagnostics {
        own.refused.iter_mut().chain(&mut own.passed).for_each(clean);
        own.findings = std::mem::take(&mut own.findings).into_iter().map(finding).collect();
    }
    report
}

pub fn event(mut event: JobEvent) -> JobEvent {
    match &mut event {
        JobEvent::Status { job } => *job = summary(job.clone()),
        JobEvent::Replica { replica: one, .. } => *one = replica(one.clone()),
        JobEvent::Message { reason, text, .. } => {
            clean(reason);
            clean(text);
        }
        JobEvent::Stuck { finding: one, .. } => *one = finding(one.clone()),
        JobEvent::Attempt { reason, .. } | JobEvent::Disconnected { reason, .. } => clean(reason),
        _ => {}
    }
    event
}

/// Makes all that is known of a job safe.
pub fn detail(mut detail: JobDetail) -> JobDetail {
    detail.summary = summary(detail.summary);
    detail.replicas = detail.replicas.into_iter().map(replica).collect();
    detail.findings = detail.findings.into_iter().map(finding).collect();
    detail.history = detail.history.into_iter().map(event).collect();
    for (key, value) in &mut detail.facts {
        clean(key);
        clean(value);
    }
    detail
}

/// Makes what was read out of logs safe.
pub fn transport_view(mut transport_view: TransportView) -> TransportView {
    clean(&mut transport_view.verdict);
    clean(&mut transport_view.unit);
    for rank in &mut transport_view.ranks {
        clean(&mut rank.host);
        rank.announced.iter_mut().for_each(clean);
    }
    for node in &mut transport_view.nodes {
        clean(&mut node.host);
        node.announced.iter_mut().for_each(|(name, _)| clean(name));
    }
    for communicator in &mut transport_view.communicators {
        clean(&mut communicator.id);
    }
    let maps = transport_view.maps.iter_mut().chain(std::iter::once(&mut transport_view.loose_links));
    for link in maps.flat_map(|map| map.rank_links.values_mut().chain(map.node_links.values_mut())) {
        link.transports.iter_mut().for_each(clean);
    }
    transport_view.measured.iter_mut().for_each(measured);
    transport_view.findings = std::mem::take(&mut transport_view.findings).into_iter().map(finding).collect();
    transport_view
}

fn measured(measured: &mut Measured) {
    let speeds = &mut measured.speeds;
    clean(&mut speeds.sentence);
    speeds.notes.iter_mut().for_each(clean);
    for comm in &mut speeds.communicators {
        let arrivals = comm.collectives.iter_mut().map(|speed| &mut speed.arrival);
        arrivals
            .flat_map(|at| at.late.iter_mut().chain(&mut at.waits))
            .for_each(|rank| clean(&mut rank.host));
    }
    speeds.late.iter_mut().for_each(|rank| clean(&mut rank.host));
    for one in &mut measured.expected {
        clean(&mut one.expected.what);
        one.expected.sources.iter_mut().for_each(clean);
    }
}
