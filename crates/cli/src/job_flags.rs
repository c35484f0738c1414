//! The job: a file, flags, or a file with flags over it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use weftrun::core::spec::{EnvVar, JobSpec, Launch, Role};
use weftrun::{Error, ErrorKind, Result};

use crate::context::Context;
use crate::fabric_flags::FabricFlags;

/// The job: a file, flags, or a file with flags over it.
#[derive(Args, Clone, Debug, Default)]
pub struct JobFlags {
    /// Job file (TOML or YAML); `-` reads stdin
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Name of the job
    #[arg(long, value_name = "NAME", help_heading = "Job")]
    pub name: Option<String>,
    /// Make a new name by adding a suffix, where the name is taken
    #[arg(long, help_heading = "Job")]
    pub name_suffix: bool,
    /// Container image
    #[arg(long, value_name = "IMAGE", help_heading = "Job")]
    pub image: Option<String>,
    /// GPU nodes in total
    #[arg(long, short = 'N', value_name = "N", help_heading = "Job")]
    pub nodes: Option<u32>,
    /// GPUs on each node
    #[arg(long, short = 'g', value_name = "N", help_heading = "Job")]
    pub gpus_per_node: Option<u32>,
    /// Ranks on each node, where it is not one per GPU
    #[arg(long, value_name = "N", help_heading = "Job")]
    pub ranks_per_node: Option<u32>,
    /// Who starts the processes of a node
    #[arg(long, value_enum, value_name = "WHO", help_heading = "Job")]
    pub launch: Option<LaunchArg>,
    /// Environment variable
    #[arg(long, short, value_parser = parse_env, value_name = "NAME=VALUE", help_heading = "Job")]
    pub env: Vec<EnvVar>,
    /// Queue, partition or node pool
    #[arg(long, value_name = "NAME", help_heading = "Job")]
    pub queue: Option<String>,
    /// Priority class or qos
    #[arg(long, value_name = "NAME", help_heading = "Job")]
    pub priority: Option<String>,
    /// How long the job may run (90s, 15m, 4h)
    #[arg(long, value_parser = duration, value_name = "TIME", help_heading = "Job")]
    pub time_limit: Option<Duration>,
    /// The fabric's options
    #[command(flatten)]
    pub fabric: FabricFlags,
    /// The command of the workers, behind `--`
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<String>,
}

/// The words of `--launch`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum LaunchArg {
    /// `torchrun` once a node; CMD is the Python script
    Torchrun,
    /// One launcher with `mpirun`
    Mpi,
    /// The command once a GPU
    PerRank,
    /// The command once a node
    PerNode,
}

impl JobFlags {
    /// Reads the file, puts the flags over it, and checks the whole.
    pub fn spec(&self, _context: &Context) -> Result<JobSpec> {
        if let Some(file) = &self.file {
            return Err(
                Error::new(ErrorKind::Unsupported, "job files are not read yet").with("file", file.display())
            );
        }
        if self.command.is_empty() {
            return Err(Error::new(ErrorKind::Usage, "neither a job file nor a command was given")
                .hint("weftrun submit job.toml")
                .hint("weftrun submit --nodes 2 --gpus-per-node 8 --image IMAGE -- python train.py"));
        }
        let name = self.name.clone().unwrap_or_else(|| default_name(&self.command[0]));
        let mut role = Role::worker().nodes(self.nodes.unwrap_or(1)).command(self.command.clone());
        role.gpus_per_node = self.gpus_per_node.unwrap_or(0);
        role.ranks_per_node = self.ranks_per_node;
        let mut builder = JobSpec::builder(name).role(role);
        if let Some(launch) = self.launch {
            builder = builder.launch(launch.into());
        }
        let mut spec = builder.build()?;
        self.fabric.apply(&mut spec.fabric);
        spec.env.clone_from(&self.env);
        spec.image.clone_from(&self.image);
        spec.queue.clone_from(&self.queue);
        spec.priority.clone_from(&self.priority);
        spec.time_limit = self.time_limit;
        Ok(spec)
    }
}

impl From<LaunchArg> for Launch {
    fn from(arg: LaunchArg) -> Self {
        match arg {
            LaunchArg::Torchrun => Self::Torchrun,
            LaunchArg::Mpi => Self::Mpi,
            LaunchArg::PerRank => Self::PerRank,
            LaunchArg::PerNode => Self::PerNode,
        }
    }
}

/// A job name made of a program's name.
fn default_name(program: &str) -> String {
    let stem = program.rsplit('/').next().unwrap_or(program).split('.').next().unwrap_or("job");
    let name: String = stem
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .take(40)
        .collect();
    let name = name.trim_matches('-').to_owned();
    if name.starts_with(|c: char| c.is_ascii_alphabetic()) { name } else { "job".to_owned() }
}

fn parse_env(text: &str) -> std::result::Result<EnvVar, String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok(EnvVar { name: name.to_owned(), value: value.to_owned() })
}

/// Reads `90s`, `15m`, `4h`, `2d`.
pub fn duration(text: &str) -> std::result::Result<Duration, String> {
    weftrun::core::spec::parse_duration(text)
        .ok_or_else(|| format!("`{text}` is not a duration such as 90s, 15m, 4h"))
}
