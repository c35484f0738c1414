//! sbatch scripts: `#SBATCH` lines stay, one block of exports is put between markers after them, and `srun`
//! lines with a container get options that pass those variables in.
//!
//! A container image may set a variable of its own, which then wins over the job's: `--container-env` names those that
//! must not be overridden (pyxis, `srun --help`).

mod assignments;
mod import;
mod launched;
mod operations;
mod rewrite;
mod script;

use assignments::Assignment;

use import::memory;
pub use import::{import_sbatch, slurm_duration};
pub use operations::{NoCounterpart, ScriptChange, ScriptContext, decision_text, script_change};
pub use weftrun_core::shell::sbatch::{Directive, Directives, Program};

use std::borrow::Cow;
use std::collections::HashSet;

use super::report::MutatedJob;
use crate::lint;
use crate::lint::settings::{Programs, Surroundings};
use crate::mutate::{MutateOptions, Mutated, Start};
use crate::without_job::script_is_no_job;
use script::Script;
use weftrun_core::Finding;
use weftrun_core::explain;
use weftrun_core::fabric::evidence::Form;
use weftrun_core::fabric::{FabricPlan, SkipReason, Skipped, decide};
use weftrun_core::request::Fabric;
pub use weftrun_core::shell::is_sbatch;
use weftrun_core::shell::{runs, without_comment};

/// First line of the fabric's block in an sbatch script, whether it was rendered or mutated.
pub const BLOCK_BEGIN: &str = "# >>> weftrun fabric >>>";
/// Last line of the fabric's block.
pub const BLOCK_END: &str = "# <<< weftrun fabric <<<";

/// Mutates an sbatch script.
pub fn mutate_sbatch<'t>(text: &'t str, start: Start<'_>, settings: &MutateOptions<'_>) -> Mutated<'t> {
    let script = Script::read(text);
    let mut options = settings.options.clone();
    let mut profile = settings.profile;
    let readable = script_is_no_job(text).map_or_else(|| script.apply_directives(&mut options), Err);
    let mut report = match readable {
        Ok(()) if options.kind == Fabric::Off && settings.options.kind != Fabric::Off => opted_out(&script),
        Ok(()) => {
            let settings = &MutateOptions { options: &options, ..*settings };
            let (chosen, weighed) = settings.chosen(Form::Script, |signs| signs.script(text));
            profile = chosen.profile;
            let job = script.view(&chosen);
            let mut plan = decide(&job, profile, &options, settings.catalogue, settings.facts);
            script.keep_expressible(&mut plan);
            if !plan.ops.is_empty() {
                let against = lint::against(&job, plan.fabric, profile, settings.catalogue);
                plan.findings.extend(against.into_iter().map(|found| explain::with_source(found.finding)));
            }
            MutatedJob::new(&job, weighed.into_iter().fold(plan, FabricPlan::with_evidence), "")
        }
        Err(finding) => {
            let mut report = opted_out(&script);
            report.plan.skipped.clear();
            report.fail(finding);
            report
        }
    };
    start.file.clone_into(&mut report.file);
    report.plan.keep_library_path();
    let new = if report.error().is_none() && report.skip().is_none() {
        script.with(&report.plan.ops, &MutateOptions { profile, ..*settings })
    } else {
        None
    };
    let text = match new {
        Some(new) if new != text => Cow::Owned(new),
        _ => Cow::Borrowed(text),
    };
    report.changed = matches!(text, Cow::Owned(_));
    if !report.changed {
        report.actions.clear();
    }
    Mutated { text, jobs: vec![report] }
}

