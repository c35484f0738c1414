//! Converts an sbatch script to a job file. `#SBATCH` lines become the job's keys, or settings of
//! `[backend.slurm]` where they are specific to Slurm. In a simple form (commands, exports of plain text, one
//! launch of plain words) the launch becomes the command and the commands before it `setup`. Any other
//! script is carried as it is, and runs once. What cannot be converted is an error or is reported.

mod body;
mod files;
mod first_node;
mod launch;
mod literal;
mod options;
mod resources;
mod whole;

use serde_json::{Map, Value as Json, json};

use crate::lint::script::is_command;
use crate::slurm::{Directives, Script, is_sbatch};
use crate::without_job::script_is_no_job;
use weftrun_core::Finding;
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::evidence::Form;
use weftrun_core::fabric::{ClusterFacts, FabricPlan, Profiles};
use weftrun_core::request::RuleSetting;
use weftrun_core::shell::sbatch::OF_SUBMISSION;
use weftrun_core::shell::{SCRIPT_WITHOUT_INTERPRETER, is_script_without_interpreter};
use weftrun_core::spec::{EnvVar, JobSpec, Launch, Role, Volume, VolumeSource};

pub(super) use options::memory;
pub use options::slurm_duration;

/// Reads a script as a job, and returns what could not be converted. With `whole` the script is kept as it
/// is and runs once, on the first node.
///
/// ```
/// use weftrun_convert::import_sbatch;
/// let text = "#!/bin/bash\n#SBATCH -J llama -N 4 --gpus-per-node=8\nsrun torchrun --nnodes 4 --nproc_per_node 8 /fsx/train.py --lr 1\n";
/// let (spec, lost) = import_sbatch(text, false).map_err(|finding| finding.message)?;
/// assert_eq!((spec.name.as_str(), spec.nodes(), lost.len()), ("llama", 4, 0));
/// assert_eq!(spec.roles[0].command, ["/fsx/train.py", "--lr", "1"]);
/// # Ok::<(), String>(())
/// ```
///
/// # Errors
/// A finding: `E-NO-JOB` where the text is a script without `#SBATCH` lines, `E-IMPORT-JOB` where it is no script, starts nothing or cannot be
/// resolved.
pub fn import_sbatch(text: &str, whole: bool) -> Result<(JobSpec, Vec<Finding>), Finding> {
    if !is_sbatch(text) {
        if is_script_without_interpreter(text) {
            let fix = "move the `#!` line to the top";
            return Err(Finding::error("E-IMPORT-JOB", SCRIPT_WITHOUT_INTERPRETER).fix(fix));
        }
        if let Some(finding) = script_is_no_job(text).filter(|_| other_directives(text).next().is_none()) {
            return Err(finding);
        }
        let is_runai = text.lines().any(|line| line.trim_start().starts_with("runai "));
        let fix = if other_directives(text).next().is_some() {
            "its lines of another batch system are not read: write them as `#SBATCH` lines"
        } else if is_runai {
            "`weftrun import runai` reads a command line of Run:ai"
        } else {
            "give a script that begins with `#!` and has `#SBATCH` lines"
        };
        return Err(Finding::error("E-IMPORT-JOB", "not an sbatch script: it has no `#SBATCH` line").fix(fix));
    }
    if let Some(finding) = script_is_no_job(text) {
        return Err(finding);
    }
    let script = Script::read(text);
    let [options] = script.components.as_slice() else {
        let message = "a heterogeneous job (`#SBATCH hetjob`) cannot be imported";
        let fix = "write a role for each component into a job file";
        return Err(Finding::error("E-IMPORT-JOB", message).fix(fix));
    };
    let mut import = Import::new(with_nodes(options, script.launched.nodes), whole);
    import.interpreter(text);
    let others: Vec<&str> = other_directives(text).collect();
    if let Some(first) = others.first() {
        let more = if others.len() > 1 { format!(" and {} more", others.len() - 1) } else { String::new() };
        let what = format!("`{first}`{more}: not carried over, since only `#SBATCH` lines are read here");
        let fix = "set in the job file what the other batch system, or the site's own `sbatch`, reads there";
        import.findings.push(Finding::warning("W-IMPORT-LOST", what).fix(fix));
    }
    import.options()?;
    if !options.has("job-name") {
        import.unnamed(text);
    }
    launch::read(&mut import, &script)?;
    import.unknown_nodes(&script);
    import.unrequested_gpus(&script);
    let (mut spec, findings) = import.finish();
    if !script.sets_libraries() {
        keep_libraries(&mut spec);
    }
    Ok((spec, findings))
}

