//! `config`: the configured values, their sources, and changes of the user's file.

use std::io::Write;
use std::process::Command;

use clap::{Args, Subcommand};
use serde_json::Value;
use weftrun::core::config::{self, Setting};
use weftrun::core::exit_codes;
use weftrun::core::fabric::Origin;
use weftrun::core::log::clean_text;
use weftrun::core::mask::mask_value;
use weftrun::core::text::suggestion;
use weftrun::files::NamedFile;
use weftrun::report::{ConfigReport, SettingShape};
use weftrun::{Config, Error, ErrorKind, Result};

use crate::context::Context;
use crate::global::Format;
use crate::output::style;

const EXAMPLES: &str = "\
Examples:
  weftrun config show --origin
  weftrun config get target.prod           a value, or all below it
  weftrun config edit                      opens your file in $EDITOR, and checks it before it is saved
  weftrun config set target.prod.backend kubeflow
  weftrun config set job.labels.team nlp
  weftrun config unset target.old
  weftrun config add                       what this machine shows: contexts, a scheduler, hosts
  weftrun config add prod
  weftrun config trust                     trust this project's .weftrun.toml after reading it";

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
    #[command(visible_alias = "list")]
    Show {
        /// Print the file and line, or the variable, that each value comes from
        #[arg(long)]
        origin: bool,
    },
    /// Print one value, or all values below a path
    Get {
        /// Path of the value (`job.queue`) or of a table (`target.prod`)
        #[arg(value_name = "PATH")]
        path: String,
    },
    /// Open your configuration file in $VISUAL or $EDITOR; it is saved if it is valid
    Edit,
    /// Set a value in your configuration file and keep its comments
    Set {
        /// Path of the value (`job.queue`, `target.prod.backend`)
        #[arg(value_name = "PATH")]
        path: String,
        /// Value, as TOML or a plain word
        #[arg(value_name = "VALUE")]
        value: String,
    },
    /// Make targets of what was found on this machine: contexts of the kubeconfig, Slurm's commands, the hosts of ~/.ssh/config,
    /// a login of Run:ai. Without a name, list it
    Add {
        /// Names that `weftrun config add` lists
        #[arg(value_name = "NAME")]
        names: Vec<String>,
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
    if let ConfigAction::Set { .. } | ConfigAction::Unset { .. } | ConfigAction::Edit = &args.action {
        // Before an editor is opened.
        NamedFile::check(&context.located_config()?.user_file)?;
    }
    match &args.action {
        ConfigAction::Show { origin } => {
            let config = context.config()?;
            context.warn_of_config();
            show(context, config, None, *origin)?;
        }
        ConfigAction::Get { path } => get(context, context.config()?, path)?,
        ConfigAction::Set { path, value } => {
            let config = context.config()?;
            if path.starts_with("target.") && path.ends_with(".backend") {
                context.registry().get(value.trim_matches(['"', '\'']))?;
            }
            known_key(context, config, path, value)?;
            config.edit_user_file(|text| config::set(text, path, value))?;
            context.out.say(format!("set {path} in {}", config.user_file.display()));
        }
        ConfigAction::Add { names } => add(context, names)?,
        ConfigAction::Unset { path } => {
            let config = context.config()?;
            let file = config.user_file.display();
            config.edit_user_file(|text| {
                let new = config::unset(text, path)?;
                if new == text {
                    let absent = format!("`{path}` is not set in {file}");
                    return Err(Error::new(ErrorKind::NotFound, absent)
                        .hint("`weftrun config list --origin` prints where each value is set"));
                }
                Ok(new)
            })?;
            context.out.say(format!("{path} is not set in {} any more", config.user_file.display()));
        }
        ConfigAction::Trust { revoke: true } => {
            context.config()?.distrust_project()?;
            context.out.say("this project's .weftrun.toml is not trusted any more");
        }
        ConfigAction::Trust { revoke: false } => {
            let text = context.config()?.trust_project()?;
            context.out.say(format!(
                "{}\ntrusted as shown above; after a change it is ignored until you trust it again",
                text.trim_end()
            ));
        }
        // A file that is wrong can be found and edited.
        ConfigAction::Edit => edit(context, &context.located_config()?)?,
        ConfigAction::Path => {
            context.out.document(format!("{}\n", context.located_config()?.user_file.display()))?;
        }
    }
    Ok(exit_codes::OK)
}

/// Adds found targets by their names, or lists them.
fn add(context: &Context, names: &[String]) -> Result<()> {
    let config = context.config()?;
    let all = config.find_targets(context.registry());
    if names.is_empty() {
        if all.is_empty() {
            context.out.say(
                "nothing was found that is not configured: no further context, scheduler, login or host",
            );
        }
        return super::targets::say_found(context, &all);
    }
    let named = |name: &String| {
        let found = all.iter().find(|(_, found)| found.name == *name);
        found.ok_or_else(|| {
            let known = all.iter().map(|(_, found)| found.name.as_str());
            let near = suggestion(name, known);
            Error::new(ErrorKind::NotFound, format!("nothing that was found here is called `{name}`"))
                .hint(near.as_deref().unwrap_or("`weftrun config add` lists what was found"))
                .hint("`weftrun config set target.NAME.backend …` makes any other target")
        })
    };
    let chosen = names.iter().map(named).collect::<Result<Vec<_>>>()?;
    for (backend, found) in chosen {
        config.add_target(backend, found)?;
        let name = &found.name;
        context.out.say(format!(
            "added target {name} ({backend}: {}) to {}\n`weftrun doctor -b {name}` checks it; `weftrun config set default_target {name}` sends jobs there",
            found.sign,
            config.user_file.display()
        ));
    }
    Ok(())
}

