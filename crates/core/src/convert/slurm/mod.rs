//! sbatch scripts: `#SBATCH` lines stay, one block of exports is put between markers after them, and `srun`
//! lines with a container get options that pass those variables in.
//!
//! A container image may set a variable of its own, which then wins over the job's: `--container-env` names those that
//! must not be overridden (pyxis, `srun --help`).

mod directives;
mod import;
mod operations;

pub use directives::{Directive, Directives, Program};
pub use import::{import_sbatch, slurm_duration};
pub use operations::{
    INEXPRESSIBLE, ScriptChange, ScriptContext, decision_text, script_change, why_inexpressible,
};

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::report::JobReport;
use crate::Finding;
use crate::convert::edit::emit::newline_of;
use crate::convert::kubeflow::document::{Mutated, Settings, Start};
use crate::explain;
use crate::fabric::evidence::Form;
use crate::fabric::view::{ContainerView, EnvView, JobKind, JobView, Mpi, RoleView};
use crate::fabric::{FabricPlan, Op, Skipped, decide};
use crate::lint;
use crate::request::FabricRequest;
use crate::request::{Fabric, RuleSetting};
use crate::shell::{ScriptCommand, commands};

/// First line of the fabric's block in an sbatch script, whether it was rendered or mutated.
pub const BLOCK_BEGIN: &str = "# >>> weftrun fabric >>>";
/// Last line of the fabric's block.
pub const BLOCK_END: &str = "# <<< weftrun fabric <<<";

/// Returns whether a text is an sbatch script.
pub fn is_sbatch(text: &str) -> bool {
    text.starts_with("#!") && text.lines().any(|line| line.starts_with("#SBATCH"))
}

/// Mutates an sbatch script.
pub fn mutate_sbatch<'t>(text: &'t str, start: Start<'_>, settings: &Settings<'_>) -> Mutated<'t> {
    let script = Script::read(text);
    let mut options = settings.options.clone();
    let mut profile = settings.profile;
    let mut report = match script.wishes(&mut options) {
        Ok(()) if options.kind == Fabric::Off && settings.options.kind != Fabric::Off => opted_out(&script),
        Ok(()) => {
            let settings = &Settings { options: &options, ..*settings };
            let (chosen, weighed) = settings.chosen(Form::Script, |signs| signs.script(text));
            profile = chosen.profile;
            let job = script.view(&chosen);
            let mut plan = decide(&job, profile, &options, settings.catalogue, settings.facts);
            script.keep_expressible(&mut plan);
            JobReport::new(&job, weighed.into_iter().fold(plan, FabricPlan::with_evidence), "")
        }
        Err(finding) => {
            let mut report = opted_out(&script);
            report.plan.skipped.clear();
            report.fail(finding);
            report
        }
    };
    start.file.clone_into(&mut report.file);
    // The block prefixes what the script has, so nothing is hidden.
    report.plan.findings.retain(|note| note.code != "W-LDPATH-SHADOW");
    let new = if report.error().is_none() && report.skip().is_none() {
        script.with(&report.plan.ops, &Settings { profile, ..*settings })
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
pub fn lint_sbatch(text: &str, start: Start<'_>, settings: &Settings<'_>) -> Vec<Finding> {
    let script = Script::read(text);
    let (settings, _) = settings.chosen(Form::Script, |signs| signs.script(text));
    let fabric = settings.profile.fabric;
    let mut findings: Vec<Finding> = lint::script::check(text, &script.blocks)
        .into_iter()
        .map(|(finding, range)| explain::with_source(finding).span(start.span(text, &range)))
        .collect();
    let image = script.option("container-image");
    for (name, value, range) in &script.exports {
        for finding in lint::variable(name, value, fabric, script.nodes() > 1, image) {
            findings.push(finding.at(format!("export {name}")).span(start.span(text, range)));
        }
    }
    findings.sort_by_key(|finding| finding.span.as_ref().map_or(0, |span| span.start));
    findings
}

fn opted_out(script: &Script<'_>) -> JobReport {
    JobReport {
        kind: "sbatch script".to_owned(),
        name: script.option("job-name").unwrap_or_default().to_owned(),
        line: 1,
        plan: FabricPlan {
            skipped: vec![Skipped::fabric(
                Fabric::Off,
                "opt-out",
                "`# weftrun: fabric=off` stands in the script",
            )],
            ..FabricPlan::default()
        },
        ..JobReport::default()
    }
}

/// A parsed script.
pub(super) struct Script<'t> {
    text: &'t str,
    /// The `#SBATCH` lines, one entry for each component of a heterogeneous job.
    components: Vec<Directives>,
    /// Where the block goes: after the last `#SBATCH` line that Slurm reads.
    head_end: usize,
    /// Variables that are set, with their place.
    exports: Vec<(String, String, Range<usize>)>,
    /// Bytes of our own blocks; more than one where scripts were concatenated.
    blocks: Vec<Range<usize>>,
}

