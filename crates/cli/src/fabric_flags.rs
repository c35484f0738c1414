//! The fabric's options, the same words in every verb that mutates.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use weftrun::core::convert::TrainerVersion;
use weftrun::core::fabric::{Fabric, FabricRequest, Gid, Inject, RuleSetting, Stack, Webhook};
use weftrun::core::spec::Overrides;

use crate::job_flags::word;

/// The fabric's options.
#[derive(Args, Clone, Debug, Default)]
pub struct FabricFlags {
    /// Fabric of the job
    #[arg(long, value_enum, value_name = "FABRIC", help_heading = "Fabric")]
    pub fabric: Option<FabricArg>,
    /// Require a rule; an error if it cannot be applied
    #[arg(long, value_name = "ID", help_heading = "Fabric")]
    pub fabric_rule: Vec<String>,
    /// Disable a rule and those that depend on it (`weftrun explain ID` describes it)
    #[arg(long, value_name = "ID", help_heading = "Fabric")]
    pub no_fabric_rule: Vec<String>,
    /// Where the fabric's libraries come from
    #[arg(long, value_enum, value_name = "WHERE", help_heading = "Fabric")]
    pub stack: Option<StackArg>,
    /// Who adds the libraries to the pods
    #[arg(long, value_enum, value_name = "WHO", help_heading = "Fabric")]
    pub inject: Option<InjectArg>,
    /// Whether the cluster has a webhook that adds EFA
    #[arg(long, value_enum, value_name = "YES|NO", help_heading = "Fabric")]
    pub webhook: Option<WebhookArg>,
    /// How the RoCE GID index is found: auto, compute, or a number
    #[arg(long, value_parser = parse_gid, value_name = "GID", help_heading = "Fabric")]
    pub gid: Option<Gid>,
    /// Network attachment (NAMESPACE/NAME) instead of the profile's
    #[arg(long, value_name = "NS/NAME", help_heading = "Fabric")]
    pub network: Vec<String>,
    /// Instance type of the worker nodes
    #[arg(long, value_name = "TYPE", help_heading = "Fabric")]
    pub instance_type: Option<String>,
    /// Memory to request if a worker requests neither CPU nor memory (huge pages need one of them)
    #[arg(long, value_name = "QTY", help_heading = "Fabric")]
    pub memory: Option<String>,
    /// Set NCCL_DEBUG=INFO if it is unset, so that the transport can be detected
    #[arg(long, help_heading = "Fabric")]
    pub detect: bool,
    /// Pin the network plugin, so that a fallback fails; exit 7 if the transport is unknown
    #[arg(long, help_heading = "Fabric")]
    pub strict: bool,
    /// Version of Kubeflow Trainer to write TrainJobs for: 2.0, 2.1, 2.2 or 2.3
    #[arg(long, value_parser = trainer_version, value_name = "VERSION", help_heading = "Fabric")]
    pub trainer_version: Option<TrainerVersion>,
    /// Training runtime of a TrainJob (a YAML file with a ClusterTrainingRuntime or TrainingRuntime)
    #[arg(long, value_name = "FILE", help_heading = "Fabric")]
    pub runtime: Vec<PathBuf>,
}

fn trainer_version(text: &str) -> Result<TrainerVersion, String> {
    TrainerVersion::parse(text).ok_or_else(|| format!("`{text}` is none of 2.0, 2.1, 2.2, 2.3"))
}

