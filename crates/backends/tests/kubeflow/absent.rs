//! What the cluster itself lacks: a webhook or an operator that does not answer, a namespace or credentials that are gone.

use std::process::Stdio;

use serde_json::{Value, json};
use weftrun_core::backend::Scope;
use weftrun_core::job::{JobEvent, JobFilter, JobPhase};
use weftrun_core::log::{LogOptions, Mark};
use weftrun_core::spec::{Code, JobSpec, Launch, Role};
use weftrun_core::{ErrorKind, Finding};

use crate::cluster::{IMAGE, Running, TestCluster, cluster, job, name, of_kind, plan, poll};
use crate::shell::Shell;
use crate::webhook::serve;

/// A webhook of the cluster for the pods of one job; removed when dropped.
struct Webhook<'c> {
    cluster: &'c TestCluster,
    name: String,
}

impl<'c> Webhook<'c> {
    fn add(cluster: &'c TestCluster, job: &str, label: &str, client: &Value) -> Self {
        let name = format!("of-{job}");
        let webhook = json!({
            "name": "guard.weftrun.test", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
            "timeoutSeconds": 2, "clientConfig": client, "objectSelector": {"matchLabels": {label: job}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        });
        cluster.apply(
            &json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
                "metadata": {"name": name}, "webhooks": [webhook],
            })
            .to_string(),
        );
        // The API server loads it after a moment.
        std::thread::sleep(std::time::Duration::from_secs(3));
        Self { cluster, name }
    }
}

impl Drop for Webhook<'_> {
    fn drop(&mut self) {
        self.cluster.kubectl_says(&["delete", "validatingwebhookconfiguration", &self.name]);
    }
}

const JOB: &str = "training.kubeflow.org/job-name";
const JOBSET: &str = "jobset.sigs.k8s.io/jobset-name";

fn of_each_kind(what: &str) -> [(JobSpec, &'static str); 3] {
    let mut mpi = job(&format!("{what}-mpi"), 1, "true");
    mpi.launch = Launch::Mpi;
    let trainjob = of_kind(job(&format!("{what}-tj"), 1, "true"), json!({"kind": "trainjob"}));
    [(job(what, 1, "true"), JOB), (mpi, JOB), (trainjob, JOBSET)]
}

fn of_code(findings: &[Finding], code: &str) -> Finding {
    findings.iter().find(|finding| finding.code == code).unwrap_or_else(|| panic!("{findings:?}")).clone()
}

/// A webhook that does not answer keeps the operator from creating pods: it is named, and the job is said to be fine.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_does_not_answer_is_the_cause() {
    let Some(cluster) = cluster() else { return };
    for (spec, label) in of_each_kind("deaf") {
        let nowhere = json!({"url": "https://127.0.0.1:9/"});
        let _webhook = Webhook::add(&cluster, &spec.name, label, &nowhere);
        let running = cluster.submit(spec).await;
        let (_, message, fix) = running.stuck_by("K8S-WEBHOOK").await;
        assert!(message.contains("webhook guard.weftrun.test does not answer"), "{message}");
        assert!(fix.contains("your job is fine"), "{fix}");
        let detail = running.backend.describe(&running.handle).await.unwrap();
        of_code(&detail.findings, "K8S-WEBHOOK");
        running.delete().await;
    }
}

/// A webhook that refuses the pods is the cause, with its name and its words.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_refuses_is_the_cause() {
    let Some(cluster) = cluster() else { return };
    let (mut server, port, authority) = serve(&cluster);
    let client = json!({"url": format!("https://127.0.0.1:{port}/"), "caBundle": authority});
    for (mut spec, label) in of_each_kind("refused") {
        spec.annotations.insert("refuse".into(), "true".into());
        let _webhook = Webhook::add(&cluster, &spec.name, label, &client);
        let running = cluster.submit(spec).await;
        let (_, message, fix) = running.stuck_by("K8S-ADMISSION").await;
        assert!(message.contains("webhook guard.weftrun.test refuses"), "{message}");
        assert!(message.contains("this pod is not wanted here"), "{message}");
        assert!(fix.contains("administrator"), "{fix}");
        running.delete().await;
    }
    server.kill().unwrap();
    server.wait().unwrap();
}

