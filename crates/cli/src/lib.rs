//! The command line of weftrun, as a library: a third party builds its own binary with its own backend.
//!
//! ```no_run
//! // use acme_flyte as _;   // naming the crate keeps its backend in the program
//! fn main() -> std::process::ExitCode {
//!     weftrun::link();
//!     weftrun_cli::main_with(weftrun::Registry::linked())
//! }
//! ```
//!
//! Results go to stdout, messages to stderr; exit codes are the constants of [`weftrun::core::exit_codes`].

#![warn(clippy::disallowed_methods, clippy::disallowed_macros)]

mod args;
mod commands;
mod complete;
mod context;
mod diagnostics;
mod follow;
mod global;
mod hosts_flags;
mod interrupt;
mod job_flags;
mod key_flags;
mod live_map;
mod log_print;
mod map_view;
#[cfg(feature = "mcp")]
mod mcp;
mod open_files;
mod output;
mod progress;
mod report_error;
mod request_log;
mod slurm_flags;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, ValueEnum};
use weftrun::core::exit_codes;
use weftrun::core::log::clean_text;
use weftrun::{Error, Registry};

pub use args::Cli;

/// Runs the command line of this process with the backends of a registry.
///
/// A panic on any thread is a bug: it is reported as one, and the process ends with [`exit_codes::BUG`].
pub fn main_with(registry: Registry) -> ExitCode {
    say_panics_are_bugs();
    if complete::answer(&registry, std::env::args_os()) {
        return ExitCode::SUCCESS;
    }
    open_files::allow_many();
    ExitCode::from(run(registry, std::env::args_os()))
}

/// Runs a command line as [`main_with`] does, without ending the process.
///
/// The result is one of [`weftrun::core::exit_codes`].
pub fn run<A: Into<OsString> + Clone>(registry: Registry, argv: impl IntoIterator<Item = A>) -> u8 {
    let argv: Vec<OsString> = argv.into_iter().map(Into::into).collect();
    let parsed = command_as(argv.first())
        .try_get_matches_from(&argv)
        .and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => {
            let hint =
                job_file_as_verb(&error).map(|file| format!("to submit a job file: weftrun submit {file}"));
            if let Some(out) = data_output(&argv).filter(|_| error.use_stderr()) {
                return report_error::report(&out, &hint.into_iter().fold(usage_error(&error), Error::hint));
            }
            say_usage(&error);
            if let Some(hint) = hint {
                output::Output::plain().stderr(&hint);
            }
            return if error.use_stderr() { exit_codes::USAGE } else { exit_codes::OK };
        }
    };
    let context = context::Context::new(registry, &cli.global);
    let draws = matches!(cli.command, None | Some(args::Command::Tui(_)));
    // The terminal UI draws on the terminal, so its log is a file.
    let file = if draws && cli.global.verbose > 0 { commands::tui::log_file(&context) } else { None };
    if !draws || file.is_some() {
        request_log::install(cli.global.verbose, cli.global.quiet, file);
    }
    match commands::dispatch(&context, cli.command) {
        Ok(code) => code,
        Err(error) => report_error::report(&context.out, &error),
    }
}

/// Returns the command line; help and errors of the link `kubectl-weftrun` name it as kubectl's users call it.
fn command_as(program: Option<&OsString>) -> clap::Command {
    let name = program.and_then(|program| std::path::Path::new(program).file_name());
    if name.is_some_and(|name| name == "kubectl-weftrun") {
        command().bin_name("kubectl weftrun")
    } else {
        command()
    }
}

/// Returns the file that was given in place of a verb.
fn job_file_as_verb(error: &clap::Error) -> Option<String> {
    let is_verb = error.kind() == ErrorKind::InvalidSubcommand;
    match error.get(ContextKind::InvalidSubcommand).filter(|_| is_verb) {
        Some(ContextValue::String(word)) if std::path::Path::new(word).is_file() => {
            Some(clean_text(word).into_owned())
        }
        _ => None,
    }
}

/// Returns the output of a command line that asks for JSON or YAML, although it has a mistake.
fn data_output(argv: &[OsString]) -> Option<output::Output> {
    let mut words = argv.iter().filter_map(|word| word.to_str()).take_while(|word| *word != "--");
    let mut format = None;
    while let Some(word) = words.next() {
        let value = match word {
            "-o" | "--output" => words.next(),
            // `-qo json` is `-q -o json`.
            _ => match word.strip_prefix('-').map(|flags| flags.trim_start_matches(['q', 'v'])) {
                Some("o") => words.next(),
                Some(flags) => flags.strip_prefix("-output=").or_else(|| flags.strip_prefix('o')),
                None => None,
            },
        };
        format = value.and_then(|value| global::Format::from_str(value, true).ok()).or(format);
    }
    let out = output::Output::new(format?, global::ColorWhen::Never, false, 0);
    out.is_data().then_some(out)
}

/// Returns a mistake in the command line as an error: clap's first paragraph, its tips and the usage as hints.
fn usage_error(error: &clap::Error) -> Error {
    let text = error.render().to_string();
    let (message, rest) = text.split_once("\n\n").unwrap_or((&text, ""));
    let message = message.strip_prefix("error: ").unwrap_or(message).trim_end();
    let hints = rest.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("For more"));
    hints.fold(Error::new(weftrun::ErrorKind::Usage, message), |error, line| {
        error.hint(line.strip_prefix("tip: ").unwrap_or(line))
    })
}

/// Prints clap's output for a command line: help to stdout, errors to stderr. It may contain typed text.
fn say_usage(error: &clap::Error) {
    let text = error.render().ansi().to_string();
    let out = output::Output::plain();
    if error.use_stderr() {
        out.stderr(text.trim_end_matches('\n'));
    } else {
        let _ = out.text(&text);
    }
}

fn say_panics_are_bugs() {
    std::panic::set_hook(Box::new(move |info| {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("<unnamed>");
        let mut text = format!("thread '{name}' {info}\n");
        let trace = std::backtrace::Backtrace::capture();
        if trace.status() == std::backtrace::BacktraceStatus::Captured {
            text.push_str(&format!("{trace}\n"));
        }
        text.push_str("this is a bug in weftrun: please report it with the lines above and the command");
        output::Output::plain().stderr(&text);
        std::process::exit(i32::from(exit_codes::BUG));
    }));
}

/// Returns the whole command line, for help, completions and man pages.
pub fn command() -> clap::Command {
    Cli::command()
}
