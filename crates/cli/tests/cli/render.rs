//! `render --as docker`, and what a TrainJob's version and runtime change in `render`.

use crate::cases::case;
use crate::place::{Done, Place};

const JOB: &str = "name = \"resnet\"\nimage = \"reg/multinode:1\"\nlaunch = \"mpi\"\nnodes = 2\ngpus_per_node = 8\n\
                   memory = \"512Gi\"\ncommand = [\"python3\", \"train.py\"]\n";

#[test]
fn hosts_without_a_cluster_get_commands() {
    let place = Place::new();
    place.write("job.toml", JOB);
    let ran = place.run("render job.toml --as docker --fabric roce --profile roce");
    assert_eq!(ran.code, 0, "{}", ran.err);
    for part in [
        "--net=host --uts=host --ipc=host --ulimit memlock=-1 --ulimit stack=67108864",
        "--device=/dev/infiniband",
        "--shm-size=",
        ".ssh",
        "mpirun",
        "-H '<host-1>:8,<host-2>:8'",
        "-x NCCL_DEBUG=INFO",
        "-x NCCL_IB_HCA=mlx5",
    ] {
        assert!(ran.out.contains(part), "{part} in\n{}", ran.out);
    }
}

/// No host is asked: the target's list of hosts says it.
#[test]
fn a_job_that_needs_more_hosts_than_the_target_has_is_refused_at_once() {
    let place = Place::new();
    place.configure("[target.rack]\nbackend = \"hosts\"\nhosts = [\"a.invalid\", \"b.invalid\"]\n");
    place.write("job.toml", JOB);
    let refused = "the job needs 9 hosts, and the target has 2 [HOSTS-TOO-FEW]";
    for verb in ["plan", "render"] {
        let ran = place.run(&format!("{verb} job.toml -b rack --nodes 9"));
        assert_eq!(ran.code, 3, "{verb}: {}", ran.err);
        assert!(ran.err.contains(refused) && ran.err.contains("fix: add hosts to the target"), "{}", ran.err);
        assert_eq!(verb == "plan", !ran.out.is_empty(), "{}", ran.out);
        let ran = place.run(&format!("{verb} job.toml -b rack"));
        assert_eq!(ran.code, 0, "{verb}: {}", ran.err);
    }
}

#[test]
fn a_trainjob_is_rendered_for_its_version_and_runtime() {
    let place = Place::new();
    let job = JOB.replace("mpi", "torchrun").replace("[\"python3\", ", "[");
    place.write("job.toml", format!("{job}[backend.kubeflow]\nkind = \"trainjob\"\n"));
    place.write("runtime.yaml", case("08-trainjob-torch-v2.3", "runtime.yaml"));
    let render = |version: &str| {
        place.run(&format!(
            "render job.toml -b kubeflow --profile dgxc --trainer-version {version} --runtime runtime.yaml"
        ))
    };
    for (version, field) in
        [("2.0", "podSpecOverrides"), ("2.1", "podTemplateOverrides"), ("2.3", "runtimePatches")]
    {
        let ran = render(version);
        assert_eq!(ran.code, 0, "{version}: {}", ran.err);
        assert!(!ran.err.contains("assumed Kubeflow Trainer"), "{version}: {}", ran.err);
        assert!(ran.out.contains(&format!("{field}:")), "{version}\n{}", ran.out);
        assert!(ran.out.contains("name: torch-distributed"), "{version}\n{}", ran.out);
    }
    assert_eq!(render("3.0").code, 2);
    // Without a cluster and a flag, each verb prints which version it assumed, and writes what that one accepts.
    let fields = [
        ("2.0", "podSpecOverrides"),
        ("2.1", "podTemplateOverrides"),
        ("2.2", "runtimePatches"),
        ("2.3", "runtimePatches"),
    ];
    place.write("trainjob.yaml", case("08-trainjob-torch-v2.3", "before.yaml"));
    for command in [
        "render job.toml -b kubeflow --profile dgxc --runtime runtime.yaml",
        "submit job.toml -b kubeflow --profile dgxc --dry-run=client",
        "mutate -f trainjob.yaml --profile dgxc --runtime runtime.yaml",
    ] {
        let ran = place.run(command);
        assert_eq!(ran.code, 0, "{command}: {}", ran.err);
        let (_, version) = ran
            .err
            .split_once("assumed Kubeflow Trainer ")
            .unwrap_or_else(|| panic!("{command}: {}", ran.err));
        let (_, field) = fields.iter().find(|(known, _)| version.starts_with(known)).unwrap();
        assert!(ran.out.contains(&format!("{field}:")), "{command}\n{}", ran.out);
    }
    place.write("runtime.yaml", "kind: Pod\n");
    assert_eq!(render("2.3").code, 3, "no runtime is in it");
}

