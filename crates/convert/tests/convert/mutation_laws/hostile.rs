//! Hostile strings in every field of a user's manifest or script keep their values, in YAML and in JSON,
//! and the shell's words are unchanged.

use proptest::prelude::*;
use serde_json::{Value as Json, json};
use weftrun_convert::{MutateOptions, Start, mutate, mutate_sbatch};
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::Profiles;
use weftrun_core::request::FabricRequest;
use weftrun_core::shell;
use weftrun_core::shell::Mpirun;
use weftrun_core::span::{json as read_json, yaml_documents};

/// Texts with characters that are special to shells, YAML and JSON.
fn text() -> impl Strategy<Value = String> {
    let pieces = [
        "'",
        "\"",
        "\\",
        "\n",
        "\r",
        "\t",
        " ",
        "$HOME",
        "$(touch x)",
        "`touch x`",
        ";",
        "&&",
        "|",
        "#",
        " #",
        ": ",
        "- ",
        "---",
        "&a",
        "*a",
        "!!x",
        "{{x}}",
        "[",
        "}",
        "%",
        "@",
        "~",
        "null",
        "yes",
        "0x1f",
        "1e3",
        "é🦀",
        "\u{85}",
        "\u{2028}",
        "\u{feff}",
        "\u{7f}",
        "mpirun",
        "<<EOF",
        "EOF",
    ];
    prop::collection::vec(prop::sample::select(pieces.to_vec()), 0..8).prop_map(|pieces| pieces.concat())
}

fn job(texts: &[String]) -> Json {
    let [name, image, argument, value, label, selector] = texts else { unreachable!("six are asked for") };
    let template = |container: &str, command: Json| {
        json!({
            "metadata": {"labels": {"l": label}, "annotations": {"note": label}},
            "spec": {
                "nodeSelector": {"s": selector},
                "volumes": [{"name": "v", "hostPath": {"path": selector}}],
                "containers": [{
                    "name": container, "image": image, "command": command, "args": [argument, "end"],
                    "env": [{"name": "V", "value": value}],
                    "resources": {"limits": {"nvidia.com/gpu": 8, "memory": "1Ti"}},
                }],
            },
        })
    };
    json!({
        "apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": name, "annotations": {"a": value}},
        "spec": {"mpiReplicaSpecs": {
            "Launcher": {"replicas": 1, "template": template("launcher", json!(["mpirun", "-np", "2"]))},
            "Worker": {"replicas": 2, "template": template("worker", json!(["sh", argument]))},
        }},
    })
}

/// Returns the strings of an object that were the user's.
fn own(data: &Json) -> Vec<Json> {
    let mut found = vec![data["metadata"].clone()];
    for role in ["Launcher", "Worker"] {
        let template = &data["spec"]["mpiReplicaSpecs"][role]["template"];
        let container = &template["spec"]["containers"][0];
        found.extend([
            template["metadata"].clone(),
            template["spec"]["nodeSelector"].clone(),
            template["spec"]["volumes"][0].clone(),
            container["image"].clone(),
            container["args"].clone(),
            container["env"][0].clone(),
        ]);
    }
    found
}

fn mutated(text: &str) -> (String, bool) {
    let (profile, catalogue) = (Profiles::builtin().get("dgxc").unwrap(), Catalogue::builtin());
    let options = FabricRequest::default();
    let settings = MutateOptions::offline(&profile, &options, &catalogue);
    let done = mutate(text, Start::of("x"), &settings).unwrap();
    (done.text.into_owned(), done.jobs.iter().all(|job| job.changed))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_manifest_keeps_every_string_of_the_users(texts in prop::collection::vec(text(), 6)) {
        let before = job(&texts);
        let yaml = serde_saphyr::to_string(&before).unwrap();
        for (text, is_json) in [(before.to_string(), true), (yaml, false)] {
            let read = |text: &str| if is_json {
                read_json(text).unwrap().root.to_json()
            } else {
                yaml_documents(text).unwrap()[0].root.to_json()
            };
            prop_assert_eq!(&read(&text), &before, "the test's own text");
            let (after, changed) = mutated(&text);
            prop_assert!(changed, "{}", after);
            prop_assert_eq!(own(&read(&after)), own(&before), "{}", after);
        }
    }

    #[test]
    fn a_script_keeps_its_words(texts in prop::collection::vec(text(), 3)) {
        let quoted: Vec<String> = texts.iter().map(|text| shlex::try_quote(text).unwrap().into_owned()).collect();
        let line = format!("A={} mpirun -np 2 app {} {}", quoted[0], quoted[1], quoted[2]);
        let rule = Mpirun { bin: Some("/m".into()), forward: vec!["A".into()], ..Mpirun::default() };
        let done = shell::rewrite(&["sh".to_owned(), "-c".to_owned(), line.clone()], &[], &rule);
        prop_assert_eq!(&done.command[2], &line.replacen(" mpirun -np", " /m/mpirun -x A -np", 1));
        let sbatch = format!("#!/bin/bash\n#SBATCH -N 2 --gpus-per-node=8 -C p5.48xlarge\nexport V={}\nsrun app {}\n", quoted[0], quoted[1]);
        let (profile, catalogue) = (Profiles::builtin().get("parallelcluster").unwrap(), Catalogue::builtin());
        let options = FabricRequest::default();
        let settings = MutateOptions::offline(&profile, &options, &catalogue);
        let done = mutate_sbatch(&sbatch, Start::of("x"), &settings);
        prop_assert!(done.jobs[0].changed);
        let lines: Vec<&str> = sbatch.split_inclusive('\n').collect();
        prop_assert!(done.text.ends_with(&lines[2..].concat()), "{}", done.text);
    }
}
