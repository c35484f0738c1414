//! `init`: a commented job file to start from.

use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;

use clap::Args;
use weftrun::core::exit_codes;
use weftrun::core::spec::file::template;
use weftrun::core::spec::{Draft, Overrides};
use weftrun::{Error, ErrorKind, Result};

use crate::context::Context;
use crate::job_flags::{LaunchArg, word};
use crate::output::Output;

const EXAMPLES: &str = "\
Examples:
  weftrun init job.toml                    asks, and writes the file
  weftrun init > job.toml                  the same, to stdout
  weftrun init --name llama --nodes 4 --instance-type p5.48xlarge --launch torchrun job.toml -- train.py";

/// Arguments of `init`.
#[derive(Args, Clone, Debug, Default)]
#[command(after_help = EXAMPLES)]
pub struct InitArgs {
    /// File to write; stdout if none is given
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Overwrite an existing file
    #[arg(long)]
    pub force: bool,
    /// Do not ask for values, even on a terminal
    #[arg(long, short)]
    pub yes: bool,
    /// Name of the job
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Container image
    #[arg(long, short, value_name = "IMAGE")]
    pub image: Option<String>,
    /// GPU nodes in total
    #[arg(long, short = 'N', value_name = "N")]
    pub nodes: Option<String>,
    /// GPUs on each node; all of the instance type's GPUs if it is known
    #[arg(long, short = 'g', value_name = "N")]
    pub gpus_per_node: Option<String>,
    /// Instance type of the nodes (`weftrun instances`)
    #[arg(long, value_name = "TYPE")]
    pub instance_type: Option<String>,
    /// Who starts the processes of a node
    #[arg(long, value_enum, value_name = "WHO")]
    pub launch: Option<LaunchArg>,
    /// Fabric of the job: auto, efa, roce, infiniband, tcp, off
    #[arg(long, value_name = "FABRIC")]
    pub fabric: Option<String>,
    /// Command
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<String>,
}

/// Writes the file. Asks what no flag said, where somebody can answer.
pub fn run(context: &Context, args: &InitArgs) -> Result<u8> {
    if let Some(path) = args.file.as_ref().filter(|path| !args.force && path.exists()) {
        return Err(Error::new(ErrorKind::AlreadyExists, format!("{} is there already", path.display()))
            .hint("--force writes over it"));
    }
    let client = context.client()?;
    let mut answers = args.clone();
    let asks = !args.yes && std::io::stdin().is_terminal() && context.out.is_terminal();
    if asks {
        ask_all(&context.out, &mut answers)?;
    }
    let overrides = with_defaults(&answers, client.catalogue());
    let mut draft = Draft::new();
    draft.flags(&overrides);
    let job = draft.finish(client.catalogue())?;
    context.out.findings(&job.findings);
    let text = template(&job.spec);
    match &args.file {
        None => context.out.document(&text)?,
        Some(path) => {
            write(path, &text, args.force)?;
            context.out.say(format!(
                "wrote {}; `weftrun plan {}` explains it",
                path.display(),
                path.display()
            ));
        }
    }
    Ok(exit_codes::OK)
}

/// What makes a job that runs: two nodes, all their GPUs, torchrun and a script.
fn with_defaults(args: &InitArgs, catalogue: &weftrun::core::catalogue::Catalogue) -> Overrides {
    let all =
        || args.instance_type.as_deref().and_then(|name| catalogue.get(name)).map(|row| row.accelerators);
    let launch =
        args.launch.unwrap_or(if args.command.is_empty() { LaunchArg::Torchrun } else { LaunchArg::PerNode });
    let default = |given: &Option<String>, default: &str| given.clone().or_else(|| Some(default.to_owned()));
    let command = match launch {
        _ if !args.command.is_empty() => args.command.clone(),
        LaunchArg::Torchrun => vec!["train.py".to_owned()],
        _ => vec!["./train".to_owned()],
    };
    Overrides {
        name: default(&args.name, "my-job"),
        image: args.image.clone(),
        nodes: default(&args.nodes, "2"),
        gpus_per_node: args.gpus_per_node.clone().or_else(|| Some(all().unwrap_or(8).to_string())),
        instance_type: args.instance_type.clone(),
        launch: Some(word(&launch)),
        fabric: default(&args.fabric, "auto"),
        command,
        ..Overrides::default()
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
    ask(out, "name of the job", &mut answers.name, default_name.as_deref().unwrap_or("my-job"))?;
    ask(out, "container image (empty for none)", &mut answers.image, "")?;
    ask(out, "instance type of the nodes (empty if you do not know)", &mut answers.instance_type, "")?;
    ask(out, "GPU nodes in total", &mut answers.nodes, "2")?;
    ask(out, "fabric: auto, efa, roce, infiniband, tcp, off", &mut answers.fabric, "auto")?;
    if answers.command.is_empty() {
        let mut script = None;
        ask(out, "Python script that torchrun starts", &mut script, "train.py")?;
        answers.command = script
            .into_iter()
            .flat_map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
            .collect();
        answers.launch = answers.launch.or(Some(LaunchArg::Torchrun));
    }
    Ok(())
}

/// Asks one thing on stderr, unless a flag said it; an empty answer is the default.
fn ask(out: &Output, question: &str, answer: &mut Option<String>, default: &str) -> Result<()> {
    if answer.is_some() {
        return Ok(());
    }
    let shown = if default.is_empty() { String::new() } else { format!(" [{default}]") };
    let failed = |error: std::io::Error| Error::new(ErrorKind::Io, format!("cannot ask: {error}"));
    out.ask(&format!("{question}{shown}: ")).map_err(failed)?;
    let mut line = String::new();
    if std::io::stdin().lock().read_line(&mut line).map_err(failed)? == 0 {
        return Err(Error::new(ErrorKind::Interrupted, "no answer"));
    }
    let line = line.trim();
    let given = if line.is_empty() { default } else { line };
    *answer = (!given.is_empty()).then(|| given.to_owned());
    Ok(())
}

/// Writes a file that must not be there yet, unless it may be replaced.
fn write(path: &std::path::Path, text: &str, replace: bool) -> Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(!replace).create(replace).truncate(replace);
    let written = options.open(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| {
        Error::new(ErrorKind::Io, format!("cannot write {}: {error}", path.display())).source(error)
    })
}
