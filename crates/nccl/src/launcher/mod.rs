//! Who wrote a line, when and where, as far as what stands before the message shows it: launchers, shippers and loggers prefix each line.
//!
//! | writer | prefix | content |
//! |---|---|---|
//! | torchrun `--tee`, `--redirects` | `[default3]:` | role and local rank |
//! | PyTorch's own messages | `[rank3]:` | global rank |
//! | `mpirun --tag-output` | `[1,3]<stdout>:`, `[prterun-n1-77@1,3]<stdout>:` | job and process |
//! | `srun --label` | `3: ` | task |
//! | Ray | `(train pid=954, ip=10.0.0.2) ` | actor, its process, the address of its node (left out on the head) |
//! | vLLM | `(VllmWorker rank=3 pid=406) ` | global rank and process |
//! | SkyPilot | `(head, rank=0, pid=2669) ` | its node, whose number is no rank |
//! | `kubectl logs --prefix` | `[pod/w-0/main] ` | pod, whose name its host has |
//! | `docker compose logs` | `worker-1  \| ` | container |
//! | the kubelet's files | `2026-11-22T10:00:00.1Z stdout F ` | time |
//! | the kernel, through syslog | `Nov 22 03:12:16 n1 kernel: ` | time and host |
//! | CloudWatch, copied | `  \| 2026-11-22T03:12:16.385-07:00` | time |
//! | loggers | `2026-11-22 03:12:16,385 `, `[2026-11-22 03:12:16] ` | time |
//! | people who quote a log | `> ` | |
//! | nccl-tests | `n1: Test NCCL failure …`, ` .. n1 pid 10: Test failure …` | host and process; part of the message |
//! | people who shorten NCCL's lines | `worker-0 [1] Channel …` | host and device |
//! | NCCL | `host:pid:tid [gpu] NCCL ` | process ([`writer`](crate::writer) reads it) |

mod time;

#[cfg(test)]
mod tests;

use crate::text::{Cursor, contains, find, text};
pub use time::seconds;
use time::{iso, syslog, time};

/// What stands before the message of one line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Prefix<'a> {
    /// Global rank, as PyTorch or vLLM prints it.
    pub rank: Option<u32>,
    /// Process of `mpirun`: a rank, or a launcher of several, where it started one on each node.
    pub tag: Option<u32>,
    /// Role and rank on its node, from `[default3]:`.
    pub local: Option<(&'a [u8], u32)>,
    /// Task, from `srun --label`: a rank, or a launcher of several.
    pub task: Option<u32>,
    /// Process id, as Ray, vLLM or nccl-tests prints it.
    pub pid: Option<u64>,
    /// Name of the host.
    pub host: Option<&'a [u8]>,
    /// Address of the node.
    pub node: Option<&'a [u8]>,
    /// CUDA device.
    pub device: Option<i32>,
    /// The first time, as printed; its zone need not be known.
    pub time: Option<&'a [u8]>,
    /// Length of the launchers' prefixes, which need not be shown again; all others stay.
    pub len: usize,
    /// Where the message begins. NCCL's own prefix is part of it.
    pub body: usize,
}

impl<'a> Prefix<'a> {
    /// Returns the host, or the address of the node.
    pub fn place(&self) -> Option<&'a str> {
        self.host.or(self.node).map(text)
    }

    /// Returns the global rank that the prefix proves. `[default3]:` is a local rank, `3: ` a task of Slurm, which may hold several
    /// ranks, as a process of `mpirun` may that is seen to: none of them proves a global one.
    pub fn told_rank(&self) -> Option<u32> {
        self.rank.or(self.tag.filter(|_| self.local.is_none()))
    }

    /// Returns the global rank that the prefix proves, or that the text of its line names in brackets.
    pub fn rank_of_writer(&self, line: &[u8]) -> Option<u32> {
        self.told_rank().or_else(|| bracketed_rank(line.get(self.body..)?))
    }
}

/// Most prefixes before one message: kubectl, a time, srun, then mpirun or torchrun, PyTorch.
const NESTED: usize = 6;
/// Most bytes before the rank that PyTorch or `mpirun` writes behind an unknown prefix.
const REACH: usize = 160;
/// Most bytes of the tag of `mpirun`.
const TAG: usize = 80;

