//! What Slurm's commands print and a job's log holds, read as the backend reads them, for the fuzz target `slurm_answers`
//! alone.

use serde_json::Value;

use super::ids::JobId;
use super::{error, logs, nodelist, records, rest, transport};

/// Reads bytes as the answer of each command.
pub fn answers(bytes: &[u8]) {
    transport::fuzz_frame(bytes);
    let text = String::from_utf8_lossy(bytes);
    let _ = records::queue(&text);
    records::accounting(&text);
    records::shown(&text);
    records::Marker::find(&text);
    nodelist::expand(&text);
    let said = error::of_command("sbatch", &text, 1).to_string();
    assert_eq!(said.chars().find(|c| c.is_control() && *c != '\n'), None, "{said:?}");
    if let Ok(value) = serde_json::from_str::<Value>(&text) {
        rest::fuzz_jobs(&value);
    }
}

/// Reads bytes as a job's log.
pub fn log(bytes: &[u8]) {
    if let Some(id) = JobId::parse("7") {
        logs::fuzz_log(&id, bytes);
    }
}
