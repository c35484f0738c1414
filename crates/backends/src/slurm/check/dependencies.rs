//! The jobs that a job waits for. Slurm takes a dependency on a job that it has forgotten as met, and starts the job at once.

use weftrun_core::job::JobPhase;
use weftrun_core::{Finding, Result};

use super::super::client::Client;
use super::super::ids::JobId;
use super::super::lookup;

/// Returns the jobs that a dependency names, each with its condition: `afterok:12:13_4+5,afterany:15?singleton`.
fn named(dependency: &str) -> Vec<(&str, JobId)> {
    let terms = dependency.split([',', '?']).filter_map(|term| term.split_once(':'));
    terms
        .flat_map(|(condition, ids)| {
            ids.split(':').filter_map(move |id| Some((condition, JobId::parse(id.split('+').next()?)?)))
        })
        .collect()
}

/// Returns what keeps a dependency from meaning what it says.
pub async fn findings(client: &Client, dependency: &str) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for (condition, id) in named(dependency) {
        let message = match lookup::look(client, &id).await? {
            None => format!(
                "there is no job {id}: neither slurmctld nor accounting knows it, and Slurm starts a job at once that depends on a job it has forgotten"
            ),
            Some(found) => {
                let phase = found.phase();
                let met = match condition {
                    "afterok" => phase == JobPhase::Succeeded,
                    "afternotok" => phase != JobPhase::Succeeded,
                    _ => true,
                };
                if met || !phase.is_terminal() {
                    continue;
                }
                format!("job {id} has ended ({phase}), so the condition `{condition}` cannot be met any more")
            }
        };
        let fix = "correct the id (`weftrun list --all` prints those of ended jobs too), or leave the dependency out";
        findings.push(Finding::error("SLURM-DEPENDENCY", message).at("dependency").fix(fix));
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_of_a_dependency_is_read() {
        let read: Vec<String> = named("afterok:12:13_4+5,afterany:15?singleton,after:x")
            .into_iter()
            .map(|(condition, id)| format!("{condition} {id}"))
            .collect();
        assert_eq!(read, ["afterok 12", "afterok 13_4", "afterany 15"]);
    }
}
