//! Job files: every case in `tests/cases/spec`, and the laws that hold between file, flags, builder and writer.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use weftrun_core::Finding;
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::{Fabric, Origin, RuleSetting};
use weftrun_core::finding::PatchEdit;
use weftrun_core::spec::file::{reference, template};
use weftrun_core::spec::{
    JobFile, JobSpec, Launch, Overrides, PartialJob, RestartPolicy, Role, Volume, VolumeSource, patched,
    to_toml,
};

fn cases(kind: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/spec").join(kind);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

/// Returns one line per finding, for review.
fn told(findings: &[Finding]) -> String {
    findings.iter().fold(String::new(), |mut out, finding| {
        let place = finding.span.as_ref().map_or("-".to_owned(), |s| format!("{}:{}", s.line, s.column));
        let fix = finding.fix.as_ref().map_or(String::new(), |fix| format!("\n        fix: {}", fix.text));
        let at = finding.subject.as_deref().unwrap_or("");
        let _ =
            writeln!(out, "{place} {:?} {} [{at}] {}{fix}", finding.severity, finding.code, finding.message);
        out
    })
}

#[test]
fn valid_files() {
    for path in cases("valid") {
        let read = JobFile::parse(name(&path), &std::fs::read(&path).unwrap());
        let file = read.unwrap_or_else(|error| panic!("{}: {}", path.display(), told(error.findings())));
        let job = serde_json::to_string_pretty(&file.spec).unwrap();
        let script = file.script.unwrap_or_default();
        insta::assert_snapshot!(
            format!("valid_{}", name(&path)),
            format!("{job}\nscript: {script}\n{}", told(&file.findings))
        );
    }
}

#[test]
fn invalid_files() {
    for path in cases("invalid") {
        let error = JobFile::parse(name(&path), &std::fs::read(&path).unwrap()).unwrap_err();
        insta::assert_snapshot!(
            format!("invalid_{}", name(&path)),
            format!("{error}\n{}", told(error.findings()))
        );
    }
}

fn case(path: &str) -> JobSpec {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/spec").join(path);
    JobFile::parse(path, &std::fs::read(file).unwrap()).unwrap().spec
}

#[test]
fn toml_and_yaml_give_the_same_job() {
    let mut from_yaml = case("valid/full.yaml");
    // The one difference: TOML's own hexadecimal is a number, and a program gets the text of the file in
    // both.
    from_yaml.origins = case("valid/full.toml").origins;
    assert_eq!(case("valid/full.toml"), from_yaml);
}

const FLAGS: &[(&str, &str)] = &[
    ("--name", "llama-8b"),
    ("--image", "nvcr.io/nvidia/pytorch:25.09-py3"),
    ("--launch", "torchrun"),
    ("--nodes", "4"),
    ("--gpus-per-node", "8"),
    ("--ranks-per-node", "8"),
    ("--instance-type", "p5.48xlarge"),
    ("--cpus", "180"),
    ("--memory", "1800Gi"),
    ("--shm", "64Gi"),
    ("--resource", "vpc.amazonaws.com/efa=32"),
    ("--git", "https://git.example.com/team/train.git"),
    ("--git-ref", "main"),
    ("--env", "NCCL_DEBUG=INFO"),
    ("--env", "OMP_NUM_THREADS=8"),
    ("--env", "USE_CACHE=true"),
    ("--secret", "WANDB_API_KEY=wandb/api-key"),
    ("--secret", "HF_TOKEN=hugging-face/token"),
    ("--volume", "data:/data=claim:datasets,ro"),
    ("--volume", "scratch:/scratch=host:/fsx/scratch"),
    ("--volume", "tmp:/tmp=memory:32Gi"),
    ("--workdir", "/workspace"),
    ("--fabric", "efa"),
    ("--no-fabric-rule", "efa.hugepages"),
    ("--fabric-rule", "efa.colocate"),
    ("--gid", "3"),
    ("--network", "kube-system/roce"),
    ("--network", "rdma"),
    ("--stack", "bundled"),
    ("--inject", "client"),
    ("--webhook", "no"),
    ("--trainer-version", "2.3"),
    ("--strict", "true"),
    ("--detect", "true"),
    ("--bandwidth", "true"),
    ("--profile", "dgxc"),
    ("--queue", "gpu"),
    ("--priority", "high"),
    ("--restart", "3"),
    ("--avoid", "gpu-17,gpu-18"),
    ("--time-limit", "1d12h"),
    ("--after", "slurm://prod/184223"),
    ("--sweep", "rate=1e-3,0x10,warm up"),
    ("--sweep", "seed=1,2"),
    ("--parallel", "4"),
    ("--label", "team=nlp"),
    ("--label", "example.com/project=p1"),
    ("--annotation", "example.com/note=any text: at all"),
];

fn flags() -> Overrides {
    let flags = FLAGS.iter().fold(Overrides::default(), |flags, (flag, value)| flags.with(*flag, *value));
    flags.command(["train.py", "--lr", "1e-4", "--steps", "0x10"])
}

#[test]
fn every_flag_is_tried() {
    let untried: Vec<&str> = weftrun_core::spec::job_flags()
        .map(weftrun_core::spec::JobFlag::name)
        // A script or a folder replaces the repository, an array the sweep; a runtime is a file beside the job;
        // a job with tasks is not retried.
        .filter(|flag| !matches!(*flag, "--" | "--script" | "--code" | "--array" | "--runtime" | "--retry"))
        .filter(|flag| !FLAGS.iter().any(|(tried, _)| tried == flag))
        .collect();
    assert_eq!(untried, [""; 0]);
}

#[test]
fn flags_give_the_same_job() {
    let mut draft = PartialJob::new();
    draft.flags(&flags());
    let job = draft.finish(&Catalogue::builtin()).unwrap_or_else(|e| panic!("{}", told(e.findings()))).spec;
    let mut file = case("valid/full.toml");
    // Settings of one backend have no flags.
    file.backend.remove("slurm");
    assert_eq!(job, file);
    assert_eq!(job.origins.get("nodes"), Origin::Flag("--nodes".to_owned()));
    assert_eq!(job.origins.get("env.NCCL_DEBUG"), Origin::Flag("--env".to_owned()));
}

#[test]
fn a_builder_gives_the_same_job() {
    let role = Role::worker().nodes(2).gpus_per_node(8).instance_type("p5.48xlarge").command(["train.py"]);
    let mount = |source| Volume { name: "d".to_owned(), mount: "/d".to_owned(), source, read_only: false };
    let built = JobSpec::builder("same")
        .launch(Launch::Torchrun)
        .role(role)
        .env("A", "1")
        .secret("B", "s", "k")
        .volume(mount(VolumeSource::Claim("c".to_owned())))
        .fabric(Fabric::Efa)
        .rule("efa.hugepages", RuleSetting::Off)
        .queue("q")
        .restart(RestartPolicy::OnFailure { max: 2 })
        .time_limit(Duration::from_secs(3600))
        .label("k", "v")
        .build()
        .unwrap();
    let file = br#"
        name = "same"
        launch = "torchrun"
        nodes = 2
        gpus_per_node = 8
        instance_type = "p5.48xlarge"
        command = ["train.py"]
        queue = "q"
        restart = { max = 2 }
        time_limit = "1h"
        fabric = { kind = "efa", rules = { efa.hugepages = "off" } }
        env = { A = "1" }
        secrets = { B = "s/k" }
        volumes.d = { mount = "/d", claim = "c" }
        labels = { k = "v" }
    "#;
    assert_eq!(JobFile::parse("job.toml", file).unwrap().spec, built);
}

#[test]
fn a_flag_wins_over_the_file_and_says_so() {
    let mut draft = PartialJob::new();
    draft.file("job.toml", b"name = 'a'\nnodes = 2\ncommand = 'x'\nenv = { A = '1', B = '2' }\n");
    draft.flags(&Overrides::default().with("--nodes", "8").with("--env", "A=3"));
    let job = draft.finish(&Catalogue::builtin()).unwrap().spec;
    assert_eq!(job.nodes(), 8);
    let env: Vec<(&str, &str)> = job.env.iter().map(|v| (v.name.as_str(), v.value.as_str())).collect();
    assert_eq!(env, [("A", "3"), ("B", "2")]);
    assert_eq!(job.origins.get("name"), Origin::Job);
    assert_eq!(job.origins.get("env.B"), Origin::Job);
    assert_eq!(job.origins.get("nodes"), Origin::Flag("--nodes".to_owned()));
    assert_eq!(job.origins.get("image"), Origin::Default);
}

#[test]
fn wrong_flags_are_called_by_their_names() {
    let mut draft = PartialJob::new();
    draft.flags(
        &Overrides::default()
            .with("--name", "x")
            .with("--nodes", "many")
            .with("--memory", "64GB")
            .with("--fabric", "eaf")
            .with("--env", "SECRET")
            .with("--env", "=x")
            .with("--volume", "data")
            .with("--git-ref", "main")
            .with("--restart", "0")
            .with("--", "true"),
    );
    insta::assert_snapshot!(told(draft.finish(&Catalogue::builtin()).unwrap_err().findings()));
}

/// A flag's value has no place in the file, and no line of the file is shown for it.
#[test]
fn findings_about_a_flags_value_name_the_flag_and_no_line() {
    let file = b"name = 'a'\nnodes = 2\ngpus_per_node = 8\ncommand = ['x']\n";
    for (flag, value, words) in [
        ("--name", "A_B", "`A_B` cannot be a job's name"),
        ("--queue", "a b", "`a b` is not the name of a queue"),
        ("--priority", "", "is not the name of a priority"),
        ("--gpus-per-node", "99999", "99999 ranks on a node"),
        ("--nodes", "x", "must be a whole number from 1, not `x`"),
        ("--nodes", "99999999999", "must be at most 4294967295, not 99999999999"),
        ("--nodes", "-1", "must be a whole number from 1, not -1"),
        ("--gid", "-1", "must be `auto`, `compute` or a number from 0, not `-1`"),
        ("--retry", "often", "must be a number, not `often`"),
        ("--retry", "0", "must be a whole number from 1, not 0"),
        ("--restart", "sometimes", "must be `never`, `on-failure` or a number, not `sometimes`"),
        ("--restart", "-1", "must be a whole number from 1, not -1"),
    ] {
        let mut draft = PartialJob::new();
        draft.file("job.toml", file);
        draft.flags(&Overrides::default().with(flag, value));
        let error = draft.finish(&Catalogue::builtin()).unwrap_err();
        let [finding] = error.findings() else { panic!("{flag}: {:?}", error.findings()) };
        assert!(finding.message.contains(words), "{flag}: {}", finding.message);
        assert_eq!((finding.subject.as_deref(), &finding.span), (Some(flag), &None), "{finding:?}");
    }
    let in_file = |line: &str| {
        let mut draft = PartialJob::new();
        draft.file("job.toml", format!("name = 'a'\ncommand = ['x']\n{line}\n").as_bytes());
        let error = draft.finish(&Catalogue::builtin()).unwrap_err();
        error.findings().iter().map(|one| one.message.clone()).collect::<Vec<_>>().join("; ")
    };
    assert!(in_file("fabric = { gid = -1 }").contains("a number from 0, not -1"));
    assert!(in_file("restart = 'sometimes'").contains("`never`, `on-failure`, or a table, not `sometimes`"));
    assert!(in_file("nodes = 'x'").contains("a whole number from 1, not a string"));
}

#[test]
fn flags_reach_the_one_worker_of_a_file_with_roles() {
    let file = b"name = 'a'\nlaunch = 'mpi'\n[roles.launcher]\ncommand = ['x']\n[roles.gpu]\nnodes = 2\n";
    let with = |overrides: &Overrides| {
        let mut draft = PartialJob::new();
        draft.file("job.toml", file);
        draft.flags(overrides);
        draft.finish(&Catalogue::builtin())
    };
    let job = with(&Overrides::default().with("--nodes", "4")).unwrap().spec;
    assert_eq!((job.roles.len(), job.roles[1].name.as_str(), job.roles[1].nodes), (2, "gpu", 4));
}

#[test]
fn hostile_files_are_refused_at_once() {
    let deep =
        |open: &str, close: &str| format!("name: x\nenv: {}{}", open.repeat(100_000), close.repeat(100_000));
    let bomb = (0..30).fold("a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned(), |text, n| {
        let alias = format!("*a{n},").repeat(9);
        format!("{text}a{}: &a{} [{}]\n", n + 1, n + 1, alias.trim_end_matches(','))
    });
    let keys = (0..60_000).fold(String::new(), |text, n| format!("{text}k{n}: 1\n"));
    let mut cases: Vec<(&str, &str, Vec<u8>)> = vec![
        ("100 MB", "x.toml", vec![b'a'; 100 << 20]),
        ("binary", "x.toml", vec![0x7f, b'E', b'L', b'F', 0, 1, 2]),
        ("utf-16", "x.yaml", vec![0xff, 0xfe, b'n', 0]),
        ("latin-1", "x.yaml", b"name: caf\xe9\n".to_vec()),
        ("deep list", "x.yaml", deep("[", "]").into_bytes()),
        ("deep map", "x.yaml", deep("{a: ", "}").into_bytes()),
        ("deep toml", "x.toml", format!("a = {}", "[".repeat(500_000)).into_bytes()),
        ("alias bomb", "x.yaml", bomb.into_bytes()),
        ("many keys", "x.yaml", keys.clone().into_bytes()),
        ("many toml keys", "x.toml", keys.replace(": ", " = ").into_bytes()),
        ("one long line", "x.yaml", vec![b'a'; 1 << 20]),
        ("many errors", "x.toml", "=\n".repeat(300_000).into_bytes()),
        ("merge cycle", "x.yaml", b"a: &a\n  <<: *a\n".to_vec()),
    ];
    for (what, file, bytes) in &mut cases {
        // The tests of the command line limit its time and memory.
        let begun = Instant::now();
        let error = JobFile::parse(file, bytes).expect_err(what);
        let took = begun.elapsed();
        assert!(
            !error.findings().is_empty() && error.findings().len() <= 201,
            "{what}: {}",
            error.findings().len()
        );
        println!("{what}: {took:?}: {}", error.findings()[0].message.chars().take(120).collect::<String>());
    }
}

