//! What goes wrong on real clusters. Each: right phase, right kind of error, what to do, nothing twice, no line lost.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use serde_json::json;
use weftrun_core::ErrorKind;
use weftrun_core::backend::{ClusterFacts, Scope};
use weftrun_core::job::{Action, JobEvent, JobFilter, JobPhase};
use weftrun_core::log::LogOptions;

use crate::cluster::{PATIENCE, Running, cluster, job, of_kind, plan, poll, restarting};
use crate::line::Line;
use crate::losing::Losing;
use crate::refusing::{Refusing, Turn};

/// The connection is cut after the create: one job, and its handle is given.
#[tokio::test]
async fn a_lost_answer_makes_one_job() {
    let Some(cluster) = cluster() else { return };
    let losing = Losing::start(&cluster).await;
    let backend = cluster.connect_to(cluster.target(&losing.proxy.kubeconfig)).await.unwrap();
    let rendered = backend.render(&plan(&*backend, job("lost", 1, "sleep 30")).await).unwrap();
    let handle = backend.submit(&rendered).await.unwrap();
    assert_eq!(losing.creates.load(Ordering::SeqCst), 1, "sent again");
    assert!(!losing.armed.load(Ordering::SeqCst), "nothing was lost");
    let ours = backend.list(&JobFilter::all()).await.unwrap();
    assert_eq!(ours.iter().filter(|job| job.submission.as_ref() == Some(&rendered.submission)).count(), 1);
    backend.act(&handle, Action::Delete).await.unwrap();
}

/// The kernel kills a container that uses too much memory.
#[tokio::test]
async fn out_of_memory_is_said() {
    let Some(cluster) = cluster() else { return };
    let script = "echo eat; x=$(head -c 100000000 /dev/zero | tr '\\0' x); echo ${#x}";
    let mut spec = job("oom", 1, script);
    spec.roles[0].memory = Some("20Mi".into());
    let running = cluster.submit(spec).await;
    let (end, _) = running.wait().await;
    assert_eq!(end.phase, JobPhase::Failed);
    let detail = running.backend.describe(&running.handle).await.unwrap();
    assert!(detail.findings.iter().any(|finding| finding.code == "K8S-OOM"), "{:?}", detail.findings);
    running.delete().await;
}

/// The kubelet evicts a pod that fills the node's disk: it failed by that, and not by a second attempt that never was.
#[tokio::test]
async fn a_pod_that_the_node_evicts() {
    let Some(cluster) = cluster() else { return };
    let mut spec =
        job("evict", 1, "echo begin; head -c 30000000 /dev/zero > /tmp/big; echo wrote; sleep 600");
    spec.roles[0].resources.insert("ephemeral-storage".into(), "1Mi".into());
    let running = cluster.submit(spec).await;
    let (read, (end, events)) = tokio::join!(running.follow(), running.wait());
    assert_eq!(end.phase, JobPhase::Failed, "{end:?}");
    assert!(end.reason.contains("Evicted"), "{end:?}");
    assert_eq!((read.count("begin"), read.count("wrote")), (1, 1), "{read:?}");
    assert!(read.marks.iter().all(|(_, attempt, _)| *attempt == 0), "{:?}", read.marks);
    assert!(!events.iter().any(|event| matches!(event, JobEvent::Attempt { .. })), "{events:?}");
    let detail = running.backend.describe(&running.handle).await.unwrap();
    let evicted = detail.findings.iter().find(|finding| finding.code == "K8S-EVICTED");
    assert!(evicted.unwrap().fix.as_ref().unwrap().text.contains("storage"), "{:?}", detail.findings);
    running.delete().await;
}

