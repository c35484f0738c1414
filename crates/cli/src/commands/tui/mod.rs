//! `tui`: the terminal UI.

mod replay;
mod session;

use clap::Args;
use weftrun::core::exit_codes;
use weftrun::core::job::JobHandle;
use weftrun::{Client, Config, Result};
use weftrun_replay::NAME;
use weftrun_tui::Options;

use crate::context::Context;

const EXAMPLES: &str = "\
Examples:
  weftrun                                   all jobs of all targets
  weftrun tui kubeflow://prod/ml/llama      one job
  weftrun tui --replay socket_2x2           a captured run in real time
  weftrun tui --replay ofi_tcp_2x2 --nodes 8 --ranks-per-node 8 --speed 10
  weftrun tui --replay logs/ --speed 0      your own logs, all at once
  weftrun tui --replay a.log b.log          several files and folders as one job";

#[derive(Args, Debug, Default)]
#[command(after_help = EXAMPLES)]
pub struct TuiArgs {
    /// Job to open
    #[arg(value_name = "HANDLE")]
    pub handle: Option<String>,
    /// Theme: default, colour-blind, dark, light, high-contrast, mono
    #[arg(long, value_name = "NAME")]
    pub theme: Option<String>,
    /// Do not restore the last session
    #[arg(long)]
    pub fresh: bool,
    /// Replay a captured run by its name or folder, or open files and folders of logs as one job
    #[arg(long, value_name = "CAPTURE", num_args = 1.., conflicts_with = "handle")]
    pub replay: Vec<String>,
    /// Speed of the replay: 1 is real time, 10 ten times faster, 0 all at once
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, requires = "replay")]
    pub speed: f64,
    /// Scale the capture to this many nodes
    #[arg(long, value_name = "N", requires = "replay")]
    pub nodes: Option<u32>,
    /// Scale the capture to this many ranks on each node
    #[arg(long, value_name = "N", requires = "replay")]
    pub ranks_per_node: Option<u32>,
    /// Print the keys as a Markdown page and exit
    #[arg(long)]
    pub keys: bool,
}

/// Returns a client that has logs in files as its only job, and that job.
pub fn replay_of(config: &weftrun::Config, paths: &[String]) -> Result<(Client, JobHandle)> {
    // A speed of 0 is all at once.
    replay::client(config, &TuiArgs::default(), paths)
}

/// Opens the log file of `-v` while the terminal UI draws: `tui.log` in the state folder, truncated at each
/// start.
pub fn log_file(context: &Context) -> Option<std::fs::File> {
    let path = context.config().ok()?.state_dir.join("tui.log");
    let file = weftrun::files::private_file(&path).ok()?;
    file.set_len(0).ok()?;
    Some(file)
}

/// Opens the terminal UI.
pub fn run(context: &Context, args: TuiArgs) -> Result<u8> {
    if args.keys {
        context.out.line(weftrun_tui::keys_page().trim_end())?;
        return Ok(exit_codes::OK);
    }
    let mut options = Options::default();
    let client = if args.replay.is_empty() {
        targets(context, &mut options)?
    } else {
        let (client, job) = replay::client(context.config()?, &args, &args.replay)?;
        options.targets = vec![NAME.to_owned()];
        options.job = Some(job);
        client
    };
    configure(&client, &mut options)?;
    let config = client.config().clone();
    options.logs =
        Some(std::sync::Arc::new(move |path| replay_of(&config, &[path.to_string_lossy().into_owned()])));
    let about = |row: &weftrun::core::catalogue::InstanceType| {
        (row.name.clone(), format!("{} {}x {}", row.provider, row.accelerators, row.accelerator))
    };
    options.instances = client.catalogue().rows().iter().map(about).collect();
    options.profiles = client.profiles().names().map(str::to_owned).collect();
    options.remote = ["SSH_TTY", "SSH_CONNECTION"].iter().any(|name| std::env::var_os(name).is_some());
    options.copies = Some(client.config().state_dir.join("copied.txt"));
    options.ascii = is_ascii(|name| std::env::var(name).ok());
    options.no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if let Some(handle) = &args.handle {
        options.job = Some(handle.parse()?);
    }
    let restores = args.replay.is_empty() && !args.fresh;
    let begun = if restores { session::load(&client) } else { None };
    options.session.clone_from(&begun);
    if args.theme.is_some() {
        options.theme = args.theme;
    }
    let left = context.block_on(weftrun_tui::run(client.clone(), options))?;
    // A fresh session replaces the last one only if something was typed in it.
    if (restores || (args.replay.is_empty() && left.draft.is_some()))
        && let Err(error) = session::save(&client, left, begun.as_ref())
    {
        context.warn(&format!("the draft and the open job were not saved: {error}"));
    }
    Ok(exit_codes::OK)
}

