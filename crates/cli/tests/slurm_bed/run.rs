//! The binary, with a configuration of its own.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::bed::{Bed, Way};

/// A user: a folder for configuration, state and job files.
pub struct User<'a> {
    bed: &'a Bed,
    way: Way,
    dir: tempfile::TempDir,
}

impl<'a> User<'a> {
    /// A user whose target `bed` has the bed's settings, these after them.
    pub fn new(bed: &'a Bed, way: Way, further: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let mut text = "[target.bed]\nbackend = \"slurm\"\n".to_owned();
        let own = bed.settings(way);
        let own = own.iter().map(|(key, value)| (*key, value.as_str()));
        let all: std::collections::BTreeMap<_, _> = own.chain(further.iter().copied()).collect();
        for (key, value) in all {
            // A JSON text is a TOML basic string, too; numbers stay numbers.
            let value = value.parse::<u32>().map_or_else(|_| Value::from(value), Value::from);
            text.push_str(&format!("{key} = {value}\n"));
        }
        std::fs::write(dir.path().join("config.toml"), text).expect("written");
        Self { bed, way, dir }
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Writes a file beside the job.
    pub fn file(&self, name: &str, text: &str) {
        std::fs::write(self.dir.path().join(name), text).expect("written");
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weftrun"));
        command.args(["-b", "bed"]).args(words).current_dir(self.dir.path());
        command.env("WEFTRUN_CONFIG", self.dir.path().join("config.toml"));
        command.env("WEFTRUN_STATE_DIR", self.dir.path().join("state"));
        command.envs(self.bed.env(self.way));
        command
    }

    /// Runs it to its end.
    pub fn weftrun(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("weftrun runs")
    }

    /// Runs it and gives its JSON events as they come.
    pub fn events(&self, words: &[&str]) -> Events {
        let mut command = self.command(words);
        command.args(["-o", "json"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("weftrun runs");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Events { child, lines }
    }
}

/// A running `weftrun -o json`.
pub struct Events {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Iterator for Events {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        let line = self.lines.next()?.expect("a line");
        Some(serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}")))
    }
}

impl Events {
    /// The exit code, and what was said on standard error.
    pub fn end(mut self) -> (Option<i32>, String) {
        for _ in self.by_ref() {}
        let output = self.child.wait_with_output().expect("it ends");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Standard output and error for a message.
pub fn said(output: &Output) -> String {
    format!(
        "exit {:?}\n{}{}",
        output.status.code(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
