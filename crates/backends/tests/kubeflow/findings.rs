//! What the real operators do that a fake would get wrong: one test for each of the findings of the test cluster's notes,
//! by their numbers there.

use std::time::Duration;

use futures_util::StreamExt;
use serde_json::{Value, json};
use weftrun_core::job::{Action, JobEvent, JobFilter, JobPhase};
use weftrun_core::log::{LogOptions, Mark};
use weftrun_core::spec::{Code, JobSpec, Launch, Role};

use crate::cluster::{
    IMAGE, PATIENCE, Read, Running, TestCluster, cluster, job, name, of_kind, poll, restarting,
};

/// 1: a log that is opened again at once gives the dead container's log again.
#[tokio::test]
async fn f01_a_restart_in_place_neither_repeats_nor_loses() {
    let Some(cluster) = cluster() else { return };
    let running = cluster
        .submit(restarting(job("f01", 1, "for i in 1 2 3 4; do echo step $i; sleep 0.3; done; exit 9"), 2))
        .await;
    let read = running.follow().await;
    let mut attempts: Vec<u32> = read.marks.iter().map(|(_, attempt, _)| *attempt).collect();
    attempts.dedup();
    // The operator ends the one after the last that is allowed, wherever it is by then.
    for step in 1..=4 {
        let times = read.count(&format!("step {step}"));
        assert!((3..=attempts.len()).contains(&times), "step {step} came {times} times: {read:?}");
    }
    assert!(read.gaps_below(3).is_empty(), "{:?}", read.marks);
    running.delete().await;
}

/// 2: the previous log of a removed container comes as text with HTTP 200.
#[tokio::test]
async fn f02_a_previous_log_that_is_gone_is_a_gap_and_no_text() {
    let Some(cluster) = cluster() else { return };
    let running = cluster.submit(restarting(job("f02", 1, "echo once; sleep 1; exit 1"), 5)).await;
    running.until("a second attempt", |event| matches!(event, JobEvent::Attempt { attempt: 2.., .. })).await;
    let mut options = LogOptions::default();
    options.previous = true;
    let read = running.read(options).await;
    assert!(!read.text.contains("unable to retrieve"), "{read:?}");
    assert!(
        read.count("once") == 1 || read.gaps().iter().any(|gap| gap.contains("unable to retrieve")),
        "{read:?}"
    );
    running.delete().await;
}

/// 3: a pod that is made again has the same name and another uid.
#[tokio::test]
async fn f03_an_evicted_pod_is_followed_under_its_new_uid() {
    let Some(cluster) = cluster() else { return };
    let script = "trap 'exit 143' TERM; for i in $(seq 60); do echo line $i; sleep 0.2; done";
    let running = cluster.submit(restarting(job("f03", 2, script), 3)).await;
    running.phase(JobPhase::Running).await;
    let pod = format!("{}-worker-1", running.handle.name());
    let before = cluster.get(&["pod", &pod])["metadata"]["uid"].clone();
    let reading = running.read(LogOptions::follow());
    let evicting = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        cluster.kubectl(&["delete", "pod", &pod, "--wait=false"]);
    };
    let (read, ()) = tokio::join!(reading, evicting);
    let after = cluster.get(&["pod", &pod])["metadata"]["uid"].clone();
    assert_ne!(before, after);
    // Worker 0 wrote it once, the second worker 1 too; the first was evicted before.
    assert_eq!(read.count("line 60"), 2, "{:?}", read.marks);
    running.delete().await;
}

