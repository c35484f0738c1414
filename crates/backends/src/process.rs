//! Processes of this machine, told from later ones of the same number.

use std::fs;

use rustix::process::Pid;
use serde::{Deserialize, Serialize};

/// Distinguishes a process from a later one with the same pid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Process id.
    pub pid: i32,
    /// Start time in the kernel's ticks since boot; 0 if the kernel does not report it.
    pub start: u64,
    /// Id of its boot; empty if the kernel does not report it.
    pub boot: String,
}

impl Identity {
    /// Returns the identity of a running process.
    pub fn of(pid: i32) -> Self {
        Self { pid, start: Stat::of(pid).map_or(0, |stat| stat.start), boot: boot_id() }
    }

    /// Returns the identity of this process.
    pub fn me() -> Self {
        Self::of(i32::try_from(std::process::id()).unwrap_or(0))
    }

    /// Returns whether exactly this process exists and has not ended; a zombie has ended.
    pub fn is_alive(&self) -> bool {
        if !self.boot.is_empty() && self.boot != boot_id() {
            return false;
        }
        match Stat::of(self.pid) {
            Some(stat) => stat.start == self.start && !stat.ended,
            None if has_proc() => false,
            None => {
                Pid::from_raw(self.pid).is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
            }
        }
    }

    /// Returns whether the machine was rebooted since.
    pub fn is_of_another_boot(&self) -> bool {
        !self.boot.is_empty() && self.boot != boot_id()
    }
}

/// What the kernel says of a process.
#[derive(Debug)]
pub struct Stat {
    /// Process id of its parent.
    pub parent: i32,
    /// Start time in ticks since boot.
    pub start: u64,
    /// Whether it has ended and was not waited for.
    pub ended: bool,
    /// Whether the process is inside `execve`: it has memory, but no environment yet. Kernel threads and ended
    /// processes have no memory. A process that was started with an empty environment has a nonzero `env_end`.
    pub becoming: bool,
}

impl Stat {
    /// Returns what the kernel says; none if there is no such process, or the system does not tell.
    pub fn of(pid: i32) -> Option<Self> {
        Self::parse(&String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?))
    }

    /// Parses `/proc/PID/stat`. The name in parentheses may contain anything, so the fields are counted after
    /// the last parenthesis, which ends field 2 (proc_pid_stat(5)).
    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3).copied();
        let number = |at: usize| field(at).and_then(|text| text.parse::<u64>().ok());
        Some(Self {
            parent: field(4)?.parse().ok()?,
            start: number(22)?,
            ended: matches!(field(3)?, "Z" | "X"),
            // Field 23 is vsize, and 51 env_end.
            becoming: number(23).is_some_and(|size| size > 0) && number(51) == Some(0),
        })
    }
}

fn has_proc() -> bool {
    fs::exists("/proc/self/stat").unwrap_or(false)
}

fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_inside_execve_is_told_from_one_without_an_environment() {
        let of = |vsize: u64, env_end: u64| {
            let rest: Vec<String> = (24..=50).map(|field| field.to_string()).collect();
            let text = format!(
                "7 (a) b) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 {vsize} {} {env_end} 0",
                rest.join(" ")
            );
            let stat = Stat::parse(&text).unwrap();
            assert_eq!((stat.start, stat.ended), (4242, false));
            stat.becoming
        };
        assert!(of(4096, 0), "inside execve");
        assert!(!of(4096, 140_000), "a program");
        assert!(!of(0, 0), "a kernel thread");
        assert!(!Stat::of(i32::try_from(std::process::id()).unwrap()).unwrap().becoming);
    }

    #[test]
    fn this_process_is_alive_and_one_of_another_start_or_boot_is_not() {
        let me = Identity::me();
        assert!(me.is_alive());
        assert!(!Identity { start: me.start + 1, ..me.clone() }.is_alive());
        let old = Identity { boot: "another".into(), ..me };
        assert!(!old.is_alive() && old.is_of_another_boot());
    }
}
