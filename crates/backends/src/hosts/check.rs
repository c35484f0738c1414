//! Checks what would prevent a job, without submitting it.

use weftrun_core::backend::Rendered;
use weftrun_core::text::counted;
use weftrun_core::{Finding, Result};

use super::client::{Client, Silent};
use super::fit;
use super::render::Draft;
use super::status::Job;
use super::watch::no_hosts;
use crate::remote::quote;

/// Returns what would prevent the job.
pub async fn check(client: &Client, rendered: &Rendered) -> Result<Vec<Finding>> {
    let draft = Draft::of(rendered)?;
    if client.names().next().is_none() {
        return Err(no_hosts(client));
    }
    let hosts = match fit::candidates(client, draft) {
        Ok(hosts) => hosts,
        Err(error) => {
            let finding = Finding::error("HOSTS-TOO-FEW", error.to_string());
            return Ok(vec![match error.hints().first() {
                Some(hint) => finding.fix(hint.clone()),
                None => finding,
            }]);
        }
    };
    let mut findings = Vec::new();
    let looks = client.survey(&draft.own).await?;
    let jobs = Job::gather(&looks);
    let taken = jobs.values().find(|job| {
        job.place.name == rendered.name
            && job.is_committed()
            && job.place.submission != rendered.submission
            && !job.phase().0.is_terminal()
    });
    if let Some(other) = taken {
        let text = format!("a job named `{}` still runs ({})", rendered.name, other.handle(&client.target));
        findings.push(Finding::error("HOSTS-NAME", text).fix("`--name-suffix` makes a new name"));
    }
    let mut free = 0;
    for host in &hosts {
        match looks.get(host) {
            Some(Ok(look)) => {
                let owner = jobs.values().find(|job| {
                    look.busy.as_deref() == Some(job.place.submission.as_str())
                        && !job.phase().0.is_terminal()
                });
                match owner {
                    Some(job) => findings
                        .push(Finding::info("HOSTS-BUSY", format!("{host} runs `{}`", job.place.name))),
                    None => free += 1,
                }
            }
            Some(Err(why)) => findings.push(
                Finding::warning("HOSTS-SILENT", format!("{host} does not answer: {why}"))
                    .fix(format!("check `ssh {host} true` from this machine")),
            ),
            None => {}
        }
    }
    if free < draft.nodes.len() {
        let wanted = counted(draft.nodes.len(), "host");
        let text = match free {
            1 => format!("the job needs {wanted}, and 1 is free"),
            free => format!("the job needs {wanted}, and {free} are free"),
        };
        findings.push(match &draft.own.wait_for_hosts {
            Some(wait) => Finding::info("HOSTS-TOO-FEW", format!("{text}: it waits for up to {wait}")),
            None => Finding::error("HOSTS-TOO-FEW", text)
                .fix("set fewer `nodes`, or wait with `--wait-for-hosts 1h`"),
        });
    }
    if !draft.programs.is_empty() {
        let words = quote::words(&draft.programs)?;
        let setup: String = draft.own.setup.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
        let program = format!(
            "{setup}for p in {words}; do command -v \"$p\" > /dev/null || printf '%s\\n' \"$p\"; done\n"
        );
        let programs: Vec<_> = hosts.iter().map(|host| (host.clone(), program.clone())).collect();
        for (answer, host) in client.each(&programs, Silent::Ask).await.into_iter().zip(&hosts) {
            for missing in
                answer.iter().flat_map(|answer| answer.text().lines().map(str::to_owned).collect::<Vec<_>>())
            {
                let missing = crate::remote::error::clean(&missing);
                findings.push(
                    Finding::error(
                        "HOSTS-PROGRAM",
                        format!("{host} has no `{missing}` in the PATH of a non-login shell"),
                    )
                    .fix(format!(
                        "install `{missing}` there, or add its folder to the PATH with `setup` in the target"
                    )),
                );
            }
        }
    }
    Ok(findings)
}
