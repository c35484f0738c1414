//! The input of the new-job form, saved for the next start.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tui_input::Input;
use weftrun::core::fabric::Fabric;
use weftrun::core::spec::JobSpec;

use super::{Choices, Field, LAUNCHES, MEASURING, NewJobForm};

/// The input of the new-job form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedForm {
    /// The job with which the form was opened.
    base: JobSpec,
    file: Option<String>,
    target: String,
    profile: String,
    launch: String,
    fabric: String,
    /// Whether the collectives are measured; empty in a form that an older version saved.
    #[serde(default)]
    bandwidth: String,
    /// The text of each field, by its label.
    texts: BTreeMap<String, String>,
    /// Rules that the draft opts out of.
    off: BTreeSet<String>,
}

impl NewJobForm {
    /// Returns the input to save for the next start; none if nothing was changed.
    pub fn keep(&self) -> Option<SavedForm> {
        let option = |names: &[String], at: usize| names.get(at).cloned().unwrap_or_default();
        (self.revision > 1 && !self.sending).then(|| SavedForm {
            base: self.base.clone(),
            file: self.file.clone(),
            target: option(&self.targets, self.target),
            profile: option(&self.profiles, self.profile),
            launch: LAUNCHES.get(self.launch).map_or("", |launch| launch.as_str()).to_owned(),
            fabric: Fabric::ALL.get(self.fabric).map_or("", |fabric| fabric.as_str()).to_owned(),
            bandwidth: MEASURING.get(self.measuring).copied().unwrap_or_default().to_owned(),
            texts: self
                .inputs
                .iter()
                .map(|(field, input)| (field.label().to_owned(), input.value().to_owned()))
                .collect(),
            off: self.off.clone(),
        })
    }

    /// Restores the draft of an earlier start. A target that is no longer configured stays selected, so that the job is
    /// not submitted to another cluster; the submission reports that the target is unknown.
    pub fn restored(kept: &SavedForm, mut choices: Choices) -> Self {
        if !kept.target.is_empty() && !choices.targets.contains(&kept.target) {
            choices.targets.push(kept.target.clone());
        }
        let mut draft = Self::new(kept.base.clone(), kept.file.clone(), choices, &kept.target);
        for (field, input) in &mut draft.inputs {
            if let Some(text) = kept.texts.get(field.label()) {
                *input = Input::new(text.clone());
            }
        }
        for (field, name) in [
            (Field::Profile, &kept.profile),
            (Field::Launch, &kept.launch),
            (Field::Fabric, &kept.fabric),
            (Field::Bandwidth, &kept.bandwidth),
        ] {
            if let Some((names, chosen)) = draft.choice(field) {
                *chosen = names.iter().position(|known| known == name).unwrap_or(*chosen);
            }
        }
        draft.off.clone_from(&kept.off);
        draft.revision = 2;
        draft
    }
}