#[test]
fn patches_leave_everything_else_as_it_stands() {
    let text = "# my job\nname = \"a\"   # the name\nnodes = 2 # two\nfabric = \"efa\"\n\n[env]\n# keep\nNCCL_DEBUG = 'WARN'  # quiet\nX = \"1\"\n";
    let edit = |path: &str, op: &str, value: Option<serde_json::Value>| PatchEdit {
        path: path.to_owned(),
        op: op.to_owned(),
        value,
    };
    let edits = [
        edit("nodes", "set", Some(4.into())),
        edit("env.NCCL_DEBUG", "set", Some("INFO".into())),
        edit("env.X", "unset", None),
        edit("env.NEW", "set", Some("y".into())),
        edit("fabric.rules.\"efa.hugepages\"", "set", Some("off".into())),
        edit("labels.team", "set", Some("nlp".into())),
        edit("secrets.GONE", "unset", None),
    ];
    let new = patched("job.toml", text, &edits).unwrap();
    insta::assert_snapshot!(new);
    assert_eq!(patched("job.toml", &new, &edits).unwrap(), new, "twice is once");
    assert!(patched("job.toml", text, &[edit("name.x", "set", Some(1.into()))]).is_err());
    assert!(patched("job.yaml", "name: a\n", &edits).is_err());
}

