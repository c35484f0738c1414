//! `report`: everything known of a job, as one page that is read without weftrun.

mod bring_up;
mod collectives;
mod html;

use std::collections::BTreeMap;

use clap::Args;
use futures_util::StreamExt;
use weftrun::core::exit_codes;
use weftrun::core::job::JobDetail;
use weftrun::core::mask::mask;
use weftrun::core::spec::{JobSpec, to_toml};
use weftrun::diagnose::cause::Why;
use weftrun::diagnose::{Judge, Measured, Sources};
use weftrun::report::{DescribeReport, JobReport, TransportReport, WhyReport};
use weftrun::{Error, ErrorKind, Job, Result};
use weftrun_tui::ViewBuilder;
use weftrun_tui::model::transport_view::TransportView;

use super::transport::is_job;
use super::tui::replay_of;
use crate::context::Context;
use crate::global::Format;

const EXAMPLES: &str = "\
Examples:
  weftrun report llama -o html > llama.html       a job, by its name or handle
  weftrun report logs/ -o html > run.html         the logs of a run without weftrun
  weftrun report llama -o json | jq .why.cause";

#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ReportArgs {
    /// A job's handle or name; or files and folders of logs
    #[arg(value_name = "JOB|PATH", required = true)]
    pub inputs: Vec<String>,
}

/// Everything known of a job.
struct Known {
    job: Job,
    /// The job as it was submitted, without the values of secrets; none for one submitted elsewhere.
    spec: Option<JobSpec>,
    /// What the cluster reports; none for logs without a job.
    detail: Option<JobDetail>,
    view: TransportView,
    transport: TransportReport,
    judge: Judge,
    why: Why,
    measured: Option<Box<Measured>>,
}

/// Writes the report. The exit code does not depend on it.
pub fn run(context: &Context, args: &ReportArgs) -> Result<u8> {
    if context.out.format == Format::Table {
        return Err(Error::new(ErrorKind::Usage, "`report` writes a page or data, and no text")
            .hint("use -o html, json or yaml; `weftrun describe`, `why` and `transport` print text"));
    }
    let known = match args.inputs.as_slice() {
        [name] if is_job(name) => {
            let client = context.client()?;
            context.block_on(async {
                let job = context.job(&client, name).await?;
                let detail = job.describe().await?;
                known(job, Some(detail)).await
            })?
        }
        inputs => {
            let is_there = |input: &String| std::path::Path::new(input).exists();
            if let Some(input) = inputs.iter().find(|input| !is_there(input)) {
                let message = if input == "-" {
                    "a report is of a job, or of files and folders, and not of stdin"
                } else if inputs.len() > 1 && is_job(input) {
                    "a report covers one job, or files and folders, and this is not a file"
                } else {
                    "there is no such file"
                };
                return Err(Error::new(ErrorKind::Usage, message).with("name", input));
            }
            let (client, handle) = replay_of(context.config()?, inputs)?;
            context.block_on(async { known(client.attach(&handle).await?, None).await })?
        }
    };
    if context.out.format == Format::Html {
        context.out.document(&*mask(&html::page(&known)?))?;
        return Ok(exit_codes::OK);
    }
    let mut report = JobReport::new(&known.transport, WhyReport::from(known.why.clone()));
    report.job = known
        .detail
        .as_ref()
        .map(|detail| DescribeReport::new(known.job.handle(), detail, known.job.plan(), known.job.spec()));
    report.spec = known.spec.as_ref().map(to_toml);
    report.bandwidth = known.measured.as_deref();
    context.out.value(&report)?;
    Ok(exit_codes::OK)
}

/// Reads the logs of a job, and judges them.
async fn known(job: Job, detail: Option<JobDetail>) -> Result<Known> {
    let mut builder = ViewBuilder::default();
    let (options, chosen) = detail.as_ref().map_or_else(Default::default, |detail| job.telling_logs(detail));
    let mut logs = job.logs(options);
    while let Some(batch) = logs.next().await {
        builder.observe(&batch?, None);
    }
    let map = builder.map();
    let mut diagnosis = Sources::of_logs(map).plan(job.plan()).job(detail.as_ref()).diagnose();
    diagnosis.findings.extend(chosen);
    diagnosis.findings.extend(detail.iter().flat_map(|detail| detail.findings.iter().cloned()));
    diagnosis.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    let (judge, asked) = (diagnosis.judge(), job.spec().map_or(0, JobSpec::world_size));
    let view = builder.transport_view(job.plan(), asked, &BTreeMap::new(), detail.as_ref());
    let (why, measured) = (diagnosis.why.clone(), diagnosis.measured.take());
    let transport = TransportReport::of(diagnosis, map);
    let spec = job.spec().cloned().map(JobSpec::masked);
    Ok(Known { job, spec, detail, view, transport, judge, why, measured })
}
