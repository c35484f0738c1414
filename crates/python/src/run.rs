//! Runs futures for Python: without the interpreter's lock, interrupted by signals, with errors as exceptions.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use serde::Serialize;
use tokio::runtime::{Builder, Runtime};
use weftrun::report::ErrorReport;
use weftrun::{Error, ErrorKind};

/// Time between two checks for signals.
const SIGNALS: Duration = Duration::from_millis(50);

/// The threads on which a client's futures run.
#[derive(Clone)]
pub struct Threads(Arc<Runtime>);

impl Threads {
    /// Starts the threads.
    pub fn start() -> weftrun::Result<Self> {
        let runtime =
            Builder::new_multi_thread().worker_threads(2).thread_name("weftrun").enable_all().build();
        let runtime = runtime.map_err(|error| {
            Error::new(ErrorKind::Io, "the threads of weftrun cannot be started").with_source(error)
        })?;
        Ok(Self(Arc::new(runtime)))
    }

    /// Runs a future to its end. Other Python threads continue meanwhile; an exception of a signal handler
    /// (`KeyboardInterrupt`) drops the future.
    pub fn run<T: Send>(
        &self,
        py: Python<'_>,
        future: impl Future<Output = weftrun::Result<T>> + Send,
    ) -> PyResult<T> {
        py.detach(|| {
            self.0.block_on(async {
                let mut future = std::pin::pin!(future);
                loop {
                    tokio::select! {
                        done = &mut future => return done.map_err(raised),
                        () = tokio::time::sleep(SIGNALS) => Python::attach(|py| py.check_signals())?,
                    }
                }
            })
        })
    }
}

impl Threads {
    /// Submits a plan. After Ctrl-C nothing is sent if nothing was; else the answer of the cluster is awaited, so that
    /// the exception names the job.
    pub fn submit(
        &self,
        py: Python<'_>,
        client: &weftrun::Client,
        plan: &weftrun::Plan,
    ) -> PyResult<weftrun::Job> {
        let interrupted = AtomicBool::new(false);
        py.detach(|| {
            self.0.block_on(async {
                let sending = async {
                    plan.refuse_earlier().await?;
                    plan.submit_unless(|| interrupted.load(Ordering::Relaxed)).await
                };
                let mut sent = std::pin::pin!(sending);
                let job = loop {
                    tokio::select! {
                        done = &mut sent => break done,
                        () = tokio::time::sleep(SIGNALS) => {
                            if let Err(signal) = Python::attach(|py| py.check_signals())
                                && interrupted.swap(true, Ordering::Relaxed)
                            {
                                return Err(signal);
                            }
                        }
                    }
                };
                if let Ok(job) = &job {
                    // Without it, the next submission of the same job is told of this one again.
                    drop(client.delivered(job.handle()));
                }
                match job {
                    Ok(job) if interrupted.load(Ordering::Relaxed) => {
                        Err(PyKeyboardInterrupt::new_err(format!("the job was submitted: {}", job.handle())))
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {
                        Err(PyKeyboardInterrupt::new_err("nothing was submitted"))
                    }
                    done => done.map_err(raised),
                }
            })
        })
    }
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