/// A TrainJob has no field for the host's network, so weftrun renders a copy of its runtime with that field.
#[test]
fn a_trainjob_without_a_field_for_a_change_gets_a_runtime_of_its_own() {
    let place = Place::new();
    let job = JOB.replace("mpi", "torchrun").replace("[\"python3\", ", "[");
    place.write("job.toml", format!("{job}[backend.kubeflow]\nkind = \"trainjob\"\n"));
    place.write("runtime.yaml", case("08-trainjob-torch-v2.3", "runtime.yaml"));
    place.write(
        "c.toml",
        "[profile.host]\nextends = \"eks-image\"\n[profile.host.pod]\nhost-network = true\n",
    );
    let ran = place.run("render job.toml --config c.toml -b kubeflow --profile host --instance-type p5.48xlarge --trainer-version 2.3 --runtime runtime.yaml");
    assert_eq!(ran.code, 0, "{}", ran.err);
    let documents: Vec<&str> = ran.out.split("---\n").collect();
    let of = |kind: &str| {
        let kind = format!("kind: {kind}");
        *documents
            .iter()
            .find(|one| one.lines().nth(1) == Some(&kind))
            .unwrap_or_else(|| panic!("{}", ran.out))
    };
    assert!(of("TrainingRuntime").contains("hostNetwork: true"), "{}", ran.out);
    assert!(
        of("TrainingRuntime").contains("weftrun.dev/copied-from: ClusterTrainingRuntime/torch-distributed"),
        "{}",
        ran.out
    );
    assert!(of("TrainJob").contains("kind: TrainingRuntime"), "{}", ran.out);
    assert!(!of("TrainJob").contains("hostNetwork"), "{}", ran.out);
    assert!(!ran.err.contains("hostNetwork"), "{}", ran.err);
    // Without the runtime there is nothing to copy, and the change is reported as not applied.
    let ran = place.run("render job.toml --config c.toml -b kubeflow --profile host --instance-type p5.48xlarge --trainer-version 2.3");
    assert!(ran.err.contains("hostNetwork"), "{}", ran.err);
    assert!(!ran.out.contains("copied-from"), "{}", ran.out);
}

