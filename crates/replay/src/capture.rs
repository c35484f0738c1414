//! A captured run: the output of each rank, line by line, with times.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use weftrun_core::{Error, ErrorKind, Result};

use crate::Expected;
use crate::scale::{Replay, Shape};
use crate::template::Templates;

macro_rules! shipped {
    ($($known:literal),+) => {
        /// The captures included in this crate.
        pub const SHIPPED: &[&str] = &[$($known),+];

        /// Returns the lines of a capture, and the results that are expected of it.
        fn files(name: &str) -> Option<(&'static str, &'static str)> {
            match name {
                $($known => Some((
                    include_str!(concat!("../data/captures/", $known, "/merged.jsonl")),
                    include_str!(concat!("../data/captures/", $known, "/expected.json")),
                )),)+
                _ => None,
            }
        }
    };
}
shipped!("ofi_tcp_2x2", "p2p_default", "plugin_missing", "shm", "socket_2x2", "train_2x2");

/// A line of a rank's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimedLine {
    /// Milliseconds since the first line of the run.
    pub at_ms: u64,
    /// Its bytes, with the newline if it has one.
    pub bytes: Vec<u8>,
}

/// A captured run and its expected map.
#[derive(Clone, Debug)]
pub struct Capture {
    /// Its name.
    pub name: String,
    /// Lines of each rank, in order.
    pub ranks: Vec<Vec<TimedLine>>,
    /// The expected results.
    pub expected: Expected,
}

#[derive(Deserialize)]
struct Chunk {
    t: f64,
    rank: u32,
    bytes: String,
}

impl Capture {
    /// Returns a capture of this crate by name.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] listing the available ones.
    pub fn shipped(name: &str) -> Result<Self> {
        let (merged, expected) = files(name).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("there is no capture `{name}`"))
                .with("shipped", SHIPPED.join(", "))
        })?;
        Self::parse(name, merged, expected)
    }

    /// Reads a capture's folder: `merged.jsonl` and `expected.json`.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if a file cannot be read, [`ErrorKind::InvalidSpec`] if its format is wrong.
    pub fn read(folder: &Path) -> Result<Self> {
        let file = |name: &str| {
            let path = folder.join(name);
            std::fs::read_to_string(&path).map_err(|error| {
                Error::new(ErrorKind::Io, "cannot read a capture")
                    .with("path", path.display())
                    .with_source(error)
            })
        };
        let name = folder.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        Self::parse(&name, &file("merged.jsonl")?, &file("expected.json")?)
    }

    fn parse(name: &str, merged: &str, expected: &str) -> Result<Self> {
        let bad = |error: serde_json::Error| {
            Error::new(ErrorKind::InvalidSpec, format!("capture `{name}` is damaged: {error}"))
        };
        let expected = serde_json::from_str(expected).map_err(bad)?;
        let mut open: BTreeMap<u32, Vec<TimedLine>> = BTreeMap::new();
        let mut start = None;
        for line in merged.lines() {
            let chunk: Chunk = serde_json::from_str(line).map_err(bad)?;
            let start = *start.get_or_insert(chunk.t);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds of a run")]
            let at_ms = ((chunk.t - start).max(0.0) * 1000.0) as u64;
            push(open.entry(chunk.rank).or_default(), at_ms, chunk.bytes.as_bytes());
        }
        Ok(Self { name: name.to_owned(), ranks: open.into_values().collect(), expected })
    }

    /// Replays it unchanged, byte for byte.
    pub fn exact(&self) -> Replay {
        Replay::exact(self)
    }

    /// Scales it to another shape: hosts, pids, devices, ranks, communicator ids, rings and trees are
    /// consistent over all ranks, and the expected map is generated for it.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the capture has split communicators, or no network for a shape with
    /// several nodes; [`ErrorKind::Usage`] for an empty shape.
    pub fn scale(&self, shape: Shape) -> Result<Replay> {
        Replay::wide(Templates::of(self)?, self, shape)
    }
}

/// Splits a chunk into lines; a line begun by an earlier chunk is continued.
fn push(lines: &mut Vec<TimedLine>, at_ms: u64, bytes: &[u8]) {
    for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
        match lines.last_mut() {
            Some(last) if !last.bytes.ends_with(b"\n") => last.bytes.extend_from_slice(piece),
            _ => lines.push(TimedLine { at_ms, bytes: piece.to_vec() }),
        }
    }
}
