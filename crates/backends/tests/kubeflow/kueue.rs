//! A real Kueue admits the jobs that are submitted to its queues, with topology annotations. The cluster runs Kueue
//! if `WITH_KUEUE=1` was set for `test-cluster/kubernetes/ci.sh`.

use serde_json::{Value, json};
use weftrun_convert::{MutateOptions, Start, mutate};
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::{FabricPlan, Profile, Profiles};
use weftrun_core::job::JobPhase;
use weftrun_core::request::FabricRequest;
use weftrun_core::spec::{JobSpec, Launch, Role};

use crate::cluster::{IMAGE, Running, TestCluster, cluster, name, of_kind, plan, poll};

const LEVEL: &str = "topology.kubernetes.io/zone";

/// Returns the cluster if it runs Kueue.
fn with_kueue() -> Option<TestCluster> {
    let cluster = cluster()?;
    let there = cluster.kubectl_says(&["get", "localqueue", "team"]).0;
    if !there {
        weftrun_testkit::skipped(
            "Kueue is not on the cluster (WITH_KUEUE=1 test-cluster/kubernetes/ci.sh build, then up)",
        );
    }
    there.then_some(cluster)
}

/// Returns the profile of EFA in the image with the queue and a topology level.
fn profile() -> Profile {
    let table = format!(
        "extends = 'eks-image'\nefa.count = 32\n[queue]\nkueue = 'team'\ntopology-required = '{LEVEL}'"
    );
    Profiles::builtin().with("queued", table.parse().unwrap()).get("queued").unwrap()
}

/// Returns a job on two whole nodes.
fn two_nodes(what: &str, image: &str, launch: Launch, command: [&str; 3]) -> JobSpec {
    let role = Role::worker().nodes(2).gpus_per_node(8).memory("1Gi").command(command);
    JobSpec::builder(name(what)).image(image).launch(launch).queue("team").role(role).build().unwrap()
}

/// Waits until the only Workload of a job is admitted, and returns its pod sets.
fn admitted(cluster: &TestCluster, uid: &str) -> Vec<Value> {
    poll("the admission", || {
        let all = cluster.get(&["workloads.kueue.x-k8s.io"]);
        let own = all["items"].as_array().unwrap().iter().find(|one| {
            one["metadata"]["ownerReferences"]
                .as_array()
                .is_some_and(|all| all.iter().any(|owner| owner["uid"] == uid))
        })?;
        let conditions = own["status"]["conditions"].as_array()?;
        let admitted = conditions.iter().any(|one| one["type"] == "Admitted" && one["status"] == "True");
        admitted.then(|| own["status"]["admission"]["podSetAssignments"].as_array().unwrap().clone())
    })
}

/// Submits a job with a queue and a topology level, and returns the pod sets that Kueue admitted.
async fn admitted_after_submit(cluster: &TestCluster, spec: JobSpec) -> (Running, Vec<Value>) {
    let backend = cluster.connect().await;
    let mut planned = plan(&*backend, spec).await;
    planned.plan = FabricPlan::new(&planned.spec, &Catalogue::builtin(), &planned.facts, &profile());
    let rendered = backend.render(&planned).unwrap();
    let text = &rendered.documents[0].text;
    assert!(rendered.inexpressible.is_empty(), "{:?}", rendered.inexpressible);
    assert!(text.contains("podset-required-topology") && text.contains("vpc.amazonaws.com/efa"), "{text}");
    let findings = backend.check(&rendered).await.unwrap();
    assert!(findings.is_empty(), "{findings:?}");
    let handle = backend.submit(&rendered).await.unwrap();
    let sets = admitted(cluster, handle.uid().unwrap());
    (Running { backend, handle }, sets)
}

/// Returns the number of pods that the topology gave a node.
fn placed(sets: &[Value]) -> u64 {
    let with_nodes = sets.iter().filter(|set| set["topologyAssignment"].is_object());
    with_nodes.filter_map(|set| set["count"].as_u64()).sum()
}

#[tokio::test]
async fn kueue_admits_a_pytorch_job_at_its_topology_level() {
    let Some(cluster) = with_kueue() else { return };
    let spec = two_nodes("kueue-pt", IMAGE, Launch::PerNode, ["sh", "-c", "true"]);
    let (running, sets) = admitted_after_submit(&cluster, spec).await;
    assert_eq!(placed(&sets), 2, "{sets:?}");
    running.phase(JobPhase::Succeeded).await;
    running.delete().await;
}

#[tokio::test]
async fn kueue_admits_an_mpi_job_at_its_topology_level() {
    let Some(cluster) = with_kueue() else { return };
    let spec = two_nodes("kueue-mpi", "example.test/mpi:1", Launch::Mpi, ["sh", "-c", "true"]);
    let (running, sets) = admitted_after_submit(&cluster, spec).await;
    assert_eq!(placed(&sets), 3, "the launcher too: {sets:?}");
    running.phase(JobPhase::Succeeded).await;
    running.delete().await;
}

/// Kueue 0.19 starts a TrainJob it has admitted through a field of Trainer 2.2; with 2.1, which runs here, it is admitted
/// and stays suspended (`kueue runtime patch not found` in Kueue's log).
#[tokio::test]
async fn kueue_admits_a_train_job() {
    let Some(cluster) = with_kueue() else { return };
    let spec = two_nodes("kueue-tj", IMAGE, Launch::PerNode, ["sh", "-c", "true"]);
    let spec = of_kind(spec, json!({"kind": "trainjob"}));
    let (running, sets) = admitted_after_submit(&cluster, spec).await;
    assert_eq!(sets.iter().filter_map(|set| set["count"].as_u64()).sum::<u64>(), 2, "{sets:?}");
    running.delete().await;
}

#[tokio::test]
async fn kueue_admits_a_mutated_job_set_at_its_topology_level() {
    let Some(cluster) = with_kueue() else { return };
    let name = name("kueue-js");
    let object = json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": name},
        "spec": {"replicatedJobs": [{"name": "workers", "replicas": 1, "template": {"spec": {
            "parallelism": 2, "completions": 2, "backoffLimit": 0, "template": {"spec": {
                "restartPolicy": "Never",
                "containers": [{
                    "name": "main", "image": IMAGE, "command": ["true"],
                    "resources": {"limits": {"nvidia.com/gpu": 8, "memory": "1Gi", "cpu": 2}},
                }],
            }},
        }}}]},
    });
    let (profile, options, catalogue) = (profile(), FabricRequest::default(), Catalogue::builtin());
    let settings = MutateOptions::offline(&profile, &options, &catalogue);
    let text = weftrun_convert::to_yaml(&object);
    let done = mutate(&text, Start::of("jobset.yaml"), &settings).unwrap();
    assert_eq!(done.jobs[0].skip(), None);
    cluster.apply(&done.text);
    let there = cluster.get(&["jobset", &name]);
    assert_eq!(there["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "team");
    let sets = admitted(&cluster, there["metadata"]["uid"].as_str().unwrap());
    assert_eq!(placed(&sets), 2, "{sets:?}");
    poll("the end", || {
        let end = cluster.get(&["jobset", &name])["status"]["terminalState"].clone();
        (end == "Completed").then_some(())
    });
    cluster.kubectl(&["delete", "--wait=false", "jobset", &name]);
}
