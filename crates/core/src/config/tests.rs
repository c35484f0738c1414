//! The layers, invalid values, and locked values.

use super::*;
use crate::catalogue::Catalogue;
use crate::request::Origin;
use crate::spec::{Overrides, PartialJob};

fn input(layers: &[(Layer, &str)], env: &[(&str, &str)]) -> Input {
    let file = |layer: Layer| match layer {
        Layer::System => "/etc/weftrun/config.toml",
        Layer::User => "~/.config/weftrun/config.toml",
        Layer::Project => "./.weftrun.toml",
    };
    let source = |(layer, text): &(Layer, &str)| Source {
        layer: *layer,
        file: file(*layer).to_owned(),
        text: (*text).to_owned(),
    };
    let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Input { sources: layers.iter().map(source).collect(), env: env.collect(), trusted: true }
}

fn told(findings: &[crate::Finding]) -> String {
    findings
        .iter()
        .map(|f| {
            let place =
                f.span.as_ref().map_or(String::new(), |s| format!("{}:{}:{}", s.file, s.line, s.column));
            format!("{place} {} [{}] {}\n", f.code, f.subject.as_deref().unwrap_or(""), f.message)
        })
        .collect()
}

fn settings(config: &ResolvedConfig) -> String {
    let line = |(path, setting): (&[String], &Setting)| {
        let place = setting.span.as_ref().map_or(String::new(), |s| format!(" {}:{}", s.file, s.line));
        format!("{} = {} ({:?}{place})\n", path.join("."), setting.value, setting.origin)
    };
    config.settings.iter().map(line).collect()
}

const USER: &str = r#"
default_target = "prod"
namespace = "mine"
[target.prod]
backend = "kubeflow"
context = "prod"
namespace = "nlp"
[target.hpc]
backend = "slurm"
ssh = { host = "login", port = 22 }
[job]
queue = "gpu"
fabric = "efa"
labels = { team = "nlp", kind = "user" }
[instances.ours]
extends = "p5.48xlarge"
efa_max = 16
[profile.ours]
extends = "roce"
job.queue = "from-profile"
job.priority = "from-profile"
[tui]
theme = "dark"
"#;

#[test]
fn later_layers_win_value_by_value_and_say_where_from() {
    let project = "[job]\nqueue = \"project\"\nlabels.kind = \"project\"\n[job.fabric]\nstrict = true\n";
    let layers = [(Layer::Project, project), (Layer::User, USER)];
    let config = resolve(&input(&layers, &[("WEFTRUN_PRIORITY", "high"), ("WEFTRUN_QUEUE", "")])).unwrap();
    assert_eq!(config.findings, []);
    insta::assert_snapshot!(settings(&config));
}

#[test]
fn targets_profiles_and_rows_come_out_typed() {
    let config = resolve(&input(&[(Layer::User, USER)], &[])).unwrap();
    let targets = config.targets();
    assert_eq!(targets["prod"].namespace.as_deref(), Some("nlp"));
    assert_eq!(targets["prod"].settings.keys().collect::<Vec<_>>(), ["context"]);
    assert_eq!(targets["hpc"].namespace.as_deref(), Some("mine"));
    assert_eq!(targets["hpc"].settings["ssh"]["port"], 22);
    assert_eq!(config.default_target().as_deref(), Some("prod"));
    assert_eq!(config.catalogue().unwrap().get("ours").unwrap().efa_max, Some(16));
    assert_eq!(config.profiles()["ours"].keys().collect::<Vec<_>>(), ["extends"]);
    assert_eq!(config.tui()["theme"], "dark");
}

#[test]
fn defaults_stand_below_the_profile_the_environment_the_file_and_the_flags() {
    let env = [("WEFTRUN_PRIORITY", "from-env"), ("WEFTRUN_INSTANCE_TYPE", "p5.48xlarge")];
    let config = resolve(&input(&[(Layer::User, USER)], &env)).unwrap();
    let job = |profile: Option<&str>, file: &str, flags: &Overrides| {
        let mut draft = PartialJob::new();
        draft.defaults(config.job_defaults(profile));
        draft.file("job.toml", file.as_bytes());
        draft.flags(flags);
        draft.finish(&Catalogue::builtin()).unwrap().spec
    };
    let file = "name = 'a'\ncommand = 'x'\nlabels.kind = 'file'\n";
    let spec = job(None, file, &Overrides::default());
    assert_eq!((spec.queue.as_deref(), spec.priority.as_deref()), (Some("gpu"), Some("from-env")));
    assert_eq!(spec.origins.get("queue"), Origin::UserConfig);
    assert_eq!(spec.origins.get("priority"), Origin::Env("WEFTRUN_PRIORITY".to_owned()));
    assert_eq!(spec.labels["kind"], "file");
    assert_eq!(spec.labels["team"], "nlp");
    assert_eq!(spec.fabric.kind, crate::request::Fabric::Efa);
    assert_eq!(spec.roles[0].instance_type.as_deref(), Some("p5.48xlarge"));
    let spec = job(Some("ours"), file, &Overrides::default());
    assert_eq!((spec.queue.as_deref(), spec.priority.as_deref()), (Some("from-profile"), Some("from-env")));
    let spec = job(None, file, &Overrides::default().with("--queue", "flag"));
    assert_eq!(spec.origins.get("queue"), Origin::Flag("--queue".to_owned()));
    // A file with its own roles gets no other role by default.
    let roles = "name = 'a'\n[roles.gpu]\ncommand = 'x'\n";
    let spec = job(None, roles, &Overrides::default());
    assert_eq!((spec.roles.len(), spec.roles[0].instance_type.as_deref()), (1, Some("p5.48xlarge")));
}

