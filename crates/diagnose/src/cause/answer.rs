//! The answer to why a job failed: its state, the first cause and the victims, as data and as lines for a person.

use serde::{Deserialize, Serialize};
use weftrun_nccl::failure::Frame;

use super::{known, place::Place};

use weftrun_core::finding::Evidence;
use weftrun_core::{Confidence, Finding};

/// What to do where the log has NCCL's result without its reason.
const NCCL_SAYS_WHY: &str = "set NCCL_DEBUG=INFO for all ranks and run again: NCCL prints the reason as a warning before the exception";

/// What to do where the memory of a GPU is full.
pub const CUDA_OUT_OF_MEMORY_FIX: &str =
    "use a smaller batch or shard the model, and check that no other process uses the GPU (nvidia-smi)";

/// Most lines of an answer.
const MOST_LINES: usize = 10;

/// The code of the finding that names the first cause.
pub const CAUSE_CODE: &str = "WHY-CAUSE";

word_enum! {
    /// The state of a job.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "lowercase")]
    pub enum WhyState {
        /// It ended with an error.
        Failed = "failed",
        /// It runs, and a collective operation waits beyond its time limit.
        Hanging = "hanging",
        /// It runs.
        Running = "running",
        /// It ended in order.
        Succeeded = "succeeded",
        /// Somebody ended it.
        Cancelled = "cancelled",
        /// The logs do not show it.
        #[default]
        Unknown = "unknown",
    }
}

word_enum! {
    /// The kind of a first cause.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "kebab-case")]
    pub enum CauseClass {
        /// An exception in the program.
        Exception = "exception",
        /// A GPU's memory is full.
        CudaOutOfMemory = "cuda-out-of-memory",
        /// A CUDA call failed, or the driver reports an error of a GPU.
        CudaError = "cuda-error",
        /// A signal ended a process.
        Signal = "signal",
        /// A process ended with an exit code, and its log does not show why.
        ExitCode = "exit-code",
        /// A rank did not join a collective operation.
        CollectiveTimeout = "collective-timeout",
        /// A running job: a rank has launched fewer operations than the others; one answer does not show whether it moves.
        Behind = "behind",
        /// Ranks joined a collective operation with different sizes or kinds.
        CollectiveMismatch = "collective-mismatch",
        /// NCCL or its network failed.
        #[serde(rename = "nccl-error")]
        Nccl = "nccl-error",
        /// A line reports an error that no rule explains; it is quoted.
        Unexplained = "unexplained",
        /// The processes did not find each other.
        Rendezvous = "rendezvous",
        /// Kubernetes: a container exceeded its memory limit.
        #[serde(rename = "OOMKilled")]
        OomKilled = "OOMKilled",
        /// Kubernetes: a pod was evicted.
        #[serde(rename = "Evicted")]
        Evicted = "Evicted",
        /// Kubernetes: an image could not be pulled.
        #[serde(rename = "ImagePullBackOff")]
        Image = "ImagePullBackOff",
        /// Kubernetes: no node can take a pod.
        #[serde(rename = "Unschedulable")]
        Unschedulable = "Unschedulable",
        /// Slurm: a task exceeded its memory limit.
        #[serde(rename = "OUT_OF_MEMORY")]
        OutOfMemory = "OUT_OF_MEMORY",
        /// A node failed.
        #[serde(rename = "NODE_FAIL")]
        NodeFail = "NODE_FAIL",
        /// The time limit of the job was reached.
        #[serde(rename = "TIMEOUT")]
        TimeLimit = "TIMEOUT",
        /// Another job took the nodes.
        #[serde(rename = "PREEMPTED")]
        Preempted = "PREEMPTED",
        /// The job was cancelled.
        #[serde(rename = "CANCELLED")]
        Cancelled = "CANCELLED",
    }
}

impl CauseClass {
    /// Returns whether it ends a job as a whole, so that no rank is to blame.
    pub(super) fn is_of_whole_job(self) -> bool {
        matches!(
            self,
            Self::Rendezvous
                | Self::Image
                | Self::Unschedulable
                | Self::TimeLimit
                | Self::Preempted
                | Self::Cancelled
        )
    }
}

