//! The laws of the mutation, over generated objects and over the manifests of `tests/cases/mutate`.
//!
//! - A second pass does not change a byte.
//! - A rule that is off adds nothing.
//! - The result depends only on the arguments.
//! - What is skipped or refused is byte for byte unchanged.
//! - Only what the ops name differs, and it is what a backend makes of the same ops.
//! - `lint` finds no error afterwards that it did not find before.
//! - What was valid against the CRD's schema is still valid.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::needless_for_each,
    clippy::collapsible_if,
    reason = "tests fail by panicking, and say when they are skipped"
)]

mod hostile;
mod kinds;
mod knocked;
mod shells;

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::{Value as Json, json};
use weftrun_convert::{
    MutateOptions, MutatedJob, Splitter, Start, TrainerVersion, apply_ops, lint_document, mutate,
};
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::{Fabric, Gid, Inject, Profile, Profiles, RuleSetting, Stack, Webhook};
use weftrun_core::request::{FabricRequest, RULES};
use weftrun_core::span::yaml_documents;

/// One way to call the mutation.
#[derive(Clone, Debug, Default)]
struct Call {
    /// Empty where the evidence in the object chooses it.
    profile: String,
    options: FabricRequest,
    trainer: Option<&'static str>,
    runtimes: Vec<Json>,
}

impl Call {
    fn with<T>(&self, run: impl FnOnce(&MutateOptions<'_>) -> T) -> T {
        let (profiles, catalogue) = (Profiles::builtin(), Catalogue::builtin());
        let sites = self.profile.is_empty().then(|| profiles.of_sites().unwrap());
        let profile = if sites.is_some() { Profile::default() } else { profiles.get(&self.profile).unwrap() };
        run(&MutateOptions {
            trainer: self.trainer.and_then(TrainerVersion::parse),
            runtimes: &self.runtimes,
            by_evidence: sites.as_deref(),
            ..MutateOptions::offline(&profile, &self.options, &catalogue)
        })
    }
}

fn run(text: &str, call: &Call) -> Result<(String, Vec<MutatedJob>), String> {
    call.with(|settings| {
        let (mut new, mut jobs) = (String::new(), Vec::new());
        for document in documents(text) {
            let done = mutate(&document, Start::of("x.yaml"), settings)
                .map_err(|error| error.message().to_owned())?;
            new.push_str(&done.text);
            jobs.extend(done.jobs);
        }
        Ok((new, jobs))
    })
}

/// Returns the errors that `lint` finds with the settings of a call.
fn errors(text: &str, call: &Call) -> Vec<(String, String)> {
    call.with(|settings| {
        let found = documents(text)
            .into_iter()
            .flat_map(|document| lint_document(&document, Start::of("x.yaml"), settings));
        let errors = found.filter(weftrun_core::Finding::is_error);
        errors.map(|one| (one.code, one.subject.unwrap_or_default())).collect()
    })
}

/// Returns the documents of a text, split as the command line splits a stream.
fn documents(text: &str) -> Vec<String> {
    let mut splitter = Splitter::default();
    splitter.push(text.as_bytes());
    splitter.finish();
    std::iter::from_fn(|| splitter.next_document()).map(|bytes| String::from_utf8(bytes).unwrap()).collect()
}

/// Checks laws 1 to 4 for one text and one call.
fn holds(text: &str, call: &Call) -> Result<(String, Vec<MutatedJob>), String> {
    let (after, jobs) = run(text, call)?;
    let (same, _) = run(text, call)?;
    if same != after {
        return Err("two runs differ".to_owned());
    }
    let (again, second) = run(&after, call)?;
    if again != after {
        let actions: Vec<_> = second.iter().flat_map(|job| job.actions.clone()).collect();
        return Err(format!("a second pass did {actions:?}\n--- first\n{after}\n--- second\n{again}"));
    }
    if jobs.iter().all(|job| !job.changed) && after != text {
        return Err("bytes differ though nothing is said to have changed".to_owned());
    }
    let known = errors(text, call);
    if let Some(new) = errors(&after, call).into_iter().find(|error| !known.contains(error)) {
        return Err(format!("lint finds {new:?} only afterwards\n--- before\n{text}\n--- after\n{after}"));
    }
    let off = |rule: &str| call.options.rules.get(rule) == Some(&RuleSetting::Off);
    if let Some(op) = jobs.iter().flat_map(|job| &job.plan.ops).find(|op| off(&op.rule)) {
        return Err(format!("{} is off and did {:?}", op.rule, op.change));
    }
    Ok((after, jobs))
}

// ---- generated objects --------------------------------------------------------------------------------------------

fn one_of<T: Clone + std::fmt::Debug + 'static>(values: &[T]) -> BoxedStrategy<T> {
    prop::sample::select(values.to_vec()).boxed()
}