/// `plan` prints the plan, and ends with what would stop the submission, as `render` does.
#[test]
fn plan_reports_what_the_backend_cannot_carry() {
    let place = Place::new();
    place.write("c.toml", "[target.hpc]\nbackend = \"slurm\"\n");
    place.write("job.toml", "name = \"a\"\nnodes = 2\ngpus_per_node = 8\ncommand = [\"train\"]\n");
    let plan = place.run("--config c.toml plan job.toml -b hpc --sbatch=--nodes=4").code(3);
    assert!(plan.out.contains("2 nodes") && plan.err.contains("sets `--nodes` itself"), "{}", plan.err);
    place.run("--config c.toml plan job.toml -b hpc").ok();
    // Of a fabric's plan, a process takes the environment only, and what it has of LD_LIBRARY_PATH stays.
    let on = |verb: &str| format!("{verb} job.toml --profile dgxc --instance-type p5.48xlarge -b local");
    let plan = place.run(&on("plan")).ok();
    let lost = "note: efa.devices on worker is not applied: this machine's devices are available";
    let skipped = "efa.devices        skipped (not-expressible): worker: resources vpc.amazonaws.com/efa = 32 is not applied: this machine's devices";
    assert_eq!(plan.out.matches(skipped).count(), 1, "{}", plan.out);
    assert!(!plan.out.contains("efa.devices        worker"), "{}", plan.out);
    let given = place.run("plan job.toml -b hpc --config c.toml --profile parallelcluster --fabric efa").ok();
    assert!(given.out.contains("efa.colocate       skipped (not-expressible)"), "{}", given.out);
    assert!(!given.out.contains("efa.colocate       worker"), "{}", given.out);
    let json =
        place.run("plan job.toml -b hpc --config c.toml --profile parallelcluster --fabric efa -o json").ok();
    assert!(!json.out.contains("\"kind\":\"colocate\"") && json.out.contains("\"ops\":[{"), "{}", json.out);
    // The variables of a launcher that the job does not have are told once, and submitted jobs keep what was written.
    place.write("m.toml", "name = \"a\"\nnodes = 2\ngpus_per_node = 8\nlaunch = \"mpi\"\nimage = \"i\"\ncommand = [\"train\"]\n");
    let mpi = place.run("plan m.toml -b hpc --config c.toml --profile dgxc --instance-type p5.48xlarge").ok();
    let lines: Vec<&str> = mpi.out.lines().filter(|line| line.contains("no launcher of its own")).collect();
    assert!(lines.len() == 1 && lines[0].contains("env LD_LIBRARY_PATH, env OPAL_PREFIX"), "{}", mpi.out);
    assert!(
        !mpi.out.lines().any(|line| !line.contains("skipped") && line.contains("launcher: env")),
        "{}",
        mpi.out
    );
    let verified = place.run("verify job.toml --profile dgxc --instance-type p5.48xlarge --timeout 1s");
    assert!(verified.err.contains("efa.devices        skipped (not-expressible)"), "{}", verified.err);
    // Settings of a backend that is not the target's are named.
    place.write(
        "s.toml",
        "name = \"a\"\nnodes = 2\ncommand = [\"train\"]\n[backend.slurm]\nexclusive = true\n",
    );
    let told = "`[backend.slurm]` of the job is not used: the target `local`";
    assert!(place.run("plan s.toml").ok().err.contains(told));
    assert!(!place.run("--config c.toml plan s.toml -b hpc").ok().err.contains("is not used"));
    assert!(!plan.err.contains("W-LDPATH-SHADOW"), "{}", plan.err);
    let mut command = place.command(on("render").split(' '));
    command.env("LD_LIBRARY_PATH", "/own/lib");
    let rendered = Done::of(command).ok();
    assert_eq!(rendered.err.matches(lost).count(), 1, "{}", rendered.err);
    assert!(rendered.out.contains("/openmpi/lib:/own/lib\""), "{}", rendered.out);
    place.write("own.toml", "name = \"a\"\nnodes = 2\ngpus_per_node = 8\ncommand = [\"train\"]\n[env]\nLD_LIBRARY_PATH = \"/my\"\n");
    let mut command = place.command(on("render").replace("job.toml", "own.toml").split(' '));
    command.env("LD_LIBRARY_PATH", "/own/lib");
    let rendered = Done::of(command).ok();
    assert!(rendered.out.contains("/openmpi/lib:/my\""), "{}", rendered.out);
    // In a container the plan's path replaces that of the image, on Slurm too.
    let image = place
        .run("--config c.toml plan job.toml --profile dgxc --instance-type p5.48xlarge -b hpc -i a/b:1")
        .ok();
    assert!(image.err.contains("W-LDPATH-SHADOW"), "{}", image.err);
}

#[test]
fn a_refused_fabric_is_named_once() {
    let place = Place::new();
    place.write("job.toml", "name = \"a\"\nnodes = 2\nfabric = \"efa\"\ncommand = [\"train\"]\n");
    let plan = place.run("plan job.toml").code(3);
    assert!(plan.out.contains("no fabric (requested: efa)"), "{}", plan.out);
    let submit = place.run("submit job.toml").code(3);
    assert_eq!(submit.err.matches("E-FABRIC-UNMET").count(), 1, "{}", submit.err);
}

/// A backend that does not create the object with the topology file does not refer to the file.
#[test]
fn a_topology_file_is_named_only_where_its_object_is_made() {
    let place = Place::new();
    place.configure(
        "[profile.topology]\nextends = \"azure-nd\"\n[profile.topology.pod.topology-file]\ncontent = \"<system/>\"\n",
    );
    place.write(
        "job.toml",
        "name = \"train\"\nlaunch = \"torchrun\"\nimage = \"train:1\"\nnodes = 2\ngpus_per_node = 8\nfabric = \"infiniband\"\ncommand = [\"train.py\"]\n",
    );
    let rendered =
        |backend: &str| place.run(&format!("render job.toml --profile topology -b {backend}")).ok().out;
    for backend in ["slurm", "local"] {
        assert!(!rendered(backend).contains("/etc/nccl/topo.xml"), "{backend}: {}", rendered(backend));
    }
    let text = rendered("kubeflow");
    assert!(text.contains("/etc/nccl/topo.xml") && text.contains("name: train-nccl-topology"), "{text}");

    let job = "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {generateName: train-}\nspec:\n  pytorchReplicaSpecs:\n    \
               Worker:\n      replicas: 2\n      template:\n        spec:\n          containers:\n          - {name: pytorch, image: i, \
               command: [torchrun], resources: {limits: {nvidia.com/gpu: 8}}}\n";
    place.write("job.yaml", job);
    let done = place.run("mutate -f job.yaml --profile topology --fabric infiniband");
    assert!(!done.out.contains("nccl-topology") && !done.out.contains("/etc/nccl"), "{}", done.out);
    assert!(done.err.contains("set metadata.name instead of generateName"), "{}", done.err);
}
