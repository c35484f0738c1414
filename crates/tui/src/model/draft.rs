//! A new job: its form, its plan, and which rules are switched off.

use std::collections::BTreeSet;

use tui_input::Input;
use weftrun::Finding;
use weftrun::core::fabric::{Fabric, Op, RuleSetting};
use weftrun::core::spec::{Code, JobSpec, Launch, Role, Volume, to_toml};

use super::compare;
use super::words::{quote, words};

mod planned;
mod saved;
mod unknown;

pub use planned::{Basis, Planned};
pub use saved::SavedForm;

/// The fields of the form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    Target,
    Name,
    Image,
    Nodes,
    Gpus,
    Memory,
    Instance,
    /// Who starts the processes.
    Launch,
    /// Program and arguments.
    Command,
    /// The folder that is sent with the job.
    Code,
    Fabric,
    Profile,
    /// Whether NCCL's collectives are measured.
    Bandwidth,
    /// Queue, partition or node pool.
    Queue,
    /// Priority class or qos.
    Priority,
    /// Volumes, as `--volume` takes them, by blanks.
    Storage,
    /// Environment, `NAME=value` by blanks.
    Env,
    Changes,
}

impl Field {
    /// The fields in the order of the form, with their labels.
    pub const LABELS: [(Self, &'static str); 18] = [
        (Self::Target, "target"),
        (Self::Queue, "queue"),
        (Self::Name, "name"),
        (Self::Priority, "priority"),
        (Self::Image, "image"),
        (Self::Nodes, "nodes"),
        (Self::Gpus, "gpus/node"),
        (Self::Memory, "memory"),
        (Self::Instance, "instance"),
        (Self::Launch, "launch"),
        (Self::Command, "command"),
        (Self::Code, "code"),
        (Self::Fabric, "fabric"),
        (Self::Profile, "profile"),
        (Self::Bandwidth, "bandwidth"),
        (Self::Storage, "storage"),
        (Self::Env, "env"),
        (Self::Changes, "changes"),
    ];

    /// The rows of the form: short fields share a row.
    pub const ROWS: [&'static [Self]; 13] = [
        &[Self::Target, Self::Queue],
        &[Self::Name, Self::Priority],
        &[Self::Image],
        &[Self::Nodes, Self::Gpus],
        &[Self::Memory, Self::Instance],
        &[Self::Launch],
        &[Self::Command],
        &[Self::Code],
        &[Self::Fabric],
        &[Self::Profile],
        &[Self::Bandwidth],
        &[Self::Storage],
        &[Self::Env],
    ];

    pub fn label(self) -> &'static str {
        Self::LABELS.iter().find(|(field, _)| *field == self).map_or("", |(_, label)| label)
    }

    /// Returns whether the text of the field is split into words as in a shell.
    pub fn is_words(self) -> bool {
        matches!(self, Self::Command | Self::Storage | Self::Env)
    }

    /// Returns whether text is typed into it (other fields are chosen with left and right).
    pub fn is_text(self) -> bool {
        !matches!(
            self,
            Self::Target | Self::Launch | Self::Fabric | Self::Profile | Self::Bandwidth | Self::Changes
        )
    }
}

/// Ways to start, in the order they are offered.
pub const LAUNCHES: [Launch; 5] =
    [Launch::Torchrun, Launch::PerRank, Launch::PerNode, Launch::Mpi, Launch::Once];

/// Whether the collectives are measured, by the index of the choice.
pub const MEASURING: [&str; 2] = ["off", "measure"];

/// How the changes are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shown {
    /// One a line, each with its rule.
    #[default]
    Changes,
    /// The document, with added and removed lines.
    Diff,
    /// The document without and with the changes, beside each other.
    Beside,
}

/// What there is to choose from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choices {
    pub targets: Vec<String>,
    /// Profiles, without the empty one that means the target's own.
    pub profiles: Vec<String>,
}

/// A new job.
#[derive(Debug)]
pub struct NewJobForm {
    /// The job of a file or another job; the form changes a copy.
    pub base: JobSpec,
    /// Its source, for the title and the equivalent command.
    pub file: Option<String>,
    pub targets: Vec<String>,
    /// Index of the target.
    pub target: usize,
    pub inputs: Vec<(Field, Input)>,
    /// Index in [`LAUNCHES`].
    pub launch: usize,
    /// Index in [`Fabric::ALL`].
    pub fabric: usize,
    /// Profiles to choose from; the empty one is the target's own.
    pub profiles: Vec<String>,
    /// Index of the profile.
    pub profile: usize,
    /// Index in [`MEASURING`].
    pub measuring: usize,
    pub off: BTreeSet<String>,
    pub field: Field,
    pub change: usize,
    /// How the changes are shown.
    pub shown: Shown,
    /// Lines the document is scrolled; none while it follows the change under the cursor.
    pub scroll: Option<usize>,
    /// Number of edits: answers to older plans are discarded.
    pub revision: u64,
    /// The answer to the newest plan.
    pub planned: Option<Result<Planned, String>>,
    /// The cluster's verdict, and the revision it is about.
    pub checked: Option<(u64, Result<Vec<Finding>, String>)>,
    /// The revision whose unknown names were told: submitting it again submits it as it is.
    pub told: Option<u64>,
    pub sending: bool,
}