/// The Eviction API (a drained node): the operator makes the pod again, which is followed too.
#[tokio::test]
async fn a_pod_that_is_drained_away() {
    let Some(cluster) = cluster() else { return };
    let script =
        "trap 'echo drained; exit 143' TERM; echo begin; for i in $(seq 60); do sleep 0.3; done; echo end";
    let running = cluster.submit(restarting(job("drain", 1, script), 3)).await;
    running.phase(JobPhase::Running).await;
    let pod = format!("{}-worker-0", running.handle.name());
    // Once its log is followed: of a pod that is gone before, nothing can be read.
    let evicting = async {
        tokio::time::sleep(std::time::Duration::from_secs(6)).await;
        let eviction = tempfile::NamedTempFile::new().unwrap();
        let text = format!(
            "{{\"apiVersion\":\"policy/v1\",\"kind\":\"Eviction\",\"metadata\":{{\"name\":\"{pod}\"}}}}"
        );
        std::fs::write(eviction.path(), text).unwrap();
        let path = format!("/api/v1/namespaces/research/pods/{pod}/eviction");
        cluster.kubectl(&["create", "--raw", &path, "-f", &eviction.path().display().to_string()]);
    };
    let (read, (end, _), ()) = tokio::join!(running.follow(), running.wait(), evicting);
    assert_eq!(end.phase, JobPhase::Succeeded, "{end:?}");
    assert_eq!((read.count("begin"), read.count("drained"), read.count("end")), (2, 1, 1), "{read:?}");
    running.delete().await;
}

/// No rights in another namespace.
#[tokio::test]
async fn no_rights_is_a_matter_of_credentials() {
    let Some(cluster) = cluster() else { return };
    let mut target = cluster.target(&cluster.kubeconfig("researcher"));
    target.namespace = Some("other".into());
    let backend = cluster.connect_to(target).await.unwrap();
    let facts = backend.discover(&Scope::default()).await.unwrap();
    assert!(facts.notes.iter().any(|note| note.code == "K8S-NO-RIGHT"), "{:?}", facts.notes);
    // Missing rights to objects that only some jobs create are shown by `doctor`, not in each plan.
    let about_runtimes = |facts: &ClusterFacts| {
        facts.notes.iter().any(|note| note.message.contains("create trainingruntimes"))
    };
    assert!(!about_runtimes(&facts), "{:?}", facts.notes);
    let mut scope = Scope::default();
    scope.thorough = true;
    let facts = backend.discover(&scope).await.unwrap();
    assert!(about_runtimes(&facts), "{:?}", facts.notes);
    let own = cluster.connect().await.discover(&scope).await.unwrap();
    assert!(!about_runtimes(&own), "{:?}", own.notes);
    let rendered = backend.render(&plan(&*backend, job("rights", 1, "true")).await).unwrap();
    let error = backend.check(&rendered).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Credentials, "{error}");
    assert!(error.hints()[0].contains("Role"), "{:?}", error.hints());
}

/// A token that is not, or no longer, valid.
#[tokio::test]
async fn an_expired_token_says_log_in() {
    let Some(cluster) = cluster() else { return };
    let backend = cluster.connect_to(cluster.target(&cluster.expired())).await.unwrap();
    let error = backend.discover(&Scope::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Credentials, "{error}");
    assert!(error.hints()[0].contains("log in again"));
}

/// A kind that is not served, and one that a webhook refuses.
#[tokio::test]
async fn what_the_cluster_does_not_take_is_refused_before_it_is_sent() {
    let Some(cluster) = cluster() else { return };
    let backend = cluster.connect().await;
    let v1 = plan(&*backend, of_kind(job("v1", 1, "true"), json!({"kind": "mpijob.v1"}))).await;
    let error = backend.render(&v1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.hints()[0].contains("install"), "{:?}", error.hints());
    let runtime = json!({"kind": "trainjob", "runtime": "nope"});
    let rendered = backend.render(&plan(&*backend, of_kind(job("rt", 1, "true"), runtime)).await).unwrap();
    let findings = backend.check(&rendered).await.unwrap();
    assert!(findings.iter().any(|finding| finding.message.contains("nope")), "{findings:?}");
}

