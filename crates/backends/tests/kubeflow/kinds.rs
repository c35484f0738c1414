//! What the server stores is what `weftrun mutate` makes of the same job.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use weftrun_core::ErrorKind;
use weftrun_core::backend::{Registry, TargetConfig};
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::{Fabric, FabricPlan, Profiles};
use weftrun_core::spec::{JobSpec, Launch, Role};

use crate::cluster::{cluster, name, of_kind, plan};

fn spec(launch: Launch) -> JobSpec {
    JobSpec::builder(name("efa"))
        .image("example.test/mpi:1")
        .launch(launch)
        .fabric(Fabric::Efa)
        .role(Role::worker().nodes(4).gpus_per_node(8).memory("64Gi").command(["train.py"]))
        .build()
        .unwrap()
}

/// The dry run takes the mutated job of each kind, with the fabric's resources in it.
#[tokio::test]
async fn the_server_takes_mutated_jobs() {
    let Some(cluster) = cluster() else { return };
    let backend = cluster.connect().await;
    for launch in [Launch::Torchrun, Launch::PerNode, Launch::Mpi] {
        let mut planned = plan(&*backend, spec(launch)).await;
        let profile = Profiles::builtin().get("dgxc").unwrap();
        planned.plan = FabricPlan::new(&planned.spec, &Catalogue::builtin(), &planned.facts, &profile);
        let rendered = backend.render(&planned).unwrap();
        assert!(rendered.inexpressible.is_empty(), "{:?}", rendered.inexpressible);
        let text = &rendered.documents[0].text;
        assert!(
            text.contains("vpc.amazonaws.com/efa") && text.contains("hugepages-2Mi"),
            "{launch:?}:\n{text}"
        );
        let findings = backend.check(&rendered).await.unwrap();
        assert!(findings.is_empty(), "{launch:?}: {findings:?}\n{text}");
    }
}

/// The kind is one that fits the launch mode among those the cluster serves, or the user's choice; if there
/// is none, the error names what to install.
#[tokio::test]
async fn the_kind_is_one_that_the_cluster_serves() {
    weftrun_backends::link();
    let state = tempfile::tempdir().unwrap();
    let target = TargetConfig::new("kubeflow", "kubeflow", state.path());
    let backend = (Registry::linked().get("kubeflow").unwrap().connect)(target).await.unwrap();
    let rendered = |launch, kind: Option<&str>, serves: &[&str]| {
        let own = |kind| of_kind(spec(launch), json!({"kind": kind}));
        let mut planned = weftrun_testkit::planned(kind.map_or_else(|| spec(launch), own));
        planned.facts.online = true;
        planned.facts.serves = serves.iter().map(|entry| (*entry).to_owned()).collect();
        backend.render(&planned)
    };
    let torch = "PyTorchJob.kubeflow.org/v1";
    let (mpi1, mpi2) = ("MPIJob.kubeflow.org/v1", "MPIJob.kubeflow.org/v2beta1");
    let train = "TrainJob.trainer.kubeflow.org/v1alpha1";
    let chosen: [(Launch, Option<&str>, &[&str], &str); 8] = [
        (Launch::Torchrun, None, &[torch, mpi2, train], torch),
        (Launch::Torchrun, None, &[mpi2, train], train),
        (Launch::PerRank, None, &[train], train),
        (Launch::PerRank, Some("trainjob"), &[torch, mpi2, train], train),
        (Launch::Mpi, None, &[torch, mpi2], mpi2),
        (Launch::Mpi, None, &[torch, mpi1], mpi1),
        (Launch::Mpi, None, &[mpi1, mpi2], mpi2),
        (Launch::Mpi, Some("mpijob.v1"), &[mpi1, mpi2], mpi1),
    ];
    for (launch, kind, serves, wanted) in chosen {
        let rendered = rendered(launch, kind, serves).unwrap();
        let object: Value = serde_saphyr::from_str(&rendered.documents[0].text).unwrap();
        let (kind, version) = wanted.split_once('.').unwrap();
        assert_eq!((&object["kind"], &object["apiVersion"]), (&json!(kind), &json!(version)), "{serves:?}");
    }
    let missing: [(Launch, Option<&str>, &[&str], &str); 5] = [
        (Launch::Torchrun, None, &[], "Training Operator"),
        (Launch::Torchrun, None, &[mpi2], "Kubeflow Trainer 2"),
        (Launch::Mpi, None, &[], "MPI Operator"),
        (Launch::Mpi, None, &[torch, train], "MPI Operator"),
        (Launch::Torchrun, Some("trainjob"), &[torch], "Kubeflow Trainer 2"),
    ];
    for (launch, kind, serves, install) in missing {
        let error = rendered(launch, kind, serves).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        let hint = &error.hints()[0];
        assert!(hint.contains("install") && hint.contains(install), "{serves:?}: {hint}");
        assert!(!error.message().contains("MPIJob and no MPIJob"), "{error}");
    }
    let other = rendered(Launch::Mpi, Some("mpijob"), &[torch, mpi1]).unwrap_err();
    assert!(other.hints()[1].contains("mpijob.v1"), "{:?}", other.hints());
}