/// A namespace that is deleted takes its jobs along: `why` and `describe` say so, and not that the job never was.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_namespace_is_the_cause() {
    let Some(cluster) = cluster() else { return };
    let space = name("space");
    cluster.kubectl(&["create", "namespace", &space]);
    let shell = Shell::of(cluster.clone(), "admin");
    let mut target = cluster.target(&cluster.kubeconfig("admin"));
    target.namespace = Some(space.clone());
    let backend = cluster.connect_to(target).await.unwrap();
    let spec = job("moved", 1, "trap '' TERM; while :; do sleep 1; done");
    let rendered = backend.render(&plan(&*backend, spec).await).unwrap();
    let handle = backend.submit(&rendered).await.unwrap();
    let running = Running { backend, handle };
    running.phase(JobPhase::Running).await;
    cluster.kubectl(&["delete", "namespace", &space, "--wait=false"]);
    for what in ["is being deleted", "does not exist"] {
        let finding = poll(what, || {
            let describe = running.backend.describe(&running.handle);
            let findings =
                match tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(describe)) {
                    Ok(detail) => detail.findings,
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
                        error.findings().to_vec()
                    }
                };
            findings.into_iter().find(|finding| finding.message.contains(what))
        });
        assert!(finding.code == "K8S-NAMESPACE-DELETED" && finding.message.contains(&space), "{finding:?}");
    }
    let why = shell.weftrun(&["why", &running.handle.to_string()]);
    assert!(
        why.stdout.contains("deleted: the whole job") && why.stdout.contains(&space),
        "{}{}",
        why.stdout,
        why.stderr
    );
}

/// Rights that are revoked while a job is followed: its open watches and logs go on as if nothing had happened.
#[tokio::test(flavor = "multi_thread")]
async fn revoked_credentials_are_told_while_following() {
    let Some(cluster) = cluster() else { return };
    let running = cluster.submit(job("revoked", 1, "echo begins; sleep 600")).await;
    running.phase(JobPhase::Running).await;
    let account = name("revoked");
    let kubeconfig =
        cluster.account(&account, "[{apiGroups: ['', kubeflow.org], resources: ['*'], verbs: ['*']}]");
    let backend = cluster.connect_to(cluster.target(&kubeconfig)).await.unwrap();
    let follower = Running { backend, handle: running.handle.clone() };
    let told = async {
        let mut runs = false;
        let lost = |event: &JobEvent| {
            if event.phase() == Some(JobPhase::Running) && !std::mem::replace(&mut runs, true) {
                cluster.kubectl(&["delete", "rolebinding", &account]);
            }
            matches!(event, JobEvent::Disconnected { lost: true, .. })
        };
        follower.until("the lost right", lost).await
    };
    let noted = async {
        use futures_util::StreamExt;
        let mut logs = follower.backend.logs(&follower.handle, LogOptions::follow());
        let is_told = |text: &str| text.contains("connection lost") && text.contains("forbidden");
        while let Some(batch) = logs.next().await {
            if batch.unwrap().mark.is_some_and(|mark| matches!(mark, Mark::Note { text } if is_told(&text))) {
                return true;
            }
        }
        false
    };
    let limit = std::time::Duration::from_secs(60);
    let (JobEvent::Disconnected { reason, .. }, noted) =
        tokio::time::timeout(limit, async { tokio::join!(told, noted) }).await.expect("it is not told")
    else {
        unreachable!()
    };
    assert!(noted && reason.contains("forbidden"), "{reason}");
    running.delete().await;
}

