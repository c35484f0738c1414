//! Who wrote a line, as far as the line itself says: launchers put the rank before each line of a pipe many ranks share.
//!
//! | launcher | prefix | says |
//! |---|---|---|
//! | torchrun `--tee`, `--redirects` | `[default3]:` | role and local rank |
//! | PyTorch's own messages | `[rank3]:` | global rank |
//! | `mpirun --tag-output` | `[1,3]<stdout>:` | job and global rank |
//! | `srun --label` | `3: ` | task |
//! | NCCL | `host:pid:tid [gpu] NCCL ` | process |

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
    pub process: Option<Process<'a>>,
    /// Bytes of the launchers' prefixes, which a reader need not see again; PyTorch's and NCCL's own stay.
    pub len: usize,
}

/// A process as NCCL names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Process<'a> {
    /// Host name.
    pub host: &'a [u8],
    /// Process id on that host (or in that container).
    pub pid: u32,
}

/// Most launchers around one process: srun, then mpirun or torchrun.
const NESTED: usize = 3;

/// Reads the prefixes of a line. Cheap where there are none: one look at the first byte.
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
    found.process = process(rest);
    found
}

/// `[default3]:` and `[1,3]<stdout>:`; how many bytes it takes.
fn bracket<'a>(rest: &'a [u8], found: &mut Prefix<'a>) -> usize {
    let Some(end) = memchr::memchr(b']', &rest[..rest.len().min(80)]) else { return 0 };
    let (inside, behind) = (&rest[1..end], &rest[end + 1..]);
    for tag in [&b"<stdout>:"[..], b"<stderr>:", b"<stddiag>:"] {
        if behind.starts_with(tag)
            && let Some(comma) = memchr::memchr(b',', inside)
            && number(&inside[..comma]).is_some()
            && let Some(rank) = number(&inside[comma + 1..])
        {
            found.rank = Some(rank);
            let blank = usize::from(behind.get(tag.len()) == Some(&b' '));
            return end + 1 + tag.len() + blank;
        }
    }
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

/// `3: `; how many bytes it takes.
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

/// `[rank3]:`, `[Rank 3]`, which PyTorch puts before its own messages.
fn torch_rank(rest: &[u8]) -> Option<u32> {
    let inside = rest.strip_prefix(b"[rank").or_else(|| rest.strip_prefix(b"[Rank "))?;
    let digits = inside.iter().take(7).take_while(|b| b.is_ascii_digit()).count();
    (inside.get(digits) == Some(&b']')).then(|| number(&inside[..digits])).flatten()
}

/// `[time] host:pid:tid [gpu] … NCCL `.
fn process(rest: &[u8]) -> Option<Process<'_>> {
    let near = &rest[..rest.len().min(400)];
    memchr::memmem::find(near, b" NCCL ")?;
    let start = if near.first() == Some(&b'[') { memchr::memmem::find(near, b"] ")? + 2 } else { 0 };
    let word = &near[start..];
    let word = &word[..memchr::memchr(b' ', word)?];
    let mut parts = word.rsplitn(3, |b| *b == b':');
    number(parts.next()?)?;
    let pid = number(parts.next()?)?;
    let host = parts.next().filter(|host| !host.is_empty())?;
    Some(Process { host, pid })
}

fn number(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() || digits.len() > 10 {
        return None;
    }
    std::str::from_utf8(digits).ok().filter(|d| d.bytes().all(|b| b.is_ascii_digit()))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_prefixes_are_taken_off() {
        let line = prefix(b"[default3]:vm:5272:5299 [1] NCCL INFO Using network Socket");
        assert_eq!((line.local, line.len), (Some((&b"default"[..], 3)), 11));
        assert_eq!(line.process, Some(Process { host: b"vm", pid: 5272 }));
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
}
