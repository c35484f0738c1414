//! What a profile adds to pods for any fabric, and what it removes.

use serde_json::{Value as Json, json};
use weftrun_convert::{MutateOptions, Start, TrainerVersion, mutate};
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::{FabricPlan, Profile, Profiles, RuleSetting};
use weftrun_core::request::FabricRequest;
use weftrun_core::span::yaml_documents;

/// Returns a PyTorchJob of four pods with eight GPUs each; `pod` goes into the pod's spec, `container` into
/// the container.
fn job(annotations: &str, pod: &str, container: &str) -> String {
    let indent = |text: &str, by: usize| {
        text.lines().map(|line| format!("{}{line}\n", " ".repeat(by))).collect::<String>()
    };
    format!(
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata:\n  name: train\n  namespace: ml # ours\nspec:\n  \
         pytorchReplicaSpecs:\n    Worker:\n      replicas: 4\n      template:\n{}        spec:\n{}          containers:\n          \
         - name: pytorch\n            image: example/train\n{}            resources:\n              limits:\n                \
         nvidia.com/gpu: 8\n                memory: 900Gi\n",
        indent(annotations, 8),
        indent(pod, 10),
        indent(container, 12),
    )
}

const COMMAND: &str = "command: [torchrun, train.py]";

/// Mutates a text twice: the second pass changes nothing. Returns the documents and the plan.
fn with(profile: &Profile, options: &FabricRequest, text: &str) -> (Vec<Json>, FabricPlan) {
    let catalogue = Catalogue::builtin();
    let settings = MutateOptions::offline(profile, options, &catalogue);
    let done = mutate(text, Start::of("a.yaml"), &settings).unwrap();
    let again = mutate(&done.text, Start::of("a.yaml"), &settings).unwrap();
    assert_eq!(again.text, done.text, "{}: a second pass changes nothing", profile.name);
    let documents = yaml_documents(&done.text).unwrap();
    let plan = done.jobs.into_iter().next().unwrap().plan;
    (documents.iter().map(|document| document.root.to_json()).collect(), plan)
}

fn run(profile: &str, text: &str) -> (Vec<Json>, FabricPlan) {
    let (documents, plan) = with(&Profiles::builtin().get(profile).unwrap(), &FabricRequest::default(), text);
    assert!(plan.error().is_none(), "{:?}", plan.findings);
    (documents, plan)
}

fn pod(job: &Json) -> &Json {
    job.pointer("/spec/pytorchReplicaSpecs/Worker/template").unwrap()
}

fn of_name<'j>(list: &'j Json, key: &str, name: &str) -> &'j Json {
    list.as_array().unwrap().iter().find(|one| one[key] == name).unwrap_or_else(|| panic!("{name} in {list}"))
}

#[test]
fn a_daemon_runs_as_a_sidecar_with_its_volumes_networks_and_settings() {
    let (documents, _) = run("gke-tcpxo", &job("", "", COMMAND));
    let pod = pod(&documents[0]);
    let daemon = of_name(&pod["spec"]["initContainers"], "name", "tcpxo-daemon");
    assert_eq!(
        daemon["restartPolicy"], "Always",
        "an init container with it does not keep a Job from ending"
    );
    for mount in daemon["volumeMounts"].as_array().unwrap() {
        of_name(&pod["spec"]["volumes"], "name", mount["name"].as_str().unwrap());
    }
    let container = &pod["spec"]["containers"][0];
    for (path, volume) in [("/usr/local/nvidia", "nvidia-libraries"), ("/dev/shm", "shm")] {
        assert_eq!(of_name(&container["volumeMounts"], "mountPath", path)["name"], volume);
    }
    let env = |name: &str| of_name(&container["env"], "name", name)["value"].clone();
    assert_eq!(env("LD_LIBRARY_PATH"), "/usr/local/nvidia/lib64");
    assert_eq!(env("NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY"), "/dev/aperture_devices");
    let interfaces = pod["metadata"]["annotations"]["networking.gke.io/interfaces"].as_str().unwrap();
    let interfaces: Json = serde_json::from_str(interfaces).unwrap();
    assert_eq!(interfaces.as_array().unwrap().len(), 9);
    assert_eq!(interfaces[8], json!({"interfaceName": "eth8", "network": "vpc8"}));
}

