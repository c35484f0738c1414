//! The verb `verify`: submits a benchmark of collectives like any other job, and judges its figures.

mod search;

use std::collections::BTreeMap;
use std::time::Duration;

use clap::{Args, ValueEnum, builder::PossibleValuesParser};
use futures_util::StreamExt;
use weftrun::core::diagnose::{Diagnosis, diagnose};
use weftrun::core::exit_codes;
use weftrun::core::fabric::Fabric;
use weftrun::core::job::JobPhase;
use weftrun::core::log::{LogBatch, LogOptions, SourceId, clean_text};
use weftrun::core::nccl::TransportMap;
use weftrun::core::report::{TransportReport, VerifyReport, VerifyRun, VerifySearch};
use weftrun::core::text::Quantity;
use weftrun::core::verify::{Collective, Judgement, Payload, Probes, Run, Verdict, is_relevant, judge, read};
use weftrun::{Error, ErrorKind, Finding, Job, Result};

use super::submit;
use super::transport::{inputs, read as read_logs};
use crate::args::Format;
use crate::context::Context;
use crate::follow::{self, Followed, Watching, limited};
use crate::job_flags::{JobFlags, duration};
use crate::map_view;
use crate::output::style;
use search::Search;

const EXAMPLES: &str = "\
Examples:
  weftrun verify -b prod --nodes 4 --gpus-per-node 8 --image IMAGE     an all-reduce over four nodes
  weftrun verify job.toml                                              with the nodes, image and fabric of a job file
  weftrun verify --collective all-reduce,alltoall --max-size 16GiB --nodes 2 …
  weftrun verify --from nccl-tests.log --instance-type p5.48xlarge     a run that is over

Only sizes of at least 1 GiB are judged, by published figures of the instance type, the number of nodes and the collective
(`weftrun instances NAME` lists them). Exit codes: 0 pass or no reference, 7 degraded, 1 fail.";

/// Largest number of bytes of tables kept from one rank's log; `LONGEST` is the largest line.
const MOST: usize = 16 << 20;
const LONGEST: usize = 64 << 10;

/// Arguments of `verify`.
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
    /// Operations for each size
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000), value_name = "N")]
    pub rounds: u32,
    /// Cancel the job after this time, the time in the queue included
    #[arg(id = "follow_timeout", long = "timeout", value_parser = duration, default_value = "30m", value_name = "TIME")]
    pub timeout: Duration,
}

impl VerifyArgs {
    fn collectives(&self) -> Vec<Collective> {
        self.collective.iter().filter_map(|name| Collective::parse(name)).collect()
    }
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

/// Measures, or reads what was measured, and prints the verdict.
pub fn run(context: &Context, args: &VerifyArgs) -> Result<u8> {
    if !matches!(context.out.format, Format::Table | Format::Json | Format::Yaml) {
        return Err(Error::new(ErrorKind::Usage, "`verify` has no such output").hint("use -o json or yaml"));
    }
    if args.from.is_empty() { submitted(context, args) } else { finished(context, args) }
}

/// The measurements, with the cluster and job that they are of.
struct Measured<'a> {
    runs: Vec<Run>,
    instance: Option<&'a str>,
    nodes: Option<u32>,
    /// The collective of runs whose logs do not name one.
    collective: Option<Collective>,
    job: Option<String>,
    /// The planned fabric.
    fabric: Fabric,
    transport: Diagnosis,
    map: TransportMap,
    /// The reason why the job failed.
    failed: Option<String>,
    /// Findings on the reports of the nodes.
    findings: Vec<Finding>,
    /// The search for slow nodes.
    search: Option<VerifySearch>,
}

