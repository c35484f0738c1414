//! `docs/reference/*.schema.json`: made of the types, and held against what the binary prints.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::Value;
use weftrun::report::schemas;

use weftrun_testkit::ras::Personality;

use crate::place::{Place, SMALL_JOB, repo};

const PAGE: &str = "\
# JSON

`-o json` gives one object, or one object a line where something is followed; `-o yaml` the same as YAML. `\"schema\": \"weftrun/v1\"` \
stands in each. Changes are additive: read what you know, and ignore the rest. When a verb fails, stdout stays as it was and the \
error stands on stderr.

Each shape has a JSON schema, made of the types that are printed; the tests hold the program's own output against them. What a \
job file may say is in [job.schema.json](job.schema.json).

| schema | printed by |
|---|---|
";

/// The files are written by this test (`WEFTRUN_WRITE_DOCS=1`), and cannot drift.
#[test]
fn schema_files_are_current() {
    let folder = repo("docs/reference");
    let mut page = PAGE.to_owned();
    for (name, schema) in schemas::all() {
        crate::reference::current(
            &folder.join(format!("{name}.schema.json")),
            &(serde_json::to_string_pretty(&schema).unwrap() + "\n"),
        );
        let about = schema.get("description").and_then(Value::as_str).unwrap_or_default().replace('\n', " ");
        page.push_str(&format!("| [{name}.schema.json]({name}.schema.json) | {about} |\n"));
    }
    crate::reference::current(&folder.join("json.md"), &page);
    let made: BTreeSet<String> = schemas::all().into_iter().map(|(name, _)| name.to_owned()).collect();
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if let Some(name) = name.strip_suffix(".schema.json").filter(|name| *name != "job") {
            assert!(made.contains(name), "nothing makes {name}.schema.json");
        }
    }
}

/// Holds values against the checked-in schemas, and remembers which were used.
struct Schemas {
    validators: BTreeMap<&'static str, jsonschema::Validator>,
    used: BTreeSet<String>,
}

impl Schemas {
    fn read() -> Self {
        let read = |name: &'static str| {
            let path = repo("docs/reference").join(format!("{name}.schema.json"));
            let schema: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
            (name, jsonschema::validator_for(&schema).unwrap())
        };
        Self {
            validators: schemas::all().iter().map(|(name, _)| read(name)).collect(),
            used: BTreeSet::new(),
        }
    }

    #[track_caller]
    fn hold(&mut self, name: &str, value: &Value) {
        let errors: Vec<String> = self.validators[name].iter_errors(value).map(|e| e.to_string()).collect();
        assert!(errors.is_empty(), "{name}: {errors:#?}\n{value:#}");
        assert_eq!(value["schema"], "weftrun/v1", "{name}");
        self.used.insert(name.to_owned());
    }
}

const RECORDING: &str = "crates/nccl/tests/bandwidth/inspector-2.28.9-slow-plain";

