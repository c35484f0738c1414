//! The binary, with a configuration of its own.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::cluster::{TestCluster, Way};
use weftrun_testkit::child;

/// Seconds after which a run is ended: no test waits for ever, and what it saw until then is in its message. Slurm needs
/// about forty to notice that a node is gone, and a machine may be slow.
const LONGEST: &str = "180";
/// How many of the last events a message shows.
const SHOWN: usize = 40;

/// A user: a folder for configuration, state and job files.
pub struct User<'a> {
    cluster: &'a TestCluster,
    way: Way,
    dir: tempfile::TempDir,
}

impl<'a> User<'a> {
    /// Creates a user whose target `cluster` has the test cluster's settings, followed by these.
    pub fn new(cluster: &'a TestCluster, way: Way, further: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let mut text = "[target.cluster]\nbackend = \"slurm\"\n".to_owned();
        // A JSON text is a TOML basic string, too; numbers stay numbers.
        let number = |value: &str| value.parse::<u32>().map_or_else(|_| Value::from(value), Value::from);
        let further = further.iter().map(|(key, value)| (*key, number(value)));
        let all: std::collections::BTreeMap<_, _> =
            cluster.settings(way).into_iter().chain(further).collect();
        for (key, value) in all {
            match value.as_object() {
                Some(table) => {
                    for (name, value) in table {
                        text.push_str(&format!("{key}.{} = {value}\n", Value::from(name.as_str())));
                    }
                }
                None => text.push_str(&format!("{key} = {value}\n")),
            }
        }
        std::fs::write(dir.path().join("config.toml"), text).expect("written");
        Self { cluster, way, dir }
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Writes a file beside the job.
    pub fn file(&self, name: &str, text: &str) {
        std::fs::write(self.dir.path().join(name), text).expect("written");
    }

    /// Returns the command of a run.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = child::command("timeout");
        command.env("HOME", self.dir.path());
        command.args(["--kill-after=5", LONGEST, env!("CARGO_BIN_EXE_weftrun")]);
        command.args(["-b", "cluster"]).args(words).current_dir(self.dir.path());
        command.env("WEFTRUN_CONFIG", self.dir.path().join("config.toml"));
        command.env("WEFTRUN_STATE_DIR", self.dir.path().join("state"));
        command.envs(self.cluster.env(self.way));
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
        Events { child, lines, seen: VecDeque::new() }
    }
}

/// A running `weftrun -o json`.
pub struct Events {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    seen: VecDeque<String>,
}

impl Iterator for Events {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        let line = self.lines.next()?.expect("a line");
        if self.seen.len() == SHOWN {
            self.seen.pop_front();
        }
        self.seen.push_back(line.chars().take(400).collect());
        Some(serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}")))
    }
}

impl Events {
    /// Ends the run, as Ctrl-C does.
    pub fn stop(self) {
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.child),
            rustix::process::Signal::INT,
        )
        .expect("it runs");
        assert_eq!(self.end().0, Some(0));
    }

    /// Returns the exit code, and for messages the last events with the standard error.
    pub fn end(mut self) -> (Option<i32>, String) {
        for _ in self.by_ref() {}
        let output = self.child.wait_with_output().expect("it ends");
        let seen = Vec::from(self.seen).join("\n");
        (output.status.code(), format!("{seen}\n{}", String::from_utf8_lossy(&output.stderr)))
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
