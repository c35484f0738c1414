//! Renders a planned job as the shell functions that each of its hosts runs. Pure.

mod container;
mod mpi;

use std::collections::BTreeMap;

use std::fmt::Write as _;

use weftrun_convert::{NoCounterpart, ScriptChange, ScriptContext, script_change};
use weftrun_core::backend::{Document, Inexpressible, Language, PlannedJob, Prepared, Rendered};
use weftrun_core::fabric::{Change, Fabric, Op};
use weftrun_core::shell::variable;
use weftrun_core::spec::{CodeContent, JobSpec, Launch, Rendezvous, RestartPolicy, Role, node_command};
use weftrun_core::text::nodelist;
use weftrun_core::{Error, ErrorKind, Finding, Result};

use super::BACKEND;
use super::allocation::MOST_LABELS;
use super::allocation::MOST_RANKS;
use super::config::{Container, HostsTarget, JobSettings, SshKeys};
use crate::remote::ops::{self, Translated};
use crate::remote::{quote, script};

/// The variables that name the network interface of the ranks.
const INTERFACE: [&str; 3] = ["NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"];

/// What the submission needs of a rendered job.
#[derive(Clone, Debug, PartialEq)]
pub struct PreparedJob {
    /// The number of nodes.
    pub wanted: usize,
    /// The nodes in order: ranks, role, number in the role; no more than one beyond the hosts of the target.
    pub nodes: Vec<(u32, String, u32)>,
    /// The hosts that the job names.
    pub pinned: Vec<String>,
    /// The hosts that it leaves out.
    pub avoided: Vec<String>,
    /// The job's settings.
    pub own: JobSettings,
    /// Who starts the ranks.
    pub launch: Launch,
    /// The fabric it was planned for.
    pub fabric: Fabric,
    /// How often it starts again.
    pub restarts: u32,
    /// Its time limit in seconds, 0 for none.
    pub limit: u64,
    /// The labels of the job.
    pub labels: BTreeMap<String, String>,
    /// Programs that every host must have.
    pub programs: Vec<String>,
    /// The folder that is sent with the job.
    pub code: Option<CodeContent>,
}

impl PreparedJob {
    /// Returns whether a key for the job's own `mpirun` is made.
    pub fn makes_keys(&self) -> bool {
        self.launch == Launch::Mpi && self.nodes.len() > 1 && self.own.ssh_keys == Some(SshKeys::Job)
    }
}

/// The inputs of all parts of the document.
struct Renderer<'a> {
    job: &'a PlannedJob,
    settings: &'a HostsTarget,
    own: JobSettings,
    workers: Vec<&'a Role>,
    fabric: Vec<Translated>,
}

pub fn render(settings: &HostsTarget, job: &PlannedJob) -> Result<Rendered> {
    let spec = &job.spec;
    spec.refuse_nul()?;
    spec.refuse_once(BACKEND)?;
    spec.refuse_entrypoint(BACKEND)?;
    let workers = script::workers(spec)?;
    check_names(spec, &workers)?;
    let own = settings.job(spec)?;
    let (fabric, applied, inexpressible) = translate(job, &own, &workers);
    let renderer = Renderer { job, settings, own, workers, fabric };
    let text = renderer.document()?;
    let document = Document { title: "job of each host".to_owned(), language: Language::Shell, text };
    let mut rendered = Rendered::new(&spec.name, job.submission.clone(), document);
    (rendered.applied, rendered.inexpressible) = (applied, inexpressible);
    rendered.findings = renderer.findings();
    rendered.prepared = Prepared::new(renderer.draft()?);
    Ok(rendered)
}

/// The folder of weftrun's library for NCCL, in the job's folder and removed with it.
const LIBRARY: &str = "\"$PWD/nccl\"";

fn check_names(spec: &JobSpec, workers: &[&Role]) -> Result<()> {
    let odd = |name: &str| {
        name.is_empty() || name.len() > 63 || name.chars().any(|c| c.is_control() || c.is_whitespace())
    };
    for name in std::iter::once(&spec.name).chain(workers.iter().map(|role| &role.name)) {
        if odd(name) {
            let message =
                "a name may not be empty, longer than 63 bytes, or hold blanks or control characters";
            return Err(Error::new(ErrorKind::InvalidSpec, message).with("name", name.escape_debug()));
        }
    }
    match workers.iter().find(|role| role.procs_per_node() > MOST_RANKS) {
        Some(role) => {
            Err(Error::new(ErrorKind::InvalidSpec, format!("more than {MOST_RANKS} ranks on a host"))
                .with("role", &role.name))
        }
        None => Ok(()),
    }
}

