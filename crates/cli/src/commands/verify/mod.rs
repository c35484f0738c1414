//! The verb `verify`: submits a benchmark of collectives like any other job, and judges its figures.

mod html;
mod text;

use std::time::Duration;

use clap::{Args, ValueEnum, builder::PossibleValuesParser};
use weftrun::core::exit_codes;
use weftrun::core::nccl::TransportMap;
use weftrun::core::spec::JobSpec;
use weftrun::core::text::Quantity;
use weftrun::report::VerifyHistoryReport;
use weftrun::verify::{Bisection, Progress, Subject, Verification, Verified};
use weftrun::verify::{Collective, KeptRun, Logs, Verdict};
use weftrun::{Error, ErrorKind, JobHistory, Result};

use crate::context::Context;
use crate::follow::{Screen, Watching};
use crate::global::Format;
use crate::interrupt::interrupted;
use crate::job_flags::{JobFlags, limit};

const EXAMPLES: &str = "\
Examples:
  weftrun verify -b prod --nodes 4 --gpus-per-node 8 --image IMAGE     an all-reduce over four nodes
  weftrun verify job.toml                                              with the nodes, image and fabric of a job file
  weftrun verify --collective all-reduce,alltoall --max-size 16GiB --nodes 2 …
  weftrun verify --from nccl-tests.log --instance-type p5.48xlarge     a run that is over
  weftrun verify -o html job.toml > report.html                        a page with curves and the search
  weftrun verify --baseline compare,save job.toml                      every night: is it slower than it was?
  weftrun verify --history -b prod                                     the kept runs, and the slowest nodes in them

Only sizes of at least 1 GiB are judged: by published figures of the instance type, the number of nodes and the collective
(`weftrun instances NAME` lists them), else by the part of the line rate of what joins the ranks, of the type or of the machine
that the log shows. Exit codes: 0 pass or no reference, 7 degraded, 1 fail.";

#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES, mut_arg("command", |arg| arg.hide(true)))]
pub struct VerifyArgs {
    /// The job, whose nodes, image, environment and fabric are used
    #[command(flatten)]
    pub job: JobFlags,
    /// Judge the logs of a finished run of nccl-tests, rccl-tests or `verify` instead of submitting one
    #[arg(long, value_name = "LOG", num_args = 1.., conflicts_with_all = ["follow_timeout"])]
    pub from: Vec<String>,
    /// Collectives to measure [default: all-reduce]; with --from, the one that a log without its name shows
    #[arg(long, value_delimiter = ',', value_parser = collectives(), value_name = "NAME")]
    pub collective: Vec<String>,
    /// Smallest size
    #[arg(long, default_value = "1MiB", value_parser = bytes, value_name = "SIZE")]
    pub min_size: u64,
    /// Largest size
    #[arg(long, default_value = "8GiB", value_parser = bytes, value_name = "SIZE")]
    pub max_size: u64,
    /// If the run is degraded, run it on parts of the nodes to find the slow ones; `always` also if it is not
    #[arg(long, value_enum, num_args = 0..=1, default_missing_value = "degraded", require_equals = true, value_name = "WHEN", conflicts_with = "from")]
    pub bisect: Option<When>,
    /// Keep the run for later comparison (`save`), or compare it with kept runs of the target (`compare`), where slower is
    /// degraded; `compare,save` keeps it only if it is not slower
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT")]
    pub baseline: Vec<Baseline>,
    /// Show the kept runs of the target, and its nodes by their speed in them, instead of measuring
    #[arg(long, conflicts_with_all = ["from", "baseline", "bisect", "follow_timeout"])]
    pub history: bool,
    /// Judge the figures even if other programs used the GPUs before the benchmark
    #[arg(long)]
    pub force: bool,
    /// Operations for each size
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000), value_name = "N")]
    pub rounds: u32,
    /// Cancel the job after this time, the time in the queue included
    #[arg(id = "follow_timeout", long = "timeout", value_parser = limit, default_value = "30m", value_name = "TIME")]
    pub timeout: Duration,
}

impl VerifyArgs {
    fn collectives(&self) -> Vec<Collective> {
        self.collective.iter().filter_map(|name| Collective::parse(name)).collect()
    }
}

