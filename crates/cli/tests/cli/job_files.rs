//! What a person sees of a job file's mistakes: all at once, each on its line, with a caret and the way out.

use crate::place::Place;

const MISTAKES: &str = r#"name = "Llama_8B"
nodse = 4
gpus_per_node = 16
instance_type = "p5.48xlarge"
memory = "1800GB"
launch = "torchrnu"
command = ["train.py"]
time_limit = "soon"

[env]
"MY VAR" = "1"

[fabric]
kind = "eaf"
rules = { "efa.hugepage" = "off" }
"#;

#[test]
fn all_mistakes_at_once_with_a_caret_under_each() {
    let place = Place::new();
    place.write("job.toml", MISTAKES);
    let done = place.run("plan --color never job.toml").code(3);
    assert_eq!(done.out, "");
    insta::assert_snapshot!(done.err);
}

#[test]
fn the_same_in_yaml_and_in_json() {
    let place = Place::new();
    let yaml = "name: Llama_8B\nnodse: 4\ngpus_per_node: 16\ninstance_type: p5.48xlarge\nmemory: 1800GB\nlaunch: torchrnu\n\
                command: [train.py]\ntime_limit: soon\nenv:\n  MY VAR: \"1\"\nfabric:\n  kind: eaf\n  rules: {efa.hugepage: \"off\"}\n";
    place.write("job.toml", MISTAKES);
    place.write("job.yaml", yaml);
    let codes = |file: &str| {
        let done = place.run(&format!("plan -o json {file}")).code(3);
        let error: serde_json::Value = serde_json::from_str(&done.err).unwrap();
        let findings = error["error"]["findings"].as_array().unwrap().clone();
        assert!(findings.iter().all(|finding| finding["span"]["line"].is_u64()), "{error:#}");
        let mut codes: Vec<String> =
            findings.iter().map(|f| format!("{} {}", f["code"], f["where"])).collect();
        codes.sort();
        codes
    };
    assert_eq!(codes("job.toml"), codes("job.yaml"));
}

/// A cluster would refuse each of these, later and in other words.
#[test]
fn what_a_cluster_would_refuse_is_refused_here() {
    let head = "name = \"a\"\nimage = \"i\"\n";
    let work = "nodes = 2\ngpus_per_node = 8\ncommand = [\"./x\"]\n";
    let long = "x".repeat(60);
    let cases: &[(&str, String, &str)] = &[
        ("a name that is no DNS label", format!("name = \"My_Job\"\n{work}"), "name"),
        ("a name that ends with a dash", format!("name = \"a-\"\n{work}"), "name"),
        ("a decimal unit", format!("{head}{work}memory = \"5GB\"\n"), "5G"),
        ("a quantity of nothing", format!("{head}{work}memory = \"lots\"\n"), "memory"),
        ("a negative quantity", format!("{head}{work}cpus = \"-1\"\n"), "cpus"),
        ("an env name with a space", format!("{head}{work}env = {{ \"A B\" = \"1\" }}\n"), "A B"),
        ("an env name with =", format!("{head}{work}env = {{ \"A=B\" = \"1\" }}\n"), "A=B"),
        (
            "more GPUs than the instance has",
            format!(
                "{head}nodes = 2\ngpus_per_node = 9\ncommand = [\"./x\"]\ninstance_type = \"p5.48xlarge\"\n"
            ),
            "gpus_per_node",
        ),
        ("a queue of two names", format!("{head}{work}queue = \"a,b\"\n"), "queue"),
        ("a value with a NUL", format!("{head}{work}env = {{ A = \"a\\u0000b\" }}\n"), "NUL"),
        (
            "half a GPU",
            format!("{head}nodes = 2\ngpus_per_node = 1.5\ncommand = [\"./x\"]\n"),
            "gpus_per_node",
        ),
        ("an image with a space", format!("name = \"a\"\nimage = \"my image\"\n{work}"), "image"),
        ("a label that is none", format!("{head}{work}labels = {{ \"bad key!\" = \"x\" }}\n"), "bad key!"),
        (
            "a label value that is too long",
            format!("{head}{work}labels = {{ team = \"{long}xxxx\" }}\n"),
            "team",
        ),
        (
            "a mount that is not absolute",
            format!("{head}{work}volumes.d = {{ mount = \"data\", claim = \"c\" }}\n"),
            "mount",
        ),
        (
            "two volumes at one mount",
            format!(
                "{head}{work}volumes.d = {{ mount = \"/d\", claim = \"c\" }}\nvolumes.e = {{ mount = \"/d\", claim = \"c\" }}\n"
            ),
            "/d",
        ),
        (
            "a claim that is no name",
            format!("{head}{work}volumes.d = {{ mount = \"/d\", claim = \"Not A Claim\" }}\n"),
            "claim",
        ),
        ("a secret without a key", format!("{head}{work}secrets = {{ A = \"name\" }}\n"), "A"),
        ("no nodes", format!("{head}nodes = 0\ngpus_per_node = 8\ncommand = [\"./x\"]\n"), "nodes"),
        ("no command", format!("{head}launch = \"per-rank\"\nnodes = 2\ngpus_per_node = 8\n"), "command"),
        (
            "two roles of one name",
            format!("{head}[roles.w]\nnodes = 1\ncommand = [\"x\"]\n[roles.w]\nnodes = 1\n"),
            "w",
        ),
        (
            "torchrun that starts a shell",
            format!(
                "{head}launch = \"torchrun\"\nnodes = 2\ngpus_per_node = 8\ncommand = [\"torchrun\", \"x.py\"]\n"
            ),
            "torchrun",
        ),
        (
            "a resource name that is none",
            format!("{head}{work}resources = {{ \"not a resource\" = 1 }}\n"),
            "not a resource",
        ),
        (
            "a git URL that is an option",
            format!("{head}{work}code = {{ git = \"--upload-pack=x\" }}\n"),
            "git",
        ),
        ("a time limit of nothing", format!("{head}{work}time_limit = \"0s\"\n"), "time_limit"),
    ];
    let place = Place::new();
    let mut wrong = Vec::new();
    for (what, text, says) in cases {
        place.write("job.toml", text);
        let done = place.run("plan --color never job.toml");
        if done.code != 3 || !done.err.contains(says) || !done.err.contains("job.toml:") {
            wrong.push(format!("{what}: exit {}:\n{}", done.code, done.err));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
