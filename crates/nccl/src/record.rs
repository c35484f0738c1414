//! Reads NCCL's messages with their prefix, `host:pid:tid [dev] NCCL INFO `, behind what launchers wrote.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use super::text::{Cursor, text};

/// NCCL's log level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// `NCCL INFO`.
    Info,
    /// `NCCL ATTN` (since 2.32): fallbacks, which earlier versions print as INFO or WARN.
    Attention,
    /// `NCCL WARN`, and since 2.32 `NCCL ERROR`.
    Warn,
    /// `NCCL DIAG` (since 2.31): NCCL's own diagnostics.
    Diagnostics,
    /// `NCCL TRACE`, `NCCL CALL` and the like.
    Other,
}

impl Level {
    /// Returns whether `file:line` is between the prefix and the level.
    fn is_located(self) -> bool {
        matches!(self, Self::Attention | Self::Warn)
    }
}

/// Who printed a record: the process, thread and device of NCCL's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writer<'a> {
    /// Host name; empty where the prefix has none.
    pub host: &'a str,
    /// Process.
    pub pid: u64,
    /// Thread.
    pub tid: u64,
    /// CUDA device of the thread (proxies may print 0), where the prefix has it.
    pub device: Option<i32>,
}

/// One NCCL record. A physical line may hold several, or half of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Who printed it; none where the prefix was stripped.
    pub writer: Option<Writer<'a>>,
    /// Device in the brackets, where nothing else is left of the prefix.
    pub device: Option<i32>,
    pub level: Level,
    /// `file:line` or C++ function before WARN.
    pub location: &'a [u8],
    /// The message, without trailing blanks and carriage return.
    pub message: &'a [u8],
}

const TOKEN: &[u8] = b"NCCL ";

static TOKEN_FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(TOKEN));

/// Passes each record of a text to `sink`.
pub fn split<'a>(line: &'a [u8], mut sink: impl FnMut(Record<'a>)) {
    let mut pending: Option<(Record<'a>, usize)> = None;
    let mut region = 0;
    let mut from = 0;
    let finder = &*TOKEN_FINDER;
    while let Some(found) = finder.find(&line[from..]) {
        let at = from + found;
        from = at + TOKEN.len();
        let Some((level, end)) = level(line, from) else { continue };
        let (begins, record) = head(&line[region..at], level);
        let begins = region + begins;
        if let Some((previous, message)) = pending.take() {
            let message = trim(&line[message..begins.max(message)]);
            sink(Record { message, ..previous });
        }
        pending = Some((record, end));
        region = end;
        from = end;
    }
    match pending {
        Some((last, message)) => sink(Record { message: trim(&line[message..]), ..last }),
        None => before_2_3(line).into_iter().for_each(sink),
    }
}

/// Reads a record of NCCL before 2.3, whose prefix has no `NCCL`: `h:7:9 [0] include/socket.h:360 WARN Call to connect failed`.
fn before_2_3(line: &[u8]) -> Option<Record<'_>> {
    const REACH: usize = 400;
    let near = &line[..line.len().min(REACH)];
    memchr::memmem::find_iter(near, b"] ").find_map(|close| {
        let open = memchr::memrchr(b'[', &near[..close])?;
        let device = Some(signed(&near[open + 1..close])?);
        let (writer, _) = writer_before(near[..open].trim_ascii_end(), device)?;
        let rest = &line[close + 2..];
        let (location, rest) = match memchr::memchr(b' ', rest) {
            Some(end) if rest[..end].contains(&b':') => (&rest[..end], &rest[end + 1..]),
            _ => (&b""[..], rest),
        };
        let of = |word: &[u8], level| rest.strip_prefix(word).map(|message| (level, message));
        let (level, message) = of(b"WARN ", Level::Warn).or_else(|| of(b"INFO ", Level::Info))?;
        Some(Record { writer: Some(writer), device, level, location, message: trim(message) })
    })
}

