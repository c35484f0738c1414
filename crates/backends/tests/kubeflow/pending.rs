//! What keeps a job from running and is never reported by an operator: each cause is a finding with its fix.

use serde_json::json;
use weftrun_core::backend::PlannedJob;
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::{Fabric, FabricPlan, Profiles};
use weftrun_core::spec::{JobSpec, SecretRef, Volume, VolumeSource};

use crate::cluster::{Running, TestCluster, cluster, job, of_kind, plan};

async fn submit(
    cluster: &TestCluster,
    planned: impl AsyncFnOnce(PlannedJob) -> PlannedJob,
    spec: JobSpec,
) -> Running {
    let backend = cluster.connect().await;
    let job = planned(plan(&*backend, spec).await).await;
    let rendered = backend.render(&job).unwrap();
    let handle = backend.submit(&rendered).await.unwrap();
    Running { backend, handle }
}

async fn assert_stuck(running: Running, code: &str, fix: &str) {
    let stuck = running.stuck().await;
    assert_stuck_so(running, stuck, code, fix).await;
}

async fn assert_stuck_so(running: Running, stuck: (String, String, String), code: &str, fix: &str) {
    let (seen, message, seen_fix) = stuck;
    assert_eq!(seen, code, "{message}");
    assert!(seen_fix.contains(fix), "{code}: {seen_fix}");
    let described = running.backend.describe(&running.handle).await.unwrap();
    assert!(described.findings.iter().any(|finding| finding.code == code), "{:?}", described.findings);
    running.delete().await;
}

/// Causes that the job file alone brings about.
/// Gives a job the cause.
type Change = fn(&mut JobSpec);

#[tokio::test(flavor = "multi_thread")]
async fn causes_in_the_job() {
    let Some(cluster) = cluster() else { return };
    let cases: [(&str, &str, Change, &str, &str); 5] = [
        (
            "huge",
            "true",
            |spec| drop(spec.roles[0].resources.insert("hugepages-2Mi".into(), "4Mi".into())),
            "K8S-HUGEPAGES",
            "memory",
        ),
        (
            "prio",
            "true",
            |spec| spec.priority = Some("no-such-class".into()),
            "K8S-PRIORITY",
            "priorityclasses",
        ),
        (
            "secret",
            "true",
            |spec| {
                let [env, secret, key] = ["TOKEN", "no-such-secret", "key"].map(str::to_owned);
                spec.secrets.push(SecretRef { env, secret, key });
            },
            "K8S-CONFIG",
            "Secret",
        ),
        (
            "label",
            "true",
            |spec| *spec = of_kind(spec.clone(), json!({"node-selector": {"no": "such"}})),
            "K8S-UNSCHEDULABLE",
            "labels",
        ),
        (
            "zone",
            "true",
            |spec| drop(spec.roles[0].resources.insert("vpc.amazonaws.com/efa".into(), "99".into())),
            "K8S-UNSCHEDULABLE",
            "EFA",
        ),
    ];
    for (what, script, change, code, fix) in cases {
        let mut spec = job(what, 1, script);
        change(&mut spec);
        assert_stuck(submit(&cluster, async |job| job, spec).await, code, fix).await;
    }
}

/// The folder of the fabric's stack is not on the node.
#[tokio::test]
async fn alone_a_folder_the_nodes_lack() {
    let Some(cluster) = cluster() else { return };
    let mut spec = job("mount", 2, "true");
    (spec.roles[0].gpus_per_node, spec.roles[0].memory) = (8, Some("8Gi".into()));
    spec.fabric.kind = Fabric::Efa;
    let elsewhere = "extends = \"dgxc\"\n[stack]\nhost-path = \"/opt/no-such-stack\"\n".parse().unwrap();
    let profile = Profiles::builtin().with("elsewhere", elsewhere).get("elsewhere").unwrap();
    let planned = async |mut job: PlannedJob| {
        job.plan = FabricPlan::new(&job.spec, &Catalogue::builtin(), &job.facts, &profile);
        job
    };
    let running = submit(&cluster, planned, spec).await;
    // After a test that killed the API server the operator is slow, and pods of earlier tests still hold the nodes.
    let stuck = running.stuck_by("K8S-MOUNT").await;
    assert_stuck_so(running, stuck, "K8S-MOUNT", "profile").await;
}

/// The namespace's Pod Security level forbids what the fabric mounts.
#[tokio::test]
async fn pod_security() {
    let Some(cluster) = cluster() else { return };
    let level = "pod-security.kubernetes.io/enforce: baseline";
    cluster.apply(&format!(
        "{{apiVersion: v1, kind: Namespace, metadata: {{name: baseline, labels: {{{level}}}}}}}"
    ));
    let rules = include_str!("../../../../docs/backends/rbac.yaml");
    let role = rules
        .split("---")
        .next()
        .unwrap()
        .replace("name: weftrun-researcher", "name: r\n  namespace: baseline");
    let binding = "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: r, namespace: baseline}, \
         roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}, \
         subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: researcher}]}";
    cluster.apply(&format!("{role}---\n{binding}\n"));
    let mut target = cluster.target(&cluster.kubeconfig("researcher"));
    target.namespace = Some("baseline".into());
    let backend = cluster.connect_to(target).await.unwrap();
    let mut spec = job("psa", 1, "true");
    let source = VolumeSource::HostPath("/tmp".into());
    spec.volumes.push(Volume { name: "host".into(), mount: "/host".into(), source, read_only: true });
    let rendered = backend.render(&plan(&*backend, spec).await).unwrap();
    let handle = backend.submit(&rendered).await.unwrap();
    assert_stuck(Running { backend, handle }, "K8S-POD-SECURITY", "hostPath").await;
}

/// A `host_path` that the node does not have, such as a shared file system that is not mounted there, is no empty folder unless the
/// job allows it.
#[tokio::test]
async fn a_host_path_that_a_node_lacks() {
    let Some(cluster) = cluster() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("not-mounted").display().to_string();
    let spec = || {
        let mut spec = job("fsx", 1, "ls /data && echo there");
        let source = VolumeSource::HostPath(path.clone());
        spec.volumes.push(Volume { name: "data".into(), mount: "/data".into(), source, read_only: false });
        spec
    };
    let stuck = cluster.submit(spec()).await;
    let (_, message, _) = stuck.stuck().await;
    assert!(message.contains(&path), "{message}");
    assert_stuck(stuck, "K8S-MOUNT", "host-path-type").await;
    let made = cluster.submit(of_kind(spec(), json!({"host-path-type": "DirectoryOrCreate"}))).await;
    let read = made.follow().await;
    assert_eq!(read.count("there"), 1, "{read:?}");
    made.delete().await;
}
