//! A job without its secrets, to show it to others.

use super::{Code, JobSpec};
use crate::mask::{HIDDEN, hide_after_flags, is_secret_name, is_value, mask, mask_value};

impl JobSpec {
    /// Hides the secrets of a job: in its variables, commands, addresses and scripts.
    #[must_use]
    pub fn masked(mut self) -> Self {
        let mut texts: Vec<&mut String> = Vec::new();
        for variable in self.env.iter_mut().chain(self.roles.iter_mut().flat_map(|role| &mut role.env)) {
            if is_secret_name(&variable.name) && is_value(&variable.value) {
                HIDDEN.clone_into(&mut variable.value);
            }
            texts.push(&mut variable.value);
        }
        match &mut self.code {
            Some(Code::Git { url, .. }) => texts.push(url),
            Some(Code::Script { text, .. }) => texts.push(text),
            _ => {}
        }
        for text in texts {
            *text = mask(text).into_owned();
        }
        for role in &mut self.roles {
            hide_after_flags(role.command.iter_mut());
            role.command.iter_mut().for_each(|word| *word = mask(word).into_owned());
        }
        self.backend.values_mut().for_each(mask_value);
        self
    }
}
