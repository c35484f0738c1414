//! Files without a job are told as such, and never pass as if they were fine.

use weftrun_convert::{
    MutateOptions, Start, import_sbatch, is_sbatch, lint_document, mutate, mutate_sbatch, nothing_in,
};
use weftrun_core::Finding;
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::{Profile, Profiles};
use weftrun_core::request::FabricRequest;

/// The errors of `lint`, `mutate` and `import` for a script.
fn refusals(text: &str) -> Vec<Option<Finding>> {
    let (none, options) = (Profile::default(), FabricRequest::default());
    let (sites, catalogue) = (Profiles::builtin().of_sites().unwrap(), Catalogue::builtin());
    let settings =
        MutateOptions { by_evidence: Some(&sites), ..MutateOptions::offline(&none, &options, &catalogue) };
    let linted = lint_document(text, Start::of("a"), &settings).into_iter().find(Finding::is_error);
    let mutated = if is_sbatch(text) {
        let done = mutate_sbatch(text, Start::of("a"), &settings);
        assert_eq!(done.text, text);
        done.jobs[0].error().cloned()
    } else {
        mutate(text, Start::of("a"), &settings).err().map(|error| error.findings()[0].clone())
    };
    vec![linted, mutated, import_sbatch(text, false).err()]
}

const INNER: &str = "#!/bin/bash\n#SBATCH --nodes=4 --gpus-per-node=8\nexport NCCL_PROTO=simple FI_PROVIDER=efa\nsrun python a.py\n";

/// What stands in the here-document or behind `--wrap` is the job; the script around it runs where it is called.
#[test]
fn a_script_that_submits_a_job_is_none() {
    for (before, command, after, what) in [
        ("", "sbatch <<EOF", "", "here-document from line 4"),
        ("", "JOB=$(sbatch <<EOF", ")\necho $JOB", "here-document from line 4"),
        ("", "JOB=$(sbatch --parsable <<'EOF'", ")", "here-document from line 4"),
        (
            "for i in 1 2; do\n",
            "ID=\"$(sbatch --parsable -N 2 <<EOF",
            ")\"\ndone",
            "here-document from line 5",
        ),
        ("submit() {\n", "  sbatch --dependency=$1 << EOF", "}\nsubmit 3", "here-document from line 5"),
        ("", "cat > job.sh <<EOF", "sbatch job.sh", "here-document from line 4"),
        ("", "cat > job.sh <<EOF", "chmod +x job.sh", "that it writes"),
    ] {
        let text = format!("#!/bin/bash\nset -e\n{before}{command}\n{INNER}EOF\n{after}\n");
        for finding in refusals(&text) {
            let finding = finding.unwrap_or_else(|| panic!("{text}"));
            assert!(finding.code == "E-NO-JOB" && finding.message.contains(what), "{text}: {finding:?}");
        }
    }
    for (line, what) in [
        ("sbatch -N 2 --wrap \"srun python a.py\"", "`sbatch --wrap`"),
        ("for i in 1 2; do\n  ID=$(sbatch --parsable --wrap=\"a $i\")\ndone", "`sbatch --wrap`"),
        ("sbatch -N 2 train.sh", "the script that it names"),
        ("if true; then\n  python a.py: x\nfi", "no line of it shows a job"),
        ("", "no line of it shows a job"),
        ("# a comment only", "no line of it shows a job"),
    ] {
        for finding in refusals(&format!("#!/bin/bash\n{line}\n")) {
            let finding = finding.unwrap_or_else(|| panic!("{line}"));
            assert!(finding.code == "E-NO-JOB" && finding.message.contains(what), "{line}: {finding:?}");
        }
    }
}

/// Behind what no shell reads, a line that gives `sbatch` a here-document shows the same.
#[test]
fn a_template_that_submits_a_job_is_none() {
    let text = format!("#!/bin/bash\n{{#\nLicence (of it);\n#}}\nX={{{{ x }}}}\nsbatch << EOF\n{INNER}EOF\n");
    for finding in refusals(&text) {
        assert!(finding.is_some_and(|one| one.message.contains("is a here-document")), "{text}");
    }
    let unreadable = format!("{INNER}for (\n");
    assert!(refusals(&unreadable)[2].is_none(), "its own lines stand before the fault");
}

/// A job that submits the next one, or whose `#SBATCH` lines come too late, is a job.
#[test]
fn a_job_that_submits_another_is_one() {
    for text in [
        format!("{INNER}sbatch --dependency=afterok:$SLURM_JOB_ID next.sh\n"),
        format!("{INNER}sbatch <<EOF\n#!/bin/bash\n#SBATCH -N 1\nsrun b\nEOF\n"),
        "#!/bin/bash\nmodule load x\n#SBATCH -N 2\nsrun python a.py\n".to_owned(),
    ] {
        assert!(refusals(&text).iter().all(Option::is_none), "{text}: {:?}", refusals(&text));
    }
}

#[test]
fn a_file_without_anything_in_it_holds_no_job() {
    for text in ["", "\n\n", "# a\n# b\n", "---\n# a\n", "%YAML 1.2\n---\n...\n"] {
        let found = nothing_in(text, Start::of("a")).unwrap();
        assert_eq!((found.code.as_str(), found.is_error()), ("E-NO-JOB", true), "{text:?}");
        let what = if text.trim().is_empty() { "is empty" } else { "comments only" };
        assert!(found.message.contains(what), "{text:?}: {}", found.message);
    }
    for text in ["a: 1\n", "# a\nkind: B\n", "#!/bin/bash\n# a\n"] {
        assert!(nothing_in(text, Start::of("a")).is_none(), "{text:?}");
    }
}
