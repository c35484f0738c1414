//! The logs of a job: those of its pods, until they and the job have ended.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use kube::api::DynamicObject;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use weftrun_core::log::{Cursor, LogBatch, LogOptions, Mark, SourceId};
use weftrun_core::{Error, ErrorKind, Result};

use super::client::{Client, Named, pod_of};
use super::kinds::Kind;
use super::status::Job;
use crate::kubernetes::logs::{LogJob, QUIET, logs as pod_logs};
use crate::kubernetes::{Change, Resource, Right, changes, credentials, is_not_found, rights};

/// How long a refusal for a missing right is retried.
const REFUSED: Duration = Duration::from_secs(3);

/// Returns the log batches of a job.
pub fn logs(
    client: Arc<Client>,
    named: impl Future<Output = Result<Named>> + Send + 'static,
    options: LogOptions,
) -> BoxStream<'static, Result<LogBatch>> {
    let opened = async move {
        let named = named.await?;
        let job = client.job(&named).await?;
        if options.follow {
            may_read(&named).await?;
        }
        let (sender, ended) = watch::channel(false);
        let kind = named.kind;
        let uid = job.uid().to_owned();
        let ended_before = job.phase(&[]).0.is_terminal();
        let places = if ended_before { job.expected_places() } else { Vec::new() };
        let expected = places.into_iter().map(|(role, number)| {
            let name = match kind {
                Kind::TrainJob => format!("{}-{role}-0-{number}", named.name),
                _ => format!("{}-{role}-{number}", named.name),
            };
            (role, number, name)
        });
        let expected = expected.collect();
        let refusals = refusals(&named);
        let job = LogJob {
            name: named.name.clone(),
            cluster: named.cluster.clone(),
            selector: kind.selector(&named.name),
            place: Arc::new(move |pod| pod_of(pod, &job).then(|| job.place(pod))),
            ended,
            expected,
            options,
            quiet: QUIET,
        };
        let follows = job.follows();
        let batches = pod_logs(job);
        if !follows {
            return Ok(batches);
        }
        // The job is watched only while its logs are read.
        let end =
            stream::once(until_ended(named, uid, sender)).filter_map(|error| async move { error.map(Err) });
        let beside = stream::select(end, refusals).map(Some);
        Ok(stream::select(batches.map(Some).chain(stream::once(async { None })), beside)
            .take_while(|batch| std::future::ready(batch.is_some()))
            .filter_map(std::future::ready)
            .boxed())
    };
    stream::once(opened).try_flatten().boxed()
}

/// Refuses to follow without the right to read logs: otherwise the missing right would be noticed only once
/// the first container has started.
async fn may_read(named: &Named) -> Result<()> {
    let right = Right { verb: "get", resource: Resource::PODS, subresource: "log" };
    let began = Instant::now();
    while rights(&named.cluster, &[right]).await.first() == Some(&Some(false)) {
        // An API server that has just started has not loaded Roles yet.
        if began.elapsed() > REFUSED {
            let message = "you may not read the logs of pods in this namespace";
            return Err(Error::new(ErrorKind::Credentials, message)
                .with("handle", &named.handle)
                .hint("ask your cluster administrator for a Role with the verb `get` on `pods/log`; `weftrun wait` waits for the job's end without its logs"));
        }
        sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

/// Returns a note where the credentials are refused while the logs are followed, and where they work again. The open streams of
/// the logs are not ended by that.
fn refusals(named: &Named) -> impl futures_util::Stream<Item = Result<LogBatch>> + Send + use<> {
    let source = Arc::new(SourceId::new(&named.name));
    credentials::<()>(&named.cluster).map(move |change| {
        let text = match change? {
            Change::Lost(reason) => {
                format!("connection lost: {reason}; it is tried again for 90 s, and the job keeps running")
            }
            _ => "connected again".to_owned(),
        };
        Ok(LogBatch::marked(Arc::clone(&source), Mark::Note { text }, Cursor::default()))
    })
}

/// Watches the job's object, and signals its end. Returns an error only if there is nothing to wait for.
async fn until_ended(named: Named, uid: String, ended: watch::Sender<bool>) -> Option<weftrun_core::Error> {
    let resource = named.kind.resource();
    let kind = named.kind;
    let read = move |object: DynamicObject| (object.metadata.uid.clone(), terminal(kind, &object));
    let mut objects = changes(&named.cluster, &resource, "", read);
    while let Some(change) = objects.next().await {
        let over = match change {
            Ok(Change::All(list)) => {
                let ours = list.iter().find(|(of, _)| of.as_ref() == Some(&uid));
                ours.is_none_or(|(_, terminal)| *terminal)
            }
            Ok(Change::Set((of, terminal))) => of.as_ref() == Some(&uid) && terminal,
            Ok(Change::Gone((of, _))) => of.as_ref() == Some(&uid),
            Ok(Change::Lost(_) | Change::Back) => false,
            Err(error) if is_not_found(&error) || error.kind() == ErrorKind::Unsupported => true,
            // Without the right to watch, only the pods show when the job is over.
            Err(_) => break,
        };
        if over {
            ended.send_replace(true);
            // The logs can now come to their end.
            std::future::pending::<()>().await;
        }
    }
    drop(ended);
    std::future::pending().await
}

fn terminal(kind: Kind, object: &DynamicObject) -> bool {
    let Ok(object) = serde_json::to_value(object) else { return false };
    Job { kind, object }.phase(&[]).0.is_terminal()
}
