//! Layers over each other.

use std::collections::BTreeMap;

use super::{Found, Layer, Part};

/// What a container sees of these layers, the lowest first.
pub fn over<'a>(layers: impl IntoIterator<Item = &'a Layer>) -> Vec<Found> {
    let mut seen: BTreeMap<&str, &Found> = BTreeMap::new();
    for layer in layers {
        seen.retain(|path, _| {
            let under = |folder: &String| {
                path.strip_prefix(folder.as_str()).is_some_and(|rest| rest.starts_with('/'))
            };
            let gone = layer.removed.iter().any(|gone| gone == path || under(gone));
            !gone && !layer.emptied.iter().any(under)
        });
        seen.extend(layer.found.iter().map(|found| (found.path.as_str(), found)));
    }
    let mut found: Vec<Found> = seen.into_values().cloned().collect();
    let notes: Vec<Found> = found.extract_if(.., |found| found.part == Part::LibfabricNote).collect();
    for library in found.iter_mut().filter(|found| found.part == Part::Libfabric) {
        let beside = format!("{}/pkgconfig", library.folder());
        library.version =
            notes.iter().find(|note| note.folder() == beside).and_then(|note| note.version.clone());
    }
    found.sort();
    found
}
