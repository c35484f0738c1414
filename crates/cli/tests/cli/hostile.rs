//! Hostile strings through every field a user can set come back as data: out of the sbatch script by a real shell, out of
//! manifests and request bodies by real parsers. What cannot be carried is refused; nothing is ever run.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use proptest::prelude::*;
use serde_json::Value;
use weftrun::core::backend::{Rendered, TargetConfig};
use weftrun::core::spec::{JobSpec, Launch, Role, Volume, VolumeSource};
use weftrun::{Client, Config, ErrorKind};
use weftrun_testkit::child;

/// The file whose being there means that a string was run.
const CANARY: &str = "canary";

/// Texts made of what shells, YAML, JSON, Slurm and Kubernetes take to mean something.
fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("'"),
        Just("\""),
        Just("\\"),
        Just("\n"),
        Just("\r"),
        Just("\t"),
        Just(" "),
        Just("$HOME"),
        Just("${IFS}"),
        Just("$(touch canary)"),
        Just("`touch canary`"),
        Just("; touch canary;"),
        Just("\ntouch canary\n"),
        Just("' ; touch canary ; '"),
        Just("\" ; touch canary ; \""),
        Just("$$"),
        Just("$(RANK)"),
        Just("#SBATCH --uid=0"),
        Just("\n#SBATCH --uid=0\n"),
        Just("EOF\n"),
        Just("WEFTRUN_END\n"),
        Just("\nWEFTRUN_END\ntouch canary\n"),
        Just("\nWEFTRUN_END_00000000\ntouch canary\n"),
        Just("\0"),
        Just("\nWEFTRUN_END\0_\ntouch canary\n"),
        Just("\r\n"),
        Just("%s\\101\\n"),
        Just("\u{1}ā\u{81}"),
        Just("\u{1}R"),
        Just("---\n"),
        Just("...\n"),
        Just("&a *a"),
        Just("!!python/object:x"),
        Just("{{x}}"),
        Just("%j"),
        Just("a=b,c"),
        Just("-rf"),
        Just("é🦀"),
        Just("\u{202e}"),
        Just("\u{85}"),
        Just("\u{2028}"),
        Just("\u{feff}"),
        Just("\u{7f}"),
        Just("yes"),
        Just("0x1f"),
        Just("~"),
        Just("*"),
        Just("<host-1>"),
        Just("|"),
        Just("&"),
        Just(">canary"),
        Just("!x"),
    ];
    prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

/// A job with hostile text in its arguments and one variable.
fn job(launch: Launch, arguments: &[String], value: &str) -> JobSpec {
    let program = if launch == Launch::Torchrun { "record.py" } else { "record" };
    let role = Role::worker().nodes(2).ranks_per_node(1).command([program]);
    let mut spec =
        JobSpec::builder("plain").image("image:1").launch(launch).role(role).env("V", "").build().unwrap();
    // Behind the builder's back, which refuses some of them: a spec may also be made by a program, or read from JSON.
    spec.roles[0].command.extend(arguments.iter().cloned());
    value.clone_into(&mut spec.env[0].value);
    spec
}

/// What a backend would send for a job, without a network.
fn rendered(backend: &str, spec: &JobSpec) -> weftrun::Result<Rendered> {
    let client = Client::builder().config(Config::empty("/nonexistent")).build()?;
    let mut target = TargetConfig::new(backend, backend, "/nonexistent");
    target.namespace = Some("team".to_owned());
    target.project = Some("team".to_owned());
    if backend == "runai" {
        target = target.with("url", "https://example.invalid");
        target.env.insert("RUNAI_TOKEN".to_owned(), "token".to_owned());
    }
    let plan = client.plan_offline_for(target, spec)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(plan.render())
}

/// The document, or none where the text was refused as something that cannot be carried.
fn document(backend: &str, spec: &JobSpec) -> Option<String> {
    match rendered(backend, spec) {
        Ok(rendered) => Some(rendered.documents[0].text.clone()),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::InvalidSpec, "{error}");
            None
        }
    }
}

