//! Starts the benchmark of a job's nodes, and shows it.

use std::sync::Arc;

use crate::model::Model;
use crate::model::layer::{Layer, Question};
use crate::model::verify::{VerifyView, Verifying};
use crate::msg::Effect;

/// Shows the benchmark that runs, or asks whether to start one like the job under the cursor.
pub(super) fn ask(model: &mut Model) {
    let Some(handle) = model.current() else {
        model.say("no job is selected");
        return;
    };
    let shown = model.verifying.as_ref().is_some_and(|known| !known.view.ended || known.handle == handle);
    if shown {
        model.layers.push(Layer::Verify);
        return;
    }
    if model.jobs.is_read_only(handle.target()) {
        model.fail(format!("target `{}` only shows jobs: a benchmark is a job", handle.target()));
        return;
    }
    model.layers.push(Layer::Confirm(Question::Verify(handle)));
}

/// Asks whether to start another one, if the last one has ended.
pub(super) fn again(model: &mut Model) {
    model.verifying.take_if(|known| known.view.ended);
    ask(model);
}

pub(super) fn start(model: &mut Model, handle: weftrun::core::job::JobHandle) -> Vec<Effect> {
    model.verifying = Some(Verifying { handle: handle.clone(), view: Arc::default() });
    model.layers.push(Layer::Verify);
    vec![Effect::Verify(handle)]
}

pub(super) fn shown(model: &mut Model, view: Arc<VerifyView>) {
    let Some(verifying) = &mut model.verifying else { return };
    let ended = view.ended && !verifying.view.ended;
    verifying.view = view;
    let hidden = !model.layers.iter().any(|layer| matches!(layer, Layer::Verify));
    if ended && hidden {
        model.say("the benchmark has ended; V shows it");
    }
}
