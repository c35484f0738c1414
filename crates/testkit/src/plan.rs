//! Planned jobs without config files, catalogue or cluster.

use std::path::Path;

use weftrun_core::backend::{ClusterFacts, PlannedJob};
use weftrun_core::fabric::{FabricPlan, Profile};
use weftrun_core::job::SubmissionId;
use weftrun_core::spec::{Archive, CODE_FILE_TIME, Code, CodeContent, JobSpec};

/// Returns a unique submission id.
pub fn random_submission() -> SubmissionId {
    SubmissionId::from_random(fastrand::u128(..))
}

/// Returns the planned job of a spec, with a plan that changes nothing.
pub fn planned(spec: JobSpec) -> PlannedJob {
    let plan = FabricPlan::unchanged(spec.fabric.kind);
    PlannedJob::new(spec, plan, Profile::default(), ClusterFacts::default(), random_submission())
}

/// Returns a folder as the code of a job, packed by the system's tar.
pub fn code_folder(folder: &Path) -> Code {
    let line = format!(
        "tar -cf - --mtime=@{CODE_FILE_TIME} --owner=0 --group=0 . | tee \"$1\" | sha256sum | cut -d' ' -f1; gzip -nc \"$1\" > \"$1.gz\""
    );
    let tar = std::env::temp_dir().join(format!("weftrun-code-{:032x}", fastrand::u128(..)));
    let done = crate::child::command("sh").args(["-c", &line, "pack"]).arg(&tar).current_dir(folder).output();
    let hash = done.map(|done| String::from_utf8_lossy(&done.stdout).trim().to_owned()).unwrap_or_default();
    let packed = tar.with_extension("gz");
    let archive = Archive::new(std::fs::read(&packed).unwrap_or_default());
    for file in [&tar, &packed] {
        let _ = std::fs::remove_file(file);
    }
    let content = CodeContent { hash, commit: None, dirty: false, files: 1, bytes: 1, archive };
    Code::Folder { dir: folder.display().to_string(), content: Some(content) }
}
