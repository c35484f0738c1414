//! The report as one self-contained page: no script, no network, every text escaped.

use askama::Template;
use weftrun::Result;
use weftrun::convert::decision_text;
use weftrun::core::fabric::Fabric;
use weftrun::core::job::JobPhase;
use weftrun::core::log::clean_text;
use weftrun::core::nccl::FabricSeen;
use weftrun::core::spec::to_toml;
use weftrun::diagnose::cause::Why;
use weftrun::report::TransportReport;
use weftrun_tui::model::transport_view::TransportView;

use super::Known;
use super::bring_up::{BringUp, bring_up};
use super::collectives::Collectives;
use crate::commands::transport::drawing::{Drawing, graph, matrix};
use crate::commands::transport::html::{ROWS, dash, gdr, rendered, stack};
use crate::commands::why::html::ended;
use crate::output::because;

#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    name: String,
    sentence: String,
    good: &'static str,
    facts: Vec<Fact>,
    report: &'a TransportReport,
    why: &'a Why,
    why_lines: Vec<String>,
    graph: Option<Drawing>,
    matrix: Option<Drawing>,
    bring_up: Option<BringUp>,
    collectives: Option<Collectives>,
    speed: Option<Speed>,
    hidden_ranks: usize,
    environment: Vec<(String, String)>,
    job_file: Option<String>,
    decisions: Vec<[String; 4]>,
}

/// A row of what was planned, and what was seen.
struct Fact {
    what: &'static str,
    planned: String,
    seen: String,
    class: &'static str,
}

/// The values of the longest series.
struct Speed {
    about: String,
    points: String,
    most: String,
    /// The published range: its top, its height, and the text.
    expected: Option<(f64, f64, String)>,
}

pub fn page(known: &Known) -> Result<String> {
    let Known { job, detail, view, transport: report, judge, why, spec, measured } = known;
    let backend = job.handle().backend();
    let decision = |decision| {
        let (target, value, reason) = decision_text(decision, backend);
        [decision.rule.clone(), target.to_string(), value.to_string(), reason.to_string()]
    };
    let page = Page {
        name: clean_text(detail.as_ref().map_or(job.handle().name(), |detail| &detail.summary.name))
            .into_owned(),
        sentence: sentence(known),
        good: match report.verdict.ok {
            _ if why.is_failure() => "bad",
            Some(false) => "bad",
            Some(true) => "good",
            None => "unknown",
        },
        facts: facts(known),
        why_lines: why.lines(),
        graph: graph(report, *judge),
        matrix: matrix(report, *judge),
        bring_up: bring_up(view),
        collectives: measured.as_deref().map(Collectives::of),
        speed: speed(view, report),
        hidden_ranks: report.ranks.len().saturating_sub(ROWS),
        environment: environment(known),
        job_file: spec.as_ref().map(to_toml),
        decisions: job.plan().map_or_else(Vec::new, |plan| plan.decisions.iter().map(decision).collect()),
        report,
        why,
    };
    rendered(&page)
}

fn planned(known: &Known) -> Option<Fabric> {
    let summary = known.detail.as_ref().and_then(|detail| detail.summary.fabric);
    known.job.plan().map(|plan| plan.fabric).or(summary)
}

/// Returns how the job ended, and whether it used the fabric that was planned, in one sentence.
fn sentence(known: &Known) -> String {
    let seen = known.transport.verdict.fabric;
    let plan = planned(known).and_then(Fabric::named);
    let plan = plan.map(|fabric| fabric.to_string());
    let network = match (known.transport.verdict.ok, plan) {
        _ if seen == FabricSeen::Unknown => "no line proves which network its nodes used".to_owned(),
        (Some(false), Some(plan)) => format!("its nodes used {}, although {plan} was planned", seen.label()),
        (Some(false), None) => format!("its nodes used {}, which is slower than it should be", seen.label()),
        (Some(true), Some(plan)) => format!("its nodes used {} ({plan} was planned)", seen.label()),
        _ => format!("its nodes used {}", seen.label()),
    };
    let cancelled = known.detail.as_ref().is_some_and(|detail| detail.summary.phase == JobPhase::Cancelled);
    let ended = if cancelled { "The job was cancelled".to_owned() } else { ended(&known.why) };
    let limit = known.measured.as_ref().filter(|measured| measured.limit.is_some());
    let limit = limit.map_or_else(String::new, |measured| format!("; {}", measured.sentence()));
    clean_text(&format!("{ended}; {network}{limit}.")).into_owned()
}

