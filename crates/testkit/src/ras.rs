//! A server that replays recorded conversations with NCCL's RAS service.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The answers of a release of NCCL, from a recording of `crates/nccl/tests/data/ras`.
#[derive(Clone, Debug, Default)]
pub struct Personality {
    /// The reports in JSON, in the recorded order; none for a release that only supports text.
    pub json: Vec<String>,
    /// The reports in text.
    pub text: Vec<String>,
    /// The JSON that a monitor connection receives; none for a release without that command.
    pub events: Vec<String>,
    /// The answer to a request to switch the profiler off; empty for a release before NCCL 2.31, which does not know it.
    pub control: &'static str,
    /// The answers to requests for NCCL's own diagnostics; none for a release before NCCL 2.31.
    pub diagnostics: Vec<String>,
}

/// Returns the file of a recording: `v2.28.9/hang`.
pub fn recording(name: &str) -> PathBuf {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../nccl/tests/data/ras");
    data.join(format!("{name}.jsonl"))
}

#[allow(clippy::expect_used, reason = "only tests use it, and a test ends with a panic")]
impl Personality {
    /// Reads a recording.
    ///
    /// # Panics
    /// If the tree has no such recording.
    pub fn of(name: &str) -> Self {
        let text = std::fs::read_to_string(recording(name)).expect("the recording is in the tree");
        let mut personality = Self::default();
        for line in text.lines() {
            let talk: serde_json::Value = serde_json::from_str(line).expect("a recording is JSON");
            let monitored = talk["monitor"].as_array().into_iter().flatten();
            let events = monitored.filter_map(|part| part["got"].as_str()).filter(|got| got.starts_with('{'));
            personality.events.extend(events.map(str::to_owned));
            let last = talk["talk"].as_array().and_then(|talk| talk.last());
            let sent = last.and_then(|last| last["sent"].as_str()).unwrap_or_default();
            let in_json = talk["talk"]
                .as_array()
                .is_some_and(|talk| talk.iter().any(|part| part["sent"] == "SET FORMAT json"));
            if sent == "DIAGNOSTICS" && !in_json {
                personality.diagnostics.extend(last.and_then(|last| last["got"].as_str()).map(str::to_owned));
            }
            if let Some(got) = last.and_then(|last| last["got"].as_str()).filter(|_| sent.ends_with("STATUS"))
            {
                let reports =
                    if got.starts_with('{') { &mut personality.json } else { &mut personality.text };
                reports.push(got.to_owned());
            }
        }
        personality
    }

    /// Serves it on a free port of localhost until the program ends. Each request for a report gets the next one;
    /// the last one is repeated.
    ///
    /// # Panics
    /// If localhost has no free port.
    pub fn serve(self) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").expect("localhost has a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let personality = Arc::new(self);
        let next = Arc::new(AtomicUsize::new(0));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (personality, next) = (Arc::clone(&personality), Arc::clone(&next));
                std::thread::spawn(move || personality.talk(stream, &next));
            }
        });
        port
    }

    fn talk(&self, stream: TcpStream, next: &AtomicUsize) -> Option<()> {
        let mut out = stream.try_clone().ok()?;
        let mut in_json = false;
        for line in BufReader::new(stream).lines() {
            let line = line.ok()?;
            let answer = match line.trim() {
                "CLIENT PROTOCOL 2" => "SERVER PROTOCOL 2\n".to_owned(),
                "SET FORMAT json" if !self.json.is_empty() => {
                    in_json = true;
                    "OK\n".to_owned()
                }
                "STATUS" | "VERBOSE STATUS" => {
                    let reports = if in_json { &self.json } else { &self.text };
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    out.write_all(reports.get(at).or(reports.last())?.as_bytes()).ok()?;
                    out.shutdown(Shutdown::Both).ok()?;
                    return None;
                }
                "MONITOR all" if in_json && !self.events.is_empty() => {
                    format!("OK\n{}", self.events.concat())
                }
                "DIAGNOSTICS" if !self.diagnostics.is_empty() => {
                    out.write_all(self.diagnostics.first()?.as_bytes()).ok()?;
                    out.shutdown(Shutdown::Both).ok()?;
                    return None;
                }
                "control profiler_mask none" if !self.control.is_empty() => self.control.to_owned(),
                timeout if timeout.starts_with("TIMEOUT ") => "OK\n".to_owned(),
                other => format!("ERROR: Unknown command {other}\n"),
            };
            out.write_all(answer.as_bytes()).ok()?;
        }
        None
    }
}
