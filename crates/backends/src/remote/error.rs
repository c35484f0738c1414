//! Maps the standard error of `ssh` to weftrun's errors.

use weftrun_core::ErrorKind::{Credentials, InvalidConfig, Unreachable};
use weftrun_core::{Error, ErrorKind};

/// A row of the table: a substring, the error kind, the hint.
type Row = (&'static str, ErrorKind, &'static str);

/// The first row whose substring occurs applies.
const SSH: &[Row] = &[
    (
        "Could not resolve hostname",
        Unreachable,
        "check the name in the target: it is a host of ~/.ssh/config, or a name that this machine resolves",
    ),
    ("Connection refused", Unreachable, "the host answers, but no ssh server on that port"),
    ("No route to host", Unreachable, "check the network or the VPN"),
    ("timed out", Unreachable, "check the network or the VPN"),
    // ssh says both, and the first says more.
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        Credentials,
        "the host's key is not the one that ssh knows: the host was installed again, or something else answers; find out which, then remove the old key with `ssh-keygen -R HOST`, and log in once by hand",
    ),
    ("Host key verification failed", Credentials, "log in once by hand with `ssh` and check the host's key"),
    (
        "Permission denied",
        Credentials,
        "no key or agent was accepted and no password can be entered here: run `ssh-add`, or open a shared connection by hand",
    ),
    (
        "Too many authentication failures",
        Credentials,
        "set `IdentitiesOnly yes` for the host in ~/.ssh/config",
    ),
    ("Bad owner or permissions", InvalidConfig, "ssh refuses its own configuration: see the file it names"),
    ("Bad configuration option", InvalidConfig, "ssh refuses its own configuration: see the file it names"),
    ("Can't open user config file", InvalidConfig, "check `ssh-config` of the target"),
];

/// Returns the error of `ssh` itself.
pub fn of_ssh(host: &str, stderr: &str, started: bool) -> Error {
    let changed = "REMOTE HOST IDENTIFICATION HAS CHANGED";
    let said =
        if stderr.contains(changed) { "its host key has changed".to_owned() } else { last_line(stderr) };
    // If the program had started, the text is not ssh's: the connection was lost, and the program may have
    // run.
    let row = SSH.iter().filter(|_| !started).find(|(part, ..)| stderr.contains(part));
    let message = match (started, said.is_empty()) {
        (true, _) => format!("the connection to `{host}` was lost"),
        (false, true) => format!("`{host}` could not be reached over ssh"),
        (false, false) => format!("`{host}` could not be reached over ssh: {said}"),
    };
    let kind = row.map_or(ErrorKind::Unreachable, |(_, kind, _)| *kind);
    let error = Error::new(kind, message);
    let error = match row {
        Some((_, _, hint)) if !started => error.hint(*hint),
        _ => error,
    };
    if kind == ErrorKind::Unreachable { error.retryable() } else { error }
}

/// Returns whether `ssh` reported that it could not connect to the host (or to one before it).
pub fn is_no_connection(stderr: &str) -> bool {
    stderr.contains("ssh: connect to host") || stderr.contains("stdio forwarding failed")
}

/// Returns the last line of a standard error that is not empty, cleaned.
pub fn last_line(stderr: &str) -> String {
    clean(stderr.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default())
}

/// Returns a text of another host without control characters and cut to 400 bytes, since it is printed to a
/// terminal.
pub fn clean(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .scan(0, |bytes, c| {
            *bytes += c.len_utf8();
            (*bytes <= 400).then_some(c)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_key_is_not_retried() {
        let refused = of_ssh("h", "h: Permission denied (publickey).", false);
        assert_eq!((refused.kind(), refused.is_retryable()), (ErrorKind::Credentials, false));
    }

    #[test]
    fn what_a_started_program_said_makes_no_refusal_of_a_lost_connection() {
        let lost = of_ssh("h", "sh: 1: cannot create x: Permission denied\n", true);
        assert_eq!((lost.kind(), lost.is_retryable()), (ErrorKind::Unreachable, true));
    }
}
