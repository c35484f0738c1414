//! Findings about a job file, without a target.

use weftrun_core::Finding;
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::evidence::Form;
use weftrun_core::fabric::{ClusterFacts, Fabric, FabricPlan, Profiles};
use weftrun_core::spec::{JobFile, JobSpec};

/// Returns what is wrong with a job file, and what its variables would do on its fabric, as `weftrun lint` prints it. Manifests and
/// scripts are checked by [`lint_document`](weftrun_convert::lint_document).
///
/// ```
/// let findings = weftrun::lint_job_file("job.toml", b"name = \"a\"\nnodez = 2\ncommand = [\"true\"]\n");
/// assert!(findings.iter().any(|finding| finding.message.contains("nodez")));
/// ```
pub fn lint_job_file(name: &str, bytes: &[u8]) -> Vec<Finding> {
    match JobFile::parse(name, bytes) {
        Ok(file) => {
            let lints = weftrun_convert::lint::job_file(&file.spec, fabric_of(&file.spec));
            file.findings.iter().cloned().chain(lints).collect()
        }
        Err(error) => error.findings().to_vec(),
    }
}

/// Returns the fabric that a job file requests or implies, by which its settings are judged.
fn fabric_of(spec: &JobSpec) -> Fabric {
    if spec.fabric.kind != Fabric::Auto {
        return spec.fabric.kind;
    }
    let (profiles, catalogue) = (Profiles::builtin(), Catalogue::builtin());
    let profile = match &spec.profile {
        Some(name) => profiles.get(name).ok(),
        None => FabricPlan::by_evidence(spec, &catalogue, &ClusterFacts::default(), &profiles, Form::Made)
            .ok()
            .map(|(_, profile)| profile),
    };
    profile.map_or(Fabric::Auto, |profile| profile.fabric)
}
