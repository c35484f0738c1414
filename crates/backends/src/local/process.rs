//! Processes of this machine: identified across restarts, and signalled.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::folder::{self, Folder};
use super::record::Record;
use crate::process::{Identity, Stat};

/// The variable in the environment of every process of a job and its descendants, by which they are found
/// even after a fork or a change of their group or session.
pub(super) const MARK: &str = "WEFTRUN_SUBMISSION";

/// How long a process may have no environment during `execve`.
const EXEC: Duration = Duration::from_millis(200);

/// Returns the processes with the mark of a submission, except this one. Those of other users cannot be read
/// and never belong to it.
pub(super) fn marked(submission: &str) -> Vec<i32> {
    marked_environments(submission).into_iter().map(|(pid, _)| pid).collect()
}

/// Returns the processes of a submission, each with the environment that it was started with.
pub(super) fn marked_environments(submission: &str) -> Vec<(i32, Vec<u8>)> {
    marked_within(submission, EXEC)
}

/// Searches for at most `patience`. A process inside `execve` has no readable environment, so its environment is
/// read again until it has one: a child that is just starting must not be missed.
fn marked_within(submission: &str, patience: Duration) -> Vec<(i32, Vec<u8>)> {
    let mark = format!("{MARK}={submission}");
    let me = i32::try_from(std::process::id()).unwrap_or(0);
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let mut unread: Vec<i32> =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    unread.retain(|pid| *pid != me);
    let (mut found, began) = (Vec::new(), Instant::now());
    loop {
        unread.retain(|pid| {
            let Some(mut environment) = environment(*pid) else { return false };
            let becoming = environment.is_empty() && Stat::of(*pid).is_some_and(|stat| stat.becoming);
            if environment.is_empty() && !becoming {
                // `execve` may have finished between the two reads.
                environment = self::environment(*pid).unwrap_or_default();
            }
            if environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()) {
                found.push((*pid, environment));
            }
            becoming
        });
        if unread.is_empty() || began.elapsed() >= patience {
            return found;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the environment that a process was started with; none if it has ended, or is another user's.
fn environment(pid: i32) -> Option<Vec<u8>> {
    fs::read(format!("/proc/{pid}/environ")).ok()
}

/// Signals one process. A process that has ended is not an error.
pub(super) fn signal(pid: i32, number: i32) {
    if let (Some(pid), Some(signal)) = (Pid::from_raw(pid), by_number(number)) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Signals processes, stopped ones too.
pub(super) fn end(processes: &[i32], number: i32) {
    for pid in processes {
        signal(*pid, number);
        signal(*pid, 18);
    }
}

/// How long a process may need to end after KILL. One that waits for a device or runs as another user does not end.
const STUBBORN: Duration = Duration::from_secs(5);

/// Returns the signal for processes that were to end so long ago; none if nothing helps.
pub(super) fn next_signal(elapsed: Duration, grace: Duration) -> Option<i32> {
    match elapsed {
        elapsed if elapsed < grace => Some(15),
        elapsed if elapsed < grace.saturating_add(STUBBORN) => Some(9),
        _ => None,
    }
}

/// Returns processes with their names, for a message.
pub(super) fn names(processes: &[i32]) -> String {
    let name = |pid: &i32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        format!("{pid} ({})", weftrun_core::log::clean_text(name.trim()))
    };
    let shown: Vec<String> = processes.iter().take(8).map(name).collect();
    let more = if processes.len() > shown.len() { ", …" } else { "" };
    format!("{}{more}", shown.join(", "))
}

/// Returns the processes of a submission whose supervisor is gone, except this one: those with its mark, those that the
/// supervisor started or adopted, which may have cleared their environment, and the descendants of both.
pub(super) fn left(submission: &str, record: &Record) -> Vec<i32> {
    let started = record.processes.iter().filter_map(|process| process.identity.as_ref());
    // Without a start time, a later process with the same pid cannot be distinguished.
    let known = started.chain(&record.adopted).filter(|one| one.start > 0 && one.is_alive());
    let mut roots = marked(submission);
    roots.extend(known.map(|one| one.pid));
    if roots.is_empty() {
        return roots;
    }
    let (mut found, me) = (tree(roots), Identity::me().pid);
    found.retain(|pid| *pid != me);
    found.sort_unstable();
    found.dedup();
    found
}

/// Returns the living descendants of this process.
pub(super) fn descendants() -> Vec<i32> {
    let me = Identity::me().pid;
    let mut found = tree(vec![me]);
    found.retain(|pid| *pid != me);
    found
}

/// Returns processes and their living descendants, also those that changed their group, session or environment. Those of
/// another job that one of them submitted are not among them.
fn tree(roots: Vec<i32>) -> Vec<i32> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Some(stat) = Stat::of(pid).filter(|stat| !stat.ended) {
            children.entry(stat.parent).or_default().push(pid);
        }
    }
    let (mut found, mut next) = (Vec::new(), roots);
    while let Some(pid) = next.pop() {
        next.extend(children.remove(&pid).unwrap_or_default().into_iter().filter(|pid| !is_supervisor(*pid)));
        found.push(pid);
    }
    found
}

