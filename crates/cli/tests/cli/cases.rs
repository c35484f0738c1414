//! The cases of `tests/cases/mutate`, and files of a place.

use serde_json::Value;

use crate::place::{Place, repo};

/// A file of a case.
pub fn case(name: &str, file: &str) -> String {
    std::fs::read_to_string(repo("tests/cases/mutate").join(name).join(file)).unwrap()
}

/// The data of YAML documents.
pub fn data(text: &str) -> Vec<Value> {
    let documents = weftrun::core::span::yaml_documents(text).unwrap();
    documents.iter().map(|document| document.root.to_json()).collect()
}

/// The text of a file in the working folder.
pub fn read(place: &Place, name: &str) -> String {
    std::fs::read_to_string(place.path(name)).unwrap()
}
