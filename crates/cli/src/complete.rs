//! What the shell completes: verbs and flags, and names that only this machine knows (targets, jobs, profiles, rules,
//! instance types). Nothing is asked of a cluster: jobs are those in the journal of submissions.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use clap::{Arg, Command};
use clap_complete::CompletionCandidate;
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter, PathCompleter, ValueCompleter};
use clap_complete::env::{self, CompleteEnv, EnvCompleter, Shells};
use weftrun::core::config::path_text;
use weftrun::core::job::JobHandle;
use weftrun::diagnose::explain;
use weftrun::{Client, Config, Registry};

/// The variable in which the shell's script names the shell.
const VARIABLE: &str = "_WEFTRUN_COMPLETE";
/// The shells: those of `clap_complete`, where bash has a script of ours.
const SHELLS: Shells<'static> = Shells(&[&Bash, &env::Elvish, &env::Fish, &env::Powershell, &env::Zsh]);
/// The largest number of jobs that are offered, the newest ones.
const MAX_JOBS: usize = 200;

/// Answers the shell's script; returns false if the process was not started by one.
pub fn answer(registry: &Registry, argv: impl IntoIterator<Item = OsString>) -> bool {
    let registry = registry.clone();
    let env = CompleteEnv::with_factory(move || command(&registry)).shells(SHELLS).var(VARIABLE);
    let shell = std::env::var(VARIABLE).unwrap_or_default();
    // An error means that there are no completions, and it would only disturb the line that is typed.
    env.try_complete(as_meant(argv, &shell), std::env::current_dir().ok().as_deref()).unwrap_or(true)
}

/// Returns the script of a shell, which asks this program for completions.
pub fn script(shell: &str) -> std::io::Result<Vec<u8>> {
    let mut script = Vec::new();
    if let Some(shell) = SHELLS.completer(shell) {
        shell.write_registration(VARIABLE, "weftrun", "weftrun", "weftrun", &mut script)?;
    }
    Ok(script)
}

/// Returns the words as the program would get them: bash and zsh hand over each as it was typed, with its quotes and
/// backslashes, and fish the last one.
fn as_meant(argv: impl IntoIterator<Item = OsString>, shell: &str) -> Vec<OsString> {
    let mut words: Vec<OsString> = argv.into_iter().collect();
    let first = words.iter().position(|word| word == "--").map_or(words.len(), |at| at + 1);
    let typed = match shell {
        "bash" | "zsh" => first,
        "fish" => first.max(words.len().saturating_sub(1)),
        _ => words.len(),
    };
    words.iter_mut().skip(typed).for_each(|word| *word = unquoted(word));
    words
}

/// Returns a word without the quotes of a shell; the last one may still be open.
fn unquoted(word: &OsStr) -> OsString {
    let (mut plain, mut quote) = (Vec::new(), None);
    let mut bytes = word.as_bytes().iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match (quote, byte) {
            (Some(open), byte) if byte == open => quote = None,
            (None, b'\'' | b'"') => quote = Some(byte),
            // Within double quotes, a backslash quotes these alone (POSIX.1-2017, Shell Command Language, 2.2.3).
            (Some(b'"'), b'\\') if !bytes.peek().is_some_and(|next| b"$`\"\\".contains(next)) => {
                plain.push(byte);
            }
            (None | Some(b'"'), b'\\') => plain.extend(bytes.next()),
            _ => plain.push(byte),
        }
    }
    OsString::from_vec(plain)
}

/// Bash. The script of `clap_complete` 4.6 expands `*` in what it is given, and inserts names with blanks as two words.
#[derive(Debug)]
struct Bash;

impl EnvCompleter for Bash {
    fn name(&self) -> &'static str {
        env::Bash.name()
    }

    fn is(&self, name: &str) -> bool {
        env::Bash.is(name)
    }

    fn write_registration(
        &self,
        var: &str,
        name: &str,
        bin: &str,
        completer: &str,
        buf: &mut dyn Write,
    ) -> std::io::Result<()> {
        let script = include_str!("complete.bash");
        let script = script.replace("VARIABLE", var).replace("NAME", name);
        buf.write_all(script.replace("BINARY", bin).replace("PROGRAM", completer).as_bytes())
    }

    fn write_complete(
        &self,
        command: &mut Command,
        args: Vec<OsString>,
        folder: Option<&Path>,
        buf: &mut dyn Write,
    ) -> std::io::Result<()> {
        env::Bash.write_complete(command, args, folder, buf)
    }
}

/// Returns the command line with the values that this machine knows.
fn command(registry: &Registry) -> Command {
    with_values(crate::command(), registry)
}

