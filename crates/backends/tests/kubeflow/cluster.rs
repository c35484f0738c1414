//! The test cluster: where it is, and jobs on it.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use serde_json::Value;
use weftrun_core::Result;
use weftrun_core::backend::{Backend, PlannedJob, Registry, TargetConfig};
use weftrun_core::job::{Action, JobEvent, JobFilter, JobHandle, JobPhase, JobSummary};
use weftrun_core::log::{LogBatch, LogOptions, Mark};
use weftrun_core::spec::{JobSpec, Launch, RestartPolicy, Role};
use weftrun_testkit::child;

pub const IMAGE: &str = "busybox:1.36";
/// How long anything may take on a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A running test cluster.
#[derive(Clone, Debug)]
pub struct TestCluster {
    pub state: PathBuf,
}

static SAID: Once = Once::new();

/// Returns the test cluster; none, with a message, if there is none.
pub fn cluster() -> Option<TestCluster> {
    let Some(state) = std::env::var_os("WEFTRUN_TEST_KUBE_STATE") else {
        // Once, and not captured: the output of a passing test would be hidden.
        SAID.call_once(|| {
            let said = "skipped: there is no Kubernetes to test on. test-cluster/kubernetes/ci.sh builds one and runs these tests on it";
            let _ = writeln!(std::io::stderr(), "{said}");
        });
        return None;
    };
    Some(TestCluster { state: state.into() })
}

impl TestCluster {
    pub fn kubeconfig(&self, who: &str) -> PathBuf {
        self.state.join(format!("{who}.kubeconfig"))
    }

    /// Runs kubectl as an administrator, in the researcher's namespace.
    pub fn kubectl(&self, args: &[&str]) -> String {
        let (done, said) = self.kubectl_says(args);
        assert!(done, "kubectl {args:?}: {said}");
        said
    }

