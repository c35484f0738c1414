//! Reads PyTorch's watchdogs: which collective operation a rank waited for, and what others run.

use super::content::Content;
use super::words::Text;
use super::{Fact, Work, Writer};
use crate::map::printable;

/// The operation of a watchdog's line that does not name it.
pub(super) const UNNAMED_WORK: &str = "a collective";

/// What a watchdog says that gives up an operation.
const CAUGHT: &str = "Watchdog caught collective operation timeout";
/// The same where a terminal cut the line.
const CAUGHT_CUT: &str = "Watchdog caught collectiv";

/// Reads which operation timed out; PyTorch before 1.13 does not number it.
fn timed_out(text: Text<'_>, group: Option<String>) -> Fact {
    match text.after("WorkNCCL(").and_then(work) {
        Some(work) => Fact::TimedOut { group, work },
        None => Fact::ToldOfTimeout { by: None, op: text.after("WorkNCCL(").and_then(operation) },
    }
}

/// Reads PyTorch's watchdogs.
pub(super) fn watchdog(text: Text<'_>, mut who: Writer, say: &mut impl FnMut(Writer, Content<'_>)) {
    let group = group(text);
    who.rank = who.rank.or_else(|| rank(text, group.as_deref()));
    if text.has("terminated with exception") {
        say(who, Content::Fact(Fact::Died));
    }
    // The thread that watches the watchdog ends the process.
    if text.has("watchdog got stuck for ") || text.has("eartbeat monitor timed out") {
        let text = printable(text.from("watchdog got stuck").unwrap_or(text).0, 300);
        return say(who, Content::Fact(Fact::Error { text, fatal: true }));
    }
    if let Some(what) = text.from("CUDA error") {
        say(who, Content::Fact(Fact::Cuda(printable(what.0, 300))));
    }
    if text.has("remote process exited") || text.has("ncclRemoteError") {
        say(who, Content::Fact(Fact::RemoteExit));
    } else if let Some(timeout) = text.from(CAUGHT) {
        say(who, Content::Fact(timed_out(timeout, group.clone())));
    } else if text.has(CAUGHT_CUT) && text.has("terminated with exception") {
        say(who, Content::Fact(Fact::ToldOfTimeout { by: None, op: None }));
    }
    // Without the line of the operation, its number is known, and the process group.
    let waits = text.after("Timeout at NCCL work: ").or_else(|| text.after("detected by watchdog at work: "));
    // This one is printed after a timeout and after an error of NCCL.
    if let Some(seq) = text.after("detected by watchdog at work sequence id: ").and_then(Text::long) {
        say(who, Content::Fact(Fact::WatchdogFailed { seq }));
    }
    if let Some(by) = text.after("due to a collective timeout from ") {
        let by = by.after("rank ").and_then(|rest| rest.0.first()?.is_ascii_digit().then_some(rest)?.small());
        say(who, Content::Fact(Fact::ToldOfTimeout { by, op: None }));
    }
    if let Some(seq) = waits.and_then(Text::long) {
        let work = Work { seq, op: UNNAMED_WORK.to_owned(), size: None };
        say(who, Content::Fact(Fact::TimedOut { group: group.clone(), work }));
    }
    let enqueued = text.after("ast enqueued work: ").or_else(|| text.after("ast enqueued NCCL work: "));
    if let Some(rest) = enqueued {
        let completed =
            rest.after("ast completed work: ").or_else(|| rest.after("ast completed NCCL work: "));
        if let (Some(enqueued), Some(completed)) = (rest.long(), completed.and_then(Text::long)) {
            say(who, Content::Fact(Fact::Progress { group, enqueued, completed }));
        }
    }
}

/// Reads `[Rank 3] Watchdog …` and `[PG ID 0 PG GUID 0(default_pg) Rank 0]`: the rank of another group is not global.
pub(crate) fn rank_of_watchdog(line: &[u8]) -> Option<u32> {
    let text = Text(line);
    if text.has("atchdog") { rank(text, group(text).as_deref()) } else { None }
}

fn rank(text: Text<'_>, group: Option<&str>) -> Option<u32> {
    let is_global = group.is_none_or(|group| group.contains("default_pg"));
    text.after("Rank ").and_then(Text::small).filter(|_| is_global)
}

/// Converts `PG GUID 0(default_pg)` to `0(default_pg)`.
fn group(text: Text<'_>) -> Option<String> {
    let rest = text.after("PG GUID ")?;
    let end = crate::text::find(rest.0, b" Rank ")?;
    Some(printable(rest.0.get(..end)?, 100))
}

/// Reads `SeqNum=11, OpType=ALLREDUCE, NumelIn=65792, …`.
pub(super) fn work(text: Text<'_>) -> Option<Work> {
    let seq = text.after("SeqNum=").or_else(|| text.after("SequenceNumber="))?.long()?;
    let op = operation(text).or_else(|| text.has("OpType=").then(|| UNNAMED_WORK.to_owned()))?;
    let size = text
        .after("NumelIn=")
        .map(|rest| ("NumelIn", rest.word()))
        .or_else(|| text.after("TensorShape=").map(|rest| ("TensorShape", rest.bracketed())));
    Some(Work { seq, op, size })
}

/// Reads `OpType=ALLREDUCE,`; a line that is cut in the name proves no operation.
fn operation(text: Text<'_>) -> Option<String> {
    let op = text.after("OpType=")?;
    let whole = op.0.get(op.name().len()).is_some_and(|next| matches!(next, b',' | b')'));
    whole.then(|| op.word())
}

/// Reads what ranks run from `Detected mismatch between collectives on ranks. Rank 1 is running collective:
/// …`.
pub fn mismatch(message: &str) -> Vec<(u32, Work)> {
    let mut found = Vec::new();
    for piece in message.split("Rank ").skip(1).take(64) {
        let piece = Text(piece.as_bytes());
        if let (Some(rank), Some(work)) =
            (piece.small(), piece.after("CollectiveFingerPrint(").and_then(work))
        {
            found.push((rank, work));
        }
    }
    found
}

/// Reads the timeout that an exception quotes: `… Original reason for failure was: [Rank 3] Watchdog caught …`.
pub(super) fn quoted_timeout(message: &str) -> Option<(Option<u32>, Fact)> {
    let text = Text(message.as_bytes());
    Some((text.after("[Rank ").and_then(Text::small), timed_out(text.from(CAUGHT)?, None)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watchdog_of_a_subgroup_names_no_global_rank() {
        for (line, wanted) in [
            ("[Rank 3] Watchdog caught collective operation timeout", Some(3)),
            ("[PG ID 0 PG GUID 0(default_pg) Rank 3] Process group watchdog thread", Some(3)),
            ("[PG ID 4 PG GUID 4(tp) Rank 1] Process group watchdog thread", None),
            ("[Rank 3] of another text", None),
        ] {
            assert_eq!(rank_of_watchdog(line.as_bytes()), wanted, "{line}");
        }
    }

    #[test]
    fn a_mismatch_names_what_each_rank_runs() {
        let found = mismatch(
            "Detected mismatch between collectives on ranks. Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=11, \
             OpType=ALLREDUCE, TensorShape=[7], x), but Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=11, \
             OpType=ALLREDUCE, TensorShape=[65792], x).",
        );
        let sizes: Vec<_> = found.iter().map(|(rank, work)| (*rank, work.size.clone())).collect();
        assert_eq!(
            sizes,
            [(1, Some(("TensorShape", "[7]".to_owned()))), (0, Some(("TensorShape", "[65792]".to_owned())))]
        );
    }
}
