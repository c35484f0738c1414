//! Converts each flag of a command line.

use serde_json::{Value, json};

use super::flags::{Flag, Means, Shape};
use super::line::Word;
use super::{Reading, SET_FIELD, insert, pair, push, put, restarts, value};
use weftrun_core::Finding;
use weftrun_core::spec::{EnvVar, SecretRef, VolumeSource};

impl Reading {
    /// Takes a flag with its value.
    pub(super) fn option(&mut self, flag: &Flag, word: &str, value: &Word) {
        // Text is kept unexpanded; a number or a name that is unknown cannot be converted.
        let text =
            matches!(
                flag.means,
                Means::Image | Means::Env | Means::Annotation | Means::Label | Means::Command | Means::Args
            ) || matches!(flag.means, Means::Master(_) | Means::Claim | Means::OldClaim | Means::HostPath);
        if !value.unknown.is_empty() {
            self.unknown_value(&format!("`{word}`"), value);
            if !text {
                return;
            }
        }
        if !value.literal.is_empty() && !matches!(flag.means, Means::Command | Means::Args | Means::Master(_))
        {
            self.literal(word, &value.literal);
        }
        self.take(flag, word, &value.text);
    }

    pub(super) fn literal(&mut self, what: &str, names: &[String]) {
        let message =
            format!("`{}` in `{what}` is passed through literally: no shell expands it", names.join("`, `"));
        self.findings.push(
            Finding::warning("W-IMPORT-LITERAL", message)
                .fix("if the program does not expand it itself, start it with `sh -c`"),
        );
    }

    /// Adds an entry to a list of the API, and reports the parts that it has no field for.
    fn entry(&mut self, path: &str, word: &str, made: Option<(Value, Vec<String>)>) -> bool {
        let Some((entry, unknown)) = made else { return false };
        for key in unknown {
            self.lost(format!("`{key}` of `{word}` is not known here and was left out"), word, SET_FIELD);
        }
        value::push(&mut self.fields, path, entry)
    }