/// Checks the variables that a script exports.
pub fn lint_sbatch(text: &str, start: Start<'_>, settings: &MutateOptions<'_>) -> Vec<Finding> {
    let source = start.of_text(text);
    if let Some(finding) = script_is_no_job(text) {
        return vec![finding.span(source.span(&(0..0)))];
    }
    let script = Script::read(text);
    let (settings, _) = settings.chosen(Form::Script, |signs| signs.script(text));
    let fabric = settings.options.kind.named().unwrap_or(settings.profile.fabric);
    let mut findings: Vec<Finding> = lint::script::check(text, &script.blocks)
        .into_iter()
        .map(|(finding, range)| explain::with_source(finding).span(source.span(&range)))
        .collect();
    let job = script.view(&settings);
    // A here-document that is only written out sets nothing.
    let runs = runs(text);
    let exports: Vec<&Assignment> =
        script.exports.iter().filter(|one| runs.get(one.place.start) == Some(&true)).collect();
    let names = exports.iter().map(|one| one.name.as_str());
    let expanded: HashSet<&str> = lint::names::expanded(text).collect();
    let exported = lint::names::Exported::read(text);
    for role in &job.roles {
        let around = Surroundings {
            fabric,
            several_nodes: script.nodes() > 1
                || script.nodes_unknown()
                || script.open_number(&["nodes"]).is_some(),
            image: script.image(),
            module: script.nccl_module(),
            programs: Programs::of(text.lines().map(without_comment).chain(names.clone()), false),
            profile: Some(settings.profile),
            ..Surroundings::of_role(role, settings.profile, settings.catalogue)
        };
        for Assignment { name, value, place, command } in exports.iter().copied() {
            let is_own = expanded.contains(name.as_str()) || command.is_none() && !exported.has(name);
            let found = lint::settings::of_variable(name, value, around).into_iter();
            let found = found.filter(|finding| !is_own || finding.code != lint::names::UNKNOWN);
            let found = found.map(|finding| explain::with_source(finding).at(format!("export {name}")));
            findings.extend(found.map(|finding| finding.span(source.span(place))));
        }
        let ranks = role.container.count("nvidia.com/gpu") > 1;
        let env = exports.iter().map(|one| (one.name.as_str(), one.value.as_str()));
        if let Some(finding) = lint::settings::shared_debug_file(env, ranks, around.several_nodes) {
            let of_file = exports.iter().rev().find(|one| one.name == "NCCL_DEBUG_FILE");
            let place = of_file.map_or(0..0, |one| one.place.clone());
            findings.push(explain::with_source(finding).span(source.span(&place)));
        }
        let head = text.find("#SBATCH").unwrap_or(0);
        findings.extend(
            lint::job_shapes(role, settings.profile, settings.catalogue)
                .into_iter()
                .map(|finding| explain::with_source(finding).span(source.span(&(head..head)))),
        );
    }
    findings.sort_by_key(|finding| finding.span.as_ref().map_or(0, |span| span.start));
    findings
}

