//! The benchmark of a job's nodes: its figures as they come, and the search for slow nodes.

use std::sync::Arc;

use weftrun::core::job::JobHandle;
use weftrun::core::log::clean_text;
use weftrun::report::{VerifyGroup, VerifySearch};
use weftrun::verify::{Collective, Judgement, Run, Verdict};

/// The bus bandwidth of one collective by size.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// The collective.
    pub name: String,
    /// Logarithm of the size, GB/s.
    pub points: Vec<(f64, f64)>,
    /// What it is compared with: the word for it and the lowest value, GB/s.
    pub expected: Option<(&'static str, f64)>,
    /// The verdict with its reason, once the job has ended.
    pub verdict: Option<(Verdict, String)>,
}

impl Curve {
    pub fn of(run: &Run, judgement: &Judgement) -> Self {
        let point = |size: u64, busbw: f64| ((size.max(1) as f64).log2(), busbw);
        let name = run.collective.map_or("collective not known", Collective::as_str);
        Self {
            name: name.to_owned(),
            points: run.rows.iter().filter_map(|row| Some(point(row.size, row.busbw()?))).collect(),
            expected: judgement.reference().map(|expected| (expected.basis.as_str(), expected.low)),
            verdict: Some((judgement.verdict, clean_text(&judgement.reason).into_owned())),
        }
    }
}

/// What a benchmark has shown so far. All texts are safe to draw.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VerifyView {
    /// The handle of its job.
    pub job: String,
    /// What the job does.
    pub phase: String,
    pub curves: Vec<Curve>,
    pub groups: Vec<VerifyGroup>,
    pub search: Option<VerifySearch>,
    pub findings: Vec<String>,
    /// Why it ended without a result.
    pub error: Option<String>,
    pub ended: bool,
}

/// The benchmark that was started last.
#[derive(Clone, Debug)]
pub struct Verifying {
    pub handle: JobHandle,
    pub view: Arc<VerifyView>,
}