impl NewJobForm {
    /// Creates a draft from a job; an empty form is a job of one node.
    pub fn new(base: JobSpec, file: Option<String>, choices: Choices, target: &str) -> Self {
        let targets = choices.targets;
        let mut profiles = choices.profiles;
        profiles.insert(0, String::new());
        let own = base.profile.clone().unwrap_or_default();
        if !profiles.contains(&own) {
            profiles.push(own.clone());
        }
        let profile = profiles.iter().position(|name| *name == own).unwrap_or(0);
        let role = base.workers().next().cloned().unwrap_or_else(Role::worker);
        let env: Vec<String> = base.env.iter().map(|v| format!("{}={}", v.name, quote(&v.value))).collect();
        let texts = [
            (Field::Name, base.name.clone()),
            (Field::Image, base.image.clone().unwrap_or_default()),
            (Field::Nodes, role.nodes.to_string()),
            (Field::Gpus, role.gpus_per_node.to_string()),
            (Field::Memory, role.memory.clone().unwrap_or_default()),
            (Field::Queue, base.queue.clone().unwrap_or_default()),
            (Field::Priority, base.priority.clone().unwrap_or_default()),
            (Field::Storage, storage(&base.volumes)),
            (Field::Instance, role.instance_type.clone().unwrap_or_default()),
            (Field::Command, quoted(&role.command)),
            (Field::Code, folder(&base).unwrap_or_default()),
            (Field::Env, env.join(" ")),
        ];
        let inputs = texts.into_iter().map(|(field, text)| (field, Input::new(text))).collect();
        let launch = LAUNCHES.iter().position(|known| *known == base.launch).unwrap_or(0);
        let fabric = Fabric::ALL.iter().position(|known| *known == base.fabric.kind).unwrap_or(0);
        let measuring = usize::from(base.fabric.bandwidth);
        let off = base
            .fabric
            .rules
            .iter()
            .filter(|(_, s)| **s == RuleSetting::Off)
            .map(|(rule, _)| rule.clone())
            .collect();
        let at = targets.iter().position(|name| name == target).unwrap_or(0);
        Self {
            base,
            file,
            targets,
            target: at,
            inputs,
            launch,
            fabric,
            profiles,
            profile,
            measuring,
            off,
            field: Field::Name,
            change: 0,
            shown: Shown::default(),
            scroll: None,
            revision: 0,
            planned: None,
            checked: None,
            told: None,
            sending: false,
        }
    }

    pub fn text(&self, field: Field) -> &str {
        self.inputs.iter().find(|(known, _)| *known == field).map_or("", |(_, input)| input.value())
    }

    /// Returns the options of a choice and its current value; none for any other field.
    pub fn choice(&mut self, field: Field) -> Option<(Vec<&str>, &mut usize)> {
        Some(match field {
            Field::Target => (self.targets.iter().map(String::as_str).collect(), &mut self.target),
            Field::Profile => (self.profiles.iter().map(String::as_str).collect(), &mut self.profile),
            Field::Bandwidth => (MEASURING.to_vec(), &mut self.measuring),
            Field::Launch => (LAUNCHES.map(Launch::as_str).to_vec(), &mut self.launch),
            Field::Fabric => (Fabric::ALL.map(Fabric::as_str).to_vec(), &mut self.fabric),
            _ => return None,
        })
    }

    pub fn target_name(&self) -> &str {
        self.targets.get(self.target).map_or("local", String::as_str)
    }

    /// Returns the job that the form describes, or the first mistake.
    pub fn spec(&self) -> Result<JobSpec, String> {
        let (spec, mistakes) = self.read();
        match mistakes.into_iter().next() {
            None => Ok(spec),
            Some((_, mistake)) => Err(mistake),
        }
    }

    /// Returns the mistakes of the form, in the order of its fields.
    pub fn mistakes(&self) -> Vec<(Field, String)> {
        self.read().1
    }