/// Returns the options with the number of nodes that the script's commands use, where none names one: the tasks of the job
/// are divided among them.
fn with_nodes(options: &Directives, launched: Option<u32>) -> Directives {
    let mut options = options.clone();
    let divides = |nodes: &u32| options.number("ntasks").is_none_or(|tasks| tasks % nodes == 0);
    if let Some(nodes) = launched.filter(|_| options.named_nodes().is_none()).filter(divides) {
        options.add("nodes", nodes.to_string());
    }
    options
}

/// Returns the lines before the first command that another batch system or a site's own `sbatch` reads.
fn other_directives(text: &str) -> impl Iterator<Item = &str> {
    // YBATCH of the Yokota laboratory (an own front end of Slurm), Fujitsu, LSF, PBS, Cobalt, OAR, Moab, Grid Engine.
    const MARKS: [&str; 8] = ["#YBATCH ", "#PJM ", "#BSUB ", "#PBS ", "#COBALT ", "#OAR ", "#MSUB ", "#$ -"];
    let head = text.lines().map(str::trim_end).take_while(|line| !is_command(line.trim_start()));
    head.filter(|line| MARKS.iter().any(|mark| line.starts_with(mark)))
}

/// A job under construction.
#[derive(Clone)]
struct Import {
    spec: JobSpec,
    role: Role,
    /// `[backend.slurm]`.
    slurm: Map<String, Json>,
    options: Directives,
    findings: Vec<Finding>,
    /// The directives of pyxis as they stand: its container is that of the whole script.
    container: Vec<String>,
    /// Tasks on each node, where the script sets it.
    tasks: Option<u32>,
    cpus_per_task: Option<u32>,
    /// Why the script is carried as it is, where that is known before its commands are read.
    whole: Option<&'static str>,
    /// The program and the options of the first line, where it is no shell that `setup` could hold.
    interpreter: Option<String>,
    /// The shell of the first line, and its options by their letters (`#!/bin/bash -e`).
    shell: String,
    shell_options: String,
}

impl Import {
    fn new(options: Directives, whole: bool) -> Self {
        let mut options = options.last_of_each();
        let name = options.take_value("job-name").unwrap_or_else(|| "job".to_owned());
        let mut spec = JobSpec::default();
        spec.name = label(&name);
        let mut findings = Vec::new();
        if spec.name != name {
            let message =
                format!("the name `{name}` is written `{}`: clusters derive host names from it", spec.name);
            findings.push(Finding::warning("W-IMPORT-LOST", message));
        }
        let (tasks, cpus_per_task) = (options.tasks_per_node(), options.number("cpus-per-task"));
        let slurm = Map::new();
        Self {
            spec,
            role: Role::worker(),
            slurm,
            options,
            findings,
            container: Vec::new(),
            tasks,
            cpus_per_task,
            whole: whole.then_some("`--whole` is given"),
            interpreter: None,
            shell: "bash".to_owned(),
            shell_options: String::new(),
        }
    }

    /// Warns where a script whose lines give its job no name uses it.
    fn unnamed(&mut self, text: &str) {
        if let Some(used) = ["%x", "SLURM_JOB_NAME"].into_iter().find(|used| text.contains(used)) {
            let message = format!(
                "`{used}` is the name of the script's file, since no `#SBATCH` line names the job; `job` is written"
            );
            self.findings.push(Finding::warning("W-IMPORT-LOST", message).fix("set `name`"));
        }
    }

