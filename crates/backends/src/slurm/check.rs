//! Asking before submitting: Slurm's own test, and what Slurm would accept and never start.

use weftrun_core::backend::{ClusterFacts, Rendered, Scope};
use weftrun_core::{ErrorKind, Finding, Result};

use super::client::Client;
use super::{discover, error, quote};

/// Checks a rendered job.
pub async fn check(client: &Client, rendered: &Rendered) -> Result<Vec<Finding>> {
    let script = rendered.documents.first().map_or("", |document| document.text.as_str());
    let facts = discover::discover(client, &Scope::default()).await?;
    let mut findings = never(script, &facts);
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

/// What the options of the script ask that can never be had. Slurm takes such jobs where EnforcePartLimits is off, and
/// they wait for ever.
fn never(script: &str, facts: &ClusterFacts) -> Vec<Finding> {
    let option = |name: &str| {
        let start = format!("#SBATCH --{name}=");
        script.lines().take_while(|line| line.starts_with('#') || line.is_empty()).find_map(|line| {
            line.strip_prefix(start.as_str()).map(|value| value.trim_matches('"').to_owned())
        })
    };
    let wanted = option("partition");
    let queue =
        facts.queues.iter().find(|queue| wanted.as_ref().map_or(queue.default, |name| *name == queue.name));
    let Some(queue) = queue else { return Vec::new() };
    let mut findings = Vec::new();
    let mut error =
        |message: String, fix: &str| findings.push(Finding::error("SLURM-NEVER-STARTS", message).fix(fix));
    if !queue.up {
        error(format!("partition `{}` is down", queue.name), "use another partition");
    }
    let nodes = option("nodes").and_then(|nodes| nodes.parse::<u32>().ok());
    if let (Some(nodes), Some(most)) = (nodes, queue.max_nodes) {
        if nodes > most {
            error(
                format!(
                    "{nodes} nodes are asked, partition `{}` gives a job at most {most}: it would wait for ever",
                    queue.name
                ),
                "ask fewer nodes, or another partition",
            );
        }
    }
    let seconds = option("time").and_then(|time| discover::seconds(&time));
    if let (Some(seconds), Some(most)) = (seconds, queue.max_seconds) {
        if seconds > most {
            error(
                format!(
                    "{} h are asked, partition `{}` allows {} h: it would wait for ever",
                    seconds.div_ceil(3600),
                    queue.name,
                    most / 3600
                ),
                "set a shorter `time_limit`",
            );
        }
    }
    if let (Some(nodes), Some(feature)) =
        (nodes, option("constraint").filter(|text| !text.contains(['&', '|', '[', '*', '!'])))
    {
        let fitting = facts
            .nodes
            .iter()
            .filter(|group| group.queues.contains(&queue.name) && group.labels.contains_key(&feature));
        let count: u32 = fitting.map(|group| group.count).sum();
        if count == 0 {
            error(
                format!("partition `{}` has no nodes with `{feature}`", queue.name),
                "`weftrun doctor` lists what each partition has",
            );
        } else if nodes > count && queue.max_nodes.is_none_or(|most| nodes <= most) {
            error(
                format!(
                    "{nodes} nodes with `{feature}` are asked, partition `{}` has {count}: it would wait for ever",
                    queue.name
                ),
                "ask fewer nodes",
            );
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use weftrun_core::backend::Queue;

    use super::*;

    #[test]
    fn requests_that_would_wait_for_ever_are_errors() {
        let mut queue = Queue::default();
        queue.name = "gpu".to_owned();
        queue.default = true;
        queue.up = true;
        queue.max_nodes = Some(4);
        queue.max_seconds = Some(3600);
        let mut facts = ClusterFacts::default();
        facts.queues = vec![queue];
        let script = "#!/bin/bash\n#SBATCH --nodes=9\n#SBATCH --time=0-02:00:00\necho\n#SBATCH --nodes=1\n";
        let said: Vec<String> = never(script, &facts).into_iter().map(|finding| finding.message).collect();
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].starts_with("9 nodes are asked") && said[1].starts_with("2 h are asked"), "{said:?}");
        assert!(never("#!/bin/bash\n#SBATCH --nodes=4\n", &facts).is_empty());
    }
}
