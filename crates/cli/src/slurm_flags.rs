//! The flags of a job that exist only on Slurm: they set keys of `[backend.slurm]`.

use clap::Args;
use serde_json::{Value, json};
use weftrun::core::backend::TargetConfig;
use weftrun::core::spec::JobSpec;
use weftrun::{Error, ErrorKind, Result};

use crate::job_flags::require_backend;

const BACKEND: &str = "slurm";

/// Flags of a job on Slurm.
#[derive(Args, Clone, Debug, Default)]
pub struct SlurmFlags {
    /// Additional option of sbatch (`--sbatch=--nice=100`)
    #[arg(long, value_name = "OPTION", help_heading = "Slurm", allow_hyphen_values = true)]
    pub sbatch: Vec<String>,
}

impl SlurmFlags {
    pub fn are_given(&self) -> bool {
        !self.sbatch.is_empty()
    }

    /// Applies them to the keys of the job file.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if the target is not a Slurm target, or a value is not one of its jobs.
    pub fn apply(&self, spec: &mut JobSpec, target: &TargetConfig) -> Result<()> {
        if !self.are_given() {
            return Ok(());
        }
        require_backend(target, BACKEND, "`--sbatch` is for Slurm targets: choose one with `-b`")?;
        let own = spec.backend.entry(BACKEND.to_owned()).or_insert_with(|| json!({}));
        let Value::Object(own) = own else {
            return Err(Error::new(ErrorKind::InvalidSpec, "`backend.slurm` is not a table"));
        };
        if let Some(wrong) = self.sbatch.iter().find(|option| !is_option(option)) {
            let message = format!("--sbatch: `{wrong}` is not an option of sbatch");
            return Err(Error::new(ErrorKind::Usage, message)
                .hint("write `--sbatch=--NAME=VALUE` or `--sbatch=--NAME`, with the long name: `--sbatch=--nice=100`"));
        }
        if !self.sbatch.is_empty() {
            let given = self.sbatch.iter().map(|option| json!(option));
            let all: Vec<Value> = own
                .get("sbatch")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .cloned()
                .chain(given)
                .collect();
            own.insert("sbatch".to_owned(), Value::Array(all));
        }
        Ok(())
    }
}

/// Returns whether a text is `--name` or `--name=value`.
fn is_option(text: &str) -> bool {
    let name = text.strip_prefix("--").map(|body| body.split_once('=').map_or(body, |(name, _)| name));
    name.is_some_and(|name| {
        name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(flags: &SlurmFlags, own: Value) -> Result<Value> {
        let mut spec =
            JobSpec::builder("job").role(weftrun::core::spec::Role::worker().command(["true"])).build()?;
        spec.backend.insert(BACKEND.to_owned(), own);
        flags.apply(&mut spec, &TargetConfig::new("pc", "slurm", "/state"))?;
        Ok(spec.backend[BACKEND].clone())
    }

    #[test]
    fn flags_are_added_to_the_keys_of_the_job_file() {
        let flags = SlurmFlags { sbatch: ["--nice=100", "--contiguous"].map(str::to_owned).to_vec() };
        let own = applied(&flags, json!({"dependency": "singleton", "sbatch": ["--hold"]})).unwrap();
        assert_eq!(
            own,
            json!({
                "dependency": "singleton",
                "sbatch": ["--hold", "--nice=100", "--contiguous"],
            })
        );
    }

    /// sbatch would take a word that is not an option for the name of a script.
    #[test]
    fn an_option_without_its_dashes_is_refused() {
        for text in ["junk", "-n4", "--", "--=4", "--nice 4", "nice=4", "--9", ""] {
            let flags = SlurmFlags { sbatch: vec![text.to_owned()] };
            let refused = applied(&flags, json!({})).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Usage, "{text}");
            assert!(refused.message().contains(&format!("`{text}`")), "{refused}");
        }
    }

    #[test]
    fn other_backends_have_none_of_them() {
        let mut spec = JobSpec::builder("job")
            .role(weftrun::core::spec::Role::worker().command(["true"]))
            .build()
            .unwrap();
        let flags = SlurmFlags { sbatch: vec!["--hold".to_owned()] };
        let refused = flags.apply(&mut spec, &TargetConfig::new("local", "local", "/state")).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Usage);
        assert!(
            SlurmFlags::default().apply(&mut spec, &TargetConfig::new("local", "local", "/state")).is_ok()
        );
    }
}
