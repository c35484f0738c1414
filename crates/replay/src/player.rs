//! Replays in a POSIX shell: a timed file for each rank, or one script for all of them.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use weftrun_core::{Error, ErrorKind, Result};

use crate::Replay;
use crate::scale::cannot_write;

/// The player: defines `rank`, read from the variables of torchrun, Slurm, Open MPI, PMI and indexed Jobs,
/// and the function `play`, which prints a timed file from its input. With `INSTANT` set it does not wait. It
/// needs only busybox.
pub const PLAYER: &str = include_str!("play.sh");

/// Shorter waits are merged: each costs a process.
const SHORTEST_WAIT_MS: f64 = 20.0;

impl Replay {
    /// Writes a rank's timed file: `@SECONDS` to wait, `=LINE`, `~LINE` without newline. The pace is 1 for
    /// real time, 2 for half the speed, 0 for no waits.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] of the writer.
    pub fn write_timed(&self, rank: u32, pace: f64, out: &mut impl Write) -> Result<()> {
        let mut played = 0.0;
        let written = self.each_line(rank, |at_ms, bytes| {
            let due = at_ms as f64 * pace;
            if due - played >= SHORTEST_WAIT_MS {
                writeln!(out, "@{:.3}", (due - played) / 1000.0)?;
                played = due;
            }
            if let Some(line) = bytes.strip_suffix(b"\n") {
                out.write_all(b"=")?;
                out.write_all(line)?;
            } else {
                out.write_all(b"~")?;
                out.write_all(bytes)?;
            }
            out.write_all(b"\n")
        });
        written.map_err(|error| cannot_write(&error))
    }

    /// Returns one script that contains the output of all ranks and plays its own rank's part. Its size is
    /// that of all logs: 32 ranks need about 150 KB.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSpec`] if a script cannot contain a line (NUL bytes, invalid UTF-8).
    pub fn script(&self, pace: f64) -> Result<String> {
        let mut script = format!("#!/bin/sh\n{PLAYER}case $rank in\n").into_bytes();
        for rank in 0..self.world() {
            script.extend_from_slice(format!("{rank}) play <<'end-of-rank'\n").as_bytes());
            self.write_timed(rank, pace, &mut script)?;
            script.extend_from_slice(b"end-of-rank\n;;\n");
        }
        script.extend_from_slice(b"esac\n");
        let text = String::from_utf8(script).ok().filter(|text| !text.contains('\0'));
        text.ok_or_else(|| {
            Error::new(ErrorKind::InvalidSpec, "a line of the replay cannot be written into a shell script")
        })
    }

    /// Writes a replay folder: `play.sh`, `rankN.play` for each rank, and `expected.json`. Start each rank
    /// with `sh FOLDER/play.sh`.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] with the path.
    pub fn write_folder(&self, folder: &Path, pace: f64) -> Result<()> {
        let bad = |path: &Path, error: &std::io::Error| cannot_write(error).with("path", path.display());
        fs::create_dir_all(folder).map_err(|e| bad(folder, &e))?;
        let player = folder.join("play.sh");
        let text = format!("#!/bin/sh\n{PLAYER}play < \"$(dirname \"$0\")/rank$rank.play\"\n");
        fs::write(&player, text).map_err(|e| bad(&player, &e))?;
        for rank in 0..self.world() {
            let path = folder.join(format!("rank{rank}.play"));
            let mut file = BufWriter::new(File::create(&path).map_err(|e| bad(&path, &e))?);
            self.write_timed(rank, pace, &mut file)?;
            file.flush().map_err(|e| bad(&path, &e))?;
        }
        let expected = folder.join("expected.json");
        let text = serde_json::to_vec_pretty(self.expected()).map_err(|e| {
            Error::new(ErrorKind::Unexpected, "the expected map cannot be written as JSON").with_source(e)
        })?;
        fs::write(&expected, text).map_err(|e| bad(&expected, &e))
    }
}
