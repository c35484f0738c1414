//! A folder of its own for each test, and the binary run in it.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use weftrun_testkit::child;

/// A private home, configuration, state folder and working folder. Jobs that still run when it is dropped are
/// cancelled.
pub struct Place {
    dir: tempfile::TempDir,
}

/// How a run ended.
#[derive(Debug)]
pub struct Done {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Place {
    pub fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("weftrun-cli-").tempdir().unwrap();
        std::fs::create_dir(dir.path().join("home")).unwrap();
        let work = dir.path().join("work");
        std::fs::create_dir(&work).unwrap();
        // Independent of the umask: a project's file is used only if no other user can write to it.
        std::fs::set_permissions(&work, std::fs::Permissions::from_mode(0o755)).unwrap();
        Self { dir }
    }

    /// A path in the working folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("work").join(name)
    }

    /// The user's configuration file.
    pub fn config(&self) -> PathBuf {
        self.dir.path().join("home/.config/weftrun/config.toml")
    }

    /// The folder of the journal and of local jobs.
    pub fn state(&self) -> PathBuf {
        self.dir.path().join("home/.local/state/weftrun")
    }

    /// Writes a file into the working folder.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        write(&self.path(name), bytes.as_ref());
        self.path(name)
    }

    /// Writes the user's configuration.
    pub fn configure(&self, text: &str) {
        write(&self.config(), text.as_bytes());
    }

    /// The binary with arguments, in the working folder, with no environment but a home and the system's programs.
    pub fn command<S: AsRef<std::ffi::OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = self.program(env!("CARGO_BIN_EXE_weftrun"));
        command.args(args);
        command
    }

    /// Another program with the same folders and environment.
    pub fn program(&self, name: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = child::command(name);
        command.env("HOME", self.dir.path().join("home")).current_dir(self.dir.path().join("work"));
        command
    }

    /// Runs it to its end; the arguments are the words of a line.
    pub fn run(&self, line: &str) -> Done {
        Done::of(self.command(line.split_whitespace()))
    }

    /// Runs it with something on stdin.
    pub fn feed(&self, line: &str, stdin: &[u8]) -> Done {
        let mut command = self.command(line.split_whitespace());
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let mut pipe = child.stdin.take().unwrap();
        let bytes = stdin.to_vec();
        // It may end before it has read all, which is its right.
        let writer = std::thread::spawn(move || drop(pipe.write_all(&bytes)));
        let done = Done::from(child.wait_with_output().unwrap());
        writer.join().unwrap();
        done
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.state().join("targets/local").exists() {
            return;
        }
        let jobs = self.run("list -b local -o json");
        let jobs: Value = serde_json::from_str(&jobs.out).unwrap_or_default();
        for job in jobs["jobs"].as_array().into_iter().flatten() {
            let _ = Done::of(self.command(["delete", "--yes", job["handle"].as_str().unwrap_or_default()]));
        }
    }
}

impl Done {
    pub fn of(mut command: Command) -> Self {
        command.output().unwrap().into()
    }

    /// Asserts the exit code.
    #[track_caller]
    pub fn code(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout:\n{}\nstderr:\n{}", self.out, self.err);
        self
    }

    /// Asserts that it went well.
    #[track_caller]
    pub fn ok(self) -> Self {
        self.code(0)
    }

    /// The one JSON value on stdout.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}\n{}\n{}", self.out, self.err))
    }

    /// The JSON values on stdout, one a line.
    #[track_caller]
    pub fn lines(&self) -> Vec<Value> {
        let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        self.out.lines().map(parse).collect()
    }
}

impl From<std::process::Output> for Done {
    fn from(output: std::process::Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

fn write(path: &Path, bytes: &[u8]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
    let mode = std::fs::metadata(path).unwrap().permissions().mode();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode & 0o755)).unwrap();
}

/// A file of this repository.
pub fn repo(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// A job of two nodes and four ranks that takes no time.
pub const SMALL_JOB: &str = r#"
name = "small"
launch = "per-rank"
nodes = 2
ranks_per_node = 2
command = ["sh", "-c", "echo rank $RANK of $WORLD_SIZE"]
"#;