/// Reads a line that is exactly one INFO record, as NCCL prints it into its own file: most lines of most
/// logs. None is no answer: [`split`] must then search the line.
pub fn plain(line: &[u8]) -> Option<Record<'_>> {
    let mut at = Cursor::new(line);
    let host = at.take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'));
    if host.is_empty() || host.len() > 255 || !at.eat(b":") {
        return None;
    }
    let pid = at.long()?;
    let tid = if at.eat(b":") { at.long()? } else { return None };
    let device = if at.eat(b" [") { i32::try_from(at.number()?).ok()? } else { return None };
    if !at.eat(b"] NCCL INFO ") {
        return None;
    }
    let rest = at.rest();
    // A redrawn line, colours, or a second record.
    let strange = |at: usize| rest[at] != b'N' || rest[at..].starts_with(TOKEN);
    if memchr::memchr3_iter(b'\r', 0x1b, b'N', rest).any(strange) {
        return None;
    }
    let writer = Writer { host: text(host), pid, tid, device: Some(device) };
    Some(Record {
        writer: Some(writer),
        device: Some(device),
        level: Level::Info,
        location: b"",
        message: trim(rest),
    })
}

/// Returns who printed a text, by NCCL's prefix near its beginning.
pub fn writer(line: &[u8]) -> Option<Writer<'_>> {
    const REACH: usize = 400;
    let near = &line[..line.len().min(REACH)];
    let Some(at) = TOKEN_FINDER.find(near) else { return before_2_3(line)?.writer };
    let (level, _) = level(near, at + TOKEN.len())?;
    head(&near[..at], level).1.writer
}

/// Returns the level after `NCCL `, and the start of the message.
fn level(line: &[u8], from: usize) -> Option<(Level, usize)> {
    let rest = &line[from..];
    for (word, level) in [
        (&b"INFO"[..], Level::Info),
        (b"WARN", Level::Warn),
        (b"ERROR", Level::Warn),
        (b"ATTN", Level::Attention),
        (b"DIAG", Level::Diagnostics),
        (b"TRACE", Level::Other),
        (b"CALL", Level::Other),
        (b"ABORT", Level::Warn),
    ] {
        if let Some(behind) = rest.strip_prefix(word)
            && behind.first().is_none_or(|byte| *byte == b' ' || *byte == b'\r')
        {
            return Some((level, from + word.len() + usize::from(!behind.is_empty())));
        }
    }
    None
}

/// Reads the prefix that ends where `before` ends: returns its start, and a record without its message.
fn head(before: &[u8], level: Level) -> (usize, Record<'_>) {
    const REACH: usize = 1024;
    let record = |writer, device, location| Record { writer, device, level, location, message: b"" };
    let low = before.len().saturating_sub(REACH);
    let near = &before[low..];
    // DIAG lines have neither thread nor device.
    if level == Level::Diagnostics
        && let Some((writer, begins)) = diagnostics_writer(near.trim_ascii_end())
    {
        return (low + begins, record(Some(writer), None, b""));
    }
    let mut search = near.len();
    while let Some(close) = memchr::memrchr(b']', &near[..search]) {
        search = close;
        let Some(open) = memchr::memrchr(b'[', &near[..close]) else { break };
        let Some(device) = signed(&near[open + 1..close]) else { continue };
        let location = trim(&near[close + 1..]);
        let left = near[..open].trim_ascii_end();
        if left.len() < open
            && let Some((writer, begins)) = writer_before(left, Some(device))
        {
            return (low + begins, record(Some(writer), Some(device), location));
        }
        // `[3] NCCL INFO`: the rest of the prefix was stripped. A `[3]` next to other text is a launcher's
        // tag.
        let alone = near.get(close + 1) == Some(&b' ') && (open == 0 || near[open - 1] == b' ');
        if alone && (location.is_empty() || !matches!(level, Level::Info)) {
            return (low + open, record(None, Some(device), location));
        }
    }
    // CALL lines have no device.
    if let Some((writer, begins)) = writer_before(near.trim_ascii_end(), None) {
        return (low + begins, record(Some(writer), None, b""));
    }
    let location = if level.is_located() { trim(near) } else { b"" };
    // A WARN's `file.cc:123` belongs to the record if there is no writer.
    let begins = if location.is_empty() { before.len() } else { low };
    (begins, record(None, None, location))
}