fn with_values(command: Command, registry: &Registry) -> Command {
    let name = command.get_name().to_owned();
    command
        .mut_args(|arg| with_candidates(arg, &name, registry))
        .mut_subcommands(|command| with_values(command, registry))
}

fn with_candidates(arg: Arg, verb: &str, registry: &Registry) -> Arg {
    let value = arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
    let candidates = |names: fn(&Registry) -> BTreeSet<String>| {
        let registry = registry.clone();
        ArgValueCandidates::new(move || names(&registry).into_iter().map(CompletionCandidate::new).collect())
    };
    match (arg.get_long(), value.as_deref(), verb) {
        (Some("backend"), ..) => arg.add(candidates(targets)),
        (Some("profile"), ..) | (None, _, "profiles") => arg.add(candidates(profiles)),
        (Some("instance-type"), ..) | (None, _, "instances") => arg.add(candidates(instance_types)),
        (Some("fabric-rule" | "no-fabric-rule"), ..) => arg.add(candidates(rules)),
        (None, Some("CODE"), _) => arg.add(candidates(pages)),
        (None, Some("PATH"), "get" | "set" | "unset") => arg.add(candidates(settings)),
        (None, Some("HANDLE"), _) | (Some("after"), ..) => {
            let registry = registry.clone();
            arg.add(ArgValueCandidates::new(move || jobs(&registry)))
        }
        (None, Some("JOB|PATH" | "FILE|DIR|-|HANDLE"), _) => {
            let registry = registry.clone();
            arg.add(ArgValueCompleter::new(move |current: &OsStr| jobs_and_files(&registry, current)))
        }
        _ => arg,
    }
}

fn client(registry: &Registry) -> Option<Client> {
    Client::builder().registry(registry.clone()).config(Config::load().ok()?).build().ok()
}

fn targets(registry: &Registry) -> BTreeSet<String> {
    let configured = Config::load().map(|config| config.targets).unwrap_or_default();
    configured.into_keys().chain(registry.names().into_iter().map(str::to_owned)).collect()
}

fn profiles(registry: &Registry) -> BTreeSet<String> {
    client(registry).map(|client| client.profiles().names().map(str::to_owned).collect()).unwrap_or_default()
}

fn instance_types(registry: &Registry) -> BTreeSet<String> {
    let rows = |client: Client| client.catalogue().rows().iter().map(|row| row.name.clone()).collect();
    client(registry).map(rows).unwrap_or_default()
}

fn rules(registry: &Registry) -> BTreeSet<String> {
    pages(registry).into_iter().filter(|name| name.contains('.')).collect()
}

fn pages(_: &Registry) -> BTreeSet<String> {
    explain::names().map(str::to_owned).collect()
}

fn settings(_: &Registry) -> BTreeSet<String> {
    let Ok(config) = Config::load() else { return BTreeSet::new() };
    config.resolved.settings.iter().map(|(path, _)| path_text(path)).collect()
}

/// Returns the names of jobs that were submitted to the target of the line, the newest first, each with the handle of the
/// newest job of this name.
fn jobs(registry: &Registry) -> Vec<CompletionCandidate> {
    let Some(client) = client(registry) else { return Vec::new() };
    let handles = client.journal().recent_handles().unwrap_or_default();
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let target = target_of(words, client.config());
    let mut seen = BTreeSet::new();
    let newest = handles
        .into_iter()
        .filter(|handle| handle.target() == target)
        .filter(|handle| seen.insert(handle.name().to_owned()))
        .take(MAX_JOBS);
    let candidate = |(order, handle): (usize, JobHandle)| {
        CompletionCandidate::new(handle.name())
            .help(Some(handle.to_string().into()))
            .display_order(Some(order))
    };
    newest.enumerate().map(candidate).collect()
}

/// Returns the target that the typed words name, or else the default one, as the verbs look names up.
fn target_of(words: impl Iterator<Item = String>, config: &Config) -> String {
    let words: Vec<String> = words.collect();
    let of = |(word, next): (&String, Option<&String>)| match word.as_str() {
        "-b" | "--backend" => next.cloned(),
        word => word.strip_prefix("--backend=").or_else(|| word.strip_prefix("-b")).map(str::to_owned),
    };
    let named = words.iter().enumerate().rev().find_map(|(at, word)| of((word, words.get(at + 1))));
    named.or_else(|| config.default_target.clone()).unwrap_or_else(|| "local".to_owned())
}

fn jobs_and_files(registry: &Registry, current: &OsStr) -> Vec<CompletionCandidate> {
    let typed = current.to_string_lossy();
    let mut all = jobs(registry);
    all.retain(|job| job.get_value().to_string_lossy().starts_with(&*typed));
    all.extend(PathCompleter::any().complete(current));
    all
}