impl<'t> Script<'t> {
    pub(super) fn read(text: &'t str) -> Self {
        let blocks = blocks(text);
        let components = vec![Directives::default()];
        let mut script = Self { text, components, head_end: 0, exports: Vec::new(), blocks };
        let (mut at, mut in_head) = (0, true);
        for line in text.split_inclusive('\n') {
            let (start, end) = (at, at + line.len());
            at = end;
            if script.blocks.iter().any(|block| block.contains(&start)) {
                continue;
            }
            match line.trim_end() {
                // Slurm stops reading `#SBATCH` lines at the first command.
                line if in_head && line.starts_with("#SBATCH") => {
                    script.directive(&line["#SBATCH".len()..]);
                    script.head_end = end;
                }
                line if in_head && line.starts_with("#!") => script.head_end = end,
                line if line.trim_start().starts_with('#') || line.trim().is_empty() => {}
                line => {
                    in_head = false;
                    script.assignment(line, start);
                }
            }
        }
        script
    }

    fn directive(&mut self, line: &str) {
        if matches!(line.trim(), "hetjob" | "packjob") {
            self.components.push(Directives::default());
        } else if let Some(last) = self.components.last_mut() {
            last.read_line(line);
        }
    }

    /// Notes `export NAME=value` and `NAME=value` on a line of its own.
    fn assignment(&mut self, line: &str, start: usize) {
        let body = line.trim_start();
        let indent = line.len() - body.len();
        let (offset, body) = body.strip_prefix("export ").map_or((0, body), |rest| ("export ".len(), rest));
        let Some((name, value)) = body.split_once('=') else { return };
        let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if is_name {
            let value = value.split(" #").next().unwrap_or(value).trim().trim_matches(['"', '\'']);
            let at = start + indent + offset;
            self.exports.push((name.to_owned(), value.to_owned(), at..at + body.len()));
        }
    }

    /// Returns the `#SBATCH` lines, one entry for each component of a heterogeneous job.
    pub(super) fn components(&self) -> &[Directives] {
        &self.components
    }

    /// Returns everything after the lines that Slurm reads, without our block.
    pub(super) fn body(&self) -> String {
        self.bare().get(self.bare_head_end()..).unwrap_or_default().to_owned()
    }

    /// Returns the line on which [`Script::body`] begins, from 1.
    pub(super) fn body_line(&self) -> usize {
        self.bare().get(..self.bare_head_end()).map_or(1, |head| head.matches('\n').count() + 1)
    }

    /// Returns the end of the head in the script without our blocks.
    fn bare_head_end(&self) -> usize {
        let before = self.blocks.iter().filter(|block| block.end <= self.head_end);
        self.head_end - before.map(ExactSizeIterator::len).sum::<usize>()
    }

    /// Returns the value of an option, from the last component that has it.
    fn option(&self, name: &str) -> Option<&str> {
        self.components.iter().rev().find_map(|options| options.value(name))
    }

    fn has(&self, name: &str) -> bool {
        self.components.iter().any(|options| options.has(name))
    }

    fn nodes(&self) -> u32 {
        self.components.iter().map(Directives::nodes).sum()
    }

    /// Returns the value of one of these options that is no number yet, such as `${NODES}`: Slurm expands no
    /// variables in `#SBATCH` lines, so the script is a template.
    fn open_number(&self, names: &[&str]) -> Option<&str> {
        self.components.iter().find_map(|options| {
            names.iter().find_map(|name| {
                let value = options.value(name)?;
                let gpus = || value.split(',').find(|item| directives::is_gpu(item));
                let item = if *name == "gres" { gpus()? } else { value };
                item.contains(['$', '{', '<']).then_some(item)
            })
        })
    }

    /// Returns the GPUs of a node: as requested, else all of an exclusive one.
    fn gpus(&self, settings: &Settings<'_>) -> u32 {
        let whole = || {
            let row = settings.options.instance_type.as_deref().and_then(|name| settings.catalogue.get(name));
            row.map_or(8, |row| row.accelerators)
        };
        let asked = self.components.iter().filter_map(Directives::gpus_per_node).max();
        asked.or_else(|| self.has("exclusive").then(whole)).unwrap_or(0)
    }

