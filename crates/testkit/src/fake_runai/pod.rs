//! A pod: a process of this machine, and its output line by line with times.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use crate::child;
use jiff::Timestamp;

/// The output of a pod, and how it ended.
#[derive(Debug, Default)]
pub struct Output {
    /// Lines with their times.
    pub lines: Vec<(Timestamp, Vec<u8>)>,
    /// Exit code, once it ended.
    pub exit: Option<i32>,
    /// Process id while it runs.
    pub pid: Option<u32>,
}

/// A pod of a workload.
#[derive(Clone, Debug)]
pub struct Pod {
    pub id: String,
    pub name: String,
    /// What it wrote.
    pub output: Arc<Mutex<Output>>,
}

impl Pod {
    /// Creates a pod that has not started.
    pub fn new(name: String) -> Self {
        let id = format!("{:032x}", fastrand::u128(..));
        Self { id, name, output: Arc::default() }
    }

    /// Starts its command, with `$(NAME)` expanded from its environment as Kubernetes does.
    pub fn start(&self, command: &str, args: &str, folder: &str, env: &BTreeMap<String, String>) {
        let words = |text: &str| -> Vec<String> {
            shlex::split(text).unwrap_or_default().iter().map(|word| expand(word, env)).collect()
        };
        let mut argv = words(command);
        argv.extend(words(args));
        let output = self.output.clone();
        if argv.is_empty() {
            // An MPI worker without a command runs sshd until the job ends.
            argv = ["sleep", "86400"].map(str::to_owned).to_vec();
        }
        let mut child = child::command(&argv[0]);
        child.args(&argv[1..]).envs(env).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        if !folder.is_empty() {
            child.current_dir(folder);
        }
        std::os::unix::process::CommandExt::process_group(&mut child, 0);
        std::thread::spawn(move || {
            let Ok(mut child) = child.spawn() else {
                return end(&output, 127);
            };
            let group = child.id();
            locked(&output).pid = Some(group);
            let stdout = child.stdout.take();
            let kept = output.clone();
            let reader = std::thread::spawn(move || {
                for line in
                    stdout.into_iter().flat_map(|out| BufReader::new(out).split(b'\n')).map_while(Result::ok)
                {
                    locked(&kept).lines.push((Timestamp::now(), line));
                }
            });
            let code = child.wait().ok().and_then(|status| status.code()).unwrap_or(137);
            // When a container's first process ends, all its processes are killed.
            kill_group(group);
            let _ = reader.join();
            end(&output, code);
        });
    }

    /// Creates a pod that runs without a process, and has already written lines.
    pub fn made_up(name: String, lines: usize) -> Self {
        let pod = Self::new(name);
        let written = (0..lines).map(|i| (Timestamp::now(), format!("{} line {i}", pod.name).into_bytes()));
        let written: Vec<_> = written.collect();
        {
            let mut output = locked(&pod.output);
            output.lines = written;
            output.pid = Some(0);
        }
        pod
    }

    #[allow(clippy::type_complexity, reason = "the caller takes it apart at once")]
    /// Returns the lines after the first `at`, and whether it has ended; none if it has fewer.
    pub fn lines(&self, at: usize) -> Option<(Vec<(Timestamp, Vec<u8>)>, bool)> {
        let output = locked(&self.output);
        Some((output.lines.get(at..)?.to_vec(), output.exit.is_some()))
    }

    /// Returns where its last lines begin.
    pub fn tail(&self, lines: usize) -> usize {
        locked(&self.output).lines.len().saturating_sub(lines)
    }

    /// Returns the exit code, once it ended.
    pub fn exit_code(&self) -> Option<i32> {
        locked(&self.output).exit
    }

    /// Kills its whole process group.
    pub fn kill(&self) {
        let mut output = locked(&self.output);
        match output.pid {
            // No process: it ends at once.
            Some(0) => (output.exit, output.pid) = (Some(0), None),
            Some(pid) => kill_group(pid),
            None => {}
        }
    }

    /// Returns its phase in Kubernetes.
    pub fn phase(&self) -> &'static str {
        let output = locked(&self.output);
        match (output.exit, output.pid) {
            (Some(0), _) => "Succeeded",
            (Some(_), _) => "Failed",
            (None, Some(_)) => "Running",
            (None, None) => "Pending",
        }
    }
}

fn kill_group(pid: u32) {
    let _ = child::command("kill").args(["-KILL", "--", &format!("-{pid}")]).stderr(Stdio::null()).status();
}

fn end(output: &Mutex<Output>, code: i32) {
    let mut output = locked(output);
    output.exit = Some(code);
    output.pid = None;
}

/// Locks the output of a pod.
pub fn locked(output: &Mutex<Output>) -> std::sync::MutexGuard<'_, Output> {
    output.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Expands `$(NAME)`; `$$` is a dollar; an unknown name is kept.
pub fn expand(text: &str, env: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(behind) = rest.strip_prefix('$') {
            out.push('$');
            rest = behind;
        } else if let Some((name, behind)) = rest.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match env.get(name) {
                Some(value) => out.push_str(value),
                None => out.push_str(&format!("$({name})")),
            }
            rest = behind;
        } else {
            out.push('$');
        }
    }
    out.push_str(rest);
    out
}