    /// Reads the shell of the first line, with its options (`#!/bin/bash -l` is a login shell).
    fn interpreter(&mut self, text: &str) {
        let line = text.lines().next().and_then(|line| line.strip_prefix("#!")).unwrap_or_default().trim();
        let words: Vec<&str> = line.split_whitespace().collect();
        let words = match words.as_slice() {
            [env, "-S", words @ ..] | [env, words @ ..] if env.ends_with("/env") => words,
            words => words,
        };
        let program = words.first().and_then(|word| word.rsplit('/').next()).unwrap_or_default();
        if !matches!(program, "bash" | "sh" | "dash") {
            self.interpreter = Some(words.join(" "));
            self.whole = Some("another program than a shell runs it");
            return;
        }
        if let Some(word) = words.get(1).filter(|word| !word.starts_with(['-', '+'])) {
            let message = format!(
                "`{word}` in the first line is no option: {program} takes it for the file to run, and the script does not start; it is left out"
            );
            let fix = "write options with a plain `-`";
            self.findings.push(Finding::warning("W-IMPORT-LOST", message).fix(fix));
        }
        let letters = words.iter().skip(1).filter(|word| word.starts_with('-') && !word.starts_with("--"));
        let letters: String = letters.flat_map(|word| word.chars().skip(1)).collect();
        let login = if words.contains(&"--login") { "l" } else { "" };
        self.shell_options = letters + login;
        if self.shell_options.contains('l') {
            self.slurm.insert("shell".to_owned(), json!("/bin/bash -l"));
        }
        program.clone_into(&mut self.shell);
    }

    /// Reads the `#SBATCH` lines.
    fn options(&mut self) -> Result<(), Finding> {
        // sbatch expands no variables: it refuses such a number, and takes other values literally.
        const NUMBERS: &str = "nodes ntasks ntasks-per-node ntasks-per-gpu cpus-per-task gpus gpus-per-node gpus-per-task gres \
            mem time array";
        let is_open = |option: &&super::Directive| {
            NUMBERS.split(' ').any(|name| name == option.name)
                && option.value.as_ref().is_some_and(|text| text.contains(['$', '{', '<']))
        };
        if let Some(option) = self.options.iter().find(is_open) {
            let (name, value) = (&option.name, option.value.as_deref().unwrap_or_default());
            let message =
                format!("`#SBATCH --{name}={value}` cannot be resolved: sbatch expands no variables there");
            return Err(Finding::error("E-IMPORT-JOB", message).fix("write the value into the line"));
        }
        self.resources();
        let options = &mut self.options;
        self.spec.priority = options.take_value("qos");
        match options.take_value("partition") {
            // A list has no one queue: Slurm takes the partition that starts the job first.
            Some(list) if list.contains(',') => drop(self.slurm.insert("partition".to_owned(), json!(list))),
            one => self.spec.queue = one,
        }
        let of_pyxis = options.iter().filter(|option| option.name.contains("container-"));
        self.container = of_pyxis.map(super::Directive::written).collect();
        self.spec.image = options.take_value("container-image").map(|image| image.replace('#', "/"));
        options.remove("container-workdir");
        if let Some(dir) = options.take_value("chdir") {
            self.workdir(&dir, "#SBATCH");
        }
        let mounts = self.options.take_value("container-mounts");
        self.mounts(mounts.as_deref().unwrap_or_default());
        self.constraint();
        self.of_slurm();
        Ok(())
    }

    /// Sets the working directory. A job file needs an absolute path: Slurm reads others from the folder of `sbatch`,
    /// which `.` names and is the default.
    fn workdir(&mut self, dir: &str, of: &str) {
        if dir.starts_with('/') {
            if let Some(before) = self.spec.workdir.replace(dir.to_owned()).filter(|old| old != dir) {
                let what = format!("the working directory `{before}` beside {of}'s `{dir}`");
                self.findings.push(lost(&what));
            }
        } else if !dir.trim_end_matches('/').split('/').all(|part| part == ".") {
            let message = format!(
                "the working directory `{dir}` is relative to the folder of `sbatch`; a job's is absolute"
            );
            let fix = "set `workdir` to the whole path";
            self.findings.push(Finding::warning("W-IMPORT-LOST", message).fix(fix));
        }
    }

    fn constraint(&mut self) {
        let Some(text) = self.options.take_value("constraint") else { return };
        if Catalogue::builtin().get(&text).is_some() {
            self.role.instance_type = Some(text);
        } else {
            self.slurm.insert("constraint".to_owned(), json!(text));
        }
    }

