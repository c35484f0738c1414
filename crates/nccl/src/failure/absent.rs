//! Reads which ranks others wait for, in the words of PyTorch, JAX and Horovod.

use std::collections::BTreeMap;

use super::Fact;
use super::words::Text;
use crate::lines::Piece;
use crate::map::printable;

/// Most ranks read of one list.
const RANKS: usize = 4096;

/// Most lines behind those of [`Gathering`] in a log in which the group did not form.
pub(super) const BEHIND: u64 = 200;

/// The processes that Lightning starts, until their group forms: `Initializing distributed: GLOBAL_RANK: 1, MEMBER: 2/4`, and
/// `All distributed processes registered. Starting with 4 processes`.
#[derive(Clone, Debug, Default)]
pub(super) struct Gathering {
    /// How many began with each rank.
    began: BTreeMap<u32, u32>,
    world: u32,
    /// The last of their lines.
    pub line: u64,
}

impl Gathering {
    pub fn take(&mut self, line: &[u8], number: u64) {
        let text = Text(line);
        if let Some(rest) = text.after("GLOBAL_RANK: ")
            && let (Some(rank), Some(member)) = (rest.small(), rest.after("MEMBER: "))
            && self.began.len() < RANKS
        {
            *self.began.entry(rank).or_default() += 1;
            self.world = member.after("/").and_then(Text::small).unwrap_or(0);
            self.line = number;
        } else if text.has("processes registered. Starting ") {
            self.began.clear();
        }
    }

    /// Says which ranks did not begin, where rank 0, which says that the group formed, did not say it.
    pub fn missing(&self) -> Option<String> {
        let began: Vec<u32> = self.began.keys().copied().collect();
        let missing: Vec<u32> = (0..self.world.min(4096)).filter(|rank| !began.contains(rank)).collect();
        let told = began.len() > 1 && began.first() == Some(&0) && !missing.is_empty();
        told.then(|| {
            let (began, world) = (listed(&began), self.world);
            format!("of {world} processes only those of ranks {began} began here, and their group did not form: ranks {} are missing", listed(&missing))
        })
    }

    /// Says that several processes began with one rank, and no group formed. The log of one rank has its line once for each
    /// group that it joins.
    pub fn twice(&self) -> Option<String> {
        let (rank, count) = self.began.iter().find(|(_, count)| **count > 1)?;
        let text =
            format!("{count} processes began as rank {rank} of {}, and their group did not form", self.world);
        (self.began.len() > 1).then_some(text)
    }
}

/// A list of absent ranks whose lines follow its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    /// JAX: `/job:jax_worker/replica:0/task:3`.
    Tasks,
    /// Horovod 0.20 and later: `3: [allreduce.conv1.weight, allreduce.bn1.weight ...]`.
    Stalls,
}

impl List {
    /// Returns the list that a line is the header of.
    pub(super) fn of_header(line: &[u8]) -> Option<Self> {
        let line = line.trim_ascii_end();
        if line.ends_with(b"Timed out task names:") {
            Some(Self::Tasks)
        } else if line.ends_with(b"Missing ranks:") {
            Some(Self::Stalls)
        } else {
            None
        }
    }

    /// Reads a line of the list; none where the list has ended.
    pub(super) fn fact(self, piece: &Piece<'_>) -> Option<Fact> {
        let (rank, from) = match self {
            Self::Tasks => {
                let rest = Text(piece.text).strip("/job:")?.after("/task:")?;
                (rest.small()?, "the barrier of JAX's coordination service".to_owned())
            }
            // Not the text behind the prefix: the rank looks like the label that `srun -l` writes before a line.
            Self::Stalls => {
                let (whole, parted) = (Text(piece.bytes), ": [");
                let before = whole.before(parted)?;
                let digits = before.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
                let rank = Text(before.get(before.len() - digits..)?).small()?;
                (rank, operation(whole.after(parted)?))
            }
        };
        Some(Fact::Absent { ranks: vec![rank], from, apart: false })
    }
}

/// Reads Horovod's stalled operations before 0.20: `HorovodBroadcast_x_0 [missing ranks: 0, 3]`, and before 0.15
/// `allreduce.conv1.weight [ready ranks: 5, 1]`, which does not name the absent ones.
pub(super) fn stalled(text: Text<'_>) -> Option<Fact> {
    let (before, ranks) = match text.before(" [missing ranks: ") {
        Some(before) => (before, text.after(" [missing ranks: ").map(list).unwrap_or_default()),
        None => (text.before(" [ready ranks: ")?, Vec::new()),
    };
    let at = memchr::memrchr2(b' ', b':', before).map_or(0, |at| at + 1);
    let from = operation(Text(before.get(at..)?));
    let apart = ranks.is_empty() && waits_apart(text);
    Some(Fact::Absent { ranks, from, apart })
}

