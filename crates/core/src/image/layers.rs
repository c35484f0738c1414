//! Stacks layers.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{ImageLayer, Library, Part};

/// Returns what a container sees of these layers, the lowest first.
pub fn over<'a>(layers: impl IntoIterator<Item = &'a ImageLayer>) -> Vec<Library> {
    let mut seen: BTreeMap<&str, &Library> = BTreeMap::new();
    for layer in layers {
        // Each path is looked up together with its parent folders, instead of being compared with every
        // removed file.
        let removed: HashSet<&str> = layer.removed.iter().map(String::as_str).collect();
        let emptied: HashSet<&str> = layer.emptied.iter().map(String::as_str).collect();
        seen.retain(|path, _| {
            let mut folders = path.match_indices('/').map(|(at, _)| &path[..at]);
            !removed.contains(path)
                && !folders.any(|folder| removed.contains(folder) || emptied.contains(folder))
        });
        seen.extend(layer.found.iter().map(|found| (found.path.as_str(), found)));
    }
    let mut found: Vec<Library> = seen.into_values().cloned().collect();
    let notes: Vec<Library> = found.extract_if(.., |found| found.part == Part::LibfabricNote).collect();
    let mut versions: HashMap<&str, &Option<String>> = HashMap::new();
    for note in &notes {
        versions.entry(note.folder()).or_insert(&note.version);
    }
    for library in found.iter_mut().filter(|found| found.part == Part::Libfabric) {
        let beside = format!("{}/pkgconfig", library.folder());
        library.version = versions.get(beside.as_str()).and_then(|version| (*version).clone());
    }
    found.sort();
    found
}
