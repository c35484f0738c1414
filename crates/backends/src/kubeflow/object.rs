//! The objects that a job consists of: `render` shows them, `check` and `submit` send them.

use serde_json::{Map, Value};
use weftrun_convert::to_yaml;
use weftrun_core::backend::{Document, Language};
use weftrun_core::{Error, ErrorKind, Result};

use super::kinds::Kind;
use super::pod::SUBMISSION;
use crate::kubernetes::{Cluster, Resource};

/// One object of a job.
#[derive(Clone)]
pub struct JobObject {
    pub resource: Resource,
    /// The kind of job; none for an object beside the job.
    pub kind: Option<Kind>,
    pub object: Value,
}

impl JobObject {
    pub fn job(kind: Kind, object: Value) -> Self {
        Self { resource: kind.resource(), kind: Some(kind), object }
    }

    /// Makes an object beside the job.
    pub fn companion(object: Value) -> Result<Self> {
        let kind = object["kind"].as_str();
        let known = Resource::COMPANIONS.into_iter().find(|known| Some(known.kind) == kind);
        let resource = known.ok_or_else(|| {
            Error::new(ErrorKind::InvalidSpec, "this object is not part of a Kubeflow job")
                .with("kind", kind.unwrap_or("none"))
        })?;
        Ok(Self { resource, kind: None, object })
    }

    /// Returns it as it is shown: without the label of the submission, so that `kubectl diff` of it finds the submitted job
    /// unchanged.
    pub fn document(&self) -> Document {
        Document {
            title: self.resource.kind.to_owned(),
            language: Language::Yaml,
            text: to_yaml(&without_submission(&self.object)),
        }
    }

    pub fn name(&self) -> String {
        self.object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
    }

    /// Returns the cluster with the object's own namespace.
    pub fn in_namespace(&self, cluster: &Cluster) -> Cluster {
        match self.object["metadata"]["namespace"].as_str() {
            Some(namespace) => Cluster { namespace: namespace.to_owned(), ..cluster.clone() },
            None => cluster.clone(),
        }
    }
}

/// Returns an object without the label that each submission has its own value of.
fn without_submission(object: &Value) -> Value {
    let Value::Object(fields) = object else { return object.clone() };
    let kept = fields.iter().filter(|(key, _)| *key != SUBMISSION);
    let fields = kept.filter_map(|(key, field)| {
        let shown = match field {
            Value::Object(_) => without_submission(field),
            Value::Array(items) => items.iter().map(without_submission).collect(),
            plain => plain.clone(),
        };
        // What had nothing else.
        let emptied = shown.as_object().is_some_and(Map::is_empty) && shown != *field;
        (!emptied).then(|| (key.clone(), shown))
    });
    Value::Object(fields.collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use weftrun_core::catalogue::Catalogue;
    use weftrun_core::fabric::{Fabric, FabricPlan, Profiles};
    use weftrun_core::spec::{Code, JobSpec, Launch, Role};

    use super::super::config::KubeflowTarget;
    use super::super::render::render;
    use super::*;

    #[test]
    fn a_document_has_no_label_of_the_submission_and_keeps_all_else() {
        let template = |labels: Value| json!({"template": {"metadata": {"labels": labels}, "spec": {"items": [{}], "emptyDir": {}}}});
        let sent = json!({"metadata": {"name": "a", "labels": {SUBMISSION: "1", "team": "x"}}, "spec": template(json!({SUBMISSION: "1"}))});
        let shown = json!({"metadata": {"name": "a", "labels": {"team": "x"}},
            "spec": {"template": {"spec": {"items": [{}], "emptyDir": {}}}}});
        assert_eq!(without_submission(&sent), shown);
    }

    /// The documents, as another program reads them, are the objects that are sent, without the submission's label.
    #[test]
    fn the_documents_are_the_objects_that_are_sent() {
        let node = json!({"name": "node", "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"template": {"spec": {"containers": [{"name": "node", "image": "n"}]}}},
        }});
        let runtime = json!({
            "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "ClusterTrainingRuntime",
            "metadata": {"name": "torch-distributed"},
            "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [node]}}},
        });
        let mut seen = Vec::new();
        for (launch, kind, profile) in [
            (Launch::Torchrun, "pytorchjob", "dgxc"),
            (Launch::Mpi, "mpijob", "dgxc"),
            (Launch::Mpi, "mpijob.v1", "dgxc"),
            (Launch::Torchrun, "trainjob", "roce"),
        ] {
            let profile = Profiles::builtin().get(profile).unwrap();
            let text = "echo 'a: b' # \"c\"\n\ttrue\n\n".to_owned();
            let code = Code::Script { name: "run.py".into(), text };
            let mut spec = JobSpec::builder("sent")
                .image("example.test/mpi:1")
                .launch(launch)
                .fabric(Fabric::Auto)
                .env("YES", "yes")
                .env("NUMBER", "0x10")
                .env("TEXT", " two\nlines: \u{e9} ")
                .role(Role::worker().nodes(4).gpus_per_node(8).memory("64Gi").command(["run.py", "~", ""]))
                .build()
                .unwrap();
            spec.code = Some(code);
            let own = json!({"kind": kind, "scripts": "configmap", "trainer-version": "2.0", "runtimes": [runtime]});
            spec.backend.insert("kubeflow".into(), own);
            let mut planned = weftrun_testkit::planned(spec);
            planned.plan = FabricPlan::new(&planned.spec, &Catalogue::builtin(), &planned.facts, &profile);
            let rendered = render(&planned, &KubeflowTarget::default(), Some("team")).unwrap();
            let objects: &Vec<JobObject> = crate::submit_once::prepared(&rendered).unwrap();
            assert_eq!(rendered.documents.len(), objects.len(), "{kind}");
            for (document, sent) in rendered.documents.iter().zip(objects) {
                let shown: Value = serde_saphyr::from_str(&document.text).unwrap();
                let object = without_submission(&sent.object);
                assert!(sent.object.to_string().contains(SUBMISSION) && sent.object != object, "{kind}");
                assert_eq!(shown.to_string(), object.to_string(), "{kind}");
                assert_eq!(document.title, sent.resource.kind);
                seen.push(sent.resource.kind);
            }
        }
        for kind in ["PyTorchJob", "MPIJob", "TrainJob", "ConfigMap", "TrainingRuntime"] {
            assert!(seen.contains(&kind), "{seen:?}");
        }
    }
}