/// Programs that take the place of the cluster's, each a script.
fn programs(folder: &Path, scripts: &[(&str, &str)]) {
    for (name, script) in scripts {
        let path = folder.join("bin").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// What the job's program does: it writes down what it was given.
const RECORD: (&str, &str) =
    ("record", r#"for word; do printf '%s\0' "$word"; done > "$OUT/args"; printf %s "$V" > "$OUT/value""#);
/// Runs the program behind srun's own options.
const SRUN: (&str, &str) =
    ("srun", r#"while case "$1" in -*) ;; *) false ;; esac; do shift; done; exec "$@""#);
/// The same in the folder that srun is given.
const SRUN_IN_FOLDER: &str = r#"while case "$1" in -*) ;; *) false ;; esac; do case "$1" in --chdir=*) cd "${1#*=}" ;; esac; shift; done; exec "$@""#;
const TORCHRUN: (&str, &str) =
    ("torchrun", r#"while [ "$1" != record.py ]; do shift; done; shift; exec record "$@""#);
const SCONTROL: (&str, &str) = ("scontrol", "echo node1");

fn bash(folder: &Path, script: &str) -> Output {
    fs::write(folder.join("script"), script).unwrap();
    let path = format!("{}:{}", folder.join("bin").display(), child::path());
    child::command("bash")
        .env("HOME", folder)
        .arg("script")
        .current_dir(folder)
        .envs([("PATH", path.as_str()), ("OUT", folder.to_str().unwrap())])
        .envs([("SLURM_JOB_ID", "7"), ("SLURM_JOB_NODELIST", "node1")])
        .envs([("SLURM_PROCID", "0"), ("SLURM_LOCALID", "0"), ("SLURM_NODEID", "0")])
        .output()
        .unwrap()
}

fn recorded(folder: &Path) -> (Vec<String>, String) {
    let args = fs::read_to_string(folder.join("args")).unwrap_or_else(|_| "NOT RUN\0".to_owned());
    let mut words: Vec<String> = args.split('\0').map(str::to_owned).collect();
    words.pop();
    (words, fs::read_to_string(folder.join("value")).unwrap_or_default())
}

fn launches() -> impl Strategy<Value = Launch> {
    prop_oneof![Just(Launch::PerNode), Just(Launch::PerRank), Just(Launch::Torchrun), Just(Launch::Mpi)]
}

/// The lines before the first command: sbatch looks for options of its own only there (sbatch(1)).
fn head(script: &str) -> impl Iterator<Item = &str> {
    script.lines().take_while(|line| line.is_empty() || line.starts_with('#'))
}

fn directives(script: &str) -> usize {
    head(script).filter(|line| line.starts_with("#SBATCH")).count()
}

/// The containers of a manifest, wherever its kind keeps them.
fn containers<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                match inner.as_array().filter(|_| key == "containers") {
                    Some(list) => found.extend(list),
                    None => containers(inner, found),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|inner| containers(inner, found)),
        _ => {}
    }
}

/// Expands a word as Kubernetes does without any variables: its own rule, implemented a second time, since a
/// test that used weftrun's escaping would prove nothing.
fn expanded(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match (c, rest.peek()) {
            ('$', Some('$')) => {
                rest.next();
                out.push('$');
            }
            ('$', Some('(')) => out.push_str("EXPANDED"),
            _ => out.push(c),
        }
    }
    out
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().map(|word| expanded(word.as_str().unwrap())).collect()
}

/// The value of `V` in a list of `{name, value}`.
fn v_of(env: &Value) -> Option<String> {
    let of = |entry: &&Value| entry["name"] == "V";
    Some(expanded(env.as_array()?.iter().find(of)?["value"].as_str()?))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn out_of_an_sbatch_script(launch in launches(), arguments in prop::collection::vec(text(), 0..4), value in text()) {
        let spec = job(launch, &arguments, &value);
        let Some(script) = document("slurm", &spec) else { return Ok(()) };
        let folder = tempfile::tempdir().unwrap();
        programs(folder.path(), &[RECORD, SRUN, TORCHRUN, SCONTROL]);
        let done = bash(folder.path(), &script);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        prop_assert_eq!(recorded(folder.path()), (arguments.clone(), value), "{}\n{}", script, said);
        prop_assert!(!folder.path().join(CANARY).exists());
        let plain = document("slurm", &job(launch, &[], "")).unwrap();
        prop_assert_eq!(directives(&script), directives(&plain));
    }

    #[test]
    fn out_of_a_manifest(launch in launches(), arguments in prop::collection::vec(text(), 0..4), value in text()) {
        let spec = job(launch, &arguments, &value);
        let Some(text) = document("kubeflow", &spec) else { return Ok(()) };
        let manifest: Value = serde_saphyr::from_str(&text).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        let mut found = Vec::new();
        containers(&manifest, &mut found);
        let argv = |container: &Value| [strings(&container["command"]), strings(&container["args"])].concat();
        prop_assert!(found.iter().any(|container| argv(container).ends_with(&arguments)), "{text}");
        prop_assert!(found.iter().any(|container| v_of(&container["env"]).as_ref() == Some(&value)), "{text}");
        prop_assert_eq!(&manifest["metadata"]["name"], "plain");
    }

    #[test]
    fn out_of_a_runai_body(launch in launches(), arguments in prop::collection::vec(text(), 0..4), value in text()) {
        let spec = job(launch, &arguments, &value);
        let Some(text) = document("runai", &spec) else { return Ok(()) };
        let body: Value = serde_json::from_str(&text).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        let parts = [&body["spec"], &body["masterSpec"]];
        // The control plane splits both strings like a shell, and Kubernetes then fills names in.
        let words = |text: &Value| shlex::split(&expanded(text.as_str().unwrap_or_default())).unwrap_or_default();
        let argv = |part: &Value| [words(&part["command"]), words(&part["args"])].concat();
        prop_assert!(parts.iter().any(|part| argv(part).ends_with(&arguments)), "{text}");
        prop_assert!(parts.iter().any(|part| v_of(&part["environmentVariables"]).as_ref() == Some(&value)), "{text}");
    }

    #[test]
    fn out_of_the_lines_for_docker(arguments in prop::collection::vec(text(), 0..4), value in text()) {
        let spec = job(Launch::Mpi, &arguments, &value);
        let client = Client::builder().config(Config::empty("/nonexistent")).build().unwrap();
        // Planning refuses a NUL as well; here the lines must do so.
        let plan = client.plan_offline("local", &job(Launch::Mpi, &[], "")).unwrap();
        let Ok(script) = weftrun::convert::docker_commands(&spec, plan.fabric()) else {
            let has_nul = arguments.iter().chain([&value]).any(|text| text.contains('\0'));
            prop_assert!(has_nul, "only a NUL is refused");
            return Ok(());
        };
        let folder = tempfile::tempdir().unwrap();
        programs(folder.path(), &[
            ("docker", r#"if [ "$1" = exec ]; then shift 2; exec "$@"; fi"#),
            ("mpirun", r#"for word; do printf '%s\0' "$word"; done > "$OUT/args""#),
        ]);
        // Where the hosts' names go is for the user to fill in.
        let done = bash(folder.path(), &script.replace("<host-1>:", "one:").replace("<host-2>:", "two:"));
        let (words, _) = recorded(folder.path());
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        prop_assert!(words.ends_with(&arguments), "{words:?}\n{script}\n{said}");
        prop_assert!(words.contains(&format!("V={value}")), "{words:?}\n{script}");
        prop_assert!(!folder.path().join(CANARY).exists());
    }

    /// Point A1 of issue 14.
    #[test]
    fn code_out_of_an_sbatch_script_is_the_same_bytes(text in text(), end in prop::sample::select(vec!["", "\n"])) {
        let text = text + end;
        let mut spec = job(Launch::PerNode, &[], "");
        spec.image = None;
        spec.code = Some(weftrun::core::spec::Code::Script { name: "x.py".to_owned(), text: text.clone() });
        let Some(script) = document("slurm", &spec) else {
            prop_assert!(text.contains('\0'), "only a NUL is refused");
            return Ok(());
        };
        let folder = tempfile::tempdir().unwrap();
        programs(folder.path(), &[("record", "cp x.py \"$OUT/copied\""), ("srun", SRUN_IN_FOLDER), SCONTROL]);
        fs::create_dir_all(folder.path().join("weftrun")).unwrap();
        let done = bash(folder.path(), &script);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        prop_assert_eq!(fs::read(folder.path().join("copied")).unwrap_or_default(), text.into_bytes(), "{}\n{}", script, said);
        prop_assert!(!folder.path().join(CANARY).exists());
    }

    #[test]
    fn every_other_field_is_carried_or_refused_and_never_run(
        field in 0..13usize, text in text(), launch in launches(), backend in prop::sample::select(vec!["slurm", "kubeflow", "runai"]),
    ) {
        let mut spec = job(launch, &[], "");
        match field {
            0 => spec.name.clone_from(&text),
            1 => spec.image = Some(text.clone()),
            2 => spec.queue = Some(text.clone()),
            3 => spec.priority = Some(text.clone()),
            4 => spec.workdir = Some(text.clone()),
            5 => spec.volumes.push(Volume { name: text.clone(), mount: format!("/{text}"), source: VolumeSource::HostPath(format!("/{text}")), read_only: true }),
            6 => drop(spec.annotations.insert("example.com/note".to_owned(), text.clone())),
            7 => drop(spec.backend.insert(backend.to_owned(), serde_json::json!({"account": text, "scheduler": text}))),
            8 => drop(spec.backend.insert(backend.to_owned(), serde_json::json!({"sbatch": [format!("--comment={text}")], "srun": [text]}))),
            9 => spec.secrets.push(weftrun::core::spec::SecretRef { env: "S".to_owned(), secret: text.clone(), key: text.clone() }),
            10 => spec.code = Some(weftrun::core::spec::Code::Script { name: text.clone(), text: text.clone() }),
            11 => drop(spec.backend.insert(backend.to_owned(), serde_json::json!({"secrets-dir": text, "mpi": text, "container": "docker"}))),
            _ => spec.env.push(weftrun::core::spec::EnvVar { name: text.clone(), value: "x".to_owned() }),
        }
        let Ok(rendered) = rendered(backend, &spec) else { return Ok(()) };
        let document = &rendered.documents[0].text;
        match backend {
            "slurm" => {
                let folder = tempfile::tempdir().unwrap();
                programs(folder.path(), &[RECORD, SRUN, TORCHRUN, SCONTROL]);
                bash(folder.path(), document);
                prop_assert!(!folder.path().join(CANARY).exists(), "{document}");
                prop_assert!(!document.contains('\0'), "{document}");
                let uid = |line: &&str| line.starts_with("#SBATCH --uid");
                prop_assert!(!head(document).any(|line| uid(&line)), "{document}");
            }
            "kubeflow" => {
                let manifests: Vec<Value> = serde_saphyr::from_multiple(document).map_err(|error| TestCaseError::fail(format!("{error}\n{document}")))?;
                prop_assert_eq!(manifests.len(), 1, "{}", document);
            }
            _ => prop_assert!(serde_json::from_str::<Value>(document).is_ok(), "{document}"),
        }
    }
}

/// Point A4 of issue 14: in a log folder that others write to.
#[test]
fn a_job_uses_no_folder_and_no_file_that_somebody_planted() {
    let mut spec = job(Launch::PerNode, &[], "");
    spec.image = None;
    spec.code =
        Some(weftrun::core::spec::Code::Script { name: "x.py".to_owned(), text: "mine\n".to_owned() });
    let script = document("slurm", &spec).unwrap();
    let name =
        script.lines().find_map(|line| line.strip_prefix("weftrun_base=\"$HOME/\"weftrun/\"")).unwrap();
    let name = name.trim_end_matches('"').replace("${SLURM_JOB_ID}", "7");
    for planted in ["code", "exit.new"] {
        let (folder, victim) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        programs(folder.path(), &[RECORD, ("srun", SRUN_IN_FOLDER), SCONTROL]);
        fs::create_dir_all(folder.path().join("weftrun")).unwrap();
        let target = if planted == "code" { victim.path().to_owned() } else { victim.path().join("file") };
        if planted != "code" {
            fs::write(&target, "kept\n").unwrap();
        }
        std::os::unix::fs::symlink(&target, folder.path().join(format!("weftrun/{name}.{planted}"))).unwrap();
        let done = bash(folder.path(), &script);
        if planted == "code" {
            assert_eq!(done.status.code(), Some(1), "{done:?}");
            assert_eq!(fs::read_dir(victim.path()).unwrap().count(), 0, "the link was followed");
        } else {
            assert_eq!(done.status.code(), Some(0), "{done:?}");
            assert_eq!(fs::read_to_string(&target).unwrap(), "kept\n", "the link was followed");
            assert_eq!(
                fs::read_to_string(folder.path().join(format!("weftrun/{name}.exit"))).unwrap(),
                "0 0\n"
            );
        }
    }
}

/// Point B1 of issue 14: the first job to start claims its submission; requeues and tasks of an array pass.
#[test]
fn only_the_first_of_two_copies_of_a_submission_runs() {
    let spec = job(Launch::PerNode, &["a".to_owned()], "");
    let mut spec = spec;
    spec.image = None;
    let script = document("slurm", &spec).unwrap();
    let once = script.lines().find_map(|line| line.strip_prefix("weftrun_once=\"$HOME/\"")).unwrap();
    let once = once.split_whitespace().next().unwrap();
    let run = |folder: &Path, further: &[(&str, &str)]| {
        let exports: String =
            further.iter().map(|(name, value)| format!("export {name}={value}\n")).collect();
        let _ = fs::remove_file(folder.join("args"));
        let done =
            bash(folder, &script.replacen("set -eo pipefail\n", &format!("set -eo pipefail\n{exports}"), 1));
        (done.status.code(), folder.join("args").exists())
    };
    let folder = tempfile::tempdir().unwrap();
    programs(folder.path(), &[RECORD, SRUN, SCONTROL]);
    fs::create_dir_all(folder.path().join("weftrun")).unwrap();
    // Submitted by hand: any number of times.
    for id in ["7", "8"] {
        assert_eq!(run(folder.path(), &[("SLURM_JOB_ID", id)]), (Some(0), true), "by hand, job {id}");
    }
    fs::create_dir(folder.path().join(once)).unwrap();
    for (id, array, wanted) in [
        ("7", None, (Some(0), true)),
        ("8", None, (Some(75), false)),
        ("7", None, (Some(0), true)),
        ("9", Some("7"), (Some(0), true)),
        ("7", Some("6"), (Some(75), false)),
    ] {
        let further: Vec<_> =
            [("SLURM_JOB_ID", id)].into_iter().chain(array.map(|id| ("SLURM_ARRAY_JOB_ID", id))).collect();
        assert_eq!(run(folder.path(), &further), wanted, "job {id} of array {array:?}");
    }
}