impl Measured<'_> {
    /// Returns the worst verdict of all runs.
    fn verdict(&self) -> Verdict {
        let unmet = self.transport.clone().into_result().is_err();
        let judged = self.judged().into_iter().map(|(_, judgement)| judgement.verdict);
        judged
            .chain(unmet.then_some(Verdict::Degraded))
            .max_by_key(|verdict| rank(*verdict))
            .unwrap_or(Verdict::Fail)
    }

    /// Returns the runs with their judgements; one without figures if there is none.
    fn judged(&self) -> Vec<(Run, Judgement)> {
        let none = [Run::default()];
        let runs = if self.runs.is_empty() { &none[..] } else { &self.runs };
        let judge_one = |run: &Run| {
            let mut judgement = judge(run, self.instance, self.nodes, self.collective);
            if let Some(why) = &self.failed {
                judgement.verdict = Verdict::Fail;
                why.clone_into(&mut judgement.reason);
            }
            judgement
        };
        runs.iter().map(|run| (run.clone(), judge_one(run))).collect()
    }
}

/// Orders verdicts, the worst last.
fn rank(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Pass => 0,
        Verdict::NoReference => 1,
        Verdict::Degraded => 2,
        Verdict::Fail => 3,
    }
}

fn finished(context: &Context, args: &VerifyArgs) -> Result<u8> {
    let inputs = inputs::resolve(&args.from.iter().collect::<Vec<_>>())?;
    let mut map = TransportMap::new();
    let mut logs = Logs::default();
    read_logs::bytes(&inputs, &mut map, |source, bytes| logs.add(source, bytes))?;
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
    if let Some(unknown) = given
        .get("--instance-type")
        .filter(|name| context.client().is_ok_and(|client| client.catalogue().get(name).is_none()))
    {
        return Err(Error::new(ErrorKind::NotFound, format!("there is no instance type `{unknown}`"))
            .hint("`weftrun instances` lists those that are known"));
    }
    let collectives = args.collectives();
    if collectives.len() > 1 {
        return Err(Error::new(ErrorKind::Usage, "with --from, give at most one --collective"));
    }
    let measured = Measured {
        runs: logs.runs(),
        findings: logs.findings(),
        instance: given.get("--instance-type").or_else(|| role?.instance_type.as_deref()),
        nodes,
        collective: collectives.first().copied(),
        job: None,
        fabric: Fabric::Auto,
        transport: diagnose(None, &map),
        map,
        failed: None,
        search: None,
    };
    conclude(context, &measured)
}

fn submitted(context: &Context, args: &VerifyArgs) -> Result<u8> {
    if args.min_size > args.max_size {
        return Err(Error::new(ErrorKind::Usage, "--min-size is larger than --max-size"));
    }
    let mut flags = args.job.clone();
    if !flags.command.is_empty() {
        return Err(Error::new(ErrorKind::Usage, "`verify` runs its own program; it takes no command"));
    }
    // A job without a file needs a command, from which its name is derived.
    if flags.file.is_none() {
        flags.command = vec!["verify".to_owned()];
        flags.name_suffix = true;
    }
    // Without mpirun the benchmark runs once for each rank, for any `--launch`.
    if flags.keys.given.get("--launch").is_some_and(|launch| launch != "mpi") {
        flags.keys.given.set("--launch", "per-rank");
    }
    let mut spec = flags.spec(context)?;
    let mut collectives = args.collectives();
    if collectives.is_empty() {
        collectives.push(Collective::AllReduce);
    }
    let payload = Payload { collectives, low: args.min_size, high: args.max_size, rounds: args.rounds };
    payload.apply(&mut spec);
    let client = context.client()?;
    let target = context.target(&client)?;
    context.block_on(async {
        let planned = client.plan_for(target.clone(), &spec).await?;
        context.out.say(super::plan::text(&planned).trim_end());
        context.out.findings(&planned.findings());
        let (job, interrupted) = follow::submit(context, &planned).await?;
        // With -o json the report is the only output.
        if !context.out.is_data() {
            submit::announce(context, &job, &planned)?;
        }
        if let Some(error) = interrupted {
            return Err(cancelled(&job, error).await);
        }
        let mut logs = Logs::default();
        let watching = Watching { snapshots: false, logs: true };
        let each = |batch: &LogBatch| logs.add(&batch.source, &batch.bytes);
        let followed = async {
            if context.out.is_data() {
                quietly(&job, each).await
            } else {
                follow::follow_into(context, &job, watching, each).await
            }
        };
        let followed = match limited(followed, Some(args.timeout)).await.flatten() {
            Ok(followed) => followed,
            Err(error) => return Err(cancelled(&job, error).await),
        };
        let ended = followed.summary.as_ref();
        let failed = ended
            .filter(|summary| summary.phase != JobPhase::Succeeded)
            .map(|summary| format!("the job ended as {}: {}", summary.phase, clean_text(&summary.reason)));
        let spec = &planned.planned().spec;
        let role = spec.workers().next();
        let mut measured = Measured {
            runs: logs.runs(),
            findings: logs.findings(),
            instance: role.and_then(|role| role.instance_type.as_deref()),
            nodes: role.map(|role| role.nodes),
            collective: None,
            job: Some(job.handle().to_string()),
            fabric: planned.fabric().fabric,
            transport: job.diagnose(&followed.map),
            map: followed.map,
            failed,
            search: None,
        };
        let wanted = match args.bisect {
            None => false,
            Some(When::Degraded) => measured.verdict() == Verdict::Degraded,
            Some(When::Always) => true,
        };
        if wanted {
            let nodes = search::nodes_of(&job).await?;
            let search = Search { client: &client, target, spec, nodes, timeout: args.timeout };
            measured.search = Some(search.run(context).await?);
        }
        conclude(context, &measured)
    })
}

