//! The stack, the launcher.

use weftrun_core::backend::ClusterFacts;
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::decide;
use weftrun_core::fabric::view::{JobKind, JobView, Mpi, RoleView};
use weftrun_core::fabric::{Profiles, Stack};
use weftrun_core::request::FabricRequest;

use super::situation::{
    OURS, codes, dgxc, has, job, launcher, ops, pytorch, refused, run, with_env, words, worker,
};

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
    let options = FabricRequest { stack: Stack::Mounted, ..FabricRequest::default() };
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
        &FabricRequest::default(),
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
