//! The test cluster: where it is, and jobs on it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use serde_json::Value;
use weftrun_core::Result;
use weftrun_core::backend::{Backend, PlannedJob, Registry, TargetConfig};
use weftrun_core::job::{Action, JobEvent, JobFilter, JobHandle, JobPhase, JobSummary};
use weftrun_core::log::{LogBatch, LogOptions, Mark};
use weftrun_core::spec::{JobSpec, Launch, RestartPolicy, Role};

pub const IMAGE: &str = "busybox:1.36";

/// A running test cluster.
#[derive(Clone, Debug)]
pub struct Bed {
    pub state: PathBuf,
}

/// The cluster; none where there is none, and it is said.
pub fn bed() -> Option<Bed> {
    let Some(state) = std::env::var_os("WEFTRUN_TEST_KUBE_STATE") else {
        eprintln!(
            "skipped: no test cluster. Run test-cluster/kubernetes/up.sh and set WEFTRUN_TEST_KUBE_STATE to its state folder"
        );
        return None;
    };
    Some(Bed { state: state.into() })
}

impl Bed {
    pub fn kubeconfig(&self, who: &str) -> PathBuf {
        self.state.join(format!("{who}.kubeconfig"))
    }

    /// Runs kubectl as an administrator, in the researcher's namespace.
    pub fn kubectl(&self, args: &[&str]) -> String {
        let output = Command::new(self.state.join("kubectl"))
            .arg("--kubeconfig")
            .arg(self.kubeconfig("admin"))
            .args(["-n", "research"])
            .args(args)
            .output()
            .unwrap();
        assert!(output.status.success(), "kubectl {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn get(&self, args: &[&str]) -> Value {
        let mut all = vec!["get", "-o", "json"];
        all.extend(args);
        serde_json::from_str(&self.kubectl(&all)).unwrap()
    }

    /// Applies a manifest as an administrator.
    pub fn apply(&self, yaml: &str) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), yaml).unwrap();
        self.kubectl(&["apply", "-f", &file.path().display().to_string()]);
    }

    pub fn target(&self, kubeconfig: &Path) -> TargetConfig {
        TargetConfig::new("kubeflow", "kubeflow", self.state.join("weftrun"))
            .with("kubeconfig", kubeconfig.display().to_string())
    }

    /// A connection as the researcher.
    pub async fn connect(&self) -> Arc<dyn Backend> {
        self.connect_to(self.target(&self.kubeconfig("researcher"))).await.unwrap()
    }

    pub async fn connect_to(&self, target: TargetConfig) -> Result<Arc<dyn Backend>> {
        weftrun_backends::link();
        (Registry::linked().get("kubeflow")?.connect)(target).await
    }

    /// Submits a job as the researcher.
    pub async fn submit(&self, spec: JobSpec) -> Running {
        let backend = self.connect().await;
        let planned = plan(&*backend, spec).await;
        let rendered = backend.render(&planned).unwrap();
        let findings = backend.check(&rendered).await.unwrap();
        assert!(findings.is_empty(), "{findings:?}");
        let handle = backend.submit(&rendered).await.unwrap();
        Running { backend, handle }
    }
}

/// The job as the cluster's facts make it, without a fabric.
pub async fn plan(backend: &dyn Backend, spec: JobSpec) -> PlannedJob {
    let mut planned = weftrun_testkit::planned(spec);
    planned.facts = backend.discover(&weftrun_core::backend::Scope::default()).await.unwrap();
    planned
}

/// A name nobody else has.
pub fn name(what: &str) -> String {
    format!("{what}-{:05x}", fastrand::u32(..0xf_ffff))
}

/// A job that runs a shell script once on each node.
pub fn job(what: &str, nodes: u32, script: &str) -> JobSpec {
    JobSpec::builder(name(what))
        .image(IMAGE)
        .launch(Launch::PerNode)
        .role(Role::worker().nodes(nodes).command(["sh", "-c", script]))
        .build()
        .unwrap()
}

pub fn restarting(mut spec: JobSpec, max: u32) -> JobSpec {
    spec.restart = RestartPolicy::OnFailure { max };
    spec
}

pub fn of_kind(mut spec: JobSpec, settings: Value) -> JobSpec {
    spec.backend.insert("kubeflow".into(), settings);
    spec
}

/// A submitted job; it is deleted when it is dropped at the end of a test that passed.
pub struct Running {
    pub backend: Arc<dyn Backend>,
    pub handle: JobHandle,
}

/// What a log said.
#[derive(Debug, Default)]
pub struct Read {
    pub text: String,
    pub marks: Vec<(String, u32, Mark)>,
    pub batches: usize,
}

impl Read {
    pub fn add(&mut self, batch: &LogBatch) {
        self.batches += 1;
        self.text.push_str(&String::from_utf8_lossy(&batch.bytes));
        if let Some(mark) = &batch.mark {
            self.marks.push((batch.source.name.clone(), batch.source.attempt, mark.clone()));
        }
    }

    pub fn count(&self, line: &str) -> usize {
        self.text.lines().filter(|text| *text == line).count()
    }

    pub fn gaps(&self) -> Vec<&str> {
        self.marks
            .iter()
            .filter_map(|(_, _, mark)| match mark {
                Mark::Gap { reason } => Some(reason.as_str()),
                _ => None,
            })
            .collect()
    }
}

impl Running {
    /// Follows the logs to the end.
    pub async fn follow(&self) -> Read {
        self.read(LogOptions::follow()).await
    }

    pub async fn read(&self, options: LogOptions) -> Read {
        let mut read = Read::default();
        let mut logs = self.backend.logs(&self.handle, options);
        while let Some(batch) = logs.next().await {
            read.add(&batch.unwrap());
        }
        read
    }

    /// Watches to the end.
    pub async fn wait(&self) -> (JobSummary, Vec<JobEvent>) {
        let mut events = Vec::new();
        let mut last = None;
        let mut watch = self.backend.watch(JobFilter::one(&self.handle));
        while let Some(event) = watch.next().await {
            let event = event.unwrap();
            if let JobEvent::Status { job } = &event {
                last = Some(job.clone());
            }
            events.push(event);
        }
        (last.unwrap(), events)
    }

    /// Watches until something is so.
    pub async fn until(&self, what: &str, mut so: impl FnMut(&JobEvent) -> bool) -> JobEvent {
        let mut watch = self.backend.watch(JobFilter::one(&self.handle));
        let found = async {
            while let Some(event) = watch.next().await {
                let event = event.unwrap();
                if so(&event) {
                    return event;
                }
            }
            panic!("the watch ended without: {what}");
        };
        tokio::time::timeout(Duration::from_secs(60), found)
            .await
            .unwrap_or_else(|_| panic!("not within a minute: {what}"))
    }

    /// Waits until it is stuck for a reason, and gives the reason's code, text and fix.
    pub async fn stuck(&self) -> (String, String, String) {
        let event = self.until("stuck", |event| matches!(event, JobEvent::Stuck { .. })).await;
        let JobEvent::Stuck { finding, .. } = event else { unreachable!() };
        (finding.code, finding.message, finding.fix.map(|fix| fix.text).unwrap_or_default())
    }

    pub async fn phase(&self, phase: JobPhase) {
        self.until(phase.as_str(), |event| event.phase() == Some(phase)).await;
    }

    pub async fn delete(self) {
        self.backend.act(&self.handle, Action::Delete).await.unwrap();
    }
}
