//! Objects beside a job: a claim template and a compute domain, as profiles with DRA make them.

use serde_json::{Value, json};
use weftrun_core::ErrorKind;
use weftrun_core::backend::{Backend, Rendered, Scope};
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::{Change, FabricPlan, Op, PodList, Profiles};
use weftrun_core::job::{Action, JobPhase};
use weftrun_core::request::Origin;
use weftrun_core::spec::{JobSpec, Launch, Role};

use crate::cluster::{IMAGE, Running, TestCluster, cluster, job, name, of_kind, plan, poll};

const DOMAINS: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: computedomains.resource.nvidia.com}
spec:
  group: resource.nvidia.com
  scope: Namespaced
  names: {plural: computedomains, singular: computedomain, kind: ComputeDomain, listKind: ComputeDomainList}
  versions:
  - name: v1beta1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";
const KINDS: [&str; 2] = ["resourceclaimtemplate", "computedomain"];

/// The job with both companions, rendered.
async fn rendered(backend: &dyn Backend, spec: weftrun_core::spec::JobSpec) -> Rendered {
    let name = spec.name.clone();
    let mut planned = plan(backend, spec).await;
    let request = json!({"name": "gpu", "exactly": {"deviceClassName": "none.example.test", "count": 8}});
    let template = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": format!("{name}-channel")},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    });
    let domain = json!({
        "apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomain", "metadata": {"name": format!("{name}-domain")},
        "spec": {"numNodes": 1, "channel": {"resourceClaimTemplate": {"name": format!("{name}-channel")}}},
    });
    let claim = json!({"name": "channel", "resourceClaimTemplateName": format!("{name}-channel")});
    for change in [
        Change::Companion { object: template },
        Change::Companion { object: domain },
        Change::Member { list: PodList::ResourceClaims, name: "channel".into(), value: claim },
    ] {
        planned.plan.ops.push(Op::new("pod.claims", "worker", change, "a test", Origin::Default));
    }
    let rendered = backend.render(&planned).unwrap();
    assert!(rendered.inexpressible.is_empty(), "{:?}", rendered.inexpressible);
    rendered
}

/// Owners of both companions of a job.
fn owners(cluster: &TestCluster, name: &str) -> Vec<Value> {
    let names = [format!("{name}-channel"), format!("{name}-domain")];
    let of = |(kind, name): (&str, &String)| {
        cluster.get(&[kind, name])["metadata"]["ownerReferences"][0]["uid"].clone()
    };
    KINDS.into_iter().zip(&names).map(of).collect()
}

