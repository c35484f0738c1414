//! A missing tokio runtime is an error, where tokio itself would panic.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use tokio::runtime::Handle;
use weftrun_core::backend::{
    Backend, Capability, ClusterFacts, ExecRequest, ExecSink, PlannedJob, PortConnection, Rendered, Scope,
};
use weftrun_core::job::{Action, JobDetail, JobEvent, JobFilter, JobHandle, JobSummary, SubmissionId};
use weftrun_core::log::{LogBatch, LogOptions};
use weftrun_core::spec::JobSpec;
use weftrun_core::{Error, ErrorKind, Finding, Result};

/// Refuses a caller that is not on a tokio runtime.
fn present() -> Result<()> {
    Handle::try_current().map(drop).map_err(|error| {
        Error::new(ErrorKind::Usage, "there is no tokio runtime here")
            .hint("call it from `#[tokio::main]`, or from a runtime built with `enable_all`")
            .with_source(error)
    })
}

/// Runs a future that needs a runtime; each poll without one is an error.
pub(crate) async fn on_runtime<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| match present() {
        Ok(()) => future.as_mut().poll(cx),
        Err(error) => Poll::Ready(Err(error)),
    })
    .await
}

/// Returns a stream that ends with an error when it is polled without a runtime. `open` is called on the
/// first poll, since some streams start a task when they are made.
fn stream_on_runtime<T: Send + 'static>(
    open: impl FnOnce() -> BoxStream<'static, Result<T>> + Send + 'static,
) -> BoxStream<'static, Result<T>> {
    let mut opened = Some(stream::once(async move { open() }).flatten().boxed());
    stream::poll_fn(move |cx| {
        let Some(stream) = &mut opened else { return Poll::Ready(None) };
        if let Err(error) = present() {
            opened = None;
            return Poll::Ready(Some(Err(error)));
        }
        stream.poll_next_unpin(cx)
    })
    .boxed()
}

/// A backend whose operations are errors without a runtime. All backends of a client are wrapped in it.
#[derive(Clone, Debug)]
pub(crate) struct OnRuntime(pub Arc<dyn Backend>);

#[async_trait]
impl Backend for OnRuntime {
    fn capability(&self) -> Capability {
        self.0.capability()
    }

    async fn discover(&self, scope: &Scope) -> Result<ClusterFacts> {
        on_runtime(self.0.discover(scope)).await
    }

    fn render(&self, job: &PlannedJob) -> Result<Rendered> {
        self.0.render(job)
    }

    fn pin(&self, job: &mut JobSpec, nodes: &[String]) -> Result<()> {
        self.0.pin(job, nodes)
    }

    async fn check(&self, rendered: &Rendered) -> Result<Vec<Finding>> {
        on_runtime(self.0.check(rendered)).await
    }

    async fn submit(&self, rendered: &Rendered) -> Result<JobHandle> {
        on_runtime(self.0.submit(rendered)).await
    }

    async fn find(&self, id: &SubmissionId) -> Result<Option<JobHandle>> {
        on_runtime(self.0.find(id)).await
    }

    fn arrives_within(&self) -> Duration {
        self.0.arrives_within()
    }

    async fn list(&self, filter: &JobFilter) -> Result<Vec<JobSummary>> {
        self.0.capability().check_filter(filter)?;
        on_runtime(self.0.list(filter)).await
    }

    async fn describe(&self, job: &JobHandle) -> Result<JobDetail> {
        on_runtime(self.0.describe(job)).await
    }

    async fn act(&self, job: &JobHandle, action: Action) -> Result<()> {
        on_runtime(self.0.act(job, action)).await
    }

    fn watch(&self, filter: JobFilter) -> BoxStream<'static, Result<JobEvent>> {
        if let Err(error) = self.0.capability().check_filter(&filter) {
            return stream::once(async { Err(error) }).boxed();
        }
        let backend = Arc::clone(&self.0);
        stream_on_runtime(move || backend.watch(filter))
    }

    fn logs(&self, job: &JobHandle, options: LogOptions) -> BoxStream<'static, Result<LogBatch>> {
        let (backend, job) = (Arc::clone(&self.0), job.clone());
        stream_on_runtime(move || backend.logs(&job, options))
    }

    fn take_notes(&self) -> Vec<Finding> {
        self.0.take_notes()
    }

    async fn exec(&self, job: &JobHandle, request: &ExecRequest, sink: &mut ExecSink<'_>) -> Result<i32> {
        on_runtime(self.0.exec(job, request, sink)).await
    }

    async fn attach(&self, job: &JobHandle, request: &ExecRequest) -> Result<i32> {
        on_runtime(self.0.attach(job, request)).await
    }

    async fn open_port(
        &self,
        job: &JobHandle,
        rank: Option<u32>,
        port: u16,
    ) -> Result<Box<dyn PortConnection>> {
        on_runtime(self.0.open_port(job, rank, port)).await
    }
}

#[cfg(test)]
mod tests {
    /// A method with a default that is not forwarded would be the default's for every backend of a client.
    #[test]
    fn every_operation_is_forwarded() {
        let names = |text: &str| -> Vec<String> {
            let name = |line: &str| {
                let rest = line.strip_prefix("    async fn ").or_else(|| line.strip_prefix("    fn "))?;
                rest.split('(').next().map(str::to_owned)
            };
            text.lines().filter_map(name).collect()
        };
        let declared = include_str!("../../core/src/backend/mod.rs");
        let own = include_str!("runtime.rs").split("impl Backend for OnRuntime").nth(1).unwrap();
        let own = own.split("#[cfg(test)]").next().unwrap();
        assert!(names(declared).len() > 10, "the trait was not found");
        assert_eq!(names(own), names(declared));
    }
}
