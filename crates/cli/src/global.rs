//! What every verb understands: the target, the output, and how much is printed.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// What every verb understands.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Target or backend to use
    #[arg(short, long, global = true, env = "WEFTRUN_BACKEND", value_name = "NAME")]
    pub backend: Option<String>,
    /// Kubernetes namespace
    #[arg(short, long, global = true, env = "WEFTRUN_NAMESPACE", value_name = "NS")]
    pub namespace: Option<String>,
    /// Run:ai project
    #[arg(short, long, global = true, env = "WEFTRUN_PROJECT", value_name = "NAME")]
    pub project: Option<String>,
    /// Site profile (`weftrun profiles` lists them)
    #[arg(long, global = true, env = "WEFTRUN_PROFILE", value_name = "NAME")]
    pub profile: Option<String>,
    /// Config file to read instead of the user's [env: WEFTRUN_CONFIG, an absolute path]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Output format [default: table, or `output` of the configuration]
    #[arg(short, long, global = true, value_enum, value_name = "FORMAT")]
    pub output: Option<Format>,
    /// When to use colour [default: auto, or `color` of the configuration]
    #[arg(long, global = true, value_enum, value_name = "WHEN")]
    pub color: Option<ColorWhen>,
    /// Print less
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Log what weftrun does to stderr; twice to log each request (the terminal UI writes to tui.log in the state folder)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// Output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Table,
    /// One JSON value, or one a line while following
    Json,
    /// YAML
    Yaml,
    /// SARIF 2.1.0 (lint)
    Sarif,
    /// One self-contained page (report, transport, verify, why)
    Html,
    /// A Mermaid graph of the nodes (transport)
    Mermaid,
    /// Handles only, one a line (list)
    Name,
    /// A table with more columns (list)
    Wide,
}

/// When to use colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ColorWhen {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Returns the name of a value on the command line.
pub fn word<T: ValueEnum>(value: &T) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}