#[tokio::test]
async fn companions_belong_to_their_job_and_go_with_it() {
    let Some(cluster) = cluster() else { return };
    cluster.apply(DOMAINS);
    poll("the kind", || cluster.kubectl_says(&["get", "computedomains"]).0.then_some(()));
    let backend = cluster.connect().await;
    let spec = job("beside", 1, "true");
    let job_name = spec.name.clone();
    let first = rendered(&*backend, spec.clone()).await;
    let handle = backend.submit(&first).await.unwrap();
    let uid = json!(handle.uid().unwrap());
    assert_eq!(owners(&cluster, &job_name), [uid.clone(), uid.clone()]);
    // The submitting process ended before it set the job as their owner; the process that finds the job does
    // so.
    let orphan = |kind: &str, object: &str| {
        cluster.kubectl(&[
            "patch",
            kind,
            object,
            "--type=merge",
            "-p",
            r#"{"metadata":{"ownerReferences":null}}"#,
        ])
    };
    orphan(KINDS[0], &format!("{job_name}-channel"));
    orphan(KINDS[1], &format!("{job_name}-domain"));
    assert_eq!(owners(&cluster, &job_name), [Value::Null, Value::Null]);
    assert_eq!(backend.find(&first.submission).await.unwrap().as_ref(), Some(&handle));
    assert_eq!(owners(&cluster, &job_name), [uid.clone(), uid]);
    // A job of the same name is refused, and takes nothing from the first.
    let second = rendered(&*backend, spec.clone()).await;
    assert_eq!(backend.submit(&second).await.unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(owners(&cluster, &job_name).iter().filter(|owner| owner.is_string()).count(), 2);
    // Deleted and submitted again at once: what is on its way out is waited for.
    backend.act(&handle, Action::Delete).await.unwrap();
    let third = rendered(&*backend, spec).await;
    let handle = poll_submit(&*backend, &third).await;
    let uid = json!(handle.uid().unwrap());
    assert_eq!(owners(&cluster, &job_name), [uid.clone(), uid]);
    backend.act(&handle, Action::Delete).await.unwrap();
    poll("the companions' end", || {
        let there = |kind, end: &str| cluster.kubectl_says(&["get", kind, &format!("{job_name}-{end}")]).0;
        (!there(KINDS[0], "channel") && !there(KINDS[1], "domain")).then_some(())
    });
}

/// Submits while a deleted job may still hold the name.
async fn poll_submit(backend: &dyn Backend, rendered: &Rendered) -> weftrun_core::job::JobHandle {
    for _ in 0..100 {
        match backend.submit(rendered).await {
            Ok(handle) => return handle,
            Err(error) => assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    }
    panic!("the name does not get free");
}

#[tokio::test]
async fn what_an_interrupted_submission_left_is_taken_over_or_named() {
    let Some(cluster) = cluster() else { return };
    cluster.apply(DOMAINS);
    poll("the kind", || cluster.kubectl_says(&["get", "computedomains"]).0.then_some(()));
    let backend = cluster.connect().await;
    for (nodes, taken) in [(1, true), (4, false)] {
        let left = name("left");
        // As a submission leaves it that was killed before it made its job.
        cluster.apply(&format!(
            "{{apiVersion: resource.nvidia.com/v1beta1, kind: ComputeDomain, metadata: {{name: {left}-domain, labels: {{weftrun.dev/submission: \
             0123456789abcdef0123456789abcdef}}}}, spec: {{numNodes: {nodes}, channel: {{resourceClaimTemplate: {{name: {left}-channel}}}}}}}}"
        ));
        let mut spec = job("left", 1, "true");
        spec.name.clone_from(&left);
        let rendered = rendered(&*backend, spec).await;
        match backend.submit(&rendered).await {
            Ok(handle) => {
                assert!(taken, "one that differs was taken over");
                let uid = json!(handle.uid().unwrap());
                assert_eq!(owners(&cluster, &left), [uid.clone(), uid]);
                backend.act(&handle, Action::Delete).await.unwrap();
            }
            Err(error) => {
                assert!(!taken && error.to_string().contains(&format!("{left}-domain")), "{error}");
                assert!(error.hints()[0].contains("kubectl delete computedomain"), "{:?}", error.hints());
                assert!(!cluster.kubectl_says(&["get", "pytorchjob", &left]).0, "a job was made");
                assert!(
                    !cluster.kubectl_says(&["get", KINDS[0], &format!("{left}-channel")]).0,
                    "its template stays"
                );
                cluster.kubectl(&["delete", KINDS[1], &format!("{left}-domain")]);
            }
        }
    }
}

/// A runtime that the researcher may read, as `torch-distributed` of Trainer 2.1.
const BASE: &str = r"
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata: {name: weft-base, labels: {trainer.kubeflow.org/framework: torch}}
spec:
  mlPolicy: {numNodes: 1, torch: {numProcPerNode: auto}}
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec: {template: {spec: {containers: [{name: node, image: 'example.test/trainer:1'}]}}}
";

/// Renders a TrainJob with a change that a TrainJob has no field for.
async fn with_own_runtime(backend: &dyn Backend, name: &str) -> Rendered {
    let settings = json!({"kind": "trainjob", "runtime": "weft-base", "runtime-kind": "TrainingRuntime"});
    let mut spec = of_kind(job("own", 1, "true"), settings);
    name.clone_into(&mut spec.name);
    let mut planned = plan(backend, spec).await;
    let change = Change::PodField { key: "terminationGracePeriodSeconds".into(), value: json!(7) };
    planned.plan.ops.push(Op::new("pod.host-network", "worker", change, "a test", Origin::Default));
    let rendered = backend.render(&planned).unwrap();
    assert!(rendered.inexpressible.is_empty(), "{:?}", rendered.inexpressible);
    rendered
}

#[tokio::test]
async fn a_train_job_is_submitted_with_a_runtime_of_its_own() {
    let Some(cluster) = cluster() else { return };
    cluster.apply(BASE);
    let backend = cluster.connect().await;
    let mut fresh = Scope::default();
    fresh.fresh = true;
    backend.discover(&fresh).await.unwrap();
    let job_name = name("own");
    let runtime = format!("weft-base-{job_name}");
    let rendered = with_own_runtime(&*backend, &job_name).await;
    let findings = backend.check(&rendered).await.unwrap();
    assert!(findings.is_empty(), "the dry run, before the runtime is there: {findings:?}");
    let handle = backend.submit(&rendered).await.unwrap();
    let there = cluster.get(&["trainingruntime", &runtime]);
    assert_eq!(there["metadata"]["ownerReferences"][0]["uid"], handle.uid().unwrap());
    assert_eq!(
        there["metadata"]["labels"]["trainer.kubeflow.org/framework"], "torch",
        "as the original has it"
    );
    let pods = poll("the pod", || {
        let pods = cluster.get(&["pods", "-l", &format!("jobset.sigs.k8s.io/jobset-name={job_name}")]);
        (pods["items"] != json!([])).then_some(pods)
    });
    assert_eq!(pods["items"][0]["spec"]["terminationGracePeriodSeconds"], 7);
    // Another job with that name is refused, and the runtime of the first one stays unchanged.
    let second = with_own_runtime(&*backend, &job_name).await;
    assert_eq!(backend.submit(&second).await.unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert!(cluster.kubectl_says(&["get", "trainingruntime", &runtime]).0);
    let running = Running { backend, handle };
    running.phase(JobPhase::Succeeded).await;
    running.delete().await;
    poll("the runtime's end", || {
        (!cluster.kubectl_says(&["get", "trainingruntime", &runtime]).0).then_some(())
    });
}

#[tokio::test]
async fn a_topology_file_is_mounted_from_a_config_map_that_goes_with_the_job() {
    let Some(cluster) = cluster() else { return };
    let backend = cluster.connect().await;
    let table =
        "extends = 'eks-image'\nefa.count = 32\n[pod.topology-file]\ncontent = '<system version=\"1\"/>'";
    let profile = Profiles::builtin().with("file", table.parse().unwrap()).get("file").unwrap();
    let role = Role::worker().nodes(2).gpus_per_node(8).memory("1Gi").command([
        "sh",
        "-c",
        "cat $NCCL_TOPO_FILE; echo",
    ]);
    let spec =
        JobSpec::builder(name("topo")).image(IMAGE).launch(Launch::PerNode).role(role).build().unwrap();
    let mut planned = plan(&*backend, spec).await;
    planned.plan = FabricPlan::new(&planned.spec, &Catalogue::builtin(), &planned.facts, &profile);
    let rendered = backend.render(&planned).unwrap();
    assert!(backend.check(&rendered).await.unwrap().is_empty());
    let handle = backend.submit(&rendered).await.unwrap();
    let map = format!("{}-nccl-topology", handle.name());
    let there = cluster.get(&["configmap", &map]);
    assert_eq!(there["metadata"]["ownerReferences"][0]["uid"], handle.uid().unwrap());
    let running = Running { backend, handle };
    let read = running.follow().await;
    assert_eq!(read.count("<system version=\"1\"/>"), 2, "{read:?}");
    running.delete().await;
    poll("the map's end", || (!cluster.kubectl_says(&["get", "configmap", &map]).0).then_some(()));
}
