//! Cluster facts that are queried before a job is planned.

use std::collections::BTreeSet;

use serde_json::json;
use weftrun_core::backend::{ClusterFacts, Scope};
use weftrun_core::{Error, ErrorKind, Finding, Result, Severity};

use super::client::Client;
use super::kinds::Kind;
use crate::kubernetes::{Cluster, Resource, Right, fold_hidden, namespace_facts, queues, rights};
use crate::private_access;

impl Client {
    /// Returns the kinds that the cluster serves.
    pub async fn served(&self) -> Result<&[Kind]> {
        let cluster = self.cluster().await?;
        let ask = || async {
            if let Some((facts, _)) = self.cache().await?.read::<ClusterFacts>() {
                return Ok(facts.serves.iter().filter_map(|entry| Kind::of_served(entry)).collect());
            }
            let groups: BTreeSet<_> = Kind::ALL.map(|kind| kind.resource().api_version()).into();
            let mut served = Vec::new();
            for api_version in groups {
                let list = match cluster.raw(&format!("/apis/{api_version}")).await {
                    Ok(list) => list,
                    Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Unsupported) => {
                        continue;
                    }
                    Err(error) => return Err(error),
                };
                let Some(resources) = list["resources"].as_array() else {
                    let message = "unexpected answer of the API server: it names no resources";
                    return Err(Error::new(ErrorKind::Protocol, message).with("of", api_version));
                };
                let names: Vec<_> = resources.iter().filter_map(|r| r["name"].as_str()).collect();
                served.extend(Kind::ALL.into_iter().filter(|kind| {
                    kind.resource().api_version() == api_version && names.contains(&kind.resource().plural)
                }));
            }
            Ok(served)
        };
        self.served.get_or_try_init(ask).await.map(Vec::as_slice)
    }

    /// Returns the cluster facts; queries the cluster if there are no fresh ones, or if new ones are
    /// requested.
    pub async fn discover(&self, scope: &Scope) -> Result<ClusterFacts> {
        let mut way = ClusterFacts::default();
        if scope.private_access {
            let cluster = self.cluster().await?;
            private_access::check_url("cluster", &cluster.server, cluster.proxy.as_deref(), &mut way).await;
        }
        let mut facts = match Box::pin(self.known(scope.fresh)).await {
            Err(error) if scope.private_access => {
                let found = private_access::of_answer("cluster", &error, &way.notes);
                way.notes.extend(found);
                return Err(private_access::explain_with_facts(&error, private_access::CODE, way));
            }
            known => known?,
        };
        facts.notes.extend(way.notes);
        facts.extra.extend(way.extra);
        if scope.thorough {
            let served = self.served().await?;
            facts.notes.extend(self.unanswered(self.cluster().await?, served).await);
        } else {
            fold_hidden(&mut facts.notes);
            facts.notes.retain(|note| note.code != "K8S-NO-RIGHT" || note.severity > Severity::Info);
        }
        Ok(facts)
    }

    async fn known(&self, fresh: bool) -> Result<ClusterFacts> {
        let cache = self.cache().await?;
        if fresh {
            cache.forget().await;
        } else if let Some((facts, _)) = cache.read() {
            return Ok(facts);
        }
        let facts = Box::pin(self.ask()).await?;
        cache.write(&facts).await;
        Ok(facts)
    }

    /// Queries all facts that the user may read.
    async fn ask(&self) -> Result<ClusterFacts> {
        let cluster = self.cluster().await?;
        let mut facts = ClusterFacts::default();
        let wanted = wanted_rights();
        let (base, served, allowed) =
            tokio::join!(namespace_facts(cluster, &mut facts), self.served(), rights(cluster, &wanted));
        base?;
        queues(cluster, &mut facts).await?;
        let served = served?;
        facts.serves.extend(served.iter().map(|kind| kind.served_as()));
        facts.ids.insert("namespace".into(), cluster.namespace.clone());
        let answers: Vec<_> = wanted.iter().zip(allowed).collect();
        for (right, allowed) in &answers {
            note_right(&mut facts, right, *allowed, served);
        }
        facts.notes.extend(no_job(&cluster.namespace, served, &answers));
        if served.contains(&Kind::TrainJob) {
            self.trainer(cluster, &mut facts).await;
        }
        Ok(facts)
    }

    /// Reads the Trainer's version, derived from the fields of its kind, and the available runtimes.
    async fn trainer(&self, cluster: &Cluster, facts: &mut ClusterFacts) {
        let schema = cluster.raw("/openapi/v3/apis/trainer.kubeflow.org/v1alpha1").await;
        let spec = schema.as_ref().ok().and_then(|schema| {
            let schemas = schema["components"]["schemas"].as_object()?;
            schemas
                .iter()
                .find(|(name, _)| name.ends_with(".TrainJob"))?
                .1
                .pointer("/properties/spec/properties")
        });
        let has = |field: &str| spec.is_some_and(|spec| spec.get(field).is_some());
        let version = match () {
            // 2.2 and 2.3 have the same fields; the older one's behavior (copy the runtime's resources) is
            // right for both.
            () if has("runtimePatches") => Some("2.2"),
            () if has("podTemplateOverrides") => Some("2.1"),
            () if has("podSpecOverrides") => Some("2.0"),
            () => None,
        };
        if let Some(version) = version {
            facts.extra.insert("trainer-version".into(), json!(version));
        }
        let mut runtimes = Vec::new();
        for (plural, kind, namespaced) in [
            ("clustertrainingruntimes", "ClusterTrainingRuntime", false),
            ("trainingruntimes", "TrainingRuntime", true),
        ] {
            let resource =
                Resource { namespaced, ..Resource::of("trainer.kubeflow.org", "v1alpha1", plural, kind) };
            for mut runtime in cluster.list(&resource, "").await.unwrap_or_default() {
                // Items of a list have no `kind`.
                runtime["kind"] = json!(kind);
                runtimes.push(runtime);
            }
        }
        facts.extra.insert("runtimes".into(), json!(runtimes));
    }
}

