//! The flags of a job that exist only on Slurm: they set keys of `[backend.slurm]`.

use clap::Args;
use serde_json::{Map, Value, json};
use weftrun::core::backend::TargetConfig;
use weftrun::core::job::JobHandle;
use weftrun::core::spec::JobSpec;
use weftrun::{Error, ErrorKind, Result};

use crate::job_flags::require_backend;

const BACKEND: &str = "slurm";

/// Flags of a job on Slurm.
#[derive(Args, Clone, Debug, Default)]
pub struct SlurmFlags {
    /// Start after this job has succeeded: a handle or a job id; `afterany:HANDLE` sets another condition
    #[arg(long, value_name = "HANDLE", help_heading = "Slurm")]
    pub after: Vec<String>,
    /// Submit an array of jobs, as `sbatch --array`
    #[arg(long, value_name = "TASKS", help_heading = "Slurm")]
    pub array: Option<String>,
    /// Additional option of sbatch (`--sbatch=--nice=100`)
    #[arg(long, value_name = "OPTION", help_heading = "Slurm", allow_hyphen_values = true)]
    pub sbatch: Vec<String>,
}

impl SlurmFlags {
    pub fn are_given(&self) -> bool {
        self.array.is_some() || !self.after.is_empty() || !self.sbatch.is_empty()
    }

    /// Applies them to the keys of the job file.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if the target is not a Slurm target, or a value is not one of its jobs.
    pub fn apply(&self, spec: &mut JobSpec, target: &TargetConfig) -> Result<()> {
        if !self.are_given() {
            return Ok(());
        }
        require_backend(
            target,
            BACKEND,
            "`--after`, `--array` and `--sbatch` are for Slurm targets: choose one with `-b`",
        )?;
        let own = spec.backend.entry(BACKEND.to_owned()).or_insert_with(|| json!({}));
        let Value::Object(own) = own else {
            return Err(Error::new(ErrorKind::InvalidSpec, "`backend.slurm` is not a table"));
        };
        if let Some(tasks) = &self.array {
            own.insert("array".to_owned(), json!(tasks));
        }
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
        self.depend(own, target)
    }

    fn depend(&self, own: &mut Map<String, Value>, target: &TargetConfig) -> Result<()> {
        if self.after.is_empty() {
            return Ok(());
        }
        let mut all: Vec<String> =
            own.get("dependency").and_then(Value::as_str).map(str::to_owned).into_iter().collect();
        for text in &self.after {
            let (condition, job) = match text.split_once(':') {
                Some((condition, job)) if condition.starts_with("after") => (condition, job),
                _ => ("afterok", text.as_str()),
            };
            all.push(format!("{condition}:{}", number(job, target)?));
        }
        own.insert("dependency".to_owned(), json!(all.join(",")));
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

/// Returns the Slurm job id of a handle, or of a plain id.
fn number(text: &str, target: &TargetConfig) -> Result<String> {
    let is_id = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_digit())
            && text.bytes().all(|b| b.is_ascii_digit() || b == b'_')
    };
    if is_id(text) {
        return Ok(text.to_owned());
    }
    let wrong = |message: String| {
        Error::new(ErrorKind::Usage, message)
            .hint(format!("give a handle such as `slurm://{}/123`, or a Slurm job id", target.name))
    };
    if !text.contains("://") {
        return Err(wrong(format!("`{text}` is neither a handle nor a Slurm job id")));
    }
    let handle: JobHandle = text.parse()?;
    if handle.backend() != BACKEND || handle.target() != target.name || !is_id(handle.name()) {
        return Err(wrong(format!("`{text}` is not a job of target `{}`", target.name)));
    }
    Ok(handle.name().to_owned())
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
        let flags = SlurmFlags {
            after: ["slurm://pc/12", "34_5", "afterany:slurm://pc/56"].map(str::to_owned).to_vec(),
            array: Some("0-9%2".to_owned()),
            sbatch: ["--nice=100", "--contiguous"].map(str::to_owned).to_vec(),
        };
        let own = applied(&flags, json!({"dependency": "singleton", "sbatch": ["--hold"], "array": "1-2"}))
            .unwrap();
        assert_eq!(
            own,
            json!({
                "dependency": "singleton,afterok:12,afterok:34_5,afterany:56",
                "sbatch": ["--hold", "--nice=100", "--contiguous"],
                "array": "0-9%2",
            })
        );
    }

    #[test]
    fn what_is_no_job_of_the_target_is_refused() {
        for text in
            ["train", "slurm://other/12", "kubeflow://pc/ns/12", "slurm://pc/12;rm", "afterok:x", "1 2", ""]
        {
            let flags = SlurmFlags { after: vec![text.to_owned()], ..SlurmFlags::default() };
            let refused = applied(&flags, json!({})).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Usage, "{text}: {refused}");
        }
    }

    /// sbatch would take a word that is not an option for the name of a script.
    #[test]
    fn an_option_without_its_dashes_is_refused() {
        for text in ["junk", "-n4", "--", "--=4", "--nice 4", "nice=4", "--9", ""] {
            let flags = SlurmFlags { sbatch: vec![text.to_owned()], ..SlurmFlags::default() };
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
        let flags = SlurmFlags { array: Some("1-2".to_owned()), ..SlurmFlags::default() };
        let refused = flags.apply(&mut spec, &TargetConfig::new("local", "local", "/state")).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Usage);
        assert!(
            SlurmFlags::default().apply(&mut spec, &TargetConfig::new("local", "local", "/state")).is_ok()
        );
    }
}