    /// Returns the resources a node gives a job. Memory is always included, as Slurm gives some without a
    /// request (`--mem=0` is all of it).
    fn limits(&self, gpus: u32) -> BTreeMap<String, String> {
        let memory = self.option("mem").unwrap_or("0").to_owned();
        let open = self.open_number(&["gpus-per-node", "gres", "gpus", "gpus-per-task"]).map(str::to_owned);
        let amount = open.or_else(|| (gpus > 0).then(|| gpus.to_string()));
        let gpus = amount.map(|amount| ("nvidia.com/gpu".to_owned(), amount));
        gpus.into_iter().chain([("memory".to_owned(), memory)]).collect()
    }

    /// Applies the `# weftrun:` lines of the script, which override other settings.
    fn wishes(&self, options: &mut FabricRequest) -> Result<(), Finding> {
        for line in self.text.lines().filter_map(wish_line) {
            for wish in line.split([',', ' ', '\t']).filter(|wish| !wish.is_empty()) {
                apply_wish(wish, options)
                    .ok_or_else(|| {
                        Finding::error("E-SCRIPT-WISH", format!("`# weftrun: {wish}` is not understood"))
                    })
                    .map_err(|finding| {
                        finding.fix("write `# weftrun: fabric=off` or `# weftrun: efa.hugepages=off`")
                    })?;
            }
        }
        Ok(())
    }

    fn commands(&self) -> Vec<ScriptCommand> {
        commands(&self.bare()).unwrap_or_default()
    }

    fn view(&self, settings: &Settings<'_>) -> JobView {
        let is_mpi = |command: &ScriptCommand| {
            let word = &command.words[command.program];
            matches!(word.rsplit('/').next(), Some("mpirun" | "mpiexec" | "orterun"))
        };
        let mpi = self.commands().iter().any(is_mpi);
        let gpus = self.gpus(settings);
        let env = self.exports.iter().filter(|(name, ..)| name != "LD_LIBRARY_PATH");
        let container = ContainerView {
            name: "nodes".to_owned(),
            image: self.option("container-image").map(str::to_owned),
            command: if mpi { vec!["bash".into(), "-c".into(), self.bare()] } else { Vec::new() },
            env: env
                .map(|(name, value, _)| EnvView {
                    name: name.clone(),
                    value: Some(value.clone()),
                    at: String::new(),
                })
                .collect(),
            limits: self.limits(gpus),
            ..ContainerView::default()
        };
        let types =
            self.option("constraint").into_iter().flat_map(|text| text.split(['|', '&', '[', ']', '*']));
        let instance_types =
            types.filter(|name| settings.catalogue.get(name).is_some()).map(str::to_owned).collect();
        let role = RoleView {
            name: "nodes".to_owned(),
            worker: true,
            launcher: mpi,
            replicas: self.nodes(),
            replicas_text: self.open_number(&["nodes"]).map(str::to_owned),
            instance_types,
            container,
            ..RoleView::default()
        };
        JobView {
            kind: JobKind::Sbatch,
            name: self.option("job-name").unwrap_or_default().to_owned(),
            queue: self.option("partition").map(str::to_owned),
            roles: vec![role],
            mpi: mpi.then_some(Mpi::OpenMpi),
            ..JobView::default()
        }
    }

    /// Returns the script without our blocks.
    fn bare(&self) -> String {
        let mut bare = self.text.to_owned();
        for block in self.blocks.iter().rev() {
            bare.replace_range(block.clone(), "");
        }
        bare
    }

    /// Keeps the operations that this script can carry, and reports the others as not applied.
    fn keep_expressible(&self, plan: &mut FabricPlan) {
        let context = ScriptContext { container: !self.contained(&self.bare()).is_empty(), topology: true };
        let mut left = Vec::new();
        plan.ops.retain(|op| {
            let kind = match script_change(&op.change, context) {
                Ok(ScriptChange::Env(..) | ScriptChange::Mount(..) | ScriptChange::Command(_)) => {
                    return true;
                }
                Ok(ScriptChange::InPlace) => "mount",
                Ok(ScriptChange::WholeNodes) => "whole-nodes",
                Ok(ScriptChange::Constraint(_) | ScriptChange::OneSwitch) => "directive",
                Ok(ScriptChange::Memlock) => "memlock",
                Ok(ScriptChange::Wrap(_)) => "wrapper",
                Err(kind) => kind,
            };
            left.push((op.clone(), kind));
            false
        });
        for (op, kind) in left {
            let (what, value) = (op.change.target(), op.change.value());
            let target = format!("{}: {what}", op.role);
            plan.decisions.retain(|decision| decision.rule != op.rule || decision.target != target);
            let why = why_inexpressible(kind);
            plan.skipped.push(Skipped {
                rule: op.rule,
                reason: "not-expressible".to_owned(),
                why: format!("{what}={value} is not applied: {why}"),
            });
            plan.findings.push(Finding::info(
                "I-NOT-APPLIED",
                format!("not applied to the script: {what}={value}; {why}"),
            ));
        }
    }