/// What the test cluster does not run (MPIJob v1, other versions of Trainer) is at least what those servers take: the CRDs'
/// schemas, with every field that they do not name refused.
#[tokio::test]
async fn what_is_rendered_fits_the_schema_of_every_version() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/kubeflow-schemas");
    weftrun_backends::link();
    let state = tempfile::tempdir().unwrap();
    let target = TargetConfig::new("kubeflow", "kubeflow", state.path());
    let backend = (Registry::linked().get("kubeflow").unwrap().connect)(target).await.unwrap();
    let profile = Profiles::builtin().get("dgxc").unwrap();
    let trainer = |version: &str| json!({"kind": "trainjob", "trainer-version": version});
    let cases = [
        (
            Launch::Torchrun,
            json!({"ttl-seconds": 60, "suspend": true}),
            "PyTorchJob.v1@training-operator-v1.9.4",
        ),
        (Launch::Torchrun, json!({"gang": "volcano"}), "PyTorchJob.v1@training-operator-v1.9.4"),
        (Launch::PerRank, json!({"tolerations": [{"key": "gpu"}]}), "PyTorchJob.v1@training-operator-v1.9.4"),
        (Launch::Mpi, json!({}), "MPIJob.v2beta1@mpi-operator-v0.8.0"),
        (Launch::Mpi, json!({"kind": "mpijob.v1"}), "MPIJob.v1@training-operator-v1.9.4"),
        (Launch::Torchrun, trainer("2.0"), "TrainJob.v1alpha1@trainer-v2.0.1"),
        (Launch::Torchrun, trainer("2.1"), "TrainJob.v1alpha1@trainer-v2.1.0"),
        (Launch::Torchrun, trainer("2.2"), "TrainJob.v1alpha1@trainer-v2.2.1"),
        (Launch::Torchrun, trainer("2.3"), "TrainJob.v1alpha1@trainer-v2.3.0"),
    ];
    for (launch, settings, file) in cases {
        let text = std::fs::read_to_string(folder.join(format!("{file}.json"))).unwrap();
        let mut schema = serde_json::from_str::<Value>(&text).unwrap()["openAPIV3Schema"].take();
        close(&mut schema);
        let mut spec = of_kind(spec(launch), settings);
        if !file.starts_with("TrainJob") {
            spec.time_limit = Some(Duration::from_secs(3600));
            (spec.queue, spec.priority) = (Some("team".into()), Some("high".into()));
        }
        let mut planned = weftrun_testkit::planned(spec);
        planned.plan = FabricPlan::new(&planned.spec, &Catalogue::builtin(), &planned.facts, &profile);
        let rendered = backend.render(&planned).unwrap();
        let object: Value = serde_saphyr::from_str(&rendered.documents[0].text).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let errors: Vec<_> =
            validator.iter_errors(&object).map(|e| format!("{}: {e}", e.instance_path())).collect();
        assert!(errors.is_empty(), "{file}: {errors:#?}\n{}", rendered.documents[0].text);
    }
}

/// Objects whose fields a schema names have no others: the server would drop those without a word.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            let open = map.contains_key("additionalProperties")
                || map.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
            if map.get("properties").is_some_and(Value::is_object) && !open {
                map.insert("additionalProperties".into(), Value::Bool(false));
            }
            map.values_mut().for_each(close);
        }
        Value::Array(list) => list.iter_mut().for_each(close),
        _ => {}
    }
}