const PROJECT: &str = r#"
default_target = "hpc"
[target.prod]
namespace = "team"
context = "elsewhere"
insecure_skip_tls_verify = true
[target.hpc]
ssh = { options = ["-oProxyCommand=evil"] }
[target.new]
backend = "runai"
url = "https://evil.example"
[job]
queue = "project"
"#;

#[test]
fn nothing_of_a_projects_file_counts_until_it_is_trusted() {
    let mut input = input(&[(Layer::User, USER), (Layer::Project, PROJECT)], &[]);
    input.trusted = false;
    let config = resolve(&input).unwrap();
    let targets = config.targets();
    assert_eq!(targets.keys().collect::<Vec<_>>(), ["hpc", "prod"]);
    assert_eq!(targets["prod"].settings["context"], "prod");
    assert_eq!(targets["prod"].settings.len(), 1);
    assert_eq!(targets["hpc"].settings["ssh"]["host"], "login");
    assert_eq!(targets["hpc"].settings["ssh"].get("options"), None);
    assert_eq!(targets["prod"].namespace.as_deref(), Some("nlp"));
    assert_eq!(config.default_target().as_deref(), Some("prod"));
    assert_eq!(config.settings.get(&["job", "queue"]).unwrap().value, "gpu");
    assert!(config.settings.iter().all(|(_, setting)| setting.origin != Origin::ProjectConfig));
    insta::assert_snapshot!(told(&config.findings), @" CONFIG-UNTRUSTED [] ./.weftrun.toml is ignored: it is not trusted");
    // It is not even parsed.
    for text in ["[", "nonsense = 1", "\u{0}"] {
        let mut input = super::tests::input(&[(Layer::Project, text)], &[]);
        input.trusted = false;
        assert_eq!(resolve(&input).unwrap().findings.len(), 1, "{text:?}");
    }

    input.trusted = true;
    let config = resolve(&input).unwrap();
    assert_eq!(config.findings, []);
    assert_eq!(config.targets()["prod"].settings["context"], "elsewhere");
    assert!(config.targets().contains_key("new"));
}

#[test]
fn what_the_system_locked_stays() {
    let system = "lock = ['target.prod', 'job.fabric.rules', 'job.queue']\n[target.prod]\nbackend = 'slurm'\n[job]\nqueue = 'system'\n";
    let input = input(&[(Layer::System, system), (Layer::User, USER)], &[("WEFTRUN_QUEUE", "env")]);
    let config = resolve(&input).unwrap();
    assert_eq!(config.targets()["prod"].backend, "slurm");
    assert_eq!(config.settings.get(&["job", "queue"]).unwrap().value, "system");
    assert_eq!(config.settings.get(&["job", "fabric", "kind"]).unwrap().value, "efa");
    insta::assert_snapshot!(told(&config.findings));
}

#[test]
fn every_mistake_of_every_file_is_told() {
    let user =
        "defualt_target = 'x'\noutput = 'tabel'\nlock = 'a'\n[job]\nname = 'a'\nqueue = 3\n[target.x]\n";
    let project = "[target.y]\nnamespace = 'a'\n[job]\nnodes = 2\n[instances.z]\nextends = 'p5.48xlarg'\n";
    let error =
        resolve(&input(&[(Layer::User, user), (Layer::Project, project), (Layer::System, "a = ")], &[]))
            .unwrap_err();
    insta::assert_snapshot!(told(error.findings()));
}

#[test]
fn hostile_files_are_refused_or_harmless() {
    for text in ["[".repeat(100_000), "a = 1\n".repeat(10_000), "\u{0}".to_owned(), "x".repeat(1 << 20)] {
        assert!(resolve(&input(&[(Layer::Project, text.as_str())], &[])).is_err());
    }
}

#[test]
fn one_value_is_set_and_the_rest_stays() {
    let text = "# mine\ndefault_target = \"a\" # for now\n\n[target.a]\nbackend = \"local\"\n";
    let text = set(text, "default_target", "b").unwrap();
    let text = set(&text, "job.labels.\"example.com/x\"", "y").unwrap();
    let text = set(&text, "job.fabric.strict", "true").unwrap();
    let text = set(&text, "target.a.port", "22").unwrap();
    insta::assert_snapshot!(text);
    let back = unset(&text, "job").unwrap();
    assert!(!back.contains("job"), "{back}");
    assert!(set(&text, "job.fabric.kind", "eaf").is_err());
    assert!(set(&text, "nonsense", "1").is_err());
    assert!(set(&text, "target.b.namespace", "no backend").is_err());
}
