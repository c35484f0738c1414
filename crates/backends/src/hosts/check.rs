//! Checks what would prevent a job, without submitting it.

use weftrun_core::backend::Rendered;
use weftrun_core::spec::Launch;
use weftrun_core::text::counted;
use weftrun_core::{Finding, Result};

use super::capacity;
use super::client::{Client, Silent};
use super::engine::{self, ENGINES};
use super::look::{HostLook, Looks, NoAnswer};
use super::render::PreparedJob;
use super::status::{Job, Jobs};
use super::watch::no_hosts;
use crate::refusals;
use crate::remote::error::clean;
use crate::remote::quote;
use crate::submit_once::prepared;

/// Returns what would prevent the job.
pub async fn check(client: &Client, rendered: &Rendered) -> Result<Vec<Finding>> {
    let draft: &PreparedJob = prepared(rendered)?;
    if client.names().next().is_none() {
        return Err(no_hosts(client));
    }
    let hosts = match capacity::candidates(client, draft) {
        Ok(hosts) => hosts,
        Err(error) => return Ok(vec![capacity::finding(&error)]),
    };
    let mut findings = Vec::new();
    let wanted = draft.nodes.len();
    let mut looks = client.inventory(&draft.own, Silent::Skip).await?;
    let mut jobs = Job::gather(&looks);
    // One that is needed may answer by now.
    if looks.values().any(std::result::Result::is_err)
        && hosts.iter().filter(|host| is_free(looks.get(*host), &jobs)).count() < wanted
    {
        looks = client.inventory(&draft.own, Silent::Ask).await?;
        jobs = Job::gather(&looks);
    }
    if let Some(other) = Job::with_name_of(rendered, &jobs) {
        let taken = refusals::taken_name(&other.handle(&client.target), &other.place.labels);
        findings.push(Finding::error("HOSTS-NAME", taken.to_string()).fix(taken.hints().join("; ")));
    }
    let mut free = Vec::new();
    for host in &hosts {
        match looks.get(host) {
            Some(Ok(look)) => match owner(look, &jobs) {
                Some(job) => {
                    findings.push(Finding::info("HOSTS-BUSY", format!("{host} runs `{}`", job.place.name)));
                }
                None => free.push(host.as_str()),
            },
            Some(Err(why)) => findings.push(why.finding(format!("{host} does not answer: {why}"))),
            None => {}
        }
    }
    if free.len() < wanted {
        let hosts = counted(wanted, "host");
        let text = match free.len() {
            1 => format!("the job needs {hosts}, and 1 is free"),
            free => format!("the job needs {hosts}, and {free} are free"),
        };
        findings.push(match &draft.own.wait_for_hosts {
            Some(wait) => Finding::info("HOSTS-TOO-FEW", format!("{text}: it waits for up to {wait}")),
            None => Finding::error("HOSTS-TOO-FEW", text)
                .fix("set fewer `nodes`, or wait with `--wait-for-hosts 1h`"),
        });
        return Ok(findings);
    }
    // Those that the submission would take.
    let hosts = free.get(..wanted).unwrap_or_default();
    findings.extend(programs(client, draft, hosts).await?);
    if draft.launch == Launch::Mpi && !draft.makes_keys() {
        findings.extend(way(client, hosts, &looks).await?);
    }
    Ok(findings)
}

/// Returns the job that has a host and has not ended; it may not have begun.
fn owner<'j>(look: &HostLook, jobs: &'j Jobs) -> Option<&'j Job> {
    Job::on(look, jobs).filter(|job| !job.phase().0.is_terminal())
}

fn is_free(look: Option<&std::result::Result<HostLook, NoAnswer>>, jobs: &Jobs) -> bool {
    matches!(look, Some(Ok(look)) if owner(look, jobs).is_none())
}

/// Checks that the hosts have the programs that the job needs, and that its container engine works.
async fn programs(client: &Client, draft: &PreparedJob, hosts: &[&str]) -> Result<Vec<Finding>> {
    if draft.programs.is_empty() {
        return Ok(Vec::new());
    }
    let words = quote::words(&draft.programs)?;
    let setup: String = draft.own.setup.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
    let engines: Vec<&str> =
        ENGINES.into_iter().filter(|engine| draft.programs.iter().any(|program| program == engine)).collect();
    let program = format!(
        "{setup}for p in {words}; do command -v \"$p\" > /dev/null || printf 'missing %s\\n' \"$p\"; done\n{}:\n",
        engine::programs(&engines)
    );
    let programs: Vec<_> = hosts.iter().map(|host| ((*host).to_owned(), program.clone())).collect();
    let mut findings = Vec::new();
    for (host, answer) in client.each(programs, Silent::Ask).await {
        let text = answer.map(|answer| answer.text()).unwrap_or_default();
        for (key, value) in text.lines().filter_map(|line| line.split_once(' ')).take(16) {
            let value = clean(value);
            match (key, value.split_once(' ')) {
                ("missing", _) => findings.push(
                    Finding::error(
                        "HOSTS-PROGRAM",
                        format!("{host} has no `{value}` in the PATH of a non-login shell"),
                    )
                    .fix(format!(
                        "install `{value}` there, or add its folder to the PATH with `setup` in the target"
                    )),
                ),
                ("engine", Some((engine, said))) => {
                    let (text, fix) = engine::text(&host, engine, said);
                    findings.push(Finding::error(engine::CODE, text).fix(fix));
                }
                _ => {}
            }
        }
    }
    Ok(findings)
}

/// Checks that the first host may log in to the others, as `mpirun` will.
async fn way(client: &Client, hosts: &[&str], looks: &Looks) -> Result<Vec<Finding>> {
    let Some((first, others)) = hosts.split_first() else { return Ok(Vec::new()) };
    let mut program = String::from("known=$(mktemp) || exit 1\ntrap 'rm -f \"$known\"' EXIT\n");
    let mut asked = String::new();
    for host in others {
        let Some(Ok(look)) = looks.get(*host) else { continue };
        program.push_str(&quote::feed("cat >> \"$known\"", &look.known_hosts(&look.address, look.ssh_port))?);
        let (address, user, name) =
            (quote::word(&look.address)?, quote::word(&look.user)?, quote::word(host)?);
        asked.push_str(&format!(
            "{{ said=$(ssh -n -x -a -o BatchMode=yes -o ConnectTimeout=5 -o LogLevel=ERROR -o \"UserKnownHostsFile=$known ~/.ssh/known_hosts\" \
             -p {} -l {user} {address} true 2>&1) || printf '%s %s\\n' {name} \"$(printf '%s\\n' \"$said\" | grep . | tail -n 1)\"; }} &\n",
            look.ssh_port
        ));
    }
    if asked.is_empty() {
        return Ok(Vec::new());
    }
    // A host that does not answer any more is found by the submission.
    let Ok(answer) = client.read(first, &format!("{program}{asked}wait\n")).await else {
        return Ok(Vec::new());
    };
    let text = answer.text();
    let refused: Vec<(&str, String)> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(host, said)| (host, clean(said)))
        .collect();
    let Some((host, said)) = refused.first() else { return Ok(Vec::new()) };
    let more = match refused.len() {
        1 => String::new(),
        n => format!(", nor to {} more", n - 1),
    };
    let text = format!("mpirun on {first} could not log in to {}{more}: {said}", clean(host));
    let finding = Finding::error("HOSTS-SSH-KEYS", text);
    Ok(vec![finding.fix("set `ssh-keys = \"job\"` in `[backend.hosts]`: a key is made for the job")])
}