/// 4: before its start a container's log is an error, which is waited for.
#[tokio::test]
async fn f04_a_follower_waits_for_the_start() {
    let Some(cluster) = cluster() else { return };
    // With torchrun there is a master, for which the workers' init containers wait: it runs until the worker has been read.
    let text = "echo started; while [ $RANK = 0 ] && [ ! -e /tmp/end ]; do sleep 0.2; done\n";
    let code = Code::Script { name: "train.py".into(), text: text.into() };
    let spec = JobSpec::builder(name("f04")).image(IMAGE).launch(Launch::Torchrun).code(code);
    let spec = spec.role(Role::worker().nodes(2).command(["train.py"])).build().unwrap();
    let running = cluster.submit(spec).await;
    let mut read = Read::default();
    let mut logs = running.backend.logs(&running.handle, LogOptions::follow());
    let reading = async {
        while let Some(batch) = logs.next().await {
            let before = read.count("started");
            read.add(&batch.unwrap());
            if before < 2 && read.count("started") == 2 {
                end_master(&cluster, &running);
            }
        }
    };
    tokio::time::timeout(2 * PATIENCE, reading).await.expect("the logs do not end");
    assert_eq!(read.count("started"), 2, "{read:?}");
    assert!(read.gaps().is_empty(), "{read:?}");
    running.delete().await;
}

/// Lets a master end that waits for `/tmp/end`.
fn end_master(cluster: &TestCluster, running: &Running) {
    end_pod(cluster, &format!("{}-master-0", running.handle.name()));
}

fn end_pod(cluster: &TestCluster, pod: &str) {
    poll("the pod's end", || cluster.kubectl_says(&["exec", pod, "--", "touch", "/tmp/end"]).0.then_some(()));
}

/// 5: pods of a failed MPIJob are deleted, and their last lines with them.
#[tokio::test]
async fn f05_the_last_words_of_a_failed_launcher_are_read() {
    let Some(cluster) = cluster() else { return };
    let fails = "[ $OMPI_COMM_WORLD_RANK = 1 ] || exec sleep 60; echo why it failed; exit 7";
    let spec = JobSpec::builder(name("f05"))
        .image("example.test/mpi:1")
        .launch(Launch::Mpi)
        .role(Role::worker().nodes(2).command(["sh", "-c", fails]))
        .build()
        .unwrap();
    let running = cluster.submit(spec).await;
    let (read, (end, _)) = tokio::join!(running.follow(), running.wait());
    assert_eq!(end.phase, JobPhase::Failed);
    assert_eq!(read.count("why it failed"), 1, "{read:?}");
    assert_eq!(end.exit_code, Some(7), "{end:?}");
    running.delete().await;
}

/// 5 too: so are those of a failed TrainJob.
#[tokio::test]
async fn f05_the_last_words_of_a_failed_train_job_are_read() {
    let Some(cluster) = cluster() else { return };
    let fails = "[ $PET_NODE_RANK = 1 ] || exec sleep 60; sleep 1; echo why it failed; exit 7";
    // A runtime whose Job does not try six times.
    cluster.apply(
        "{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainingRuntime, \
          metadata: {name: weft-once, labels: {trainer.kubeflow.org/framework: torch}}, \
          spec: {mlPolicy: {numNodes: 1, torch: {numProcPerNode: auto}}, template: {spec: {replicatedJobs: [{name: node, \
          template: {metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}, spec: {backoffLimit: 0, \
          template: {spec: {restartPolicy: Never, containers: [{name: node, image: 'example.test/trainer:1'}]}}}}}]}}}}",
    );
    let once = json!({"kind": "trainjob", "runtime": "weft-once", "runtime-kind": "TrainingRuntime"});
    let running = cluster.submit(of_kind(job("f05t", 2, fails), once)).await;
    let (read, (end, _)) = tokio::join!(running.follow(), running.wait());
    assert_eq!(end.phase, JobPhase::Failed, "{end:?}");
    assert_eq!(read.count("why it failed"), 1, "{read:?}");
    assert_eq!(end.exit_code, Some(7), "{end:?}");
    running.delete().await;
}

