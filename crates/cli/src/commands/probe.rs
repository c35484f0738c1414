//! The verb `probe`: submits a job that only reports what its nodes have.

use std::time::Duration;

use clap::Args;
use weftrun::Result;
use weftrun::core::exit_codes;
use weftrun::core::log::clean_text;
use weftrun::core::text::{counted, listed};
use weftrun::verify::Probes;
use weftrun::verify::Verification;

use super::verify;
use crate::context::Context;
use crate::job_flags::{JobFlags, limit};
use crate::output::style;

const EXAMPLES: &str = "\
Examples:
  weftrun probe -b prod --nodes 4 --gpus-per-node 8 --image IMAGE     what four nodes have, and where they differ
  weftrun probe job.toml -o json | jq .fabrics                        the fabrics of which the nodes have devices

The image needs only `sh`. Exit code 1 if the job fails or no node reports.";

#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES, mut_arg("command", |arg| arg.hide(true)))]
pub struct ProbeArgs {
    /// The job, whose nodes, image, environment and fabric are used
    #[command(flatten)]
    pub job: JobFlags,
    /// Cancel the job after this time, the time in the queue included
    #[arg(id = "follow_timeout", long = "timeout", value_parser = limit, default_value = "10m", value_name = "TIME")]
    pub timeout: Duration,
}

/// Runs the probe and prints what the nodes report.
pub fn run(context: &Context, args: &ProbeArgs) -> Result<u8> {
    let out = &context.out;
    let client = context.client()?;
    let spec = verify::spec(context, &args.job, "probe")?;
    let probe =
        Verification::new(&client, context.target(&client)?, spec).collectives([]).timeout(args.timeout);
    let verified = verify::follow(context, &probe)?;
    if out.is_data() {
        out.value(&verified.probe_report())?;
    } else {
        out.text(&table(&verified.probes, verified.nodes))?;
        out.findings(&verified.findings());
        if let Some(why) = &verified.failed {
            out.say(clean_text(why));
        }
    }
    let none = verified.probes.hosts().next().is_none();
    Ok(if none || verified.failed.is_some() { exit_codes::JOB_FAILED } else { exit_codes::OK })
}

/// Returns each fact with its values, and the nodes that have them where they differ.
fn table(probes: &Probes, nodes: Option<u32>) -> String {
    let (bold, dim, warn) = (style::BOLD, style::DIM, style::WARNING);
    let hosts = probes.hosts().count();
    let of = nodes.filter(|nodes| usize::try_from(*nodes).is_ok_and(|nodes| nodes != hosts));
    let title = of.map_or_else(|| counted(hosts, "node"), |nodes| format!("{hosts} of {nodes} nodes"));
    let names = listed(probes.hosts(), 8);
    let mut text = format!("{bold}{title}{bold:#} {dim}{}{dim:#}\n", clean_text(&names));
    let facts = probes.facts();
    let width = facts.iter().map(|fact| fact.words().chars().count()).max().unwrap_or(0);
    for fact in &facts {
        for (at, (value, hosts)) in fact.values.iter().enumerate() {
            let name = if at == 0 { fact.words() } else { String::new() };
            let value = if value.is_empty() { "-" } else { value };
            let line = format!("{:width$}  {}", clean_text(&name), clean_text(value.trim_end_matches(';')));
            let differs = fact.values.len() > 1;
            text.push_str(&if differs {
                format!("{line}  {warn}{}{warn:#}\n", clean_text(&listed(hosts, 4)))
            } else {
                format!("{line}\n")
            });
        }
    }
    for (fabric, hosts) in probes.fabrics() {
        text.push_str(&format!(
            "{bold}{}{bold:#}: active devices on {} nodes\n",
            fabric.as_str(),
            hosts.len()
        ));
    }
    text
}
