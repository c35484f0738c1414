//! `config`: the configured values, their sources, and changes of the user's file.

use clap::{Args, Subcommand};
use serde_json::Value;
use weftrun::core::config::{self, Setting};
use weftrun::core::exit_codes;
use weftrun::core::fabric::Origin;
use weftrun::core::report::{ConfigReport, SettingShape};
use weftrun::{Config, Result};

use crate::args::Format;
use crate::context::Context;
use crate::output::style;

const EXAMPLES: &str = "\
Examples:
  weftrun config show --origin
  weftrun config set target.prod.backend kubeflow
  weftrun config set job.labels.team nlp
  weftrun config unset target.old
  weftrun config trust                     trust this project's .weftrun.toml after reading it";

/// Arguments of `config`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ConfigArgs {
    /// What to do
    #[command(subcommand)]
    pub action: ConfigAction,
}

/// What to do with the configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigAction {
    /// Print every value that is set
    Show {
        /// Print the file and line, or the variable, that each value comes from
        #[arg(long)]
        origin: bool,
    },
    /// Set a value in your configuration file and keep its comments
    Set {
        /// Path of the value (`job.queue`, `target.prod.backend`)
        #[arg(value_name = "PATH")]
        path: String,
        /// Value, as TOML or a plain word
        #[arg(value_name = "VALUE")]
        value: String,
    },
    /// Remove a value or a table from your configuration file
    Unset {
        /// Path of the value
        #[arg(value_name = "PATH")]
        path: String,
    },
    /// Trust this project's `.weftrun.toml` as it is now; it is ignored until then
    Trust {
        /// Revoke the trust
        #[arg(long)]
        revoke: bool,
    },
    /// Print the path of your configuration file
    Path,
}

/// Shows or changes the configuration.
pub fn run(context: &Context, args: &ConfigArgs) -> Result<u8> {
    let config = context.config()?;
    match &args.action {
        ConfigAction::Show { origin } => {
            context.warn_of_config();
            show(context, config, *origin)?;
        }
        ConfigAction::Set { path, value } => {
            config.edit_user_file(|text| config::set(text, path, value))?;
            context.out.say(format!("set {path} in {}", config.user_file.display()));
        }
        ConfigAction::Unset { path } => {
            config.edit_user_file(|text| config::unset(text, path))?;
            context.out.say(format!("{path} is not set in {} any more", config.user_file.display()));
        }
        ConfigAction::Trust { revoke: true } => {
            config.distrust_project()?;
            context.out.say("this project's .weftrun.toml is not trusted any more");
        }
        ConfigAction::Trust { revoke: false } => {
            let text = config.trust_project()?;
            context.out.say(format!(
                "{}\ntrusted as it stands above; after a change it is ignored until you trust it again",
                text.trim_end()
            ));
        }
        ConfigAction::Path => context.out.document(&format!("{}\n", config.user_file.display()))?,
    }
    Ok(exit_codes::OK)
}

fn show(context: &Context, config: &Config, origin: bool) -> Result<()> {
    let settings: Vec<(String, Value, &Setting)> = config
        .resolved
        .settings
        .iter()
        .map(|(path, setting)| (config::path_text(path), hidden(path, &setting.value), setting))
        .collect();
    if context.out.format != Format::Table {
        let settings = settings
            .into_iter()
            .map(|(path, value, setting)| {
                SettingShape::new(path, value, &setting.origin, setting.span.as_ref())
            })
            .collect();
        return context.out.value(&ConfigReport::new(settings));
    }
    let dim = style::DIM;
    let mut text = String::new();
    for (path, value, setting) in &settings {
        let from = if origin { format!("  {dim}# {}{dim:#}", place(setting)) } else { String::new() };
        text.push_str(&format!("{path} = {value}{from}\n"));
    }
    if settings.is_empty() {
        context.out.say(format!("nothing is configured; your file is {}", config.user_file.display()));
    }
    context.out.text(&text)
}

fn place(setting: &Setting) -> String {
    match (&setting.span, &setting.origin) {
        (Some(span), _) => format!("{}:{}", span.file, span.line),
        (None, Origin::Env(name)) => format!("variable {name}"),
        (None, other) => format!("{other:?}").to_lowercase(),
    }
}

/// Hides values that may be tokens: backends read tokens from files and variables, but a user may have
/// written one into the configuration.
fn hidden(path: &[String], value: &Value) -> Value {
    const WORDS: [&str; 5] = ["token", "secret", "password", "credential", "api_key"];
    const NAMES_ONLY: [&str; 4] = ["_env", "_file", "_command", "_path"];
    let in_job =
        path.first().is_some_and(|first| first == "job") && path.get(1).is_some_and(|key| key == "secrets");
    let last = path.last().map(|key| key.to_lowercase().replace('-', "_")).unwrap_or_default();
    let secret =
        WORDS.iter().any(|word| last.contains(word)) && !NAMES_ONLY.iter().any(|end| last.ends_with(end));
    if secret && !in_job { Value::from("(hidden)") } else { value.clone() }
}