/// 9: the API server is killed and comes back while a job is followed: the output is complete, and nothing is twice.
#[tokio::test(flavor = "multi_thread")]
async fn alone_f09_the_api_server_dies_while_following() {
    let Some(cluster) = cluster() else { return };
    let running = cluster
        .submit(job("apidown", 2, "for i in $(seq 60); do echo $NODE_RANK step $i; sleep 0.5; done"))
        .await;
    running.phase(JobPhase::Running).await;
    let again = cluster.clone();
    let killing = async {
        // Both streams are open by then; a server that is not there at the start is an error of its own.
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        tokio::task::spawn_blocking(move || again.restart_api_server()).await.unwrap();
    };
    let (read, (end, events), ()) = tokio::join!(running.follow(), running.wait(), killing);
    assert_eq!(end.phase, JobPhase::Succeeded);
    for rank in 0..2 {
        for step in 1..=60 {
            assert_eq!(
                read.count(&format!("{rank} step {step}")),
                1,
                "rank {rank} step {step}: {:?}",
                read.marks
            );
        }
    }
    let lost = |event: &JobEvent| matches!(event, JobEvent::Disconnected { .. });
    assert!(events.iter().any(lost), "the watch did not say that it was cut off");
    running.delete().await;
}

fn is(event: &JobEvent, of: &Running, phase: JobPhase) -> bool {
    matches!(event, JobEvent::Status { job } if job.handle == of.handle && job.phase == phase)
}