impl FabricFlags {
    /// Puts what was said on the command line into the flags of a job.
    pub fn overrides(&self, job: &mut Overrides) {
        job.fabric = self.fabric.as_ref().map(word);
        job.no_fabric_rule.clone_from(&self.no_fabric_rule);
        job.fabric_rule = self.fabric_rule.iter().map(|id| format!("{id}=on")).collect();
        job.stack = self.stack.as_ref().map(word);
        job.inject = self.inject.as_ref().map(word);
        job.webhook = self.webhook.as_ref().map(word);
        job.gid = self.gid.map(|gid| match gid {
            Gid::Auto => "auto".to_owned(),
            Gid::Compute => "compute".to_owned(),
            Gid::Index(index) => index.to_string(),
        });
        job.network.clone_from(&self.network);
        job.instance_type.clone_from(&self.instance_type);
        job.memory.clone_from(&self.memory);
        job.detect = self.detect.then_some(true);
        job.strict = self.strict.then_some(true);
        job.trainer_version = self.trainer_version.map(|version| version.to_string());
        job.runtime = self.runtime.last().map(|file| file.display().to_string());
    }

    /// Puts what was said on the command line over what a job file said.
    pub fn apply(&self, request: &mut FabricRequest) {
        if let Some(fabric) = self.fabric {
            request.kind = fabric.into();
        }
        for (ids, setting) in [(&self.fabric_rule, RuleSetting::On), (&self.no_fabric_rule, RuleSetting::Off)]
        {
            request.rules.extend(ids.iter().map(|id| (id.clone(), setting)));
        }
        if let Some(stack) = self.stack {
            request.stack = match stack {
                StackArg::Auto => Stack::Auto,
                StackArg::Mounted => Stack::Mounted,
                StackArg::Bundled => Stack::Bundled,
            };
        }
        if let Some(inject) = self.inject {
            request.inject = match inject {
                InjectArg::Client => Inject::Client,
                InjectArg::Server => Inject::Server,
            };
        }
        if let Some(webhook) = self.webhook {
            request.webhook = match webhook {
                WebhookArg::Auto => Webhook::Auto,
                WebhookArg::Yes => Webhook::Yes,
                WebhookArg::No => Webhook::No,
            };
        }
        request.gid = self.gid.or(request.gid);
        if !self.network.is_empty() {
            request.networks.clone_from(&self.network);
        }
        for (flag, value) in
            [(&self.instance_type, &mut request.instance_type), (&self.memory, &mut request.memory)]
        {
            if flag.is_some() {
                value.clone_from(flag);
            }
        }
        if self.detect {
            request.detect = Some(true);
        }
        request.strict |= self.strict;
    }
}

fn parse_gid(text: &str) -> Result<Gid, String> {
    match text {
        "auto" => Ok(Gid::Auto),
        "compute" => Ok(Gid::Compute),
        number => number
            .parse()
            .map(Gid::Index)
            .map_err(|_| format!("`{number}` is neither `auto`, `compute` nor a number")),
    }
}

/// The words of `--fabric`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum FabricArg {
    /// Whatever the cluster has
    Auto,
    /// AWS Elastic Fabric Adapter
    Efa,
    /// RDMA over Converged Ethernet
    Roce,
    /// InfiniBand
    #[value(alias = "ib")]
    Infiniband,
    /// Plain TCP
    Tcp,
    /// Leave the job alone
    #[value(alias = "none")]
    Off,
}

impl From<FabricArg> for Fabric {
    fn from(arg: FabricArg) -> Self {
        match arg {
            FabricArg::Auto => Self::Auto,
            FabricArg::Efa => Self::Efa,
            FabricArg::Roce => Self::Roce,
            FabricArg::Infiniband => Self::InfiniBand,
            FabricArg::Tcp => Self::Tcp,
            FabricArg::Off => Self::Off,
        }
    }
}

/// The words of `--stack`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum StackArg {
    /// Mounted, unless the job names paths of a bundled one
    Auto,
    /// Mounted from the node
    Mounted,
    /// In the image
    Bundled,
}

/// The words of `--inject`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum InjectArg {
    /// weftrun adds it
    Client,
    /// The cluster's webhook adds it
    Server,
}

/// The words of `--webhook`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum WebhookArg {
    /// Ask the cluster
    Auto,
    /// There is one
    Yes,
    /// There is none
    No,
}
