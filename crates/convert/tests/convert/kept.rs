//! What `mutate` keeps of the user's, and what it says of it; what `lint` says of values that no shell reads.

use weftrun_convert::{MutateOptions, MutatedJob, Start, lint_document, mutate};
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::{Profile, Profiles};
use weftrun_core::request::FabricRequest;

fn with_settings<T>(run: impl FnOnce(&MutateOptions<'_>) -> T) -> T {
    let (none, options) = (Profile::default(), FabricRequest::default());
    let (sites, catalogue) = (Profiles::builtin().of_sites().unwrap(), Catalogue::builtin());
    run(&MutateOptions { by_evidence: Some(&sites), ..MutateOptions::offline(&none, &options, &catalogue) })
}

fn mutated(text: &str) -> (String, MutatedJob) {
    with_settings(|settings| {
        let mut done = mutate(text, Start::of("a"), settings).unwrap();
        (done.text.into_owned(), done.jobs.remove(0))
    })
}

fn ray(node: &str, resources: &str) -> String {
    format!(
        "apiVersion: ray.io/v1\nkind: RayCluster\nmetadata: {{name: a}}\nspec:\n  workerGroupSpecs:\n  - groupName: w\n    replicas: 2\n    template:\n      \
         spec:\n{node}        containers:\n        - name: w\n          image: i\n          resources: {{{resources}}}\n"
    )
}

const P5: &str = "        nodeSelector: {node.kubernetes.io/instance-type: p5.48xlarge}\n";

/// Nothing is known of a node with fewer GPUs than 8: what the job requests stays, and it is said what is missing.
#[test]
fn a_job_on_nodes_of_unknown_size_is_told_what_is_missing() {
    for (gpus, said) in
        [(4, "neither whether 4 accelerators"), (8, "8 accelerators are taken for a whole node")]
    {
        let text = ray("", &format!("limits: {{nvidia.com/gpu: {gpus}, vpc.amazonaws.com/efa: 1}}"));
        let (new, job) = mutated(&text);
        assert_eq!((new.as_str(), job.skip()), (text.as_str(), None));
        let unknown: Vec<&str> = job.plan.findings.iter().map(|one| one.message.as_str()).collect();
        assert!(unknown.iter().any(|message| message.contains(said)), "{unknown:?}");
    }
    let (_, job) = mutated(&ray(P5, "limits: {nvidia.com/gpu: 8, vpc.amazonaws.com/efa: 32}"));
    assert!(job.plan.findings.iter().all(|one| one.code != "W-INSTANCE-UNKNOWN"), "{:?}", job.plan.findings);
}

/// The API server copies a limit to a missing request, and refuses a device's request without a limit.
#[test]
fn what_changes_nothing_on_the_cluster_is_not_written() {
    for (resources, added) in [
        ("limits: {nvidia.com/gpu: 8, vpc.amazonaws.com/efa: 32}", false),
        (
            "limits: {nvidia.com/gpu: 8, vpc.amazonaws.com/efa: 32}, requests: {vpc.amazonaws.com/efa: 32}",
            false,
        ),
        ("limits: {nvidia.com/gpu: 8}, requests: {vpc.amazonaws.com/efa: 32}", true),
    ] {
        let text = ray(P5, resources);
        let (new, job) = mutated(&text);
        assert_eq!((new != text, job.changed), (added, added), "{new}");
        assert_eq!(
            new.matches("efa: 32").count() + new.matches("efa: '32'").count(),
            text.matches("efa: 32").count() + usize::from(added)
        );
    }
}

/// More huge pages than the rule would request take nothing from the job, unless the nodes do not have them.
#[test]
fn an_amount_of_the_users_is_told_where_it_falls_short() {
    for (node, pages, told) in [
        ("", "5Gi", false),
        ("", "15120Mi", false),
        ("", "2Gi", true),
        (P5, "6Gi", false),
        (P5, "512Gi", true),
    ] {
        let resources = format!(
            "limits: {{nvidia.com/gpu: 8, vpc.amazonaws.com/efa: 32, memory: 1Ti, hugepages-2Mi: {pages}}}"
        );
        let (_, job) = mutated(&ray(node, &resources));
        let found = job.plan.findings.iter().any(|one| one.code == "W-RES-KEPT");
        assert_eq!(found, told, "{pages}: {:?}", job.plan.findings);
    }
    // A finding of its own says that these are too few.
    let (_, job) = mutated(&ray(
        P5,
        "limits: {nvidia.com/gpu: 8, vpc.amazonaws.com/efa: 4, memory: 1Ti, hugepages-2Mi: 5Gi}",
    ));
    let codes: Vec<&str> = job.plan.findings.iter().map(|one| one.code.as_str()).collect();
    assert_eq!(codes, ["W-EFA-PARTIAL"]);
}

#[test]
fn a_dollar_is_told_where_no_shell_reads_it() {
    let pod = |image: &str, name: &str, value: &str, command: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec:\n  containers:\n  - name: a\n    image: {image}\n    env: [{{name: {name}, value: '{value}'}}]\n    \
             resources: {{limits: {{nvidia.com/gpu: 1}}}}\n{command}"
        )
    };
    let runs = "    command: [sh, -c, 'python a.py $ARGS']\n";
    for (image, name, value, command, told) in [
        ("i", "PATH", "/x:$PATH", "", true),
        ("i", "NCCL_SOCKET_IFNAME", "$IFACE", "", true),
        ("i", "ARGS", "--lr $LR", runs, true),
        ("i", "DATA", "${HOME}/data", runs, true),
        ("i", "DATA", "$(HOME)/data", runs, false),
        // An image's own command may evaluate it.
        ("i", "ARGS", "--lr $LR", "", false),
        ("i", "ARGS", "--lr $LR", "    command: [sh, -c, 'eval python a.py \"$ARGS\"']\n", false),
        ("i", "ARGS", "--lr $LR", "    command: [sh, -c, $(ARGS)]\n", false),
        ("i", "DB_PASSWORD", "a$B", runs, false),
        // A template is filled in first.
        ("$IMAGE", "DATA", "$DATA", runs, false),
    ] {
        let text = pod(image, name, value, command);
        let found = with_settings(|settings| lint_document(&text, Start::of("a"), settings));
        assert_eq!(
            found.iter().any(|one| one.code == "W-ENV-DOLLAR"),
            told,
            "{name}={value}: {found:?}\n{text}"
        );
    }
}
