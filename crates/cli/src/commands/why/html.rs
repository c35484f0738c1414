//! The answer as one self-contained page: no script, no network, every text escaped.

use askama::Template;
use weftrun::Result;
use weftrun::core::log::clean_text;
use weftrun::diagnose::cause::{Cause, Why, WhyState};

use crate::commands::transport::html::rendered;

#[derive(Template)]
#[template(path = "why.html")]
struct Page<'a> {
    sentence: String,
    good: &'static str,
    why: &'a Why,
    why_lines: Vec<String>,
    stacks: Vec<(String, String)>,
}

pub fn page(why: &Why) -> Result<String> {
    let stacks = why.stacks.iter().map(|stack| {
        let lines: Vec<_> = stack.text.lines().map(clean_text).collect();
        (super::stack_head(stack), lines.join("\n"))
    });
    let page = Page {
        sentence: clean_text(&format!("{}.", ended(why))).into_owned(),
        good: match why.state {
            _ if why.is_failure() => "bad",
            WhyState::Succeeded => "good",
            _ => "unknown",
        },
        why_lines: why.lines(),
        stacks: stacks.collect(),
        why,
    };
    rendered(&page)
}

/// Returns how the job ended, as the start of a sentence.
pub fn ended(why: &Why) -> String {
    let text = match (why.state, &why.cause) {
        (WhyState::Failed, Some(cause)) => format!("The job failed: {}", what(cause)),
        (WhyState::Failed, None) => "The job failed, and its logs do not show why".to_owned(),
        (WhyState::Hanging, Some(cause)) => format!("The job hangs: {}", what(cause)),
        (WhyState::Hanging, None) => "The job hangs, and its logs do not show why".to_owned(),
        (WhyState::Pending, Some(cause)) => format!("The job has not started: {}", what(cause)),
        (WhyState::Pending, None) => "The job has not started".to_owned(),
        (WhyState::Running, _) => "The job runs".to_owned(),
        (WhyState::Succeeded, _) => "The job succeeded".to_owned(),
        (WhyState::Cancelled, Some(cause)) => format!("The job was cancelled; before, {}", what(cause)),
        (WhyState::Cancelled, None) => "The job was cancelled".to_owned(),
        (WhyState::Unknown, _) => "The logs do not show how the job ended".to_owned(),
    };
    text.trim_end_matches('.').to_owned()
}

/// Returns who failed, and how, without naming a rank twice.
fn what(cause: &Cause) -> String {
    if cause.ranks.is_empty() && cause.nodes.is_empty() {
        return cause.what.clone();
    }
    let who = cause.who();
    let rank = who.split(" on ").next().unwrap_or_default();
    match cause.what.strip_prefix(rank).and_then(|rest| rest.strip_prefix(' ')) {
        Some(rest) => format!("{who} {rest}"),
        _ => format!("{who}: {}", cause.what),
    }
}
