use weftrun_core::backend::{ClusterFacts, PlannedJob};
use weftrun_core::fabric::{Change, Op};
use weftrun_core::fabric::{Fabric, FabricPlan, Origin, Profile};
use weftrun_core::job::SubmissionId;
use weftrun_core::spec::{Code, JobSpec, Launch, RestartPolicy, Role, Volume, VolumeSource};

use super::*;

fn planned(spec: JobSpec, ops: Vec<Op>) -> PlannedJob {
    let mut plan = FabricPlan::unchanged(Fabric::Efa);
    plan.ops = ops;
    PlannedJob::new(
        spec,
        plan,
        Profile::default(),
        ClusterFacts::default(),
        SubmissionId::from_random(0x0a1b_2c3d << 96),
    )
}

fn text(spec: JobSpec, ops: Vec<Op>) -> String {
    render(&Settings::default(), &planned(spec, ops)).expect("renders").documents[0].text.clone()
}

fn efa() -> Vec<Op> {
    let op = |rule: &str, change, why: &str| Op::new(rule, "worker", change, why, Origin::Default);
    vec![
        op(
            "efa.devices",
            Change::Resource { name: "vpc.amazonaws.com/efa".into(), quantity: "4".into() },
            "p4de.24xlarge has 4 interfaces",
        ),
        op(
            "efa.hugepages",
            Change::Resource { name: "hugepages-2Mi".into(), quantity: "5Gi".into() },
            "buffers",
        ),
        op(
            "efa.device-rdma",
            Change::Env { name: "FI_EFA_USE_DEVICE_RDMA".into(), value: "1".into() },
            "p4de reads and writes over RDMA",
        ),
        op(
            "efa.library-path",
            Change::Env { name: "LD_LIBRARY_PATH".into(), value: "/opt/amazon/efa/lib:$x'y".into() },
            "libfabric\nof the AMI",
        ),
    ]
}

fn llama() -> weftrun_core::spec::JobSpecBuilder {
    JobSpec::builder("llama-8b").role(
        Role::worker().nodes(4).gpus_per_node(8).instance_type("p4de.24xlarge").command([
            "train.py",
            "--lr",
            "3e-4",
            "it's $HOME",
        ]),
    )
}

#[test]
fn torchrun_on_whole_nodes() {
    let spec = llama()
        .launch(Launch::Torchrun)
        .time_limit(std::time::Duration::from_secs(93_600))
        .queue("compute-gpu")
        .build()
        .expect("valid");
    insta::assert_snapshot!(text(spec, efa()));
}

#[test]
fn pyxis_with_every_variable_named() {
    let volume = Volume {
        name: "data".into(),
        mount: "/data".into(),
        source: VolumeSource::HostPath("/fsx/data set".into()),
        read_only: true,
    };
    let spec = llama()
        .launch(Launch::PerRank)
        .image("nvcr.io/nvidia/pytorch:25.09-py3")
        .env("WANDB", "a b")
        .volume(volume)
        .restart(RestartPolicy::OnFailure { max: 2 });
    insta::assert_snapshot!(text(spec.build().expect("valid"), efa()));
}

#[test]
fn components_of_a_heterogeneous_job() {
    let spec = JobSpec::builder("het")
        .launch(Launch::PerRank)
        .role(Role::new("actor").nodes(2).gpus_per_node(8).command(["actor"]).env("A", "1"))
        .role(
            Role::new("learner").nodes(1).gpus_per_node(4).instance_type("g5.12xlarge").command(["learner"]),
        )
        .code(Code::Script { name: "x.py".into(), text: "print('$HOME')\n".into() });
    insta::assert_snapshot!(text(spec.build().expect("valid"), Vec::new()));
}

#[test]
fn what_slurm_cannot_express_is_said_with_a_reason() {
    let rendered = render(
        &Settings::default(),
        &planned(llama().launch(Launch::Torchrun).build().expect("valid"), efa()),
    )
    .expect("renders");
    let said: Vec<_> =
        rendered.inexpressible.iter().map(|item| (item.op.rule.as_str(), item.reason.is_empty())).collect();
    assert_eq!(said, [("efa.hugepages", false)]);
    assert_eq!(rendered.applied.len() + rendered.inexpressible.len(), efa().len());
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/backends/slurm.md"))
        .expect("the page is in the tree");
    for (kind, reason) in INEXPRESSIBLE {
        assert!(page.contains(&format!("| `{kind}` | {reason} |")), "docs/backends/slurm.md lacks `{kind}`");
    }
}

#[test]
fn what_cannot_be_rendered_is_refused() {
    let refused = |spec: weftrun_core::spec::JobSpecBuilder| {
        let spec = spec.build().expect("valid for other backends");
        render(&Settings::default(), &planned(spec, Vec::new())).expect_err("refused").to_string()
    };
    let claim = Volume {
        name: "d".into(),
        mount: "/d".into(),
        source: VolumeSource::Claim("pvc".into()),
        read_only: false,
    };
    assert!(refused(llama().volume(claim)).contains("PersistentVolumeClaim"));
    let mpirun =
        JobSpec::builder("m").launch(Launch::Mpi).role(Role::worker().command(["/opt/bin/mpirun", "a"]));
    assert!(refused(mpirun).contains("without `mpirun`"));
}
