//! Logs over the Kubernetes API, with a kubeconfig of the user, through the same reader as the Kubeflow
//! backend's.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};

use futures_util::StreamExt;
use serde_json::Value;
use tokio::sync::watch::{Sender, channel};
use weftrun_core::ErrorKind;
use weftrun_core::Result;

use super::Reader;
use crate::kubernetes::Pod;
use crate::kubernetes::logs::{LogJob, QUIET, RankPosition, logs};
use crate::runai::resolve::text;
use crate::runai::status::{self, Roles};
use crate::runai::watch;

/// Labels with the workload's name: the vendor's own agent reads the first, the operators write the second.
const LABELS: [&str; 2] = ["workloadName", "training.kubeflow.org/job-name"];

/// Reads the logs of the workload's pods. Those of an ended workload are read once, as there is nothing to
/// follow.
pub async fn read(reader: &Reader, is_over: bool, roles: Roles) -> Result<()> {
    let Reader { shared, handle, options, .. } = reader;
    let mut options = options.clone();
    options.follow &= !is_over;
    let names = Arc::new(RwLock::new(names(&watch::pods(shared, handle).await.unwrap_or_default())));
    let (over, ended) = channel(false);
    let (known, name) = (names.clone(), handle.name().to_owned());
    let wanted = std::mem::take(&mut options.roles);
    let job = LogJob {
        name: name.clone(),
        cluster: shared.cluster().await?,
        selector: String::new(),
        place: Arc::new(move |pod| {
            place(pod, &name, &known.read().unwrap_or_else(PoisonError::into_inner), &roles, &wanted)
        }),
        ended,
        expected: Vec::new(),
        options,
        quiet: QUIET,
    };
    let mut batches = logs(job);
    let forward = async {
        while let Some(batch) = batches.next().await {
            reader.give(batch?).await?;
        }
        Ok(())
    };
    tokio::select! {
        result = forward => result,
        never = look(reader, over, &names) => never,
    }
}

/// Signals when the workload is over, and updates the names of its pods. Ends only with an error.
async fn look(reader: &Reader, over: Sender<bool>, names: &RwLock<HashSet<String>>) -> Result<()> {
    let Reader { shared, handle, .. } = reader;
    loop {
        match shared.typed(handle).await {
            Ok(workload) => {
                let phase = status::phase(text(&workload, "actualPhase").unwrap_or_default());
                if let Ok(pods) = watch::pods(shared, handle).await {
                    names.write().unwrap_or_else(PoisonError::into_inner).extend(self::names(&pods));
                }
                over.send_if_modified(|over| {
                    std::mem::replace(over, phase.is_terminal()) != phase.is_terminal()
                });
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                over.send_replace(true);
            }
            Err(error) if error.is_retryable() => {}
            Err(error) => return Err(error),
        }
        tokio::time::sleep(watch::interval(shared)).await;
    }
}

fn names(pods: &[Value]) -> HashSet<String> {
    pods.iter().filter_map(|pod| text(pod, "name").map(str::to_owned)).collect()
}

/// Returns the place of a pod in the workload, if it belongs to it.
fn place(
    pod: &Pod,
    workload: &str,
    names: &HashSet<String>,
    roles: &Roles,
    wanted: &[String],
) -> Option<RankPosition> {
    let labelled = LABELS.iter().any(|label| pod.labels.get(*label).is_some_and(|name| name == workload));
    let ours = labelled || names.contains(&pod.name);
    (ours && roles.is_wanted(&pod.name, wanted)).then(|| {
        let (role, number) = roles.of_pod(&pod.name);
        RankPosition { role, replica: number.unwrap_or(0), ..RankPosition::default() }
    })
}