    /// Reads the form: the job, and the fields that cannot be read.
    fn read(&self) -> (JobSpec, Vec<(Field, String)>) {
        let mut spec = self.base.clone();
        let mut mistakes = Vec::new();
        let filled = |field| Some(self.text(field).trim().to_owned()).filter(|text| !text.is_empty());
        match filled(Field::Name) {
            Some(name) => spec.name = name,
            None => mistakes.push((Field::Name, "the job has no name".to_owned())),
        }
        spec.image = filled(Field::Image);
        spec.profile = self.profiles.get(self.profile).filter(|name| !name.is_empty()).cloned();
        spec.queue = filled(Field::Queue);
        spec.priority = filled(Field::Priority);
        let mut number = |field: Field| {
            let text = self.text(field);
            let mistake = |_| (field, format!("{}: `{text}` is not a number", field.label()));
            text.trim()
                .parse::<u32>()
                .map_err(mistake)
                .map_err(|mistake| mistakes.push(mistake))
                .unwrap_or_default()
        };
        let (nodes, gpus) = (number(Field::Nodes), number(Field::Gpus));
        let mut split = |field: Field| {
            let mistake = || (field, format!("{}: a quote is not closed", field.label()));
            words(self.text(field)).unwrap_or_else(|| {
                mistakes.push(mistake());
                Vec::new()
            })
        };
        let (command, volumes, env) = (split(Field::Command), split(Field::Storage), split(Field::Env));
        if filled(Field::Code) != folder(&self.base) {
            spec.code = filled(Field::Code).map(|dir| Code::Folder { dir, content: None });
        }
        // If unchanged, it is the file's value, even if that cannot be expressed as text.
        if self.text(Field::Storage) != storage(&self.base.volumes) {
            spec.volumes.clear();
            for word in volumes {
                match word.parse::<Volume>() {
                    Ok(volume) => spec.volumes.push(volume),
                    Err(error) => mistakes.push((Field::Storage, format!("storage: {error}"))),
                }
            }
        }
        spec.launch = LAUNCHES[self.launch];
        spec.fabric.kind = Fabric::ALL[self.fabric];
        spec.fabric.bandwidth = self.measuring == 1;
        spec.env.clear();
        for pair in env {
            match pair.split_once('=') {
                Some((name, value)) => spec
                    .env
                    .push(weftrun::core::spec::EnvVar { name: name.to_owned(), value: value.to_owned() }),
                None => mistakes.push((Field::Env, format!("env: `{pair}` is not NAME=value"))),
            }
        }
        spec.fabric.rules.retain(|_, setting| *setting != RuleSetting::Off);
        spec.fabric.rules.extend(self.off.iter().map(|rule| (rule.clone(), RuleSetting::Off)));
        if spec.roles.is_empty() {
            spec.roles.push(Role::worker());
        }
        let worker = spec.roles.iter_mut().find(|role| role.kind == weftrun::core::spec::RoleKind::Worker);
        if let Some(role) = worker {
            (role.nodes, role.gpus_per_node, role.command) = (nodes, gpus, command);
            role.instance_type = filled(Field::Instance);
            role.memory = filled(Field::Memory);
        }
        let place = |field: &Field| Field::LABELS.iter().position(|(known, _)| known == field);
        mistakes.sort_by_key(|(field, _)| place(field));
        (spec, mistakes)
    }

    /// Returns what the form does not show of a job without a file, as keys of the job file: its command would lack it.
    fn beyond_form(spec: &JobSpec) -> Vec<String> {
        let Some(role) = spec.workers().next() else { return vec!["roles".to_owned()] };
        let mut plain = Role::worker().nodes(role.nodes).gpus_per_node(role.gpus_per_node);
        plain.command.clone_from(&role.command);
        plain.instance_type.clone_from(&role.instance_type);
        plain.memory.clone_from(&role.memory);
        let Ok(mut same) = JobSpec::builder(&spec.name).launch(spec.launch).role(plain).build() else {
            return vec!["roles".to_owned()];
        };
        (same.image, same.profile, same.env) = (spec.image.clone(), spec.profile.clone(), spec.env.clone());
        same.queue.clone_from(&spec.queue);
        same.priority.clone_from(&spec.priority);
        if are_words(&spec.volumes) {
            same.volumes.clone_from(&spec.volumes);
        }
        same.code = spec.code.clone().filter(|_| spec.code_folder().is_some());
        same.fabric.memory.clone_from(&spec.fabric.memory);
        same.fabric.kind = spec.fabric.kind;
        same.fabric.bandwidth = spec.fabric.bandwidth;
        same.fabric.rules.clone_from(&spec.fabric.rules);
        same.fabric.rules.retain(|_, setting| *setting == RuleSetting::Off);
        if same == *spec {
            return Vec::new();
        }
        let (all, shown) = (to_toml(spec), to_toml(&same));
        let more = all.lines().filter(|line| !shown.lines().any(|known| known == *line));
        let key =
            |line: &str| line.split(['=', ']']).next().unwrap_or(line).trim_matches([' ', '[']).to_owned();
        let mut keys: Vec<String> = more.map(key).filter(|key| !key.is_empty()).collect();
        keys.dedup();
        if keys.is_empty() { vec!["what its file has".to_owned()] } else { keys }
    }

