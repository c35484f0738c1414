//! No `Debug` of what holds an environment, a setting or a token shows it: such texts end in logs and in reports of bugs.

use weftrun::core::backend::{Document, Language, TargetConfig};
use weftrun::core::config::{Input, Layer, Source, resolve};
use weftrun::core::fabric::Change;
use weftrun::core::secret::Secret;
use weftrun::core::spec::{EnvVar, JobFile, Overrides, PartialJob};
use weftrun::prelude::*;
use weftrun::{Client, Config, JobSource};
use weftrun_testkit::child;

const HIDDEN: &str = "s3cr3t-value";

#[track_caller]
fn hides(what: &str, value: &dyn std::fmt::Debug) {
    for text in [format!("{value:?}"), format!("{value:#?}")] {
        assert!(!text.contains(HIDDEN), "{what}: {text}");
    }
}

#[test]
fn debug_prints_no_environment_and_no_secret() {
    let user = format!(
        "[target.prod]\nbackend = \"local\"\npassword = \"{HIDDEN}\"\nproxy = \"http://me:{HIDDEN}@proxy\"\n\
         [job]\nenv.TOKEN = \"{HIDDEN}\"\n[profile.mine]\nenv.TOKEN = \"{HIDDEN}\"\n"
    );
    let source = Source { layer: Layer::User, file: "config.toml".to_owned(), text: user };
    let env = [("AWS_SECRET_ACCESS_KEY".to_owned(), HIDDEN.to_owned())];
    let input = Input { sources: vec![source.clone()], env: env.clone().into(), trusted: false };
    hides("Source", &source);
    hides("Input", &input);
    let resolved = resolve(&input).unwrap();
    hides("core Config", &resolved);
    hides("Settings", &resolved.settings);
    hides("Profiles", &resolved.profiles().keys().collect::<Vec<_>>());

    let state = tempfile::tempdir().unwrap();
    let mut config = Config::empty(state.path());
    config.targets = resolved.targets();
    config.resolved = resolved;
    config.env = env.clone().into();
    config
        .targets
        .insert("local".to_owned(), TargetConfig::new("local", "local", state.path()).with("key", HIDDEN));
    hides("Config", &config);
    hides("TargetConfig", &config.target("prod"));
    let client = Client::builder().config(config).build().unwrap();
    hides("Client", &client);
    hides("ClientBuilder", &Client::builder().config(client.config().clone()));
    hides("Profiles", &client.profiles().get("mine").unwrap());

    let text = format!(
        "name = \"job\"\nimage = \"x:1\"\nenv.TOKEN = \"{HIDDEN}\"\nenv.LD_LIBRARY_PATH = \"/{HIDDEN}\"\n\
         fabric = \"efa\"\nprofile = \"dgxc\"\nnodes = 2\ngpus_per_node = 8\nlaunch = \"torchrun\"\ncommand = \"train.py\"\n\
         instance_type = \"p5.48xlarge\"\n"
    );
    let source = JobSource::new("job.toml", text.clone());
    hides("JobSource", &source);
    let mut draft = PartialJob::new();
    draft.file("job.toml", text.as_bytes());
    hides("PartialJob", &draft);
    let file = JobFile::parse("job.toml", text.as_bytes()).unwrap();
    hides("JobFile", &file);
    hides("JobSpec", &file.spec);
    hides("Role", &file.spec.roles);
    let plan = client.plan_offline("local", &file.spec).unwrap();
    assert!(
        serde_json::to_string(plan.planned()).unwrap().contains(HIDDEN),
        "nothing was there to be hidden"
    );
    hides("Plan", &plan);
    hides("PlannedJob", plan.planned());
    hides("FabricPlan", plan.fabric());
    let overrides = Overrides::default().with("--env", format!("TOKEN={HIDDEN}"));
    hides("Overrides", &overrides);
    hides("EnvVar", &EnvVar { name: "TOKEN".to_owned(), value: HIDDEN.to_owned() });
    hides("Change", &Change::Env { name: "TOKEN".to_owned(), value: HIDDEN.to_owned() });
    let git = weftrun::core::spec::Code::Git { url: format!("https://me:{HIDDEN}@git.example/x"), rev: None };
    hides("Code", &git);
    hides("Code", &weftrun::core::spec::Code::Script { name: "x".to_owned(), text: HIDDEN.to_owned() });
    hides("Secret", &Secret::new(HIDDEN));
    let document = Document { title: "x".to_owned(), language: Language::Shell, text: HIDDEN.to_owned() };
    hides("Document", &document);
}

#[cfg(feature = "local")]
#[tokio::test]
async fn debug_of_a_connection_a_rendered_job_and_a_record_prints_no_environment() {
    let state = tempfile::tempdir().unwrap();
    let mut config = Config::empty(state.path());
    config.env = [("PATH".to_owned(), child::path()), ("TOKEN".to_owned(), HIDDEN.to_owned())].into();
    let client = Client::builder().config(config).build().unwrap();
    let role = Role::worker().command(["true"]).env("TOKEN", HIDDEN);
    let spec = JobSpec::builder("job").role(role).build().unwrap();
    let plan = client.plan_offline("local", &spec).unwrap();
    hides("Rendered", &plan.render().await.unwrap());
    let job = plan.submit().await.unwrap();
    hides("Job", &job);
    hides("Backend", job.backend());
    hides("Client", &client);
    let records = client.journal().records().unwrap();
    assert_eq!(records.len(), 1);
    hides("Record", &records);
    job.wait().await.unwrap();
}
