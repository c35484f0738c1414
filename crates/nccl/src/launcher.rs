//! Who wrote a line, as far as the line shows it: launchers prefix each line with the rank where many ranks
//! share a pipe.
//!
//! | launcher | prefix | content |
//! |---|---|---|
//! | torchrun `--tee`, `--redirects` | `[default3]:` | role and local rank |
//! | PyTorch's own messages | `[rank3]:` | global rank |
//! | `mpirun --tag-output` | `[1,3]<stdout>:` | job and global rank |
//! | `srun --label` | `3: ` | task |
//! | Ray | `(train pid=954, ip=10.0.0.2) ` | actor, its process, the address of its node (left out on the head) |
//! | NCCL | `host:pid:tid [gpu] NCCL ` | process ([`writer`](crate::writer) reads it) |

use crate::Writer;

/// The prefixes of one line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Prefix<'a> {
    /// Global rank, from `[rank3]:` or `[1,3]<stdout>:`.
    pub rank: Option<u32>,
    /// Role and rank on its node, from `[default3]:`.
    pub local: Option<(&'a [u8], u32)>,
    /// Task, from `srun --label`.
    pub task: Option<u32>,
    /// The process, from NCCL's own prefix.
    pub process: Option<Writer<'a>>,
    /// Length of the launchers' prefixes, which need not be shown again; PyTorch's and NCCL's own stay.
    pub len: usize,
}

/// Most launchers around one process: srun, then mpirun or torchrun.
const NESTED: usize = 3;

/// Reads the prefixes of a line. Cheap where there are none: it reads one byte.
pub fn prefix(line: &[u8]) -> Prefix<'_> {
    let mut found = Prefix::default();
    for _ in 0..NESTED {
        let rest = &line[found.len..];
        let taken = match rest.first() {
            Some(b'[') => bracket(rest, &mut found),
            Some(b'0'..=b'9') => label(rest, &mut found),
            Some(b' ') if found.task.is_some() => label(rest.trim_ascii_start(), &mut found),
            _ => 0,
        };
        if taken == 0 {
            break;
        }
        found.len += taken;
    }
    let rest = &line[found.len..];
    if let Some(rank) = torch_rank(rest) {
        found.rank = Some(rank);
    }
    found.process = crate::writer(rest);
    found
}

/// Returns the global rank that a launcher wrote before a line, also after a time or a pod's name.
/// `[default3]:` is a local rank, `3: ` a task of Slurm, which may hold several ranks: neither proves a
/// global one.
#[inline]
pub(crate) fn told_rank(line: &[u8]) -> Option<u32> {
    if line.starts_with(b"[rank") {
        return torch_rank(line);
    }
    if line.first() == Some(&b'(')
        && let Some(rank) = vllm_rank(line)
    {
        return Some(rank);
    }
    let near = &line[..line.len().min(160)];
    memchr::memchr_iter(b'[', near).find_map(|at| {
        let rest = &near[at..];
        if rest.starts_with(b"[rank") {
            return torch_rank(rest);
        }
        open_mpi(rest).map(|(rank, _)| rank)
    })
}

/// Returns the global rank that PyTorch wrote before a line, and the process of `mpirun` (a launcher of several ranks, where it started one
/// on each node), also after a time or a pod's name. `prefix` is the line's.
pub(crate) fn torch_rank_and_tag(line: &[u8], prefix: &Prefix<'_>) -> (Option<u32>, Option<u32>) {
    let near = &line[..line.len().min(160)];
    let mut tag = None;
    for at in memchr::memchr_iter(b'[', near) {
        let rest = &near[at..];
        if rest.starts_with(b"[rank")
            && let Some(rank) = torch_rank(rest)
        {
            return (Some(rank), tag);
        }
        tag = tag.or_else(|| open_mpi(rest).map(|(tag, _)| tag));
    }
    (torch_rank(&line[prefix.len..]).or_else(|| vllm_rank(line)), tag)
}