/// Follows a job to its end without output.
async fn quietly(job: &Job, mut each: impl FnMut(&LogBatch)) -> Result<Followed> {
    let mut map = TransportMap::new();
    let mut logs = job.logs(LogOptions::follow());
    while let Some(batch) = logs.next().await {
        let batch = batch?;
        batch.read_into(&mut map);
        each(&batch);
    }
    Ok(Followed { summary: Some(job.wait().await?), map })
}

/// Cancels a job that is not waited for, and adds to the error whether that worked.
async fn cancelled(job: &Job, error: Error) -> Error {
    match job.cancel().await {
        Ok(_) => error.with("cancelled", job.handle()),
        Err(failed) => error
            .with("not cancelled", failed)
            .hint(format!("`weftrun cancel '{}'` stops the job", job.handle())),
    }
}

/// The lines of each rank that may belong to tables.
#[derive(Default)]
struct Logs(BTreeMap<String, Log>);

#[derive(Default)]
struct Log {
    kept: Vec<u8>,
    /// The incomplete last line.
    open: Vec<u8>,
}

impl Log {
    fn add(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            // Longer lines are not rows of a table.
            let free = LONGEST.saturating_sub(self.open.len());
            self.open.extend_from_slice(part.get(..free).unwrap_or(part));
            if part.ends_with(b"\n") {
                if is_relevant(&self.open) && self.kept.len() < MOST {
                    self.kept.extend_from_slice(&self.open);
                    if !self.open.ends_with(b"\n") {
                        self.kept.push(b'\n');
                    }
                }
                self.open.clear();
            }
        }
    }

    /// Returns the lines. The last one may be incomplete.
    fn lines(&self) -> Vec<u8> {
        [self.kept.as_slice(), &self.open].concat()
    }
}

impl Logs {
    fn add(&mut self, source: &SourceId, bytes: &[u8]) {
        self.0.entry(source.to_string()).or_default().add(bytes);
    }

    /// Returns the runs of all logs that contain tables.
    fn runs(&self) -> Vec<Run> {
        self.0.values().flat_map(|log| read(&log.lines())).collect()
    }

    fn findings(&self) -> Vec<Finding> {
        let mut probes = Probes::default();
        self.0.values().for_each(|log| probes.read(&log.lines()));
        probes.findings()
    }
}