/// What is done with earlier runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Baseline {
    /// Keep the run
    Save,
    /// Compare it with those that are kept
    Compare,
}

/// When slow nodes are searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// If the run is degraded
    Degraded,
    /// Whatever the verdict is
    Always,
}

fn collectives() -> PossibleValuesParser {
    PossibleValuesParser::new(["all-reduce", "all-gather", "reduce-scatter", "alltoall"])
}

/// Parses `8GiB`, `512M`, `1048576`.
fn bytes(text: &str) -> std::result::Result<u64, String> {
    let plain = text.strip_suffix('B').unwrap_or(text);
    let size = Quantity::parse(plain).filter(|size| !size.is_negative()).map(Quantity::whole);
    size.filter(|size| (4..=1 << 46).contains(size))
        .ok_or_else(|| format!("`{text}` is not a size such as 8GiB"))
}

/// Runs a benchmark, or reads a finished one, and prints the verdict.
pub fn run(context: &Context, args: &VerifyArgs) -> Result<u8> {
    if args.history {
        return history(context);
    }
    let history = (!args.baseline.is_empty()).then(|| kept(context)).transpose()?;
    let earlier = history.as_ref().filter(|_| args.baseline.contains(&Baseline::Compare));
    let earlier = earlier.map(JobHistory::baselines).transpose()?;
    let verified = match args.from.is_empty() {
        true => submitted(context, args, earlier)?,
        false => finished(context, args, earlier)?,
    };
    let code = conclude(context, &verified)?;
    if let Some(history) = history.filter(|_| args.baseline.contains(&Baseline::Save)) {
        if args.baseline.contains(&Baseline::Compare) && verified.verdict() == Verdict::Degraded {
            context.out.say("the run is not kept: it is degraded");
        } else {
            history.keep_baseline(&verified)?;
            context.out.say("the run is kept; `weftrun verify --history` lists all");
        }
    }
    Ok(code)
}

fn kept(context: &Context) -> Result<JobHistory> {
    let client = context.client()?;
    super::history::of_target(&client, &context.target(&client)?)
}

fn history(context: &Context) -> Result<u8> {
    let client = context.client()?;
    let target = context.target(&client)?;
    let history = super::history::of_target(&client, &target)?;
    let report = VerifyHistoryReport::new(&target.name, history.baselines()?);
    if context.out.is_data() {
        context.out.value(&report)?;
    } else {
        context.out.text(&text::history(&report))?;
    }
    Ok(exit_codes::OK)
}

fn finished(context: &Context, args: &VerifyArgs, earlier: Option<Vec<KeptRun>>) -> Result<Verified> {
    if let Some(file) = args.from.iter().find(|file| file.ends_with(".toml")) {
        return Err(Error::new(ErrorKind::Usage, format!("--from reads logs, and `{file}` is a job file"))
            .hint(format!("name it first: `weftrun verify {file} --from LOG`")));
    }
    let mut map = TransportMap::new();
    let mut logs = Logs::default();
    weftrun::open_logs(&args.from)?.read_bytes(&mut map, |source, bytes| logs.add(source, bytes))?;
    // A job file gives the instance type and nodes of the run, like the flags.
    let spec = args.job.file.as_ref().map(|_| args.job.spec(context)).transpose()?;
    let role = spec.as_ref().and_then(|spec| spec.workers().next());
    let given = &args.job.keys.given;
    let nodes = match given.get("--nodes") {
        None => role.map(|role| role.nodes),
        Some(nodes) => Some(nodes.parse().map_err(|_| {
            Error::new(ErrorKind::Usage, format!("`{nodes}` is not a number of nodes"))
                .with("flag", "--nodes")
        })?),
    };
    if let Some(name) = given.get("--instance-type") {
        super::instances::known(context.client()?.catalogue(), name)?;
    }
    let collectives = args.collectives();
    if collectives.len() > 1 {
        return Err(Error::new(ErrorKind::Usage, "with --from, give at most one --collective"));
    }
    let instance = given.get("--instance-type").or_else(|| role?.instance_type.as_deref());
    // Without a type no configuration is read.
    let row = match instance {
        Some(name) => context.client()?.catalogue().get(name).cloned(),
        None => None,
    };
    let subject = Subject {
        row,
        instance: instance.map(str::to_owned),
        nodes,
        collective: collectives.first().copied(),
        force: args.force,
    };
    let mut verified = Verified::of_logs(&logs, map, &subject);
    if let Some(earlier) = earlier {
        verified.compare(&earlier);
    }
    Ok(verified)
}

