//! One event of a job as one line.

use jiff::Timestamp;
use ratatui::text::{Line, Span};
use weftrun::core::job::JobEvent;

use super::paint::{Paint, fit};
use crate::theme::Meaning;

/// Returns an event as one line, with the time of day in UTC where it is known.
pub fn line<'a>(paint: Paint, at: Option<Timestamp>, event: &JobEvent, columns: usize) -> Line<'a> {
    let (meaning, word, text) = match event {
        JobEvent::Status { job } => {
            let (meaning, word) = Paint::phase(job.phase);
            (meaning, word, if job.reason.is_empty() { job.phase.to_string() } else { job.reason.clone() })
        }
        JobEvent::Message { severity, reason, text, .. } => {
            let (meaning, word) = Paint::severity(*severity);
            (meaning, word, format!("{reason}: {text}"))
        }
        JobEvent::Stuck { finding, .. } => (Meaning::Bad, "STUCK", finding.message.clone()),
        JobEvent::Attempt { attempt, reason, .. } => {
            (Meaning::Warn, "RETRY", format!("attempt {}: {reason}", attempt.saturating_add(1)))
        }
        JobEvent::Gone { .. } => (Meaning::Warn, "GONE", "no longer in the cluster".to_owned()),
        JobEvent::Disconnected { lost: true, reason } => (Meaning::Bad, "LOST", reason.clone()),
        JobEvent::Disconnected { .. } => (Meaning::Good, "BACK", "connected again".to_owned()),
        JobEvent::Replica { replica, .. } => {
            let (meaning, word) = Paint::phase(replica.phase);
            (meaning, word, format!("{} {}", replica.name, replica.reason))
        }
        _ => (Meaning::Muted, "", String::new()),
    };
    let time = at.map_or(" ".repeat(9), |at| at.strftime("%H:%M:%S ").to_string());
    let space = columns.saturating_sub(8 + time.len());
    Line::from(vec![
        Span::raw(format!(" {time}")),
        paint.span(format!("{word:<6}"), meaning),
        Span::raw(fit(&text, space).into_owned()),
    ])
}
