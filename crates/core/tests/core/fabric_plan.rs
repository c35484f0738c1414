//! The plan of a job file, as shown to a person.

use weftrun_core::backend::ClusterFacts;
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::{Change, Fabric, FabricPlan, Op, Profiles, RuleSetting, SkipReason};
use weftrun_core::spec::{Code, EnvVar, JobSpec, JobSpecBuilder, Launch, Role};

fn worker() -> Role {
    Role::worker().nodes(4).gpus_per_node(8).memory("1800Gi").command(["train.py"])
}

fn llama(role: Role) -> JobSpecBuilder {
    JobSpec::builder("llama").image("nvcr.io/nvidia/pytorch:25.09-py3").launch(Launch::Torchrun).role(role)
}

fn plan(spec: &JobSpec, profile: &str) -> FabricPlan {
    let profile = Profiles::builtin().get(profile).unwrap();
    FabricPlan::new(spec, &Catalogue::builtin(), &ClusterFacts::default(), &profile)
}

fn codes(plan: &FabricPlan) -> Vec<&str> {
    plan.findings.iter().map(|finding| finding.code.as_str()).collect()
}

#[test]
fn a_whole_node_job_gets_everything_and_every_decision_says_why() {
    let plan = plan(&llama(worker().instance_type("p5en.48xlarge")).build().unwrap(), "dgxc");
    assert_eq!(plan.fabric, Fabric::Efa);
    let lines: Vec<String> = plan
        .decisions
        .iter()
        .map(|d| format!("{} | {} = {} | {} | {:?}", d.rule, d.target, d.value, d.why, d.origin))
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn part_of_a_node_gets_nothing_but_detection() {
    let plan = plan(&llama(worker().gpus_per_node(4)).build().unwrap(), "dgxc");
    assert_eq!(plan.fabric, Fabric::Tcp);
    assert_eq!(plan.skipped[0].reason, SkipReason::PartialNode);
    let rules: Vec<&str> = plan.ops.iter().map(|op| op.rule.as_str()).collect();
    assert_eq!(rules, ["detect.nccl-debug"]);
}

#[test]
fn a_job_that_may_share_its_nodes_gets_a_ras_port_of_its_own() {
    let address = |name: &str, setting: Option<RuleSetting>| {
        let mut spec = llama(worker().gpus_per_node(4)).build().unwrap();
        spec.name = name.into();
        spec.fabric.rules.extend(setting.map(|setting| ("observe.ras-addr".into(), setting)));
        let plan = plan(&spec, "dgxc");
        let mut changes = plan.ops.iter().map(|op| &op.change);
        changes.find_map(|change| match change {
            Change::Env { name, value } if name == "NCCL_RAS_ADDR" => Some(value.clone()),
            _ => None,
        })
    };
    assert_eq!(address("one", None), None, "pods have a network of their own");
    let (one, two) = (address("one", Some(RuleSetting::On)), address("two", Some(RuleSetting::On)));
    let port: u16 = one.as_deref().unwrap().strip_prefix("localhost:").unwrap().parse().unwrap();
    assert!((28_100..32_768).contains(&port), "{port}");
    assert_ne!(one, two);
    assert_eq!(one, address("one", Some(RuleSetting::On)), "every plan of a job names the same port");
    assert_eq!(address("one", Some(RuleSetting::Off)), None);
}

#[test]
fn the_flight_recorder_is_set_up_only_where_it_is_switched_on() {
    let variables = |setting: Option<RuleSetting>, name: &str| {
        let mut spec = llama(worker().gpus_per_node(8)).build().unwrap();
        spec.name = name.into();
        spec.fabric.rules.extend(setting.map(|setting| ("observe.flight-recorder".into(), setting)));
        let plan = plan(&spec, "dgxc");
        let ops = plan.ops.iter().filter(|op| op.rule == "observe.flight-recorder");
        let pairs = ops.filter_map(|op| match &op.change {
            Change::Env { name, value } => Some((name.clone(), value.clone())),
            _ => None,
        });
        pairs.collect::<std::collections::BTreeMap<_, _>>()
    };
    assert!(variables(None, "one").is_empty() && variables(Some(RuleSetting::Off), "one").is_empty());
    let (one, two) = (variables(Some(RuleSetting::On), "one"), variables(Some(RuleSetting::On), "two"));
    assert_eq!(one.len(), 6, "{one:?}");
    let pipe =
        |set: &std::collections::BTreeMap<String, String>| set["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"].clone();
    assert!(
        pipe(&one).starts_with("/tmp/") && pipe(&one) != pipe(&two),
        "jobs on one node have files of their own"
    );
    assert_eq!(
        one["TORCH_NCCL_DUMP_ON_TIMEOUT"], "1",
        "without it PyTorch reads the pipe every eight minutes"
    );
}

#[test]
fn diagnostics_are_printed_only_where_they_are_switched_on_and_the_users_value_stays() {
    let set = |setting: Option<RuleSetting>, own: Option<&str>| {
        let mut worker = worker();
        worker
            .env
            .extend(own.map(|value| EnvVar { name: "NCCL_RUN_DIAGNOSTICS".into(), value: value.into() }));
        let mut spec = llama(worker).build().unwrap();
        spec.fabric.rules.extend(setting.map(|setting| ("observe.diagnostics".into(), setting)));
        let plan = plan(&spec, "dgxc");
        let ops = plan.ops.iter().filter(|op| op.rule == "observe.diagnostics");
        let names = ops.filter_map(|op| match &op.change {
            Change::Env { name, value } => Some(format!("{name}={value}")),
            _ => None,
        });
        names.collect::<Vec<_>>()
    };
    assert!(set(None, None).is_empty() && set(Some(RuleSetting::Off), None).is_empty());
    let both = ["NCCL_RUN_RAS_DIAGNOSTICS=1", "NCCL_RUN_DIAGNOSTICS=1"];
    assert_eq!(set(Some(RuleSetting::On), None), both);
    assert_eq!(set(Some(RuleSetting::On), Some("0")), both[..1], "a value of the user is kept");
}

/// The variables that `observe.profiler` sets, and the codes of what it reports.
fn profiler(spec: &JobSpec, profile: &str) -> (Vec<(String, String)>, Vec<String>) {
    let plan = plan(spec, profile);
    let ops = plan.ops.iter().filter(|op| op.rule == "observe.profiler");
    let set = ops.filter_map(|op| match &op.change {
        Change::Env { name, value } => Some((name.clone(), value.clone())),
        _ => None,
    });
    (set.collect(), codes(&plan).into_iter().map(str::to_owned).collect())
}

#[test]
fn the_profiler_is_brought_only_where_it_is_asked_for_and_replaces_no_other() {
    let mut spec = llama(worker()).build().unwrap();
    assert_eq!(profiler(&spec, "dgxc").0, []);
    spec.fabric.bandwidth = true;
    let (set, said) = profiler(&spec, "dgxc");
    let path = weftrun_core::fabric::PROFILER_PATH.to_owned();
    let options =
        [("WEFTRUN_NCCL_OUT", "stderr"), ("WEFTRUN_NCCL_MS", "5000"), ("NCCL_ALLGATHERV_ENABLE", "0")];
    let options = options.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(set, [vec![("NCCL_PROFILER_PLUGIN".to_owned(), path)], options.to_vec()].concat());
    assert!(!said.contains(&"W-ENV-KEPT".to_owned()), "{said:?}");
    let mut off = spec.clone();
    off.fabric.rules.insert("observe.profiler".into(), RuleSetting::Off);
    assert_eq!(profiler(&off, "dgxc").0, []);
    let mut own = llama(worker()).env("NCCL_PROFILER_PLUGIN", "inspector").build().unwrap();
    own.fabric.bandwidth = true;
    let (set, said) = profiler(&own, "dgxc");
    assert_eq!(set, []);
    assert!(said.contains(&"W-ENV-KEPT".to_owned()), "{said:?}");
    // Nor that of the site.
    let mut site = Profiles::builtin().get("dgxc").unwrap();
    site.env.insert("NCCL_PROFILER_PLUGIN".into(), "inspector".into());
    let mut whole = llama(worker().instance_type("p5en.48xlarge")).build().unwrap();
    whole.fabric.bandwidth = true;
    let plan = FabricPlan::new(&whole, &Catalogue::builtin(), &ClusterFacts::default(), &site);
    let named = plan.ops.iter().filter(|op| op.change.target() == "env NCCL_PROFILER_PLUGIN");
    assert_eq!(named.map(|op| op.change.value()).collect::<Vec<_>>(), ["inspector"]);
    assert!(codes(&plan).contains(&"W-ENV-KEPT"), "{:?}", codes(&plan));
    // The site's settings stay, and the user's of the library; one of NCCL's that spoils the times is reported.
    site.env =
        [("NCCL_ALLGATHERV_ENABLE".into(), "1".into()), ("WEFTRUN_NCCL_MS".into(), "900".into())].into();
    let plan = FabricPlan::new(&whole, &Catalogue::builtin(), &ClusterFacts::default(), &site);
    let of_rule = plan.ops.iter().filter(|op| op.rule == "observe.profiler");
    assert_eq!(
        of_rule.map(|op| op.change.target()).collect::<Vec<_>>(),
        ["env NCCL_PROFILER_PLUGIN", "env WEFTRUN_NCCL_OUT"]
    );
    let own = llama(worker()).env("NCCL_ALLGATHERV_ENABLE", "1").env("WEFTRUN_NCCL_MS", "900");
    let mut own = own.build().unwrap();
    own.fabric.bandwidth = true;
    let (set, said) = profiler(&own, "dgxc");
    assert_eq!(
        set.iter().map(|(name, _)| &**name).collect::<Vec<_>>(),
        ["NCCL_PROFILER_PLUGIN", "WEFTRUN_NCCL_OUT"]
    );
    assert_eq!(said.iter().filter(|code| *code == "W-ENV-KEPT").count(), 1, "{said:?}");
    let mut no_gpu = spec;
    no_gpu.roles[0].gpus_per_node = 0;
    assert_eq!(profiler(&no_gpu, "dgxc").0, []);
}

#[test]
fn a_fabric_said_outright_that_cannot_be_had_is_an_error() {
    let spec = llama(worker().gpus_per_node(4)).fabric(Fabric::Efa).build().unwrap();
    let plan = plan(&spec, "dgxc");
    assert!(codes(&plan).contains(&"E-FABRIC-UNMET"), "{:?}", codes(&plan));
    assert_eq!(plan.ops, []);
}

#[test]
fn off_leaves_the_job_alone() {
    let plan = plan(&llama(worker()).fabric(Fabric::Off).build().unwrap(), "dgxc");
    assert_eq!((plan.fabric, plan.ops), (Fabric::Off, vec![]));
}

#[test]
fn with_mpi_the_backend_is_told_which_mpirun_and_what_it_forwards() {
    let spec = llama(worker()).launch(Launch::Mpi).env("WANDB_MODE", "offline").build().unwrap();
    let plan = plan(&spec, "dgxc");
    let mpirun = plan.ops.iter().find_map(|op| match &op.change {
        Change::Mpirun { path, forward } => Some((op.role.as_str(), path.as_str(), forward.join(" "))),
        _ => None,
    });
    let forward = "LD_LIBRARY_PATH OPAL_PREFIX FI_EFA_USE_DEVICE_RDMA NCCL_DEBUG WANDB_MODE".to_owned();
    assert_eq!(mpirun, Some(("launcher", "/opt/amazon-efa-ofi/openmpi/bin/mpirun", forward)));
    assert!(plan.ops.iter().all(|op| op.role != "launcher" || !matches!(op.change, Change::Resource { .. })));
}

#[test]
fn a_rule_that_is_off_takes_those_that_depend_on_it_along() {
    let mut spec = llama(worker()).launch(Launch::Mpi).build().unwrap();
    spec.fabric.rules.insert("efa.stack".into(), RuleSetting::Off);
    let plan = plan(&spec, "dgxc");
    let gone = ["efa.stack", "efa.library-path", "efa.opal-prefix", "efa.mpirun"];
    assert!(plan.ops.iter().all(|op| !gone.contains(&op.rule.as_str())), "{:?}", plan.ops);
    for rule in gone {
        assert!(plan.skipped.iter().any(|skipped| skipped.rule == rule), "{rule} is not reported");
    }
}

#[test]
fn a_rule_that_is_on_and_cannot_be_met_is_an_error_that_says_why() {
    let mut spec = llama(worker().gpus_per_node(1)).build().unwrap();
    spec.fabric.rules.insert("efa.devices".into(), RuleSetting::On);
    let plan = plan(&spec, "dgxc");
    let error = plan.findings.iter().find(|finding| finding.code == "E-RULE-UNMET").unwrap();
    assert!(error.message.contains("requests 1 accelerators"), "{}", error.message);
}

#[test]
fn every_shipped_profile_can_be_read_and_a_user_extends_it() {
    let table = "extends = 'dgxc'\nmemory-default = '90%'\n[efa]\ncount = 16".parse().unwrap();
    let profiles = Profiles::builtin().with("mine", table);
    for name in profiles.names() {
        let profile = profiles.get(name).unwrap();
        assert!(!profile.summary.is_empty() && profile.covers(profile.fabric), "{name}");
    }
    let mine = profiles.get("mine").unwrap();
    assert_eq!(mine.efa.unwrap().hugepages.as_deref(), Some("5Gi"), "what is not overridden stays");
    let error = profiles.get("dgcx").unwrap_err();
    assert_eq!(error.hints(), ["did you mean `dgxc`?"]);
}

#[test]
fn a_circle_of_extends_is_an_error() {
    let profiles = Profiles::builtin()
        .with("a", "extends = 'b'".parse().unwrap())
        .with("b", "extends = 'a'".parse().unwrap());
    assert!(profiles.get("a").unwrap_err().message().contains("extends itself"));
}

/// The fabric's block stands after `setup` in a script.
#[test]
fn what_setup_exports_is_set_by_the_user() {
    let level = |setup: &str, env: Option<&str>| {
        let mut spec = llama(worker().instance_type("p5en.48xlarge")).build().unwrap();
        spec.backend.insert("slurm".to_owned(), serde_json::json!({ "setup": [setup] }));
        spec.env.extend(env.map(|value| EnvVar { name: "NCCL_DEBUG".into(), value: value.into() }));
        let plan = plan(&spec, "dgxc");
        let is_set =
            plan.ops.iter().any(|op| matches!(&op.change, Change::Env { name, .. } if name == "NCCL_DEBUG"));
        let kept = plan.findings.iter().find(|one| one.code == "W-ENV-KEPT").map(|one| one.message.clone());
        (is_set, kept.unwrap_or_default())
    };
    for setup in [
        "export NCCL_DEBUG=WARN",
        "if true; then\nexport A=1 NCCL_DEBUG=\"WARN\"; fi",
        "declare -x NCCL_DEBUG=WARN",
    ] {
        let (is_set, kept) = level(setup, None);
        assert!(!is_set && kept.contains("NCCL_DEBUG is `WARN`, set by the user"), "{setup}: {kept}");
    }
    let (is_set, kept) = level("export NCCL_DEBUG=$LEVEL", None);
    assert!(!is_set && kept.contains("NCCL_DEBUG is a value from elsewhere"), "{kept}");
    for setup in ["echo export NCCL_DEBUG=WARN", "NCCL_DEBUG=WARN ./check", "# export NCCL_DEBUG=WARN"] {
        assert_eq!(level(setup, None), (true, String::new()), "{setup}");
    }
    assert_eq!(level("export NCCL_DEBUG=WARN", Some("INFO")), (false, String::new()), "`env` comes after it");
    // The folders of the fabric go before those of `setup`, which stay.
    let mut spec = llama(worker().instance_type("p5en.48xlarge")).build().unwrap();
    spec.backend
        .insert("slurm".to_owned(), serde_json::json!({ "setup": ["export LD_LIBRARY_PATH=$X/lib"] }));
    assert!(!codes(&plan(&spec, "dgxc")).contains(&"E-LDPATH-VALUEFROM"));
}

#[test]
fn a_job_that_starts_its_containers_gets_no_library_path_of_the_node() {
    let path = |command: &[&str], script: &str| {
        let mut spec = JobSpec::builder("a")
            .launch(Launch::PerNode)
            .role(worker().instance_type("p5en.48xlarge").command(command.iter().copied()))
            .build()
            .unwrap();
        spec.code = Some(Code::Script { name: "job.sh".into(), text: script.into() });
        let plan = plan(&spec, "parallelcluster");
        let sets = |op: &Op| matches!(&op.change, Change::Env { name, .. } if name == "LD_LIBRARY_PATH");
        (plan.ops.iter().any(sets), plan.skipped.iter().any(|skipped| skipped.rule == "efa.library-path"))
    };
    assert_eq!(path(&["bash", "job.sh"], "srun ./a\n# --container-image=a\n"), (true, false));
    assert_eq!(
        path(&["bash", "job.sh"], "ARGS=(--container-image=a)\nsrun \"${ARGS[@]}\" ./a\n"),
        (false, true)
    );
    assert_eq!(path(&["apptainer", "exec", "--nv", "a.sif", "./a"], ""), (false, true));
}

#[test]
fn an_assumed_node_is_no_fact() {
    let why = |role: Role| plan(&llama(role).build().unwrap(), "dgxc").skipped[0].why.clone();
    let assumed = why(worker().gpus_per_node(4));
    assert!(!assumed.contains("4 of 8") && assumed.contains("no instance type says"), "{assumed}");
    let known = why(worker().gpus_per_node(4).instance_type("p5en.48xlarge"));
    assert!(known.contains("requests 4 of 8 accelerators of p5en.48xlarge"), "{known}");
}

#[test]
fn a_job_without_a_number_of_gpus_may_use_nccl() {
    let plan = plan(&llama(worker().gpus_per_node(0)).build().unwrap(), "dgxc");
    let skipped = plan.skipped.iter().find(|skipped| skipped.rule == "detect.nccl-debug").unwrap();
    assert_eq!(skipped.why, "no worker names a number of GPUs, so it is not known whether NCCL runs");
}