    /// Returns whether flags after its file can express the whole job: they add and replace, and remove
    /// nothing.
    fn fits_flags_behind_file(&self, spec: &JobSpec) -> bool {
        let base = &self.base;
        let worker = |job: &JobSpec| job.workers().next().cloned().unwrap_or_else(Role::worker);
        let (old, new) = (worker(base), worker(spec));
        let kept = |old: &Option<String>, new: &Option<String>| old.is_none() || new.is_some();
        let texts = [
            (&folder(base), &folder(spec)),
            (&base.image, &spec.image),
            (&base.profile, &spec.profile),
            (&base.queue, &spec.queue),
            (&base.priority, &spec.priority),
            (&old.memory, &new.memory),
            (&old.instance_type, &new.instance_type),
        ];
        texts.into_iter().all(|(old, new)| kept(old, new))
            && base.env.iter().all(|old| spec.env.iter().any(|new| new.name == old.name))
            && base.volumes.iter().all(|old| spec.volumes.iter().any(|new| new.name == old.name))
            && base.fabric.rules.keys().all(|rule| spec.fabric.rules.contains_key(rule))
            && (spec.fabric.bandwidth || !base.fabric.bandwidth)
            && (base.volumes == spec.volumes || are_words(&spec.volumes))
    }

    /// Records that the job was saved as a file, which it is based on from now on.
    pub fn saved(&mut self, path: &std::path::Path) {
        if let Ok(spec) = self.spec() {
            (self.base, self.file) = (spec, Some(path.display().to_string()));
        }
    }

    /// Returns why the equivalent command needs the job saved as a file first; none if it does not.
    pub fn why_file(&self) -> Option<String> {
        let spec = self.spec().ok()?;
        match &self.file {
            Some(file) => (!self.fits_flags_behind_file(&spec))
                .then(|| format!("flags cannot take away what {file} has")),
            None => {
                let keys = Self::beyond_form(&spec);
                (!keys.is_empty()).then(|| format!("the flags of this form do not say {}", keys.join(", ")))
            }
        }
    }

    pub fn needs_file(&self) -> bool {
        self.why_file().is_some()
    }

    /// Returns the equivalent `weftrun submit` command, or which mistake of the form prevents one.
    pub fn command(&self) -> Result<String, String> {
        let spec = self.spec()?;
        if self.needs_file() {
            let file = format!("{}.toml", self.text(Field::Name));
            return Ok(format!("weftrun submit {} -b {}", quote(&file), quote(self.target_name())));
        }
        let mut parts = vec!["weftrun submit".to_owned()];
        let mut flag = |name: &str, value: &str| parts.push(format!("{name} {}", quote(value)));
        let switch = spec.fabric.bandwidth && !(self.file.is_some() && self.base.fabric.bandwidth);
        let worker = |job: &JobSpec| job.workers().next().cloned().unwrap_or_else(Role::worker);
        let (base, role, base_role) = (&self.base, worker(&spec), worker(&self.base));
        let from_file = self.file.is_some();
        let given = |value: &Option<String>, base: &Option<String>| {
            value.clone().filter(|_| !from_file || value != base)
        };
        let of = |value: &dyn ToString, changed: bool| (!from_file || changed).then(|| value.to_string());
        if let Some(file) = &self.file {
            flag("", file);
        }
        flag("-b", self.target_name());
        let fabric = spec.fabric.kind;
        let changes_fabric = fabric != base.fabric.kind || (!from_file && fabric != Fabric::Auto);
        let flags = [
            ("--name", of(&spec.name, spec.name != base.name)),
            ("--image", given(&spec.image, &base.image)),
            ("--nodes", of(&role.nodes, role.nodes != base_role.nodes)),
            ("--gpus-per-node", of(&role.gpus_per_node, role.gpus_per_node != base_role.gpus_per_node)),
            ("--memory", given(&role.memory, &base_role.memory)),
            ("--queue", given(&spec.queue, &base.queue)),
            ("--priority", given(&spec.priority, &base.priority)),
            ("--instance-type", given(&role.instance_type, &base_role.instance_type)),
            ("--launch", of(&LAUNCHES[self.launch].as_str(), spec.launch != base.launch)),
            ("--fabric", changes_fabric.then(|| fabric.to_string())),
            ("--profile", given(&spec.profile, &base.profile)),
            ("--code", given(&folder(&spec), &folder(base))),
        ];
        for (name, value) in flags {
            value.iter().for_each(|value| flag(name, value));
        }
        for rule in &self.off {
            if !from_file || self.base.fabric.rules.get(rule) != Some(&RuleSetting::Off) {
                flag("--no-fabric-rule", rule);
            }
        }
        if !from_file || spec.volumes != self.base.volumes {
            for volume in &spec.volumes {
                flag("--volume", &volume.to_string());
            }
        }
        if !from_file || spec.env != self.base.env {
            for variable in &spec.env {
                flag("--env", &format!("{}={}", variable.name, variable.value));
            }
        }
        if switch {
            parts.push("--bandwidth".to_owned());
        }
        if !from_file || role.command != base_role.command {
            parts.push(format!("-- {}", quoted(&role.command)));
        }
        Ok(parts.iter().map(|part| part.trim()).collect::<Vec<_>>().join(" "))
    }

