//! The user's own actions on a job: a key runs a command.

use crossterm::event::KeyEvent;
use weftrun::core::spec::is_node_name;

use crate::keymap::Chord;
use crate::model::{Model, OwnAction, Screen};
use crate::msg::Effect;

/// Runs the action of a key; none if the key has none.
pub(super) fn press(model: &mut Model, key: KeyEvent) -> Option<Vec<Effect>> {
    let chord = Chord::of(key);
    let own = model.own_actions.iter().find(|own| own.chord == chord)?.clone();
    Some(run(model, &own))
}

/// Runs an action on the current job, with what is under the cursor.
pub(super) fn run(model: &mut Model, own: &OwnAction) -> Vec<Effect> {
    let Some(handle) = model.current() else {
        model.say(format!("{}: no job is selected", own.name));
        return Vec::new();
    };
    let rank = chosen_rank(model).map_or_else(String::new, |rank| rank.to_string());
    // The host is what a log says, which a job can forge: `ssh $NODE` must not get an option of ssh.
    let node = chosen_node(model).filter(|node| is_node_name(node)).unwrap_or_default();
    let uses = |name: &str| ["$", "${"].iter().any(|before| own.command.contains(&format!("{before}{name}")));
    if uses("RANK") && rank.is_empty() {
        model.fail(format!("{}: no rank is under the cursor ($RANK)", own.name));
        return Vec::new();
    }
    if uses("NODE") && node.is_empty() {
        model.fail(format!("{}: no node with a plain name is under the cursor ($NODE)", own.name));
        return Vec::new();
    }
    vec![Effect::Run(own.command.clone(), vec![("JOB", handle.to_string()), ("RANK", rank), ("NODE", node)])]
}

/// Returns the rank under the cursor of the overview, the matrix or the log.
fn chosen_rank(model: &Model) -> Option<u32> {
    let open = model.open.as_ref()?;
    match model.screen {
        Screen::Overview => open.chosen_ranks().first().copied(),
        Screen::Fabric if open.by_rank => open.matrix_name(open.cell.0),
        Screen::Logs => open.logs.cursor_rank(),
        _ => None,
    }
}

/// Returns the name of the node under the cursor.
fn chosen_node(model: &Model) -> Option<String> {
    let open = model.open.as_ref()?;
    let view = &open.transport_view;
    if model.screen == Screen::Fabric && !open.by_rank {
        let index = *open.matrix_rows().get(open.cell.0)?;
        return view.nodes.get(index).map(|node| node.host.clone());
    }
    let rank = chosen_rank(model)?;
    view.ranks.iter().find(|known| known.rank == Some(rank)).map(|known| known.host.clone())
}