/// What the fix depends on besides the class of the cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CauseDetail {
    /// Nothing.
    #[default]
    None,
    /// A volume is full.
    NoSpace,
    /// Python does not find a module.
    MissingModule,
    /// SIGKILL ended the process.
    Killed,
    /// The shell could not start the program.
    NotStarted,
    /// SIGBUS ended the process.
    BusError,
    /// The driver reported an error of the GPU.
    Xid,
    /// The libraries have no code for this GPU.
    OtherArchitecture,
    /// The port of the rendezvous is in use.
    PortInUse,
    /// The rank's log ends without a word.
    Silent,
    /// Ray lost a worker.
    WorkerLost,
    /// The store of the rendezvous is gone.
    StoreLost,
    /// Several ranks aborted, as watchdogs do.
    AbortedTogether,
    /// The program, not the GPU, makes the driver report it.
    ProgramFault,
    /// What the message says to do.
    Known(&'static str),
}

impl CauseDetail {
    /// Returns what an exit code says.
    pub(crate) fn of_exit(code: i32) -> Self {
        match code {
            126 | 127 => Self::NotStarted,
            137 | -9 => Self::Killed,
            135 | -7 => Self::BusError,
            _ => Self::None,
        }
    }

    /// Returns what the message of an exception says.
    pub(crate) fn of_exception(message: &str) -> Self {
        if message.contains("uncorrectable ECC") {
            Self::Xid
        } else if message.contains("ddress already in use") || message.contains("EADDRINUSE") {
            Self::PortInUse
        } else if message.contains("No space left on device") {
            Self::NoSpace
        } else if message.contains("No module named") {
            Self::MissingModule
        } else {
            known::fix(message).map_or(Self::None, Self::Known)
        }
    }
}

/// The first cause of a failure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cause {
    /// Kind.
    pub class: CauseClass,
    /// Global ranks that failed first; empty where no rank did, or none is proved.
    pub ranks: Vec<u32>,
    /// Their nodes.
    pub nodes: Vec<String>,
    /// What happened, in one line.
    pub what: String,
    /// The code of the rule that found it (`weftrun explain CODE`), where one did.
    pub code: Option<String>,
    /// The fix of that rule.
    #[serde(skip)]
    pub advice: Option<String>,
    /// What the fix depends on.
    #[serde(skip)]
    pub detail: CauseDetail,
    /// The innermost frame of the user's own code.
    pub frame: Option<Frame>,
    /// Where ranks that disagree stand in the user's own code; left out unless they differ.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<Place>,
    /// The GPU of the process that failed, where its rank is not known.
    #[serde(skip)]
    pub gpu: Option<u32>,
    /// The log lines that prove it.
    pub evidence: Vec<Evidence>,
    /// How sure that is.
    pub confidence: Confidence,
}