/// Reads `(VllmWorker rank=3 pid=406) `.
fn vllm_rank(line: &[u8]) -> Option<u32> {
    let inside = line.get(..line.len().min(80))?.strip_prefix(b"(VllmWorker rank=")?;
    number(&inside[..inside.iter().take_while(|byte| byte.is_ascii_digit()).count()])
}

/// Returns the address of the node that Ray wrote before a line: `(RayTrainWorker pid=954, ip=10.0.0.2) `.
pub(crate) fn ray_node(line: &[u8]) -> Option<&str> {
    let near = &line[..line.len().min(200)];
    let at = memchr::memmem::find(near, b" pid=")?;
    let rest = &near[at..memchr::memchr(b')', &near[at..])? + at];
    let address = &rest[memchr::memmem::find(rest, b", ip=")? + 5..];
    std::str::from_utf8(address).ok().filter(|address| !address.is_empty())
}

/// Reads `[default3]:` and `[1,3]<stdout>:`; returns the length.
fn bracket<'a>(rest: &'a [u8], found: &mut Prefix<'a>) -> usize {
    if let Some((rank, taken)) = open_mpi(rest) {
        found.rank = Some(rank);
        return taken;
    }
    let Some(end) = memchr::memchr(b']', &rest[..rest.len().min(80)]) else { return 0 };
    let (inside, behind) = (&rest[1..end], &rest[end + 1..]);
    let digits = inside.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let (role, local) = inside.split_at(inside.len() - digits);
    let word = !role.is_empty() && role.iter().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(b));
    match number(local) {
        Some(local) if word && role != b"rank" && behind.first() == Some(&b':') => {
            found.local = Some((role, local));
            end + 2
        }
        _ => 0,
    }
}

/// Reads `[1,3]<stdout>:`; returns the rank and the length.
fn open_mpi(rest: &[u8]) -> Option<(u32, usize)> {
    let end = memchr::memchr(b']', &rest[..rest.len().min(24)])?;
    let (inside, behind) = (&rest[1..end], &rest[end + 1..]);
    let tag =
        [&b"<stdout>:"[..], b"<stderr>:", b"<stddiag>:"].into_iter().find(|tag| behind.starts_with(tag))?;
    let comma = memchr::memchr(b',', inside)?;
    number(&inside[..comma])?;
    let rank = number(&inside[comma + 1..])?;
    let blank = usize::from(behind.get(tag.len()) == Some(&b' '));
    Some((rank, end + 1 + tag.len() + blank))
}

/// Returns the pieces of a line of `mpirun --tag-output`, which passes on the content of a rank's pipe:
/// where that does not end with a newline, the tag of the next rank is inside the line. Any other line is
/// one piece.
pub fn pieces(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let tag = if line.first() == Some(&b'[') { open_mpi(line) } else { None };
    let mut rest = Some(line);
    std::iter::from_fn(move || {
        let piece = rest.take()?;
        let Some((_, taken)) = tag else { return Some(piece) };
        let next =
            memchr::memchr_iter(b'[', piece).find(|at| *at > taken && open_mpi(&piece[*at..]).is_some());
        let Some(at) = next else { return Some(piece) };
        rest = Some(&piece[at..]);
        Some(&piece[..at])
    })
}

/// Reads `3: `; returns the length.
fn label(rest: &[u8], found: &mut Prefix<'_>) -> usize {
    let digits = rest.iter().take(7).take_while(|b| b.is_ascii_digit()).count();
    match number(&rest[..digits]) {
        Some(task) if rest[digits..].starts_with(b": ") && found.task.is_none() => {
            found.task = Some(task);
            digits + 2
        }
        _ => 0,
    }
}

/// Reads `[rank3]:` or `[Rank 3]`, PyTorch's prefix of its own messages.
#[inline]
fn torch_rank(rest: &[u8]) -> Option<u32> {
    let inside = rest.strip_prefix(b"[rank").or_else(|| rest.strip_prefix(b"[Rank "))?;
    // Read in one pass: this is done for every line of a training log.
    let mut rank = 0;
    for (at, byte) in inside.iter().take(8).enumerate() {
        match byte {
            b'0'..=b'9' if at < 7 => rank = rank * 10 + u32::from(byte - b'0'),
            b']' if at > 0 => return Some(rank),
            _ => return None,
        }
    }
    None
}

