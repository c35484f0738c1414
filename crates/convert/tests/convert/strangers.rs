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
    ("hugepages-fix.yaml", "eks-image", &["requests: {vpc.amazonaws.com/efa: 32}"], &["L-HUGEPAGES-MISSING"]),
    ("hyperpod-dgxc.yaml", "eks-image", &["vpc.amazonaws.com/efa: '32'", "hugepages-2Mi"], &[]),
    ("late-heredoc.sbatch", "not-distributed", &[], &["L-SHELL-SYNTAX"]),
    ("memory-too-small.yaml", "eks-image", &["requests:"], &["L-MEMORY-SMALL"]),
    ("neuron-no-memory.yaml", "neuron", &["FI_PROVIDER"], &["L-HUGEPAGES-MISSING"]),
    ("neuron-provider.sbatch", "parallelcluster", &[], &[]),
    ("no-exclusive.sbatch", "parallelcluster", &["FI_EFA_USE_DEVICE_RDMA=1"], &[]),
    ("ntasks-drop.sbatch", "fabric-unknown", &[], &[]),
    ("ntasks-no-nodes.sbatch", "parallelcluster", &[], &[]),
    ("shm-request.yaml", "fabric-unknown", &[], &[]),
    ("srun-nodes.sbatch", "parallelcluster", &[], &[]),
    ("tuner.sbatch", "parallelcluster", &["FI_EFA_USE_DEVICE_RDMA=1"], &[]),
    (
        "unknown-kind.yaml",
        "eks-image",
        &["requests: {vpc.amazonaws.com/efa: 1}"],
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
    assert_eq!((spec.launch, spec.nodes(), spec.roles[0].ranks_per_node), (Launch::Once, 4, Some(8)));
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
    let own = announced(&plan(&spec));
    assert!(own.as_ref().is_none_or(|line| !line.contains("NCCL_DEBUG")), "{own:?}");
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
