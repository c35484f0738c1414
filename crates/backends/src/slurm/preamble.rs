//! The beginning of every program: Slurm's commands in the PATH, and none of the caller's variables that change them.

use weftrun_core::Result;

use super::config::SlurmTarget;
use super::quote;

/// Folders of Slurm's commands that the PATH of a non-login shell often lacks: ParallelCluster, plain
/// installs, Bright.
const USUAL: &str = "/opt/slurm/bin:/usr/local/slurm/bin:/cm/shared/apps/slurm/current/bin";

/// Returns the beginning of every program: it adds the commands to the PATH, and unsets the caller's
/// variables that would change their behavior (`SBATCH_PARTITION` would override the script's own line,
/// `SQUEUE_FORMAT` the requested format).
pub fn preamble(settings: &SlurmTarget) -> Result<String> {
    let path = match &settings.bin_dir {
        Some(dir) => format!("PATH={}:$PATH\n", quote::word(dir)?),
        None => format!("PATH=$PATH:{USUAL}\n"),
    };
    // Few environments contain any, and the check starts no process.
    let families = ["SLURM_", "SBATCH_", "SQUEUE_", "SACCT_", "SINFO_", "SCANCEL_", "SCONTROL_"];
    let kept = "-e '/^SLURM_CONF=/d' -e '/^SLURM_JWT=/d'";
    let names: Vec<String> =
        families.iter().map(|family| format!("-e 's/^\\({family}[A-Za-z0-9_]*\\)=.*/\\1/p'")).collect();
    let any: Vec<String> = families.iter().map(|family| format!("*{family}*")).collect();
    let clear = format!(
        "case $(export -p) in {}) unset $(env | sed -n {kept} {});; esac",
        any.join("|"),
        names.join(" ")
    );
    let profile = "command -v squeue > /dev/null 2>&1 || [ ! -r /etc/profile ] || . /etc/profile > /dev/null 2>&1 < /dev/null";
    Ok(format!("{path}{clear}\n{profile}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weftrun_testkit::child;

    #[test]
    fn variables_that_change_slurms_commands_are_cleared() {
        let text = format!(
            "export SBATCH_PARTITION=x SQUEUE_FORMAT=%i SLURM_CONF=/c\n{}echo ${{SBATCH_PARTITION-unset}} ${{SQUEUE_FORMAT-unset}} ${{SLURM_CONF-unset}}",
            preamble(&SlurmTarget::default()).unwrap()
        );
        let output = child::command("/bin/sh").args(["-c", &text]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "unset unset /c\n");
    }
}
