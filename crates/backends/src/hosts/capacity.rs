//! Whether a job fits on the hosts of its target at all, free or not.

use weftrun_core::text::counted;
use weftrun_core::{Error, ErrorKind, Finding, Result};

use super::client::Client;
use super::render::PreparedJob;

/// Returns the hosts that a job may use: those that it names, or all.
///
/// # Errors
/// [`ErrorKind::InvalidSpec`] or [`ErrorKind::Refused`] if the job could not run even if all of them were free.
pub fn candidates(client: &Client, draft: &PreparedJob) -> Result<Vec<String>> {
    let known = client.settings.hosts();
    let hosts: Vec<String> = if draft.pinned.is_empty() {
        let stays = |name: &&String| !draft.avoided.contains(name);
        known.iter().map(|(name, _)| name).filter(stays).cloned().collect()
    } else {
        draft.pinned.clone()
    };
    if let Some(unknown) = hosts.iter().find(|host| known.iter().all(|(name, _)| name != *host)) {
        let message =
            format!("`nodelist` names {unknown}, which is not a host of target `{}`", client.target);
        return Err(Error::new(ErrorKind::InvalidSpec, message)
            .hint("add it to `hosts` of the target, or take it out of `nodelist`"));
    }
    let (mut seats, mut small) = (draft.nodes.iter().peekable(), Vec::new());
    for host in &hosts {
        let Some((ranks, ..)) = seats.peek() else { break };
        match slots(client, host).filter(|slots| slots < ranks) {
            Some(slots) => small.push(format!("{host} has {slots} slots, and the job needs {ranks}")),
            None => {
                seats.next();
            }
        }
    }
    if seats.peek().is_none() {
        return Ok(hosts);
    }
    let of = if draft.pinned.is_empty() { "the target" } else { "its `nodelist`" };
    let left = known.iter().filter(|(name, _)| draft.avoided.contains(name)).count();
    let without = if left > 0 { format!(" without the {left} left out by `avoid`") } else { String::new() };
    let needs = counted(draft.wanted, "host");
    let message = format!("the job needs {needs}, and {of} has {}{without}", hosts.len());
    Err(if small.is_empty() {
        Error::new(ErrorKind::Refused, message).hint(format!("add hosts to {of}, or set fewer `nodes`"))
    } else {
        Error::new(ErrorKind::Refused, format!("{message}: {}", small.join("; ")))
            .hint("set fewer ranks on a host, or larger `slots`")
    })
}

/// Returns the finding about a job that does not fit.
pub fn finding(error: &Error) -> Finding {
    let code = if error.kind() == ErrorKind::InvalidSpec { "HOSTS-NODELIST" } else { "HOSTS-TOO-FEW" };
    let finding = Finding::error(code, error.to_string());
    match error.hints().first() {
        Some(hint) => finding.fix(hint.clone()),
        None => finding,
    }
}

/// Returns how many ranks a host takes, if that is limited.
pub fn slots(client: &Client, host: &str) -> Option<u32> {
    client.settings.hosts().iter().find(|(name, _)| name == host).and_then(|(_, slots)| *slots)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use weftrun_core::backend::TargetConfig;
    use weftrun_core::fabric::Fabric;
    use weftrun_core::spec::Launch;

    use super::*;

    #[test]
    fn what_can_never_run_is_told_from_what_has_to_wait() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("hostfile");
        std::fs::write(&file, "a slots=2\nb slots=8\nc\n").unwrap();
        let client = Client::new(
            &TargetConfig::new("rack", "hosts", dir.path().to_owned()).with("hostfile", json!(file)),
        )
        .unwrap();
        let answer_without = |avoided: &[&str], pinned: &[&str], ranks: &[u32]| {
            let draft = PreparedJob {
                wanted: ranks.len(),
                nodes: ranks.iter().map(|ranks| (*ranks, "worker".to_owned(), 0)).collect(),
                pinned: pinned.iter().map(|host| (*host).to_owned()).collect(),
                avoided: avoided.iter().map(|host| (*host).to_owned()).collect(),
                own: super::super::config::JobSettings::default(),
                launch: Launch::PerRank,
                fabric: Fabric::Auto,
                restarts: 0,
                limit: 0,
                labels: std::collections::BTreeMap::new(),
                programs: Vec::new(),
                code: None,
            };
            candidates(&client, &draft).map_or_else(|error| error.to_string(), |hosts| hosts.join(" "))
        };
        let answer = |pinned: &[&str], ranks: &[u32]| answer_without(&[], pinned, ranks);
        assert_eq!(answer(&[], &[1]), "a b c");
        assert_eq!(answer_without(&["b", "z"], &[], &[1]), "a c");
        let few = answer_without(&["b"], &[], &[1, 1, 1]);
        assert!(
            few.contains("needs 3 hosts, and the target has 2 without the 1 left out by `avoid`"),
            "{few}"
        );
        assert_eq!(answer(&["c", "b"], &[8, 8]), "c b");
        for (pinned, ranks, wanted) in [
            (&[][..], &[1, 1, 1, 1][..], "the job needs 4 hosts, and the target has 3"),
            (&[], &[4, 4, 4], "a has 2 slots, and the job needs 4"),
            (&["a"], &[4], "the job needs 1 host, and its `nodelist` has 1: a has 2 slots"),
            (&["z"], &[1], "`nodelist` names z, which is not a host of target `rack`"),
        ] {
            let found = answer(pinned, ranks);
            assert!(found.contains(wanted), "{found}");
        }
    }
}