fn submitted(context: &Context, args: &VerifyArgs, earlier: Option<Vec<KeptRun>>) -> Result<Verified> {
    let spec = spec(context, &args.job, "verify")?;
    let client = context.client()?;
    let mut collectives = args.collectives();
    if collectives.is_empty() {
        collectives.push(Collective::AllReduce);
    }
    let bisect = match args.bisect {
        None => Bisection::Never,
        Some(When::Degraded) => Bisection::Degraded,
        Some(When::Always) => Bisection::Always,
    };
    let mut verification = Verification::new(&client, context.target(&client)?, spec)
        .collectives(collectives)
        .sizes(args.min_size, args.max_size)
        .rounds(args.rounds)
        .bisect(bisect)
        .timeout(args.timeout)
        .force(args.force);
    if let Some(earlier) = earlier {
        verification = verification.compare(earlier);
    }
    follow(context, &verification)
}

/// Reads the job whose nodes a verb measures with its own program.
pub fn spec(context: &Context, flags: &JobFlags, verb: &str) -> Result<JobSpec> {
    let mut flags = flags.clone();
    if !flags.command.is_empty() {
        return Err(Error::new(
            ErrorKind::Usage,
            format!("`{verb}` runs its own program; it takes no command"),
        ));
    }
    // A job without a file needs a command, from which its name is derived.
    if flags.file.is_none() {
        flags.command = vec![verb.to_owned()];
        flags.name_suffix = true;
    }
    // Without mpirun the benchmark runs once for each rank, for any `--launch`.
    if flags.keys.given.get("--launch").is_some_and(|launch| launch != "mpi") {
        flags.keys.given.set("--launch", "per-rank");
    }
    flags.spec(context)
}

/// Runs a verification, and shows its plan, its ranks' output and its search. With `-o json` and the like the report
/// is the only output.
pub fn follow(context: &Context, verification: &Verification) -> Result<Verified> {
    let out = &context.out;
    let shown = out.format == Format::Table;
    let mut planned = None;
    let mut screen: Option<Screen> = None;
    let progress = |progress: Progress<'_>| {
        match progress {
            Progress::Planned { plan, fabric } => {
                out.say(super::plan::text(plan, fabric).trim_end());
                out.findings(&plan.findings());
                planned = Some(plan.fabric().fabric);
            }
            Progress::Submitted(job) if shown => {
                out.document(format!("{}\n", job.handle()))?;
                let watching = Watching { snapshots: false, logs: true };
                screen = Some(Screen::new(*out, planned.unwrap_or_default(), watching));
            }
            Progress::Logs(batch) => screen.as_mut().map_or(Ok(()), |screen| screen.logs(batch))?,
            Progress::Event(event) => screen.as_mut().map_or(Ok(()), |screen| screen.event(event))?,
            Progress::Judged(_) => screen.take().map_or(Ok(()), |screen| screen.finish().map(drop))?,
            Progress::Group(group) => out.say(text::group(group)),
            _ => {}
        }
        Ok(())
    };
    context.block_on(verification.run_until(interrupted(), progress))
}

fn conclude(context: &Context, verified: &Verified) -> Result<u8> {
    match context.out.format {
        Format::Table => text::print(context, verified)?,
        Format::Html => context.out.document(&html::page(&verified.report())?)?,
        _ => context.out.value(&verified.report())?,
    }
    Ok(match verified.verdict() {
        Verdict::Pass | Verdict::NoReference => exit_codes::OK,
        Verdict::Degraded => exit_codes::FABRIC_NOT_AS_PLANNED,
        Verdict::Fail => exit_codes::JOB_FAILED,
    })
}