fn opted_out(script: &Script<'_>) -> MutatedJob {
    MutatedJob {
        kind: "sbatch script".to_owned(),
        name: script.option("job-name").unwrap_or_default().to_owned(),
        line: 1,
        plan: FabricPlan::skipped(Skipped::fabric(
            Fabric::Off,
            SkipReason::OptOut,
            "the script contains `# weftrun: fabric=off`",
        )),
        ..MutatedJob::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weftrun_core::catalogue::Catalogue;
    use weftrun_core::fabric::Profiles;
    use weftrun_core::request::FabricRequest;

    fn run(text: &str, profile: &str) -> (String, MutatedJob) {
        let profile = Profiles::builtin().get(profile).unwrap();
        let (catalogue, options) = (Catalogue::builtin(), FabricRequest::default());
        let settings = MutateOptions::offline(&profile, &options, &catalogue);
        let done = mutate_sbatch(text, Start::of("job.sbatch"), &settings);
        let new = done.text.into_owned();
        let again = mutate_sbatch(&new, Start::of("job.sbatch"), &settings);
        assert_eq!(again.text, new, "a second pass changes nothing");
        assert!(!again.jobs[0].changed);
        (new, done.jobs.into_iter().next().unwrap())
    }

    const HEAD: &str = "#!/bin/bash\n#SBATCH --job-name=llama\n#SBATCH -N 4 -C p5.48xlarge\n#SBATCH --gpus-per-node=8 # all\n\n";

    #[test]
    fn one_block_stands_behind_the_directives() {
        let text = format!("{HEAD}# go\nexport NCCL_DEBUG=INFO\nsrun python train.py\n");
        let (new, report) = run(&text, "parallelcluster");
        assert!(report.changed, "{report:?}");
        let (head, rest) = new.split_once(BLOCK_BEGIN).unwrap();
        assert_eq!(format!("{head}{}", rest.split_once(&format!("{BLOCK_END}\n")).unwrap().1), text);
        assert!(head.ends_with("#SBATCH --gpus-per-node=8 # all\n"));
        assert!(rest.contains("export FI_EFA_USE_DEVICE_RDMA=1\n"), "{rest}");
        assert!(!rest.contains("--container-env"));
    }

    #[test]
    fn containers_let_the_variables_in() {
        let text = format!(
            "{HEAD}timeout 5 srun --container-image=a#b \\\n  --container-env=FOO,FI_PROVIDER bash -c 'srun x'\n\
             srun --container-image x --container-mounts \"/a:/b\" y\nsrun hostname\n"
        );
        let (new, report) = run(&text, "dgxc");
        assert!(report.notes().all(|note| note.code != "I-WEBHOOK-UNKNOWN"), "{:?}", report.plan.findings);
        assert!(new.contains("--container-env=FOO,FI_PROVIDER,LD_LIBRARY_PATH"), "{new}");
        assert!(
            new.contains("--container-mounts \"/a:/b,/opt/amazon-efa-ofi:/opt/amazon-efa-ofi:ro\" y"),
            "{new}"
        );
        assert!(new.contains("\nsrun hostname\n"));
        assert!(new.contains("${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"));
    }

    /// What a report lists as applied is in the script; everything else is reported as not applied.
    #[test]
    fn a_report_says_only_what_was_written() {
        let contained = "srun --container-image=a#b ./train\n";
        let exclusive = HEAD.replace("--gpus-per-node=8 # all", "--exclusive");
        for profile in ["dgxc", "parallelcluster", "eks-image", "infiniband", "roce"] {
            let Ok(_) = Profiles::builtin().get(profile) else { continue };
            for (head, body) in
                [(HEAD, "srun ./train\n"), (HEAD, contained), (exclusive.as_str(), "mpirun -np 32 ./train\n")]
            {
                let (new, report) = run(&format!("{head}{body}"), profile);
                assert_eq!(report.actions.is_empty(), !report.changed, "{profile} {body}: {report:?}");
                for action in &report.actions {
                    let (_, what) = action.split_once(": ").unwrap();
                    let written = match what.split(' ').collect::<Vec<_>>()[..] {
                        ["env", name, _] => new.contains(&format!("export {name}=")),
                        ["volume", ..] => new.contains("--container-mounts"),
                        ["mpirun", ..] => new.contains("mpirun -x "),
                        _ => false,
                    };
                    assert!(written, "{profile} {body}: `{action}` is not in\n{new}");
                }
                for decision in &report.plan.decisions {
                    let what = decision.target.split_once(": ").map_or("", |(_, what)| what);
                    let carried =
                        ["env ", "mount ", "command", "mpirun"].iter().any(|start| what.starts_with(start));
                    assert!(carried, "{profile} {body}: {}", decision.target);
                }
                let named = report.plan.findings.iter().filter(|note| note.code == "I-NOT-APPLIED").count();
                let lost = report
                    .plan
                    .skipped
                    .iter()
                    .filter(|skipped| skipped.reason == SkipReason::NotExpressible)
                    .count();
                assert_eq!(named, lost);
            }
        }
        let (new, report) = run(&format!("{HEAD}srun ./train\n"), "dgxc");
        let not_applied = |part: &str| {
            report
                .plan
                .findings
                .iter()
                .any(|note| note.code == "I-NOT-APPLIED" && note.message.contains(part))
        };
        assert!(
            not_applied("vpc.amazonaws.com/efa=32") && not_applied("mount /opt/amazon-efa-ofi"),
            "{:?}",
            report.plan.findings
        );
        assert!(!new.contains("container-mounts"));
    }

    /// Found by the fuzzer. Our block is replaced, and there is only one; what Slurm reads is never removed
    /// with it.
    #[test]
    fn an_sbatch_line_inside_the_block_stays() {
        let (once, _) = run(&format!("{HEAD}srun ./train\n"), "dgxc");
        let inside = once.replacen(BLOCK_END, &format!("#SBATCH --qos=high\n{BLOCK_END}"), 1);
        let (new, _) = run(&inside, "dgxc");
        assert!(new.contains("#SBATCH --qos=high\n"), "{new}");
        assert_eq!(run(&new, "dgxc").0, new);
        let twice = once.replacen("srun", &format!("{BLOCK_BEGIN}\nexport A=b\n{BLOCK_END}\nsrun"), 1);
        assert_eq!(run(&twice, "dgxc").0, once);
    }

    /// Found by the fuzzer: text in the old block that no shell reads does not affect the rest of the
    /// script.
    #[test]
    fn the_old_block_counts_for_nothing() {
        let (once, _) = run(&format!("{HEAD}mpirun -np 32 x\n"), "dgxc");
        let spoilt = once.replacen("export OPAL_PREFIX", "export A\0\"B", 1);
        assert_eq!(run(&spoilt, "dgxc").0, once);
        let line = once.replacen(BLOCK_END, &format!("# weftrun: efa.opal-prefix=off\n{BLOCK_END}"), 1);
        let (new, _) = run(&line, "dgxc");
        assert!(new.contains("# weftrun: efa.opal-prefix=off"), "{new}");
        assert_eq!(run(&new, "dgxc").0, new);
    }

    /// Found by the fuzzer: what looks like the second option is the value of the first.
    #[test]
    fn an_option_without_a_value_takes_the_next_word() {
        let text = format!("{HEAD}srun --container-env --container-mounts \"/a:/b\" x\n");
        let (new, _) = run(&text, "dgxc");
        assert!(new.contains("srun --container-mounts=/opt/amazon") && new.contains(" \"/a:/b\" x"), "{new}");
        assert_eq!(run(&new, "dgxc").0, new);
    }

    #[test]
    fn mpirun_is_rewritten_as_anywhere() {
        let (new, _) = run(&format!("{HEAD}mpirun -np 32 app # mpirun\n"), "dgxc");
        assert!(new.contains("/opt/amazon-efa-ofi/openmpi/bin/mpirun -x LD_LIBRARY_PATH"), "{new}");
        assert!(new.ends_with("app # mpirun\n"));
    }

    #[test]
    fn opting_out_and_parts_of_nodes_change_nothing() {
        for (body, reason) in [("# weftrun: fabric=off\nsrun x\n", "opt-out"), ("srun x\n", "partial-node")] {
            let head = if reason == "opt-out" { HEAD.to_owned() } else { HEAD.replace("node=8", "node=4") };
            let text = format!("{head}{body}");
            let (new, report) = run(&text, "parallelcluster");
            assert_eq!((new, report.skip()), (text, Some(reason)));
        }
    }

    #[test]
    fn a_directive_that_is_not_understood_is_an_error() {
        let (_, report) = run(&format!("{HEAD}# weftrun: fabrik=off\nsrun x\n"), "parallelcluster");
        assert_eq!(report.error().unwrap().code, "E-RULE-UNKNOWN");
        let (_, report) = run(&format!("{HEAD}# weftrun: off\nsrun x\n"), "parallelcluster");
        assert_eq!(report.error().unwrap().code, "E-SCRIPT-WISH");
    }

    #[test]
    fn a_lone_carriage_return_at_the_end_is_no_line_break() {
        let (new, report) =
            run("#!/bin/sh\n#SBATCH --exclusive -N 2 -C p5.48xlarge\n#!/x\r", "parallelcluster");
        assert!(report.changed && new.contains("FI_EFA_USE_DEVICE_RDMA=1\n"), "{new:?}");
    }

    #[test]
    fn an_exclusive_node_is_a_whole_one() {
        let (_, report) = run(
            "#!/bin/sh\n#SBATCH --exclusive\n#SBATCH --nodes=2 -C p5.48xlarge\nsrun x\n",
            "parallelcluster",
        );
        assert!(report.changed, "{report:?}");
    }
}
