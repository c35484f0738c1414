//! The arguments of the command line. `commands/` implements them.

use clap::{Parser, Subcommand};

use crate::commands;
use crate::global::Global;

const EXAMPLES: &str = "\
Examples:
  weftrun                                        open the terminal UI
  weftrun demo                                   see it work on this machine, without a cluster
  weftrun init > job.toml                        write a commented job file
  weftrun plan job.toml                          every change the fabric needs, and why
  weftrun submit --follow job.toml -b prod       submit, follow all ranks, end with the job's result
  weftrun mutate -f job.yaml | kubectl apply -f -
  weftrun transport logs/                        which transport did each pair of ranks use?

Exit codes: 0 ok, 1 job failed, 2 usage, 3 invalid spec, 4 refused, 5 unreachable, 6 not found,
7 another fabric than planned, 124 timeout, 130 interrupted, 70 bug.";

/// Submit distributed GPU training with its fabric applied, and see which transport each pair of ranks uses.
#[derive(Debug, Parser)]
#[command(name = "weftrun", version, after_help = EXAMPLES, propagate_version = true)]
pub struct Cli {
    /// What every verb understands.
    #[command(flatten)]
    pub global: Global,
    /// The verb to run; the terminal UI if no verb is given.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Plan a job, print what changes, submit it
    #[command(visible_alias = "run")]
    Submit(commands::submit::SubmitArgs),
    /// Print every decision and its reason without submitting anything
    Plan(commands::plan::PlanArgs),
    /// Print the documents that would be sent, without a connection or credentials
    Render(commands::render::RenderArgs),
    /// Apply the fabric to manifests or sbatch scripts; other documents pass through unchanged
    Mutate(commands::mutate::MutateArgs),
    /// Check manifests, scripts and job files for mistakes and outdated settings
    Lint(commands::lint::LintArgs),
    /// Convert a manifest, an sbatch script or a runai command line to a job file
    Import(commands::import::ImportArgs),
    /// Explain a code or a rule
    Explain(commands::explain::ExplainArgs),
    /// Show which transport each pair of ranks uses, and why it is not a faster one
    Transport(commands::transport::TransportArgs),
    /// Say why a job failed or hangs: the first cause, its rank and its line
    Why(commands::why::WhyArgs),
    /// Write a job's whole report as one page: verdict, transports, bring-up, findings, the job as sent
    Report(commands::report::ReportArgs),
    /// Benchmark collectives on a number of nodes and judge the bandwidth
    Verify(commands::verify::VerifyArgs),
    /// Report the hardware and settings of nodes, and where they differ
    Probe(commands::probe::ProbeArgs),
    /// Query a running job's NCCL: which ranks are missing, behind or failed
    Health(commands::health::HealthArgs),
    /// Show how fast each collective is, and which rank makes the others wait
    Bandwidth(commands::bandwidth::BandwidthArgs),
    /// Print the logs of a job, all ranks merged
    Logs(commands::logs::LogsArgs),
    /// Run a command on the node of a rank, in the rank's environment
    Exec(commands::exec::ExecArgs),
    /// Connect a port of this machine to a port inside a job
    PortForward(commands::port_forward::PortForwardArgs),
    /// Print the events of a job until it ends
    Watch(commands::watch::WatchArgs),
    /// Wait for jobs to end and exit with their result
    Wait(commands::wait::WaitArgs),
    /// Submit a job again whose nodes or cluster failed, without the node that failed
    Retry(commands::retry::RetryArgs),
    /// List jobs
    #[command(visible_aliases = ["ps", "ls"])]
    List(commands::list::ListArgs),
    /// Show the details of a job
    #[command(visible_alias = "status")]
    Describe(commands::describe::DescribeArgs),
    /// Stop a job and keep its record; on Kubernetes its pods are removed, and their logs with them
    Cancel(commands::act::CancelArgs),
    /// Stop a job and remove its record
    #[command(visible_alias = "rm")]
    Delete(commands::act::DeleteArgs),
    /// Suspend a job and release its nodes
    Suspend(commands::act::HandleArgs),
    /// Resume a suspended job
    Resume(commands::act::HandleArgs),
    /// Keep a pending job from starting (Slurm)
    Hold(commands::act::HandleArgs),
    /// Release a held job (Slurm)
    Release(commands::act::HandleArgs),
    /// Stop a job and queue it again under the same id (Slurm)
    Requeue(commands::act::HandleArgs),
    /// List library versions that are known to hang, crash or miss the fabric
    Advisories(commands::advisories::AdvisoriesArgs),
    /// List the available backends and what each can do
    Backends,
    /// Print, change and trust configuration; `show --origin` prints where each value comes from
    Config(commands::config::ConfigArgs),
    /// Write a commented job file; asks for its values on a terminal
    Init(commands::init::InitArgs),
    /// List instance types: GPUs, fabric, EFA interfaces
    Instances(commands::instances::InstancesArgs),
    /// List the profiles: what each site's fabric needs, and its sources
    Profiles(commands::profiles::ProfilesArgs),
    /// Judge the nodes of a target by the jobs that ran on them
    Nodes(commands::nodes::NodesArgs),
    /// Show, export or forget the history of jobs from which nodes are judged
    History(commands::history::HistoryArgs),
    /// List the configured targets
    Targets,
    /// Check what is reachable, with which rights, and what would stop a job
    Doctor(commands::doctor::DoctorArgs),
    /// Run a demonstration on this machine: a simulated two-node job and its transports
    Demo(commands::demo::DemoArgs),
    /// Be the parent of a local job's processes
    #[command(hide = true)]
    Supervise(commands::supervise::SuperviseArgs),
    /// Print a completion script for a shell
    Completions(commands::completions::CompletionsArgs),
    /// Print the manual page, or write all manual pages to a folder
    Man(commands::man::ManArgs),
    /// Serve the verbs as tools for an agent (Model Context Protocol on stdin and stdout)
    #[cfg(feature = "mcp")]
    Mcp(commands::mcp::McpArgs),
    /// Write a page that tells an agent how to use weftrun (SKILL.md)
    Skill(commands::skill::SkillArgs),
    /// Open the terminal UI
    Tui(commands::tui::TuiArgs),
    /// Print the version
    Version,
}
