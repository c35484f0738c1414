//! The state of the terminal UI, kept between two runs.

use std::path::PathBuf;

use weftrun::{Client, files};
use weftrun_tui::Session;

fn path(client: &Client) -> PathBuf {
    client.config().state_dir.join("tui.json")
}

/// Loads the last session. An unreadable one does not prevent the start.
pub(super) fn load(client: &Client) -> Option<Session> {
    let text = files::read_text(&path(client), 1 << 20).ok().flatten()?;
    serde_json::from_str(&text).ok()
}

/// Saves a session for the next start; if that fails, the next start has none.
pub(super) fn save(client: &Client, session: &Session) {
    let written = serde_json::to_vec(session).map_err(|error| error.to_string());
    let written = written
        .and_then(|text| files::write_private(&path(client), &text).map_err(|error| error.to_string()));
    if let Err(error) = written {
        tracing::debug!(%error, "the session was not kept");
    }
}