    /// Reads the options that are specific to Slurm.
    fn of_slurm(&mut self) {
        const SAME: &str =
            "account reservation array dependency begin signal nodelist exclude switches licenses wckey";
        for name in SAME.split(' ') {
            if let Some(value) = self.options.take_value(name) {
                self.slurm.insert(name.to_owned(), json!(value));
            }
        }
        for (name, key, value) in
            [("exclusive", "exclusive", true), ("requeue", "requeue", true), ("no-requeue", "requeue", false)]
        {
            // `--exclusive=user` is no whole node.
            if self.options.has(name) && self.options.value(name).is_none() {
                self.options.remove(name);
                self.slurm.insert(key.to_owned(), json!(value));
            }
        }
        if self.options.take("container-mount-home").is_some() {
            self.slurm.insert("mount-home".to_owned(), json!(true));
        }
        if let Some(what) = self.options.take_value("export") {
            self.export(&what);
        }
        let output = self.options.take_value("output");
        let errors = self.options.has("error") && self.options.value("error") != output.as_deref();
        let named = output.clone().filter(|path| names_job(path));
        let dropped = match (named, &output) {
            (Some(path), _) => {
                self.keep_for_sbatch([format!("--output={path}")]);
                let what = "the file of the errors is not carried over: they go to the file of the output";
                errors.then(|| what.to_owned())
            }
            // Two jobs would write to one file, and `logs` could not separate their lines.
            (None, Some(path)) => {
                let too = if errors { ", nor is that of the errors" } else { "" };
                Some(format!(
                    "the log's file `{path}` is not carried over{too}: weftrun names it itself, and keeps names that have `%j` \
                     and no pattern but %A, %a, %x, %u, %N, %n and %t"
                ))
            }
            (None, None) => {
                errors.then(|| "the log's file is not carried over: weftrun names it itself".to_owned())
            }
        };
        if let Some(what) = dropped {
            self.findings.push(
                Finding::warning("W-IMPORT-LOST", what)
                    .fix("`log-dir` of the target says where logs are; `weftrun logs` prints them"),
            );
        }
        self.of_submission();
        let (known, unknown): (Vec<_>, Vec<_>) =
            self.options.iter().partition(|option| option.name.len() > 1);
        let further: Vec<String> = known.into_iter().map(super::Directive::written).collect();
        self.findings.extend(unknown.into_iter().map(|option| lost(&format!("`#SBATCH -{}`", option.name))));
        self.keep_for_sbatch(further);
    }

    /// Adds options to `sbatch = […]`.
    fn keep_for_sbatch(&mut self, further: impl IntoIterator<Item = String>) {
        let mut further = further.into_iter().map(Json::from).peekable();
        if further.peek().is_some() {
            let all = self.slurm.entry("sbatch").or_insert_with(|| json!([]));
            all.as_array_mut().into_iter().for_each(|all| all.extend(further.by_ref()));
        }
    }

    /// Drops what weftrun's script has anyway, and reports options of sbatch itself, which the rendered
    /// script cannot have.
    fn of_submission(&mut self) {
        self.options.remove("error");
        self.options.remove("no-container-mount-home");
        if matches!(self.options.value("open-mode"), Some("append" | "a")) {
            self.options.remove("open-mode");
        }
        if let Some(comment) = self.options.take_value("comment") {
            // The marker of a script that weftrun rendered belongs to that submission.
            let words: Vec<&str> =
                comment.split_whitespace().filter(|word| !word.starts_with("weftrun:")).collect();
            if !words.is_empty() {
                self.options.add("comment", words.join(" "));
            }
        }
        for (name, fix) in OF_SUBMISSION {
            if let Some(value) = self.options.take(name) {
                let value = value.map(|value| format!("={value}")).unwrap_or_default();
                self.findings.push(lost(&format!("`--{name}{value}`")).fix(fix));
            }
        }
    }

    /// Reads `ALL`, `NONE`, `ALL,NAME=value`.
    fn export(&mut self, what: &str) {
        // Without `ALL` nothing else of the submitting environment is passed on.
        let passes_all = what.split(',').any(|part| part.eq_ignore_ascii_case("all"));
        if what.eq_ignore_ascii_case("nil") {
            // Slurm then starts no login of the user to make an environment, as it does for NONE.
            self.findings.push(lost("`--export=NIL`, which becomes `NONE`"));
        }
        if !passes_all {
            self.slurm.insert("export".to_owned(), json!("none"));
        }
        for part in what.split(',') {
            match part.split_once('=') {
                Some((name, value)) => self.variable(name, value),
                None if ["all", "none", "nil"].iter().any(|word| part.eq_ignore_ascii_case(word)) => {}
                None => self.findings.push(lost(&format!("`--export={part}`"))),
            }
        }
    }

