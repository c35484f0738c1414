//! The flag of a job that exists only on plain hosts: it sets a key of `[backend.hosts]`.

use clap::Args;
use weftrun::Result;
use weftrun::core::backend::TargetConfig;
use weftrun::core::spec::JobSpec;

use crate::job_flags::require_backend;

const BACKEND: &str = "hosts";

/// Flags of a job on plain hosts.
#[derive(Args, Clone, Debug, Default)]
pub struct HostsFlags {
    /// Wait this long for enough hosts to be free, instead of refusing the job (`30m`)
    #[arg(long, value_name = "DURATION", help_heading = "Plain hosts")]
    pub wait_for_hosts: Option<String>,
}

impl HostsFlags {
    /// Applies it to the keys of the job file.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if the target has no plain hosts.
    pub fn apply(&self, spec: &mut JobSpec, target: &TargetConfig) -> Result<()> {
        let Some(wait) = &self.wait_for_hosts else { return Ok(()) };
        require_backend(
            target,
            BACKEND,
            "`--wait-for-hosts` is for targets of plain hosts: choose one with `-b`",
        )?;
        spec.set_backend(BACKEND, "wait-for-hosts", wait.as_str());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weftrun::ErrorKind;

    #[test]
    fn the_flag_is_a_key_of_the_job_on_plain_hosts_only() {
        let role = weftrun::core::spec::Role::worker().command(["true"]);
        let mut spec = JobSpec::builder("job").role(role).build().unwrap();
        let flags = HostsFlags { wait_for_hosts: Some("30m".to_owned()) };
        flags.apply(&mut spec, &TargetConfig::new("rack", BACKEND, "/state")).unwrap();
        assert_eq!(spec.backend[BACKEND]["wait-for-hosts"], "30m");
        let refused = flags.apply(&mut spec, &TargetConfig::new("pc", "slurm", "/state")).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Usage);
    }
}
