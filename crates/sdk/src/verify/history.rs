//! The runs that are kept of a target, one file each.

use std::fs;
use std::path::PathBuf;

use weftrun_core::backend::TargetConfig;
use weftrun_core::{Error, ErrorKind, Result};
use weftrun_verify::{KeptRun, Verdict, regressions};

use super::{Verification, Verified};
use crate::files;

/// The number of runs that are kept; the oldest go first.
const MOST: usize = 500;
/// Largest file of a run, bytes.
const LARGEST: u64 = 1 << 20;

/// The verified runs that are kept of a target, in its folder of the state.
///
/// ```
/// use weftrun::core::backend::TargetConfig;
/// use weftrun::core::log::SourceId;
/// use weftrun::core::nccl::TransportMap;
/// use weftrun::verify::Logs;
/// use weftrun::verify::{History, Subject, Verified};
///
/// # let state = tempfile::tempdir().unwrap();
/// let history = History::of(&TargetConfig::new("prod", "slurm", state.path()));
/// let mut logs = Logs::default();
/// logs.add(&SourceId::new("log"), b"2147483648 536870912 float sum -1 9000.0 238.6 78.3 0\n");
/// let mut verified = Verified::of_logs(&logs, TransportMap::new(), &Subject::default());
/// history.keep(&verified)?;
/// verified.compare(&history.runs()?);
/// assert!(verified.findings().is_empty(), "it is as fast as it was");
/// # Ok::<(), weftrun::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct History {
    folder: PathBuf,
}

impl History {
    /// Returns the kept runs of a target.
    pub fn of(target: &TargetConfig) -> Self {
        Self { folder: target.state_dir.join("verify") }
    }

    /// Reads the runs, the oldest first. Files that are no runs are left out.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the folder cannot be read.
    pub fn runs(&self) -> Result<Vec<KeptRun>> {
        let mut runs: Vec<KeptRun> = Vec::new();
        for file in self.files()? {
            let text = files::read_text(&file, LARGEST).ok().flatten();
            match text.and_then(|text| serde_json::from_str(&text).ok()) {
                Some(run) => runs.push(run),
                None => tracing::warn!("{} is no verified run", file.display()),
            }
        }
        runs.sort_by_key(|run| run.at);
        Ok(runs)
    }

    /// Keeps a run, and removes the oldest ones beyond 500.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for a run that failed, whose figures are none to compare with; [`ErrorKind::AlreadyExists`] for one with
    /// exactly the figures of another, which would count twice; [`ErrorKind::Io`].
    pub fn keep(&self, verified: &Verified) -> Result<()> {
        let run = verified.kept();
        if verified.verdict() == Verdict::Fail || run.figures.is_empty() {
            return Err(Error::new(ErrorKind::Usage, "the run is not kept: it failed, or has no figures"));
        }
        if self.runs()?.iter().any(|kept| (&kept.figures, &kept.hosts) == (&run.figures, &run.hosts)) {
            return Err(Error::new(
                ErrorKind::AlreadyExists,
                "a run with exactly these figures is kept already",
            ));
        }
        // By time in names of one length, so that the order of names is that of the runs.
        let bits = weftrun_backends::random::bits()?;
        let name = format!("{:016}-{bits:032x}.json", run.at.as_millisecond());
        let text = serde_json::to_vec(&run).map_err(|error| {
            Error::new(ErrorKind::Unexpected, "a run cannot be written").with_source(error)
        })?;
        files::write_private(&self.folder.join(name), &text)?;
        let all = self.files()?;
        for old in all.iter().take(all.len().saturating_sub(MOST)) {
            // Another program may have removed it.
            drop(fs::remove_file(old));
        }
        Ok(())
    }

    /// Returns the files of the runs, the oldest first.
    fn files(&self) -> Result<Vec<PathBuf>> {
        let mut files = files::json_files(&self.folder)?;
        files.sort();
        Ok(files)
    }
}

impl Verification {
    /// Compares the run with earlier ones (of [`History::runs`]); one that is slower is degraded.
    #[must_use]
    pub fn compare(mut self, earlier: Vec<KeptRun>) -> Self {
        self.earlier = Some(earlier);
        self
    }
}

impl Verified {
    /// Compares the run with earlier ones; one that is slower than they were, by more than they differ, is degraded.
    pub fn compare(&mut self, earlier: &[KeptRun]) {
        self.regressions = regressions(&self.kept(), earlier);
    }

    pub(super) fn kept(&self) -> KeptRun {
        let runs: Vec<_> = self.runs.iter().map(|(run, _)| run.clone()).collect();
        let mut kept = KeptRun::new(weftrun_backends::clock::now(), self.nodes, self.probes.hosts(), &runs);
        kept.job = self.job.as_ref().map(ToString::to_string);
        kept
    }
}