impl Cause {
    /// Returns the fix, in one sentence.
    pub fn fix(&self) -> String {
        if let Some(advice) = &self.advice {
            return advice.clone();
        }
        if let CauseDetail::Known(fix) = self.detail {
            return fix.to_owned();
        }
        let amd = self.is_amd();
        let place = self.frame.as_ref().map(|frame| format!("{}:{}", frame.file, frame.line));
        match self.class {
            CauseClass::Exception if self.detail == CauseDetail::NoSpace => {
                "free space on the volume that is written to, or write checkpoints to another one".to_owned()
            }
            CauseClass::Exception if self.detail == CauseDetail::MissingModule => {
                "install the missing module in the image or environment of every node".to_owned()
            }
            CauseClass::Exception => match place {
                Some(place) => format!("correct {place}, which raised it"),
                None => "read the lines above it in the log of that rank: they show where the program raised it".to_owned(),
            },
            CauseClass::CudaOutOfMemory if amd => CUDA_OUT_OF_MEMORY_FIX.replace("nvidia-smi", "rocm-smi"),
            CauseClass::CudaOutOfMemory => CUDA_OUT_OF_MEMORY_FIX.to_owned(),
            CauseClass::CudaError if self.what.contains("unhandled cuda error") => NCCL_SAYS_WHY.to_owned(),
            CauseClass::CudaError if self.detail == CauseDetail::Xid => {
                "drain the node and check its GPUs (dmesg, nvidia-smi -q, dcgmi diag)".to_owned()
            }
            CauseClass::CudaError if self.detail == CauseDetail::OtherArchitecture => {
                "use builds of NCCL and of the framework that have code for this GPU (`nvidia-smi --query-gpu=compute_cap --format=csv`)".to_owned()
            }
            CauseClass::CudaError if amd => {
                "run once with AMD_SERIALIZE_KERNEL=3 to find the call; look at the GPU with rocm-smi and at the kernel log (amdgpu)".to_owned()
            }
            CauseClass::CudaError => {
                "run once with CUDA_LAUNCH_BLOCKING=1 to find the call; if the GPU has Xid errors, drain its node".to_owned()
            }
            CauseClass::Signal if self.detail == CauseDetail::Killed => {
                "check the node for out-of-memory kills (dmesg) and raise the memory request of the job".to_owned()
            }
            CauseClass::Signal if self.detail == CauseDetail::BusError => {
                "give the job more shared memory (`shm` of the role), or use fewer data loader workers".to_owned()
            }
            CauseClass::Signal if self.detail == CauseDetail::AbortedTogether => {
                "read what stands above in the ranks' logs: a watchdog that ends its rank says which operation it waited for".to_owned()
            }
            CauseClass::Signal => {
                "see where it crashes: keep the core file (`ulimit -c unlimited`), or run a Python program with -X faulthandler".to_owned()
            }
            CauseClass::Nccl | CauseClass::Unexplained
                if ["NCCL_DEBUG=INFO", "unhandled", "NCCL failure", "passed an error on without its reason"]
                    .iter()
                    .any(|words| self.what.contains(words)) =>
            {
                NCCL_SAYS_WHY.to_owned()
            }
            CauseClass::Nccl | CauseClass::Unexplained => {
                "no rule explains this line: read the lines around it in the log".to_owned()
            }
            CauseClass::ExitCode if self.detail == CauseDetail::WorkerLost => {
                "read that worker's own log on its node (`/tmp/ray/session_latest/logs/worker-*`), and the kernel log (dmesg) for an out-of-memory kill".to_owned()
            }
            CauseClass::ExitCode if self.detail == CauseDetail::StoreLost => {
                "read the log of the process that holds the store: rank 0, or the launcher on the first node; it ended first".to_owned()
            }
            CauseClass::ExitCode if self.ranks.is_empty() && self.what.contains("not read") => {
                "add the logs of the missing ranks and run `weftrun why` again".to_owned()
            }
            CauseClass::ExitCode if self.ranks.is_empty() => {
                "read the last lines of every rank, and the kernel log of their nodes (dmesg)".to_owned()
            }
            CauseClass::ExitCode if self.detail == CauseDetail::NotStarted => {
                "correct the command or the working folder of the job: the program could not be started".to_owned()
            }
            CauseClass::ExitCode if self.detail == CauseDetail::Silent => {
                "look at what ended that process: the kernel's log of its node (dmesg), the cluster's events, or a person".to_owned()
            }
            CauseClass::ExitCode => "read the last lines of that rank: it ended without a traceback".to_owned(),
            CauseClass::CollectiveTimeout if self.ranks.is_empty() => {
                "add the logs of all ranks and run `weftrun why` again, or check the network between the nodes".to_owned()
            }
            CauseClass::CollectiveTimeout | CauseClass::Behind => {
                "look at what the rank did instead: run py-spy dump on its process while it hangs".to_owned()
            }
            CauseClass::CollectiveMismatch => {
                "make all ranks call the same collectives with the same shapes; TORCH_DISTRIBUTED_DEBUG=DETAIL names the call".to_owned()
            }
            CauseClass::Rendezvous if self.detail == CauseDetail::PortInUse => {
                "use another port for the rendezvous (MASTER_PORT, `--master-port`), or end the process that holds it".to_owned()
            }
            CauseClass::Rendezvous => {
                "check that MASTER_ADDR resolves on every node, its port is free, and all nodes started".to_owned()
            }
            CauseClass::OomKilled | CauseClass::OutOfMemory => "raise the memory request of the job, or use fewer data loader workers".to_owned(),
            CauseClass::Evicted => "request the resources that the pod uses, or use a node with more free disk and memory".to_owned(),
            CauseClass::Image => "check the name of the image and the pull secret".to_owned(),
            CauseClass::Unschedulable => "request fewer or other resources, or wait until nodes are free".to_owned(),
            CauseClass::NodeFail => "submit the job again, and exclude the node if it fails again".to_owned(),
            CauseClass::TimeLimit => "raise the time limit, or write checkpoints and continue from the last one".to_owned(),
            CauseClass::Preempted => "submit the job again, or use a queue that is not preempted".to_owned(),
            CauseClass::Cancelled => "submit the job again, unless it was cancelled on purpose".to_owned(),
        }
    }

