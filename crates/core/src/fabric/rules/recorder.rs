//! PyTorch's flight recorder, and the named pipes through which `weftrun why --dump` requests its dumps.

use super::{Context, Launch, set};
use crate::fabric::builder::PlanBuilder;
use crate::request::{Origin, RuleSetting};
use crate::text::fnv1a_32;

pub(crate) const RULE: &str = "observe.flight-recorder";

/// Collectives that are kept, as PyTorch's tutorial recommends. The pipe is made only if the variable is set.
const ENTRIES: &str = "2000";

/// Sets the recorder's variables where the rule is switched on, and never otherwise: a process that cannot make its pipe
/// ends at once (`TORCH_CHECK` in `DumpPipe`), which happens on a node without a writable `/tmp`, or where another user's job of
/// the same name left its pipes.
///
/// The names differ between releases, so both are set. Without `TORCH_NCCL_DUMP_ON_TIMEOUT` the pipe is read only at each
/// heartbeat, every eight minutes (torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, `runLoop`; read 2026-11-23).
pub(crate) fn decide(ctx: &Context, plan: &mut PlanBuilder, launch: &mut Launch) {
    if plan.settings.of(RULE) != RuleSetting::On || !plan.active(RULE) {
        return;
    }
    if ctx.skips_without_gpus(plan, RULE) {
        return;
    }
    // Jobs that share a node share their files only if they have one name. A plan does not know its submission, so `dump.sh`
    // of the SDK uses the pipes that processes of its job have open.
    let prefix = format!("/tmp/weftrun-fr-{:08x}-rank_", fnv1a_32(ctx.job.name.as_bytes()));
    let variables = [
        ("TORCH_NCCL_TRACE_BUFFER_SIZE", ENTRIES),
        ("TORCH_FR_BUFFER_SIZE", ENTRIES),
        ("TORCH_NCCL_DUMP_ON_TIMEOUT", "1"),
        ("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", prefix.as_str()),
        ("TORCH_FR_DUMP_TEMP_FILE", prefix.as_str()),
        ("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", prefix.as_str()),
    ];
    let why = "`weftrun why --dump` can then request the last collectives of every rank";
    for variable in variables {
        set::env_of_workers(ctx, plan, launch, RULE, variable, why, &Origin::Default);
    }
}