/// Reads what stands before the message of a line. Cheap where there is nothing.
pub fn prefix(line: &[u8]) -> Prefix<'_> {
    let mut found = Prefix::default();
    for _ in 0..NESTED {
        let rest = &line[found.body..];
        let launchers = found.body == found.len;
        let (taken, is_launcher) = match rest.first() {
            Some(b'[') => bracket(rest, &mut found),
            Some(b'0'..=b'9') if launchers && found.task.is_none() => match label(rest, &mut found) {
                0 => (time(rest, &mut found), false),
                taken => (taken, true),
            },
            Some(b'0'..=b'9') => (time(rest, &mut found), false),
            Some(b'(') => (actor(rest, &mut found), false),
            Some(b'>') if rest.starts_with(b"> ") => (2, false),
            Some(b'a'..=b'z' | b'A'..=b'Z') => (named(rest, &mut found), false),
            Some(b' ' | b'.') => (indented(rest, &mut found), false),
            _ => break,
        };
        if taken == 0 {
            break;
        }
        found.len += if is_launcher && launchers { taken } else { 0 };
        found.body += taken;
    }
    if found.rank.is_none() {
        rank_behind_others(line, &mut found);
    }
    found
}

/// Returns the host that a line names as its writer's: NCCL's own prefix before others.
pub fn host(line: &[u8]) -> Option<&str> {
    let found = prefix(line);
    let process = crate::writer(&line[found.body..]).map(|process| process.host);
    process.filter(|host| !host.is_empty()).or(found.place())
}

/// Returns the global rank that a line names as its writer: in a launcher's prefix, or as `[rank 3]` or `[Rank 3]` at the
/// beginning of its text. Quick for the usual lines of a training log.
#[inline]
pub fn rank_of_line(line: &[u8]) -> Option<u32> {
    if let rank @ Some(_) = torch_rank(line) {
        return rank;
    }
    let near = &line[..line.len().min(REACH)];
    let names = |at: usize| is_rank_word(&near[at..]) || open_mpi(&near[at..]).is_some();
    let any = near.first() == Some(&b'(') || memchr::memchr_iter(b'[', near).any(names);
    if any { prefix(line).rank_of_writer(line) } else { None }
}

/// Returns whether a text begins with `[rank`, in any case.
fn is_rank_word(text: &[u8]) -> bool {
    text.get(1..5).is_some_and(|word| word.eq_ignore_ascii_case(b"rank"))
}

/// Returns the rank that the text behind the prefixes names in brackets, behind times, levels and other brackets. NCCL numbers
/// the ranks of a communicator, which are none of the job's.
fn bracketed_rank(text: &[u8]) -> Option<u32> {
    let near = &text[..text.len().min(REACH)];
    let rank = memchr::memchr_iter(b'[', near).find_map(|at| {
        let inside = near[at..].get(6..).filter(|_| is_rank_word(&near[at..]) && near[at + 5] == b' ')?;
        let count = inside.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let rank = number(&inside[..count])?;
        (inside.get(count) == Some(&b']') && is_head(&near[..at])).then_some(rank)
    });
    rank.filter(|_| crate::writer(text).is_none())
}

/// Returns whether a text holds only what loggers write before a message: brackets, times, levels, a place followed by a colon.
fn is_head(text: &[u8]) -> bool {
    let text = text.trim_ascii_end();
    let word = text.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
    word.last().is_none_or(|last| b"]:|-".contains(last)) || !word.iter().any(u8::is_ascii_lowercase)
}

/// Finds the rank of PyTorch, or the process of `mpirun`, behind an unknown prefix.
fn rank_behind_others(line: &[u8], found: &mut Prefix<'_>) {
    const NEAR: usize = 64;
    let near = &line[found.body..line.len().min(REACH).max(found.body)];
    // What NCCL itself prints is no launcher's.
    let near = &near[..find(near, b"NCCL ").unwrap_or(near.len())];
    for at in memchr::memchr_iter(b'[', near) {
        let rest = &near[at..];
        if !rest.starts_with(b"[rank") {
            found.tag = found.tag.or_else(|| open_mpi(rest).map(|(tag, _)| tag));
        } else if let rank @ Some(_) = torch_rank(rest) {
            found.rank = rank;
            found.body += if at < NEAR { at + torch_len(rest) } else { 0 };
            return;
        }
    }
}