fn env() -> impl Strategy<Value = Json> {
    let literal = one_of(&[
        ("LD_LIBRARY_PATH", "/usr/local/nvidia/lib:/usr/lib"),
        ("LD_LIBRARY_PATH", ":/a::/opt/amazon-efa-ofi/efa/lib:"),
        ("LD_LIBRARY_PATH", "/x:$LD_LIBRARY_PATH"),
        ("OPAL_PREFIX", "/opt/amazon-efa-ofi/openmpi"),
        ("OPAL_PREFIX", "/opt/hpcx/ompi"),
        ("FI_EFA_USE_DEVICE_RDMA", "0"),
        ("FI_EFA_USE_DEVICE_RDMA", "1"),
        ("NVIDIA_GDRCOPY", "enabled"),
        ("NCCL_DEBUG", "WARN"),
        ("NCCL_IB_HCA", "=mlx5_0"),
        ("NCCL_IB_GID_INDEX", "3"),
        ("PLAIN", "yes: no # 'q' \"d\" ∞"),
        ("FI_PROVIDER_PATH", "/opt/amazon/efa/lib"),
        ("FI_PROVIDER", "efa"),
    ])
    .prop_map(|(name, value)| json!({"name": name, "value": value}));
    let from = one_of(&["LD_LIBRARY_PATH", "TOKEN", "OPAL_PREFIX"])
        .prop_map(|name| json!({"name": name, "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}));
    prop_oneof![9 => literal, 1 => from]
}

fn resources() -> impl Strategy<Value = Json> {
    let efa = prop::option::weighted(0.3, one_of(&[json!("32"), json!(16), json!(0), json!("64")]));
    let pages = prop::option::weighted(0.3, one_of(&["5Gi", "5120Mi", "10Gi"]));
    let memory = prop::option::weighted(0.8, Just("1800Gi"));
    (one_of(&[8, 8, 8, 4, 0]), efa, pages, memory, any::<[bool; 4]>()).prop_map(
        |(gpus, efa, pages, memory, sides)| {
            let mut limits = serde_json::Map::new();
            let mut requests = serde_json::Map::new();
            let mut put = |name: &str, value: Json, both: bool, only_limits: bool| {
                if both || only_limits {
                    limits.insert(name.to_owned(), value.clone());
                }
                if both || !only_limits {
                    requests.insert(name.to_owned(), value);
                }
            };
            if gpus > 0 {
                put("nvidia.com/gpu", json!(gpus), sides[0], true);
            }
            efa.into_iter().for_each(|value| put("vpc.amazonaws.com/efa", value, sides[1], sides[2]));
            pages.into_iter().for_each(|value| put("hugepages-2Mi", json!(value), true, true));
            memory.into_iter().for_each(|value| put("memory", json!(value), sides[2], sides[3]));
            let mut all = serde_json::Map::new();
            if !limits.is_empty() {
                all.insert("limits".to_owned(), Json::Object(limits));
            }
            if !requests.is_empty() {
                all.insert("requests".to_owned(), Json::Object(requests));
            }
            Json::Object(all)
        },
    )
}

fn command() -> impl Strategy<Value = (Json, Json)> {
    one_of(&[
        (json!(["mpirun", "-np", "16", "-x", "NCCL_DEBUG=INFO", "app"]), Json::Null),
        (json!(["timeout", "3600", "mpirun"]), json!(["-np", "16", "app", "a b"])),
        (
            json!(["bash", "-c"]),
            json!([
                "set -e\n# mpirun\nuntil mpirun true; do sleep 1; done\nmpirun -x OPAL_PREFIX app 'x y'\n"
            ]),
        ),
        (json!(["/usr/local/mpi/bin/mpirun", "app"]), Json::Null),
        (json!(["/opt/amazon/openmpi/bin/mpirun", "app"]), Json::Null),
        (json!(["/opt/other/bin/mpirun", "app"]), Json::Null),
        (json!(["mpirun", "--mca", "mca_base_env_list", "A;B", "app"]), Json::Null),
        (json!(["./run.sh"]), Json::Null),
        (json!(["torchrun", "train.py"]), json!(["--x", "true"])),
        (json!(["sh", "-c", "case $x in mpirun) mpirun a;; esac | (mpirun b)"]), Json::Null),
        (Json::Null, Json::Null),
    ])
}

fn container(name: &'static str) -> impl Strategy<Value = Json> {
    (prop::collection::vec(env(), 0..4), resources(), command(), any::<[bool; 3]>()).prop_map(
        move |(env, resources, (command, args), has)| {
            let mut container = json!({"name": name, "image": "nvcr.io/nvidia/pytorch:25.06-py3"});
            for (key, value) in [("command", command), ("args", args)] {
                if !value.is_null() {
                    container[key] = value;
                }
            }
            if !env.is_empty() || has[0] {
                container["env"] = Json::Array(env);
            }
            if resources.as_object().is_some_and(|sides| !sides.is_empty()) {
                container["resources"] = resources;
            }
            if has[1] {
                container["volumeMounts"] = json!([{"name": "shm", "mountPath": "/dev/shm"}]);
            }
            if has[2] {
                container["securityContext"] = json!({"capabilities": {"add": ["SYS_PTRACE"]}});
            }
            container
        },
    )
}

fn annotations() -> impl Strategy<Value = Option<Json>> {
    prop::option::weighted(
        0.4,
        one_of(&[
            json!({}),
            json!({"a": "b"}),
            json!({"disable-auto-efa": "true"}),
            json!({"disable-auto-efa": "True"}),
            json!({"disable-auto-efa": true}),
            json!({"disable-auto-efa": "true", "weftrun.dev/applied": "efa/v1"}),
            json!({"k8s.v1.cni.cncf.io/networks": "default/storage"}),
            json!({"k8s.v1.cni.cncf.io/networks": "[{\"name\": \"storage\"}]"}),
        ]),
    )
}

fn pod(container_name: &'static str) -> impl Strategy<Value = Json> {
    let instance = prop::option::weighted(
        0.4,
        one_of(&["p5.48xlarge", "p5en.48xlarge", "g5.48xlarge", "m5.large", "x9.huge"]),
    );
    (container(container_name), annotations(), instance, any::<[bool; 2]>()).prop_map(
        |(container, notes, instance, has)| {
            let mut spec = json!({"containers": [container]});
            if let Some(instance) = instance {
                spec["nodeSelector"] = json!({"node.kubernetes.io/instance-type": instance});
            }
            if has[0] {
                spec["volumes"] = json!([{"name": "shm", "emptyDir": {"medium": "Memory"}}]);
            }
            if has[1] {
                spec["containers"]
                    .as_array_mut()
                    .unwrap()
                    .push(json!({"name": "sidecar", "image": "busybox", "env": []}));
            }
            let mut template = json!({"spec": spec});
            if let Some(notes) = notes {
                template["metadata"] = json!({"annotations": notes});
            }
            template
        },
    )
}

fn replica(container_name: &'static str) -> impl Strategy<Value = Json> {
    (one_of(&[1, 2, 3]), pod(container_name), any::<bool>()).prop_map(|(replicas, template, last)| {
        if last {
            json!({"replicas": replicas, "template": template, "restartPolicy": "OnFailure"})
        } else {
            json!({"restartPolicy": "Never", "template": template, "replicas": replicas})
        }
    })
}

fn object() -> impl Strategy<Value = Json> {
    let pytorch = (prop::option::of(replica("pytorch")), replica("pytorch")).prop_map(|(master, worker)| {
        let mut roles = serde_json::Map::new();
        master.into_iter().for_each(|mut master| {
            master["replicas"] = json!(1);
            roles.insert("Master".to_owned(), master);
        });
        roles.insert("Worker".to_owned(), worker);
        json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "j"},
               "spec": {"pytorchReplicaSpecs": roles}})
    });
    let mpi = (
        replica("l"),
        replica("w"),
        any::<[bool; 2]>(),
        prop::option::weighted(0.2, one_of(&["Intel", "OpenMPI"])),
    )
        .prop_map(|(mut launcher, worker, flags, implementation)| {
            launcher["replicas"] = json!(1);
            let version = if flags[0] { "kubeflow.org/v2beta1" } else { "kubeflow.org/v1" };
            let mut spec = json!({"mpiReplicaSpecs": {"Launcher": launcher, "Worker": worker}});
            if flags[0] && flags[1] {
                spec["runLauncherAsWorker"] = json!(true);
            }
            if let Some(implementation) = implementation.filter(|_| flags[0]) {
                spec["mpiImplementation"] = json!(implementation);
            }
            json!({"apiVersion": version, "kind": "MPIJob", "metadata": {"name": "j"}, "spec": spec})
        });
    let train = (container("node"), one_of(&[1, 2, 4]), any::<bool>()).prop_map(|(mut container, nodes, command)| {
        let mut trainer = json!({"numNodes": nodes});
        for (from, to) in [("env", "env"), ("resources", "resourcesPerNode"), ("command", "command"), ("args", "args")] {
            if let Some(value) = container.get_mut(from).map(Json::take) {
                if command || from != "command" && from != "args" {
                    trainer[to] = value;
                }
            }
        }
        json!({"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "j"},
               "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer}})
    });
    let job_notes = prop::option::weighted(0.1, Just(json!({"disable-auto-efa": "true"})));
    (prop_oneof![pytorch, mpi, train], job_notes).prop_map(|(mut object, notes)| {
        if let Some(notes) = notes {
            object["metadata"]["annotations"] = notes;
        }
        object
    })
}

fn call() -> impl Strategy<Value = Call> {
    let rules: Vec<&'static str> = RULES.iter().map(|rule| rule.id).collect();
    let off = prop::collection::vec(prop::sample::select(rules), 0..3);
    let profile = one_of(&[
        "",
        "",
        "dgxc",
        "dgxc",
        "eks-image",
        "roce",
        "infiniband",
        "neuron",
        "parallelcluster",
        "gke-tcpxo",
        "gke-a4x",
        "eks-gb300",
        "eks-dra",
        "oci-host",
    ]);
    let gid = prop::option::of(one_of(&[Gid::Auto, Gid::Compute, Gid::Index(3)]));
    let stack = one_of(&[Stack::Auto, Stack::Auto, Stack::Mounted, Stack::Bundled]);
    let webhook = one_of(&[Webhook::Auto, Webhook::Yes, Webhook::No]);
    let trainer = prop::option::of(one_of(&["2.0", "2.1", "2.2", "2.3"]));
    (profile, off, gid, stack, webhook, trainer, any::<[bool; 5]>()).prop_map(
        |(profile, off, gid, stack, webhook, trainer, flags)| {
            let options = FabricRequest {
                kind: if flags[0] { Fabric::Tcp } else { Fabric::Auto },
                rules: off.into_iter().map(|rule| (rule.to_owned(), RuleSetting::Off)).collect(),
                gid,
                stack,
                webhook,
                inject: if flags[1] { Inject::Server } else { Inject::Client },
                strict: flags[2],
                detect: Some(flags[3]),
                memory: flags[4].then(|| "900Gi".to_owned()),
                ..FabricRequest::default()
            };
            Call { profile: profile.to_owned(), options, trainer, runtimes: Vec::new() }
        },
    )
}

/// Keys under which the ops change something; everything else must stay equal.
const CHANGED: [&str; 17] = [
    "initContainers",
    "resourceClaims",
    "hostNetwork",
    "dnsPolicy",
    "env",
    "resources",
    "resourcesPerNode",
    "volumes",
    "volumeMounts",
    "annotations",
    "command",
    "args",
    "securityContext",
    "nodeSelector",
    "affinity",
    "tolerations",
    "runtimePatches",
];

fn without_changes(value: &Json) -> Json {
    match value {
        Json::Object(map) => {
            let kept =
                map.iter().filter(|(key, _)| !CHANGED.contains(&key.as_str()) && !key.ends_with("Overrides"));
            let kept: serde_json::Map<_, _> =
                kept.map(|(key, value)| (key.clone(), without_changes(value))).collect();
            // A `metadata` that was made for annotations alone is empty without them.
            Json::Object(
                kept.into_iter().filter(|(key, value)| key != "metadata" || *value != json!({})).collect(),
            )
        }
        Json::Array(items) => items.iter().map(without_changes).collect(),
        other => other.clone(),
    }
}

fn data(text: &str) -> Vec<Json> {
    let read = |text: String| -> Vec<Json> {
        yaml_documents(&text).unwrap().iter().map(|document| document.root.to_json()).collect()
    };
    documents(text).into_iter().filter(|text| !text.trim().is_empty()).flat_map(read).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_laws_hold_for_generated_objects(object in object(), call in call(), as_json in any::<bool>()) {
        let text = if as_json {
            serde_json::to_string_pretty(&object).unwrap()
        } else {
            serde_saphyr::to_string(&object).unwrap()
        };
        match holds(&text, &call) {
            Ok((after, jobs)) => {
                let (before, mut after) = (data(&text), data(&after));
                // Objects that the pods refer to are before the job.
                let after = after.split_off(after.len() - before.len());
                let version = call.trainer.and_then(TrainerVersion::parse).unwrap_or_default();
                let mut made = object.clone();
                apply_ops(&mut made, &jobs[0].plan.ops, &call.runtimes, version).unwrap();
                prop_assert_eq!(&made, &after[0]);
                prop_assert_eq!(before.iter().map(without_changes).collect::<Vec<_>>(),
                                after.iter().map(without_changes).collect::<Vec<_>>());
            }
            Err(why) => prop_assert!(false, "{}\n{}", why, text),
        }
    }
}

// ---- the manifests of tests/cases -----------------------------------------------------------------------------------------------

fn manifests() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/mutate");
    let cases = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let read = |path: PathBuf| {
        Some((path.display().to_string(), fs::read_to_string(path.join("before.yaml")).ok()?))
    };
    cases.filter_map(read).collect()
}

fn is_template(text: &str) -> bool {
    text.contains("{{") || text.contains("${")
}

fn usual_calls() -> Vec<Call> {
    let with = |profile: &str, options: FabricRequest| Call {
        profile: profile.to_owned(),
        options,
        ..Call::default()
    };
    let p5 = || Some("p5.48xlarge".to_owned());
    vec![
        with("dgxc", FabricRequest::default()),
        with("", FabricRequest::default()),
        with(
            "dgxc",
            FabricRequest {
                webhook: Webhook::Yes,
                memory: Some("900Gi".into()),
                instance_type: p5(),
                ..FabricRequest::default()
            },
        ),
        with(
            "dgxc",
            FabricRequest {
                stack: Stack::Mounted,
                memory: Some("900Gi".into()),
                detect: Some(true),
                ..FabricRequest::default()
            },
        ),
        with("dgxc", FabricRequest { inject: Inject::Server, strict: true, ..FabricRequest::default() }),
        with("eks-image", FabricRequest { memory: Some("900Gi".into()), ..FabricRequest::default() }),
        with(
            "roce",
            FabricRequest { gid: Some(Gid::Compute), detect: Some(true), ..FabricRequest::default() },
        ),
        with("roce", FabricRequest { gid: Some(Gid::Index(3)), ..FabricRequest::default() }),
        with("infiniband", FabricRequest { strict: true, ..FabricRequest::default() }),
    ]
}

#[test]
fn the_laws_hold_for_every_example_manifest() {
    let mut broken = Vec::new();
    let mut mutated = 0;
    for (name, text) in manifests() {
        for (index, call) in usual_calls().iter().enumerate() {
            match holds(&text, call) {
                Ok((_, jobs)) => mutated += jobs.iter().filter(|job| job.changed).count(),
                // Templates of Helm and of shell scripts are no YAML until they are filled in.
                Err(why) if why.starts_with("the manifest cannot be read") && is_template(&text) => {}
                Err(why) => broken.push(format!("{name}, call {index}: {why}")),
            }
        }
    }
    println!("{mutated} jobs changed");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn what_was_valid_against_its_schema_still_is() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/kubeflow-schemas");
    let schema = |name: &str| {
        let text = fs::read_to_string(folder.join(name)).unwrap();
        let whole: Json = serde_json::from_str(&text).unwrap();
        jsonschema::validator_for(&whole["openAPIV3Schema"]).unwrap()
    };
    let schemas = [
        ("PyTorchJob", "kubeflow.org/v1", None, schema("PyTorchJob.v1@training-operator-v1.9.4.json")),
        ("MPIJob", "kubeflow.org/v1", None, schema("MPIJob.v1@training-operator-v1.9.4.json")),
        ("MPIJob", "kubeflow.org/v2beta1", None, schema("MPIJob.v2beta1@mpi-operator-v0.8.0.json")),
        (
            "TrainJob",
            "trainer.kubeflow.org/v1alpha1",
            Some("2.0"),
            schema("TrainJob.v1alpha1@trainer-v2.0.1.json"),
        ),
        (
            "TrainJob",
            "trainer.kubeflow.org/v1alpha1",
            Some("2.1"),
            schema("TrainJob.v1alpha1@trainer-v2.1.0.json"),
        ),
        (
            "TrainJob",
            "trainer.kubeflow.org/v1alpha1",
            Some("2.2"),
            schema("TrainJob.v1alpha1@trainer-v2.2.1.json"),
        ),
        (
            "TrainJob",
            "trainer.kubeflow.org/v1alpha1",
            Some("2.3"),
            schema("TrainJob.v1alpha1@trainer-v2.3.0.json"),
        ),
    ];
    let mut runner =
        proptest::test_runner::TestRunner::new(ProptestConfig { cases: 60, ..ProptestConfig::default() });
    let checked = std::cell::Cell::new(0);
    runner
        .run(&(object(), call()), |(object, call)| {
            let text = serde_saphyr::to_string(&object).unwrap();
            for (kind, version, trainer, schema) in &schemas {
                if object["kind"] != *kind || object["apiVersion"] != *version || !schema.is_valid(&object) {
                    continue;
                }
                let call = Call { trainer: *trainer, ..call.clone() };
                let (after, _) = run(&text, &call).map_err(proptest::test_runner::TestCaseError::fail)?;
                for document in data(&after).into_iter().filter(|document| document["kind"] == *kind) {
                    let errors: Vec<String> = schema
                        .iter_errors(&document)
                        .map(|error| format!("{}: {error}", error.instance_path()))
                        .collect();
                    prop_assert!(errors.is_empty(), "{:?}\n{}", errors, after);
                    checked.set(checked.get() + 1);
                }
            }
            Ok(())
        })
        .unwrap();
    assert!(checked.get() > 15, "only {} objects were valid to begin with", checked.get());
}