#[test]
fn every_case_is_written_and_read_back() {
    for path in cases("valid") {
        let job = JobFile::parse(name(&path), &std::fs::read(&path).unwrap()).unwrap().spec;
        let text = to_toml(&job);
        let back = JobFile::parse("job.toml", text.as_bytes());
        let back = back.unwrap_or_else(|error| panic!("{text}\n{}", told(error.findings())));
        assert_eq!(back.spec, job, "{text}");
    }
    insta::assert_snapshot!("written", to_toml(&case("valid/full.toml")));
}

#[test]
fn a_template_is_the_job_with_comments() {
    let job = case("valid/full.toml");
    let text = template(&job);
    let back = JobFile::parse("job.toml", text.as_bytes())
        .unwrap_or_else(|e| panic!("{text}\n{}", told(e.findings())));
    assert_eq!(back.spec, job);
    insta::assert_snapshot!(template(&case("valid/smallest.toml")));
}

/// The schema and the reader accept the same job files, as far as a schema can express it.
#[test]
fn the_schema_accepts_valid_files_and_refuses_wrong_shapes() {
    let schema = jsonschema::validator_for(&reference::schema()).unwrap();
    let json = |path: &Path| {
        let text = std::fs::read_to_string(path).unwrap();
        match path.extension().unwrap().to_str().unwrap() {
            "toml" => serde_json::to_value(toml::from_str::<toml::Table>(&text).unwrap()).unwrap(),
            _ => weftrun_core::span::yaml(&text).unwrap().root.to_json(),
        }
    };
    for path in cases("valid") {
        let errors: Vec<String> = schema.iter_errors(&json(&path)).map(|e| e.to_string()).collect();
        assert!(errors.is_empty(), "{}: {errors:?}", path.display());
    }
    for wrong in ["many.toml", "instance.yaml", "list.yaml"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/spec/invalid").join(wrong);
        assert!(!schema.is_valid(&json(&path)), "{wrong}");
    }
}

