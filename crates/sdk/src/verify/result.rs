//! The result of a verification.

use crate::report::{ProbeReport, TransportReport, VerifyReport, VerifyRun, VerifySearch};
use weftrun_core::fabric::Fabric;
use weftrun_core::job::JobHandle;
use weftrun_core::nccl::TransportMap;
use weftrun_core::{Finding, Severity};
use weftrun_diagnose::{Diagnosis, Sources};
use weftrun_verify::{Judgement, Logs, Probes, Run, Subject, Verdict, judge};

/// A judged benchmark.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Verified {
    /// The job; none for logs of a job that another program submitted.
    pub job: Option<JobHandle>,
    /// Instance type.
    pub instance: Option<String>,
    /// Number of nodes.
    pub nodes: Option<u32>,
    /// The tables with their judgements; one without rows if there is no table.
    pub runs: Vec<(Run, Judgement)>,
    /// Why the job failed.
    pub failed: Option<String>,
    /// The planned fabric.
    pub fabric: Fabric,
    /// The transports compared with the plan.
    pub transport: Diagnosis,
    /// The transports.
    pub map: TransportMap,
    /// What the nodes reported.
    pub probes: Probes,
    /// Why the figures are not judged, compared or kept: other programs used the GPUs.
    pub disturbed: Option<String>,
    /// What a comparison with earlier runs found.
    pub regressions: Vec<Finding>,
    /// The search for slow nodes.
    pub search: Option<VerifySearch>,
}

impl Verified {
    /// Judges the logs of a benchmark that is over.
    ///
    /// ```
    /// use weftrun::core::log::SourceId;
    /// use weftrun::core::nccl::TransportMap;
    /// use weftrun::verify::{Collective, Logs, Verdict};
    /// use weftrun::verify::{Subject, Verified};
    ///
    /// let mut logs = Logs::default();
    /// logs.add(&SourceId::new("log"), b"2147483648 536870912 float sum -1 9000.0 238.6 20.3 0\n");
    /// let subject = Subject {
    ///     instance: Some("p4d.24xlarge".into()),
    ///     nodes: Some(2),
    ///     collective: Some(Collective::AllReduce),
    ///     ..Subject::default()
    /// };
    /// let verified = Verified::of_logs(&logs, TransportMap::new(), &subject);
    /// assert_eq!(verified.verdict(), Verdict::Degraded);
    /// ```
    pub fn of_logs(logs: &Logs, map: TransportMap, subject: &Subject) -> Self {
        Self::judged(logs, map, subject, None)
    }

    pub(super) fn judged(logs: &Logs, map: TransportMap, subject: &Subject, failed: Option<String>) -> Self {
        let mut runs = logs.runs();
        let nodes = subject.nodes.or_else(|| runs.iter().find_map(|run| run.nodes));
        if runs.is_empty() {
            runs.push(Run::default());
        }
        let probes = logs.probes();
        let disturbed = probes.gpus_in_use().into_iter().next().filter(|_| !subject.force);
        let judge_one = |run: Run| {
            let mut judgement = judge(&run, subject, &probes);
            if let Some(in_use) = disturbed.as_ref().filter(|_| judgement.verdict != Verdict::Fail) {
                judgement.verdict = Verdict::NoReference;
                judgement.reason = format!("not judged without --force: {in_use} ({})", judgement.reason);
            }
            if let Some(why) = &failed {
                judgement.verdict = Verdict::Fail;
                why.clone_into(&mut judgement.reason);
            }
            (run, judgement)
        };
        Self {
            job: None,
            instance: subject.instance.clone(),
            nodes,
            runs: runs.into_iter().map(judge_one).collect(),
            failed,
            fabric: Fabric::Auto,
            transport: Sources::of_logs(&map).diagnose(),
            map,
            probes,
            disturbed,
            regressions: Vec::new(),
            search: None,
        }
    }

    /// Returns the worst verdict of all runs. A run whose fabric is not used as planned, or that is slower than earlier ones, is
    /// degraded, even if nothing comparable was published.
    pub fn verdict(&self) -> Verdict {
        let slower = self.regressions.iter().any(|finding| finding.severity >= Severity::Warning);
        let degraded = (slower || self.unmet().is_some()).then_some(Verdict::Degraded);
        self.runs
            .iter()
            .map(|(_, judgement)| judgement.verdict)
            .chain(degraded)
            .max()
            .unwrap_or(Verdict::Fail)
    }

    /// Returns how the transports differ from the plan; none if they do not.
    pub fn unmet(&self) -> Option<weftrun_core::Error> {
        self.transport.clone().into_result().err()
    }

    /// Returns the findings of a comparison with earlier runs, and on the nodes.
    pub fn findings(&self) -> Vec<Finding> {
        self.regressions.iter().cloned().chain(self.probes.findings()).collect()
    }

    /// Returns whether anything is known of the transports.
    pub fn has_transport(&self) -> bool {
        self.job.is_some() || !self.map.snapshot().ranks().is_empty()
    }

    /// Returns the report that `weftrun verify -o json` prints.
    pub fn report(&self) -> VerifyReport<'_> {
        let runs = self.runs.iter().map(|(run, judgement)| VerifyRun::new(run, judgement)).collect();
        let mut report = VerifyReport::new(self.verdict(), runs);
        report.job = self.job.as_ref().map(ToString::to_string);
        report.instance = self.instance.as_deref();
        report.nodes = self.nodes;
        report.findings = self.findings();
        report.search.clone_from(&self.search);
        report.transport =
            self.has_transport().then(|| TransportReport::of(self.transport.clone(), &self.map));
        report
    }

    /// Returns the report that `weftrun probe -o json` prints.
    pub fn probe_report(&self) -> ProbeReport {
        let mut report = ProbeReport::new(&self.probes);
        report.job = self.job.as_ref().map(ToString::to_string);
        report
    }
}