    /// Returns whether kubectl succeeded, and its output.
    pub fn kubectl_says(&self, args: &[&str]) -> (bool, String) {
        let output = child::command(self.state.join("kubectl"))
            .arg("--kubeconfig")
            .arg(self.kubeconfig("admin"))
            .args(["-n", "research"])
            .args(args)
            .output()
            .unwrap();
        let said = if output.status.success() { output.stdout } else { output.stderr };
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    pub fn get(&self, args: &[&str]) -> Value {
        let mut all = vec!["get", "-o", "json"];
        all.extend(args);
        serde_json::from_str(&self.kubectl(&all)).unwrap()
    }

    /// Applies a manifest as an administrator, in the researcher's namespace unless it names another. Tests that run at
    /// once share some objects: the server creates or changes one in a single step, and kubectl alone does not.
    pub fn apply(&self, yaml: &str) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), yaml).unwrap();
        let mut command = child::command(self.state.join("kubectl"));
        command
            .arg("--kubeconfig")
            .arg(self.kubeconfig("admin"))
            .args(["apply", "--server-side", "--force-conflicts", "-f"])
            .arg(file.path());
        if !yaml.contains("namespace:") {
            command.args(["-n", "research"]);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "apply: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// A service account with these rules in the researcher's namespace; gives its kubeconfig.
    pub fn account(&self, name: &str, rules: &str) -> PathBuf {
        self.apply(&format!(
            "{{apiVersion: v1, kind: List, items: [\
             {{apiVersion: v1, kind: ServiceAccount, metadata: {{name: {name}}}}},\
             {{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {{name: {name}}}, rules: {rules}}},\
             {{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {{name: {name}}},\
              roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: {name}}},\
              subjects: [{{kind: ServiceAccount, name: {name}}}]}}]}}"
        ));
        let token = self.kubectl(&["create", "token", name]);
        self.with_token(name, token.trim())
    }

    /// Returns the researcher's kubeconfig with a token that is unknown to the cluster, or has expired.
    pub fn expired(&self) -> PathBuf {
        self.with_token("expired", "expired")
    }

    /// The researcher's kubeconfig with this token; gives its file.
    fn with_token(&self, name: &str, token: &str) -> PathBuf {
        let text = std::fs::read_to_string(self.kubeconfig("researcher")).unwrap();
        let start = text.find("users:").unwrap();
        let end = start + text[start..].find('\n').unwrap();
        let user = format!("users: [{{name: researcher, user: {{token: {token}}}}}]");
        let file = self.kubeconfig(name);
        std::fs::write(&file, format!("{}{user}{}", &text[..start], &text[end..])).unwrap();
        file
    }

    /// Kills a process of the cluster as if its machine had lost power, and gives what it was started with.
    pub fn kill(&self, process: &str) -> Vec<String> {
        let pid = std::fs::read_to_string(self.state.join("pids").join(process)).unwrap().trim().to_owned();
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
        let words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
        let words = words.map(|word| String::from_utf8(word.to_vec()).unwrap()).collect();
        assert!(child::command("kill").args(["-9", &pid]).status().unwrap().success());
        words
    }

    /// Starts it again as it was. It outlives the test; `down.sh` ends it by its recorded id.
    pub fn start(&self, process: &str, words: Vec<String>) {
        let log = self.state.join("log").join(format!("{process}.log"));
        let log = std::fs::File::options().append(true).create(true).open(log).unwrap();
        let mut command = child::command("setsid");
        command.args(words).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let child = command.spawn().unwrap();
        std::fs::write(self.state.join("pids").join(process), format!("{}\n", child.id())).unwrap();
        // A killed child must be reaped.
        std::thread::spawn(move || drop({ child }.wait()));
    }

    /// Kills the API server and, a little later, starts it again.
    pub fn restart_api_server(&self) {
        let words = self.kill("kube-apiserver");
        std::thread::sleep(Duration::from_secs(2));
        self.start("kube-apiserver", words);
        poll("the API server", || self.kubectl_says(&["get", "--raw", "/readyz"]).0.then_some(()));
    }

    /// Starts a killed node again, with its devices.
    pub fn restart_node(&self, node: &str, words: Vec<String>) {
        self.start(node, words);
        let ready = || {
            let object = self.get(&["node", node]);
            let conditions = object["status"]["conditions"].as_array().unwrap().clone();
            conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True").then_some(())
        };
        poll("the node", ready);
        let devices = r#"{"nvidia.com/gpu":"8","vpc.amazonaws.com/efa":"32","rdma/rdma":"64"}"#;
        let patch = format!(r#"{{"status":{{"capacity":{devices},"allocatable":{devices}}}}}"#);
        self.kubectl(&["patch", "node", node, "--subresource=status", "--type=merge", "-p", &patch]);
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

/// Returns a unique name.
pub fn name(what: &str) -> String {
    format!("{what}-{:05x}", fastrand::u32(..0xf_ffff))
}

/// Asks until there is an answer; two minutes at most.
pub fn poll<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(began.elapsed() < PATIENCE, "not within two minutes: {what}");
        std::thread::sleep(Duration::from_millis(200));
    }
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

/// The contents of a log.
#[derive(Debug, Default)]
pub struct Read {
    pub text: String,
    pub marks: Vec<(String, u32, Mark)>,
    pub batches: usize,
    /// Containers that it is of, by pod uid.
    pub sources: BTreeSet<String>,
}

impl Read {
    pub fn add(&mut self, batch: &LogBatch) {
        self.batches += 1;
        self.sources.insert(batch.source.uid.clone());
        self.text.push_str(&String::from_utf8_lossy(&batch.bytes));
        if let Some(mark) = &batch.mark {
            self.marks.push((batch.source.name.clone(), batch.source.attempt, mark.clone()));
        }
    }

    /// How often a line came; mpirun puts the rank before it.
    pub fn count(&self, line: &str) -> usize {
        self.text.lines().filter(|text| text.rsplit("<stdout>:").next() == Some(line)).count()
    }

    /// The gaps of attempts below a number. The operator deletes the pod of the attempt that reaches a job's limit, wherever it is
    /// by then, and its last lines with it.
    pub fn gaps_below(&self, attempt: u32) -> Vec<&Mark> {
        let gap = |mark: &Mark| matches!(mark, Mark::Gap { .. });
        self.marks
            .iter()
            .filter(|(_, at, mark)| *at < attempt && gap(mark))
            .map(|(_, _, mark)| mark)
            .collect()
    }

    pub fn notes(&self) -> Vec<&str> {
        self.marks
            .iter()
            .filter_map(|(_, _, mark)| match mark {
                Mark::Note { text } => Some(text.as_str()),
                _ => None,
            })
            .collect()
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
        let reading = async {
            while let Some(batch) = logs.next().await {
                read.add(&batch.unwrap());
            }
        };
        assert!(tokio::time::timeout(2 * PATIENCE, reading).await.is_ok(), "the logs do not end");
        read
    }

    /// Watches to the end.
    pub async fn wait(&self) -> (JobSummary, Vec<JobEvent>) {
        self.wait_then(JobPhase::Succeeded, || {}).await
    }

    /// The same; acts once when the job reaches a phase.
    pub async fn wait_then(&self, phase: JobPhase, act: impl FnOnce()) -> (JobSummary, Vec<JobEvent>) {
        let mut act = Some(act);
        let mut events = Vec::new();
        let mut last = None;
        let mut watch = self.backend.watch(JobFilter::one(&self.handle));
        let watching = async {
            while let Some(event) = watch.next().await {
                let event = event.unwrap();
                if event.phase() == Some(phase)
                    && let Some(act) = act.take()
                {
                    act();
                }
                if let JobEvent::Status { job } = &event {
                    last = Some(job.clone());
                }
                events.push(event);
            }
        };
        assert!(tokio::time::timeout(2 * PATIENCE, watching).await.is_ok(), "the watch does not end");
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
        tokio::time::timeout(PATIENCE, found)
            .await
            .unwrap_or_else(|_| panic!("not within two minutes: {what}"))
    }

    /// Waits until it is stuck for a reason, and gives the reason's code, text and fix.
    pub async fn stuck(&self) -> (String, String, String) {
        let event = self.until("stuck", |event| matches!(event, JobEvent::Stuck { .. })).await;
        let JobEvent::Stuck { finding, .. } = event else { unreachable!() };
        (finding.code, finding.message, finding.fix.map(|fix| fix.text).unwrap_or_default())
    }

    /// Waits until it is stuck for one reason, whatever other reasons there are before.
    pub async fn stuck_by(&self, code: &str) -> (String, String, String) {
        let is_it =
            |event: &JobEvent| matches!(event, JobEvent::Stuck { finding, .. } if finding.code == code);
        let JobEvent::Stuck { finding, .. } = self.until(code, is_it).await else { unreachable!() };
        (finding.code, finding.message, finding.fix.map(|fix| fix.text).unwrap_or_default())
    }

    pub async fn phase(&self, phase: JobPhase) {
        self.until(phase.as_str(), |event| event.phase() == Some(phase)).await;
    }

    pub async fn delete(self) {
        self.backend.act(&self.handle, Action::Delete).await.unwrap();
    }
}