    /// Returns whether its lines are of AMD's libraries, whose tools have other names.
    fn is_amd(&self) -> bool {
        let of_amd = |text: &str| {
            ["HIP out", "HIP error", "hipError", "hipIpc", "hipify", "RCCL"]
                .iter()
                .any(|word| text.contains(word))
        };
        of_amd(&self.what) || self.evidence.iter().any(|line| of_amd(&line.text))
    }

    /// Returns which ranks failed: `rank 3 on node1`.
    pub fn who(&self) -> String {
        let ranks = match (self.ranks.as_slice(), self.gpu) {
            ([], Some(gpu)) => format!("the rank of GPU {gpu}"),
            ([], None) => "a rank".to_owned(),
            (ranks, _) => named(ranks),
        };
        match self.nodes.as_slice() {
            [] if self.class.is_of_whole_job() && self.ranks.is_empty() => "the whole job".to_owned(),
            [] if self.ranks.is_empty() => "it is not known which rank".to_owned(),
            [] => ranks,
            [one] => format!("{ranks} on {one}"),
            many if self.ranks.is_empty() && self.gpu.is_none() => {
                format!("ranks on {}", weftrun_core::text::listed(many, 4))
            }
            many => format!("{ranks} on {} nodes", many.len()),
        }
    }
}

/// The stack of a rank's process, as a debugger printed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stack {
    /// Global rank.
    pub rank: u32,
    /// Its process, in the process namespace of its container.
    pub pid: Option<u32>,
    /// The debugger's output, or why there is none.
    pub text: String,
}

/// Why a job failed or hangs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Why {
    /// The state of the job.
    pub state: WhyState,
    /// The first cause; none where nothing failed, or the cause is not proved.
    pub cause: Option<Cause>,
    /// Ranks that failed because of it.
    pub victims: Vec<u32>,
    /// Other notable findings.
    pub findings: Vec<Finding>,
    /// Stacks of the ranks that the cause names, where they were requested.
    pub stacks: Vec<Stack>,
}

/// The lines of [`Why::lines`].
impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.lines().join("\n"))
    }
}

impl Why {
    /// Returns the cause as a finding, for lists of findings; none where there is no cause.
    pub fn finding(&self) -> Option<Finding> {
        let cause = self.cause.as_ref()?;
        let place = cause.frame.as_ref().map_or_else(String::new, |frame| {
            format!(" ({}:{} in {})", frame.file, frame.line, frame.function)
        });
        let who = cause.who();
        let message =
            format!("{} {}: {}: {}{place}", self.state.as_str(), cause.class.as_str(), who, cause.what);
        let mut finding = Finding::error(CAUSE_CODE, message).fix(cause.fix());
        finding.confidence = Some(cause.confidence);
        finding.ranks.clone_from(&cause.ranks);
        finding.evidence.clone_from(&cause.evidence);
        Some(finding)
    }

    /// Returns whether the job failed, hangs, or was cancelled for a cause that is known.
    pub fn is_failure(&self) -> bool {
        match self.state {
            WhyState::Failed | WhyState::Hanging => true,
            WhyState::Cancelled => self.cause.is_some(),
            _ => false,
        }
    }

    /// Returns whether a rank counts as failed: only those that the cause names; where it names a node alone, those that
    /// NCCL's lines show as failed and that are no victims.
    pub fn is_failed(&self, rank: Option<u32>, by_its_lines: bool) -> bool {
        let among = |ranks: &[u32]| rank.is_some_and(|rank| ranks.contains(&rank));
        let Some(cause) = self.cause.as_ref().filter(|_| self.state == WhyState::Failed) else {
            return false;
        };
        // Where nobody knows which rank it was, those that report it are its victims.
        let among_others = || by_its_lines && !cause.nodes.is_empty() && !among(&self.victims);
        if cause.ranks.is_empty() { among_others() } else { among(&cause.ranks) }
    }

    fn has_survived(&self) -> bool {
        self.findings.iter().any(|finding| finding.code == super::NOT_FATAL)
    }