/// Refuses a key that the backend of a configured target does not know, or a value that it cannot have: what the backend says of
/// the target with it, and not without it.
fn known_key(context: &Context, config: &Config, path: &str, value: &str) -> Result<()> {
    let mut parts = path.strip_prefix("target.").into_iter().flat_map(|rest| rest.split('.'));
    let (Some(name), Some(key), None) = (parts.next(), parts.next(), parts.next()) else { return Ok(()) };
    let of_every = ["backend", "namespace", "project", "profile", "env"].contains(&key);
    if of_every || !config.targets.contains_key(name) {
        return Ok(());
    }
    let before = config.target(name);
    // Numbers, booleans, quoted texts and lists are alike in TOML and JSON.
    let value: Value = serde_json::from_str(value).unwrap_or_else(|_| value.trim_matches('\'').into());
    let after = before.clone().with(key, value);
    let entry = context.registry().get(&before.backend)?;
    context.block_on(async {
        match (entry.connect)(after).await {
            Err(error)
                if error.kind() == ErrorKind::InvalidConfig && (entry.connect)(before).await.is_ok() =>
            {
                Err(error)
            }
            _ => Ok(()),
        }
    })
}

/// Prints a value alone, so that scripts can use it, or all values below a path.
fn get(context: &Context, config: &Config, path: &str) -> Result<()> {
    let all = &config.resolved.settings;
    let exact = all.iter().find(|(parts, _)| config::path_text(parts) == path);
    if let (Some((parts, setting)), Format::Table) = (exact, context.out.format) {
        return context.out.line(match hidden(parts, &setting.value) {
            Value::String(text) => clean_text(&text).into_owned(),
            value => value.to_string(),
        });
    }
    let names: Vec<String> = all.iter().map(|(parts, _)| config::path_text(parts)).collect();
    if !names.iter().any(|name| is_below(name, path)) {
        let near = suggestion(path, names.iter().map(String::as_str));
        return Err(Error::new(ErrorKind::NotFound, format!("`{path}` is not configured"))
            .hint(near.as_deref().unwrap_or("`weftrun config list` prints what is")));
    }
    show(context, config, Some(path), false)
}

fn is_below(name: &str, path: &str) -> bool {
    name.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Opens a copy of the user's file in an editor, checks it, and replaces the file.
fn edit(context: &Context, config: &Config) -> Result<()> {
    let file = config.user_file.display().to_string();
    let failed =
        |error: std::io::Error| Error::new(ErrorKind::Unexpected, format!("cannot edit {file}: {error}"));
    let read = |path| match weftrun::files::read(path, 1 << 20) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(failed(error)),
    };
    let before = read(&config.user_file)?;
    let mut copy = tempfile::Builder::new().prefix("weftrun-").suffix(".toml").tempfile().map_err(failed)?;
    copy.write_all(before.as_bytes()).map_err(failed)?;
    let editor = ["VISUAL", "EDITOR"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok().filter(|it| !it.is_empty()));
    let editor = editor.unwrap_or_else(|| "vi".to_owned());
    // The variable holds a command line of the shell, as it does for git.
    let status = Command::new("sh")
        .args(["-c", &format!("{editor} \"$1\""), "sh"])
        .arg(copy.path())
        .status()
        .map_err(failed)?;
    if !status.success() {
        return Err(Error::new(
            ErrorKind::Usage,
            format!("`{editor}` ended with {status}; nothing was changed"),
        )
        .hint("set EDITOR to an editor that is installed"));
    }
    // Editors replace the file; its path is what counts.
    let after = read(copy.path())?;
    if after == before {
        context.out.say(format!("{file} is as it was"));
        return Ok(());
    }
    // Places in an error are those of the text that is kept.
    let saved = config::check(&copy.path().display().to_string(), &after).and_then(|()| {
        config.edit_user_file(|text| {
            if text == before {
                Ok(after.clone())
            } else {
                Err(Error::new(ErrorKind::Refused, format!("{file} was changed by another program")))
            }
        })
    });
    if let Err(error) = saved {
        let (_, kept) = copy.keep().map_err(|error| failed(error.error))?;
        return Err(error.hint(format!("nothing was changed; your text is kept in {}", kept.display())));
    }
    context.out.say(format!("saved {file}"));
    Ok(())
}

fn show(context: &Context, config: &Config, below: Option<&str>, origin: bool) -> Result<()> {
    let settings: Vec<(String, Value, &Setting)> = config
        .resolved
        .settings
        .iter()
        .map(|(path, setting)| (config::path_text(path), hidden(path, &setting.value), setting))
        .filter(|(path, ..)| below.is_none_or(|below| is_below(path, below)))
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
    if secret && !in_job {
        return Value::from("(hidden)");
    }
    let mut value = value.clone();
    mask_value(&mut value);
    value
}