/// 6: conditions flip, and `Running` stays in the list with status False.
#[tokio::test]
async fn f06_an_ended_job_is_not_running() {
    let Some(cluster) = cluster() else { return };
    let running = cluster.submit(job("f06", 2, "sleep 1; echo done")).await;
    let (end, _) = running.wait().await;
    assert_eq!(end.phase, JobPhase::Succeeded);
    let object = cluster.get(&["pytorchjob", running.handle.name()]);
    let listed = object["status"]["conditions"].as_array().unwrap();
    assert!(listed.iter().any(|c| c["type"] == "Running" && c["status"] == "False"), "{listed:?}");
    running.delete().await;
}

/// 6 too: with `ExitCode` the operator creates a failed pod again under the same name, regardless of
/// `backoffLimit`. Each attempt is reported and read once, the changing conditions are followed, and the job
/// can be cancelled.
#[tokio::test(flavor = "multi_thread")]
async fn f06_pods_that_are_made_again_are_attempts() {
    let Some(cluster) = cluster() else { return };
    let name = name("f06x");
    cluster.apply(&format!(
        "{{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {{name: {name}}}, spec: {{runPolicy: {{backoffLimit: 1}}, \
          pytorchReplicaSpecs: {{Worker: {{replicas: 1, restartPolicy: ExitCode, template: {{spec: {{containers: [{{name: pytorch, \
          image: '{IMAGE}', command: [sh, -c, 'echo one more; sleep 5; exit 143']}}]}}}}}}}}}}}}"
    ));
    let backend = cluster.connect().await;
    let jobs = backend.list(&JobFilter::all()).await.unwrap();
    let handle = jobs.into_iter().find(|job| job.name == name).unwrap().handle;
    let running = Running { backend, handle };
    let cancelling = async {
        running.until("attempt 3", |event| matches!(event, JobEvent::Attempt { attempt: 3.., .. })).await;
        running.backend.act(&running.handle, Action::Cancel).await.unwrap();
    };
    let (read, (end, events), ()) = tokio::join!(running.follow(), running.wait(), cancelling);
    assert_eq!(end.phase, JobPhase::Cancelled, "{end:?}");
    let phases: Vec<_> = events.iter().filter_map(JobEvent::phase).collect();
    let again = phases.iter().skip_while(|phase| **phase != JobPhase::Restarting);
    assert!(again.clone().any(|phase| *phase == JobPhase::Running), "{phases:?}");
    let attempts: Vec<u32> = events
        .iter()
        .filter_map(|event| match event {
            JobEvent::Attempt { attempt, .. } => Some(*attempt),
            _ => None,
        })
        .collect();
    // Two watches may see different pods of a second each: each counts what it sees.
    assert!(attempts.len() >= 2 && attempts.is_sorted(), "{attempts:?}");
    // The cancelled one may end before it writes anything.
    let times = read.count("one more");
    assert!(times >= 3 && times <= read.sources.len(), "{times} of {:?}: {:?}", read.sources, read.marks);
    running.delete().await;
}

