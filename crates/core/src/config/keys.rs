//! Every key of a config file.

use std::fmt::Write;

use crate::spec::file::keys::JOB;
use crate::spec::file::shape::{Key, Shape, Table, Word, key, word};

const OUTPUT: &[Word] = &[word("table", "for people (default)"), word("json", "JSON"), word("yaml", "YAML")];
const COLOR: &[Word] = &[
    word("auto", "on a terminal, unless NO_COLOR is set (default)"),
    word("always", "always"),
    word("never", "never"),
];

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
        key("tui", Shape::Map(&Shape::Any), "Keys and theme of the terminal UI").synonyms(&["ui", "keys", "theme"]),
        key("lock", Shape::Texts, "System file only: paths that no later layer may change")
            .example("[\"target.prod\", \"job.fabric\"]"),
    ],
};

/// Keys of a target that are not settings of its backend.
pub(super) const TARGET: [&str; 4] = ["backend", "namespace", "project", "profile"];

/// Returns the reference page of the configuration, in Markdown.
pub fn markdown() -> String {
    let mut page = String::from(
        "# Configuration\n\n\
         Later layers win, value by value:\n\n\
         1. weftrun's own defaults\n\
         2. the system's file, `/etc/weftrun/config.toml`; what its `lock` names stays as it is\n\
         3. your file, `~/.config/weftrun/config.toml` (`$XDG_CONFIG_HOME`, `WEFTRUN_CONFIG`, `--config`)\n\
         4. the project's file, `./.weftrun.toml`\n\
         5. the `[profile.NAME.job]` table of the profile a job gets\n\
         6. [`WEFTRUN_*` variables](env.md)\n\
         7. the job file\n\
         8. flags\n\n\
         `weftrun config show --origin` prints every value with the file and line it came from; `weftrun config set PATH \
         VALUE` changes your file and keeps its comments.\n\n\
         A project's own file comes with a repository, perhaps another person's. Until you trust it (`weftrun config trust`), nothing in it \
         counts, and a warning says so. Trust holds for the text as it is: after a change the file is ignored until you \
         trust it again. A file, or a folder around it, that belongs to another user or that others can write to is \
         ignored too, and cannot be trusted.\n\n\
         | key | what it does | example |\n|---|---|---|\n",
    );
    for key in CONFIG.keys {
        let example =
            if key.example.is_empty() { String::new() } else { format!("`{} = {}`", key.name, key.example) };
        let _ = writeln!(page, "| `{}` | {} | {example} |", key.name, key.doc);
    }
    page.push_str("\n## `[job]`\n\nDefaults of all jobs, with the words of [the job file](spec.md):\n\n");
    for key in JOB.keys.iter().filter(|key| key.config) {
        let _ = writeln!(page, "- `{}`: {}", key.name, key.doc);
    }
    page.push_str(EXAMPLE);
    page
}

const EXAMPLE: &str = r#"
## Example

```toml
default_target = "prod"

[target.prod]
backend = "kubeflow"
context = "prod-cluster"
namespace = "nlp"
profile = "dgxc"

[target.hpc]
backend = "slurm"
ssh = "login.example.com"

[instances.our-h100]          # a class of our own nodes
extends = "DGX-H100"
fabric = "ib"
fabric_resource = "rdma/hca_shared_devices_a"

[profile.ours]
extends = "roce"

[job]                         # for every job that says nothing else
queue = "gpu"
labels = { team = "nlp" }
fabric.rules = { "efa.hugepages" = "off" }
```
"#;

/// Returns whether a job's key is accepted in `[job]`.
pub(super) fn is_default(name: &str) -> bool {
    JOB.key(name).is_some_and(|key: &Key| key.config)
}