/// The operator's word is kept where its master ended well, and a rank that fails after it is an error and another exit code, also
/// for those who only wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_rank_that_fails_after_its_master_ended_well_is_an_error() {
    let Some(cluster) = cluster() else { return };
    // The master goes once the worker has begun: a name without a running pod does not resolve, and the worker waits for it.
    let text = "if [ $RANK = 0 ]; then exec nc -l -p 5005; fi\n\
                until echo begun | nc -w 5 \"$MASTER_ADDR\" 5005; do sleep 1; done\nsleep 6\n\
                echo 'Traceback (most recent call last):'\n\
                echo '  File \"/train.py\", line 3, in <module>'\necho 'RuntimeError: boom'\nexit 1\n";
    let code = Code::Script { name: "train.py".into(), text: text.into() };
    let spec = JobSpec::builder(name("late")).image(IMAGE).launch(Launch::Torchrun).code(code);
    let running =
        cluster.submit(spec.role(Role::worker().nodes(2).command(["train.py"])).build().unwrap()).await;
    let (end, _) = running.wait().await;
    assert_eq!((end.phase, end.exit_code), (JobPhase::Succeeded, Some(1)), "{end:?}");
    assert!(end.reason.starts_with("the operator reports success, but "), "{end:?}");
    let detail = running.backend.describe(&running.handle).await.unwrap();
    assert!(of_code(&detail.findings, "K8S-RANK-FAILED").is_error(), "{detail:?}");
    let waited = Shell::of(cluster.clone(), "researcher").weftrun(&["wait", &running.handle.to_string()]);
    assert_eq!(waited.code, 1, "{}", waited.stderr);
    let watched = Shell::of(cluster.clone(), "researcher").weftrun(&["watch", &running.handle.to_string()]);
    assert_eq!(watched.code, 1, "{}", watched.stderr);
    running.delete().await;
}

/// A rank of an MPIJob that is killed from inside: the operator deletes the workers after that, which is not the cause.
#[tokio::test(flavor = "multi_thread")]
async fn workers_that_are_deleted_after_a_rank_was_killed_are_not_the_cause() {
    let Some(cluster) = cluster() else { return };
    let code = Code::Script { name: "train.sh".into(), text: "kill -9 $$\n".into() };
    let spec = JobSpec::builder(name("killed")).image("example.test/mpi:1").launch(Launch::Mpi).code(code);
    let worker = Role::worker().nodes(2).ranks_per_node(1).command(["sh", "train.sh"]);
    let running = cluster.submit(spec.role(worker).build().unwrap()).await;
    let (end, events) = running.wait().await;
    assert_eq!(end.phase, JobPhase::Failed, "{end:?} {events:?}");
    let detail = running.backend.describe(&running.handle).await.unwrap();
    assert!(detail.findings.iter().all(|finding| finding.code != "K8S-DELETED"), "{:?}", detail.findings);
    running.delete().await;
}

/// What `render` prints is what the cluster has after `submit`, as kubectl compares them, and SIGTERM says what still runs.
#[test]
fn a_submitted_job_is_as_it_was_rendered_and_sigterm_says_that_it_runs() {
    let Some(cluster) = cluster() else { return };
    let shell = Shell::of(cluster, "researcher");
    let name = name("same");
    shell.write(
        "job.toml",
        &format!("name = \"{name}\"\nimage = \"{IMAGE}\"\nnodes = 2\ncommand = [\"sleep\", \"600\"]\n"),
    );
    let rendered = shell.weftrun(&["render", "-b", "kubeflow", "-n", "research", "-o", "yaml", "job.toml"]);
    assert_eq!(rendered.code, 0, "{}", rendered.stderr);
    shell.write("job.yaml", &rendered.stdout);
    let submitted = shell.weftrun(&["submit", "-b", "kubeflow", "-n", "research", "job.toml"]);
    assert_eq!(submitted.code, 0, "{}", submitted.stderr);
    let admin = Shell {
        kubeconfig: shell.cluster.kubeconfig("admin"),
        home: tempfile::tempdir().unwrap(),
        ..Shell::of(shell.cluster.clone(), "admin")
    };
    admin.write("job.yaml", &rendered.stdout);
    let diff = admin.kubectl(&["diff", "-f", "job.yaml"]);
    assert_eq!((diff.code, diff.stdout.as_str()), (0, ""), "{}", diff.stderr);
    let handle = submitted.stdout.trim();
    let mut follow = shell.command(&shell.binary, &["logs", "-f", handle]);
    let child = follow.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_secs(3));
    let pid = child.id().to_string();
    assert!(weftrun_testkit::child::command("kill").args(["-TERM", &pid]).status().unwrap().success());
    let stopped = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&stopped.stderr);
    assert_eq!(stopped.status.code(), Some(130), "{said}");
    assert!(said.contains("the job keeps running") && said.contains(handle), "{said}");
    shell.delete(handle);
}