    /// Returns the script with the ops that [`Script::keep_expressible`] left.
    fn with(&self, ops: &[Op], settings: &Settings<'_>) -> Option<String> {
        let newline = newline_of(self.text);
        let (mut set, mut mounts, mut rewritten) = (Vec::new(), Vec::new(), None);
        for op in ops {
            match script_change(&op.change, ScriptContext { container: true, topology: true }) {
                Ok(ScriptChange::Env(name, value)) => set.push((name, value)),
                Ok(ScriptChange::Mount(from, to, read_only)) => {
                    mounts.push(format!("{from}:{to}{}", if read_only { ":ro" } else { "" }));
                }
                Ok(ScriptChange::Command(after)) => rewritten = after.get(2).cloned(),
                _ => {}
            }
        }
        let mut text = rewritten.unwrap_or_else(|| self.bare());
        let names: Vec<&str> = set.iter().map(|(name, _)| *name).collect();
        text = self.containers(&text, &names, &mounts)?;
        if set.is_empty() {
            return Some(text);
        }
        let mut block = format!(
            "{BLOCK_BEGIN}{newline}# profile {}; `# weftrun: fabric=off` keeps this out{newline}",
            settings.profile.name
        );
        for (name, value) in &set {
            let value = shlex::try_quote(value).ok()?;
            let tail =
                if *name == "LD_LIBRARY_PATH" { "\"${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\"" } else { "" };
            block.push_str(&format!("export {name}={value}{tail}{newline}"));
        }
        block.push_str(BLOCK_END);
        block.push_str(newline);
        // The head holds no command, so nothing before its end was rewritten.
        let at = self.bare_head_end();
        let (head, rest) = (text.get(..at)?, text.get(at..)?);
        let gap = if head.ends_with('\n') { "" } else { newline };
        Some(format!("{head}{gap}{block}{rest}"))
    }

    /// Returns the `srun` commands of a text that start containers.
    fn contained(&self, text: &str) -> Vec<ScriptCommand> {
        let for_all = self.has("container-image");
        let is_contained = |command: &ScriptCommand| {
            let words = command.words.get(command.program..).unwrap_or_default();
            let names = for_all || words.iter().any(|word| word.starts_with("--container-"));
            names && words.first().is_some_and(|word| word == "srun")
        };
        commands(text).unwrap_or_default().into_iter().filter(is_contained).collect()
    }

    /// Passes variables and folders into the containers of `srun`.
    fn containers(&self, text: &str, names: &[&str], mounts: &[String]) -> Option<String> {
        let mut splices: Vec<(usize, usize, String)> = Vec::new();
        for command in self.contained(text) {
            let words = command.words.get(command.program..)?;
            let spans = command.spans.get(command.program..)?;
            let wanted: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            for (option, values) in [("--container-env", &wanted[..]), ("--container-mounts", mounts)] {
                splices.extend(with_list(text, words, spans, option, values));
            }
        }
        splices.sort_by_key(|splice| splice.0);
        let mut out = text.to_owned();
        for (start, end, new) in splices.into_iter().rev() {
            out.replace_range(out.get(start..end).map(|_| start..end)?, &new);
        }
        Some(out)
    }
}

/// Returns the settings of a `# weftrun: …` line.
fn wish_line(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("weftrun:")
}

/// Returns the places of our own blocks. A block that contains an `#SBATCH` or `# weftrun:` line is not
/// ours: we write none, and removing the block would lose them.
fn blocks(text: &str) -> Vec<Range<usize>> {
    let (mut blocks, mut open, mut at) = (Vec::new(), None, 0);
    for line in text.split_inclusive('\n') {
        let start = at;
        at += line.len();
        match line.trim_end() {
            BLOCK_BEGIN => open = open.or(Some(start)),
            BLOCK_END => blocks.extend(open.take().map(|open| open..at)),
            line if line.starts_with("#SBATCH") || line.starts_with("#!") || wish_line(line).is_some() => {
                open = None
            }
            _ => {}
        }
    }
    blocks
}

