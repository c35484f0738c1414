//! The state of the terminal UI, kept between two runs.

use std::path::PathBuf;

use weftrun::{Client, files};
use weftrun_tui::Session;

/// Largest file that is read back.
const LARGEST: u64 = 1 << 20;

fn path(client: &Client) -> PathBuf {
    client.config().state_dir.join("tui.json")
}

/// Loads the last session. An unreadable one does not prevent the start.
pub(super) fn load(client: &Client) -> Option<Session> {
    let text = files::read_text(&path(client), LARGEST).ok().flatten()?;
    serde_json::from_str(&text).ok()
}

/// Saves a session for the next start, or says why that failed. Drafts that another instance saved since this one
/// began with `begun` are kept beside its own. Drafts that are too large to be read back, such as one with a long
/// script, are left out.
pub(super) fn save(client: &Client, session: Session, begun: Option<&Session>) -> Result<(), String> {
    let session = match load(client) {
        Some(other) => session.beside(&other, begun),
        None => session,
    };
    let mut written = serde_json::to_vec(&session).map_err(|error| error.to_string());
    if written.as_ref().is_ok_and(|text| u64::try_from(text.len()).is_ok_and(|size| size > LARGEST)) {
        let session = Session { draft: None, other_drafts: Vec::new(), ..session };
        written = serde_json::to_vec(&session).map_err(|error| error.to_string());
    }
    written.and_then(|text| files::write_private(&path(client), &text).map_err(|error| error.to_string()))
}
