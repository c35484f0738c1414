//! Parses output of Slurm's commands and job logs as the backend does, only for the fuzz target
//! `slurm_answers`.

use serde_json::Value;

use super::ids::JobId;
use super::{error, logs, nodelist, records, rest};

/// Parses bytes as the output of each command.
pub fn answers(bytes: &[u8]) {
    crate::remote::transport::fuzz_frame(bytes);
    let text = String::from_utf8_lossy(bytes);
    let _ = records::queue(&text);
    let _ = (records::accounting(&text), records::shown(&text));
    records::Marker::find(&text);
    nodelist::expand(&text);
    let said = error::of_command("sbatch", &text, 1).to_string();
    assert_eq!(said.chars().find(|c| c.is_control() && *c != '\n'), None, "{said:?}");
    if let Ok(value) = serde_json::from_str::<Value>(&text) {
        rest::fuzz_jobs(&value);
    }
}

/// Parses bytes as a job's log.
pub fn log(bytes: &[u8]) {
    if let Some(id) = JobId::parse("7") {
        logs::fuzz_log(&id, bytes);
    }
}