    /// Returns all changes that apply, and those switched off.
    pub fn changes(&self) -> &[Op] {
        match &self.planned {
            Some(Ok(planned)) => &planned.all,
            _ => &[],
        }
    }

    /// Moves the cursor over the changes, in the order they are shown; returns whether it was not at their
    /// beginning.
    pub fn step(&mut self, by: isize) -> bool {
        let count = self.changes().len();
        let order: Vec<usize> = match (&self.planned, self.shown) {
            (Some(Ok(planned)), Shown::Diff | Shown::Beside) => planned.order.clone(),
            _ => (0..count).collect(),
        };
        let at = order.iter().position(|change| *change == self.change).unwrap_or(0);
        if by < 0 && at == 0 {
            return false;
        }
        let next = at.saturating_add_signed(by).min(count.saturating_sub(1));
        (self.change, self.scroll) = (order.get(next).copied().unwrap_or(0), None);
        true
    }

    pub fn diff<'p>(&self, planned: &'p Planned) -> Vec<compare::Line<'p>> {
        let off =
            planned.order.iter().copied().filter(|at| planned.all.get(*at).is_some_and(|op| self.is_off(op)));
        compare::diff(planned.rows.as_deref().unwrap_or_default(), off)
    }

    /// Returns how many lines the displayed document has.
    pub fn document_length(&self) -> usize {
        match (&self.planned, self.shown) {
            (Some(Ok(planned)), Shown::Diff) => self.diff(planned).len(),
            (Some(Ok(planned)), Shown::Beside) => planned.rows.as_ref().map_or(0, Vec::len),
            _ => 0,
        }
    }

    /// Returns the line of the document that is under the cursor.
    pub fn line(&self) -> usize {
        let here = Some(self.change);
        let Some(Ok(planned)) = &self.planned else { return 0 };
        let found = match self.shown {
            Shown::Changes => here,
            Shown::Diff => self.diff(planned).iter().position(|line| line.change() == here),
            Shown::Beside => {
                planned.rows.as_ref().ok().and_then(|rows| rows.iter().position(|row| row.change() == here))
            }
        };
        found.unwrap_or(0)
    }

    /// Returns whether a line's change is the one under the cursor.
    pub fn marks(&self, change: Option<usize>) -> bool {
        self.field == Field::Changes && change == Some(self.change)
    }

    /// Returns whether a change is switched off: its rule, or the rule it depends on.
    pub fn is_off(&self, op: &Op) -> bool {
        match &self.planned {
            Some(Ok(planned)) => !planned
                .plan
                .ops
                .iter()
                .any(|kept| kept.rule == op.rule && kept.role == op.role && kept.change == op.change),
            _ => self.off.contains(&op.rule),
        }
    }
}

/// Returns the folder that is sent with a job.
fn folder(spec: &JobSpec) -> Option<String> {
    spec.code_folder().map(|(dir, _)| dir.to_owned())
}

/// Formats volumes for the form.
fn storage(volumes: &[Volume]) -> String {
    quoted(&volumes.iter().map(ToString::to_string).collect::<Vec<_>>())
}

fn quoted(words: &[String]) -> String {
    words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ")
}

/// Returns whether each of the volumes can be expressed as one word.
fn are_words(volumes: &[Volume]) -> bool {
    volumes.iter().all(|volume| volume.to_string().parse().as_ref() == Ok(volume))
}