    fn take(&mut self, flag: &Flag, word: &str, text: &str) {
        let own = &mut self.fields;
        let taken = match flag.means {
            Means::Name => put(&mut self.spec.name, text.to_owned()),
            Means::NamePrefix => {
                let message = "the platform made a name of this prefix each time";
                self.info("I-IMPORT-NAME", message, "`weftrun submit --name-suffix` does so");
                put(&mut self.spec.name, text.to_owned())
            }
            Means::Project => {
                let message = format!("the project `{text}` is where the job goes, and no part of it");
                let fix = format!("`weftrun submit -p {text}`, or `project` of the target");
                self.info("I-IMPORT-PROJECT", message, fix);
                true
            }
            Means::Image => put(&mut self.spec.image, Some(text.to_owned())),
            Means::Workers => text.parse().is_ok_and(|workers| put(&mut self.workers, Some(workers))),
            Means::NoMaster => put(&mut self.no_master, true),
            Means::Gpus => self.gpus(text),
            Means::Cpus => put(&mut self.role.cpus, Some(text.to_owned())),
            Means::Memory => put(&mut self.role.memory, Some(text.to_owned())),
            Means::Workdir => put(&mut self.spec.workdir, Some(text.to_owned())),
            Means::Queue => {
                let pools = text.split([',', ' ']).filter(|pool| !pool.is_empty()).map(str::to_owned);
                self.pools.extend(pools);
                true
            }
            Means::Framework => self.framework(text),
            Means::Args => shlex::split(text).is_some_and(|words| put(&mut self.args, words)),
            Means::Priority => put(&mut self.spec.priority, Some(text.to_owned())),
            Means::Backoff => text.parse().is_ok_and(|max: u32| put(&mut self.spec.restart, restarts(max))),
            Means::Interactive => put(&mut self.workspace, true),
            Means::Command => self.own_command(text),
            Means::Env => self.env(text),
            Means::EnvSecret => {
                value::secret(text).is_some_and(|secret| push(&mut self.spec.secrets, secret))
            }
            Means::EnvField => text.split_once('=').is_some_and(|(name, path)| {
                value::push(own, "environmentVariables", json!({"name": name, "podFieldRef": {"path": path}}))
            }),
            Means::Annotation => insert(&mut self.spec.annotations, text),
            Means::Label => insert(&mut self.spec.labels, text),
            Means::Resource => insert(&mut self.role.resources, text),
            Means::MasterResource => pair(text).is_some_and(|(resource, quantity)| {
                let asked = json!({"resource": resource, "quantity": quantity});
                value::push(&mut self.master, "compute.extendedResources", asked)
            }),
            Means::Claim => self.volume(value::claim(text)),
            Means::OldClaim => self.volume(value::old_volume(text, VolumeSource::Claim)),
            Means::HostPath => self.volume(value::host_path(text)),
            Means::OldVolume => self.volume(value::old_volume(text, VolumeSource::HostPath)),
            Means::Entry(path, [(_, field, _)]) => value::push(own, path, json!({ *field: text })),
            Means::Entry(path, parts) => self.entry(path, word, value::entry(parts, text)),
            Means::NewClaim => self.entry("storage.pvc", word, value::new_claim(text)),
            Means::OldPort => self.entry("ports", word, value::port(text)),
            Means::ExcludedNode => self.excluded(text),
            Means::Topology(kind) => {
                let key = text.strip_prefix("key=").unwrap_or(text);
                value::set(own, "podAffinity", json!({"type": kind, "key": key}))
            }
            Means::Preemptible => text.parse().is_ok_and(|preemptible: bool| {
                let word = if preemptible { "preemptible" } else { "non-preemptible" };
                value::set(own, "preemptibility", json!(word))
            }),
            Means::RunAsUser => {
                let message = "`--run-as-user` runs the container as the user who typed the line, whose ids are not known here";
                let fix = "set `security = { runAsUid = …, runAsGid = …, uidGidSource = \"custom\" }` in `[backend.runai.spec]`; `id -u` and `id -g` print the ids";
                self.lost(message, word, fix);
                true
            }
            Means::Lost(instead) => {
                let shown = if text == "true" { word.to_owned() } else { format!("{word} {text}") };
                self.lost(format!("`{shown}` was left out: the job file has no place for it"), word, instead);
                true
            }
            Means::Template => put(&mut self.template, Some(text.to_owned())),
            Means::Field(path, shape) => value::of_shape(shape, text).is_some_and(|made| match made {
                Value::Array(items) => items.into_iter().all(|item| value::push(own, path, item)),
                other => value::set(own, path, other),
            }),
            Means::Master(field) => value::set(&mut self.master, field, json!(text)),
            Means::Client(instead) => {
                self.info(
                    "I-IMPORT-CLIENT",
                    format!("`{word}` is about the client, and no part of the job"),
                    instead,
                );
                true
            }
        };
        if !taken {
            self.left(word, text);
        }
    }

    /// Reads `-g 4`; part of a GPU (`-g 0.5`) is a feature of the platform.
    fn gpus(&mut self, text: &str) -> bool {
        if let Ok(whole) = text.parse() {
            return put(&mut self.role.gpus_per_node, whole);
        }
        let part = text.parse().ok().filter(|part: &f64| part.is_finite() && *part > 0.0);
        part.is_some_and(|part| {
            value::set(&mut self.fields, "compute.gpuDevicesRequest", json!(1))
                && value::set(&mut self.fields, "compute.gpuRequestType", json!("portion"))
                && value::set(&mut self.fields, "compute.gpuPortionRequest", json!(part))
        })
    }

    /// Reads `A=value`, the older `A=SECRET:name,key`, or the name of an environment asset.
    fn env(&mut self, text: &str) -> bool {
        let Some((name, value)) = pair(text) else {
            let fix = "set `image`, `command` and `env` as the asset has them";
            self.lost(format!("the environment asset `{text}` was left out"), "environment", fix);
            return true;
        };
        let secret = value.strip_prefix("SECRET:").and_then(|rest| rest.split_once(','));
        match secret {
            Some((secret, key)) => {
                let secret = SecretRef { env: name, secret: secret.to_owned(), key: key.to_owned() };
                push(&mut self.spec.secrets, secret)
            }
            None => push(&mut self.spec.env, EnvVar { name, value }),
        }
    }