/// Reads `host:pid:tid` at the end of `left`; returns it and its start.
fn writer_before(left: &[u8], device: Option<i32>) -> Option<(Writer<'_>, usize)> {
    let last = memchr::memrchr(b':', left)?;
    let tid = id(&left[last + 1..])?;
    let middle = memchr::memrchr(b':', &left[..last])?;
    let pid = id(&left[middle + 1..last])?;
    let (host, begins) = host_before(&left[..middle])?;
    Some((Writer { host, pid, tid, device }, begins))
}

/// Reads `host:pid` at the end of `left`, as NCCL puts before `NCCL DIAG`.
fn diagnostics_writer(left: &[u8]) -> Option<(Writer<'_>, usize)> {
    let last = memchr::memrchr(b':', left)?;
    let pid = id(&left[last + 1..])?;
    let (host, begins) = host_before(&left[..last])?;
    Some((Writer { host, pid, tid: pid, device: None }, begins))
}

/// Reads the name of a host at the end of `host`; returns it and its start.
fn host_before(host: &[u8]) -> Option<(&str, usize)> {
    let mut begins = host
        .iter()
        .rposition(|byte| {
            byte.is_ascii_whitespace()
                || *byte == b':'
                || matches!(byte, b'|' | b'[' | b']' | b'`' | b'"')
                || *byte < b' '
        })
        .map_or(0, |at| at + 1);
    // Cuts `[1,3]<stdout>host` and `(pid=5)host`; but a masked `<cluster>` is a host.
    if let Some(close) = memchr::memrchr2(b')', b'>', &host[begins..])
        && begins + close + 1 < host.len()
    {
        begins += close + 1;
    }
    begins += glued_record(&host[begins..]);
    let host = text(&host[begins..]);
    (host.len() <= 255).then_some((host, begins))
}

/// Returns the length of another record's text before the host, since two ranks that write at once leave
/// `…via P2P/CUMEMhost:7:7 [0]`. Host names have no slash.
fn glued_record(host: &[u8]) -> usize {
    const ENDS: &[&[u8]] =
        &[b"GDRDMA(PCI)", b"GDRDMA", b"Shared", b"CUMEM", b"MNNVL", b"IPC", b"read", b"direct", b"CE"];
    let Some(slash) = memchr::memrchr(b'/', host) else { return 0 };
    let last = &host[slash + 1..];
    let known = ENDS.iter().find(|end| last.starts_with(end)).map(|end| end.len());
    slash + 1 + known.unwrap_or(usize::from(last.first().is_some_and(u8::is_ascii_digit)))
}

/// Reads a process or thread id; forum posts mask them as `XXXXXX`, which reads as 0.
fn id(digits: &[u8]) -> Option<u64> {
    if !digits.is_empty() && digits.len() <= 12 && digits.iter().all(|byte| *byte == b'X' || *byte == b'x') {
        return Some(0);
    }
    let mut at = Cursor::new(digits);
    let number = at.long()?;
    at.rest().is_empty().then_some(number)
}

fn signed(digits: &[u8]) -> Option<i32> {
    let mut at = Cursor::new(digits);
    let negative = at.eat(b"-");
    let number = i32::try_from(at.number()?).ok()?;
    at.rest().is_empty().then_some(if negative { -number } else { number })
}

fn trim(bytes: &[u8]) -> &[u8] {
    bytes.trim_ascii()
}
