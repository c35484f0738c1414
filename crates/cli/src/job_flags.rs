//! The job: a file, flags, or a file with flags over it.

use std::io::{BufRead, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use weftrun::core::log::clean_text;
use weftrun::core::spec::{JobSpec, Overrides};
use weftrun::{Error, ErrorKind, JobSource, Outside, Result};

use crate::context::Context;
use crate::diagnostics;
use crate::fabric_flags::FabricFlags;

/// The job: a file, flags, or a file with flags over it.
#[derive(Args, Clone, Default)]
pub struct JobFlags {
    /// Job file (TOML or YAML); `-` reads stdin
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Name of the job
    #[arg(long, value_name = "NAME", help_heading = "Job")]
    pub name: Option<String>,
    /// Add a suffix to the name if it is taken
    #[arg(long, help_heading = "Job")]
    pub name_suffix: bool,
    /// Container image
    #[arg(long, short, value_name = "IMAGE", help_heading = "Job")]
    pub image: Option<String>,
    /// GPU nodes in total
    #[arg(long, short = 'N', value_name = "N", help_heading = "Job")]
    pub nodes: Option<String>,
    /// GPUs on each node
    #[arg(long, short = 'g', value_name = "N", help_heading = "Job")]
    pub gpus_per_node: Option<String>,
    /// Ranks on each node, if not one per GPU
    #[arg(long, value_name = "N", help_heading = "Job")]
    pub ranks_per_node: Option<String>,
    /// Who starts the processes of a node
    #[arg(long, value_enum, value_name = "WHO", help_heading = "Job")]
    pub launch: Option<LaunchArg>,
    /// CPUs of each node
    #[arg(long, value_name = "QTY", help_heading = "Job")]
    pub cpus: Option<String>,
    /// Size of /dev/shm
    #[arg(long, value_name = "QTY", help_heading = "Job")]
    pub shm: Option<String>,
    /// Additional resource of each node
    #[arg(long, value_name = "NAME=QTY", help_heading = "Job")]
    pub resource: Vec<String>,
    /// Script to send with the job
    #[arg(long, value_name = "FILE", help_heading = "Job")]
    pub script: Option<String>,
    /// Allow a script or runtime outside the job file's folder, without asking
    #[arg(long, help_heading = "Job")]
    pub allow_outside: bool,
    /// Git repository to clone before the start
    #[arg(long, value_name = "URL", help_heading = "Job", conflicts_with = "script")]
    pub git: Option<String>,
    /// Branch, tag or commit of the repository
    #[arg(long, value_name = "REF", help_heading = "Job", requires = "git")]
    pub git_ref: Option<String>,
    /// Environment variable
    #[arg(long, short, value_name = "NAME=VALUE", help_heading = "Job")]
    pub env: Vec<String>,
    /// Environment variable from the cluster's secret store
    #[arg(long, value_name = "NAME=SECRET/KEY", help_heading = "Job")]
    pub secret: Vec<String>,
    /// Volume: NAME:/MOUNT=claim:CLAIM, =host:/PATH or =memory:SIZE; append `,ro` for read-only
    #[arg(long, value_name = "VOLUME", help_heading = "Job")]
    pub volume: Vec<String>,
    /// Working directory in the container
    #[arg(long, value_name = "DIR", help_heading = "Job")]
    pub workdir: Option<String>,
    /// Queue, partition or node pool
    #[arg(long, value_name = "NAME", help_heading = "Job")]
    pub queue: Option<String>,
    /// Priority class or qos
    #[arg(long, value_name = "NAME", help_heading = "Job")]
    pub priority: Option<String>,
    /// What happens when a rank fails: never, on-failure, or how often all start again
    #[arg(long, value_name = "N", help_heading = "Job")]
    pub restart: Option<String>,
    /// Time limit of the job (90s, 15m, 4h, 1d12h)
    #[arg(long, value_name = "TIME", help_heading = "Job")]
    pub time_limit: Option<String>,
    /// Label of the submitted job
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Job")]
    pub label: Vec<String>,
    /// Annotation of every pod
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Job")]
    pub annotation: Vec<String>,
    /// The fabric's options
    #[command(flatten)]
    pub fabric: FabricFlags,
    /// Command of the workers
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

impl std::fmt::Debug for JobFlags {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The values of `--env` may be secrets.
        f.debug_struct("JobFlags").field("file", &self.file).field("name", &self.name).finish_non_exhaustive()
    }
}

impl JobFlags {
    /// Reads the file, puts the flags over it, and checks the whole. Warnings are said.
    pub fn spec(&self, context: &Context) -> Result<JobSpec> {
        if self.file.is_none() && self.command.is_empty() && self.script.is_none() {
            return Err(Error::new(ErrorKind::Usage, "neither a job file nor a command was given")
                .hint("weftrun submit job.toml")
                .hint("weftrun submit --nodes 2 --gpus-per-node 8 --image IMAGE -- python train.py"));
        }
        let source = self.file.as_ref().map(JobSource::read).transpose()?;
        if let Some(source) = &source {
            diagnostics::remember(&source.name, &source.bytes);
        }
        let allow = |outside: &Outside| self.allow(context, outside);
        let file = context.client()?.job_file_with(source.as_ref(), &self.overrides(context), &allow)?;
        context.note(&file.findings);
        context.out.findings(&file.findings);
        let mut spec = file.spec;
        if self.name_suffix {
            spec.name = suffixed(&spec.name);
        }
        Ok(spec)
    }

    /// Whether a file outside the job file's folder is read: as the flag says, or as the user answers on a terminal.
    fn allow(&self, context: &Context, outside: &Outside) -> Result<()> {
        if self.allow_outside {
            return Ok(());
        }
        // Where the job file itself comes from stdin there is nobody to answer.
        let asks = std::io::stdin().is_terminal() && context.out.is_terminal();
        if !asks || self.file.as_deref() == Some(Path::new("-")) {
            return Err(outside.refusal());
        }
        context.out.stderr(&clean_text(&format!(
            "the {} `{}` lies outside the job file's folder: read {} and send it with the job? [y/N]",
            outside.what,
            outside.named,
            outside.path.display()
        )));
        let mut answer = String::new();
        let read = std::io::stdin().lock().take(64).read_line(&mut answer);
        if read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes") {
            Ok(())
        } else {
            Err(outside.refusal())
        }
    }

    /// The flags as they were given.
    fn overrides(&self, context: &Context) -> Overrides {
        let of_program =
            || self.command.first().or(self.script.as_ref()).map(|program| default_name(program));
        let named = self.name.clone().or_else(|| self.file.is_none().then(of_program).flatten());
        let mut overrides = Overrides {
            name: named,
            image: self.image.clone(),
            launch: self.launch.as_ref().map(word),
            nodes: self.nodes.clone(),
            gpus_per_node: self.gpus_per_node.clone(),
            ranks_per_node: self.ranks_per_node.clone(),
            command: self.command.clone(),
            cpus: self.cpus.clone(),
            shm: self.shm.clone(),
            resource: self.resource.clone(),
            script: self.script.clone(),
            git: self.git.clone(),
            git_ref: self.git_ref.clone(),
            env: self.env.clone(),
            secret: self.secret.clone(),
            volume: self.volume.clone(),
            workdir: self.workdir.clone(),
            profile: context.global.profile.clone(),
            queue: self.queue.clone(),
            priority: self.priority.clone(),
            restart: self.restart.clone(),
            time_limit: self.time_limit.clone(),
            label: self.label.clone(),
            annotation: self.annotation.clone(),
            ..Overrides::default()
        };
        self.fabric.overrides(&mut overrides);
        overrides
    }
}

/// The word a choice of clap's has on the command line, which is the one in job files.
pub fn word<T: ValueEnum>(value: &T) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
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

/// Reads `90s`, `15m`, `4h`, `2d`.
pub fn duration(text: &str) -> std::result::Result<Duration, String> {
    weftrun::core::text::parse_duration(text)
        .ok_or_else(|| format!("`{text}` is not a duration such as 90s, 15m, 4h"))
}

/// A name that nobody has yet: the time in base 36 behind it, within the 63 characters of a DNS label.
fn suffixed(name: &str) -> String {
    let mut number = jiff::Timestamp::now().as_microsecond().unsigned_abs() % 36u64.pow(5);
    let mut suffix = String::new();
    for _ in 0..5 {
        suffix.extend(char::from_digit(u32::try_from(number % 36).unwrap_or(0), 36));
        number /= 36;
    }
    let kept: String = name.chars().take(40).collect();
    format!("{}-{suffix}", kept.trim_end_matches('-'))
}
