//! Checks what would prevent a job, without submitting it.

use weftrun_core::{Finding, Result};

use super::document::ProcessList;
use super::store::Store;

impl Store {
    /// Returns what would prevent the job, without submitting it.
    pub fn check(&self, list: &ProcessList) -> Result<Vec<Finding>> {
        let mut findings: Vec<_> =
            list.notes.iter().map(|note| Finding::info("LOCAL-NOTE", note.clone())).collect();
        for name in &list.secrets {
            if !self.environment.contains_key(name) {
                let text =
                    format!("this machine has no secret store, and `{name}` is not in your environment");
                findings.push(
                    Finding::error("LOCAL-SECRET", text).fix(format!("export {name} before you submit")),
                );
            }
        }
        if !self.detaches() {
            let text = "the job is a part of this program (capability detach = false): it is left without a \
                        supervisor when the program ends";
            findings.push(Finding::warning("LOCAL-ATTACHED", text));
        }
        for error in list.after.iter().filter_map(|dependency| self.may_be_met(dependency).err()) {
            findings.push(Finding::error("LOCAL-AFTER", error.to_string()).fix(error.hints().join("; ")));
        }
        if let Err(taken) = self.refuse_taken_name(list) {
            let finding = Finding::error("LOCAL-NAME", taken.to_string());
            findings.push(finding.fix(taken.hints().join("; ")));
        }
        Ok(findings)
    }
}
