//! Every key of a config file.

use crate::spec::file::keys::JOB;
use crate::spec::file::shape::{Key, Shape, Table, Word, key, word};

const OUTPUT: &[Word] = &[word("table", "for people (default)"), word("json", "JSON"), word("yaml", "YAML")];
const COLOR: &[Word] = &[
    word("auto", "on a terminal, unless NO_COLOR is set (default)"),
    word("always", "always"),
    word("never", "never"),
];

static HISTORY: Table = Table {
    name: "history",
    doc: "The history of jobs that ended, from which nodes are judged.",
    keys: &[
        key("enabled", Shape::Bool, "Whether it is kept (default: true)").example("false"),
        key(
            "path",
            Shape::Text,
            "Folder of the history, which a team may share; in the state folder if absent",
        )
        .example("\"/shared/weftrun-history\"")
        .synonyms(&["dir", "folder"]),
    ],
};

/// The whole file.
pub(super) static CONFIG: Table = Table {
    name: "",
    doc: "The configuration.",
    keys: &[
        key("default_target", Shape::Text, "Target used when none is named; `local` otherwise")
            .example("\"prod\"")
            .synonyms(&["default", "backend", "target_default"]),
        key("namespace", Shape::Text, "Kubernetes namespace of targets that name none").example("\"nlp\""),
        key("project", Shape::Text, "Project of targets that name none").example("\"nlp\""),
        key("default_profile", Shape::Text, "Profile of targets and jobs that name none").example("\"dgxc\""),
        key("output", Shape::Word(OUTPUT), "Output format").example("\"table\""),
        key("color", Shape::Word(COLOR), "When to use colour").example("\"auto\"").synonyms(&["colour"]),
        key(
            "target",
            Shape::Map(&Shape::Map(&Shape::Any)),
            "Places jobs run, by name: `backend`, then `namespace`, `project`, `profile`, and the backend's own settings",
        )
        .synonyms(&["targets", "contexts", "context"]),
        key("profile", Shape::Map(&Shape::Map(&Shape::Any)), "Profiles of sites, by name; `extends` starts from another")
            .synonyms(&["profiles"]),
        key("instances", Shape::Map(&Shape::Map(&Shape::Any)), "Instance types, by name: changes of known rows, and new ones")
            .synonyms(&["instance"]),
        key("job", Shape::Table(&JOB), "Defaults of all jobs: a job file or a flag wins").synonyms(&["defaults", "jobs"]),
        key("history", Shape::Table(&HISTORY), "History of jobs and nodes: `enabled`, and `path` of a folder that a team shares")
            .example("{ path = \"/shared/weftrun-history\" }"),
        key("tui", Shape::Map(&Shape::Any), "Keys and theme of the terminal UI").synonyms(&["ui", "keys", "theme"]),
        key("lock", Shape::Texts, "System file only: paths that no later layer may change")
            .example("[\"target.prod\", \"job.fabric\"]"),
    ],
};

/// Keys of a target that are not settings of its backend.
pub(super) const TARGET: [&str; 4] = ["backend", "namespace", "project", "profile"];

/// Returns the reference page of the configuration, in Markdown.
pub fn markdown() -> String {
    let row = |key: &Key| {
        let example =
            if key.example.is_empty() { String::new() } else { format!("`{} = {}`", key.name, key.example) };
        format!("| `{}` | {} | {example} |\n", key.name, key.doc)
    };
    let defaults = JOB.keys.iter().filter(|key| key.config);
    include_str!("reference.md")
        .replace("{keys}\n", &CONFIG.keys.iter().map(row).collect::<String>())
        .replace(
            "{defaults}\n",
            &defaults.map(|key| format!("- `{}`: {}\n", key.name, key.doc)).collect::<String>(),
        )
}

/// Returns whether a job's key is accepted in `[job]`.
pub(super) fn is_default(name: &str) -> bool {
    JOB.key(name).is_some_and(|key: &Key| key.config)
}
