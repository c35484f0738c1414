//! What each backend cannot express, for every row of the catalogue under every profile: `inexpressible.txt` beside this
//! file. A change of a backend or a rule shows there, to be read by a person (`WEFTRUN_WRITE_DOCS=1` writes it).

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::path::Path;

use serde_json::json;
use weftrun_core::backend::{PlannedJob, Registry, TargetConfig};
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::{Change, Op};
use weftrun_core::spec::Launch;
use weftrun_testkit::fabric_matrix::cells;

/// A backend, with its settings besides the job.
struct Way {
    name: &'static str,
    backend: &'static str,
    launch: Launch,
    own: serde_json::Value,
}

fn ways() -> Vec<Way> {
    let way = |name, backend, launch, own| Way { name, backend, launch, own };
    vec![
        way("kubeflow, PyTorchJob", "kubeflow", Launch::Torchrun, json!({"kind": "pytorchjob"})),
        way(
            "kubeflow, TrainJob of Trainer 2.0",
            "kubeflow",
            Launch::Torchrun,
            json!({"kind": "trainjob", "trainer-version": "2.0"}),
        ),
        way(
            "kubeflow, TrainJob of Trainer 2.1",
            "kubeflow",
            Launch::Torchrun,
            json!({"kind": "trainjob", "trainer-version": "2.1"}),
        ),
        way(
            "kubeflow, TrainJob of Trainer 2.3",
            "kubeflow",
            Launch::Torchrun,
            json!({"kind": "trainjob", "trainer-version": "2.3"}),
        ),
        way("kubeflow, MPIJob v2beta1", "kubeflow", Launch::Mpi, json!({"kind": "mpijob"})),
        way("kubeflow, MPIJob v1", "kubeflow", Launch::Mpi, json!({"kind": "mpijob.v1"})),
        way("hosts, torchrun", "hosts", Launch::Torchrun, json!(null)),
        way("hosts, mpi", "hosts", Launch::Mpi, json!(null)),
        way("local", "local", Launch::Torchrun, json!(null)),
        way("runai, distributed", "runai", Launch::Torchrun, json!(null)),
        way("slurm, torchrun", "slurm", Launch::Torchrun, json!(null)),
        way("slurm, mpi", "slurm", Launch::Mpi, json!(null)),
    ]
}

/// The ops that are lost, or why nothing was rendered.
fn lost(result: weftrun_core::Result<weftrun_core::backend::Rendered>, job: &PlannedJob) -> Vec<String> {
    let rendered = match result {
        Ok(rendered) => rendered,
        Err(error) => return vec![format!("not rendered: {}", error.message())],
    };
    let mut lines: Vec<String> = rendered
        .inexpressible
        .iter()
        .map(|lost| {
            let reason: String = lost.reason.chars().take(160).collect();
            format!("{} {}: {reason}", lost.op.rule, lost.op.change.target())
        })
        .collect();
    lines.sort();
    lines.dedup();
    // Each op is in the documents or among the lost, never neither.
    let told = rendered.applied.len() + rendered.inexpressible.len();
    assert!(told >= job.plan.ops.len(), "{} ops, {told} told of", job.plan.ops.len());
    // What the plan announces besides the lost is in the documents.
    let text: String = rendered.documents.iter().map(|document| document.text.as_str()).collect();
    let mut plan = job.plan.clone();
    rendered.inexpressible.iter().for_each(|lost| plan.leave_out(&[&lost.op], lost.reason.as_str()));
    for decision in &plan.decisions {
        let is_its = |op: &&Op| {
            op.rule == decision.rule && decision.target == format!("{}: {}", op.role, op.change.target())
        };
        // The others keep a value of the user's.
        let Some(op) = plan.ops.iter().find(is_its) else { continue };
        assert!(rendered.applied.contains(op), "{} {} is not applied", decision.rule, decision.target);
        if let Change::Env { name, value } = &op.change {
            assert!(
                text.contains(name.as_str()) && text.contains(value.as_str()),
                "{name}={value} is not in\n{text}"
            );
        }
    }
    lines
}

#[test]
fn what_each_backend_cannot_express_is_the_checked_in_table() {
    weftrun_backends::link();
    let registry = Registry::linked();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let state = tempfile::tempdir().unwrap();
    let mut text = String::from(
        "# What each backend cannot express of a fabric plan, for every row of the catalogue under every shipped profile,\n\
         # webhook, strict mode and the computed GID index asked for. Checked by tests/registry/inexpressible.rs.\n",
    );
    for way in ways() {
        let target = TargetConfig::new(way.backend, way.backend, state.path());
        let entry = registry.get(way.backend).unwrap();
        let backend = runtime.block_on((entry.connect)(target)).unwrap();
        let mut groups: BTreeMap<String, BTreeMap<Vec<String>, Vec<String>>> = BTreeMap::new();
        // Rows whose ops differ only by the row's name are rendered once.
        let mut rendered: HashMap<String, Vec<String>> = HashMap::new();
        let cells = cells(way.launch);
        let rows = Catalogue::builtin().rows().len();
        assert_eq!(cells.len() % rows, 0, "every row under every profile");
        for mut cell in cells {
            if !way.own.is_null() {
                cell.planned.spec.backend.insert(way.backend.to_owned(), way.own.clone());
            }
            let ops = format!("{} {:?}", cell.profile, cell.planned.plan.ops).replace(&cell.instance, "TYPE");
            let lines =
                rendered.entry(ops).or_insert_with(|| lost(backend.render(&cell.planned), &cell.planned));
            let lines = lines.clone();
            groups.entry(cell.profile).or_default().entry(lines).or_default().push(cell.instance);
        }
        for (profile, sets) in groups {
            writeln!(text, "\n## {} with {profile}", way.name).unwrap();
            let most = sets.values().map(Vec::len).max().unwrap_or(0);
            let mut others = false;
            for (lines, rows) in &sets {
                let whole = rows.len() == most && !others;
                others |= whole;
                let named = match (whole, sets.len()) {
                    (true, 1) => format!("all {most} rows"),
                    (true, _) => format!("the other {most} rows"),
                    (false, _) => rows.join(" "),
                };
                writeln!(text, "{named}").unwrap();
                for line in lines {
                    writeln!(text, "    {line}").unwrap();
                }
                if lines.is_empty() {
                    writeln!(text, "    nothing").unwrap();
                }
            }
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/registry/inexpressible.txt");
    if std::env::var_os("WEFTRUN_WRITE_DOCS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == text, "the table is not current: read what changes with WEFTRUN_WRITE_DOCS=1");
}