/// Reads what stands in brackets; returns its length, and whether a launcher wrote it.
fn bracket<'a>(rest: &'a [u8], found: &mut Prefix<'a>) -> (usize, bool) {
    if let Some(rank) = torch_rank(rest) {
        // NCCL 2.29 begins a message with the rank of the communicator.
        let told = rest.starts_with(b"[rank") || !rest[torch_len(rest)..].starts_with(b"nccl");
        found.rank = found.rank.or(Some(rank).filter(|_| told));
        return (if rest.starts_with(b"[rank") { torch_len(rest) } else { 0 }, false);
    }
    if let Some((tag, taken)) = open_mpi(rest) {
        found.tag = Some(tag);
        return (taken, true);
    }
    let near = &rest[..rest.len().min(REACH)];
    let Some(end) = memchr::memchr(b']', near) else { return (0, false) };
    let (inside, behind) = (&rest[1..end], &rest[end + 1..]);
    if let Some(pod) = inside.strip_prefix(b"pod/").filter(|_| behind.starts_with(b" ")) {
        let name = pod.split(|byte| *byte == b'/').next().unwrap_or_default();
        found.host = Some(name).filter(|name| !name.is_empty());
        return (end + 2, false);
    }
    if iso(inside) == inside.len() && !inside.is_empty() {
        found.time = found.time.or(Some(inside));
        return (end + 1 + usize::from(behind.starts_with(b" ")), false);
    }
    let digits = inside.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let (role, local) = inside.split_at(inside.len() - digits);
    let word = !role.is_empty() && role.iter().all(|byte| is_of_name(*byte));
    match number(local) {
        Some(local) if word && role != b"rank" && behind.first() == Some(&b':') => {
            found.local = Some((role, local));
            (end + 2, true)
        }
        _ => (0, false),
    }
}

/// Reads `[1,3]<stdout>:`; returns the process and the length.
fn open_mpi(rest: &[u8]) -> Option<(u32, usize)> {
    let end = memchr::memchr(b']', &rest[..rest.len().min(TAG)])?;
    let (inside, behind) = (rest.get(1..end)?, &rest[end + 1..]);
    if behind.first() != Some(&b'<') {
        return None;
    }
    let tag =
        [&b"<stdout>:"[..], b"<stderr>:", b"<stddiag>:"].into_iter().find(|tag| behind.starts_with(tag))?;
    let comma = memchr::memchr(b',', inside)?;
    // Open MPI 5: `[prterun-n1-77@1,3]`.
    let job = memchr::memrchr(b'@', &inside[..comma]).map_or(0, |at| at + 1);
    number(&inside[job..comma])?;
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
        let next = memchr::memchr_iter(b'<', &piece[taken..]).find_map(|at| {
            let low = taken.max((taken + at).saturating_sub(TAG));
            let before = piece[low..taken + at].strip_suffix(b"]")?;
            let begin = low + memchr::memrchr(b'[', before)?;
            (begin > taken && open_mpi(&piece[begin..]).is_some()).then_some(begin)
        });
        let Some(at) = next else { return Some(piece) };
        rest = Some(&piece[at..]);
        Some(&piece[..at])
    })
}

/// Reads `3: `; returns the length.
fn label(rest: &[u8], found: &mut Prefix<'_>) -> usize {
    let mut at = Cursor::new(rest);
    let task = at.number().filter(|task| *task < 10_000_000 && at.eat(b": "));
    found.task = task.or(found.task);
    task.map_or(0, |_| rest.len() - at.rest().len())
}

/// Reads `(train pid=954, ip=10.0.0.2) ` of Ray, `(VllmWorker rank=3 pid=406) `, and `(head, rank=0, pid=2669) ` of SkyPilot, whose ranks
/// and processes are those of nodes; returns the length.
fn actor<'a>(rest: &'a [u8], found: &mut Prefix<'a>) -> usize {
    let Some(end) = memchr::memchr(b')', &rest[..rest.len().min(200)]) else { return 0 };
    let fields = rest[1..end].split(|byte| matches!(byte, b' ' | b','));
    let (mut rank, mut pid, mut node) = (None, None, None);
    for (name, value) in fields.filter_map(|field| Some(field.split_at(memchr::memchr(b'=', field)? + 1))) {
        match name {
            b"pid=" => pid = number(value).map(u64::from),
            b"ip=" => node = Some(value).filter(|address| !address.is_empty()),
            b"rank=" => rank = number(value),
            _ => return 0,
        }
    }
    if rank.is_none() && pid.is_none() && node.is_none() {
        return 0;
    }
    if rank.is_none() || rest.starts_with(b"(VllmWorker") {
        (found.rank, found.pid, found.node) = (found.rank.or(rank), pid, node);
    } else {
        found.node = found.node.or(node);
    }
    end + 1 + usize::from(rest.get(end + 1) == Some(&b' '))
}

