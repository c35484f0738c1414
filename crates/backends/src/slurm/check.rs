//! Asking before submitting: Slurm's own test, and what Slurm would accept and never start.

use weftrun_core::backend::{Rendered, Scope};
use weftrun_core::{ErrorKind, Finding, Result};

use super::client::Client;
use super::{discover, error, never, quote};

/// Checks a rendered job.
pub async fn check(client: &Client, rendered: &Rendered) -> Result<Vec<Finding>> {
    let script = rendered.documents.first().map_or("", |document| document.text.as_str());
    let facts = discover::discover(client, &Scope::default()).await?;
    let mut findings = never::findings(script, &facts);
    let (start, rest) = quote::here_document(script);
    let cluster = client.cluster()?;
    let answer = client
        .read(&format!("{}sbatch{cluster} --test-only {start}\n{rest}\n", client.enter_log_dir()?))
        .await?;
    if answer.code != 0 {
        let refused = error::of_command("sbatch", &answer.stderr, answer.code);
        if matches!(refused.kind(), ErrorKind::Unreachable | ErrorKind::InvalidConfig) {
            return Err(refused);
        }
        let finding =
            Finding::error("SLURM-REFUSED", format!("Slurm would refuse the job: {}", refused.message()));
        findings.push(
            refused.hints().first().map_or_else(|| finding.clone(), |hint| finding.clone().fix(hint.clone())),
        );
    }
    Ok(findings)
}