/// Generated pages: this test writes them (`WEFTRUN_WRITE_DOCS=1`), so they cannot drift.
#[test]
fn reference_pages_are_current() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    let schema = serde_json::to_string_pretty(&reference::schema()).unwrap() + "\n";
    let pages = [
        ("spec.md", reference::markdown()),
        ("env.md", weftrun_core::env_names::markdown()),
        ("config.md", weftrun_core::config::markdown()),
        ("job.schema.json", schema),
    ];
    for (page, text) in pages {
        let path = docs.join(page);
        if std::env::var_os("WEFTRUN_WRITE_DOCS").is_some() {
            std::fs::create_dir_all(&docs).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let current = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            current == text,
            "{} is not current: run the tests with WEFTRUN_WRITE_DOCS=1",
            path.display()
        );
    }
}

mod laws {
    use proptest::prelude::*;

    use super::*;

    fn word() -> impl Strategy<Value = String> {
        "[a-z][a-z0-9-]{0,8}[a-z0-9]"
    }

    fn rule() -> impl Strategy<Value = String> {
        let ids: Vec<&str> = weftrun_core::request::RULES.iter().map(|rule| rule.id).collect();
        proptest::sample::select(ids).prop_map(str::to_owned)
    }

    prop_compose! {
        fn role(name: &'static str)(
            nodes in 1_u32..64, gpus in 0_u32..8, memory in proptest::option::of(1_u32..2000),
            command in proptest::collection::vec("\\PC{0,12}", 0..4), env in proptest::collection::btree_map("[A-Z_]{1,8}", "\\PC{0,10}", 0..3),
        ) -> Role {
            let argv = std::iter::once("./run".to_owned()).chain(command);
            let mut role = Role::new(name).nodes(nodes).gpus_per_node(gpus).command(argv);
            role.memory = memory.map(|gi| format!("{gi}Gi"));
            for (name, value) in env {
                role = role.env(name, value);
            }
            role
        }
    }

