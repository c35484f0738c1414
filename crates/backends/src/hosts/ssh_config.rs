//! The hosts that the user's ssh configuration names.

use weftrun_core::backend::{FoundTarget, TargetConfig};

use super::BACKEND;
use crate::files;

/// Largest configuration that is read.
const MOST_BYTES: u64 = 1 << 20;
/// Most hosts that are found.
const MOST_HOSTS: usize = 256;

/// Finds the hosts of `~/.ssh/config`, without patterns and without those where one logs in as `git`. Files that it includes
/// are not read.
pub(super) fn find(target: &TargetConfig) -> Vec<FoundTarget> {
    let home = files::absolute(target.env.get("HOME"));
    let text = home.and_then(|home| files::read_text(&home.join(".ssh/config"), MOST_BYTES).ok());
    let hosts = text.map(|text| hosts_of(&text)).unwrap_or_default();
    if hosts.is_empty() {
        return Vec::new();
    }
    let sign = format!("{} in ~/.ssh/config", weftrun_core::text::listed(&hosts, 4));
    vec![FoundTarget::new(BACKEND, sign).with("hosts", hosts)]
}

/// Returns the names of the `Host` blocks (ssh_config(5)).
fn hosts_of(text: &str) -> Vec<String> {
    let (mut hosts, mut block): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let line = line.trim();
        let (key, value) = line.split_once([' ', '\t', '=']).unwrap_or((line, ""));
        let value = value.trim_start_matches(['=', ' ', '\t']);
        if key.eq_ignore_ascii_case("host") || key.eq_ignore_ascii_case("match") {
            hosts.append(&mut block);
            let names = value.split_whitespace().map(|name| name.trim_matches('"'));
            let names = names.filter(|_| key.eq_ignore_ascii_case("host"));
            block = names.filter(|name| is_host(name)).map(str::to_owned).collect();
        } else if key.eq_ignore_ascii_case("user") && value == "git" {
            block.clear();
        }
        if hosts.len() > MOST_HOSTS {
            break;
        }
    }
    hosts.append(&mut block);
    hosts.truncate(MOST_HOSTS);
    hosts
}

/// Returns whether a word is a host, and neither a pattern nor its opposite.
fn is_host(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with('-')
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_those_that_can_be_logged_in_to() {
        let text = "# mine\nHost gpu-1 gpu-2\n  HostName 10.0.0.1\nHost *.corp !bad gpu-?\n\tUser me\nhost=github.com\n  User git\n\
                    Match host x\n  User y\nHost \"gpu-3\" -oProxyCommand=x";
        assert_eq!(hosts_of(text), ["gpu-1", "gpu-2", "gpu-3"]);
        assert!(hosts_of(&"Host a b c d\n".repeat(100_000)).len() <= MOST_HOSTS);
    }
}
