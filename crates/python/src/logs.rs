//! The lines of a job's logs, one at a time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use weftrun::core::log::{LogBatch, Mark, SourceId};
use weftrun::{Error, ErrorKind, Result};

use crate::run::{Owned, Session};

/// Longest line that is kept as a whole; the parts of a longer one are lines of their own.
const MAX_LINE: usize = 1 << 20;

/// A line, or a notice about the log.
struct Line {
    source: Arc<SourceId>,
    bytes: Vec<u8>,
    /// Seconds since 1970, where the cluster reports them.
    time: Option<f64>,
    is_notice: bool,
}

/// Joins the parts of lines.
#[derive(Default)]
struct Lines {
    ready: VecDeque<Line>,
    /// Beginnings of lines, by the uid and attempt of their source.
    unfinished: BTreeMap<(String, u32), (Arc<SourceId>, Vec<u8>)>,
}

impl Lines {
    fn add(&mut self, batch: &LogBatch) {
        if let Some(text) = batch.mark.as_ref().and_then(notice) {
            let line =
                Line { source: batch.source.clone(), bytes: text.into_bytes(), time: None, is_notice: true };
            self.ready.push_back(line);
        }
        let key = (batch.source.uid.clone(), batch.source.attempt);
        if batch.mark == Some(Mark::Truncated)
            && let Some((source, bytes)) = self.unfinished.remove(&key)
        {
            // What follows is the beginning of another file.
            self.ready.push_back(Line { source, bytes, time: None, is_notice: false });
        }
        let mut begun = self.unfinished.remove(&key).map(|(_, bytes)| bytes).unwrap_or_default();
        let mut start = 0;
        for line in &batch.lines {
            let mut bytes = std::mem::take(&mut begun);
            bytes.extend_from_slice(batch.bytes.get(start..line.end).unwrap_or_default());
            start = line.end;
            if bytes.ends_with(b"\n") {
                bytes.pop();
            }
            let time = line.time.map(|time| time.as_nanosecond() as f64 / 1e9);
            self.ready.push_back(Line { source: batch.source.clone(), bytes, time, is_notice: false });
        }
        begun.extend_from_slice(batch.bytes.get(start..).unwrap_or_default());
        let ended = matches!(batch.mark, Some(Mark::Ended { .. }));
        if !begun.is_empty() && (ended || begun.len() >= MAX_LINE) {
            let line = Line { source: batch.source.clone(), bytes: begun, time: None, is_notice: false };
            self.ready.push_back(line);
        } else if !begun.is_empty() {
            self.unfinished.insert(key, (batch.source.clone(), begun));
        }
    }

    /// Turns the lines without an end into lines.
    fn finish(&mut self) {
        for (source, bytes) in std::mem::take(&mut self.unfinished).into_values() {
            self.ready.push_back(Line { source, bytes, time: None, is_notice: false });
        }
    }
}

/// Returns the text of a mark that the reader must see.
fn notice(mark: &Mark) -> Option<String> {
    Some(match mark {
        Mark::Gap { reason } => format!("lines are missing: {reason}"),
        Mark::Note { text } => text.clone(),
        Mark::Resumed { lost: Some(0), repeated: 0 } | Mark::Ended { .. } => return None,
        Mark::Resumed { lost, repeated } => {
            let lost = lost.map_or_else(|| "an unknown number of".to_owned(), |lost| lost.to_string());
            format!("the connection was lost: {lost} lines may be missing, {repeated} may be repeated")
        }
        Mark::Truncated => "the log was truncated and begins again".to_owned(),
        other => format!("{other:?}"),
    })
}

/// The state of an iterator, taken out while it is used, so that nothing is locked while another thread may hold the interpreter. It
/// is put back when this is dropped.
pub struct Taken<'a, T> {
    place: &'a Mutex<Option<T>>,
    value: Option<T>,
}

impl<'a, T> Taken<'a, T> {
    pub fn of(place: &'a Mutex<Option<T>>) -> PyResult<Self> {
        let value = place.lock().unwrap_or_else(PoisonError::into_inner).take();
        if value.is_none() {
            return Err(PyRuntimeError::new_err("another thread reads this"));
        }
        Ok(Self { place, value })
    }

    pub fn value(&mut self) -> Result<&mut T> {
        self.value.as_mut().ok_or_else(|| Error::new(ErrorKind::Unexpected, "the state is missing"))
    }
}

impl<T> Drop for Taken<'_, T> {
    fn drop(&mut self) {
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = self.value.take();
    }
}

/// An iterator over the lines of a job's logs.
#[pyclass(module = "weftrun._native", frozen)]
pub struct Logs {
    session: Session,
    state: Owned<Mutex<Option<State>>>,
}

struct State {
    stream: BoxStream<'static, Result<LogBatch>>,
    lines: Lines,
    over: bool,
}

impl Logs {
    pub fn new(stream: BoxStream<'static, Result<LogBatch>>, session: Session) -> Self {
        let state = State { stream, lines: Lines::default(), over: false };
        Self { session, state: Owned::new(Mutex::new(Some(state))) }
    }
}

/// A line as `weftrun.LogLine` takes it: bytes, source, rank, role, attempt, seconds, whether it is a notice.
type LinePy<'py> = (Bound<'py, PyBytes>, String, Option<u32>, String, u32, Option<f64>, bool);

#[pymethods]
impl Logs {
    /// Returns the next line and whether the logs are over. Without a line within `seconds`, if they are given, there
    /// is none yet.
    #[pyo3(signature = (seconds = None))]
    fn next<'py>(&self, py: Python<'py>, seconds: Option<f64>) -> PyResult<(Option<LinePy<'py>>, bool)> {
        let mut state = Taken::of(self.state.get()?)?;
        let limit = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let read = self.session.run(py, async {
            let state = state.value()?;
            let fill = async {
                while state.lines.ready.is_empty() && !state.over {
                    match state.stream.next().await {
                        Some(batch) => state.lines.add(&batch?),
                        None => {
                            state.over = true;
                            state.lines.finish();
                        }
                    }
                }
                Ok(())
            };
            match limit {
                None => fill.await?,
                // Nothing is lost: the stream continues where it was.
                Some(limit) => tokio::time::timeout(limit, fill).await.unwrap_or(Ok(()))?,
            }
            Ok((state.lines.ready.pop_front(), state.over && state.lines.ready.is_empty()))
        });
        let (line, over) = read?;
        let line = line.map(|line| {
            let source = &line.source;
            let bytes = PyBytes::new(py, &line.bytes);
            let (name, role) = (source.name.clone(), source.role.clone());
            (bytes, name, source.rank, role, source.attempt, line.time, line.is_notice)
        });
        let over = over && line.is_none();
        Ok((line, over))
    }
}