/// Notes a missing right, if it would be needed.
fn note_right(facts: &mut ClusterFacts, right: &Right, allowed: Option<bool>, served: &[Kind]) {
    if right.resource == Resource::CONFIG_MAPS {
        // Without the right to set the owner, a created ConfigMap would be left behind.
        let before = facts.extra.get("may-create-configmaps").cloned().unwrap_or(json!(allowed));
        let both = if allowed == Some(false) { json!(allowed) } else { before };
        facts.extra.insert("may-create-configmaps".into(), both);
        return;
    }
    if Resource::COMPANIONS.contains(&right.resource) {
        return note_companion(facts, right, allowed, served);
    }
    let of_kind = Kind::ALL.into_iter().find(|kind| kind.resource() == right.resource);
    if allowed != Some(false) || of_kind.is_some_and(|kind| !served.contains(&kind)) {
        return;
    }
    let what = match right.subresource {
        "" => right.resource.plural.to_owned(),
        sub => format!("{}/{sub}", right.resource.plural),
    };
    facts.notes.push(
        Finding::warning("K8S-NO-RIGHT", format!("you may not {} {what} in this namespace", right.verb))
            .fix("ask your cluster administrator for a Role in this namespace that allows it"),
    );
}

/// Records a missing right to a kind of object that only some jobs create, if the cluster serves that kind. Plans of
/// jobs that do not create it do not show the missing right.
fn note_companion(facts: &mut ClusterFacts, right: &Right, allowed: Option<bool>, served: &[Kind]) {
    let Resource { plural, kind, .. } = right.resource;
    let has_class = |prefix: &str| facts.serves.iter().any(|one| one.starts_with(prefix));
    let needed = match kind {
        "TrainingRuntime" => served.contains(&Kind::TrainJob),
        "ComputeDomain" => has_class("DeviceClass compute-domain"),
        _ => has_class("DeviceClass "),
    };
    if needed && allowed == Some(false) {
        let text = format!(
            "you may not {} {plural} in this namespace; a job that needs its own {kind} cannot be submitted",
            right.verb
        );
        let fix = "ask your cluster administrator for a Role in this namespace that allows it (docs/backends/rbac.yaml has one)";
        facts.notes.push(Finding::info("K8S-NO-RIGHT", text).fix(fix));
    }
}

/// Returns what prevents every job: no kind is served, or the user may create none of those that are.
pub fn no_job(namespace: &str, served: &[Kind], answers: &[(&Right, Option<bool>)]) -> Option<Finding> {
    if served.is_empty() {
        let operators = Kind::ALL.map(Kind::operator).join(", or ");
        return Some(
            Finding::error("K8S-NO-KIND", "the cluster serves no kind of training job")
                .fix(format!("have an administrator install {operators}")),
        );
    }
    let may_make = |kind: &Kind| {
        let asked = |right: &Right| right.verb == "create" && right.resource == kind.resource();
        // If the cluster did not answer, it is tried.
        answers.iter().any(|(right, allowed)| asked(right) && *allowed != Some(false))
    };
    if served.iter().any(may_make) {
        return None;
    }
    let kinds: Vec<_> = served.iter().map(|kind| kind.resource().plural).collect();
    let text = format!("you may create no job in the namespace `{namespace}`: no {}", kinds.join(", no "));
    let fix = "ask your cluster administrator for a Role in this namespace that allows it (docs/backends/rbac.yaml has one), or name another with -n";
    Some(Finding::error("K8S-NO-RIGHT", text).fix(fix))
}

pub fn wanted_rights() -> Vec<Right> {
    let of = |verb, resource, subresource| Right { verb, resource, subresource };
    let mut rights: Vec<_> = Kind::ALL.iter().map(|kind| of("create", kind.resource(), "")).collect();
    rights.extend([
        of("list", Resource::PODS, ""),
        of("watch", Resource::PODS, ""),
        of("get", Resource::PODS, "log"),
        of("list", Resource::EVENTS, ""),
        of("create", Resource::CONFIG_MAPS, ""),
        of("patch", Resource::CONFIG_MAPS, ""),
    ]);
    // They are created before the job, patched to be owned by it, and deleted if the job is refused.
    for companion in Resource::COMPANIONS.into_iter().filter(|one| *one != Resource::CONFIG_MAPS) {
        rights.extend(["create", "get", "patch", "delete"].map(|verb| of(verb, companion, "")));
    }
    rights
}
