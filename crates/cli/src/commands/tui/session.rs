//! Where the user left off, kept between two runs of the terminal UI.

use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use weftrun::Client;
use weftrun_tui::Session;

fn path(client: &Client) -> PathBuf {
    client.config().state_dir.join("tui.json")
}

/// The last session. One that cannot be read is no reason not to start.
pub(super) fn load(client: &Client) -> Option<Session> {
    let text = std::fs::read_to_string(path(client)).ok().filter(|text| text.len() < 1 << 20)?;
    serde_json::from_str(&text).ok()
}

/// Keeps a session for the next start; where the disk does not take it, the next start is a fresh one.
pub(super) fn save(client: &Client, session: &Session) {
    let path = path(client);
    let write = || -> std::io::Result<()> {
        let dir = path.parent().unwrap_or(std::path::Path::new("."));
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let file = tempfile::NamedTempFile::new_in(dir)?;
        serde_json::to_writer(&file, session)?;
        file.persist(&path)?;
        Ok(())
    };
    if let Err(error) = write() {
        tracing::debug!(%error, "the session was not kept");
    }
}
