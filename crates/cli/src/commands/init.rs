//! `init`: a commented job file to start from.

use std::io::{BufRead, IsTerminal};
use std::path::PathBuf;

use clap::Args;
use weftrun::core::exit_codes;
use weftrun::core::spec::file::template;
use weftrun::core::spec::{Overrides, PartialJob};
use weftrun::files::NamedFile;
use weftrun::{Error, ErrorKind, Result};

use crate::context::Context;
use crate::key_flags::BasicFlags;
use crate::output::Output;

const EXAMPLES: &str = "\
Examples:
  weftrun init job.toml                    asks, and writes the file
  weftrun init > job.toml                  the same, to stdout
  weftrun init --name llama --nodes 4 --instance-type p5.48xlarge --launch torchrun job.toml -- train.py";

#[derive(Args, Clone, Debug, Default)]
#[command(after_help = EXAMPLES)]
pub struct InitArgs {
    /// File to write; stdout if none or `-` is given
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Overwrite an existing file
    #[arg(long)]
    pub force: bool,
    /// Do not ask for values, even on a terminal
    #[arg(long, short)]
    pub yes: bool,
    /// The keys of the job
    #[command(flatten)]
    pub keys: BasicFlags,
    /// Command
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<String>,
}

/// Writes the file. Prompts for missing flags on a terminal.
pub fn run(context: &Context, args: &InitArgs) -> Result<u8> {
    let file = args.file.as_ref().filter(|path| path.as_os_str() != "-");
    if let Some(path) = file.filter(|path| !args.force && path.exists()) {
        return Err(Error::new(ErrorKind::AlreadyExists, format!("{} is there already", path.display()))
            .hint("--force writes over it"));
    }
    let target = file.map(|path| NamedFile::check(path)).transpose()?;
    let client = context.client()?;
    let mut answers = args.clone();
    let asks = !args.yes && std::io::stdin().is_terminal() && context.out.is_terminal();
    if asks {
        ask_all(&context.out, &mut answers)?;
    }
    let overrides = with_defaults(&answers, client.catalogue());
    let mut draft = PartialJob::new();
    draft.flags(&overrides);
    let job = draft.finish(client.catalogue())?;
    context.out.findings(&job.findings);
    let text = template(&job.spec);
    match file.zip(target) {
        None => context.out.document(&text)?,
        Some((path, target)) => {
            target.write(text.as_bytes())?;
            context.out.say(format!("wrote {0}; `weftrun plan {0}` explains it", path.display()));
        }
    }
    Ok(exit_codes::OK)
}

/// Adds the defaults of a job that runs: two nodes, all their GPUs, torchrun and a script.
fn with_defaults(args: &InitArgs, catalogue: &weftrun::core::catalogue::Catalogue) -> Overrides {
    let given = &args.keys.given;
    let gpus =
        given.get("--instance-type").and_then(|name| catalogue.get(name)).map_or(8, |row| row.accelerators);
    let launch = if args.command.is_empty() { "torchrun" } else { "per-node" };
    let defaults = [
        ("--name", "my-job"),
        ("--nodes", "2"),
        ("--gpus-per-node", &gpus.to_string()),
        ("--launch", launch),
        ("--fabric", "auto"),
    ];
    let missing = defaults.into_iter().filter(|(flag, _)| given.get(flag).is_none());
    let flags = missing.fold(given.clone(), |flags, (flag, value)| flags.with(flag, value));
    match (args.command.as_slice(), flags.get("--launch")) {
        ([], Some("torchrun")) => flags.command(["train.py"]),
        ([], _) => flags.command(["./train"]),
        (command, _) => flags.command(command),
    }
}

fn ask_all(out: &Output, answers: &mut InitArgs) -> Result<()> {
    let default_name = std::env::current_dir().ok().and_then(|dir| {
        let name = dir.file_name()?.to_str()?.to_lowercase();
        let plain = name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.len() < 40
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        plain.then_some(name)
    });
    let flags = &mut answers.keys.given;
    ask(out, "name of the job", flags, "--name", default_name.as_deref().unwrap_or("my-job"))?;
    ask(out, "container image (empty for none)", flags, "--image", "")?;
    ask(out, "instance type of the nodes (empty if you do not know)", flags, "--instance-type", "")?;
    ask(out, "GPU nodes in total", flags, "--nodes", "2")?;
    ask(out, "fabric: auto, efa, roce, infiniband, tcp, off", flags, "--fabric", "auto")?;
    if answers.command.is_empty() {
        let script = answer(out, "Python script that torchrun starts", "train.py")?;
        answers.command = script.split_whitespace().map(str::to_owned).collect();
        if flags.get("--launch").is_none() {
            flags.set("--launch", "torchrun");
        }
    }
    Ok(())
}

/// Prompts for the value of a flag, unless it was given; an empty answer is the default.
fn ask(out: &Output, question: &str, flags: &mut Overrides, flag: &'static str, default: &str) -> Result<()> {
    if flags.get(flag).is_none() {
        let given = answer(out, question, default)?;
        if !given.is_empty() {
            flags.set(flag, given);
        }
    }
    Ok(())
}

/// Prompts on stderr; an empty answer is the default.
fn answer(out: &Output, question: &str, default: &str) -> Result<String> {
    let shown = if default.is_empty() { String::new() } else { format!(" [{default}]") };
    let failed = |error: std::io::Error| Error::new(ErrorKind::Io, format!("cannot ask: {error}"));
    out.ask(&format!("{question}{shown}: ")).map_err(failed)?;
    let mut line = String::new();
    if std::io::stdin().lock().read_line(&mut line).map_err(failed)? == 0 {
        return Err(Error::new(ErrorKind::Interrupted, "no answer"));
    }
    let line = line.trim();
    Ok(if line.is_empty() { default } else { line }.to_owned())
}
