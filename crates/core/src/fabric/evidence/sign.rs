//! Signs in a document that may show its fabric.

use std::sync::LazyLock;

use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::fabric::rules::opt_out::{MARKER, OPT_OUT};
use crate::fabric::rules::rdma_present::NETWORKS;
use crate::fabric::{ClusterFacts, NetworkApi, NodeGroup};
use crate::shell::sbatch::{Directive, Directives, Program};
use crate::shell::{without_comment, without_output};
use crate::spec::{Code, JobSpec, NO_EVIDENCE, VolumeSource};

word_enum! {
    /// The kind of a sign.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "kebab-case")]
    #[non_exhaustive]
    pub enum SignKind: ALL {
        /// Name of a resource that is requested.
        Resource = "resource",
        /// Class of a device that a resource claim requests.
        DeviceClass = "device-class",
        /// Annotation, as `key=value`.
        Annotation = "annotation",
        /// A network that the job is attached to, or that the cluster has: its name, and what attaches pods to
        /// it (`rdma-0 deviceMode=RDMA`).
        Network = "network",
        /// Label, node selector, node affinity or toleration, as `key=value`.
        Label = "label",
        /// Instance type.
        Instance = "instance",
        /// Container image.
        Image = "image",
        /// Environment variable, as `NAME=value`.
        Env = "env",
        /// A line of a command, a path or another text.
        Text = "text",
        /// Slurm partition.
        Partition = "partition",
        /// Slurm account.
        Account = "account",
        /// Another sbatch option, as `name=value`.
        Option = "option",
        /// Environment module that is loaded.
        Module = "module",
        /// Name of the object.
        Name = "name",
        /// Setting of the cluster, as `name=value`.
        Setting = "setting",
        /// Kind of a network device of the nodes (`InfiniBand`).
        Device = "device",
    }
}

/// One sign in a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sign {
    /// Where it stands.
    pub kind: SignKind,
    /// Its text.
    pub text: String,
    /// Whether it comes from the cluster itself, which counts more than a document.
    pub online: bool,
}

/// Collects signs.
#[derive(Debug, Default)]
pub struct Signs {
    /// All signs, in the order in which they were found.
    pub all: Vec<Sign>,
    online: bool,
}

/// Labels of a node that name its instance type.
pub const INSTANCE_LABELS: [&str; 2] =
    ["node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"];

impl Signs {
    pub(crate) fn add(&mut self, kind: SignKind, text: impl Into<String>) {
        let sign = Sign { kind, text: text.into(), online: self.online };
        if !sign.text.is_empty() {
            self.all.push(sign);
        }
    }

    /// Adds a text without its comments and what it only writes out, and the assignments in it (`-x NAME=value`,
    /// `export NAME=value`).
    pub(crate) fn text(&mut self, text: &str) {
        self.lines(&without_output(text));
    }