/// Reads a prefix that begins with a name; returns the length.
fn named<'a>(rest: &'a [u8], found: &mut Prefix<'a>) -> usize {
    let (name, behind) = name(rest);
    match behind {
        // Only what nccl-tests prints: any word may stand before a colon.
        [b':', b' ', b'T', ..] => {
            if behind.starts_with(b": Test ") && contains(&behind[..behind.len().min(24)], " failure ") {
                found.host = Some(name);
            }
            0
        }
        // Syslog, behind the time.
        [b' ', b'k', ..] if found.time.is_some() && behind.starts_with(b" kernel: ") => {
            found.host = Some(name);
            name.len() + " kernel: ".len()
        }
        [b' ', b'[', ..] => shortened(name, behind, found),
        [b' ', ..] if name.len() == 3 && found.body == 0 => syslog(rest, found),
        // `docker compose` numbers its containers, and puts two blanks behind the longest name.
        [b' ', b' ', ..] if found.body == 0 && name.last().is_some_and(u8::is_ascii_digit) => {
            let blanks = behind.iter().take(64).take_while(|byte| **byte == b' ').count();
            let numbered = name.iter().rev().find(|byte| !byte.is_ascii_digit());
            if !matches!(numbered, Some(b'-' | b'_')) || !behind[blanks..].starts_with(b"| ") {
                return 0;
            }
            found.host = Some(name);
            name.len() + blanks + 2
        }
        _ => 0,
    }
}

/// Reads `worker-0 [1] Channel 00/0 : …`, which people shorten; returns the length before the message.
fn shortened<'a>(name: &'a [u8], behind: &'a [u8], found: &mut Prefix<'a>) -> usize {
    let mut at = Cursor::new(behind);
    let device = if at.eat(b" [") { at.number().and_then(|device| i32::try_from(device).ok()) } else { None };
    if device.is_none() || !at.eat(b"] ") || !at.rest().starts_with(b"Channel ") {
        return 0;
    }
    (found.host, found.device) = (Some(name), device);
    name.len() + behind.len() - at.rest().len()
}

/// Reads `  | ` before a time, as CloudWatch shows a line, and ` .. n1 pid 10: Test failure common.cu:891`, which stays: it is the message.
/// Returns the length.
fn indented<'a>(rest: &'a [u8], found: &mut Prefix<'a>) -> usize {
    let text = rest.trim_ascii_start();
    if let Some(cell) = text.strip_prefix(b"| ").filter(|cell| iso(cell) > 0) {
        return rest.len() - cell.len();
    }
    let mut at = Cursor::new(text);
    if at.eat(b".. ") {
        let host = at.take_while(is_of_name);
        let pid = if at.eat(b" pid ") { at.long() } else { None };
        if pid.is_some() && at.eat(b": Test failure ") {
            (found.host, found.pid) = (Some(host), pid);
        }
    }
    0
}

/// Returns the name of a host at the beginning of a text, and the rest.
fn name(rest: &[u8]) -> (&[u8], &[u8]) {
    let near = &rest[..rest.len().min(256)];
    rest.split_at(near.iter().position(|byte| !is_of_name(*byte)).unwrap_or(near.len()))
}

fn is_of_name(byte: u8) -> bool {
    const NAME: [bool; 256] = {
        let mut table = [false; 256];
        let mut byte = 0_u8;
        while byte < 128 {
            table[byte as usize] = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
            byte += 1;
        }
        table
    };
    NAME[usize::from(byte)]
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

/// Returns the length of `[rank3]: ` at the beginning of a text.
fn torch_len(rest: &[u8]) -> usize {
    let end = memchr::memchr(b']', rest).map_or(0, |at| at + 1);
    let behind = &rest[end..];
    let colon = usize::from(behind.first() == Some(&b':'));
    end + colon + usize::from(behind.get(colon) == Some(&b' '))
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