    prop_compose! {
        fn job()(
            name in word(), one in role("worker"), two in proptest::option::of(role("second")),
            env in proptest::collection::btree_map("[A-Z_]{1,8}", "\\PC{0,10}", 0..4),
            labels in proptest::collection::btree_map(word(), word(), 0..3),
            seconds in proptest::option::of(1_u64..1_000_000), max in proptest::option::of(1_u32..9),
            rules in proptest::collection::btree_map(rule(), any::<bool>(), 0..3),
        ) -> JobSpec {
            let mut builder = JobSpec::builder(name).role(one);
            builder = two.into_iter().fold(builder, weftrun_core::spec::JobSpecBuilder::role);
            builder = env.into_iter().fold(builder, |b, (k, v)| b.env(k, v));
            builder = labels.into_iter().fold(builder, |b, (k, v)| b.label(k, v));
            builder = seconds.into_iter().fold(builder, |b, s| b.time_limit(Duration::from_secs(s)));
            builder = max.into_iter().fold(builder, |b, max| b.restart(RestartPolicy::OnFailure { max }));
            let setting = |on| if on { RuleSetting::On } else { RuleSetting::Off };
            builder = rules.into_iter().fold(builder, |b, (id, on)| b.rule(id, setting(on)));
            builder.build().unwrap()
        }
    }

