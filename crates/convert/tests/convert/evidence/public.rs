//! Manifests and scripts of public repositories (sources and licences: `tests/cases/public/README.md`).

use super::*;

/// Mutates a file of `tests/cases/public`; returns the new text and the report of its only job.
fn public(file: &str) -> (String, String, MutatedJob) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/public").join(file);
    let old = std::fs::read_to_string(path).unwrap();
    let (new, report) = with_settings(|settings| {
        let read = |text: &str| {
            let done = if file.ends_with(".sbatch") {
                mutate_sbatch(text, Start::of(file), settings)
            } else {
                mutate(text, Start::of(file), settings).unwrap()
            };
            assert_eq!(done.jobs.len(), 1, "{file}");
            (done.text.clone().into_owned(), done.jobs[0].clone())
        };
        let (new, report) = read(&old);
        assert_eq!(read(&new).0, new, "{file}: a second pass changes nothing");
        (new, report)
    });
    (old, new, report)
}

#[test]
fn public_jobs_that_bring_the_efa_stack_get_no_mount_and_no_library_path() {
    let (old, new, report) = public("efa-stack-in-image.yaml");
    assert_eq!((report.plan.profile.as_deref(), report.skip()), (Some("eks-image"), None));
    assert_eq!(new, old, "it requests its devices and huge pages itself");
}

#[test]
fn public_jobs_that_bring_their_efa_or_show_too_little_stay_as_they_are() {
    for (file, sign, skip) in [
        ("efa-partial-node.yaml", "vpc.amazonaws.com/efa", None),
        ("hyperpod-annotation.yaml", "sagemaker.amazonaws.com/", Some("fabric-unknown")),
    ] {
        let (old, new, report) = public(file);
        assert_eq!(report.skip(), skip, "{file}");
        assert!(report.plan.evidence.iter().any(|one| one.text.contains(sign)), "{file}");
        assert_eq!(new, old, "{file}");
    }
}

#[test]
fn a_public_ray_cluster_on_trainium_gets_the_environment_of_neuron() {
    let (_, new, report) = public("trainium-ray.yaml");
    assert_eq!((report.plan.profile.as_deref(), report.skip()), (Some("neuron"), None));
    assert!(new.contains("name: FI_EFA_FORK_SAFE"), "{new}");
    assert!(!new.contains("/opt/amazon-efa-ofi"), "{new}");
}

#[test]
fn public_scripts_with_a_variable_as_the_number_of_nodes_are_templates() {
    let (old, new, report) = public("efa-template.sbatch");
    assert_eq!(report.skip(), Some("template"));
    assert!(report.plan.skipped[0].why.contains("`${NUM_NODES}`"), "{:?}", report.plan.skipped);
    assert_eq!(new, old);
    for option in ["--gres=gpu:$GPUS", "--gpus-per-node={{ gpus }}", "--gpus=<N>"] {
        let text = format!(
            "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH {option}\nexport FI_PROVIDER=efa\nsrun python a.py\n"
        );
        let report =
            with_settings(|settings| mutate_sbatch(&text, Start::of("a.sbatch"), settings).jobs[0].clone());
        assert_eq!(report.skip(), Some("template"), "{option}");
    }
}

#[test]
fn public_jobs_of_other_sites_get_nothing_of_efa() {
    for (file, skip) in [
        ("azure-rdma.yaml", "already-there"),
        ("jean-zay.sbatch", "other-fabric"),
        ("oracle.sbatch", "other-fabric"),
    ] {
        let (old, new, report) = public(file);
        assert_eq!(report.skip(), Some(skip), "{file}");
        assert_eq!(new, old, "{file}");
    }
}
