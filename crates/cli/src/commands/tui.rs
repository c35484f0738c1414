//! `tui`: the terminal UI.

use clap::Args;
use weftrun::Result;
use weftrun::core::exit_codes;
use weftrun_tui::Options;

use crate::context::Context;

/// Arguments of `tui`.
#[derive(Args, Debug, Default)]
pub struct TuiArgs {
    /// Job to open at once
    #[arg(value_name = "HANDLE")]
    pub handle: Option<String>,
    /// Theme: default, colour-blind, dark, light, mono
    #[arg(long, value_name = "NAME")]
    pub theme: Option<String>,
    /// Print the keys as a page of Markdown, and end
    #[arg(long)]
    pub keys: bool,
}

/// Opens the terminal UI.
pub fn run(context: &Context, args: TuiArgs) -> Result<u8> {
    if args.keys {
        context.out.line(weftrun_tui::keys_page().trim_end())?;
        return Ok(exit_codes::OK);
    }
    let client = context.client()?;
    let default = context.target(&client)?.name;
    let mut options = Options::default();
    options.targets = client.config().targets.keys().cloned().collect();
    if !options.targets.contains(&default) {
        options.targets.insert(0, default.clone());
    }
    options.default_target = Some(default);
    if context.registry().names().contains(&"local") {
        options.demo = Some(std::sync::Arc::new(|client| Box::pin(super::demo::submit(client))));
    }
    configure(&client, &mut options)?;
    if args.theme.is_some() {
        options.theme = args.theme;
    }
    options.no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    options.job = args.handle.map(|handle| handle.parse()).transpose()?;
    context.block_on(weftrun_tui::run(client, options))?;
    Ok(exit_codes::OK)
}

/// What `[tui]` in the configuration says.
#[derive(Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct TuiConfig {
    theme: Option<String>,
    mouse: bool,
    keys: std::collections::BTreeMap<String, Keys>,
}

/// One key or several.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Keys {
    One(String),
    Several(Vec<String>),
}

/// Takes keys, theme and mouse from the configuration.
fn configure(client: &weftrun::Client, options: &mut Options) -> Result<()> {
    let config: TuiConfig = serde_json::from_value(client.config().resolved.tui()).map_err(|error| {
        weftrun::Error::new(weftrun::ErrorKind::InvalidConfig, format!("[tui]: {error}"))
            .hint("it has `theme`, `mouse` and `keys`; `weftrun tui --keys` lists the actions")
    })?;
    options.theme = config.theme;
    options.mouse = config.mouse;
    let several = |keys| match keys {
        Keys::One(key) => vec![key],
        Keys::Several(keys) => keys,
    };
    options.keys = config.keys.into_iter().map(|(name, keys)| (name, several(keys))).collect();
    Ok(())
}