    /// Returns the flags for a job of one role.
    fn flags_of(job: &JobSpec) -> Overrides {
        let role = &job.roles[0];
        let mut flags = Overrides::default()
            .with("--name", &job.name)
            .with("--nodes", role.nodes.to_string())
            .with("--gpus-per-node", role.gpus_per_node.to_string())
            .command(&role.command);
        role.memory.iter().for_each(|memory| flags.set("--memory", memory));
        job.env.iter().for_each(|var| flags.set("--env", format!("{}={}", var.name, var.value)));
        job.labels.iter().for_each(|(key, value)| flags.set("--label", format!("{key}={value}")));
        job.time_limit.iter().for_each(|limit| flags.set("--time-limit", format!("{}s", limit.as_secs())));
        if let RestartPolicy::OnFailure { max } = job.restart {
            flags.set("--restart", max.to_string());
        }
        for (id, setting) in &job.fabric.rules {
            let off = *setting == RuleSetting::Off;
            flags.set(if off { "--no-fabric-rule" } else { "--fabric-rule" }, id);
        }
        flags
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn what_is_written_is_read_back(job in job()) {
            let text = to_toml(&job);
            let back = JobFile::parse("job.toml", text.as_bytes());
            prop_assert_eq!(back.map(|f| f.spec).map_err(|e| told(e.findings())), Ok(job), "{}", text);
        }

        #[test]
        fn yaml_of_the_same_data_is_the_same_job(job in job()) {
            let data: serde_json::Value = serde_json::to_value(toml::from_str::<toml::Table>(&to_toml(&job)).unwrap()).unwrap();
            let text = serde_json::to_string(&data).unwrap();
            let mut back = JobFile::parse("job.yaml", text.as_bytes()).map_err(|e| told(e.findings())).unwrap().spec;
            // toml's own table sorts its keys.
            let mut job = job;
            for list in [&mut back.env, &mut job.env] { list.sort_by(|a, b| a.name.cmp(&b.name)); }
            for job in [&mut back, &mut job] {
                job.roles.sort_by(|a, b| a.name.cmp(&b.name));
                job.roles.iter_mut().for_each(|r| r.env.sort_by(|a, b| a.name.cmp(&b.name)));
            }
            prop_assert_eq!(back, job);
        }

        #[test]
        fn flags_and_the_file_are_the_same_job(mut job in job()) {
            // Values without a flag: further roles, and variables of one role.
            job.roles.truncate(1);
            job.roles[0].env.clear();
            let flags = flags_of(&job);
            let mut draft = PartialJob::new();
            draft.flags(&flags);
            let given = draft.finish(&Catalogue::builtin()).map(|f| f.spec).map_err(|e| told(e.findings()));
            prop_assert_eq!(given, Ok(job), "{:?}", flags);
        }

        #[test]
        fn no_text_makes_it_panic(text in "(?s).{0,200}", toml in any::<bool>()) {
            let _ = JobFile::parse(if toml { "x.toml" } else { "x.yaml" }, text.as_bytes());
        }

        #[test]
        fn no_torn_file_makes_it_panic(cut in 0_usize..1400, byte in any::<u8>(), at in 0_usize..1400) {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/spec/valid/full.toml");
            let mut bytes = std::fs::read(path).unwrap();
            let at = at.min(bytes.len() - 1);
            bytes[at] = byte;
            bytes.truncate(cut);
            let _ = JobFile::parse("x.toml", &bytes);
            let _ = JobFile::parse("x.yaml", &bytes);
        }
    }
}

/// Point 10 of issue 39.
#[test]
fn a_folder_of_code_is_read_written_and_overridden() {
    let read = |text: &str| JobFile::parse("job.toml", text.as_bytes());
    let head = "name = \"a\"\ncommand = [\"x\"]\n";
    let file = read(&format!("{head}workdir = \"sub\"\ncode = {{ dir = \".\" }}\n")).unwrap();
    assert_eq!(file.code_dir().as_deref(), Some("."));
    assert_eq!(file.spec.workdir_in_code(), Some("sub"));
    assert!(to_toml(&file.spec).contains("code = { dir = \".\" }"), "{}", to_toml(&file.spec));
    // A backend never sends a job without its folder.
    assert_eq!(file.spec.code_archive().unwrap_err().kind(), weftrun_core::ErrorKind::InvalidSpec);
    for (text, said) in [
        ("code = { dir = \".\", git = \"https://h/r\" }", "one of a script, a repository and a folder"),
        ("code = { dir = \".\", ref = \"main\" }", "`ref` belongs to a repository"),
        ("code = { dir = \".\", text = \"x\" }", "`text` belongs to a script"),
        ("code = { dir = \"\" }", "is not a folder"),
        ("code = { folder = \".\" }", "did you mean `dir`?"),
        ("code = { dir = \".\" }\nworkdir = \"a/../..\"", "is not inside the job's folder"),
        ("workdir = \"sub\"", "is not an absolute path"),
    ] {
        let error = read(&format!("{head}{text}\n")).unwrap_err();
        assert!(told(error.findings()).contains(said), "{text}: {}", told(error.findings()));
    }
    // A folder on the command line replaces the repository of the file.
    let mut draft = PartialJob::new();
    draft.file("job.toml", format!("{head}code = {{ git = \"https://h/r\", ref = \"main\" }}\n").as_bytes());
    draft.flags(&Overrides::default().with("--code", "src"));
    assert_eq!(draft.finish(&Catalogue::builtin()).unwrap().code_dir().as_deref(), Some("src"));
}