/// Returns the change that adds values to an option's list, or adds the option after the program.
fn with_list(
    text: &str,
    words: &[String],
    spans: &[(usize, usize)],
    option: &str,
    values: &[String],
) -> Option<(usize, usize, String)> {
    let found = list_of(words, option);
    let have: BTreeSet<&str> =
        found.iter().flat_map(|(_, list)| list.split(',')).map(|one| one.trim_matches(['"', '\''])).collect();
    let missing: Vec<&str> =
        values.iter().map(String::as_str).filter(|value| !have.contains(value)).collect();
    if missing.is_empty() {
        return None;
    }
    match found {
        None => {
            let end = spans.first()?.1;
            Some((end, end, format!(" {option}={}", missing.join(","))))
        }
        Some((index, _)) => {
            let (start, end) = *spans.get(index)?;
            let quoted = text.get(start..end)?.ends_with(['"', '\'']);
            let at = end - usize::from(quoted);
            Some((at, at, format!(",{}", missing.join(","))))
        }
    }
}

/// pyxis's options that take a value, which may be the next word.
const CONTAINER: [&str; 5] =
    ["--container-env", "--container-mounts", "--container-image", "--container-workdir", "--container-name"];

/// Returns the value of an option, and the word that holds it. The value of another option is not an
/// option.
fn list_of<'w>(words: &'w [String], option: &str) -> Option<(usize, &'w str)> {
    let mut rest = words.iter().map(String::as_str).enumerate();
    while let Some((index, word)) = rest.next() {
        if let Some(list) = word.strip_prefix(option).and_then(|rest| rest.strip_prefix('=')) {
            return Some((index, list));
        }
        if CONTAINER.contains(&word) {
            let value = rest.next()?;
            if word == option {
                return Some(value);
            }
        }
    }
    None
}

fn apply_wish(wish: &str, options: &mut FabricRequest) -> Option<()> {
    let (name, value) = wish.split_once('=')?;
    if name == "fabric" {
        options.kind = match value {
            "off" => Fabric::Off,
            "auto" => Fabric::Auto,
            "efa" => Fabric::Efa,
            "roce" => Fabric::Roce,
            "infiniband" => Fabric::InfiniBand,
            "tcp" => Fabric::Tcp,
            _ => return None,
        };
        return Some(());
    }
    let setting = match value {
        "off" => RuleSetting::Off,
        "on" => RuleSetting::On,
        "auto" => RuleSetting::Auto,
        _ => return None,
    };
    options.rules.insert(name.to_owned(), setting);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Catalogue;
    use crate::fabric::Profiles;

    fn run(text: &str, profile: &str) -> (String, JobReport) {
        let profile = Profiles::builtin().get(profile).unwrap();
        let (catalogue, options) = (Catalogue::builtin(), FabricRequest::default());
        let settings = Settings::offline(&profile, &options, &catalogue);
        let done = mutate_sbatch(text, Start::of("job.sbatch"), &settings);
        let new = done.text.into_owned();
        let again = mutate_sbatch(&new, Start::of("job.sbatch"), &settings);
        assert_eq!(again.text, new, "a second pass changes nothing");
        assert!(!again.jobs[0].changed);
        (new, done.jobs.into_iter().next().unwrap())
    }

    const HEAD: &str =
        "#!/bin/bash\n#SBATCH --job-name=llama\n#SBATCH -N 4\n#SBATCH --gpus-per-node=8 # all\n\n";

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
                let lost =
                    report.plan.skipped.iter().filter(|skipped| skipped.reason == "not-expressible").count();
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
        let wish = once.replacen(BLOCK_END, &format!("# weftrun: efa.opal-prefix=off\n{BLOCK_END}"), 1);
        let (new, _) = run(&wish, "dgxc");
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
    fn a_wish_that_is_not_understood_is_an_error() {
        let (_, report) = run(&format!("{HEAD}# weftrun: fabrik=off\nsrun x\n"), "parallelcluster");
        assert_eq!(report.error().unwrap().code, "E-RULE-UNKNOWN");
        let (_, report) = run(&format!("{HEAD}# weftrun: off\nsrun x\n"), "parallelcluster");
        assert_eq!(report.error().unwrap().code, "E-SCRIPT-WISH");
    }

    #[test]
    fn a_lone_carriage_return_at_the_end_is_no_line_break() {
        let (new, report) = run("#!/bin/sh\n#SBATCH --exclusive -N 2\n#!/x\r", "parallelcluster");
        assert!(report.changed && new.contains("FI_EFA_USE_DEVICE_RDMA=1\n"), "{new:?}");
    }

    #[test]
    fn an_exclusive_node_is_a_whole_one() {
        let (_, report) =
            run("#!/bin/sh\n#SBATCH --exclusive\n#SBATCH --nodes=2\nsrun x\n", "parallelcluster");
        assert!(report.changed, "{report:?}");
    }
}
