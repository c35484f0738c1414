//! The rules, one situation a test: what a job looks like, what is asked, what comes of it.

#![allow(
    clippy::field_reassign_with_default,
    reason = "the facts of a cluster can grow, so they have no literal"
)]

use std::collections::BTreeMap;

use weftrun_core::Severity;
use weftrun_core::backend::{ClusterFacts, NodeGroup};
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::{Fabric, Gid, Inject, Profile, Profiles, RuleSetting, Stack, Webhook};
use weftrun_core::mutation::view::{
    Annotation, ContainerView, EnvView, JobKind, JobView, MountView, Mpi, RoleView, VolumeView,
};
use weftrun_core::mutation::{Options, Outcome, decide};

const OURS: &str = "/opt/amazon-efa-ofi/ofi/lib:/opt/amazon-efa-ofi/efa/lib:/opt/amazon-efa-ofi/openmpi/lib";

/// A role of two whole nodes with memory, to be changed as a test needs.
fn worker(name: &str) -> RoleView {
    let asked: BTreeMap<String, String> =
        [("nvidia.com/gpu", "8"), ("memory", "1800Gi")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    RoleView {
        name: name.to_owned(),
        worker: true,
        replicas: 2,
        container: ContainerView { limits: asked.clone(), requests: asked, ..ContainerView::default() },
        ..RoleView::default()
    }
}

fn launcher(command: &[&str]) -> RoleView {
    RoleView {
        name: "Launcher".to_owned(),
        launcher: true,
        replicas: 1,
        container: ContainerView { command: words(command), ..ContainerView::default() },
        ..RoleView::default()
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn job(kind: JobKind, roles: Vec<RoleView>) -> JobView {
    let mpi = matches!(kind, JobKind::MpiJobV1 | JobKind::MpiJobV2).then_some(Mpi::OpenMpi);
    JobView { kind, name: "job".to_owned(), roles, mpi, ..JobView::default() }
}

fn pytorch(role: RoleView) -> JobView {
    job(JobKind::PyTorchJob, vec![role])
}

fn with_env(mut role: RoleView, pairs: &[(&str, &str)]) -> RoleView {
    for (name, value) in pairs {
        let value = Some((*value).to_owned());
        role.container.env.push(EnvView { name: (*name).to_owned(), value, at: String::new() });
    }
    role
}

fn with_resource(mut role: RoleView, name: &str, limit: Option<&str>, request: Option<&str>) -> RoleView {
    for (side, amount) in [(&mut role.container.limits, limit), (&mut role.container.requests, request)] {
        match amount {
            Some(amount) => drop(side.insert(name.to_owned(), amount.to_owned())),
            None => drop(side.remove(name)),
        }
    }
    role
}

fn on(mut role: RoleView, instance: &str) -> RoleView {
    role.instance_types = vec![instance.to_owned()];
    role
}

fn annotated(mut role: RoleView, pairs: &[(&str, &str)]) -> RoleView {
    let texts = pairs.iter().map(|(key, value)| ((*key).to_owned(), Annotation::Text((*value).to_owned())));
    role.annotations.extend(texts);
    role
}

fn online(tell: impl FnOnce(&mut ClusterFacts)) -> ClusterFacts {
    let mut facts = ClusterFacts::default();
    facts.online = true;
    tell(&mut facts);
    facts
}

fn profile(name: &str) -> Profile {
    Profiles::builtin().get(name).unwrap()
}

fn run(job: &JobView, name: &str, options: &Options) -> Outcome {
    decide(job, &profile(name), options, &Catalogue::builtin(), &ClusterFacts::default())
}

fn dgxc(job: &JobView) -> Outcome {
    run(job, "dgxc", &Options::default())
}

/// The ops as lines `role: what = value`.
fn ops(outcome: &Outcome) -> Vec<String> {
    outcome
        .ops
        .iter()
        .map(|op| format!("{}: {} = {}", op.role, op.change.target(), op.change.value()))
        .collect()
}

fn has(outcome: &Outcome, line: &str) -> bool {
    ops(outcome).iter().any(|op| op == line)
}

/// The codes of errors and warnings, without those that only say what was assumed.
fn codes(outcome: &Outcome) -> Vec<&str> {
    let assumed = [
        "W-EFA-ASSUMED",
        "W-INSTANCE-UNKNOWN",
        "I-WEBHOOK-UNKNOWN",
        "W-LDPATH-SHADOW",
        "W-LAUNCHER-HOSTPATH",
    ];
    outcome
        .findings
        .iter()
        .map(|finding| finding.code.as_str())
        .filter(|code| !assumed.contains(code))
        .collect()
}

fn skip(outcome: &Outcome) -> Option<&str> {
    outcome.skip.as_ref().map(|skip| skip.reason.as_str())
}

#[track_caller]
fn refused(outcome: &Outcome, code: &str) {
    assert_eq!(outcome.error().map(|error| error.code.as_str()), Some(code), "{:?}", outcome.findings);
    assert_eq!(outcome.ops, [], "an error leaves the job as it was");
}

// ---- which jobs get EFA -------------------------------------------------------------------------------------------

#[test]
fn one_pod_is_not_distributed() {
    let alone = RoleView { replicas: 1, ..worker("Worker") };
    assert_eq!(skip(&dgxc(&pytorch(alone))), Some("not-distributed"));
}

#[test]
fn without_gpus_there_is_nothing_to_connect() {
    assert_eq!(
        skip(&dgxc(&pytorch(with_resource(worker("Worker"), "nvidia.com/gpu", None, None)))),
        Some("no-gpu")
    );
}

#[test]
fn a_template_is_not_judged_before_it_is_filled_in() {
    let pods = RoleView { replicas: 1, replicas_text: Some("$NUM_NODES".into()), ..worker("Worker") };
    let gpus = with_resource(worker("Worker"), "nvidia.com/gpu", Some("$GPUS"), Some("$GPUS"));
    for role in [pods, gpus] {
        assert_eq!(skip(&dgxc(&pytorch(role))), Some("template"));
    }
}

#[test]
fn a_neuron_job_is_left_alone_until_its_profile_is_chosen() {
    let role = with_resource(worker("Worker"), "nvidia.com/gpu", None, None);
    let role = on(with_resource(role, "aws.amazon.com/neuron", Some("16"), Some("16")), "trn1n.32xlarge");
    assert_eq!(skip(&dgxc(&pytorch(role.clone()))), Some("no-gpu"));
    let outcome = run(&pytorch(role), "neuron", &Options::default());
    assert_eq!(codes(&outcome), [""; 0]);
    for line in [
        "Worker: env FI_PROVIDER = efa",
        "Worker: env FI_EFA_USE_DEVICE_RDMA = 1",
        "Worker: env FI_EFA_FORK_SAFE = 1",
        "Worker: resources vpc.amazonaws.com/efa = 16",
    ] {
        assert!(has(&outcome, line), "{line} in {:#?}", ops(&outcome));
    }
}

#[test]
fn roles_that_differ_get_nothing_and_are_named() {
    let part = with_resource(worker("Worker"), "nvidia.com/gpu", Some("4"), Some("4"));
    let outcome = dgxc(&job(JobKind::PyTorchJob, vec![worker("Master"), part]));
    assert_eq!((skip(&outcome), codes(&outcome)), (Some("partial-node"), vec!["W-ROLES-MIXED"]));
}

#[test]
fn four_gpus_are_a_whole_gb200_node() {
    let four = with_resource(worker("Worker"), "nvidia.com/gpu", Some("4"), Some("4"));
    assert_eq!(skip(&dgxc(&pytorch(four.clone()))), Some("partial-node"), "without the type nobody knows");
    let outcome = dgxc(&pytorch(on(four, "p6e-gb200.36xlarge")));
    assert!(has(&outcome, "Worker: resources vpc.amazonaws.com/efa = 4"), "{:#?}", ops(&outcome));
    assert!(has(&outcome, "Worker: resources hugepages-2Mi = 10256Mi"));
    assert!(
        outcome.findings.iter().any(|f| f.code == "W-EFA-ASSUMED"),
        "its sources disagree, and that is said"
    );
}

#[test]
fn a_type_without_efa_is_skipped_and_one_whose_sources_disagree_too() {
    let four = with_resource(worker("Worker"), "nvidia.com/gpu", Some("4"), Some("4"));
    assert_eq!(skip(&dgxc(&pytorch(on(worker("Worker"), "BM.GPU.H100.8")))), Some("no-efa-on-instance-type"));
    assert_eq!(skip(&dgxc(&pytorch(on(four, "p6e-gb300.36xlarge")))), Some("no-efa-on-instance-type"));
}

#[test]
fn hyperpod_writes_ml_before_the_type() {
    assert!(has(
        &dgxc(&pytorch(on(worker("Worker"), "ml.p4d.24xlarge"))),
        "Worker: resources vpc.amazonaws.com/efa = 4"
    ));
}

#[test]
fn the_type_may_come_from_the_options() {
    let options = Options { instance_type: Some("p6-b200.48xlarge".into()), ..Options::default() };
    assert!(has(
        &run(&pytorch(worker("Worker")), "dgxc", &options),
        "Worker: resources vpc.amazonaws.com/efa = 8"
    ));
}

#[test]
fn several_types_left_open_get_the_least_and_a_warning() {
    let role = RoleView { instance_types: words(&["p5.48xlarge", "p5en.48xlarge"]), ..worker("Worker") };
    let outcome = dgxc(&pytorch(role));
    assert!(has(&outcome, "Worker: resources vpc.amazonaws.com/efa = 16"));
    assert!(outcome.findings.iter().any(|f| f.code == "W-INSTANCE-UNKNOWN" && f.message.contains("differ")));
}

#[test]
fn p4d_does_not_mix_with_p5() {
    let roles = vec![on(worker("Master"), "p4d.24xlarge"), on(worker("Worker"), "p5.48xlarge")];
    refused(&dgxc(&job(JobKind::PyTorchJob, roles)), "E-INSTANCE-MIXED");
}

#[test]
fn the_cluster_counts_before_the_catalogue() {
    let group = |instance: &str, efa: Option<&str>| {
        let mut group = NodeGroup::default();
        group.instance_type = Some(instance.to_owned());
        group.count = 4;
        group
            .allocatable
            .extend([("nvidia.com/gpu", "8"), ("pods", "110")].map(|(k, v)| (k.to_owned(), v.to_owned())));
        group.allocatable.extend(efa.map(|amount| ("vpc.amazonaws.com/efa".to_owned(), amount.to_owned())));
        group
    };
    let with = |groups: Vec<NodeGroup>, role: RoleView| {
        let facts = online(|facts| facts.nodes = groups);
        decide(&pytorch(role), &profile("dgxc"), &Options::default(), &Catalogue::builtin(), &facts)
    };
    let told = with(vec![group("p5.48xlarge", Some("31"))], worker("Worker"));
    assert!(has(&told, "Worker: resources vpc.amazonaws.com/efa = 31"), "{:#?}", ops(&told));
    assert!(told.findings.iter().all(|f| f.code != "W-EFA-ASSUMED"));
    let dranet = with(vec![group("p5.48xlarge", None)], worker("Worker"));
    assert_eq!(skip(&dranet), Some("no-efa-on-instance-type"), "a node without the resource cannot give it");
    let mut by_control_plane = group("p5.48xlarge", None);
    by_control_plane.allocatable.remove("pods");
    let unlisted = with(vec![by_control_plane], worker("Worker"));
    assert!(
        has(&unlisted, "Worker: resources vpc.amazonaws.com/efa = 32"),
        "a list of GPUs alone says nothing of EFA"
    );
    let of_two = with(
        vec![group("p4d.24xlarge", Some("4")), group("p5.48xlarge", Some("32"))],
        on(worker("Worker"), "p5.48xlarge"),
    );
    assert!(has(&of_two, "Worker: resources vpc.amazonaws.com/efa = 32"), "only the matching type counts");
}

// ---- the user's own values ----------------------------------------------------------------------------------------

#[test]
fn the_users_library_path_stays_behind_ours_without_empty_entries() {
    let role = with_env(worker("Worker"), &[("LD_LIBRARY_PATH", ":/a::/opt/amazon-efa-ofi/efa/lib:/b:")]);
    assert!(has(&dgxc(&pytorch(role)), &format!("Worker: env LD_LIBRARY_PATH = {OURS}:/a:/b")));
}

#[test]
fn a_dollar_that_nobody_expands_is_kept_and_named() {
    let role = with_env(worker("Worker"), &[("LD_LIBRARY_PATH", "/a:$LD_LIBRARY_PATH")]);
    let outcome = dgxc(&pytorch(role));
    assert_eq!(codes(&outcome), ["W-ENV-DOLLAR"]);
    assert!(has(&outcome, &format!("Worker: env LD_LIBRARY_PATH = {OURS}:/a:$LD_LIBRARY_PATH")));
}

#[test]
fn of_two_entries_of_one_name_the_last_counts() {
    let role = with_env(worker("Worker"), &[("LD_LIBRARY_PATH", "/first"), ("LD_LIBRARY_PATH", "/last")]);
    assert!(has(&dgxc(&pytorch(role)), &format!("Worker: env LD_LIBRARY_PATH = {OURS}:/last")));
}

#[test]
fn a_library_path_from_elsewhere_cannot_be_prefixed() {
    let mut role = worker("Worker");
    role.container.env.push(EnvView { name: "LD_LIBRARY_PATH".into(), value: None, at: String::new() });
    refused(&dgxc(&pytorch(role)), "E-LDPATH-VALUEFROM");
}

#[test]
fn a_foreign_opal_prefix_is_an_error_in_an_mpijob_and_kept_elsewhere() {
    let role = with_env(worker("Worker"), &[("OPAL_PREFIX", "/opt/hpcx/ompi")]);
    assert_eq!(codes(&dgxc(&pytorch(role.clone()))), ["W-ENV-KEPT"]);
    refused(&dgxc(&job(JobKind::MpiJobV2, vec![launcher(&["mpirun", "a"]), role])), "E-OPAL-CONFLICT");
}

#[test]
fn amounts_of_the_users_stay_and_both_sides_say_them() {
    let only_limit = with_resource(worker("Worker"), "vpc.amazonaws.com/efa", Some("16"), None);
    let outcome = dgxc(&pytorch(on(only_limit, "p5.48xlarge")));
    assert!(has(&outcome, "Worker: resources vpc.amazonaws.com/efa = 16"));
    assert_eq!(codes(&outcome), ["W-EFA-PARTIAL", "W-RES-KEPT"]);
    let unequal = with_resource(worker("Worker"), "vpc.amazonaws.com/efa", Some("32"), Some("16"));
    refused(&dgxc(&pytorch(unequal)), "E-RES-UNEQUAL");
    let same_amount = with_resource(worker("Worker"), "hugepages-2Mi", Some("5Gi"), Some("5120Mi"));
    assert_eq!(codes(&dgxc(&pytorch(same_amount))), [""; 0], "5Gi and 5120Mi are one amount");
}

#[test]
fn zero_stays_zero_and_takes_the_huge_pages_along() {
    let none = with_resource(worker("Worker"), "vpc.amazonaws.com/efa", Some("0"), Some("0"));
    let outcome = dgxc(&pytorch(none));
    assert!(ops(&outcome).iter().all(|op| !op.contains("resources")), "{:#?}", ops(&outcome));
    assert!(outcome.skipped.iter().any(|skipped| skipped.rule == "efa.hugepages"));
}

#[test]
fn more_than_the_type_has_is_an_error() {
    let much = with_resource(worker("Worker"), "vpc.amazonaws.com/efa", Some("32"), Some("32"));
    let outcome = dgxc(&pytorch(on(much, "p5en.48xlarge")));
    refused(&outcome, "E-EFA-CAPACITY");
    assert!(outcome.error().unwrap().message.contains("exceeds instance capacity"));
}

#[test]
fn huge_pages_need_memory_which_is_asked_only_when_said() {
    let bare = with_resource(worker("Worker"), "memory", None, None);
    refused(&dgxc(&pytorch(bare.clone())), "E-HP-NEEDS-MEMORY");
    let options = Options { memory: Some("900Gi".into()), ..Options::default() };
    assert!(has(&run(&pytorch(bare.clone()), "dgxc", &options), "Worker: resources memory = 900Gi"));
    let mine = Profiles::builtin()
        .with("mine", "extends = 'dgxc'\nmemory-default = '90%'".parse().unwrap())
        .get("mine")
        .unwrap();
    let job = pytorch(on(bare.clone(), "p5.48xlarge"));
    let outcome = decide(&job, &mine, &Options::default(), &Catalogue::builtin(), &ClusterFacts::default());
    assert!(has(&outcome, "Worker: resources memory = 1887436Mi"), "{:#?}", ops(&outcome));
    let mut options = Options::default();
    options.rules.insert("efa.hugepages".into(), RuleSetting::Off);
    assert_eq!(
        codes(&run(&pytorch(bare), "dgxc", &options)),
        [""; 0],
        "without huge pages it needs no memory"
    );
}

#[test]
fn a_volume_of_our_name_must_be_ours_and_a_mount_of_the_path_is_enough() {
    let volume = |path: &str| VolumeView {
        name: "amazon-efa-ofi".into(),
        host_path: Some(path.into()),
        ..VolumeView::default()
    };
    let other = RoleView { volumes: vec![volume("/elsewhere")], ..worker("Worker") };
    refused(&dgxc(&pytorch(other)), "E-VOLUME-NAME");
    let ours = RoleView { volumes: vec![volume("/opt/amazon-efa-ofi/")], ..worker("Worker") };
    assert!(ops(&dgxc(&pytorch(ours)))[0].contains("mount"), "only the mount is missing");
    let mut mounted = worker("Worker");
    mounted.container.mounts = vec![MountView { volume: "x".into(), path: "/opt/amazon-efa-ofi/".into() }];
    assert!(ops(&dgxc(&pytorch(mounted))).iter().all(|op| !op.contains("mount")));
}

#[test]
fn device_rdma_is_left_out_where_it_would_abort() {
    let outcome = dgxc(&pytorch(on(worker("Worker"), "g5.48xlarge")));
    assert!(ops(&outcome).iter().all(|op| !op.contains("DEVICE_RDMA")));
    let own = with_env(on(worker("Worker"), "g5.48xlarge"), &[("FI_EFA_USE_DEVICE_RDMA", "1")]);
    refused(&dgxc(&pytorch(own)), "E-RDMA-UNSUPPORTED");
}

// ---- opting out ---------------------------------------------------------------------------------------------------

#[test]
fn an_opt_out_of_the_job_is_copied_to_its_pods() {
    let mut view = pytorch(worker("Worker"));
    view.annotations.insert("disable-auto-efa".into(), Annotation::Text("true".into()));
    let outcome = dgxc(&view);
    assert_eq!(skip(&outcome), Some("opt-out"));
    assert_eq!(ops(&outcome), ["Worker: annotation disable-auto-efa = true"]);
}

#[test]
fn an_opt_out_of_one_worker_role_holds_for_all() {
    let out = annotated(worker("Worker"), &[("disable-auto-efa", "true")]);
    let outcome = dgxc(&job(JobKind::PyTorchJob, vec![worker("Master"), out]));
    assert_eq!(
        (skip(&outcome), codes(&outcome), ops(&outcome).len()),
        (Some("opt-out"), vec!["W-OPTOUT-MIXED"], 0)
    );
}

#[test]
fn a_launcher_alone_may_opt_out() {
    let out = annotated(launcher(&["mpirun", "app"]), &[("disable-auto-efa", "true")]);
    let outcome = dgxc(&job(JobKind::MpiJobV2, vec![out, worker("Worker")]));
    assert_eq!(codes(&outcome), ["W-OPTOUT-LAUNCHER"]);
    assert!(outcome.ops.iter().all(|op| op.role == "Worker"));
}

#[test]
fn only_the_string_true_is_an_opt_out() {
    let mut bool_like = worker("Worker");
    bool_like.annotations.insert("disable-auto-efa".into(), Annotation::NotText("true".into()));
    refused(&dgxc(&pytorch(bool_like)), "E-ANNOT-BOOL");
    let odd = annotated(worker("Worker"), &[("disable-auto-efa", "True")]);
    let outcome = dgxc(&pytorch(odd));
    assert_eq!((codes(&outcome), outcome.changed()), (vec!["W-OPTOUT-VALUE"], true));
}

#[test]
fn our_own_opt_out_beside_a_webhook_is_no_opt_out() {
    let options = Options { webhook: Webhook::Yes, ..Options::default() };
    let first = run(&pytorch(worker("Worker")), "dgxc", &options);
    assert!(has(&first, "Worker: annotation disable-auto-efa = true"));
    assert!(has(&first, "Worker: annotation weftrun.dev/applied = efa/v1"));
    let marked =
        annotated(worker("Worker"), &[("disable-auto-efa", "true"), ("weftrun.dev/applied", "efa/v1")]);
    let again = run(&pytorch(marked), "dgxc", &Options::default());
    assert_eq!(skip(&again), None);
    assert!(again.findings.iter().all(|finding| finding.code != "I-WEBHOOK-UNKNOWN"), "it is settled");
}

#[test]
fn beside_a_webhook_that_injects_only_mpirun_is_ours() {
    let options = Options { inject: Inject::Server, ..Options::default() };
    let outcome =
        run(&job(JobKind::MpiJobV2, vec![launcher(&["mpirun", "app"]), worker("Worker")]), "dgxc", &options);
    assert_eq!(outcome.ops.iter().map(|op| op.rule.as_str()).collect::<Vec<_>>(), ["efa.mpirun"]);
}

#[test]
fn each_rule_that_is_off_adds_nothing() {
    let all: Vec<&str> = vec![
        "efa.stack",
        "efa.library-path",
        "efa.opal-prefix",
        "efa.gdrcopy",
        "efa.device-rdma",
        "efa.devices",
        "efa.hugepages",
        "efa.mpirun",
        "efa.webhook",
    ];
    let view = job(JobKind::MpiJobV2, vec![launcher(&["mpirun", "app"]), worker("Worker")]);
    for rule in all {
        let mut options = Options { webhook: Webhook::Yes, ..Options::default() };
        options.rules.insert(rule.to_owned(), RuleSetting::Off);
        let outcome = run(&view, "dgxc", &options);
        assert!(outcome.ops.iter().all(|op| op.rule != rule), "{rule}");
        assert!(outcome.skipped.iter().any(|skipped| skipped.rule == rule), "{rule} is not reported");
    }
    let mut options = Options::default();
    options.rules.insert("efa.device-rdma".into(), RuleSetting::Off);
    let command = ops(&run(&view, "dgxc", &options)).into_iter().find(|op| op.contains("command")).unwrap();
    assert!(!command.contains("FI_EFA_USE_DEVICE_RDMA"), "what is not set is not forwarded: {command}");
}

#[test]
fn a_rule_nobody_knows_is_an_error_with_the_nearest() {
    let mut options = Options::default();
    options.rules.insert("efa.hugepage".into(), RuleSetting::Off);
    let outcome = run(&pytorch(worker("Worker")), "dgxc", &options);
    refused(&outcome, "E-RULE-UNKNOWN");
    assert!(outcome.error().unwrap().fix.as_ref().unwrap().text.contains("efa.hugepages"));
}

// ---- the stack, the launcher --------------------------------------------------------------------------------------

#[test]
fn an_image_with_its_own_stack_gets_devices_only() {
    let view =
        job(JobKind::MpiJobV2, vec![launcher(&["/opt/amazon/openmpi/bin/mpirun", "app"]), worker("Worker")]);
    let outcome = dgxc(&view);
    assert_eq!(codes(&outcome), ["I-STACK-BUNDLED"]);
    assert_eq!(
        ops(&outcome),
        ["Worker: resources vpc.amazonaws.com/efa = 32", "Worker: resources hugepages-2Mi = 5Gi"]
    );
    let options = Options { stack: Stack::Mounted, ..Options::default() };
    assert_eq!(codes(&run(&view, "dgxc", &options)), ["W-MPIRUN-OTHER"]);
}

#[test]
fn the_mounted_stack_is_not_taken_for_the_images() {
    let role = with_env(worker("Worker"), &[("LD_LIBRARY_PATH", OURS)]);
    assert!(codes(&dgxc(&pytorch(role))).is_empty());
}

#[test]
fn a_launcher_that_is_a_worker_gets_everything() {
    let both = RoleView { launcher: true, replicas: 1, ..worker("Launcher") };
    let mut view = job(JobKind::MpiJobV2, vec![both, RoleView { replicas: 1, ..worker("Worker") }]);
    view.roles[0].container.command = words(&["mpirun", "app"]);
    let outcome = dgxc(&view);
    for what in ["Launcher: resources vpc.amazonaws.com/efa = 32", "Launcher: env NVIDIA_GDRCOPY = enabled"] {
        assert!(has(&outcome, what), "{what}");
    }
    assert!(
        ops(&outcome)
            .iter()
            .any(|op| op.starts_with("Launcher: command = /opt/amazon-efa-ofi/openmpi/bin/mpirun"))
    );
}

#[test]
fn a_launcher_with_gpus_it_never_sees_is_named() {
    let mut view = job(JobKind::MpiJobV2, vec![launcher(&["mpirun", "app"]), worker("Worker")]);
    view.roles[0].container.limits.insert("nvidia.com/gpu".into(), "8".into());
    assert_eq!(codes(&dgxc(&view)), ["W-LAUNCHER-GPU"]);
}

#[test]
fn the_launcher_forwards_what_the_user_set_for_the_ranks() {
    let zero = with_env(worker("Worker"), &[("FI_EFA_USE_DEVICE_RDMA", "0")]);
    let outcome = dgxc(&job(JobKind::MpiJobV2, vec![launcher(&["mpirun", "app"]), zero]));
    assert!(has(&outcome, "Launcher: env FI_EFA_USE_DEVICE_RDMA = 0"), "{:#?}", ops(&outcome));
}

#[test]
fn the_profile_may_know_where_launchers_find_the_stack() {
    let mine = Profiles::builtin()
        .with("mine", "extends = 'dgxc'\n[launcher.node-selector]\npool = 'gpu'".parse().unwrap());
    let view = job(JobKind::MpiJobV2, vec![launcher(&["mpirun", "app"]), worker("Worker")]);
    let outcome = decide(
        &view,
        &mine.get("mine").unwrap(),
        &Options::default(),
        &Catalogue::builtin(),
        &ClusterFacts::default(),
    );
    assert!(has(&outcome, "Launcher: node selector pool = gpu"));
    assert!(outcome.findings.iter().all(|finding| finding.code != "W-LAUNCHER-HOSTPATH"));
}

#[test]
fn a_list_of_variables_in_the_environment_excludes_x_too() {
    let launcher =
        with_env(launcher(&["mpirun", "app"]), &[("OMPI_MCA_mca_base_env_list", "LD_LIBRARY_PATH;A=1")]);
    let outcome = dgxc(&job(JobKind::MpiJobV2, vec![launcher, worker("Worker")]));
    assert!(codes(&outcome).contains(&"W-MPIRUN-ENV-LIST"), "{:?}", codes(&outcome));
    assert!(!ops(&outcome).iter().any(|op| op.contains("mpirun -x")), "{:?}", ops(&outcome));
}

#[test]
fn other_mpis_are_left_alone() {
    let mut view = job(JobKind::MpiJobV2, vec![launcher(&["mpirun", "app"]), worker("Worker")]);
    view.mpi = Some(Mpi::Intel);
    let outcome = dgxc(&view);
    assert_eq!(codes(&outcome), ["W-MPI-IMPL"]);
    assert!(ops(&outcome).iter().all(|op| !op.contains("command")));
}

#[test]
fn devices_that_would_go_to_the_launcher_are_refused() {
    let view = JobView { devices_go_to_launcher: true, ..job(JobKind::TrainJob, vec![worker("trainer")]) };
    refused(&dgxc(&view), "E-TRAINJOB-MPI-LAUNCHER");
}

// ---- RoCE, InfiniBand, TCP ----------------------------------------------------------------------------------------

#[test]
fn roce_takes_parts_of_nodes() {
    let four = with_resource(worker("Worker"), "nvidia.com/gpu", Some("4"), Some("4"));
    let outcome = run(&pytorch(four), "roce", &Options::default());
    assert_eq!(
        ops(&outcome),
        [
            "Worker: env NCCL_IB_HCA = mlx5",
            "Worker: env NCCL_SOCKET_NTHREADS = 4",
            "Worker: env NCCL_NSOCKS_PERTHREAD = 8",
            "Worker: resources rdma/rdma = 1",
            "Worker: capabilities = IPC_LOCK",
            "Worker: annotation k8s.v1.cni.cncf.io/networks = kube-system/roce",
        ]
    );
}

#[test]
fn the_networks_of_a_pod_are_appended_in_their_own_form() {
    const KEY: &str = "k8s.v1.cni.cncf.io/networks";
    for (existing, expected) in [
        ("default/storage", Some("default/storage,kube-system/roce")),
        ("kube-system/roce", None),
        ("default/storage, kube-system/roce@net1", None),
        (
            r#"[{"name": "storage"}]"#,
            Some(r#"[{"name": "storage"},{"name":"roce","namespace":"kube-system"}]"#),
        ),
        (r#"[{"name": "roce", "namespace": "kube-system"}]"#, None),
        ("[]", Some(r#"[{"name":"roce","namespace":"kube-system"}]"#)),
        ("", Some("kube-system/roce")),
    ] {
        let outcome =
            run(&pytorch(annotated(worker("Worker"), &[(KEY, existing)])), "roce", &Options::default());
        let line = ops(&outcome)
            .into_iter()
            .find_map(|op| op.strip_prefix(&format!("Worker: annotation {KEY} = ")).map(str::to_owned));
        assert_eq!(line.as_deref(), expected, "beside `{existing}`");
    }
    let broken = annotated(worker("Worker"), &[(KEY, "[{")]);
    refused(&run(&pytorch(broken), "roce", &Options::default()), "E-ROCE-NETWORKS");
}

#[test]
fn a_network_is_named_once_for_each_virtual_function() {
    let table = "extends = 'roce'\n[roce]\nnetworks = ['default/rdma-vf']\nnetwork-per-device = true\ndevices = 'nvidia.com/rdma-vf'\ncount = 3";
    let vf = Profiles::builtin().with("vf", table.parse().unwrap()).get("vf").unwrap();
    let view = pytorch(annotated(worker("Worker"), &[("k8s.v1.cni.cncf.io/networks", "default/rdma-vf")]));
    let outcome = decide(&view, &vf, &Options::default(), &Catalogue::builtin(), &ClusterFacts::default());
    assert!(has(
        &outcome,
        "Worker: annotation k8s.v1.cni.cncf.io/networks = default/rdma-vf,default/rdma-vf,default/rdma-vf"
    ));
    assert!(has(&outcome, "Worker: resources nvidia.com/rdma-vf = 3"));
    let mut options = Options::default();
    options.rules.insert("roce.devices".into(), RuleSetting::Off);
    let without = decide(&view, &vf, &options, &Catalogue::builtin(), &ClusterFacts::default());
    assert!(
        without.skipped.iter().any(|skipped| skipped.rule == "roce.network"),
        "no devices, no networks of theirs"
    );
}

#[test]
fn the_gid_index_is_left_set_or_found() {
    let with = |gid, role| run(&pytorch(role), "roce", &Options { gid: Some(gid), ..Options::default() });
    let command = |mut role: RoleView| {
        role.container.command = words(&["torchrun"]);
        role.container.args = words(&["train.py", "a b"]);
        role
    };
    assert!(ops(&with(Gid::Auto, worker("Worker"))).iter().all(|op| !op.contains("GID")));
    assert!(has(&with(Gid::Index(3), worker("Worker")), "Worker: env NCCL_IB_GID_INDEX = 3"));
    let wrapped = with(Gid::Compute, command(worker("Worker")));
    let change = &wrapped.ops.iter().find(|op| op.rule == "roce.gid").unwrap().change;
    let weftrun_core::mutation::Change::Command { after, command_words, .. } = change else {
        panic!("{change:?}")
    };
    assert_eq!(
        (after[0].as_str(), &after[4..], *command_words),
        ("/bin/sh", &words(&["torchrun", "train.py", "a b"])[..], 5)
    );
    refused(&with(Gid::Compute, worker("Worker")), "E-ROCE-NOCMD");
}

#[test]
fn ranks_that_ssh_starts_get_roce_settings_through_mpirun() {
    let options = Options { gid: Some(Gid::Index(3)), ..Options::default() };
    let view = job(JobKind::MpiJobV2, vec![launcher(&["mpirun", "-np", "16", "app"]), worker("Worker")]);
    let outcome = run(&view, "roce", &options);
    assert!(has(&outcome, "Launcher: env NCCL_IB_GID_INDEX = 3"));
    let line = "Launcher: command = mpirun -x NCCL_IB_HCA -x NCCL_SOCKET_NTHREADS -x NCCL_NSOCKS_PERTHREAD -x NCCL_IB_GID_INDEX -np 16 app";
    assert!(has(&outcome, line), "{:#?}", ops(&outcome));
}

#[test]
fn infiniband_asks_a_device() {
    let outcome = run(&pytorch(worker("Worker")), "infiniband", &Options::default());
    assert_eq!(ops(&outcome), ["Worker: resources rdma/ib = 1", "Worker: capabilities = IPC_LOCK"]);
}

#[test]
fn tcp_said_outright_keeps_nccl_on_sockets() {
    let options = Options { kind: Fabric::Tcp, ..Options::default() };
    assert_eq!(ops(&run(&pytorch(worker("Worker")), "dgxc", &options)), ["Worker: env NCCL_NET = Socket"]);
}

#[test]
fn a_profile_without_the_fabric_is_an_error() {
    let options = Options { kind: Fabric::Roce, ..Options::default() };
    refused(&run(&pytorch(worker("Worker")), "dgxc", &options), "E-PROFILE-FABRIC");
}

// ---- detection, strictness, placement -----------------------------------------------------------------------------

#[test]
fn detection_is_for_job_files_and_on_request() {
    let view = job(JobKind::MpiJobV2, vec![launcher(&["mpirun", "app"]), worker("Worker")]);
    assert!(ops(&dgxc(&view)).iter().all(|op| !op.contains("NCCL_DEBUG")));
    let outcome = run(&view, "dgxc", &Options { detect: Some(true), ..Options::default() });
    for line in ["Launcher: env NCCL_DEBUG = INFO", "Worker: env NCCL_DEBUG = INFO"] {
        assert!(has(&outcome, line), "{line}");
    }
    assert!(ops(&outcome).iter().any(|op| op.contains("-x NCCL_DEBUG")));
}

#[test]
fn a_level_that_says_nothing_of_transports_is_kept_and_named() {
    let quiet = with_env(worker("Worker"), &[("NCCL_DEBUG", "WARN")]);
    let outcome = run(&pytorch(quiet), "dgxc", &Options { detect: Some(true), ..Options::default() });
    assert_eq!(codes(&outcome), ["W-ENV-KEPT"]);
}

#[test]
fn strict_pins_the_network() {
    let strict = Options { strict: true, ..Options::default() };
    let view = job(JobKind::MpiJobV2, vec![launcher(&["mpirun", "app"]), worker("Worker")]);
    let outcome = run(&view, "dgxc", &strict);
    assert!(
        has(&outcome, "Worker: env NCCL_NET = AWS Libfabric")
            && has(&outcome, "Launcher: env NCCL_NET = AWS Libfabric")
    );
    assert!(has(&run(&pytorch(worker("Worker")), "roce", &strict), "Worker: env NCCL_NET = IB"));
    let known = Profiles::builtin()
        .with("k", "extends = 'dgxc'\n[stack]\nnet-plugin = '/opt/p/libnccl-net.so'".parse().unwrap());
    let outcome =
        decide(&view, &known.get("k").unwrap(), &strict, &Catalogue::builtin(), &ClusterFacts::default());
    assert!(has(&outcome, "Worker: env NCCL_NET_PLUGIN = /opt/p/libnccl-net.so"));
}

#[test]
fn raw_manifests_are_placed_only_on_request() {
    let view = pytorch(on(worker("Worker"), "p5.48xlarge"));
    assert!(ops(&dgxc(&view)).iter().all(|op| !op.contains("affinity")));
    let mut options = Options::default();
    options.rules.insert("efa.colocate".into(), RuleSetting::On);
    assert!(has(
        &run(&view, "dgxc", &options),
        "Worker: affinity = all pods in one topology.kubernetes.io/zone"
    ));
}

#[test]
fn a_namespace_that_forbids_host_paths_is_named_before_it_refuses() {
    let facts = online(|facts| facts.pod_security = Some("baseline".into()));
    let outcome = decide(
        &pytorch(worker("Worker")),
        &profile("dgxc"),
        &Options::default(),
        &Catalogue::builtin(),
        &facts,
    );
    assert!(outcome.findings.iter().any(|finding| finding.code == "W-POD-SECURITY"));
}

#[test]
fn every_finding_says_what_to_do() {
    let view = job(
        JobKind::MpiJobV2,
        vec![launcher(&["./run.sh"]), with_env(worker("Worker"), &[("LD_LIBRARY_PATH", "$X")])],
    );
    for finding in dgxc(&view).findings {
        assert!(finding.fix.is_some(), "{} has no fix", finding.code);
        assert!(finding.severity <= Severity::Warning);
    }
}