/// Translates all operations: those of each worker, the ones in the document, and the ones that are not. A job uses all of each host,
/// and weftrun does not choose hosts by their switch.
fn translate(
    job: &PlannedJob,
    own: &JobSettings,
    workers: &[&Role],
) -> (Vec<Translated>, Vec<Op>, Vec<Inexpressible>) {
    ops::translate(job, workers, |change, role, target| {
        if let Change::Mpirun { path, forward } = change {
            target.mpirun = Some((path.clone(), forward.clone()));
            return Ok(ScriptChange::InPlace);
        }
        let container = container_of(job, own, role).is_some();
        match script_change(change, ScriptContext { container, topology: false }) {
            Ok(ScriptChange::Constraint(_)) => {
                Err("there is no scheduler that chooses hosts by type: name them in `hosts` or `nodelist`")
            }
            Ok(change) => Ok(change),
            Err(NoCounterpart::Pod | NoCounterpart::Annotation | NoCounterpart::Toleration) => {
                Err("it is a property of pods, and there are none here")
            }
            Err(NoCounterpart::Resource | NoCounterpart::Hugepages) => {
                Err("a host's devices and memory are available without a request")
            }
            Err(NoCounterpart::NodeSelector | NoCounterpart::Colocate) => {
                Err("there is no scheduler that chooses hosts: name them in `hosts` or `nodelist`")
            }
            Err(NoCounterpart::Mount) => Err("without a container, the host's folders are where they are"),
            Err(kind) => Err(kind.why()),
        }
    })
}

/// Returns what starts the container of a role; none if it has none.
fn container_of(job: &PlannedJob, own: &JobSettings, role: &Role) -> Option<Container> {
    let has_image = role.image.is_some() || job.spec.image.is_some();
    let kind = own.container.unwrap_or_default();
    (has_image && kind != Container::None).then_some(kind)
}