/// The training operator is gone, and its webhook with it: a submission and `doctor` name both, and nothing is created.
#[tokio::test(flavor = "multi_thread")]
async fn alone_an_operator_that_is_gone_is_named() {
    let Some(cluster) = cluster() else { return };
    let waiting = cluster.connect().await;
    let rendered = waiting.render(&plan(&*waiting, job("orphan", 1, "true")).await).unwrap();
    let keeper = std::fs::read_to_string(cluster.state.join("pids/training-operator")).unwrap();
    let signal = |signal: &str, pid: &str| {
        assert!(
            weftrun_testkit::child::command("kill").args([signal, pid.trim()]).status().unwrap().success()
        );
    };
    // It would be started again at once.
    signal("-STOP", &keeper);
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", keeper.trim())).unwrap();
    children.split_whitespace().for_each(|child| signal("-KILL", child));
    poll("the operator's end", || {
        let gone = |child: &str| {
            !std::fs::read_to_string(format!("/proc/{child}/cmdline")).is_ok_and(|line| !line.is_empty())
        };
        children.split_whitespace().all(gone).then_some(())
    });
    let checked = waiting.check(&rendered).await;
    let submitted = waiting.submit(&rendered).await;
    let mut scope = Scope::default();
    scope.thorough = true;
    let facts = waiting.discover(&scope).await;
    let jobs = waiting.list(&JobFilter::all()).await;
    signal("-CONT", &keeper);
    for error in [checked.unwrap_err(), submitted.unwrap_err()] {
        let named = error.message();
        assert!(
            named.contains("pytorchjob.training-operator.kubeflow.org") && named.contains("does not answer"),
            "{named}"
        );
        assert!(error.findings()[0].fix.as_ref().unwrap().text.contains("your job is fine"), "{error:?}");
    }
    let notes = facts.unwrap().notes;
    assert!(of_code(&notes, "K8S-WEBHOOK").message.contains("service `training-operator`"), "{notes:?}");
    assert!(jobs.unwrap().iter().all(|job| job.submission.as_ref() != Some(&rendered.submission)));
    poll("the operator", || {
        let said = cluster
            .kubectl_says(&[
                "create",
                "--dry-run=server",
                "-f",
                concat!(
                    env!("CARGO_MANIFEST_DIR"),
                    "/../../test-cluster/kubernetes/examples/pytorch-ok.yaml"
                ),
            ])
            .1;
        (!said.contains("failed calling webhook")).then_some(())
    });
}

/// Two jobs hold each a part of the nodes that they need: both are named, with what prevents it.
#[tokio::test(flavor = "multi_thread")]
async fn alone_jobs_that_hold_each_a_part_are_named() {
    let Some(cluster) = cluster() else { return };
    cluster.apply("{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: next}, value: 100, preemptionPolicy: Never}");
    let whole = |what: &str, nodes: u32| {
        let mut spec = job(what, nodes, "sleep 600");
        spec.roles[0].gpus_per_node = 8;
        spec.roles[0].memory = Some("1Gi".into());
        spec
    };
    let blocker = cluster.submit(whole("blocker", 3)).await;
    blocker.phase(JobPhase::Running).await;
    // One node is left for the first, and three for the second, which comes before it when they are free.
    let first = cluster.submit(whole("first", 4)).await;
    let placed = |job: &Running, count: usize| {
        poll("placed pods", || {
            let pods = cluster.get(&["pods", "-l", &format!("{JOB}={}", job.handle.name())]);
            let on =
                pods["items"].as_array().unwrap().iter().filter(|pod| pod["spec"]["nodeName"].is_string());
            (on.count() == count).then_some(())
        });
    };
    placed(&first, 1);
    let mut spec = whole("second", 4);
    spec.priority = Some("next".into());
    let second = cluster.submit(spec).await;
    placed(&second, 0);
    let name = blocker.handle.name().to_owned();
    blocker.delete().await;
    placed(&second, 3);
    for (own, other, gpus) in [(&first, &second, 24), (&second, &first, 8)] {
        let (_, message, fix) = own.stuck_by("K8S-GANG").await;
        assert!(
            message.contains(&format!("`{}` ({gpus} GPUs", other.handle.name())) && !message.contains(&name),
            "{message}"
        );
        assert!(fix.contains("Kueue"), "{fix}");
        let detail = own.backend.describe(&own.handle).await.unwrap();
        of_code(&detail.findings, "K8S-GANG");
    }
    first.delete().await;
    second.delete().await;
}
