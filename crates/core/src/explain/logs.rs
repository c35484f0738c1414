//! Codes about logs: what `transport`, `why`, `health` and `verify` report beside the diagnoses.

use super::Code;
use super::clusters::code;
use crate::diagnose::cause::CAUSE_CODE;

pub(super) const LOGS: &[Code] = &[
    code(
        "FR-COLLECTIVE-MISMATCH",
        "ranks called different collectives",
        "PyTorch's flight recorder shows that ranks of one group are at the same step in different calls, or with different sizes; they wait for each other for ever.",
        "Look for a condition that not all ranks share (a last batch, an exception that was caught).",
    ),
    code(
        "FR-RANK-BEHIND",
        "ranks did not reach the collective the others wait in",
        "PyTorch's flight recorder shows which call each rank was in last.",
        "Look at what the ranks that are named were doing: data loading, a checkpoint, a crash.",
    ),
    code(
        "NCCL-FABRIC-NOT-AS-PLANNED",
        "pairs of ranks use another fabric than was planned",
        "The channels in the log prove it; exit code 7.",
        "The findings beside it say why the planned one was not used.",
    ),
    code(
        "NCCL-LOG-CONTESTED",
        "two processes claim one rank",
        "The log holds two jobs, or a run and its repetition, so what it proves of these ranks is not clear.",
        "Give the log of one run.",
    ),
    code(
        "NCCL-LOG-MISFIT",
        "connections fit no communicator of their process",
        "They are of another job, or not NCCL's own lines.",
        "Give the whole log of one run.",
    ),
    code(
        "NCCL-LOG-TORN",
        "connection lines are cut in the middle",
        "Ranks wrote into one file at once, or it was truncated; nothing is concluded from such lines.",
        "Give each rank a file of its own (NCCL_DEBUG_FILE=nccl.%h.%p).",
    ),
    code(
        "NCCL-MAP-FULL",
        "the map holds no more connections",
        "Memory is bounded; what found no room is counted, and the verdict rests on the rest.",
        "Nothing, unless the job is very large: then give the logs of fewer ranks.",
    ),
    code(
        "NCCL-LOG-IMPOSSIBLE",
        "lines tell of a rank that cannot be",
        "A rank beyond the ranks of its communicator: NCCL prints no such line.",
        "Give the log as NCCL wrote it.",
    ),
    code(
        "NCCL-LOG-OUTSIDER",
        "connections are of processes that joined no communicator",
        "Others in the log did join one, so these are another job's, or not NCCL's.",
        "Give the whole log of one run.",
    ),
    code(
        "NCCL-LOG-HCCL",
        "the log is of Huawei's HCCL",
        "Its lines are not those of NCCL, and are not read.",
        "Give the log of a job that uses NCCL or RCCL.",
    ),
    code(
        "NCCL-LOG-OLD",
        "the log is of an NCCL before 2.3",
        "Those versions print connections in another form, without `NCCL` in front, which is not read.",
        "Use an image with a later NCCL.",
    ),
    code(
        "NCCL-LOG-SEVERAL-JOBS",
        "the log holds several jobs",
        "They are told apart by their communicators.",
        "Give one run's log for a verdict of its own.",
    ),
    code(
        "NCCL-LOG-UNSIGNED",
        "connections have no prefix of NCCL",
        "Others in the log have one, so a program may have printed these; they do not count for the verdict.",
        "Give the log as NCCL wrote it.",
    ),
    code(
        "VERIFY-NODES-DIFFER",
        "the nodes of a benchmark are not alike",
        "Before the benchmark each node reports its GPUs, driver, network interfaces and limits. A value that differs between nodes is worth a look, even where nobody knows which one is right.",
        "Make the nodes alike, or leave the odd one out.",
    ),
    code(
        "VERIFY-CLOCK",
        "the clocks of two nodes differ by more than 30 seconds, or one differs from its time server by more than a second",
        "Times in their logs cannot be compared, and certificates and leases may fail.",
        "Let both nodes set their clocks from one NTP server.",
    ),
    code(
        "VERIFY-NIC-ERRORS",
        "error counters of a network interface grew during a benchmark",
        "Retransmissions, discards and link errors cost bandwidth before anything fails.",
        "Check the cable, the switch port and the flow control of this interface.",
    ),
    code(
        "VERIFY-NIC-IDLE",
        "a network interface carried almost no traffic while others did",
        "It is active, of the same link and rate as the busiest interface, and its counters grew by less than a hundredth of that one's: NCCL does not use it, and the job has only a part of the node's bandwidth.",
        "Give the job all interfaces of the node, and name them all where NCCL_IB_HCA is set.",
    ),
    code(
        "VERIFY-SLOWER-THAN-BEFORE",
        "a benchmark is slower than earlier ones on this target",
        "`verify --baseline compare` holds the figures of 64 MiB and more against kept runs with as many nodes and ranks. Four runs and more show their own noise: three standard deviations, taken from the median so that one bad run does not count, and at least 3 %. Fewer are taken to differ by 10 %.",
        "Find the node: `weftrun verify --bisect=always` measures parts of the nodes, and `weftrun verify --history` compares nodes by all kept runs.",
    ),
    code(
        "VERIFY-NO-EARLIER-RUN",
        "there is no earlier benchmark to compare with",
        "Only runs of the same target with the same collective, sizes, number of nodes and of ranks are compared.",
        "Keep a good run with `--baseline save`; `weftrun verify --history` lists what is kept.",
    ),
    code(
        "HEALTH-INCOMPLETE",
        "ranks of a running job do not answer NCCL's RAS service",
        "Their processes have ended, or cannot be reached by the others. The job cannot go on without them.",
        "See the logs of the named ranks, and `weftrun why JOB`.",
    ),
    code(
        "HEALTH-STUCK",
        "ranks of a running job are behind the others and do not move",
        "NCCL's RAS service counts the operations of each rank. The named ranks have launched fewer than the others, and have not moved for two minutes: the others wait for them.",
        "See what the named process does, for example by `weftrun exec JOB --rank N -- py-spy dump --pid PID`.",
    ),
    code(
        "HEALTH-SUSPECT",
        "ranks of a running job are behind the others, or report an error",
        "One slow step looks the same, so this proves nothing yet.",
        "Query again after a minute, or run `weftrun health JOB --observe 3m`.",
    ),
    code(
        "NIC-TRAFFIC",
        "what the RDMA interfaces carried",
        "`weftrun transport JOB --counters` read the interfaces' counters twice inside the running job. The traffic between is evidence of the fabric that does not come from NCCL's log. It includes other jobs on the node.",
        "Nothing.",
    ),
    code(
        "NIC-TRAFFIC-DIFFERS",
        "the RDMA interfaces' traffic does not fit the log",
        "The log proves a fabric whose traffic these interfaces carry, and they carried none; or it proves TCP, and they carried some.",
        "Sample again while the job trains, with a longer time (`--counters=30s`). If it stays, read the first lines of NCCL's log on that node.",
    ),
    code(
        CAUSE_CODE,
        "the first cause of a failure or a hang",
        "Of all that the ranks, their launchers and the cluster report, this is the fact that the others follow from: causes outrank victims by kind before time decides, since the clocks of nodes differ.",
        "Follow the fix in the message; `weftrun why JOB` prints the evidence.",
    ),
    code(
        "WHY-EARLIER-ATTEMPT",
        "an earlier attempt in the same logs failed",
        "The logs hold several attempts of the job. The state is that of the last one; this is the cause of the failure before it.",
        "Nothing, if the last attempt went well.",
    ),
    code(
        "WHY-INSPECTION",
        "what was asked inside the running job, and not answered",
        "`weftrun why --dump` and `--stacks` run commands beside the ranks. This says which rank gave no dump of its flight recorder or no stack, or that the dumps show no rank that is behind.",
        "Submit with `--fabric-rule observe.flight-recorder` for dumps, and install py-spy in the image for stacks.",
    ),
    code(
        "WHY-LOGS-MISSING",
        "ranks of the job wrote nothing that was read",
        "The size of the job is known, and not all of its ranks are in the logs. The cause may be in a log that is missing, so the answer is less sure.",
        "Add the logs of the missing ranks and ask again.",
    ),
    code(
        "WHY-LOGS-UNREAD",
        "the logs could not be read to their end",
        "The answer rests on what was read before.",
        "See the reason in the message, and run `weftrun logs JOB`.",
    ),
    code(
        "WHY-NO-CAUSE",
        "the job failed, and its logs do not show why",
        "The cluster reports a failure, but no rank or launcher wrote a traceback, an exit code or a watchdog report.",
        "Read the reason that the cluster gives (`weftrun describe JOB`) and the last lines of the ranks.",
    ),
    code(
        "WHY-PHASE",
        "the job neither runs nor failed",
        "It was cancelled, waits, or is being stopped, and its logs show no failure.",
        "Nothing, unless it should run: `weftrun describe JOB` shows what it waits for.",
    ),
];