    fn lines(&mut self, text: &str) {
        static ASSIGNMENT: LazyLock<Option<Regex>> =
            LazyLock::new(|| Regex::new(r#"\b([A-Z][A-Z0-9_]{2,})=("[^"\n]*"|'[^'\n]*'|[^\s;'"]*)"#).ok());
        for line in text.lines().map(without_comment) {
            self.add(SignKind::Text, line);
            let found = ASSIGNMENT.iter().flat_map(|regex| regex.captures_iter(line));
            for (_, [name, value]) in found.map(|found| found.extract()) {
                self.add(SignKind::Env, format!("{name}={}", value.trim_matches(['"', '\''])));
            }
        }
    }

    fn label(&mut self, key: &str, value: &str) {
        if INSTANCE_LABELS.contains(&key) {
            self.add(SignKind::Instance, value);
        } else {
            self.add(SignKind::Label, format!("{key}={value}"));
        }
    }

    fn annotation(&mut self, key: &str, value: &str) {
        if key == NETWORKS {
            self.add(SignKind::Network, value);
        } else {
            self.add(SignKind::Annotation, format!("{key}={value}"));
        }
    }

    /// Adds the signs of a Kubernetes object of any kind.
    pub fn object(&mut self, object: &Json) {
        if let Some(name) = object.pointer("/metadata/name").and_then(Json::as_str) {
            self.add(SignKind::Name, name);
        }
        self.value("", object);
    }

    fn value(&mut self, key: &str, value: &Json) {
        match value {
            Json::Object(map) => match key {
                "nodeSelector" | "labels" | "matchLabels" => {
                    map.iter().for_each(|(key, value)| self.label(key, &scalar(value)));
                }
                "annotations" => {
                    // An opt-out beside the marker was added by weftrun, and shows nothing of the cluster.
                    let marked = map.contains_key(MARKER);
                    let is_ours =
                        |key: &str| key.starts_with("kubectl.kubernetes.io/") || marked && key == OPT_OUT;
                    let own = map.iter().filter(|(key, _)| !is_ours(key));
                    own.for_each(|(key, value)| self.annotation(key, &scalar(value)));
                }
                "limits" | "requests" => {
                    let asked = map.iter().filter(|(_, amount)| !amount.is_null() && scalar(amount) != "0");
                    asked.for_each(|(name, _)| self.add(SignKind::Resource, name));
                }
                "status" | "managedFields" => {}
                _ => {
                    if let Some(label) = map.get("key").and_then(Json::as_str) {
                        self.expression(label, map);
                    }
                    map.iter().for_each(|(key, value)| self.value(key, value));
                }
            },
            Json::Array(items) if key == "env" => {
                for item in items {
                    let name = item.get("name").and_then(Json::as_str).unwrap_or_default();
                    let value = item.get("value").map(scalar).unwrap_or_default();
                    self.add(SignKind::Env, format!("{name}={value}"));
                    self.add(SignKind::Text, value);
                }
            }
            Json::Array(items) => items.iter().for_each(|item| self.value(key, item)),
            Json::String(text) => match key {
                "image" => self.add(SignKind::Image, text),
                "deviceClassName" => self.add(SignKind::DeviceClass, text),
                "instanceType" => self.add(SignKind::Instance, text),
                // Names of containers, volumes and classes are arbitrary.
                "name" | "namespace" | "kind" | "apiVersion" | "operator" => {}
                _ => self.text(text),
            },
            _ => {}
        }
    }

    /// Adds the signs of a node affinity term or a toleration.
    fn expression(&mut self, key: &str, map: &serde_json::Map<String, Json>) {
        let values = map.get("values").and_then(Json::as_array).into_iter().flatten();
        let values: Vec<String> = values.chain(map.get("value")).map(scalar).collect();
        if values.is_empty() {
            self.label(key, "");
        }
        values.iter().for_each(|value| self.label(key, value));
    }

    /// Adds the signs of a job file.
    pub(crate) fn job(&mut self, spec: &JobSpec) {
        self.add(SignKind::Name, &spec.name);
        spec.image.iter().for_each(|image| self.add(SignKind::Image, image));
        let queues = spec.queue.iter().flat_map(|queue| queue.split(','));
        queues.for_each(|queue| self.add(SignKind::Partition, queue.trim()));
        spec.annotations.iter().for_each(|(key, value)| self.annotation(key, value));
        for volume in &spec.volumes {
            self.text(&volume.mount);
            if let VolumeSource::HostPath(path) = &volume.source {
                self.text(path);
            }
        }
        for role in &spec.roles {
            role.image.iter().for_each(|image| self.add(SignKind::Image, image));
            role.instance_type.iter().for_each(|name| self.add(SignKind::Instance, name));
            let asked = role.resources.iter().filter(|(_, amount)| amount.as_str() != "0");
            asked.for_each(|(name, _)| self.add(SignKind::Resource, name));
            role.command.iter().for_each(|word| self.text(word));
        }
        // A file that `setup` writes counts where the command runs it.
        let setup = spec.backend.get("slurm").and_then(|own| own.get("setup")).and_then(Json::as_array);
        let setup = setup.into_iter().flatten().filter_map(Json::as_str);
        let commands: Vec<String> = spec.roles.iter().map(|role| role.command.join(" ")).collect();
        let written = setup.chain(commands.iter().map(String::as_str)).collect::<Vec<_>>().join("\n");
        let written = without_output(&written);
        let of_setup = written.lines().count().saturating_sub(commands.join("\n").lines().count());
        written.lines().take(of_setup).for_each(|line| self.lines(line));
        // A script of weftrun itself names every fabric that it looks for.
        if let Some(Code::Script { text, .. }) = &spec.code
            && !text.lines().any(|line| line == NO_EVIDENCE)
        {
            self.script(text);
        }
        for var in spec.env.iter().chain(spec.roles.iter().flat_map(|role| &role.env)) {
            self.add(SignKind::Env, format!("{}={}", var.name, var.value));
            self.add(SignKind::Text, &var.value);
        }
    }

    /// Adds the signs of a cluster: of the nodes that the job can get, its networks and its settings.
    pub(crate) fn facts(&mut self, facts: &ClusterFacts) {
        let nodes = self.nodes(facts);
        let offers = |name: &str| {
            let amounts = nodes.iter().filter_map(|group| group.allocatable.get(name));
            amounts.into_iter().any(|amount| amount != "0")
        };
        self.online = true;
        for group in &nodes {
            group.instance_type.iter().for_each(|name| self.add(SignKind::Instance, name));
            group.labels.iter().for_each(|(key, value)| self.label(key, value));
            group.devices.iter().for_each(|kind| self.add(SignKind::Device, kind.as_str()));
            for name in group.allocatable.keys().filter(|name| offers(name)) {
                // Where some nodes have Neuron devices and others have GPUs, it is unknown which of them a
                // job gets.
                if !(name.starts_with("aws.amazon.com/neuron") && offers("nvidia.com/gpu")) {
                    self.add(SignKind::Resource, name);
                }
            }
        }
        // Device classes may be installed beside a device plugin, whose resources show which is in use.
        let classes = facts.serves.iter().filter_map(|entry| entry.strip_prefix("DeviceClass "));
        for class in classes.filter(|class| !(class.starts_with("efa.") && offers("vpc.amazonaws.com/efa"))) {
            self.add(SignKind::DeviceClass, class);
        }
        for network in &facts.networks {
            // The name of a namespace says nothing about the network.
            let name = network.name.rsplit('/').next().unwrap_or_default();
            let driver = network.driver.as_deref().unwrap_or_default();
            let mode = if network.api == NetworkApi::Gke { "deviceMode=" } else { "" };
            self.add(SignKind::Network, format!("{name} {mode}{driver}"));
        }
        // A job without a partition of its own runs in the default one.
        if !self.names_partition() {
            let default = facts.queues.iter().filter(|queue| queue.default);
            default.for_each(|queue| self.add(SignKind::Partition, &queue.name));
        }
        let settings = facts.settings.iter();
        settings.for_each(|(name, value)| self.add(SignKind::Setting, format!("{name}={value}")));
        self.online = false;
    }

    /// Returns the nodes that the job can get: those of its partitions, or of the default partition. Other
    /// partitions of the cluster may have another fabric.
    fn nodes<'f>(&self, facts: &'f ClusterFacts) -> Vec<&'f NodeGroup> {
        let own = |name: &String| {
            self.all.iter().any(|sign| sign.kind == SignKind::Partition && sign.text == *name)
        };
        let default = |name: &String| facts.queues.iter().any(|queue| queue.default && queue.name == *name);
        let of = |wanted: &dyn Fn(&String) -> bool| -> Vec<&'f NodeGroup> {
            let has = |group: &&NodeGroup| group.queues.is_empty() || group.queues.iter().any(wanted);
            facts.nodes.iter().filter(has).collect()
        };
        if self.names_partition() {
            return of(&own);
        }
        let of_default = of(&default);
        if of_default.is_empty() { facts.nodes.iter().collect() } else { of_default }
    }

    fn names_partition(&self) -> bool {
        self.all.iter().any(|sign| sign.kind == SignKind::Partition)
    }

    /// Adds the signs of an sbatch script.
    pub fn script(&mut self, text: &str) {
        for line in without_output(text).lines() {
            let body = without_comment(line).trim();
            let mut options = Directives::default();
            if let Some(directive) = line.strip_prefix("#SBATCH") {
                options.read_line(directive);
                self.options(&options);
            } else if let Some(modules) = body.strip_prefix("module ").or_else(|| body.strip_prefix("ml ")) {
                modules.split_whitespace().for_each(|word| self.add(SignKind::Module, word));
                self.lines(body);
            } else {
                self.lines(body);
                let telling = ["--container-image", "--environment", "--partition", "--account"];
                if telling.iter().any(|option| body.contains(option)) {
                    // A line can be a part of a command, with open quotes.
                    let words = body.split_whitespace();
                    options.read_words(Program::Srun, &words.map(str::to_owned).collect::<Vec<_>>());
                    self.options(&options);
                }
            }
        }
    }

    fn options(&mut self, options: &Directives) {
        for Directive { name, value } in options.iter() {
            let value = value.as_deref().unwrap_or_default().trim_matches(['"', '\'']);
            match name.as_str() {
                "partition" => value.split(',').for_each(|one| self.add(SignKind::Partition, one)),
                "account" => self.add(SignKind::Account, value),
                "job-name" => self.add(SignKind::Name, value),
                "container-image" | "image" => {
                    self.add(SignKind::Image, value);
                    self.add(SignKind::Option, format!("{name}={value}"));
                }
                "constraint" => {
                    value
                        .split(['|', '&', '[', ']', '*', ','])
                        .for_each(|one| self.add(SignKind::Instance, one));
                    self.add(SignKind::Option, format!("{name}={value}"));
                }
                _ => {
                    self.add(SignKind::Option, format!("{name}={value}"));
                    self.text(value);
                }
            }
        }
    }
}

fn scalar(value: &Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
