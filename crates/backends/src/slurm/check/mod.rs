//! Checks before a submission: Slurm's own test, and jobs that Slurm would accept and never start.

mod dependencies;
mod limits;

use weftrun_core::backend::{Rendered, Scope};
use weftrun_core::{ErrorKind, Finding, Result};

use super::client::Client;
use super::render::Script;
use super::{discover, error, quote};
use crate::submit_once;

/// What `sbatch --test-only` prints for a job while no node is up. A job that can never run is refused by
/// `sbatch` itself.
const NOT_NOW: [&str; 2] =
    ["Requested node configuration is not available", "Requested partition configuration not available"];

/// Checks a rendered job.
pub async fn check(client: &Client, rendered: &Rendered) -> Result<Vec<Finding>> {
    let script = rendered.documents.first().map_or("", |document| document.text.as_str());
    let prepared: &Script = submit_once::prepared(rendered)?;
    let mut findings = limits::findings(prepared, &discover::discover(client, &Scope::default()).await?);
    if findings.iter().any(Finding::is_error) {
        // A job is refused only because of fresh facts.
        let mut anew = Scope::default();
        anew.fresh = true;
        findings = limits::findings(prepared, &discover::discover(client, &anew).await?);
    }
    if let Some(dependency) = prepared.value("dependency") {
        findings.extend(dependencies::findings(client, dependency).await?);
    }
    if client.access.is_rest() {
        // slurmrestd has no `--test-only`.
        return Ok(findings);
    }
    let cluster = client.cluster()?;
    let answer = client
        .transport
        .read(&format!(
            "{}{}{}",
            client.enter_log_dir()?,
            missing_folder(prepared)?,
            quote::feed(&format!("sbatch{cluster} --test-only"), script)?
        ))
        .await?;
    if answer.code == NO_WORKDIR {
        let folder = prepared.workdir.as_deref().unwrap_or_default();
        findings.push(
            Finding::error(
                "SLURM-NO-WORKDIR",
                format!("the working directory `{}` does not exist on the cluster", error::clean(folder)),
            )
            .at("workdir")
            .fix("make the folder there, or set `workdir` to one that every node has"),
        );
    } else if answer.code != 0 {
        let refused = error::of_command("sbatch", &answer.stderr, answer.code);
        if matches!(refused.kind(), ErrorKind::Unreachable | ErrorKind::InvalidConfig) {
            return Err(refused);
        }
        let said = refused.message();
        // With a node down, Slurm prints this for jobs that it accepts nevertheless and that wait until the
        // node is back.
        let finding = if findings.is_empty() && NOT_NOW.iter().any(|part| answer.stderr.contains(part)) {
            Finding::warning(
                "SLURM-NOT-NOW",
                format!("no nodes that are up now fit the job, and it may wait: {said}"),
            )
        } else {
            Finding::error("SLURM-REFUSED", format!("Slurm would refuse the job: {said}"))
        };
        findings
            .push(refused.hints().iter().take(1).fold(finding, |finding, hint| finding.fix(hint.clone())));
    }
    Ok(findings)
}

/// Exit code of the program if the working directory does not exist.
const NO_WORKDIR: i32 = 93;

/// Returns shell code that ends the program if the job's working directory does not exist.
fn missing_folder(script: &Script) -> Result<String> {
    let Some(folder) = &script.workdir else { return Ok(String::new()) };
    let folder = quote::word(folder)?;
    Ok(format!("[ -d {folder} ] && [ -x {folder} ] || exit {NO_WORKDIR}\n"))
}