    /// Adds lines that run before the ranks. The rendered script ends at the first failure, of a pipeline too; the original
    /// continues unless it sets that itself.
    fn setup(&mut self, lines: &[String], stops_at_errors: bool, of_pipelines: bool) {
        if lines.is_empty() {
            return;
        }
        let mut lines = lines.to_vec();
        let options = match (stops_at_errors, of_pipelines) {
            (true, false) if lines.iter().any(|line| line.contains('|')) => "+o pipefail",
            (true, _) => "",
            (false, true) => "+e",
            (false, false) => "+e +o pipefail",
        };
        if !options.is_empty() {
            lines.insert(0, format!("set {options}"));
            lines.push(format!("set {}", options.replace('+', "-")));
        }
        self.slurm.insert("setup".to_owned(), json!(lines));
    }

    /// Reads `FROM:TO[:FLAGS],…`.
    fn mounts(&mut self, list: &str) {
        for mount in list.split(',').filter(|mount| !mount.is_empty()) {
            let mut parts = mount.split(':');
            let from = parts.next().unwrap_or_default();
            let to = parts.next().filter(|to| !to.is_empty()).unwrap_or(from);
            if from.contains('$') || to.contains('$') || !from.starts_with('/') {
                self.findings.push(lost(&format!("the mount `{mount}`")));
                continue;
            }
            let flags = parts.next().unwrap_or_default();
            let is_known = |flag: &str| matches!(flag, "" | "ro" | "rw" | "bind" | "rbind");
            if !flags.split('+').all(is_known) {
                self.findings.push(lost(&format!("`{flags}` of the mount `{from}:{to}`")));
            }
            self.spec.volumes.push(Volume {
                name: format!("mount{}", self.spec.volumes.len() + 1),
                mount: to.to_owned(),
                source: VolumeSource::HostPath(from.to_owned()),
                read_only: flags.split('+').any(|flag| flag == "ro"),
            });
        }
    }

    fn variable(&mut self, name: &str, value: &str) {
        self.spec.env.push(EnvVar { name: name.to_owned(), value: value.to_owned() });
    }

    fn finish(mut self) -> (JobSpec, Vec<Finding>) {
        if self.role.ranks_per_node == Some(self.role.gpus_per_node) && self.spec.launch != Launch::Once {
            self.role.ranks_per_node = None;
        }
        self.spec.roles = vec![self.role];
        if !self.slurm.is_empty() {
            self.spec.backend.insert("slurm".to_owned(), Json::Object(self.slurm));
        }
        (self.spec, self.findings)
    }
}

/// Switches the rule off that would put the folders of the nodes before those of the script's environment: the script keeps its
/// libraries, as `mutate` leaves them.
fn keep_libraries(spec: &mut JobSpec) {
    const RULE: &str = "efa.library-path";
    let (catalogue, facts, profiles) = (Catalogue::builtin(), ClusterFacts::default(), Profiles::builtin());
    let plan = FabricPlan::by_evidence(spec, &catalogue, &facts, &profiles, Form::Script);
    if plan.is_ok_and(|(plan, _)| plan.ops.iter().any(|op| op.rule == RULE)) {
        spec.fabric.rules.insert(RULE.to_owned(), RuleSetting::Off);
    }
}

fn lost(what: &str) -> Finding {
    Finding::warning("W-IMPORT-LOST", format!("{what}: a job file has no key for it"))
}

/// Returns whether an output path differs between jobs and has only patterns that are not of a step, so that weftrun can
/// keep it.
fn names_job(path: &str) -> bool {
    let plain = path.replace("%%", "");
    let known = |part: &str| {
        let letter = part.trim_start_matches(|c: char| c.is_ascii_digit()).chars().next();
        letter.is_some_and(|c| "jAaxuNnt".contains(c))
    };
    (plain.contains("%j") || plain.contains("%A"))
        && plain.split('%').skip(1).all(known)
        && !path.contains('\\')
        && !path.starts_with('~')
        && !path.ends_with('/')
}

/// Returns a DNS label made from a name.
fn label(name: &str) -> String {
    const MOST: usize = 63;
    let plain: String =
        name.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let plain = plain.trim_matches('-');
    let begins_with_digit = plain.starts_with(|c: char| c.is_ascii_digit());
    let label = if begins_with_digit { format!("job-{plain}") } else { plain.to_owned() };
    let label = label.get(..label.len().min(MOST)).unwrap_or_default().trim_end_matches('-');
    if label.is_empty() { "job".to_owned() } else { label.to_owned() }
}

#[cfg(test)]
mod tests;
