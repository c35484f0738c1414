//! The job: a file, flags, or a file overridden by flags.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use weftrun::core::backend::TargetConfig;
use weftrun::core::log::clean_text;
use weftrun::core::spec::{JobSpec, Overrides};
use weftrun::{Error, ErrorKind, JobSource, Outside, Result};

use crate::context::Context;
use crate::diagnostics;
use crate::hosts_flags::HostsFlags;
use crate::key_flags::AllFlags;
use crate::slurm_flags::SlurmFlags;

/// The job: a file, flags, or a file with flags over it.
#[derive(Args, Clone, Debug, Default)]
pub struct JobFlags {
    /// Job file (TOML or YAML); `-` reads stdin
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Add a suffix to the name if it is taken
    #[arg(long, help_heading = "Job")]
    pub name_suffix: bool,
    /// Allow a script or runtime outside the job file's folder, without asking
    #[arg(long, help_heading = "Job")]
    pub allow_outside: bool,
    /// The keys of the job
    #[command(flatten)]
    pub keys: AllFlags,
    /// Keys that only Slurm has
    #[command(flatten)]
    pub slurm: SlurmFlags,
    /// Keys that only plain hosts have
    #[command(flatten)]
    pub hosts: HostsFlags,
    /// Command of the workers
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<String>,
}

impl JobFlags {
    /// Reads the file, applies the flags, and checks the result. Warnings are printed.
    pub fn spec(&self, context: &Context) -> Result<JobSpec> {
        if self.file.is_none() && self.command.is_empty() && self.script().is_none() {
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
        if self.hosts.wait_for_hosts.is_some() {
            self.hosts.apply(&mut spec, &context.target(&context.client()?)?)?;
        }
        if self.slurm.are_given() {
            self.slurm.apply(&mut spec, &context.target(&context.client()?)?)?;
        }
        Ok(spec)
    }

    /// Allows or refuses to read a file outside the job file's folder: according to the flag, or to the
    /// user's answer on a terminal.
    fn allow(&self, context: &Context, outside: &Outside) -> Result<()> {
        if self.allow_outside {
            return Ok(());
        }
        // If the job file itself is read from stdin, no prompt is possible.
        let asks = std::io::stdin().is_terminal() && context.out.is_terminal();
        if !asks || self.file.as_deref() == Some(Path::new("-")) {
            return Err(outside.refusal());
        }
        let answer = context.ask(&clean_text(&format!(
            "the {} `{}` is outside the job file's folder: read {} and send it with the job? [y/N]",
            outside.what,
            outside.named,
            outside.path.display()
        )));
        if matches!(&*answer, "y" | "Y" | "yes") { Ok(()) } else { Err(outside.refusal()) }
    }

    /// Returns the given flags, with the command; a job without a file is named after its program.
    fn overrides(&self, context: &Context) -> Overrides {
        let mut overrides = self.keys.given.clone().command(&self.command);
        let program = self.command.first().map(String::as_str).or_else(|| self.script());
        if let Some(program) = program.filter(|_| self.file.is_none() && overrides.get("--name").is_none()) {
            overrides.set("--name", default_name(program));
        }
        if let Some(profile) = &context.global.profile {
            overrides.set("--profile", profile);
        }
        overrides
    }

    fn script(&self) -> Option<&str> {
        self.keys.given.get("--script")
    }
}

/// Derives a job name from a program's name.
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

/// Parses `90s`, `15m`, `4h`, `2d`.
pub fn duration(text: &str) -> std::result::Result<Duration, String> {
    weftrun::core::text::parse_duration(text)
        .ok_or_else(|| format!("`{text}` is not a duration such as 90s, 15m, 4h"))
}

/// Parses a duration of at least one second, for what is cancelled after it.
pub fn limit(text: &str) -> std::result::Result<Duration, String> {
    match duration(text)? {
        limit if limit < Duration::from_secs(1) => Err(format!("`{text}` is less than a second")),
        limit => Ok(limit),
    }
}

/// Refuses a flag that belongs to another backend than that of the target; the hint says where it belongs.
///
/// # Errors
/// [`ErrorKind::Usage`].
pub fn require_backend(target: &TargetConfig, backend: &str, hint: &str) -> Result<()> {
    if target.backend == backend {
        return Ok(());
    }
    let message = format!("target `{}` is of backend `{}`", target.name, target.backend);
    Err(Error::new(ErrorKind::Usage, message).hint(hint))
}

/// Returns a unique name: with the time in base 36 as a suffix, within the 63 characters of a DNS label.
fn suffixed(name: &str) -> String {
    let mut number = weftrun::clock::now().as_microsecond().unsigned_abs() % 36u64.pow(5);
    let mut suffix = String::new();
    for _ in 0..5 {
        suffix.extend(char::from_digit(u32::try_from(number % 36).unwrap_or(0), 36));
        number /= 36;
    }
    let kept: String = name.chars().take(40).collect();
    format!("{}-{suffix}", kept.trim_end_matches('-'))
}