fn facts(known: &Known) -> Vec<Fact> {
    let report = &known.transport;
    let judged = match report.verdict.ok {
        Some(true) => "good",
        Some(false) => "bad",
        None => "unknown",
    };
    let gdr = gdr(report.verdict.gdr);
    let or_dash = |text: String| if text.is_empty() { "–".to_owned() } else { text };
    let hosts: std::collections::BTreeSet<u32> = report.ranks.iter().map(|rank| rank.node).collect();
    let spec = known.spec.as_ref();
    let ranks =
        spec.and_then(weftrun::prelude::JobSpec::ranks).map_or_else(String::new, |ranks| ranks.to_string());
    let nodes =
        spec.map_or_else(String::new, |spec| spec.workers().map(|role| role.nodes).sum::<u32>().to_string());
    let plan = planned(known).map_or_else(String::new, |fabric| fabric.to_string());
    // How many have written lines of NCCL.
    let of_nccl = |count: usize| if count == 0 { "no line of NCCL".to_owned() } else { count.to_string() };
    let plain =
        |what, planned, seen| Fact { what, planned: or_dash(planned), seen: or_dash(seen), class: "" };
    let mut facts = vec![
        Fact {
            class: judged,
            ..plain("fabric between nodes", plan, report.verdict.fabric.label().to_owned())
        },
        plain("networks announced", String::new(), report.networks.join(", ")),
        plain("GPUDirect RDMA", String::new(), gdr.to_owned()),
        plain("nodes", nodes, of_nccl(hosts.len())),
        plain("ranks", ranks, of_nccl(report.ranks.len())),
        plain("NCCL and plugins", String::new(), stack(report)),
    ];
    if let Some(detail) = &known.detail {
        let state = format!("{}{}", detail.summary.phase, because(&detail.summary.reason));
        facts.insert(0, plain("state", String::new(), clean_text(&state).into_owned()));
    }
    facts
}

/// Returns the variables of the job, and what the cluster reports.
fn environment(known: &Known) -> Vec<(String, String)> {
    let spec = known.spec.as_ref();
    let facts = known.detail.iter().flat_map(|detail| detail.facts.iter().cloned());
    let image = spec.and_then(|spec| Some(("image".to_owned(), spec.image.clone()?)));
    let env = spec.into_iter().flat_map(|spec| &spec.env);
    let env = env.map(|variable| (variable.name.clone(), variable.value.clone()));
    let clean = |text: String| clean_text(&text).into_owned();
    facts.chain(image).chain(env).map(|(name, value)| (clean(name), clean(value))).collect()
}

/// Draws the longest series, beside the published range of its collective.
fn speed(view: &TransportView, report: &TransportReport) -> Option<Speed> {
    let values = &view.throughput;
    let (last, highest) = (*values.last()?, values.iter().copied().fold(0.0, f64::max));
    let count = report.throughput.iter().map(|value| value.count).max().unwrap_or(0);
    if values.len() < 2 || count < 2 || highest <= 0.0 {
        return None;
    }
    let expected = view.expected.filter(|_| view.is_bus_bandwidth);
    let most = expected.map_or(highest, |(_, high)| highest.max(high)) * 1.05;
    let y = |value: f64| 8.0 + (1.0 - value.max(0.0) / most) * 180.0;
    let step = 820.0 / (values.len() - 1) as f64;
    let point = |(at, value): (usize, &f64)| format!("{:.1},{:.1}", 60.0 + at as f64 * step, y(*value));
    Some(Speed {
        about: format!("{count} values, the last {last:.2} {}", view.unit),
        points: values.iter().enumerate().map(point).collect::<Vec<_>>().join(" "),
        most: format!("{most:.1}"),
        expected: expected.map(|(low, high)| {
            (y(high), (y(low) - y(high)).max(1.0), format!("published: {low:.0} to {high:.0}"))
        }),
    })
}
