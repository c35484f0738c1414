//! Small files that stand for classes of public ones (`tests/cases/strangers/README.md`): what `mutate`, `lint` and
//! `import` answer to each.

use std::path::Path;

use weftrun_convert::{
    MutateOptions, Splitter, Start, import, import_sbatch, is_sbatch, lint_document, mutate, mutate_sbatch,
};
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::{ClusterFacts, FabricPlan, Profile, Profiles};
use weftrun_core::request::FabricRequest;
use weftrun_core::spec::{JobFile, JobSpec, Launch};

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/strangers")
}

fn read(file: &str) -> String {
    std::fs::read_to_string(folder().join(file)).unwrap()
}

fn with_settings<T>(run: impl FnOnce(&MutateOptions<'_>) -> T) -> T {
    let (none, options) = (Profile::default(), FabricRequest::default());
    let (sites, catalogue) = (Profiles::builtin().of_sites().unwrap(), Catalogue::builtin());
    run(&MutateOptions { by_evidence: Some(&sites), ..MutateOptions::offline(&none, &options, &catalogue) })
}

/// Returns the documents of a file, as the command line splits it.
fn documents(text: &str) -> Vec<String> {
    if is_sbatch(text) {
        return vec![text.to_owned()];
    }
    let mut splitter = Splitter::default();
    splitter.push(text.as_bytes());
    splitter.finish();
    std::iter::from_fn(|| splitter.next_document()).map(|bytes| String::from_utf8(bytes).unwrap()).collect()
}

/// Mutates a file; returns the new text, and of each job why it was skipped or its profile, and its notes.
fn mutated(text: &str) -> (String, Vec<String>, Vec<String>) {
    with_settings(|settings| {
        let (mut new, mut jobs, mut notes) = (String::new(), Vec::new(), Vec::new());
        for document in documents(text) {
            let done = if is_sbatch(&document) {
                mutate_sbatch(&document, Start::of("a"), settings)
            } else {
                mutate(&document, Start::of("a"), settings).unwrap()
            };
            new.push_str(&done.text);
            for job in done.jobs {
                assert!(job.error().is_none(), "{:?}", job.error());
                jobs.push(
                    job.skip().map_or_else(|| job.plan.profile.clone().unwrap_or_default(), str::to_owned),
                );
                notes.extend(job.plan.findings.iter().map(|one| one.code.clone()));
            }
        }
        (new, jobs, notes)
    })
}

fn linted(text: &str) -> Vec<String> {
    with_settings(|settings| {
        let found = documents(text);
        let found = found.iter().flat_map(|document| lint_document(document, Start::of("a"), settings));
        found.map(|finding| finding.code).collect()
    })
}

/// Each file with the skip or the profile, what is added, and what `lint` finds.
const ANSWERS: &[(&str, &str, &[&str], &[&str])] = &[
    ("amd-gpu.yaml", "other-fabric", &[], &[]),
    ("capability-prefix.yaml", "not-distributed", &[], &["L-CAPABILITY"]),
    ("cmdline-nodes.sbatch", "nodes-unknown", &[], &[]),
    ("debug-file-shared.sbatch", "fabric-unknown", &[], &["L-DEBUG-FILE"]),
    ("g5-constraint.sbatch", "parallelcluster", &[], &[]),
    ("g5-gres.sbatch", "parallelcluster", &[], &[]),
    ("g5-partition.sbatch", "parallelcluster", &[], &[]),
    ("gb200.yaml", "eks-image", &["hugepages-2Mi"], &["L-HUGEPAGES-MISSING"]),
    ("gloo-exclusion.yaml", "fabric-unknown", &[], &["L-GLOO-IFNAME"]),
    ("hugepage-off.sbatch", "parallelcluster", &[], &[]),
    ("hugepages-fix.yaml", "eks-image", &[], &["L-HUGEPAGES-MISSING"]),
    ("hyperpod-dgxc.yaml", "eks-image", &["vpc.amazonaws.com/efa: '32'", "hugepages-2Mi"], &[]),
    ("late-heredoc.sbatch", "not-distributed", &[], &["L-SHELL-SYNTAX"]),
    ("memory-too-small.yaml", "eks-image", &[], &["L-MEMORY-SMALL"]),
    ("neuron-no-memory.yaml", "neuron", &["FI_PROVIDER"], &["L-HUGEPAGES-MISSING"]),
    ("neuron-provider.sbatch", "other-fabric", &[], &[]),
    ("no-exclusive.sbatch", "parallelcluster", &["FI_EFA_USE_DEVICE_RDMA=1"], &[]),
    ("ntasks-drop.sbatch", "fabric-unknown", &[], &[]),
    ("ntasks-no-nodes.sbatch", "parallelcluster", &[], &[]),
    ("shm-request.yaml", "fabric-unknown", &[], &[]),
    ("srun-nodes.sbatch", "parallelcluster", &[], &[]),
    ("tuner.sbatch", "parallelcluster", &["FI_EFA_USE_DEVICE_RDMA=1"], &[]),
    (
        "unknown-kind.yaml",
        "eks-image",
        &[],
        &["W-KIND-UNKNOWN", "L-HUGEPAGES-MISSING", "W-EFA-PARTIAL", "L-NAME-MISSPELT"],
    ),
    ("weak-aws-fsx.sbatch", "fabric-unknown", &[], &[]),
    ("weak-aws-region.sbatch", "fabric-unknown", &[], &[]),
    ("weak-comment.sbatch", "fabric-unknown", &[], &[]),
    ("weak-copyright.sbatch", "fabric-unknown", &[], &[]),
    ("weak-ecr.yaml", "fabric-unknown", &[], &[]),
    ("weak-region.yaml", "fabric-unknown", &[], &[]),
    ("whole-args.sbatch", "not-distributed", &[], &[]),
];

#[test]
fn every_file_gets_what_is_right_for_it() {
    for (file, answer, added, found) in ANSWERS {
        let text = read(file);
        let (new, jobs, _) = mutated(&text);
        assert_eq!(jobs, [*answer], "{file}");
        assert_eq!(new == text, added.is_empty(), "{file}: {new}");
        for part in *added {
            assert!(new.contains(part) && !text.contains(part), "{file}: {part} is not new in\n{new}");
        }
        assert!(!new.contains("hostPath"), "{file}");
        assert_eq!(mutated(&new).0, new, "{file}: a second pass changes nothing");
        assert_eq!(linted(&text), *found, "{file}");
        let errors = |text: &str| linted(text).iter().filter(|code| code.starts_with("E-")).count();
        assert!(errors(&new) <= errors(&text), "{file}");
    }
    let files = std::fs::read_dir(folder()).unwrap().count();
    assert_eq!(files, ANSWERS.len() + 2, "every file is in the table, but the job file and README.md");
}

#[test]
fn what_is_left_out_or_unknown_is_told() {
    let notes = |file: &str| mutated(&read(file)).2;
    assert!(notes("hugepages-fix.yaml").contains(&"I-HUGEPAGES-OMITTED".to_owned()));
    assert!(notes("neuron-no-memory.yaml").contains(&"I-HUGEPAGES-OMITTED".to_owned()));
    assert!(notes("unknown-kind.yaml").contains(&"W-KIND-UNKNOWN".to_owned()));
    assert!(!notes("gb200.yaml").contains(&"W-RES-KEPT".to_owned()), "no number is known to be better");
}

fn imported(file: &str) -> (JobSpec, String) {
    let (spec, said) = import_sbatch(&read(file), false).unwrap();
    (spec, said.into_iter().map(|finding| finding.message + "\n").collect())
}

#[test]
fn an_imported_script_starts_as_many_ranks_as_it_did() {
    let (spec, _) = imported("ntasks-drop.sbatch");
    // By its own line.
    let kept = spec.backend["slurm"]["sbatch"].to_string();
    assert!(spec.launch == Launch::Once && spec.nodes() == 4 && kept.contains("--ntasks=32"), "{kept}");
    let (spec, _) = imported("ntasks-no-nodes.sbatch");
    assert_eq!((spec.launch, spec.nodes(), spec.world_size()), (Launch::PerRank, 4, 32));
    let (spec, said) = imported("srun-nodes.sbatch");
    assert!(spec.nodes() == 2 && said.contains("uses 2"), "{said}");
    let (spec, said) = imported("cmdline-nodes.sbatch");
    assert!(spec.nodes() == 1 && said.contains("on the command line"), "{said}");
    let (spec, said) = imported("whole-args.sbatch");
    assert!(spec.launch == Launch::Once && said.contains("`$1`"), "{said}");
}

#[test]
fn a_memory_request_without_a_limit_is_no_limit_of_shared_memory() {
    let jobs = import(&read("shm-request.yaml"), Start::of("a")).unwrap();
    let role = &jobs[0].spec.roles[0];
    assert_eq!((role.memory.as_deref(), role.shm.as_deref()), (None, Some("64Gi")));
    assert!(jobs[0].findings.iter().any(|finding| finding.code == "W-IMPORT-LOST"));
}

/// A command that calls `mpirun` itself is completed, and what it forwards already is not announced.
#[test]
fn a_plan_announces_only_what_the_backend_writes() {
    let spec = JobFile::parse("a.toml", read("plan-says.toml").as_bytes()).unwrap().spec;
    let plan = |spec: &JobSpec| {
        let facts = ClusterFacts::default();
        FabricPlan::new(spec, &Catalogue::builtin(), &facts, &Profiles::builtin().get("infiniband").unwrap())
    };
    let announced = |plan: &FabricPlan| {
        let mpirun = plan.ops.iter().find(|op| op.change.target() == "mpirun");
        mpirun.map(|op| op.change.value())
    };
    let own = plan(&spec);
    assert!(announced(&own).is_none() && own.decisions.iter().all(|one| one.value != "mpirun"), "{own:?}");
    let mut other = spec;
    other.roles[0].command = ["train"].map(str::to_owned).to_vec();
    assert!(announced(&plan(&other)).is_some_and(|line| line.contains("-x NCCL_DEBUG")));
}

/// Files of other tools are named, and never passed over as if they were fine.
#[test]
fn a_file_that_is_no_manifest_is_an_error() {
    for (text, tool) in [
        ("resources:\n  accelerators: H100:8\nnum_nodes: 2\nrun: |\n  torchrun train.py\n", "SkyPilot"),
        ("type: task\nname: train\nnodes: 2\ncommands:\n- torchrun train.py\n", "dstack"),
        ("services:\n  a: {image: b}\n", "Compose"),
        ("replicas: 2\nimage: x\n", "apiVersion"),
    ] {
        let (found, refused) = with_settings(|settings| {
            let refused =
                mutate(text, Start::of("a"), settings).err().map(|error| error.message().to_owned());
            (lint_document(text, Start::of("a"), settings), refused)
        });
        assert!(found[0].code == "E-NOT-MANIFEST" && found[0].message.contains(tool), "{found:?}");
        assert!(refused.is_some_and(|message| message.contains(tool)), "{text}");
    }
    for fine in ["", "# nothing\n", "---\n", "apiVersion: v1\nkind: ConfigMap\n"] {
        let found = with_settings(|settings| lint_document(fine, Start::of("a"), settings));
        assert!(found.is_empty(), "{fine}: {found:?}");
        with_settings(|settings| mutate(fine, Start::of("a"), settings).map(drop).unwrap());
    }
}

/// Pod templates of unknown kinds are found wherever they are; without `replicas` the number of pods is unknown.
#[test]
fn pod_templates_of_unknown_kinds_are_found() {
    let pod = "spec: {nodeSelector: {node.kubernetes.io/instance-type: p5.48xlarge}, containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 8, memory: 1Ti}}}]}";
    for (text, answer) in [
        (format!("spec: {{replicas: 2, template: {{{pod}}}}}"), "eks-image"),
        (format!("spec: {{workers: [{{name: a, replicas: 2, template: {{{pod}}}}}]}}"), "eks-image"),
        (format!("spec: {{a: {{b: {{template: {{{pod}}}}}}}}}"), "nodes-unknown"),
    ] {
        let text = format!("apiVersion: example.com/v1\nkind: Thing\nmetadata: {{name: a}}\n{text}\n");
        let (new, jobs, notes) = mutated(&text);
        assert_eq!(
            (jobs.as_slice(), new != text),
            (&[answer.to_owned()][..], answer == "eks-image"),
            "{text}"
        );
        assert!(notes.contains(&"W-KIND-UNKNOWN".to_owned()));
        assert_eq!(linted(&text), ["W-KIND-UNKNOWN"]);
    }
}

/// `mpirun -x NAME` and `$NAME` have a value that does not stand there; only a value that does can be wrong.
#[test]
fn a_value_that_is_not_written_is_not_judged() {
    let job = |forwarded: &str| {
        format!(
            "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata: {{name: a}}\nspec:\n  slotsPerWorker: 8\n  mpiReplicaSpecs:\n    Launcher:\n      \
             template: {{spec: {{containers: [{{name: l, image: i, command: [mpirun, -x, {forwarded}, ./all_reduce_perf]}}]}}}}\n    Worker:\n      \
             replicas: 2\n      template: {{spec: {{nodeSelector: {{node.kubernetes.io/instance-type: p5.48xlarge}}, containers: [{{name: w, image: i, \
             resources: {{limits: {{nvidia.com/gpu: 8, vpc.amazonaws.com/efa: 32, hugepages-2Mi: 5120Mi, memory: 1Ti}}}}}}]}}}}\n"
        )
    };
    let script = |value: &str| {
        format!(
            "#!/bin/bash\n#SBATCH -N 2 --gpus-per-node=8 -C p5.48xlarge\nexport FI_PROVIDER=efa NCCL_BUFFSIZE={value}\nsrun python a.py\n"
        )
    };
    for (text, found) in [
        (job("NCCL_BUFFSIZE=2097152"), &["L-EFA-TUNING"][..]),
        (job("NCCL_BUFFSIZE"), &[]),
        (job("NCCL_BUFSIZE"), &["L-NAME-MISSPELT"]),
        (script("2097152"), &["L-EFA-TUNING"]),
        (script("${BUFFSIZE:-8388608}"), &[]),
        (script("8388608"), &[]),
    ] {
        assert_eq!(linted(&text), *found, "{text}");
    }
}

/// Neuron does not use aws-ofi-nccl as NCCL does: there RDMA is requested (`efa.neuron`), and stays.
#[test]
fn rdma_on_neuron_is_no_default() {
    for (own, found) in [("NEURON_RT_NUM_CORES=32", &[][..]), ("NCCL_DEBUG=INFO", &["L-EFA-RDMA-DEFAULT"])] {
        let text = format!(
            "#!/bin/bash\n#SBATCH -N 2 --exclusive\nexport {own} FI_PROVIDER=efa FI_EFA_USE_DEVICE_RDMA=1\nsrun python a.py\n"
        );
        assert_eq!(linted(&text), *found, "{text}");
    }
}

/// `scontrol show hostnames` without a list expands the job's nodes, whose number sbatch was given.
#[test]
fn a_script_that_lists_its_nodes_has_an_unknown_number() {
    for (line, answer) in
        [("scontrol show hostnames > hosts", "nodes-unknown"), ("hostname > hosts", "not-distributed")]
    {
        let text =
            format!("#!/bin/bash\n#SBATCH --gpus-per-node=4\n{line}\nsrun -l ./run.sh --hostfile hosts\n");
        assert_eq!(mutated(&text).1, [answer], "{text}");
        let (_, said) = import_sbatch(&text, false).unwrap();
        assert_eq!(
            said.iter().any(|one| one.code == "W-IMPORT-NODES"),
            answer == "nodes-unknown",
            "{said:?}"
        );
    }
}

/// `--exclusive` gives a job all GPUs of its nodes: the plan of the imported job knows them as `mutate` does.
#[test]
fn an_imported_job_on_whole_nodes_has_their_gpus() {
    let planned = |head: &str, profile: &str| {
        let text = format!("#!/bin/bash\n#SBATCH -N 2 {head}\nsrun --ntasks-per-node=8 python a.py\n");
        let (spec, _) = import_sbatch(&text, false).unwrap();
        assert_eq!(spec.roles[0].gpus_per_node, 0, "the job requests what the script requested");
        let profile = Profiles::builtin().get(profile).unwrap();
        let plan = FabricPlan::new(&spec, &Catalogue::builtin(), &ClusterFacts::default(), &profile);
        let skipped = plan.skipped.iter().find(|skipped| skipped.rule == "efa");
        skipped.map_or("", |skipped| skipped.reason.as_str()).to_owned()
    };
    assert_eq!(planned("--exclusive", "parallelcluster"), "");
    assert_eq!(planned("--exclusive=user", "parallelcluster"), "no-gpu");
    assert_eq!(planned("", "parallelcluster"), "no-gpu");
}

#[test]
fn gpus_that_only_the_launcher_names_are_told_of() {
    let body = "export GPUS_PER_NODE=4\nsrun bash -c \"accelerate launch --num_processes $((2 * GPUS_PER_NODE)) a.py\"\n";
    for (head, said) in [("", true), ("--gpus-per-node=4", false), ("--exclusive", false)] {
        let (spec, findings) =
            import_sbatch(&format!("#!/bin/bash\n#SBATCH -N 2 {head}\n{body}"), false).unwrap();
        let found = findings.iter().any(|one| one.message.contains("uses 4 on each node"));
        assert_eq!((found, spec.launch), (said, Launch::Once), "{head} {findings:?}");
    }
    let step =
        "#!/bin/bash\n#SBATCH -N 2\nsrun -N 2 --gpus-per-task=2 --ntasks-per-node=4 bash -c \"python $X\"\n";
    assert_eq!(import_sbatch(step, false).unwrap().0.roles[0].gpus_per_node, 8);
}

/// srun looks for a program in the working directory, after PATH (srun(1)).
#[test]
fn a_program_beside_the_script_is_started_by_srun_itself() {
    for (program, launch) in [
        ("train.sh", Launch::Once),
        ("./train.sh", Launch::PerNode),
        ("python3.11 train.py", Launch::PerNode),
        ("hostname", Launch::PerNode),
    ] {
        let text =
            format!("#!/bin/bash\n#SBATCH -N 2 --gpus-per-node=8 --ntasks-per-node=1\nsrun -l {program}\n");
        assert_eq!(import_sbatch(&text, false).unwrap().0.launch, launch, "{program}");
    }
}

/// A container's arguments go to the image's own command, which a job file cannot name.
#[test]
fn options_without_a_program_are_told_of() {
    for (command, args, said) in [
        ("", "[--epochs, '5']", true),
        ("command: [python, a.py], ", "[--epochs, '5']", false),
        ("", "[torchrun, a.py]", false),
    ] {
        let text = format!(
            "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {{name: a}}\nspec: {{pytorchReplicaSpecs: {{Worker: {{replicas: 2, template: {{spec: \
             {{containers: [{{name: pytorch, image: i, {command}args: {args}, resources: {{limits: {{nvidia.com/gpu: 8}}}}}}]}}}}}}}}}}\n"
        );
        let jobs = import(&text, Start::of("a")).unwrap();
        assert_eq!(jobs[0].findings.iter().any(|one| one.code == "W-IMPORT-COMMAND"), said, "{text}");
    }
}

#[test]
fn neuron_devices_count_as_accelerators_of_their_type() {
    for (own, said) in [("resources = { \"aws.amazon.com/neuron\" = \"16\" }\n", false), ("", true)] {
        let text = format!(
            "name = \"a\"\nimage = \"i\"\nnodes = 2\ncommand = [\"./a\"]\ninstance_type = \"trn1.32xlarge\"\n{own}"
        );
        let file = JobFile::parse("a.toml", text.as_bytes()).unwrap();
        assert_eq!(file.spec.validate().iter().any(|one| one.code == "SPEC-GPU"), said, "{text}");
    }
}

/// A here-document that is written out sets nothing; one that a shell reads, at once or as a file, does.
#[test]
fn a_here_document_is_judged_where_a_shell_reads_it() {
    for (command, first, then, judged) in [
        ("cat >> report.txt << EOF", "Recommended:", "cat report.txt", false),
        ("bash << EOF", "", "", true),
        ("srun -N 2 bash -s << EOF", "", "", true),
        ("sbatch << EOF", "#!/bin/bash", "", true),
        ("cat > run.sh << EOF", "#!/bin/bash", "srun ./run.sh", true),
        ("cat <<EOF > $DIR/run.sh", "", "chmod +x $DIR/run.sh; srun bash $DIR/run.sh", true),
        ("tee run.sh <<EOF", "", "mpirun -np 2 ./run.sh", true),
        ("cat > \"$JOB\" <<EOF", "#!/bin/bash", "sbatch \"$JOB\"", true),
        ("cat > env.sh <<EOF", "", "source env.sh", true),
        ("cat > run.sh << EOF", "#!/bin/bash", "chmod +x run.sh; cp run.sh /fsx", false),
        ("cat > run.sh << EOF", "#!/bin/bash", "srun ./other.sh", false),
        ("cat > a.py << EOF", "#!/usr/bin/env python", "srun ./a.py", false),
    ] {
        let text = format!(
            "#!/bin/bash\n#SBATCH -N 2 --gpus-per-node=8\nexport FI_PROVIDER=efa\n{command}\n{first}\nexport NCCL_PROTO=simple\nEOF\n{then}\nsrun python b.py\n"
        );
        assert_eq!(linted(&text), if judged { &["L-PROTO-SIMPLE"][..] } else { &[] }, "{text}");
    }
}

/// What mpirun forwards from a launcher is set on the workers' nodes.
#[test]
fn a_launcher_is_judged_by_the_nodes_of_its_workers() {
    for (nodes, found) in [
        ("", &["L-EFA-RDMA-DEFAULT"][..]),
        ("nodeSelector: {node.kubernetes.io/instance-type: p4d.24xlarge}, ", &[]),
        ("nodeSelector: {node.kubernetes.io/instance-type: g5.48xlarge}, ", &["E-RDMA-UNSUPPORTED"]),
    ] {
        let text = format!(
            "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata: {{name: a}}\nspec: {{mpiReplicaSpecs: {{Launcher: {{replicas: 1, template: {{spec: {{containers: \
             [{{name: l, image: i, command: [mpirun, -x, FI_EFA_USE_DEVICE_RDMA=1, all_reduce_perf]}}]}}}}}}, Worker: {{replicas: 2, template: {{spec: {{{nodes}containers: \
             [{{name: w, image: i, resources: {{limits: {{nvidia.com/gpu: 8, vpc.amazonaws.com/efa: 1, hugepages-2Mi: 5120Mi, memory: 1Ti}}}}}}]}}}}}}}}}}\n"
        );
        let rdma: Vec<String> = linted(&text).into_iter().filter(|code| code.contains("RDMA")).collect();
        assert_eq!(rdma, *found, "{text}");
    }
}

/// Huge pages are recommended where `mutate` adds them: to whole nodes of several.
#[test]
fn huge_pages_are_recommended_to_whole_nodes_of_several() {
    for (replicas, gpus, told) in [(2, 8, true), (1, 8, false), (4, 1, false)] {
        let text = format!(
            "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {{name: a}}\nspec: {{pytorchReplicaSpecs: {{Worker: {{replicas: {replicas}, template: {{spec: \
             {{nodeSelector: {{node.kubernetes.io/instance-type: p5.48xlarge}}, containers: [{{name: pytorch, image: i, resources: {{limits: {{nvidia.com/gpu: {gpus}, \
             vpc.amazonaws.com/efa: 32, memory: 1Ti}}}}}}]}}}}}}}}}}\n"
        );
        assert_eq!(linted(&text).contains(&"L-HUGEPAGES-MISSING".to_owned()), told, "{text}");
        let adds = mutated(&text).0.contains("hugepages-2Mi");
        assert_eq!(adds, told, "{text}");
    }
}

/// Names that another library than NCCL reads, and settings of one that is no NCCL.
#[test]
fn settings_of_other_libraries_are_not_judged_as_nccls() {
    for (line, found) in [
        ("export NCCL_DYNAMIC_CHUNK_SIZE=524288", &[][..]),
        ("export NCCL_CTRAN_BACKENDS=ib NCCL_COLLTRACE=trace", &[]),
        ("export NCCL_COLLECTIVE_TRACE=1", &["L-NAME-UNKNOWN"]),
        ("export UCCL_SOCKET_IFNAME=eth0 RCCL_DEBUG=1 CCL_DEBUG=1", &[]),
        ("export NCLL_SOCKET_IFNAME=eth0", &["L-NAME-MISSPELT"]),
        ("export FI_PROVIDER=efa FI_EFA_FORK_SAFE=1", &["L-FORK-SAFE"]),
        ("cd uccl/ep\nexport FI_PROVIDER=efa FI_EFA_FORK_SAFE=1", &[]),
    ] {
        let text = format!("#!/bin/bash\n#SBATCH -N 2 --gpus-per-node=8\n{line}\nsrun python a.py\n");
        assert_eq!(linted(&text), *found, "{text}");
    }
}

/// A name has no effect only if no NCCL in use reads it, or the job's own is known not to.
#[test]
fn a_name_that_a_release_in_use_reads_may_have_an_effect() {
    for (line, found) in [
        ("export NCCL_TREE_THRESHOLD=0", &["L-NAME-UNKNOWN"][..]),
        ("export NCCL_SHM_USE_CUDA_MEMCPY=1", &[]),
        (
            "#SBATCH --container-image=nvcr.io#nvidia/pytorch:26.07-py3\nexport NCCL_WORK_FIFO_DEPTH=1",
            &["L-NAME-UNKNOWN"],
        ),
    ] {
        let text = format!("#!/bin/bash\n#SBATCH -N 2 --gpus-per-node=8\n{line}\nsrun python a.py\n");
        assert_eq!(linted(&text), *found, "{text}");
    }
}

#[test]
fn nvlink_needs_two_gpus() {
    for (gpus, found) in [("8", true), ("1", false)] {
        let text = format!(
            "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {{name: a}}\nspec: {{pytorchReplicaSpecs: {{Worker: {{replicas: 2, template: {{spec: {{nodeSelector: {{node.kubernetes.io/instance-type: p5.48xlarge}}, containers: \
             [{{name: pytorch, image: i, env: [{{name: NCCL_NVLS_ENABLE, value: '0'}}], resources: {{limits: {{nvidia.com/gpu: {gpus}, \
             vpc.amazonaws.com/efa: 1, hugepages-2Mi: 5120Mi, memory: 1Ti}}}}}}]}}}}}}}}}}\n"
        );
        let said = linted(&text);
        assert_eq!(said.iter().any(|code| *code == "L-NVLS-OFF"), found, "{said:?}");
    }
}

/// The nodes of an exclusive job are whole, however few GPUs it requests of them.
#[test]
fn exclusive_nodes_are_whole() {
    for (head, answer) in [("--exclusive", "parallelcluster"), ("", "partial-node")] {
        let text = format!(
            "#!/bin/bash\n#SBATCH -N 4 --gres=gpu:4 {head}\nexport FI_PROVIDER=efa\nsrun ./a -x $X\n"
        );
        assert_eq!(mutated(&text).1, [answer], "{text}");
        let (spec, _) = import_sbatch(&text, false).unwrap();
        let profile = Profiles::builtin().get("parallelcluster").unwrap();
        let plan = FabricPlan::new(&spec, &Catalogue::builtin(), &ClusterFacts::default(), &profile);
        let is_partial = plan.skipped.iter().any(|skipped| skipped.reason.as_str() == "partial-node");
        assert_eq!((spec.roles[0].gpus_per_node, is_partial), (4, answer == "partial-node"), "{text}");
    }
}

#[test]
fn a_script_that_submits_another_is_no_job() {
    let inner = "#!/bin/bash\n#SBATCH --nodes=2\nsrun ./a\n";
    let text = format!("#!/bin/bash\nmkdir -p logs\nsbatch <<EOF\n{inner}EOF\n");
    let refused = import_sbatch(&text, false).unwrap_err();
    assert!(refused.message.contains("submits a job"), "{refused:?}");
    let chained = "#!/bin/bash\n#SBATCH --nodes=2\nsrun ./a\nsbatch --dependency=afterok:$SLURM_JOB_ID $0\n";
    assert_eq!(import_sbatch(chained, false).unwrap().0.nodes(), 2);
}

#[test]
fn roles_with_and_without_a_size_of_shared_memory_make_a_job_file() {
    let role = |size: &str| {
        format!(
            "spec: {{containers: [{{name: a, image: i, command: [./a], volumeMounts: [{{name: s, mountPath: /dev/shm}}], resources: {{limits: {{nvidia.com/gpu: 1}}}}}}], \
             volumes: [{{name: s, emptyDir: {{medium: Memory{size}}}}}]}}"
        )
    };
    for (sizes, volumes, lost) in [
        ([", sizeLimit: 15Gi", ""], 0, true),
        (["", ""], 1, false),
        ([", sizeLimit: 15Gi", ", sizeLimit: 15Gi"], 0, false),
    ] {
        let text = format!(
            "apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\nmetadata: {{name: a}}\nspec: {{replicas: 1, leaderWorkerTemplate: {{size: 4, \
             leaderTemplate: {{{}}}, workerTemplate: {{{}}}}}}}\n",
            role(sizes[0]),
            role(sizes[1])
        );
        let jobs = import(&text, Start::of("a")).unwrap();
        let told = jobs[0].findings.iter().any(|one| one.message.contains("/dev/shm"));
        assert_eq!((jobs[0].spec.volumes.len(), told), (volumes, lost), "{:?}", jobs[0].findings);
        assert!(jobs[0].findings.iter().all(|one| one.code != "SPEC-DUPLICATE"));
    }
}

#[test]
fn an_mpirun_on_one_node_starts_once() {
    for (nodes, said) in [(1, false), (2, true)] {
        let text = format!(
            "name = \"a\"\nimage = \"i\"\nnodes = {nodes}\ncommand = [\"mpirun\", \"-np\", \"8\", \"./a\"]\ngpus_per_node = 8\n"
        );
        let refused = JobFile::parse("a.toml", text.as_bytes()).err();
        assert_eq!(refused.is_some_and(|error| format!("{error:?}").contains("SPEC-LAUNCH")), said, "{text}");
    }
}

/// What weftrun's reader does not understand is no error of the script, and old arithmetic is understood.
#[test]
fn only_what_no_shell_reads_is_a_syntax_error() {
    for (line, found) in [
        ("np=$[${nodes}*${tasks}]", &[][..]),
        ("np=$[$(nproc)*2]", &[]),
        ("coproc sleep 1", &[]),
        ("if true; then srun ./a", &["L-SHELL-SYNTAX"]),
    ] {
        let text = format!("#!/bin/bash\n#SBATCH -N 2 --gpus-per-node=8\n{line}\nsrun python a.py \"$@\"\n");
        assert_eq!(linted(&text), *found, "{text}");
        if line.contains("{nodes}") {
            let (_, told) = import_sbatch(&text, false).unwrap();
            assert!(told.iter().any(|one| one.message.contains("`$@`")), "{told:?}");
        }
    }
}

#[test]
fn the_nodes_of_a_number_of_tasks_are_slurms() {
    for (options, answer) in
        [("-n 64", "nodes-unknown"), ("-n 64 -N 8", "no-gpu"), ("-n 1", "not-distributed")]
    {
        let text = format!("#!/bin/bash\n#SBATCH {options}\nexport FI_PROVIDER=efa\nmpirun ./a\n");
        assert_eq!(mutated(&text).1, [answer], "{text}");
    }
}

/// A runtime of Trainer names its nodes in `mlPolicy`, and is read with its TrainJob.
#[test]
fn a_training_runtime_is_no_unknown_kind() {
    let runtime = |kind: &str| {
        format!(
            "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: {kind}\nmetadata: {{name: r}}\nspec:\n  mlPolicy: {{numNodes: 2}}\n  template:\n    spec:\n      \
             replicatedJobs:\n      - name: node\n        template: {{spec: {{template: {{spec: {{nodeSelector: {{node.kubernetes.io/instance-type: p5.48xlarge}}, \
             containers: [{{name: node, image: i, resources: {{limits: {{nvidia.com/gpu: 8, memory: 1Ti}}}}}}]}}}}}}}}\n"
        )
    };
    for (kind, found) in [
        ("ClusterTrainingRuntime", &[][..]),
        ("TrainingRuntime", &[][..]),
        ("OtherRuntime", &["W-KIND-UNKNOWN"]),
    ] {
        let (_, jobs, _) = mutated(&runtime(kind));
        assert_eq!(jobs, ["eks-image"], "{kind}");
        assert_eq!(linted(&runtime(kind)), *found, "{kind}");
    }
}

/// Releases of RCCL are not NCCL's.
#[test]
fn what_nccl_does_since_a_release_is_not_said_of_rccl() {
    for (program, found) in
        [("/opt/rccl-tests/build/a", &[][..]), ("/opt/nccl-tests/build/a", &["L-GID-INDEX"])]
    {
        let text =
            format!("#!/bin/bash\n#SBATCH -N 2 --exclusive\nexport NCCL_IB_GID_INDEX=3\nsrun {program}\n");
        assert_eq!(linted(&text), *found, "{program}");
    }
}

/// Licence lines before the `#!` line: sbatch refuses the file, whatever stands below.
#[test]
fn a_script_whose_first_line_is_another_is_told_as_one() {
    let plain = "# Copyright\n#!/bin/bash\n#SBATCH --nodes=2\nsrun python train.py\n";
    // A line that YAML takes for a key that is not closed.
    let with_colon =
        "# Copyright\n#!/bin/bash\n#SBATCH --nodes=2\necho Node IP: $head\nexport FI_PROVIDER=\"efa\"\n";
    for script in [plain, with_colon] {
        let found = with_settings(|settings| lint_document(script, Start::of("a"), settings));
        let refused = with_settings(|settings| mutate(script, Start::of("a"), settings).unwrap_err());
        let imported = import_sbatch(script, false).unwrap_err();
        for finding in [&found[0], &refused.findings()[0], &imported] {
            assert!(finding.message.contains("lines before its `#!` line"), "{}", finding.message);
        }
    }
    let manifest = "# see\n# #!/bin/bash\nkey: 1\n";
    let other = with_settings(|settings| lint_document(manifest, Start::of("a"), settings));
    assert!(other[0].message.contains("no object of Kubernetes"), "{}", other[0].message);
}