fn conclude(context: &Context, measured: &Measured) -> Result<u8> {
    let (judged, verdict) = (measured.judged(), measured.verdict());
    // A run whose fabric is not used as planned is degraded, even if no published figures exist.
    let unmet = measured.transport.clone().into_result().err();
    if context.out.format == Format::Table {
        for (run, judgement) in &judged {
            context.out.text(&table(run, judgement))?;
        }
        if measured.job.is_some() || !measured.map.snapshot().ranks().is_empty() {
            context.out.findings(&measured.transport.findings);
            context.out.say(map_view::verdict(&measured.map, measured.fabric));
        }
        context.out.findings(&measured.findings);
        if let Some(search) = &measured.search {
            context.out.text(&found(search))?;
        }
        if let Some(error) = unmet {
            context.out.text(&format!("{verdict}: {}\n", clean_text(error.message())))?;
        }
    } else {
        let runs = judged.iter().map(|(run, judgement)| VerifyRun::new(run, judgement)).collect();
        let mut report = VerifyReport::new(verdict, runs);
        report.job.clone_from(&measured.job);
        report.instance = measured.instance;
        report.nodes = measured.nodes.or_else(|| measured.runs.iter().find_map(|run| run.nodes));
        report.findings.clone_from(&measured.findings);
        report.search.clone_from(&measured.search);
        let seen = measured.job.is_some() || !measured.map.snapshot().ranks().is_empty();
        report.transport = seen.then(|| TransportReport::of(measured.transport.clone(), &measured.map));
        context.out.value(&report)?;
    }
    Ok(match verdict {
        Verdict::Pass | Verdict::NoReference => exit_codes::OK,
        Verdict::Degraded => exit_codes::FABRIC_NOT_AS_PLANNED,
        Verdict::Fail => exit_codes::JOB_FAILED,
    })
}

/// Returns the result of a search for slow nodes as text.
fn found(search: &VerifySearch) -> String {
    let text = match &search.reason {
        Some(reason) => format!("no single node explains it: {reason}\n"),
        None => {
            let mut text = format!("slow nodes: {}\n", search.slow_nodes.join(", "));
            // The measurements of the pairs prove the result.
            for group in search.groups.iter().filter(|group| group.nodes.len() == 2) {
                let busbw =
                    group.busbw_gbps.map_or_else(|| "failed".to_owned(), |busbw| format!("{busbw:.1} GB/s"));
                text.push_str(&format!("  {busbw:>12}  {}\n", group.nodes.join(" and ")));
            }
            text
        }
    };
    clean_text(&text).into_owned()
}

/// Returns the figures of a run and the verdict as text.
fn table(run: &Run, judgement: &Judgement) -> String {
    let (bold, dim) = (style::BOLD, style::DIM);
    let name = run.collective.map_or("collective not known", Collective::as_str);
    let ranks = run.ranks.map_or(String::new(), |ranks| format!(", {ranks} ranks"));
    let mut text = format!("{bold}{name}{bold:#}{ranks}\n");
    if !run.rows.is_empty() {
        text.push_str(&format!(
            "{dim}{:>10} {:>12} {:>10} {:>10}{dim:#}\n",
            "size", "time (us)", "algbw GB/s", "busbw GB/s"
        ));
    }
    let shown = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
    for row in &run.rows {
        // Prints all figures of the better of the two measurements.
        let figures = match &row.in_place {
            Some(in_place) if in_place.busbw > row.out_of_place.busbw => in_place,
            _ => &row.out_of_place,
        };
        text.push_str(&format!(
            "{:>10} {:>12} {:>10} {:>10}\n",
            size_text(row.size),
            shown(figures.time_us),
            shown(figures.algbw),
            shown(figures.busbw)
        ));
    }
    text.push_str(&format!("{bold}{}{bold:#}: {}\n", judgement.verdict, clean_text(&judgement.reason)));
    for source in judgement.expected.iter().flat_map(|expected| &expected.sources) {
        text.push_str(&format!("  {dim}{source}{dim:#}\n"));
    }
    text
}

/// Returns `1 GiB` for a power of two, or the number of bytes.
fn size_text(size: u64) -> String {
    let units = [(1_u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(unit, _)| size >= *unit && size % unit == 0) {
        Some((unit, name)) => format!("{} {name}", size / unit),
        None => format!("{size} B"),
    }
}