/// 7: with the operator's default, workers run on after the master has ended, and keep their GPUs.
#[tokio::test]
async fn f07_ended_jobs_keep_no_pods() {
    let Some(cluster) = cluster() else { return };
    let spec = JobSpec::builder(name("f07"))
        .image("example.test/mpi:1")
        .launch(Launch::Mpi)
        .role(Role::worker().nodes(2).command(["hostname"]))
        .build()
        .unwrap();
    let running = cluster.submit(spec).await;
    let (end, _) = running.wait().await;
    assert_eq!(end.phase, JobPhase::Succeeded, "{end:?}");
    let object = cluster.get(&["mpijob", running.handle.name()]);
    assert_eq!(object["spec"]["runPolicy"]["cleanPodPolicy"], "Running");
    running.follow().await;
    let selector = format!(
        "training.kubeflow.org/job-name={},training.kubeflow.org/job-role=worker",
        running.handle.name()
    );
    for _ in 0..100 {
        let pods = cluster.get(&["pods", "-l", &selector]);
        let alive = pods["items"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|pod| pod["status"]["phase"] == "Running")
            .count();
        if alive == 0 {
            return running.delete().await;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    panic!("workers run on");
}

/// 7 too: a master that ends ends the job. Its workers end by themselves, and all logs stay readable: with
/// `cleanPodPolicy: Running` the operator would delete the workers at that moment, before their last lines.
#[tokio::test]
async fn f07_logs_of_workers_that_end_after_their_master_stay() {
    let Some(cluster) = cluster() else { return };
    let text = "echo begins $RANK; [ $RANK != 0 ] || while [ ! -e /tmp/end ]; do sleep 0.2; done; \
                [ $RANK = 0 ] || sleep 5; echo ends $RANK\n";
    let code = Code::Script { name: "train.py".into(), text: text.into() };
    let spec = JobSpec::builder(name("f07w")).image(IMAGE).launch(Launch::Torchrun).code(code);
    let spec = spec.role(Role::worker().nodes(3).command(["train.py"])).build().unwrap();
    let running = cluster.submit(spec).await;
    poll("all ranks", || {
        let pods = pods_of(&cluster, &running);
        (pods.iter().filter(|pod| pod["status"]["phase"] != "Pending").count() == 3).then_some(())
    });
    end_master(&cluster, &running);
    let (end, _) = running.wait().await;
    assert_eq!(end.phase, JobPhase::Succeeded, "{end:?}");
    poll("all pods ended", || {
        let pods = pods_of(&cluster, &running);
        assert_eq!(pods.len(), 3, "a pod was deleted");
        pods.iter().all(|pod| pod["status"]["phase"] == "Succeeded").then_some(())
    });
    let read = running.read(LogOptions::default()).await;
    for rank in 0..3 {
        assert_eq!(read.count(&format!("ends {rank}")), 1, "{read:?}");
    }
    assert!(read.gaps().is_empty(), "{read:?}");
    let detail = running.backend.describe(&running.handle).await.unwrap();
    assert!(detail.findings.is_empty() && detail.summary.reason.is_empty(), "{detail:?}");
    // The log of a deleted pod is gone, which is reported.
    cluster.kubectl(&["delete", "pod", &format!("{}-worker-1", running.handle.name())]);
    for options in [LogOptions::default(), LogOptions::follow()] {
        let read = running.read(options).await;
        let gone = format!("the pod {}-worker-1 is gone, and its log with it", running.handle.name());
        assert_eq!(read.gaps(), [gone], "{read:?}");
        assert_eq!(read.count("ends 2"), 0, "{read:?}");
    }
    running.delete().await;
}

/// 7 too: workers that run on after their job has ended hold their GPUs. `list` and `describe` report it, and
/// `cancel` ends them and keeps the logs of the others.
#[tokio::test]
async fn f07_pods_that_outlive_their_job_are_said_and_can_be_cancelled() {
    let Some(cluster) = cluster() else { return };
    let text =
        "echo begins $RANK; [ $RANK = 0 ] || exec sleep 600; while [ ! -e /tmp/end ]; do sleep 0.2; done\n";
    let code = Code::Script { name: "train.py".into(), text: text.into() };
    let spec = JobSpec::builder(name("f07m")).image(IMAGE).launch(Launch::Torchrun).code(code);
    let worker = Role::worker().nodes(3).gpus_per_node(1).command(["train.py"]);
    let running = cluster.submit(spec.role(worker).build().unwrap()).await;
    poll("all ranks", || {
        let pods = pods_of(&cluster, &running);
        (pods.iter().filter(|pod| pod["status"]["phase"] == "Running").count() == 3).then_some(())
    });
    end_master(&cluster, &running);
    let (end, _) = running.wait().await;
    assert_eq!(end.phase, JobPhase::Succeeded, "{end:?}");
    // The kubelet may be a moment behind with the master's own phase.
    poll("the master's end", || {
        let ended = |pod: &Value| pod["status"]["phase"] == "Succeeded";
        pods_of(&cluster, &running).iter().any(ended).then_some(())
    });
    let said = "the job has ended, but 2 pods still run and hold 2 GPUs";
    let detail = running.backend.describe(&running.handle).await.unwrap();
    let left = detail.findings.iter().find(|finding| finding.code == "K8S-PODS-LEFT").unwrap();
    assert!(left.message == said && detail.summary.reason == said, "{detail:?}");
    let listed = running.backend.list(&JobFilter::one(&running.handle)).await.unwrap();
    assert!(listed[0].phase == JobPhase::Succeeded && listed[0].reason == said, "{listed:?}");
    // They hold GPUs: the job is shown among those that have not ended.
    let is_shown = async || {
        let listed = running.backend.list(&JobFilter::default()).await.unwrap();
        listed.iter().any(|job| job.handle == running.handle)
    };
    assert!(is_shown().await);
    running.backend.act(&running.handle, Action::Cancel).await.unwrap();
    poll("no worker runs", || {
        let alive = |pod: &&Value| pod["status"]["phase"] == "Running";
        (pods_of(&cluster, &running).iter().filter(alive).count() == 0).then_some(())
    });
    let listed = running.backend.list(&JobFilter::one(&running.handle)).await.unwrap();
    assert!(listed[0].phase == JobPhase::Succeeded && listed[0].reason.is_empty(), "{listed:?}");
    assert!(!is_shown().await);
    let read = running.read(LogOptions::default()).await;
    assert_eq!(read.count("begins 0"), 1, "{read:?}");
    running.delete().await;
}

/// An MPIJob whose launcher the cluster refuses is not running, although all its workers are: the phase and
/// the finding show it in `list`, `describe` and `watch`.
#[tokio::test]
async fn a_launcher_that_cannot_be_made_is_a_finding_while_workers_run() {
    let Some(cluster) = cluster() else { return };
    // The API server refuses the launcher's Job: huge pages want cpu or memory beside them.
    let mut launcher = Role::launcher();
    launcher.resources.insert("hugepages-2Mi".into(), "4Mi".into());
    launcher_refused(&cluster, "nolaunch", launcher, "K8S-HUGEPAGES").await;
    // A policy refuses the pod of the launcher's Job, as a quota or a webhook would.
    cluster.apply(
        "{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: weft-no-launcher}, \
          spec: {failurePolicy: Fail, matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], \
          operations: [CREATE], resources: [pods]}]}, matchConditions: [{name: ours, expression: \
          \"(has(object.metadata.name) ? object.metadata.name : object.metadata.generateName).startsWith('weftrefused-') && \
          (has(object.metadata.name) ? object.metadata.name : object.metadata.generateName).contains('-launcher')\"}], \
          validations: [{expression: 'false', message: 'exceeded quota: launchers'}]}}\n---\n\
         {apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: weft-no-launcher}, \
          spec: {policyName: weft-no-launcher, validationActions: [Deny]}}",
    );
    poll("the policy", || {
        let (made, said) = cluster.kubectl_says(&[
            "run",
            "weftrefused-x-launcher",
            "--image=busybox:1.36",
            "--dry-run=server",
        ]);
        (!made && said.contains("exceeded quota: launchers")).then_some(())
    });
    launcher_refused(&cluster, "weftrefused", Role::launcher(), "K8S-QUOTA").await;
    cluster.kubectl(&[
        "delete",
        "validatingadmissionpolicybinding,validatingadmissionpolicy",
        "weft-no-launcher",
    ]);
}

async fn launcher_refused(cluster: &TestCluster, what: &str, launcher: Role, code: &str) {
    let spec = JobSpec::builder(name(what))
        .image("example.test/mpi:1")
        .launch(Launch::Mpi)
        .role(launcher)
        .role(Role::worker().nodes(2).command(["hostname"]))
        .build()
        .unwrap();
    let running = cluster.submit(spec).await;
    let (found, message, _) = running.stuck().await;
    assert_eq!(found, code, "{message}");
    poll("both workers run", || {
        let up = |pod: &&Value| pod["status"]["phase"] == "Running";
        (pods_of(cluster, &running).iter().filter(up).count() == 2).then_some(())
    });
    // The operator retries again and again; its message stays true while the workers run.
    for _ in 0..3 {
        let detail = running.backend.describe(&running.handle).await.unwrap();
        assert_eq!(detail.summary.phase, JobPhase::Starting, "{detail:?}");
        assert!(detail.findings.iter().any(|finding| finding.code == code), "{detail:?}");
        let listed = running.backend.list(&JobFilter::one(&running.handle)).await.unwrap();
        assert!(listed[0].phase == JobPhase::Starting && listed[0].reason == "2 of 3 pods run", "{listed:?}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    running.delete().await;
}

/// The pods of a job, as the API server has them.
fn pods_of(cluster: &TestCluster, running: &Running) -> Vec<Value> {
    let train = running.handle.parts()[1] == "trainjob";
    let label = if train { "jobset.sigs.k8s.io/jobset-name" } else { "training.kubeflow.org/job-name" };
    let selector = format!("{label}={}", running.handle.name());
    cluster.get(&["pods", "-l", &selector])["items"].as_array().unwrap().clone()
}

/// 10: deleting returns at once; pods disappear later, and their last output is read.
#[tokio::test]
async fn f10_a_deleted_job_is_gone_and_its_logs_end() {
    let Some(cluster) = cluster() else { return };
    let running = cluster
        .submit(job("f10", 1, "trap 'echo last words; exit 0' TERM; echo up; while :; do sleep 0.1; done"))
        .await;
    running.phase(JobPhase::Running).await;
    let deleting = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        running.backend.act(&running.handle, Action::Delete).await.unwrap();
    };
    let (read, ()) = tokio::join!(running.follow(), deleting);
    assert_eq!((read.count("up"), read.count("last words")), (1, 1), "{read:?}");
    assert!(read.marks.iter().any(|(_, _, mark)| matches!(mark, Mark::Ended { .. })), "{read:?}");
}

/// 11: a launcher that starts before its workers resolve fails.
#[tokio::test]
async fn f11_the_launcher_waits_for_its_workers() {
    let Some(cluster) = cluster() else { return };
    let spec = JobSpec::builder(name("f11"))
        .image("example.test/mpi:1")
        .launch(Launch::Mpi)
        .env("WEFT_SAYS", "forwarded")
        .role(Role::worker().nodes(2).ranks_per_node(2).command([
            "sh",
            "-c",
            "echo rank $OMPI_COMM_WORLD_RANK $WEFT_SAYS",
        ]))
        .build()
        .unwrap();
    let running = cluster.submit(spec).await;
    let read = running.follow().await;
    for rank in 0..4 {
        assert_eq!(read.count(&format!("rank {rank} forwarded")), 1, "{read:?}");
    }
    assert_eq!(
        cluster.get(&["mpijob", running.handle.name()])["spec"]["launcherCreationPolicy"],
        "WaitForWorkersReady"
    );
    running.delete().await;
}

/// 12: an exceeded quota is only an event of the job, which has no condition at all.
#[tokio::test]
async fn f12_quota_is_said() {
    let Some(cluster) = cluster() else { return };
    cluster.apply("{apiVersion: v1, kind: ResourceQuota, metadata: {name: weft-f12}, spec: {hard: {requests.example.com/thing: 0}}}");
    let mut spec = job("f12", 1, "true");
    spec.roles[0].resources.insert("example.com/thing".into(), "1".into());
    let running = cluster.submit(spec).await;
    let (code, message, fix) = running.stuck().await;
    cluster.kubectl(&["delete", "resourcequota", "weft-f12"]);
    assert_eq!(code, "K8S-QUOTA", "{message}");
    assert!(fix.contains("ResourceQuota"), "{fix}");
    running.delete().await;
}

/// 13: neither a missing image nor a node that does not fit is ever a condition.
#[tokio::test]
async fn f13_missing_images_and_full_nodes_are_said() {
    let Some(cluster) = cluster() else { return };
    let mut image = job("f13a", 1, "true");
    image.image = Some("example.test/nope:9".into());
    let running = cluster.submit(image).await;
    let (code, message, _) = running.stuck().await;
    assert_eq!(code, "K8S-IMAGE-PULL", "{message}");
    running.delete().await;

    let mut large = job("f13b", 1, "true");
    large.roles[0].gpus_per_node = 64;
    let running = cluster.submit(large).await;
    let (code, message, fix) = running.stuck().await;
    assert_eq!(code, "K8S-UNSCHEDULABLE", "{message}");
    assert!(fix.contains("nvidia.com/gpu"), "{fix}");
    running.delete().await;
}

/// 7 too: a TrainJob has no Running condition.
#[tokio::test]
async fn f07_a_train_job_runs_and_ends() {
    let Some(cluster) = cluster() else { return };
    let running = cluster
        .submit(of_kind(
            job("f07t", 3, "echo node $PET_NODE_RANK; while [ ! -e /tmp/end ]; do sleep 0.2; done"),
            json!({"kind": "trainjob"}),
        ))
        .await;
    // The nodes end once the watcher has seen them run, however late it begins.
    let (read, (end, events)) = tokio::join!(
        running.follow(),
        running.wait_then(JobPhase::Running, || {
            for pod in pods_of(&cluster, &running) {
                end_pod(&cluster, pod["metadata"]["name"].as_str().unwrap());
            }
        })
    );
    assert!(events.iter().any(|event| event.phase() == Some(JobPhase::Running)), "{events:?}");
    assert_eq!(end.phase, JobPhase::Succeeded);
    for node in 0..3 {
        assert_eq!(read.count(&format!("node {node}")), 1, "{read:?}");
    }
    running.delete().await;
}

/// 8: a dead node's pods stay `Running` until they are deleted, and their logs cannot be read.
#[tokio::test(flavor = "multi_thread")]
async fn alone_f08_a_node_dies() {
    let Some(cluster) = cluster() else { return };
    let spec = of_kind(
        job("f08", 1, "i=0; while :; do i=$((i + 1)); echo tick $i; sleep 0.5; done"),
        json!({"node-selector": {"kubernetes.io/hostname": "node-3"}}),
    );
    let running = cluster.submit(spec).await;
    running.phase(JobPhase::Running).await;
    let words = cluster.kill("node-3");
    let mut logs = running.backend.logs(&running.handle, LogOptions::follow());
    let reading = async {
        let mut read = crate::cluster::Read::default();
        while read.gaps().is_empty() {
            read.add(&logs.next().await.expect("the logs ended").unwrap());
        }
        read
    };
    let lost = running.until(
        "the node is lost",
        |event| matches!(event, JobEvent::Stuck { finding, .. } if finding.code == "K8S-NODE-LOST"),
    );
    let (read, lost) = tokio::join!(tokio::time::timeout(PATIENCE, reading), lost);
    let again = cluster.clone();
    tokio::task::spawn_blocking(move || again.restart_node("node-3", words)).await.unwrap();
    running.delete().await;
    let read = read.expect("no mark says that the log cannot be read");
    assert!(read.gaps()[0].contains("node"), "{:?}", read.marks);
    let JobEvent::Stuck { finding, .. } = lost else { unreachable!() };
    assert!(finding.message.contains("node-3"), "{finding:?}");
    assert!(finding.fix.unwrap().text.contains("cancel"));
}
