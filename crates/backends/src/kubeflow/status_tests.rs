//! The summary of a job from its own status, without its pods.

use serde_json::{Value, json};
use weftrun_core::job::JobPhase;

use super::kinds::Kind;
use super::status::Job;
use crate::kubernetes::{Pod, PodEvent};

fn running(kind: Kind, spec: &Value, status: &Value) -> Job {
    let mut status = status.clone();
    if kind != Kind::TrainJob {
        status["conditions"] = json!([{"type": "Running", "status": "True"}]);
    }
    Job {
        kind,
        object: json!({"metadata": {"name": "a", "namespace": "nlp"}, "spec": spec, "status": status}),
    }
}

#[test]
fn a_job_whose_status_counts_all_its_pods_is_listed_without_them() {
    let torch = |policy: &str, active: u64, failed: u64| {
        let role = |replicas| json!({"replicas": replicas, "restartPolicy": policy});
        let spec = json!({"pytorchReplicaSpecs": {"Master": role(1), "Worker": role(3)}});
        let counts = json!({"Master": {"active": 1}, "Worker": {"active": active, "failed": failed}});
        running(Kind::PyTorchJob, &spec, &json!({"replicaStatuses": counts}))
    };
    let summary = torch("Never", 3, 0).summary_without_pods("t").unwrap();
    assert_eq!((summary.phase, summary.ready), (JobPhase::Running, (4, 4)));
    let mpi = json!({"mpiReplicaSpecs": {"Launcher": {"restartPolicy": "Never"}, "Worker": {"replicas": 2, "restartPolicy": "Never"}}});
    let counts = json!({"replicaStatuses": {"Launcher": {"active": 1}, "Worker": {"active": 2}}});
    let summary = running(Kind::MpiJobV2, &mpi, &counts).summary_without_pods("t").unwrap();
    assert_eq!(summary.ready, (2, 2), "the launcher is no node");
    let train = |ready| {
        let jobs = json!({"jobsStatus": [{"name": "dataset-initializer", "succeeded": 1}, {"name": "node", "ready": ready}]});
        running(Kind::TrainJob, &json!({"trainer": {"numNodes": 5}}), &jobs)
    };
    assert_eq!(train(1).summary_without_pods("t").unwrap().ready, (5, 5));

    let read = [
        ("a pod does not run", torch("Never", 2, 0)),
        ("a pod failed", torch("Never", 3, 1)),
        ("the kubelet starts containers again", torch("OnFailure", 3, 0)),
        (
            "the launcher is missing",
            running(Kind::MpiJobV2, &mpi, &json!({"replicaStatuses": {"Worker": {"active": 2}}})),
        ),
        ("a node is not ready", train(0)),
    ];
    for (why, job) in read {
        assert_eq!(job.summary_without_pods("t"), None, "{why}");
    }
    for (pointer, value) in [
        ("metadata", json!({"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"})),
        ("runPolicy", json!({"suspend": true})),
    ] {
        let mut job = torch("Never", 3, 0);
        match pointer {
            "metadata" => job.object["metadata"] = value,
            _ => job.object["spec"]["runPolicy"] = value,
        }
        assert_eq!(job.summary_without_pods("t"), None, "{pointer}");
    }
    let mut ended = torch("Never", 3, 0);
    ended.object["status"]["conditions"] =
        json!([{"type": "Running", "status": "True"}, {"type": "Failed", "status": "True"}]);
    assert_eq!(ended.summary_without_pods("t"), None);
}

/// The operators call a job running as soon as one of its pods does.
#[test]
fn a_job_whose_last_pods_wait_for_a_node_is_not_running() {
    let spec = json!({"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "restartPolicy": "Never"}}});
    let job = running(Kind::PyTorchJob, &spec, &json!({}));
    let pod = |status: Value, node: Value| {
        let spec = json!({"nodeName": node, "containers": [{"name": "pytorch"}]});
        Pod::of_json(&json!({"metadata": {"name": "a-worker-0"}, "spec": spec, "status": status}))
    };
    let state = json!([{"name": "pytorch", "state": {"running": {}}}]);
    let runs = pod(json!({"phase": "Running", "containerStatuses": state}), json!("node-1"));
    let none = "0/4 nodes are available: 4 Insufficient nvidia.com/gpu.";
    let scheduled = json!([{"type": "PodScheduled", "status": "False", "message": none}]);
    let waits = pod(json!({"phase": "Pending", "conditions": scheduled}), Value::Null);
    let (phase, reason) = job.phase(&[&runs, &waits]);
    assert!(phase == JobPhase::Pending && reason.contains("Insufficient"), "{phase}: {reason}");
    assert_eq!(job.phase(&[&runs, &runs]).0, JobPhase::Running);
}

#[test]
fn a_pod_that_does_not_end_is_told_while_the_job_waits_and_is_no_cause_of_a_failure() {
    let event = PodEvent {
        reason: "FailedCreatePod".to_owned(),
        message: "Error creating: object is being deleted: pods \"a-worker-0\" already exists".to_owned(),
        count: 20,
        ..PodEvent::default()
    };
    let codes = |condition: &str| {
        let spec = json!({"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}});
        let mut job = running(Kind::PyTorchJob, &spec, &json!({}));
        job.object["status"]["conditions"] = json!([{"type": condition, "status": "True"}]);
        let found = job.findings(&[], &[], &[&event]);
        found.into_iter().map(|finding| finding.code).collect::<Vec<_>>()
    };
    assert_eq!(codes("Created"), ["K8S-POD-ENDING"]);
    assert_eq!(codes("Failed"), ["K8S-FAILED"]);
}

/// The operator's word is kept; that a rank failed, was killed or never started is said wherever the job is summed up.
#[test]
fn what_contradicts_a_success_is_in_the_summary() {
    let spec = json!({"pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 1}}});
    let mut job = running(Kind::PyTorchJob, &spec, &json!({}));
    job.object["status"]["conditions"] = json!([{"type": "Succeeded", "status": "True"}]);
    let pod = |name: &str, phase: &str, state: Value| {
        let containers = json!([{"name": "pytorch", "state": state}]);
        let status = json!({"phase": phase, "containerStatuses": containers});
        let spec = json!({"nodeName": "n", "containers": [{"name": "pytorch"}]});
        Pod::of_json(&json!({"metadata": {"name": name}, "spec": spec, "status": status}))
    };
    let ended = |code: i32, reason: &str| json!({"terminated": {"exitCode": code, "reason": reason}});
    let master = pod("a-master-0", "Succeeded", ended(0, "Completed"));
    let of = |worker: &Pod| {
        let summary = job.summary("t", &[&master, worker]);
        assert_eq!(summary.phase, JobPhase::Succeeded);
        (summary.exit_code, summary.reason)
    };
    let (code, reason) = of(&pod("a-worker-0", "Failed", ended(1, "Error")));
    assert!(code == Some(1) && reason.contains("a-worker-0 ended with exit code 1"), "{reason}");
    let (code, reason) = of(&pod("a-worker-0", "Failed", ended(137, "OOMKilled")));
    assert!(code == Some(137) && reason.contains("a rank failed"), "{reason}");
    let (code, reason) =
        of(&pod("a-worker-0", "Pending", json!({"waiting": {"reason": "ImagePullBackOff"}})));
    assert!(code == Some(0) && reason.contains("1 of its 2 pods never started"), "{reason}");
    assert_eq!(of(&pod("a-worker-0", "Succeeded", ended(0, "Completed"))), (Some(0), String::new()));
    assert_eq!(of(&pod("a-worker-0", "Failed", ended(143, "Error"))).0, Some(0));
}