impl Renderer<'_> {
    fn spec(&self) -> &JobSpec {
        &self.job.spec
    }

    fn wanted(&self) -> u32 {
        self.workers.iter().fold(0, |sum, role| sum.saturating_add(role.nodes))
    }

    fn draft(&self) -> Result<PreparedJob> {
        let spec = self.spec();
        let nodes = self.workers.iter().flat_map(|role| {
            (0..role.nodes).map(|replica| (role.procs_per_node(), role.name.clone(), replica))
        });
        let nodes: Vec<_> = nodes.take(self.settings.hosts().len().max(1) + 1).collect();
        let pinned = self.own.nodelist.as_deref().map(nodelist::expand).unwrap_or_default();
        self.job.refuse_pinned("nodelist", pinned.iter().map(String::as_str))?;
        let wanted = self.wanted();
        if !pinned.is_empty() && pinned.len() != wanted as usize {
            return Err(Error::new(
                ErrorKind::InvalidSpec,
                format!("`nodelist` names {} hosts, and the job has {wanted} nodes", pinned.len()),
            ));
        }
        if spec.labels.len() > MOST_LABELS {
            let message =
                format!("the job has {} labels, and {MOST_LABELS} are kept here", spec.labels.len());
            return Err(Error::new(ErrorKind::InvalidSpec, message).with("key", "labels"));
        }
        Ok(PreparedJob {
            wanted: wanted as usize,
            nodes,
            pinned,
            avoided: self.job.avoided().map(str::to_owned).collect(),
            own: self.own.clone(),
            launch: spec.launch,
            fabric: self.job.plan.fabric,
            restarts: match spec.restart {
                RestartPolicy::Never => 0,
                RestartPolicy::OnFailure { max } => max,
            },
            limit: spec.time_limit.map_or(0, |limit| limit.as_secs().max(1)),
            labels: spec.labels.clone(),
            programs: self.programs(),
            code: spec.code_archive()?.cloned(),
        })
    }

    fn programs(&self) -> Vec<String> {
        let mut programs: Vec<&str> = Vec::new();
        let kinds: Vec<Option<Container>> =
            self.workers.iter().map(|role| container_of(self.job, &self.own, role)).collect();
        for kind in &kinds {
            programs.push(match kind {
                Some(kind) => container::program(*kind),
                None if self.spec().launch == Launch::Torchrun => "torchrun",
                None if self.spec().launch == Launch::Mpi => "mpirun",
                None => continue,
            });
        }
        programs.sort_unstable();
        programs.dedup();
        programs.into_iter().map(str::to_owned).collect()
    }

    fn findings(&self) -> Vec<Finding> {
        let spec = self.spec();
        let mut findings = Vec::new();
        let unused = [
            (spec.queue.is_some(), "queue"),
            (spec.priority.is_some(), "priority"),
            (!spec.annotations.is_empty(), "annotations"),
            (self.workers.iter().any(|role| role.memory.is_some()), "memory"),
            (self.workers.iter().any(|role| role.cpus.is_some()), "cpus"),
        ];
        for (_, key) in unused.into_iter().filter(|(set, _)| *set) {
            let why = match key {
                "queue" | "priority" => "there is no queue",
                "annotations" => "jobs have none here",
                _ => "a job may use all of each host",
            };
            findings.push(Finding::info("HOSTS-UNUSED", format!("`{key}` is not used: {why}")).at(key));
        }
        let known = self.settings.hosts();
        for odd in self.job.avoided().filter(|node| known.iter().all(|(name, _)| name != node)) {
            let text = format!("`avoid` names {odd}, which is not a host of the target");
            findings.push(Finding::warning("HOSTS-UNUSED", text).at("avoid").fix("name it as `hosts` does"));
        }
        if self.spec().launch == Launch::Mpi
            && self.workers.iter().any(|role| {
                container_of(self.job, &self.own, role).is_some_and(|kind| kind != Container::Apptainer)
            })
        {
            let text = "mpirun runs on the host and starts each rank in its own container: both need the same Open MPI";
            findings.push(Finding::warning("HOSTS-MPI-CONTAINER", text).at("image"));
        }
        findings
    }

    fn document(&self) -> Result<String> {
        let spec = self.spec();
        let nodes = self.wanted();
        let hosts = match &self.own.nodelist {
            Some(list) => format!("{nodes} hosts: {}", list.replace(char::is_control, " ")),
            None => format!("the first {nodes} hosts of the target that are free when it is submitted"),
        };
        let mut text = format!(
            "# Rendered by weftrun: what each host of job {} runs, submission {}. On {hosts}.\n\
             # The numbers of a host (NODE_RANK, RANK, MASTER_ADDR …) are set before, from its file `place`.\n\n",
            spec.name, self.job.submission
        );
        if spec.code_folder().is_some() {
            text.push_str(
                "# The folder of its code is not in this script: `weftrun submit` sends it to each host, beside the script.\n\n",
            );
        }
        text.push_str("# Once on each host, before the ranks start.\nweftrun_prepare() {\n:\n");
        text.push_str(&script::library(self.job, LIBRARY)?);
        text.push_str(&self.code()?);
        text.push_str(&container::pulls(self)?);
        text.push_str("}\n\n# What every rank sees.\nweftrun_environment() {\n");
        text.push_str(&self.environment()?);
        text.push_str("}\n\n");
        text.push_str(&container::functions(self));
        match spec.launch {
            Launch::Mpi => mpi::write(self, &mut text)?,
            _ => {
                let command = |index: usize, role: &Role| self.command(index, role);
                self.function(
                    &mut text,
                    "weftrun_process",
                    "# One process: a rank, or what starts the ranks of the host.\n",
                    command,
                )?;
            }
        }
        Ok(text)
    }

    /// Writes a function whose body depends on the role of the host.
    fn function(
        &self,
        text: &mut String,
        name: &str,
        comment: &str,
        body: impl Fn(usize, &Role) -> Result<String>,
    ) -> Result<()> {
        let _ = write!(text, "{comment}{name}() {{\n{}}}\n\n", self.by_role(body)?);
        Ok(())
    }

    /// Returns the lines of the role that the host has.
    fn by_role(&self, lines: impl Fn(usize, &Role) -> Result<String>) -> Result<String> {
        if let [role] = self.workers[..] {
            return lines(0, role);
        }
        let (mut text, mut first) = (String::new(), 0_u32);
        for (index, role) in self.workers.iter().enumerate() {
            let (next, lines) = (first.saturating_add(role.nodes), lines(index, role)?);
            if !lines.is_empty() {
                let _ = write!(
                    text,
                    "if [ \"$NODE_RANK\" -ge {first} ] && [ \"$NODE_RANK\" -lt {next} ]; then   # {}\n{lines}fi\n",
                    role.name,
                );
            }
            first = next;
        }
        Ok(text)
    }

    /// Returns the working folder of the processes, as a line.
    fn change_folder(&self) -> Result<String> {
        let folder = self.work_folder("code")?;
        Ok(folder.map_or_else(|| "cd || exit 1\n".to_owned(), |folder| format!("cd {folder} || exit 1\n")))
    }

    /// Returns the working folder of the processes as a word of the shell, if the job names or brings one; `code` is the word for
    /// the folder of its code.
    fn work_folder(&self, code: &str) -> Result<Option<String>> {
        Ok(match (self.spec().workdir_in_code(), &self.spec().workdir, &self.spec().code) {
            (Some(inside), ..) => Some(format!("{code}/{}", quote::word(inside)?)),
            (None, Some(folder), _) => Some(quote::word(folder)?),
            (None, None, Some(_)) => Some(code.to_owned()),
            (None, None, None) => None,
        })
    }

    /// Returns the lines that become the process.
    fn command(&self, index: usize, role: &Role) -> Result<String> {
        let translated = self.fabric.get(index);
        let own = self.own_command(index, role)?;
        let mut role = role.clone();
        role.command = own;
        let at = Rendezvous {
            node_rank: "\u{1}NODE_RANK",
            master_addr: "\u{1}MASTER_ADDR",
            master_port: "\u{1}MASTER_PORT",
        };
        let (mut argv, mut lines) = (role.command.clone(), String::new());
        if self.spec().launch == Launch::Torchrun {
            argv = node_command(self.spec(), &role, &at);
            // Lines carry their rank; a signal to the job's processes must not end torchrun.
            argv.insert(1, "--tee=3".to_owned());
            lines.push_str("trap '' USR1 USR2\n");
        }
        let mut words = String::new();
        for word in translated.iter().flat_map(|of| &of.wrap).chain(&argv) {
            let quoted = match word.split_once('\u{1}') {
                Some((before, name)) => format!(
                    "{}\"${name}\"",
                    if before.is_empty() { String::new() } else { quote::word(before)? }
                ),
                None => quote::word(word)?,
            };
            words.push(' ');
            words.push_str(&quoted);
        }
        Ok(format!("{lines}{}", self.run(index, &role, &words)?))
    }

    /// Returns the lines that run words of the shell, in the role's container if it has one.
    fn run(&self, index: usize, role: &Role, words: &str) -> Result<String> {
        match container_of(self.job, &self.own, role) {
            None => {
                script::refuse_mounts(self.spec(), "hosts", container::no_claims)?;
                Ok(format!("{}exec{words}\n", self.change_folder()?))
            }
            Some(kind) => container::run(self, index, role, kind, words),
        }
    }

    /// Returns the user's command: the rewritten one if a rule rewrote it, the launcher's if the workers have none.
    fn own_command(&self, index: usize, role: &Role) -> Result<Vec<String>> {
        let rewritten = self.fabric.get(index).and_then(|fabric| fabric.command.as_ref());
        script::command(self.spec(), role, self.spec().launch == Launch::Mpi, rewritten)
    }

    /// Returns the export lines of every rank. Values are literal.
    fn environment(&self) -> Result<String> {
        let spec = self.spec();
        let mut text = script::setup(&self.own.setup)?;
        if !spec.env.iter().any(|var| var.name == "PYTHONUNBUFFERED") {
            text.push_str("export PYTHONUNBUFFERED=1\n");
        }
        if let Some(interface) = &self.own.interface {
            for name in INTERFACE {
                let _ = writeln!(text, "export {name}=\"${{{name}-{interface}}}\"");
            }
        }
        text.push_str(&script::exports(&spec.env)?);
        for secret in &spec.secrets {
            let (name, path) = (variable(&secret.env)?, script::secret(secret)?);
            let _ = write!(
                text,
                "# The secret is a file on each host.\n{name}=$(cat -- \"$HOME/.config/weftrun/secrets\"/{path}) || exit 1\nexport {name}\n"
            );
        }
        text.push_str(&self.by_role(|index, role| self.environment_of(index, role))?);
        Ok(text)
    }

    /// Returns the export lines of a role, and the fabric's.
    fn environment_of(&self, index: usize, role: &Role) -> Result<String> {
        let mut lines = script::exports(&role.env)?;
        let Some(fabric) = self.fabric.get(index) else { return Ok(lines) };
        let why = |op: &Op| format!("# {}: {}\n", op.rule, op.why.replace(char::is_control, " "));
        if let Some(op) = &fabric.memlock {
            let _ = writeln!(lines, "{}ulimit -l unlimited 2> /dev/null || :", why(op));
        }
        for (name, value, op) in &fabric.env {
            // The path that the host's own profile or `setup` set is appended to ours.
            let tail =
                if name == "LD_LIBRARY_PATH" { "\"${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\"" } else { "" };
            let value = script::value(value, LIBRARY)?;
            let _ = writeln!(lines, "{}export {}={value}{tail}", why(op), variable(name)?);
        }
        Ok(lines)
    }

    /// Returns the lines that bring the job's code, into the folder `code` of the job.
    fn code(&self) -> Result<String> {
        let Some(code) = &self.spec().code else { return Ok(String::new()) };
        let fetch = script::code(BACKEND, code, "code", script::ARCHIVE, "return 1")?;
        Ok(format!("mkdir -p code || return 1\n{fetch}"))
    }

    /// Returns whether the job gets a fabric whose devices are device files of the host.
    fn uses_rdma(&self) -> bool {
        matches!(self.job.plan.fabric, Fabric::Efa | Fabric::Roce | Fabric::InfiniBand)
    }
}