/// Returns whether two operations of one line have no rank in common that is ready for both: ranks then submit different operations.
fn waits_apart(text: Text<'_>) -> bool {
    let mut rest = text;
    let lists = std::iter::from_fn(|| {
        rest = rest.after(" [ready ranks: ")?;
        Some(list(rest))
    });
    let lists: Vec<Vec<u32>> = lists.take(64).collect();
    let Some((first, others)) = lists.split_first() else { return false };
    others.iter().any(|other| !other.is_empty() && !other.iter().any(|rank| first.contains(rank)))
}

/// Writes ranks as ranges: `0-3, 7`.
fn listed(ranks: &[u32]) -> String {
    let runs = ranks.chunk_by(|one, next| one.checked_add(1) == Some(*next));
    let run = |run: &[u32]| match run {
        [one] => one.to_string(),
        run => format!("{}-{}", run.first().copied().unwrap_or(0), run.last().copied().unwrap_or(0)),
    };
    runs.take(16).map(run).collect::<Vec<_>>().join(", ")
}

fn operation(text: Text<'_>) -> String {
    let name = text.leading(120, |byte| !matches!(byte, b',' | b']' | b' '));
    format!("Horovod's operation {}", printable(name, 120))
}

/// Reads the message of an exception: `Rank 3 failed to pass monitoredBarrier` and `Ranks 2, 3 failed to pass monitoredBarrier`.
pub(super) fn of_message(message: &str) -> Option<Fact> {
    let (before, _) = message.split_once(" failed to pass monitoredBarrier")?;
    let (_, ranks) = before.rsplit_once("Rank")?;
    let ranks = list(Text(ranks.trim_start_matches('s').as_bytes()));
    (!ranks.is_empty()).then(|| Fact::Absent { ranks, from: "monitoredBarrier".to_owned(), apart: false })
}

/// Reads `2, 3`.
fn list(text: Text<'_>) -> Vec<u32> {
    let numbers = text.0.split(|byte| *byte == b',').take(RANKS);
    let number = |word: &[u8]| Text(word.trim_ascii_start()).small();
    numbers.map_while(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_others_wait_for_are_read() {
        let told = of_message("[Rank 0]: Ranks 2, 3 failed to pass monitoredBarrier in 5000 ms");
        assert_eq!(
            told,
            Some(Fact::Absent { ranks: vec![2, 3], from: "monitoredBarrier".to_owned(), apart: false })
        );
        assert_eq!(of_message("Rank 0 reached monitoredBarrier"), None);
        let stall = |line: &str| stalled(Text(line.as_bytes()));
        let of = |ranks: &[u32], operation: &str| {
            let from = format!("Horovod's operation {operation}");
            Some(Fact::Absent { ranks: ranks.to_vec(), from, apart: false })
        };
        let line = "Stalled ops:HorovodBroadcast_dense_1_bias_0 [missing ranks: 1, 3]";
        assert_eq!(stall(line), of(&[1, 3], "HorovodBroadcast_dense_1_bias_0"));
        assert_eq!(stall("Stalled ops: x.weight [ready ranks: 5, 1], y [ready"), of(&[], "x.weight"));
        for (line, wanted) in [
            ("Stalled ops: a [ready ranks: 3], b [ready ranks: 0, 1, 2]", true),
            ("Stalled ops: a [ready ranks: 3], b [ready ranks: 0, 3]", false),
        ] {
            assert!(matches!(stall(line), Some(Fact::Absent { apart, .. }) if apart == wanted), "{line}");
        }
        assert_eq!(stall("no list"), None);
        assert_eq!(List::of_header(b"Missing ranks:\n"), Some(List::Stalls));
        for launcher in ["", "0: ", "[rank0]: ", "x: ", "[1,0]<stderr>:"] {
            let line = format!("{launcher}2: [allreduce.a, allreduce.b ...]");
            let read = List::Stalls.fact(&Piece::of(line.as_bytes()));
            assert_eq!(read, of(&[2], "allreduce.a"), "{launcher}");
        }
        assert_eq!(List::Stalls.fact(&Piece::of(b"Step 7")), None);
        assert!(List::Tasks.fact(&Piece::of(b"/job:jax_worker/replica:0/task:4")).is_some());
    }
}
