//! Marks between lines, and what was left out of a line.

use super::sanitise::clean_text;
use super::{Mark, SourceId};

/// What was left out of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Note {
    /// Bytes after the cap.
    pub cut: u64,
    /// How often a carriage return restarted the line.
    pub updates: u32,
}

/// Returns the end of a line of which bytes were cut; empty if none were.
///
/// ```
/// use weftrun_core::log::cut_text;
/// assert_eq!(cut_text(12), " … 12 more bytes");
/// assert_eq!(cut_text(0), "");
/// ```
pub fn cut_text(cut: u64) -> String {
    if cut > 0 { format!(" … {cut} more bytes") } else { String::new() }
}

/// Returns how a source is called in a mark.
pub(super) fn name(source: &SourceId) -> String {
    source.rank.map_or_else(|| source.name.clone(), |rank| format!("r{rank}"))
}

/// Returns the text of a mark for a reader.
pub fn mark_text(source: &SourceId, mark: &Mark) -> String {
    let text = match mark {
        Mark::Gap { reason } => format!("lines are missing: {reason}"),
        Mark::Note { text } => text.clone(),
        Mark::Resumed { lost, repeated } => {
            let lost = lost.map_or_else(|| "it is not known what was".to_owned(), |lost| lost.to_string());
            format!("stream cut, resumed: {lost} lost, {repeated} repeated")
        }
        Mark::Truncated => "file truncated, what follows is from its beginning".to_owned(),
        Mark::Ended { exit_code: Some(code) } => format!("ended with exit code {code}"),
        Mark::Ended { exit_code: None } => "ended".to_owned(),
    };
    clean_text(&format!("{}: {text}", name(source))).into_owned()
}