fn number(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() || digits.len() > 10 {
        return None;
    }
    digits.iter().try_fold(0_u32, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| u32::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_prefixes_are_taken_off() {
        let line = prefix(b"[default3]:vm:5272:5299 [1] NCCL INFO Using network Socket");
        assert_eq!((line.local, line.len), (Some((&b"default"[..], 3)), 11));
        assert_eq!(line.process.map(|process| (process.host, process.pid)), Some(("vm", 5272)));
        assert_eq!(prefix(b"[1,13]<stderr>: text").rank, Some(13));
        let nested = prefix(b"12: [trainer0]:hello");
        assert_eq!((nested.task, nested.local, nested.len), (Some(12), Some((&b"trainer"[..], 0)), 15));
    }

    #[test]
    fn pytorch_and_nccl_keep_theirs() {
        let line = prefix(b"[rank56]: Traceback (most recent call last):");
        assert_eq!((line.rank, line.len), (Some(56), 0));
        let line = prefix(b"[2026-03-12 14:17:56] gpu-1:77:90 [0] net.cc:12 NCCL WARN x");
        assert_eq!((line.process.map(|p| p.pid), line.len), (Some(77), 0));
    }

    #[test]
    fn a_rank_is_told_behind_a_time_and_a_pod() {
        assert_eq!(told_rank(b"2026-03-01T10:00:00Z [rank3]:h:1:1 [0] NCCL INFO x"), Some(3));
        assert_eq!(told_rank(b"[pod/w-0/main] [1,13]<stdout>:h:1:1 [0] NCCL INFO x"), Some(13));
        // NCCL 2.29 begins a message with the rank of the communicator.
        assert_eq!(told_rank(b"h:1:1 [0] NCCL INFO [Rank 1] ncclCommInitRankConfig comm"), None);
        assert_eq!(told_rank(b"[default3]:h:1:1 [0] NCCL INFO x"), None);
    }

    #[test]
    fn vllm_names_the_rank_of_a_worker() {
        let line =
            b"(VllmWorker rank=3 pid=406) ERROR 07-23 19:34:51 [multiproc_executor.py:487] RuntimeError: x";
        assert_eq!(told_rank(line), Some(3));
        assert_eq!(told_rank(b"(VllmWorkerProcess pid=406) x"), None);
    }

    #[test]
    fn ray_names_the_node_of_an_actor() {
        assert_eq!(ray_node(b"(train_fn pid=954, ip=10.0.0.2) box:954:31 [0] "), Some("10.0.0.2"));
        for other in [&b"(train_fn pid=954) box:954:31 [0] "[..], b"pid=1, ip=", b"(a pid=1, ip=", b""] {
            assert_eq!(ray_node(other), None);
        }
    }

    #[test]
    fn plain_lines_have_none() {
        for line in [
            &b""[..],
            b"step 12: loss 3",
            b"[INFO] x",
            b"12:30:01 start",
            b"[1]<stdout>:x",
            b"[",
            b"[rank]",
            b"99999999999: x",
        ] {
            let found = prefix(line);
            assert_eq!((found.rank, found.local, found.task, found.len), (None, None, None, 0), "{line:?}");
        }
    }

    #[test]
    fn a_tag_in_the_middle_begins_a_piece_of_another_rank() {
        let of = |line: &'static str| pieces(line.as_bytes()).collect::<Vec<_>>();
        let torn = "[1,0]<stdout>:a | 1[1,14]<stdout>:node1 [6] NCCL[1,0]<stderr>: x";
        let wanted = ["[1,0]<stdout>:a | 1", "[1,14]<stdout>:node1 [6] NCCL", "[1,0]<stderr>: x"];
        assert_eq!(of(torn), wanted.map(str::as_bytes));
        for whole in
            ["", "[1,0]<stdout>:", "[1,0]<stdout>:[1,0]<stdout>:x", "said [1,3]<stdout>:x", "[rank3]: [1]"]
        {
            assert_eq!(of(whole), [whole.as_bytes()]);
        }
    }
}
