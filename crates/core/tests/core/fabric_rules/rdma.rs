//! RoCE, InfiniBand, TCP.

use weftrun_core::backend::ClusterFacts;
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::decide;
use weftrun_core::fabric::view::{JobKind, RoleView};
use weftrun_core::fabric::{Fabric, Gid, Profiles, RuleSetting};
use weftrun_core::request::FabricRequest;

use super::situation::{
    annotated, has, job, launcher, ops, pytorch, refused, run, with_resource, words, worker,
};

#[test]
fn roce_takes_parts_of_nodes() {
    let four = with_resource(worker("Worker"), "nvidia.com/gpu", Some("4"), Some("4"));
    let outcome = run(&pytorch(four), "roce", &FabricRequest::default());
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
            run(&pytorch(annotated(worker("Worker"), &[(KEY, existing)])), "roce", &FabricRequest::default());
        let line = ops(&outcome)
            .into_iter()
            .find_map(|op| op.strip_prefix(&format!("Worker: annotation {KEY} = ")).map(str::to_owned));
        assert_eq!(line.as_deref(), expected, "beside `{existing}`");
    }
    let broken = annotated(worker("Worker"), &[(KEY, "[{")]);
    refused(&run(&pytorch(broken), "roce", &FabricRequest::default()), "E-ROCE-NETWORKS");
}

#[test]
fn a_network_is_named_once_for_each_virtual_function() {
    let table = "extends = 'roce'\n[roce]\nnetworks = ['default/rdma-vf']\nnetwork-per-device = true\ndevices = 'nvidia.com/rdma-vf'\ncount = 3";
    let vf = Profiles::builtin().with("vf", table.parse().unwrap()).get("vf").unwrap();
    let view = pytorch(annotated(worker("Worker"), &[("k8s.v1.cni.cncf.io/networks", "default/rdma-vf")]));
    let outcome =
        decide(&view, &vf, &FabricRequest::default(), &Catalogue::builtin(), &ClusterFacts::default());
    assert!(has(
        &outcome,
        "Worker: annotation k8s.v1.cni.cncf.io/networks = default/rdma-vf,default/rdma-vf,default/rdma-vf"
    ));
    assert!(has(&outcome, "Worker: resources nvidia.com/rdma-vf = 3"));
    let mut options = FabricRequest::default();
    options.rules.insert("roce.devices".into(), RuleSetting::Off);
    let without = decide(&view, &vf, &options, &Catalogue::builtin(), &ClusterFacts::default());
    assert!(
        without.skipped.iter().any(|skipped| skipped.rule == "roce.network"),
        "no devices, no networks of theirs"
    );
}

#[test]
fn the_gid_index_is_left_set_or_found() {
    let with = |gid, role| {
        run(&pytorch(role), "roce", &FabricRequest { gid: Some(gid), ..FabricRequest::default() })
    };
    let command = |mut role: RoleView| {
        role.container.command = words(&["torchrun"]);
        role.container.args = words(&["train.py", "a b"]);
        role
    };
    assert!(ops(&with(Gid::Auto, worker("Worker"))).iter().all(|op| !op.contains("GID")));
    assert!(has(&with(Gid::Index(3), worker("Worker")), "Worker: env NCCL_IB_GID_INDEX = 3"));
    let wrapped = with(Gid::Compute, command(worker("Worker")));
    let change = &wrapped.ops.iter().find(|op| op.rule == "roce.gid").unwrap().change;
    let weftrun_core::fabric::Change::Command { after, command_words, .. } = change else {
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
    let options = FabricRequest { gid: Some(Gid::Index(3)), ..FabricRequest::default() };
    let view = job(JobKind::MpiJobV2, vec![launcher(&["mpirun", "-np", "16", "app"]), worker("Worker")]);
    let outcome = run(&view, "roce", &options);
    assert!(has(&outcome, "Launcher: env NCCL_IB_GID_INDEX = 3"));
    let line = "Launcher: command = mpirun -x NCCL_IB_HCA -x NCCL_SOCKET_NTHREADS -x NCCL_NSOCKS_PERTHREAD -x NCCL_IB_GID_INDEX -np 16 app";
    assert!(has(&outcome, line), "{:#?}", ops(&outcome));
}

#[test]
fn infiniband_asks_a_device() {
    let outcome = run(&pytorch(worker("Worker")), "infiniband", &FabricRequest::default());
    assert_eq!(ops(&outcome), ["Worker: resources rdma/ib = 1", "Worker: capabilities = IPC_LOCK"]);
}

#[test]
fn tcp_said_outright_keeps_nccl_on_sockets() {
    let options = FabricRequest { kind: Fabric::Tcp, ..FabricRequest::default() };
    assert_eq!(ops(&run(&pytorch(worker("Worker")), "dgxc", &options)), ["Worker: env NCCL_NET = Socket"]);
}

#[test]
fn a_profile_without_the_fabric_is_an_error() {
    let options = FabricRequest { kind: Fabric::Roce, ..FabricRequest::default() };
    refused(&run(&pytorch(worker("Worker")), "dgxc", &options), "E-PROFILE-FABRIC");
}
