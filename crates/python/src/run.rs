//! Runs futures for Python: without the interpreter's lock, interrupted by signals, with errors as exceptions.

use std::future::Future;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pyo3::prelude::*;
use serde::Serialize;
use tokio::runtime::{Builder, Runtime};
use weftrun::report::ErrorReport;
use weftrun::{Error, ErrorKind};

/// Time between two checks for signals.
const SIGNALS: Duration = Duration::from_millis(50);

/// Something of one process: threads and connections. A forked child has the memory, and none of the threads: to use it or to drop
/// it there would wait for them for ever, and would close what the parent uses. There it is an error, and left as it is.
pub struct Owned<T> {
    value: Option<T>,
    process: u32,
}

impl<T> Owned<T> {
    pub fn new(value: T) -> Self {
        Self { value: Some(value), process: process::id() }
    }

    /// Returns the value, also in a child: to read what needs no thread.
    pub fn read(&self) -> PyResult<&T> {
        // It is there until it is dropped.
        self.value.as_ref().ok_or_else(|| raised(Error::new(ErrorKind::Unexpected, "used after its end")))
    }

    /// Returns the value.
    pub fn get(&self) -> PyResult<&T> {
        if self.process == process::id() {
            return self.read();
        }
        Err(raised(
            Error::new(ErrorKind::Usage, "this was opened before the process was forked")
                .hint("open it again in the child, for example with `job.logs()`"),
        ))
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if self.process != process::id() {
            std::mem::forget(self.value.take());
        }
    }
}

/// A client, and the threads on which its futures run.
#[derive(Clone)]
pub struct Session(Arc<Owned<(weftrun::Client, Runtime)>>);

impl Session {
    /// Starts the threads.
    pub fn start(client: weftrun::Client) -> weftrun::Result<Self> {
        let runtime =
            Builder::new_multi_thread().worker_threads(2).thread_name("weftrun").enable_all().build();
        let runtime = runtime.map_err(|error| {
            Error::new(ErrorKind::Io, "the threads of weftrun cannot be started").with_source(error)
        })?;
        Ok(Self(Arc::new(Owned::new((client, runtime)))))
    }

    pub fn client(&self) -> PyResult<&weftrun::Client> {
        Ok(&self.0.get()?.0)
    }

    /// Runs a future to its end. Other Python threads continue meanwhile; an exception of a signal handler
    /// (`KeyboardInterrupt`) drops the future.
    pub fn run<T: Send>(
        &self,
        py: Python<'_>,
        future: impl Future<Output = weftrun::Result<T>> + Send,
    ) -> PyResult<T> {
        let (_, runtime) = self.0.get()?;
        py.detach(|| {
            runtime.block_on(async {
                let mut future = std::pin::pin!(future);
                loop {
                    tokio::select! {
                        done = &mut future => return done.map_err(raised),
                        () = tokio::time::sleep(SIGNALS) => check_signals()?,
                    }
                }
            })
        })
    }

    /// Submits a plan. After Ctrl-C nothing is sent if nothing was; else the answer of the cluster is awaited, so that
    /// the exception names the job.
    pub fn submit(&self, py: Python<'_>, plan: &weftrun::Plan) -> PyResult<weftrun::Job> {
        let (client, runtime) = self.0.get()?;
        let interrupted = AtomicBool::new(false);
        py.detach(|| {
            runtime.block_on(async {
                let sending = async {
                    plan.refuse_earlier().await?;
                    plan.submit_unless(|| interrupted.load(Ordering::Relaxed)).await
                };
                let mut sent = std::pin::pin!(sending);
                let job = loop {
                    tokio::select! {
                        done = &mut sent => break done,
                        () = tokio::time::sleep(SIGNALS) => {
                            if check_signals().is_err() && interrupted.swap(true, Ordering::Relaxed) {
                                // Whoever presses the keys twice does not want to wait.
                                return Err(interruption(plan, Outcome::Unknown));
                            }
                        }
                    }
                };
                if let Ok(job) = &job {
                    // Without it, the next submission of the same job is told of this one again.
                    drop(client.delivered(job.handle()));
                }
                // One that arrived together with the answer.
                if check_signals().is_ok() && !interrupted.load(Ordering::Relaxed) {
                    return job.map_err(raised);
                }
                Err(match job {
                    Ok(job) => interruption(plan, Outcome::Submitted(&job)),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {
                        interruption(plan, Outcome::Nothing)
                    }
                    Err(error) => raised(error),
                })
            })
        })
    }
}

/// Runs the signal handlers of Python.
fn check_signals() -> PyResult<()> {
    Python::attach(|py| py.check_signals())
}

/// What became of a submission that was interrupted.
enum Outcome<'a> {
    Nothing,
    Submitted(&'a weftrun::Job),
    Unknown,
}

/// Returns the exception of an interrupted submission.
fn interruption(plan: &weftrun::Plan, outcome: Outcome<'_>) -> PyErr {
    let planned = plan.planned();
    let (handle, may_exist) = match outcome {
        Outcome::Nothing => (None, false),
        Outcome::Submitted(job) => (Some(job.handle().to_string()), true),
        Outcome::Unknown => (None, true),
    };
    Python::attach(|py| {
        let submission = may_exist.then(|| planned.submission.to_string());
        let words = (handle, submission, planned.spec.name.as_str(), plan.target().name.as_str());
        let made = py
            .import("weftrun.errors")
            .and_then(|module| module.getattr("SubmissionInterrupted"))
            .and_then(|class| class.call1(words));
        made.map_or_else(|failed| failed, PyErr::from_value)
    })
}

/// Returns the exception for an error: `weftrun.errors` has one class for each kind.
pub fn raised(error: Error) -> PyErr {
    let report = ErrorReport::from(&error);
    Python::attach(|py| {
        let made = plain(py, &report)
            .and_then(|report| py.import("weftrun.errors")?.getattr("from_report")?.call1((report,)));
        match made {
            Ok(exception) => PyErr::from_value(exception),
            Err(failed) => failed,
        }
    })
}

/// Converts a report into plain Python data, as `-o json` prints it.
pub fn plain<'py>(py: Python<'py>, report: &impl Serialize) -> PyResult<Bound<'py, PyAny>> {
    // By way of JSON, so that both have the same shape to the letter.
    let value = serde_json::to_value(report).map_err(|error| {
        raised(Error::new(ErrorKind::Unexpected, "a report cannot be written").with_source(error))
    })?;
    Ok(pythonize::pythonize(py, &value)?)
}
