//! Runs the benchmark of a job's nodes.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use weftrun::core::job::{JobEvent, JobHandle};
use weftrun::core::log::clean_text;
use weftrun::verify::{Bisection, Progress, Verification, Verified};
use weftrun::verify::{Logs, Run, Subject, judge};
use weftrun::{Client, Error, ErrorKind, Result};

use crate::model::verify::{Curve, VerifyView};
use crate::msg::Msg;

/// A running benchmark. Its jobs are cancelled when it is stopped.
pub(super) struct Running {
    stop: Option<oneshot::Sender<()>>,
    /// Why its jobs could not be cancelled, if they could not.
    task: JoinHandle<Option<String>>,
    shown: watch::Receiver<VerifyView>,
}

impl Running {
    /// Starts a benchmark with the nodes, image and fabric of a job.
    pub(super) fn start(client: Client, handle: JobHandle, outbox: mpsc::Sender<Msg>) -> Self {
        let (stop, stopped) = oneshot::channel();
        let (sender, mut shown) = watch::channel(VerifyView::default());
        let latest = shown.clone();
        tokio::spawn(async move {
            // The latest state is enough.
            while shown.changed().await.is_ok() {
                let view = Arc::new(shown.borrow_and_update().clone());
                if outbox.send(Msg::Verify(view)).await.is_err() {
                    break;
                }
            }
        });
        let task = tokio::spawn(async move {
            let stop = async {
                let _ = stopped.await;
            };
            let outcome = Box::pin(run(&client, &handle, stop, &sender)).await;
            sender.send_modify(|view| {
                view.ended = true;
                match &outcome {
                    Ok(verified) => judged(view, verified),
                    Err(error) => view.error = Some(clean_text(&error.to_string()).into_owned()),
                }
            });
            outcome.err().and_then(|error| uncancelled(&error))
        });
        Self { stop: Some(stop), task, shown: latest }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.task.is_finished()
    }

    /// Returns the handle of its latest job.
    pub(super) fn name(&self) -> String {
        let job = self.shown.borrow().job.clone();
        if job.is_empty() { "the benchmark".to_owned() } else { job }
    }

    /// Begins to cancel its jobs.
    pub(super) fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }

    /// Waits for its end, once; returns why its jobs could not be cancelled, if they could not.
    pub(super) async fn ended(&mut self) -> Option<String> {
        (&mut self.task).await.unwrap_or_else(|error| Some(format!("the benchmark failed: {error}")))
    }
}

/// Returns why jobs could not be cancelled, and what to do, if an error reports it.
fn uncancelled(error: &Error) -> Option<String> {
    let (key, why) = error.context().iter().find(|(key, _)| *key == "not cancelled")?;
    let hint = error.hints().last().map(|hint| format!(" ({hint})")).unwrap_or_default();
    Some(clean_text(&format!("{key}: {why}{hint}")).into_owned())
}

async fn run(
    client: &Client,
    handle: &JobHandle,
    stop: impl Future<Output = ()> + Send,
    shown: &watch::Sender<VerifyView>,
) -> Result<Verified> {
    let job = client.attach(handle).await?;
    let Some(spec) = job.spec() else {
        let message = "the job was not submitted from this machine, so its nodes and image are not known";
        return Err(Error::new(ErrorKind::NotFound, message).hint("`weftrun verify` takes a job file"));
    };
    let mut spec = spec.clone();
    spec.name = format!("verify-{:x}", weftrun::clock::now().as_millisecond());
    let target = client.target(handle.target())?;
    let pins = client.connect(&target).await?.pin(&mut spec.clone(), &[]).is_ok();
    let bisect = if pins { Bisection::Degraded } else { Bisection::Never };
    let mut logs = Logs::default();
    let mut subject = Subject::default();
    let verification = Verification::new(client, target, spec).bisect(bisect);
    let progress = |progress: Progress<'_>| {
        match progress {
            Progress::Planned { plan, .. } => subject = verification.subject(plan),
            Progress::Submitted(job) => {
                shown.send_modify(|view| view.job = clean_text(&job.handle().to_string()).into_owned());
            }
            Progress::Event(JobEvent::Status { job }) => shown.send_modify(|view| {
                view.phase = clean_text(&format!("{} {}", job.phase, job.reason)).into_owned();
            }),
            Progress::Logs(batch) => {
                logs.add(&batch.source, &batch.bytes);
                let probes = logs.probes();
                let curve = |run: &Run| {
                    let expected = judge(run, &subject, &probes);
                    Curve { verdict: None, ..Curve::of(run, &expected) }
                };
                let curves: Vec<Curve> = logs.runs().iter().map(curve).collect();
                shown.send_if_modified(|view| {
                    let new = view.curves != curves;
                    view.curves.clone_from(&curves);
                    new
                });
            }
            Progress::Judged(verified) => shown.send_modify(|view| judged(view, verified)),
            Progress::Group(group) => shown.send_modify(|view| {
                let mut group = group.clone();
                group.failed = group.failed.map(|why| clean_text(&why).into_owned());
                group.nodes.iter_mut().for_each(|node| *node = clean_text(node).into_owned());
                view.groups.push(group);
            }),
            _ => {}
        }
        Ok(())
    };
    verification.run_until(stop, progress).await
}

fn judged(view: &mut VerifyView, verified: &Verified) {
    view.curves = verified.runs.iter().map(|(run, judgement)| Curve::of(run, judgement)).collect();
    let findings = verified.findings();
    view.findings = findings.iter().map(|finding| clean_text(&finding.message).into_owned()).collect();
    view.search.clone_from(&verified.search);
    if let Some(search) = &mut view.search {
        search.slow_nodes.iter_mut().for_each(|node| *node = clean_text(node).into_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stopped_benchmark_is_awaited_and_reports_what_it_could_not_cancel() {
        let (stop, stopped) = oneshot::channel();
        let (_sender, shown) = watch::channel(VerifyView::default());
        let task = tokio::spawn(async move {
            let _ = stopped.await;
            tokio::task::yield_now().await;
            let error =
                Error::new(ErrorKind::Interrupted, "interrupted").with("not cancelled", "403 \u{1b}[2J");
            uncancelled(&error.hint("`weftrun cancel 'local/verify-1'` stops the job"))
        });
        let mut running = Running { stop: Some(stop), task, shown };
        running.stop();
        running.stop();
        assert!(!running.has_ended(), "the cluster has not answered");
        let why = running.ended().await.unwrap();
        assert!(why.starts_with("not cancelled: 403") && why.ends_with("stops the job)"), "{why}");
        assert!(!why.contains('\u{1b}'), "{why}");
        let cancelled = Error::new(ErrorKind::Interrupted, "interrupted").with("cancelled", "local/verify-1");
        assert_eq!(uncancelled(&cancelled), None);
    }
}
