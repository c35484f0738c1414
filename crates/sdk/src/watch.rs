//! Events of a job and of its transports in one stream.

use futures_util::stream::{self, BoxStream, StreamExt};
use weftrun_core::Result;
use weftrun_core::job::JobEvent;
use weftrun_core::log::{LogBatch, LogOptions};
use weftrun_core::nccl::{Event, TransportMap};
use weftrun_diagnose::{Diagnosis, Sources};

use crate::Job;

/// An item of [`Job::watch_all`].
#[derive(Clone, Debug)]
#[non_exhaustive]
#[allow(clippy::large_enum_variant, reason = "the large one is the last item of a stream")]
pub enum WatchEvent {
    /// The job changed.
    Job(JobEvent),
    /// The logs prove something new about the transports.
    Transport(Event),
    /// The last item: the transports of all logs, compared with the plan.
    Diagnosis(Diagnosis),
}

enum Input {
    Event(Result<JobEvent>),
    Logs(Result<LogBatch>),
}

impl Job {
    /// Returns its events together with those of its transports, which are read from its logs: what
    /// [`Job::watch`] and [`Job::logs`] return, joined. Ends with the diagnosis after the job and its logs have
    /// ended, or with the first error.
    ///
    /// ```no_run
    /// # async fn example(job: weftrun::Job) -> weftrun::Result<()> {
    /// use futures_util::TryStreamExt;
    /// use weftrun::WatchEvent;
    /// use weftrun::core::log::LogOptions;
    ///
    /// let mut events = job.watch_all(LogOptions::follow());
    /// while let Some(event) = events.try_next().await? {
    ///     match event {
    ///         WatchEvent::Job(event) => println!("{:?}", event.phase()),
    ///         WatchEvent::Transport(event) => println!("{event}"),
    ///         WatchEvent::Diagnosis(diagnosis) => drop(diagnosis.into_result()?),
    ///         _ => {}
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn watch_all(&self, options: LogOptions) -> BoxStream<'static, Result<WatchEvent>> {
        let inputs = stream::select(self.watch().map(Input::Event), self.logs(options).map(Input::Logs));
        let state = Some((self.clone(), inputs, TransportMap::new()));
        let events = stream::unfold(state, |state| async move {
            let (job, mut inputs, mut map) = state?;
            let events = match inputs.next().await {
                Some(Input::Event(Ok(event))) => vec![Ok(WatchEvent::Job(event))],
                Some(Input::Logs(Ok(batch))) => batch
                    .read_into(&mut map)
                    .into_iter()
                    .map(|event| Ok(WatchEvent::Transport(event)))
                    .collect(),
                Some(Input::Event(Err(error)) | Input::Logs(Err(error))) => {
                    return Some((vec![Err(error)], None));
                }
                None => {
                    map.end_all();
                    let detail = job.describe().await.ok();
                    let known = Sources::of_logs(&map).plan(job.plan()).job(detail.as_ref());
                    return Some((vec![Ok(WatchEvent::Diagnosis(known.diagnose()))], None));
                }
            };
            Some((events, Some((job, inputs, map))))
        });
        events.map(stream::iter).flatten().boxed()
    }
}