/// Returns whether the locale names another character set than UTF-8. Without a locale the terminal most likely has it.
fn is_ascii(variable: impl Fn(&str) -> Option<String>) -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(variable).find(|value| !value.is_empty());
    set.is_some_and(|locale| !locale.to_lowercase().replace('-', "").contains("utf8"))
}

/// Returns a client for all configured targets, including the default one even if it is not configured; and
/// the demo if it can run.
fn targets(context: &Context, options: &mut Options) -> Result<Client> {
    let client = context.client()?;
    let default = context.target(&client)?.name;
    options.targets = client.config().targets.keys().cloned().collect();
    if !options.targets.contains(&default) {
        options.targets.insert(0, default.clone());
    }
    options.default_target = Some(default);
    // Before the screen is taken over.
    for name in &options.targets {
        if let Ok(target) = client.target(name) {
            context.warn_if_insecure(&target);
        }
    }
    if context.registry().names().contains(&"local") {
        options.demo = Some(std::sync::Arc::new(|client| Box::pin(crate::commands::demo::start(client))));
    }
    options.found = client.config().find_targets(context.registry());
    let (config, registry) = (client.config().clone(), context.registry().clone());
    options.add = Some(std::sync::Arc::new(move |backend, found| {
        config.add_target(backend, found)?;
        let config = Config::load_from(Some(&config.user_file), config.env.clone())?;
        Client::builder().registry(registry.clone()).config(config).build()
    }));
    Ok(client)
}

/// The `[tui]` table of the configuration.
#[derive(Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct TuiConfig {
    theme: Option<String>,
    mouse: bool,
    keys: std::collections::BTreeMap<String, Keys>,
    actions: std::collections::BTreeMap<String, OwnAction>,
}

/// An action of the user: a key runs a command.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct OwnAction {
    key: String,
    run: String,
}

/// One key or several.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Keys {
    One(String),
    Several(Vec<String>),
}

/// Reads keys, theme and mouse from the configuration.
fn configure(client: &Client, options: &mut Options) -> Result<()> {
    let config: TuiConfig = serde_json::from_value(client.config().resolved.tui()).map_err(|error| {
        weftrun::Error::new(weftrun::ErrorKind::InvalidConfig, format!("[tui]: {error}"))
            .hint("it has `theme`, `mouse`, `keys` and `actions`; `weftrun tui --keys` lists the actions")
    })?;
    options.theme = config.theme;
    options.mouse = config.mouse;
    options.actions = config.actions.into_iter().map(|(name, own)| (name, own.key, own.run)).collect();
    let several = |keys| match keys {
        Keys::One(key) => vec![key],
        Keys::Several(keys) => keys,
    };
    options.keys = config.keys.into_iter().map(|(name, keys)| (name, several(keys))).collect();
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_locale_without_utf8_draws_ascii() {
        let of = |set: &'static [(&str, &str)]| {
            super::is_ascii(move |name| {
                set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            })
        };
        assert!(!of(&[]) && !of(&[("LANG", "de_DE.utf8")]) && !of(&[("LC_ALL", ""), ("LANG", "C.UTF-8")]));
        assert!(of(&[("LANG", "C")]) && of(&[("LC_ALL", "POSIX"), ("LANG", "C.UTF-8")]));
    }
}