    /// Excludes a node from scheduling.
    fn excluded(&mut self, text: &str) -> bool {
        let path = "/nodeSelectorTerms/0/matchExpressions/0/values";
        let terms = self.fields.entry("nodeAffinityRequired").or_insert_with(|| {
            let rule = json!({"key": "kubernetes.io/hostname", "operator": "NotIn", "values": []});
            json!({"nodeSelectorTerms": [{"matchExpressions": [rule]}]})
        });
        let values = terms.pointer_mut(path).and_then(Value::as_array_mut);
        values.is_some_and(|values| {
            values.extend(text.split(',').filter(|node| !node.is_empty()).map(Value::from));
            true
        })
    }

    /// Reads a flag of the master alone: `master-` before a flag of the workers.
    pub(super) fn of_master(&mut self, base: Means, text: &str) -> bool {
        let number = |text: &str| value::of_shape(Shape::Number, text);
        let (path, made) = match base {
            Means::Gpus => ("compute.gpuDevicesRequest", number(text)),
            Means::Cpus => ("compute.cpuCoreRequest", number(text)),
            Means::Memory => ("compute.cpuMemoryRequest", Some(json!(text))),
            Means::Image => ("image", Some(json!(text))),
            Means::Field(path, shape) => (path, value::of_shape(shape, text)),
            Means::Env => {
                return pair(text).is_some_and(|(name, value)| {
                    let variable = json!({"name": name, "value": value});
                    value::push(&mut self.master, "environmentVariables", variable)
                });
            }
            _ => return false,
        };
        made.is_some_and(|made| value::set(&mut self.master, path, made))
    }

    /// Removes from the master's fields those that equal the workers', so that the master is one of them.
    pub(super) fn same_master(&mut self) {
        let number =
            |text: &Option<String>| text.as_ref().and_then(|text| value::of_shape(Shape::Number, text));
        let workers = [
            ("gpuDevicesRequest", Some(json!(self.role.gpus_per_node))),
            ("cpuCoreRequest", number(&self.role.cpus)),
            ("cpuMemoryRequest", self.role.memory.as_ref().map(|memory| json!(memory))),
        ];
        let own = self.fields.get("compute").cloned().unwrap_or_default();
        if let Some(Value::Object(compute)) = self.master.get_mut("compute") {
            compute.retain(|key, value| {
                let worker =
                    workers.iter().find(|(name, _)| name == key).and_then(|(_, value)| value.as_ref());
                worker.or(own.get(key.as_str())) != Some(&*value)
            });
            if compute.is_empty() {
                self.master.remove("compute");
            }
        }
        let fields = &self.fields;
        self.master.retain(|key, value| fields.get(key) != Some(&*value));
    }

    /// Adds what the platform's client adds itself: the kind of a request for a part of a GPU, whose ids a
    /// container has.
    pub(super) fn implied(&mut self) {
        let compute = self.fields.get("compute").cloned().unwrap_or_default();
        let kinds = [("gpuPortionRequest", "portion"), ("gpuMemoryRequest", "memory")];
        if let Some((_, kind)) = kinds.iter().find(|(field, _)| compute.get(field).is_some()) {
            if compute.get("gpuRequestType").is_none() {
                value::set(&mut self.fields, "compute.gpuRequestType", json!(kind));
            }
            if self.role.gpus_per_node == 0 && compute.get("gpuDevicesRequest").is_none() {
                value::set(&mut self.fields, "compute.gpuDevicesRequest", json!(1));
            }
        }
        let security = self.fields.get("security").cloned().unwrap_or_default();
        let ids = ["runAsUid", "runAsGid"].iter().any(|id| security.get(id).is_some());
        if ids && security.get("uidGidSource").is_none() {
            value::set(&mut self.fields, "security.uidGidSource", json!("custom"));
        }
        match std::mem::take(&mut self.pools).as_slice() {
            [] => {}
            [pool] => self.spec.queue = Some(pool.clone()),
            pools => drop(value::set(&mut self.fields, "nodePools", json!(pools))),
        }
    }
}