/// Returns whether a process is the supervisor of a job (`weftrun supervise DIR`).
fn is_supervisor(pid: i32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut arguments = line.split(|byte| *byte == 0).skip(1);
    let (Some(b"supervise"), Some(folder)) = (arguments.next(), arguments.next()) else { return false };
    let folder = Folder::new(Path::new(OsStr::from_bytes(folder)));
    // Any process may have such arguments: a record names its supervisor.
    folder.of(folder::ORIGIN).exists()
        && match folder::read::<Record>(&folder.of(folder::RECORD)) {
            Ok(Some(record)) => record.supervisor.pid == pid,
            _ => true,
        }
}

/// Makes this process the parent of descendants whose own parent ends, so that [`descendants`] finds them. Returns false where
/// the system cannot do it.
pub(super) fn adopt_orphans() -> bool {
    #[cfg(target_os = "linux")]
    return rustix::process::set_child_subreaper(Some(rustix::process::getpid())).is_ok();
    #[cfg(not(target_os = "linux"))]
    return false;
}

/// Returns the living children of this process other than the known ones, and reaps those that have ended.
pub(super) fn adopted(known: &[i32]) -> Vec<Identity> {
    let mut found = Vec::new();
    for task in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for pid in children.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()) {
            match Stat::of(pid) {
                _ if known.contains(&pid) => {}
                Some(stat) if stat.ended => {
                    let _ =
                        rustix::process::waitpid(Pid::from_raw(pid), rustix::process::WaitOptions::NOHANG);
                }
                Some(_) if !is_supervisor(pid) => found.push(Identity::of(pid)),
                _ => {}
            }
        }
    }
    found
}

/// Signals a process group by its leader, which must be a child of this process and not yet reaped.
pub(super) fn signal_group(leader: i32, number: i32) {
    if let (Some(leader), Some(signal)) = (Pid::from_raw(leader), by_number(number)) {
        let _ = rustix::process::kill_process_group(leader, signal);
    }
}

/// Returns the signal of a number, if this system has a name for it.
pub(super) fn by_number(number: i32) -> Option<Signal> {
    Signal::from_named_raw(number)
}

/// Returns the name of a signal.
pub(super) fn name(number: i32) -> String {
    let known = [
        (1, "SIGHUP"),
        (2, "SIGINT"),
        (3, "SIGQUIT"),
        (4, "SIGILL"),
        (6, "SIGABRT"),
        (7, "SIGBUS"),
        (8, "SIGFPE"),
        (9, "SIGKILL"),
        (10, "SIGUSR1"),
        (11, "SIGSEGV"),
        (12, "SIGUSR2"),
        (13, "SIGPIPE"),
        (14, "SIGALRM"),
        (15, "SIGTERM"),
        (24, "SIGXCPU"),
        (25, "SIGXFSZ"),
    ];
    known
        .iter()
        .find(|(n, _)| *n == number)
        .map_or_else(|| format!("signal {number}"), |(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weftrun_testkit::child;

    /// `env -i` and many daemons start such processes; `exec` and `cancel` must not wait for them.
    #[test]
    fn a_process_without_an_environment_is_not_waited_for() {
        let mut child = std::process::Command::new("sleep").arg("120").env_clear().spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        while fs::read(format!("/proc/{pid}/comm")).unwrap() != b"sleep\n" {
            std::thread::sleep(Duration::from_millis(5));
        }
        let began = Instant::now();
        assert_eq!(marked_within("nothing has this mark", Duration::from_secs(60)), []);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    }

    #[test]
    fn a_marked_child_is_found_and_an_ended_one_is_not() {
        let id = format!("marktest{}", std::process::id());
        let mut child = child::command("sleep").arg("30").env(MARK, &id).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        // Between fork and exec the child still has our environment.
        let found = (0..100).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            marked(&id) == [pid]
        });
        assert!(found);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(marked(&id).is_empty());
    }
}