#[test]
fn the_binarys_output_is_what_the_schemas_say() {
    let place = Place::new();
    let mut schemas = Schemas::read();
    place.configure("[target.prod]\nbackend = \"kubeflow\"\nnamespace = \"nlp\"\n");
    place.write("job.toml", SMALL_JOB);
    let manifest = "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\nspec: {}\n";
    place.write("job.yaml", manifest);
    let manifest = std::fs::read(repo("tests/cases/mutate/01-pytorchjob-full-nodes/before.yaml")).unwrap();
    place.write("imported.yaml", manifest);
    place.write("rank0.log", "host:1:1 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>\n");
    let record = "{\"job\":\"kubeflow://prod/nlp/pytorchjob/a\",\"at\":\"2026-11-27T00:00:00Z\",\"nodes\":[\"gpu-17\"],\"outcome\":\"succeeded\"}\n";
    std::fs::create_dir_all(place.state().join("history")).unwrap();
    std::fs::write(place.state().join("history/prod.jsonl"), record).unwrap();
    let efa = "--fabric efa --profile dgxc --nodes 2 -g 8 --instance-type p5.48xlarge --memory 1Ti --image i -- python a.py";
    let printed = [
        ("advisories", "advisories".to_owned()),
        ("backends", "backends".to_owned()),
        ("bandwidth", format!("bandwidth {}", repo(RECORDING).display())),
        ("codes", "explain".to_owned()),
        ("config", "config show".to_owned()),
        ("doctor", "doctor -b local".to_owned()),
        ("explain", "explain efa.devices".to_owned()),
        ("history", "history -b prod".to_owned()),
        ("history-export", "history --export -b prod".to_owned()),
        ("import", "import imported.yaml".to_owned()),
        ("instances", "instances --fabric efa".to_owned()),
        ("nodes", "nodes --offline -b prod".to_owned()),
        ("probe", "probe job.toml".to_owned()),
        ("profiles", "profiles".to_owned()),
        ("lint", "lint job.yaml job.toml".to_owned()),
        ("list", "list -b local --all".to_owned()),
        ("plan", "plan job.toml".to_owned()),
        ("plan", format!("plan {efa}")),
        ("render", "render job.toml".to_owned()),
        ("render", "submit --dry-run job.toml".to_owned()),
        ("render", format!("render -b kubeflow {efa}")),
        ("report", "report rank0.log".to_owned()),
        ("targets", "targets".to_owned()),
        ("transport", "transport rank0.log".to_owned()),
        (
            "verify",
            format!("verify --baseline save --from {}", repo("tests/cases/verify/h200-nvlink.log").display()),
        ),
        ("verify-history", "verify --history".to_owned()),
        ("why", "why rank0.log".to_owned()),
        (
            "health",
            format!("health --observe 0s --address 127.0.0.1:{}", Personality::of("v2.28.9/kill").serve()),
        ),
        ("why", format!("why {}", repo("tests/cases/failures/exception").display())),
    ];
    for (name, line) in printed {
        schemas.hold(name, &place.run(&format!("-o json {line}")).json());
    }

    let done = place.run("-o json submit --follow job.toml").ok();
    let events = done.lines();
    events.iter().for_each(|event| schemas.hold("event", event));
    let types: BTreeSet<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    assert!(types.is_superset(&["submitted", "status", "log", "ended"].into()), "{types:?}");
    assert_eq!(events[0]["type"], "submitted");
    let handle = events[0]["handle"].as_str().unwrap();
    for verb in ["logs", "watch"] {
        let lines = place.run(&format!("{verb} {handle} -o json")).ok().lines();
        assert!(!lines.is_empty(), "{verb}");
        lines.iter().for_each(|event| schemas.hold("event", event));
    }
    place
        .run(&format!("transport --follow {handle} -o json"))
        .lines()
        .iter()
        .for_each(|e| schemas.hold("event", e));
    for verb in ["describe", "wait"] {
        schemas.hold(verb, &place.run(&format!("{verb} {handle} -o json")).ok().json());
    }
    schemas.hold("list", &place.run("list --all -o json").ok().json());
    schemas.hold("retry", &place.run(&format!("retry {handle} -o json")).code(4).json());
    schemas.hold("act", &place.run(&format!("delete --yes {handle} -o json")).ok().json());

    place.write("sleeps.toml", "name = \"sleeps\"\ncommand = [\"sleep\", \"600\"]\n");
    let handle = place.run("submit sleeps.toml").ok().out.trim().to_owned();
    let words = ["port-forward", handle.as_str(), "0:9", "-o", "json"];
    let mut forward = place.command(words).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(forward.stdout.take().unwrap()).read_line(&mut line).unwrap();
    schemas.hold("port-forward", &serde_json::from_str(&line).unwrap());
    forward.kill().unwrap();
    forward.wait().unwrap();
    place.run(&format!("cancel {handle}")).ok();

    let missing = place.run("describe local://local/none -o json").code(6);
    assert_eq!(missing.out, "");
    schemas.hold("error", &serde_json::from_str(&missing.err).unwrap());

    place.run("mutate job.yaml --report report.json --profile dgxc");
    let report = std::fs::read_to_string(place.path("report.json")).unwrap();
    schemas.hold("mutate", &serde_json::from_str(&report).unwrap());

    let unused: Vec<_> = schemas.validators.keys().filter(|name| !schemas.used.contains(**name)).collect();
    assert!(unused.is_empty(), "no output was held against {unused:?}");
}