    fn quotes(&self) -> bool {
        self.findings.iter().any(|finding| finding.code == super::UNEXPLAINED)
    }

    /// Returns the answer in at most ten lines.
    pub fn lines(&self) -> Vec<String> {
        let Some(cause) = &self.cause else {
            let head = match self.state {
                WhyState::Failed => "failed: the logs do not show the cause",
                WhyState::Hanging => "hanging: the logs do not show the cause",
                WhyState::Running if self.quotes() => "running: no failure is proved",
                WhyState::Running => "running: no failure in the logs",
                WhyState::Succeeded => "succeeded: no failure in the logs",
                WhyState::Cancelled if self.quotes() => "cancelled: no failure is proved",
                WhyState::Cancelled => "cancelled: no failure in the logs",
                WhyState::Unknown if self.has_survived() => {
                    "unknown: errors in the logs, and nothing shows that they ended the job"
                }
                WhyState::Unknown if self.quotes() => "unknown: no rule explains the errors in the logs",
                // A finding says what the cluster reports.
                WhyState::Unknown if !self.findings.is_empty() => "unknown: no failure in the logs",
                WhyState::Unknown => "unknown: no failure in the logs, and no end of the job",
            };
            let more = self.findings.iter().take(8).map(|finding| format!("  note      {}", finding.message));
            return std::iter::once(head.to_owned()).chain(more).collect();
        };
        let mut lines = vec![format!("{}: {}: {}", self.state.as_str(), cause.class.as_str(), cause.who())];
        lines.push(format!("  what      {}", cause.what));
        if let Some(frame) = cause.frame.as_ref().filter(|_| cause.places.is_empty()) {
            lines.push(format!("  at        {}:{} in {}", frame.file, frame.line, frame.function));
        }
        for place in cause.places.iter().take(3) {
            let Place { ranks, frame } = place;
            let (file, line, function) = (&frame.file, frame.line, &frame.function);
            lines.push(format!("  at        {file}:{line} in {function} ({})", named(ranks)));
        }
        for evidence in cause.evidence.iter().take(2) {
            let text: String = evidence.text.chars().take(160).collect();
            let line = if evidence.line == 0 { String::new() } else { format!(":{}", evidence.line) };
            lines.push(format!("  evidence  {}{line}: {text}", evidence.source));
        }
        if !self.victims.is_empty() {
            lines.push(format!("  victims   {}", named(&self.victims)));
        }
        lines.push(format!("  fix       {}", cause.fix()));
        if cause.confidence != Confidence::High {
            let sure = if cause.confidence == Confidence::Low { "low" } else { "medium" };
            let reason = self.findings.iter().find(|finding| finding.code == super::LOGS_MISSING);
            let reason = reason.map_or_else(String::new, |finding| format!(": {}", finding.message));
            lines.push(format!("  sure      {sure}{reason}"));
        }
        let told =
            |finding: &&Finding| finding.code != super::LOGS_MISSING || cause.confidence == Confidence::High;
        for finding in self.findings.iter().filter(told).take(MOST_LINES.saturating_sub(lines.len())) {
            lines.push(format!("  note      {}", finding.message));
        }
        lines
    }
}

/// Reports that the logs of some ranks were not read; `of` is the number of all ranks, or is empty.
pub(super) fn not_read(ranks: &[u32], of: &str) -> String {
    let (logs, verb) = if ranks.len() == 1 { ("log", "was") } else { ("logs", "were") };
    format!("the {logs} of {}{of} {verb} not read", named(ranks))
}

/// Returns `rank 3`, or `ranks 0-3, 7`.
pub(crate) fn named(ranks: &[u32]) -> String {
    format!("{} {}", if ranks.len() == 1 { "rank" } else { "ranks" }, rank_list(ranks))
}

/// Returns numbers as ranges: `0-3, 7`.
pub fn rank_list(ranks: &[u32]) -> String {
    const MOST: usize = 16;
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*rank) => *last = *rank,
            _ => runs.push((*rank, *rank)),
        }
    }
    let shown = runs.iter().take(MOST).map(|(from, to)| match to - from {
        0 => from.to_string(),
        _ => format!("{from}-{to}"),
    });
    let more = if runs.len() > MOST { ", …" } else { "" };
    format!("{}{more}", shown.collect::<Vec<_>>().join(", "))
}