/// A watch that was interrupted for so long that the server has dropped its position (410 Gone) lists again:
/// objects deleted meanwhile are reported as gone, and the others continue.
#[tokio::test(flavor = "multi_thread")]
async fn alone_a_watch_that_is_too_old_lists_again() {
    let Some(cluster) = cluster() else { return };
    let line = Line::start(&cluster).await;
    let stays = cluster.submit(job("stays", 1, "while [ ! -e /tmp/end ]; do sleep 0.2; done")).await;
    let goes = cluster.submit(job("goes", 1, "sleep 600")).await;
    stays.phase(JobPhase::Running).await;
    goes.phase(JobPhase::Running).await;
    let backend = cluster.connect_to(cluster.target(&line.kubeconfig)).await.unwrap();
    let mut filter = JobFilter::one(&stays.handle);
    filter.handles.push(goes.handle.clone());
    let mut watch = backend.watch(filter);
    let mut events = Vec::new();
    let (mut cut, mut ended) = (false, false);
    let jobs = "/apis/kubeflow.org/v1/namespaces/research/pytorchjobs";
    let watching = async {
        while let Some(event) = watch.next().await {
            let event = event.unwrap();
            let gone = matches!(&event, JobEvent::Gone { job } if *job == goes.handle);
            events.push(event);
            let runs = |job: &Running| events.iter().any(|event| is(event, job, JobPhase::Running));
            if !cut && runs(&stays) && runs(&goes) {
                cut = true;
                line.cut();
                let version =
                    cluster.get(&["pytorchjob", stays.handle.name()])["metadata"]["resourceVersion"].clone();
                cluster.kubectl(&["delete", "pytorchjob", goes.handle.name()]);
                // A server that has just started remembers nothing of what was before.
                cluster.restart_api_server();
                let old =
                    format!("{jobs}?watch=1&timeoutSeconds=2&resourceVersion={}", version.as_str().unwrap());
                let (_, said) = cluster.kubectl_says(&["get", "--raw", &old]);
                assert!(said.contains("410") || said.contains("too old"), "the server continues it: {said}");
                line.mend();
            }
            if gone && !ended {
                ended = true;
                let pod = format!("{}-worker-0", stays.handle.name());
                poll("the end", || {
                    cluster.kubectl_says(&["exec", &pod, "--", "touch", "/tmp/end"]).0.then_some(())
                });
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(240), watching)
        .await
        .expect("the watch does not end");
    assert!(ended, "the job that went is not told to be gone: {events:?}");
    let last = events.iter().rev().find_map(JobEvent::phase);
    assert_eq!(last, Some(JobPhase::Succeeded), "{events:?}");
    stays.delete().await;
}

/// The API server is killed while a job is being submitted: there is one, and its handle is given.
#[tokio::test(flavor = "multi_thread")]
async fn alone_the_api_server_dies_while_submitting() {
    let Some(cluster) = cluster() else { return };
    let backend = cluster.connect().await;
    let rendered = backend.render(&plan(&*backend, job("midway", 1, "sleep 60")).await).unwrap();
    let words = cluster.kill("kube-apiserver");
    let again = cluster.clone();
    let starting = tokio::task::spawn_blocking(move || {
        std::thread::sleep(std::time::Duration::from_secs(3));
        again.start("kube-apiserver", words);
    });
    let handle = backend.submit(&rendered).await.unwrap();
    starting.await.unwrap();
    let ours = backend.list(&JobFilter::all()).await.unwrap();
    assert_eq!(ours.iter().filter(|job| job.submission.as_ref() == Some(&rendered.submission)).count(), 1);
    backend.act(&handle, Action::Delete).await.unwrap();
}

/// Once the cluster facts are cached, a submit sends two requests: the dry run and the create.
#[tokio::test]
async fn a_second_submit_needs_two_requests() {
    let Some(cluster) = cluster() else { return };
    let losing = Losing::start(&cluster).await;
    losing.armed.store(false, Ordering::SeqCst);
    let connect = async || cluster.connect_to(cluster.target(&losing.proxy.kubeconfig)).await.unwrap();
    let submit = async |what: &str| {
        let backend = connect().await;
        let before = losing.requests.load(Ordering::SeqCst);
        let rendered = backend.render(&plan(&*backend, job(what, 1, "true")).await).unwrap();
        assert!(backend.check(&rendered).await.unwrap().is_empty());
        let handle = backend.submit(&rendered).await.unwrap();
        (losing.requests.load(Ordering::SeqCst) - before, backend, handle)
    };
    let (first, backend, handle) = submit("req-a").await;
    backend.act(&handle, Action::Delete).await.unwrap();
    assert!(first > 2, "nothing was asked: {first}");
    let (second, backend, handle) = submit("req-b").await;
    backend.act(&handle, Action::Delete).await.unwrap();
    assert_eq!(second, 2, "the first needed {first}");
}

/// Whether a webhook adds EFA is found out by a pod that is never stored, where one may make pods but not list webhooks.
#[tokio::test]
async fn a_probe_finds_whether_efa_is_added() {
    let Some(cluster) = cluster() else { return };
    let rules = "[{apiGroups: ['', kubeflow.org], resources: [pods, pytorchjobs], verbs: [create, get, list, watch, delete]}]";
    let kubeconfig = cluster.account("prober", rules);
    let mut target = cluster.target(&kubeconfig);
    let state = tempfile::tempdir().unwrap();
    target.state_dir = state.path().into();
    let backend = cluster.connect_to(target).await.unwrap();
    let facts = backend.discover(&Scope::default()).await.unwrap();
    assert_eq!(facts.efa_webhook, Some(false), "{:?}", facts.notes);
    assert!(
        cluster.get(&["pods", "-l", "training.kubeflow.org/job-name=weftrun-probe"])["items"]
            .as_array()
            .unwrap()
            .is_empty()
    );
}

/// A user who may read the cluster's own objects gets the facts behind a plan; one of them is that EFA is
/// assigned by resource claims.
#[tokio::test]
async fn an_administrator_sees_nodes_levels_and_device_classes() {
    let Some(cluster) = cluster() else { return };
    let class = "efa.networking.k8s.aws";
    cluster.apply(&format!(
        "{{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {{name: {class}}}, \
          spec: {{selectors: [{{cel: {{expression: \"device.driver == '{class}'\"}}}}]}}}}"
    ));
    // It is for a namespace that is not there, so that no pod of other tests is sent to it.
    cluster.apply(
        "{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: {name: auto-efa-injector}, \
          webhooks: [{name: efa.weftrun.test, admissionReviewVersions: [v1], sideEffects: None, failurePolicy: Ignore, \
          clientConfig: {url: 'https://127.0.0.1:1/'}, namespaceSelector: {matchLabels: {no: such}}, \
          rules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}]}",
    );
    let mut target = cluster.target(&cluster.kubeconfig("admin"));
    let state = tempfile::tempdir().unwrap();
    (target.state_dir, target.namespace) = (state.path().into(), Some("research".into()));
    let backend = cluster.connect_to(target).await.unwrap();
    let facts = backend.discover(&Scope::default()).await.unwrap();
    cluster.kubectl(&["delete", "deviceclass", class]);
    cluster.kubectl(&["delete", "mutatingwebhookconfiguration", "auto-efa-injector"]);
    assert_eq!(facts.efa_webhook, Some(true));
    let mut fresh = Scope::default();
    fresh.fresh = true;
    assert_eq!(backend.discover(&fresh).await.unwrap().efa_webhook, Some(false));
    let dra = facts.notes.iter().find(|note| note.code == "K8S-DRA-EFA");
    assert!(dra.unwrap().fix.as_ref().unwrap().text.contains("efa.devices"), "{:?}", facts.notes);
    let nodes =
        facts.nodes.iter().find(|group| group.instance_type.as_deref() == Some("p5.48xlarge")).unwrap();
    assert_eq!(nodes.allocatable["vpc.amazonaws.com/efa"], "32", "{nodes:?}");
    assert_eq!(facts.pod_security.as_deref(), Some("privileged"));
    assert!(facts.priorities.iter().any(|class| class == "system-node-critical"), "{:?}", facts.priorities);
    assert!(!facts.notes.iter().any(|note| note.code == "K8S-HIDDEN"), "{:?}", facts.notes);
}

/// One watch each of the jobs, the pods and the events, regardless of the number of jobs: for one more job
/// only its object is read.
#[tokio::test]
async fn many_jobs_are_watched_by_as_many_requests_as_one() {
    let Some(cluster) = cluster() else { return };
    let losing = Losing::start(&cluster).await;
    losing.armed.store(false, Ordering::SeqCst);
    let mut running = Vec::new();
    for _ in 0..3 {
        running.push(cluster.submit(job("watched", 1, "sleep 600")).await);
    }
    let asked = async |jobs: &[Running]| {
        let backend = cluster.connect_to(cluster.target(&losing.proxy.kubeconfig)).await.unwrap();
        let before = losing.requests.load(Ordering::SeqCst);
        let mut filter = JobFilter::default();
        filter.handles = jobs.iter().map(|job| job.handle.clone()).collect();
        let mut watch = backend.watch(filter);
        let mut run = std::collections::BTreeSet::new();
        while run.len() < jobs.len() {
            let event = watch.next().await.unwrap().unwrap();
            run.extend(
                jobs.iter()
                    .filter(|job| is(&event, job, JobPhase::Running))
                    .map(|job| job.handle.to_string()),
            );
        }
        // The events may come before the last stream is requested: counted is what was sent once nothing more is sent.
        let mut sent = losing.requests.load(Ordering::SeqCst);
        loop {
            // Events do not shorten the pause: a busy machine sends the last request seconds after the first.
            let until = tokio::time::Instant::now() + Duration::from_secs(6);
            while let Ok(Some(_)) = tokio::time::timeout_at(until, watch.next()).await {}
            let now = losing.requests.load(Ordering::SeqCst);
            if now == sent {
                return sent - before;
            }
            sent = now;
        }
    };
    for job in &running {
        job.phase(JobPhase::Running).await;
    }
    let (one, all) = (asked(&running[..1]).await, asked(&running).await);
    // Each job of the filter is looked up by its handle.
    assert_eq!(all - one, 2, "{one} requests for one job, {all} for three");
    for job in running {
        job.delete().await;
    }
}

/// The names and amounts in a job are compared with the cluster before it is sent: queues, if there is a
/// queueing system, and quotas.
#[tokio::test]
async fn queues_priorities_and_quotas_are_looked_at_before() {
    let Some(cluster) = cluster() else { return };
    // Kueue's kind without Kueue (https://kueue.sigs.k8s.io/docs/concepts/local_queue/, 2026-11-21).
    cluster.apply(
        "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: localqueues.kueue.x-k8s.io, \
          annotations: {api-approved.kubernetes.io: 'https://github.com/kubernetes-sigs/kueue'}}, \
          spec: {group: kueue.x-k8s.io, scope: Namespaced, names: {kind: LocalQueue, plural: localqueues}, versions: [{name: v1beta1, \
          served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}",
    );
    let spaces = ["weft-queues", "weft-no-queues"];
    cluster.apply(
        &spaces
            .map(|name| format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}"))
            .join("\n---\n"),
    );
    let of = "namespace: weft-queues";
    poll("the kind", || cluster.kubectl_says(&["get", "localqueues.kueue.x-k8s.io"]).0.then_some(()));
    cluster.apply(&format!(
        "{{apiVersion: kueue.x-k8s.io/v1beta1, kind: LocalQueue, metadata: {{name: team-a, {of}}}, spec: {{clusterQueue: all}}}}\n---\n\
         {{apiVersion: v1, kind: ResourceQuota, metadata: {{name: gpus, {of}}}, spec: {{hard: {{requests.nvidia.com/gpu: 8}}}}}}"
    ));
    let quota = || cluster.get(&["-n", "weft-queues", "resourcequota", "gpus"])["status"]["hard"].is_object();
    poll("the quota", || quota().then_some(()));
    let codes = async |namespace: &str, queue: &str, priority: &str, gpus: u32| {
        let mut target = cluster.target(&cluster.kubeconfig("admin"));
        let state = tempfile::tempdir().unwrap();
        (target.state_dir, target.namespace) = (state.path().into(), Some(namespace.into()));
        let backend = cluster.connect_to(target).await.unwrap();
        let mut spec = job("ahead", 2, "true");
        spec.roles[0].gpus_per_node = gpus;
        (spec.queue, spec.priority) = (Some(queue.into()), Some(priority.into()));
        let planned = plan(&*backend, spec).await;
        let found = backend.render(&planned).unwrap().findings;
        let said: Vec<_> =
            found.iter().map(|finding| (finding.code.clone(), finding.fix.clone().unwrap().text)).collect();
        (planned.facts, said)
    };
    let (facts, none) = codes("weft-queues", "team-a", "system-node-critical", 4).await;
    assert!(none.is_empty(), "{none:?}");
    assert!(facts.queues.iter().any(|queue| queue.name == "team-a" && queue.up), "{:?}", facts.queues);
    let (_, all) = codes("weft-queues", "team-b", "system-node-critcal", 8).await;
    let seen: Vec<&str> = all.iter().map(|(code, _)| code.as_str()).collect();
    assert_eq!(seen, ["K8S-PRIORITY", "K8S-QUEUE", "K8S-QUOTA"], "{all:?}");
    assert!(all[1].1.contains("`team-a`"), "{all:?}");
    let (_, other) = codes("weft-no-queues", "team-a", "system-node-critical", 8).await;
    assert!(
        other.len() == 1 && other[0].0 == "K8S-QUEUE" && other[0].1.contains("there is none"),
        "{other:?}"
    );
    cluster.kubectl(&["delete", "--wait=false", "crd", "localqueues.kueue.x-k8s.io"]);
    for name in spaces {
        cluster.kubectl(&["delete", "--wait=false", "namespace", name]);
    }
}

/// A job that is submitted suspended makes no pods until it is resumed, and is removed when its time after the end is over.
#[tokio::test]
async fn a_suspended_job_waits_and_an_ended_one_goes() {
    let Some(cluster) = cluster() else { return };
    let settings = json!({"suspend": true, "ttl-seconds": 2});
    let running = cluster.submit(of_kind(job("later", 1, "echo now"), settings)).await;
    running.phase(JobPhase::Suspended).await;
    let name = running.handle.name().to_owned();
    let pods = format!("training.kubeflow.org/job-name={name}");
    assert!(cluster.get(&["pods", "-l", &pods])["items"].as_array().unwrap().is_empty());
    running.backend.act(&running.handle, Action::Resume).await.unwrap();
    let gone = |event: &JobEvent| {
        matches!(event, JobEvent::Gone { .. }) || event.phase() == Some(JobPhase::Succeeded)
    };
    running.until("its end", gone).await;
    poll("its removal", || (!cluster.kubectl_says(&["get", "pytorchjob", &name]).0).then_some(()));
}

/// A busy API server rejects requests: reads are repeated after 429, 503 and a reset, a create after 429, and
/// after as long as the server requests.
#[tokio::test]
async fn requests_that_are_turned_away_are_sent_again() {
    let Some(cluster) = cluster() else { return };
    let running = cluster.submit(job("busy", 1, "sleep 600")).await;
    let refusing = Refusing::start(&cluster).await;
    let backend = cluster.connect_to(cluster.target(&refusing.proxy.kubeconfig)).await.unwrap();
    for turns in [&[Turn::Later][..], &[Turn::Unavailable], &[Turn::Reset], &[Turn::Reset, Turn::Unavailable]]
    {
        refusing.turn_away(turns);
        backend.list(&JobFilter::one(&running.handle)).await.unwrap();
        refusing.turn_away(turns);
        backend.describe(&running.handle).await.unwrap();
        assert!(refusing.done(), "{turns:?}");
    }
    let rendered = backend.render(&plan(&*backend, job("busy-b", 1, "true")).await).unwrap();
    for turn in [Turn::Later, Turn::Unavailable, Turn::Reset] {
        refusing.turn_away(&[turn]);
        let findings = backend.check(&rendered).await.unwrap();
        assert!(findings.is_empty() && refusing.done(), "{turn:?}: {findings:?}");
        // The start of `wait`: the look for the job passes, the lists of jobs, pods and events do not.
        refusing.turn_away(&[Turn::Pass, turn, turn, turn]);
        let mut events = backend.watch(JobFilter::one(&running.handle));
        let first = tokio::time::timeout(PATIENCE, events.next()).await.unwrap();
        assert!(matches!(first, Some(Ok(_))) && refusing.done(), "{turn:?}: {first:?}");
        drop(events);
        // The log itself, after the job and its pods.
        refusing.turn_away(&[Turn::Pass, Turn::Pass, turn]);
        let read: Vec<_> = backend.logs(&running.handle, LogOptions::default()).collect().await;
        assert!(read.iter().all(Result::is_ok) && refusing.done(), "{turn:?}: {read:?}");
        let doomed = cluster.submit(job("busy-c", 1, "sleep 600")).await;
        refusing.turn_away(&[Turn::Pass, turn]);
        backend.act(&doomed.handle, Action::Delete).await.unwrap();
        assert!(refusing.done(), "{turn:?}");
    }
    let before = refusing.creates.load(Ordering::SeqCst);
    refusing.turn_away(&[Turn::Later, Turn::Later]);
    let began = std::time::Instant::now();
    let handle = backend.submit(&rendered).await.unwrap();
    assert!(began.elapsed() >= std::time::Duration::from_secs(2), "Retry-After was not kept");
    assert_eq!(refusing.creates.load(Ordering::SeqCst) - before, 3);
    let ours = backend.list(&JobFilter::all()).await.unwrap();
    assert_eq!(ours.iter().filter(|job| job.submission.as_ref() == Some(&rendered.submission)).count(), 1);
    backend.act(&handle, Action::Delete).await.unwrap();
    running.delete().await;
}

/// Preempted, drained, deleted: the job's report names class, pod and node, while the pod ends and after it is gone.
#[tokio::test(flavor = "multi_thread")]
async fn alone_what_takes_pods_from_a_job_is_said() {
    let Some(cluster) = cluster() else { return };
    cluster.apply(
        "{apiVersion: v1, kind: List, items: [\
        {apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: taken-low}, value: 10},\
        {apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: taken-high}, value: 1000}]}",
    );
    let finding = async |running: &Running| {
        let detail = running.backend.describe(&running.handle).await.unwrap();
        let found = detail
            .findings
            .iter()
            .find(|finding| ["K8S-PREEMPTED", "K8S-DRAINED", "K8S-DELETED"].contains(&finding.code.as_str()));
        let found = found.unwrap_or_else(|| panic!("{detail:?}")).clone();
        let pod = found.subject.clone().unwrap();
        let replica = detail.replicas.iter().find(|replica| replica.name == pod);
        assert!(replica.is_some_and(|replica| replica.node.is_some()), "{detail:?}");
        assert_eq!(detail.summary.phase, JobPhase::Failed, "{detail:?}");
        found
    };
    let gone =
        |pod: &str| poll("the pod is gone", || (!cluster.kubectl_says(&["get", "pod", pod]).0).then_some(()));
    for (what, while_it_ends, code) in [
        ("preempt", "K8S-PREEMPTED", "K8S-PREEMPTED"),
        ("drain", "K8S-DRAINED", "K8S-DELETED"),
        ("delete", "K8S-DELETED", "K8S-DELETED"),
    ] {
        let mut spec = job(what, 1, "sleep 600");
        spec.roles[0].gpus_per_node = 8;
        spec.priority = Some("taken-low".into());
        spec.backend
            .insert("kubeflow".into(), json!({"node-selector": {"kubernetes.io/hostname": "node-2"}}));
        let running = cluster.submit(spec).await;
        running.phase(JobPhase::Running).await;
        let pod = format!("{}-worker-0", running.handle.name());
        match what {
            "preempt" => cluster.apply("{apiVersion: v1, kind: Pod, metadata: {name: taker}, spec: {priorityClassName: taken-high, \
                nodeSelector: {kubernetes.io/hostname: node-2}, terminationGracePeriodSeconds: 0, containers: [{name: c, \
                image: 'busybox:1.36', command: [sleep, '600'], resources: {limits: {nvidia.com/gpu: 8}}}]}}"),
            "drain" => {
                let eviction = format!("{{\"apiVersion\": \"policy/v1\", \"kind\": \"Eviction\", \"metadata\": {{\"name\": \"{pod}\", \"namespace\": \"research\"}}}}");
                let file = tempfile::NamedTempFile::new().unwrap();
                std::fs::write(file.path(), eviction).unwrap();
                let path = format!("/api/v1/namespaces/research/pods/{pod}/eviction");
                cluster.kubectl(&["create", "--raw", &path, "-f", &file.path().display().to_string()]);
            }
            _ => drop(cluster.kubectl(&["delete", "pod", &pod, "--wait=false"])),
        }
        running.phase(JobPhase::Failed).await;
        assert_eq!(finding(&running).await.code, while_it_ends, "{what}");
        gone(&pod);
        let found = finding(&running).await;
        assert_eq!(found.code, code, "{what}");
        assert!(found.message.contains(&pod) && found.message.contains("node-2"), "{found:?}");
        if what == "preempt" {
            for part in ["research/taker", "priority 1000 (taken-high)"] {
                assert!(found.message.contains(part), "{found:?}");
            }
            cluster.kubectl(&["delete", "pod", "taker", "--now"]);
        }
        running.delete().await;
    }
}