#[test]
fn lists_in_annotations_are_completed_in_their_own_form() {
    const KEY: &str = "networking.gke.io/interfaces";
    let merged = |own: &str| {
        let text = job(&format!("metadata:\n  annotations:\n    {KEY}: {own}"), "", COMMAND);
        let (documents, _) = run("gke-tcpx", &text);
        pod(&documents[0])["metadata"]["annotations"][KEY].as_str().unwrap().to_owned()
    };
    let json = merged(
        r#"'[{"interfaceName": "eth0", "network": "default"}, {"interfaceName": "eth1", "network": "mine"}]'"#,
    );
    assert!(json.starts_with(r#"[{"interfaceName": "eth0", "network": "default"}, {"interfaceName": "eth1", "network": "mine"},{"#), "{json}");
    let list: Vec<Json> = serde_json::from_str(&json).unwrap();
    assert_eq!((list.len(), &list[1]["network"], &list[4]["network"]), (5, &json!("mine"), &json!("vpc4")));
    let yaml = merged("\"- interfaceName: eth1\\n  network: mine\\n\"");
    assert!(yaml.starts_with("- interfaceName: eth1\n  network: mine\n- {"), "{yaml}");
    let list = yaml_documents(&yaml).unwrap()[0].root.to_json();
    assert_eq!(list.as_array().unwrap().len(), 5);

    let broken = job(&format!("metadata:\n  annotations:\n    {KEY}: eth0"), "", COMMAND);
    let profile = Profiles::builtin().get("gke-tcpx").unwrap();
    let (_, plan) = with(&profile, &FabricRequest::default(), &broken);
    assert_eq!(plan.error().unwrap().code, "E-POD-ANNOTATION");
    let named = FabricRequest { networks: vec!["a".into(), "b".into()], ..FabricRequest::default() };
    let (documents, _) = with(&profile, &named, &job("", "", COMMAND));
    let text = pod(&documents[0])["metadata"]["annotations"][KEY].as_str().unwrap();
    let list: Vec<Json> = serde_json::from_str(text).unwrap();
    let networks: Vec<_> = list.iter().map(|one| one["network"].as_str().unwrap()).collect();
    assert_eq!(networks, ["default", "a", "b", "vpc3", "vpc4"], "--network names the cluster's own");
}

#[test]
fn a_script_is_read_before_the_command() {
    let (documents, _) = run("gke-gib", &job("", "", "command: [torchrun]\nargs: [train.py]"));
    let container = &pod(&documents[0])["spec"]["containers"][0];
    let words: Vec<_> =
        container["command"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    assert_eq!(
        words,
        [
            "/bin/bash",
            "-c",
            ". '/usr/local/gib/scripts/set_nccl_env.sh' && exec \"$@\"",
            "fabric-env",
            "torchrun"
        ]
    );
    assert_eq!(container["args"], json!(["train.py"]));
    let own = "command: [bash, -c, 'source /usr/local/gib/scripts/set_nccl_env.sh; torchrun train.py']";
    let (documents, _) = run("gke-gib", &job("", "", own));
    assert_eq!(pod(&documents[0])["spec"]["containers"][0]["command"].as_array().unwrap().len(), 3);
    let (_, plan) = run("gke-gib", &job("", "", ""));
    assert!(plan.findings.iter().any(|finding| finding.code == "W-POD-SCRIPT"), "{:?}", plan.findings);
}

#[test]
fn claims_come_with_the_objects_that_they_refer_to() {
    let (documents, _) = run("gke-a4x-max", &job("", "", COMMAND).replace("gpu: 8", "gpu: 4"));
    let [domain, template, job] = &documents[..] else { panic!("{documents:?}") };
    assert_eq!((&domain["kind"], &domain["spec"]["numNodes"]), (&json!("ComputeDomain"), &json!(4)));
    assert_eq!(domain["metadata"], json!({"name": "train-domain", "namespace": "ml"}));
    assert_eq!(template["kind"], "ResourceClaimTemplate");
    let spec = &pod(job)["spec"];
    let claim = of_name(&spec["resourceClaims"], "name", "rdma");
    assert_eq!(claim["resourceClaimTemplateName"], template["metadata"]["name"]);
    let channel = of_name(&spec["resourceClaims"], "name", "compute-domain-channel");
    assert_eq!(
        channel["resourceClaimTemplateName"],
        domain["spec"]["channel"]["resourceClaimTemplate"]["name"]
    );
    let used = &spec["containers"][0]["resources"]["claims"];
    assert_eq!(used, &json!([{"name": "compute-domain-channel"}, {"name": "rdma"}]));
    assert_eq!(spec["nodeSelector"]["kubernetes.io/arch"], "arm64");
    assert_eq!(of_name(&spec["tolerations"], "key", "kubernetes.io/arch")["value"], "arm64");
}

#[test]
fn a_claim_for_each_accelerator_stands_in_the_place_of_the_resources() {
    let text = job("", "nodeSelector:\n  node.kubernetes.io/instance-type: p5.48xlarge", COMMAND)
        .replace("memory: 900Gi", "memory: 900Gi\n                vpc.amazonaws.com/efa: 32 # all");
    let (documents, _) = run("eks-dra", &text);
    let devices = &documents[0]["spec"]["spec"]["devices"];
    assert_eq!(devices["requests"][1]["exactly"]["count"], 4, "P5 has 32 interfaces for 8 GPUs");
    assert_eq!(devices["constraints"][0]["matchAttribute"], "resource.kubernetes.io/pcieRoot");
    let spec = &pod(&documents[1])["spec"];
    assert_eq!(spec["resourceClaims"].as_array().unwrap().len(), 8);
    let resources = &spec["containers"][0]["resources"];
    assert_eq!(resources["limits"], json!({"memory": "900Gi"}));
    assert_eq!(resources["claims"][7], json!({"name": "gpu-efa-7"}));
}

/// Without the resource that claims replace, the objects are still jobs, and have the profile's claims.
#[test]
fn a_job_whose_accelerators_are_claimed_is_recognised_when_it_is_read_again() {
    let (catalogue, options) = (Catalogue::builtin(), FabricRequest::default());
    let profile = Profiles::builtin().get("eks-dra").unwrap();
    let settings = MutateOptions::offline(&profile, &options, &catalogue);
    let batch = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: b}\nspec:\n  parallelism: 2\n  template:\n    \
                 spec:\n      containers:\n      - name: c\n        image: x\n        resources:\n          \
                 limits: {nvidia.com/gpu: 8, memory: 900Gi}\n";
    for text in [job("", "", COMMAND), batch.to_owned()] {
        let once = mutate(&text, Start::of("a.yaml"), &settings).unwrap();
        assert!(once.jobs[0].changed && !once.text.contains("nvidia.com/gpu"), "{}", once.text);
        let again = mutate(&once.text, Start::of("a.yaml"), &settings).unwrap();
        assert_eq!(again.text, once.text);
        let [report] = &again.jobs[..] else { panic!("{:?}", again.jobs) };
        assert_eq!((report.changed, report.skip()), (false, None), "{:?}", report.plan.skipped);
        assert!(
            report.plan.decisions.iter().any(|one| one.rule == "pod.claims"),
            "{:?}",
            report.plan.decisions
        );
    }
    // Claims that no profile made are reported, and not counted.
    let other =
        batch.replace("limits: {nvidia.com/gpu: 8, memory: 900Gi}", "claims: [{name: gpus}]").replace(
            "      containers:",
            "      resourceClaims: [{name: gpus, resourceClaimTemplateName: t}]\n      containers:",
        );
    let done = mutate(&other, Start::of("a.yaml"), &settings).unwrap();
    assert_eq!(done.jobs[0].skip(), Some("resource-claims"));
}

#[test]
fn what_belongs_to_another_fabric_is_taken_out() {
    let own = "command: [train]\nenv:\n- name: FI_PROVIDER # of the image\n  value: efa\n- name: A\n  value: b # keep\n- name: \
               NCCL_NET_PLUGIN\n  valueFrom:\n    configMapKeyRef: {name: c, key: d}\n";
    let text = job("", "", own)
        .replace("gpu: 8", "gpu: 4")
        .replace("memory: 900Gi", "memory: 900Gi\n                vpc.amazonaws.com/efa: 4");
    let (documents, plan) = run("eks-gb300", &text);
    let container = &pod(documents.last().unwrap())["spec"]["containers"][0];
    let names: Vec<_> =
        container["env"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names[0], "A");
    assert!(!names.contains(&"FI_PROVIDER") && !names.contains(&"NCCL_NET_PLUGIN"), "{names:?}");
    assert!(container["resources"]["limits"].get("vpc.amazonaws.com/efa").is_none());
    assert!(plan.ops.iter().filter(|op| op.rule == "pod.remove").all(|op| op.source.is_some()));
    let (documents, _) = run(
        "eks-gb300",
        &job("", "", "command: [a]\nenv:\n- {name: FI_PROVIDER, value: efa}").replace("gpu: 8", "gpu: 4"),
    );
    let text = documents.last().unwrap().to_string();
    assert!(!text.contains("FI_PROVIDER") && text.contains("NCCL_MNNVL_ENABLE"), "{text}");
}

#[test]
fn pods_on_the_hosts_network_find_each_other_by_name() {
    let (documents, _) = run("oci-host", &job("", "", COMMAND));
    let spec = &pod(&documents[0])["spec"];
    assert_eq!((&spec["hostNetwork"], &spec["dnsPolicy"]), (&json!(true), &json!("ClusterFirstWithHostNet")));
    let (documents, _) = run("oci-host", &job("", "hostNetwork: true\ndnsPolicy: Default", COMMAND));
    assert_eq!(pod(&documents[0])["spec"]["dnsPolicy"], "Default", "the user's own stays");
}

#[test]
fn what_the_user_mounts_at_the_same_place_stays() {
    let own = "command: [a]\nvolumeMounts:\n- name: mine\n  mountPath: /dev/shm/\n";
    let (documents, _) =
        run("gke-gib", &job("", "volumes:\n- name: mine\n  emptyDir: {medium: Memory}", own));
    let spec = &pod(&documents[0])["spec"];
    let names: Vec<_> =
        spec["volumes"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["mine", "gib", "nvidia-libraries"]);
}

#[test]
fn each_operation_has_its_own_switch() {
    let all = [
        ("gke-tcpxo", "pod.sidecars", "initContainers"),
        ("gke-tcpxo", "pod.annotations", "networking.gke.io"),
        ("gke-tcpxo", "pod.volumes", "\"volumes\""),
        (
            "gke-tcpxo",
            "pod.library-path",
            "LD_LIBRARY_PATH\",\"value\":\"/usr/local/nvidia/lib64\"},{\"name\":\"CUDA",
        ),
        ("gke-gib", "pod.script", "fabric-env"),
        ("gke-gib-dra", "pod.claims", "ResourceClaimTemplate"),
        ("gke-a4x", "pod.resources", "networks/rdma-0"),
        ("gke-a4x", "pod.nodes", "arm64"),
        ("gke-gib", "pod.capabilities", "IPC_LOCK"),
        ("oci-host", "pod.host-network", "hostNetwork"),
    ];
    for (name, rule, sign) in all {
        let profile = Profiles::builtin().get(name).unwrap();
        let text = |options: &FabricRequest| {
            let (documents, _) = with(&profile, options, &job("", "", COMMAND).replace("gpu: 8", "gpu: 4"));
            Json::from(documents).to_string()
        };
        let mut without = FabricRequest::default();
        without.rules.insert(rule.to_owned(), RuleSetting::Off);
        let (on, off) = (text(&FabricRequest::default()), text(&without));
        assert!(on.contains(sign), "{rule}: {on}");
        assert!(!off.contains(sign), "{rule}: {off}");
    }
}

#[test]
fn a_train_job_says_what_it_has_no_field_for() {
    let text = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata:\n  name: a\nspec:\n  runtimeRef:\n    name: \
                torch-distributed\n  trainer:\n    numNodes: 2\n    command: [torchrun, a.py]\n    resourcesPerNode:\n      limits:\n        \
                nvidia.com/gpu: 8\n";
    let (catalogue, options) = (Catalogue::builtin(), FabricRequest::default());
    for (name, word) in
        [("gke-tcpxo", "sidecar"), ("gke-gib-dra", "resource claims"), ("oci-host", "hostNetwork")]
    {
        let profile = Profiles::builtin().get(name).unwrap();
        let settings = MutateOptions {
            trainer: Some(TrainerVersion::V2_3),
            ..MutateOptions::offline(&profile, &options, &catalogue)
        };
        let done = mutate(text, Start::of("a.yaml"), &settings).unwrap();
        assert_eq!(done.text, text, "a job that cannot have all of it stays as it is");
        let error = done.jobs[0].error().unwrap();
        assert_eq!(error.code, "E-TRAINJOB-VERSION");
        assert!(error.message.contains(word), "{}", error.message);
    }
}

/// The example of docs/concepts/fabric.md.
#[test]
fn a_topology_file_of_the_users_is_mounted_from_a_config_map() {
    let page = include_str!("../../../../docs/concepts/fabric.md");
    let example =
        page.split("```toml\n[profile.azure-topology]").nth(1).unwrap().split("```").next().unwrap();
    let table: toml::Table = format!("[profile.azure-topology]{example}").parse().unwrap();
    let own = table["profile"]["azure-topology"].as_table().unwrap().clone();
    let profile = Profiles::builtin().with("azure-topology", own).get("azure-topology").unwrap();
    let (documents, report) = with(&profile, &FabricRequest::default(), &job("", "", COMMAND));
    let map = documents.iter().find(|one| one["kind"] == "ConfigMap").unwrap();
    assert!(map["data"]["topo.xml"].as_str().unwrap().starts_with("<system version="), "{map}");
    let job = documents.iter().find(|one| one["kind"] == "PyTorchJob").unwrap();
    let spec = &pod(job)["spec"];
    assert_eq!(
        of_name(&spec["volumes"], "name", "nccl-topology")["configMap"]["name"],
        map["metadata"]["name"]
    );
    let container = &spec["containers"][0];
    assert_eq!(of_name(&container["volumeMounts"], "name", "nccl-topology")["readOnly"], true);
    assert_eq!(of_name(&container["env"], "name", "NCCL_TOPO_FILE")["value"], "/etc/nccl/topo.xml");
    assert_eq!(container["resources"]["limits"]["rdma/ib"], "8");
    assert!(!report.findings.iter().any(|finding| finding.code == "W-TOPOLOGY-FILE"));
}

#[test]
fn a_job_on_azure_without_a_topology_file_is_reported() {
    let profile = Profiles::builtin().get("azure-nd").unwrap();
    let reports = |container: &str| {
        let (documents, report) = with(&profile, &FabricRequest::default(), &job("", "", container));
        assert!(documents.iter().all(|one| one["kind"] != "ConfigMap"));
        report.findings.iter().filter(|finding| finding.code == "W-TOPOLOGY-FILE").count()
    };
    assert_eq!(reports(COMMAND), 1);
    let own = format!("{COMMAND}\nenv:\n- name: NCCL_TOPO_FILE\n  value: /etc/topology/ndv5-topo.xml");
    assert_eq!(reports(&own), 0);
}

/// MutateOptions that a TrainJob has no field for go into a copy of its runtime, where that is given.
#[test]
fn a_train_job_gets_a_runtime_of_its_own_for_what_it_has_no_field_for() {
    let runtime = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: ClusterTrainingRuntime\nmetadata:\n  name: torch\n  uid: \
                   x\nspec:\n  mlPolicy: {numNodes: 1}\n  template:\n    spec:\n      replicatedJobs:\n      - name: \
                   data\n        template: {spec: {template: {spec: {containers: [{name: get, image: \
                   a}]}}}}\n      - name: node\n        template:\n          metadata:\n            \
                   labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}\n          spec:\n            \
                   template:\n              spec:\n                containers:\n                - {name: log, image: \
                   l}\n                - {name: node, image: n, env: [{name: FI_PROVIDER, value: efa}]}\n";
    let text = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata:\n  name: a # mine\n  namespace: \
                ml\nspec:\n  runtimeRef:\n    name: torch\n  trainer:\n    numNodes: 2\n    command: [torchrun, \
                a.py]\n    resourcesPerNode:\n      limits:\n        nvidia.com/gpu: 8\n        memory: 900Gi\n";
    let (catalogue, options) = (Catalogue::builtin(), FabricRequest::default());
    let given = weftrun_convert::runtimes_in(runtime);
    for (name, version, sign) in [
        ("gke-tcpxo", TrainerVersion::V2_3, "tcpxo-daemon"),
        ("gke-gib-dra", TrainerVersion::V2_2, "resourceClaimTemplateName"),
        ("oci-host", TrainerVersion::V2_1, "hostNetwork"),
        ("eks-dra", TrainerVersion::V2_3, "gpu-efa-7"),
        ("roce", TrainerVersion::V2_0, "IPC_LOCK"),
    ] {
        let profile = Profiles::builtin().get(name).unwrap();
        let settings = |runtimes| MutateOptions {
            trainer: Some(version),
            runtimes,
            ..MutateOptions::offline(&profile, &options, &catalogue)
        };
        let done = mutate(text, Start::of("a.yaml"), &settings(&given)).unwrap();
        assert!(done.jobs[0].error().is_none(), "{name}: {:?}", done.jobs[0].plan.findings);
        assert!(done.text.contains("name: a # mine"), "{name}: {}", done.text);
        let documents: Vec<Json> =
            yaml_documents(&done.text).unwrap().iter().map(|one| one.root.to_json()).collect();
        let own = documents.iter().find(|one| one["kind"] == "TrainingRuntime").unwrap();
        assert_eq!(own["metadata"], json!({"name": "torch-a", "namespace": "ml"}), "{name}");
        let jobs = &own["spec"]["template"]["spec"]["replicatedJobs"];
        assert!(jobs[1].to_string().contains(sign), "{name}: {jobs}");
        assert!(!jobs[0].to_string().contains(sign), "{name}: {jobs}");
        let job = documents.last().unwrap();
        assert_eq!(
            job["spec"]["runtimeRef"],
            json!({"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "torch-a"})
        );
        // The second pass reads the runtime from the stream.
        let known = weftrun_convert::runtimes_in(&done.text);
        let again = mutate(&done.text, Start::of("a.yaml"), &settings(&known)).unwrap();
        assert_eq!(again.text, done.text, "{name}");
    }
}

#[test]
fn a_queue_and_a_topology_level_go_where_the_kind_has_them() {
    let table = "extends = 'infiniband'\n[queue]\nkueue = 'gpus'\nvolcano = 'ml'\ntopology-required = 'rack'";
    let profile = Profiles::builtin().with("site", table.parse().unwrap()).get("site").unwrap();
    let (documents, _) = with(&profile, &FabricRequest::default(), &job("", "", COMMAND));
    let first = &documents[0];
    assert_eq!(first["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "gpus");
    assert_eq!(first["spec"]["runPolicy"]["schedulingPolicy"]["queue"], "ml");
    let annotations = &pod(first)["metadata"]["annotations"];
    assert_eq!(annotations["kueue.x-k8s.io/podset-required-topology"], "rack");
    let own = "metadata:\n  annotations:\n    kueue.x-k8s.io/podset-preferred-topology: block";
    let (documents, _) = with(&profile, &FabricRequest::default(), &job(own, "", COMMAND));
    let annotations = pod(&documents[0])["metadata"]["annotations"].as_object().unwrap();
    assert_eq!(annotations.len(), 1, "Kueue refuses a pod with both: {annotations:?}");
    let batch = "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: a\n  labels:\n    kueue.x-k8s.io/queue-name: own\nspec:\n  parallelism: \
                 2\n  template:\n    spec:\n      containers:\n      - name: a\n        image: b\n        resources:\n          limits:\n            \
                 nvidia.com/gpu: 8\n";
    let (documents, _) = with(&profile, &FabricRequest::default(), batch);
    let spec = documents[0].pointer("/spec/template/spec").unwrap();
    assert_eq!(documents[0]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "own");
    assert_eq!(spec["schedulerName"], "volcano");
    let pods = documents[0].pointer("/spec/template/metadata/annotations").unwrap();
    assert_eq!(pods["scheduling.volcano.sh/queue-name"], "ml");
}

/// Kueue assigns no flavor to pods that request nothing, and admits no job with such a pod at a topology level.
#[test]
fn a_launcher_that_requests_nothing_gets_a_core_beside_a_topology_level() {
    let mpi = |launcher: &str| {
        format!(
            "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata:\n  name: a\nspec:\n  mpiReplicaSpecs:\n    Launcher:\n      template:\n        \
             spec:\n          containers:\n          - name: a\n            image: b\n            command: [mpirun, a]\n{launcher}    Worker:\n      replicas: \
             2\n      template:\n        spec:\n          containers:\n          - name: a\n            image: b\n            resources:\n              \
             limits:\n                nvidia.com/gpu: 8\n                memory: 1Gi\n"
        )
    };
    let launcher = |table: &str, manifest: &str| {
        let profile = Profiles::builtin().with("site", table.parse().unwrap()).get("site").unwrap();
        let (documents, _) = with(&profile, &FabricRequest::default(), manifest);
        documents[0]
            .pointer("/spec/mpiReplicaSpecs/Launcher/template/spec/containers/0/resources")
            .cloned()
            .unwrap_or_default()
    };
    let at_a_level = "extends = 'eks-image'\n[queue]\ntopology-preferred = 'rack'";
    assert_eq!(launcher(at_a_level, &mpi(""))["requests"], serde_json::json!({"cpu": "1"}));
    let own = "            resources:\n              requests:\n                memory: 2Gi\n";
    assert_eq!(launcher(at_a_level, &mpi(own)), serde_json::json!({"requests": {"memory": "2Gi"}}));
    let queue_only = "extends = 'eks-image'\n[queue]\nkueue = 'gpus'";
    assert_eq!(launcher(queue_only, &mpi("")), serde_json::Value::Null);
}

#[test]
fn an_anchor_on_one_role_with_an_alias_on_another_is_changed_once() {
    let text = "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata:\n  name: a\nspec:\n  pytorchReplicaSpecs:\n    Master: \n      replicas: \
                1\n      template: &pod\n        spec:\n          containers: # one\n          - name: pytorch\n            image: b\n            \
                resources:\n              limits:\n                nvidia.com/gpu: 8\n    Worker:\n      replicas: 3\n      template: *pod\n";
    let profile = Profiles::builtin().get("infiniband").unwrap();
    let (catalogue, options) = (Catalogue::builtin(), FabricRequest::default());
    let done =
        mutate(text, Start::of("a.yaml"), &MutateOptions::offline(&profile, &options, &catalogue)).unwrap();
    assert!(done.jobs[0].error().is_none(), "{:?}", done.jobs[0].plan.findings);
    assert!(done.text.contains("template: *pod") && done.text.contains("containers: # one"), "{}", done.text);
    assert_eq!(done.text.matches("rdma/ib").count(), 2, "limits and requests, once: {}", done.text);
    let apart = text.replace(
        "template: *pod",
        "template:\n        <<: *pod\n        metadata:\n          annotations: {}",
    );
    let done =
        mutate(&apart, Start::of("a.yaml"), &MutateOptions::offline(&profile, &options, &catalogue)).unwrap();
    assert!(done.jobs[0].error().is_none(), "{:?}", done.jobs[0].plan.findings);
    assert_eq!(done.text.matches("rdma/ib").count(), 2, "{}", done.text);
}
