//! Reads tar as it is used for layers: ustar with the extensions of POSIX.1-2001 (pax) and of GNU tar for
//! long names (<https://www.gnu.org/software/tar/manual/html_node/Standard.html>, 2026-11-21). Input comes
//! in chunks of any size; memory is bounded for any input.

use super::NotALayer;

const BLOCK: usize = 512;
/// Longest name, and longest pax header, that is read.
const LONGEST: u64 = 64 * 1024;

/// A file's place in the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Path as in the archive.
    pub path: String,
    /// Whether it is a regular file, with bytes.
    pub file: bool,
}

/// Receives the files.
pub(super) trait Visit {
    /// Begins a file; returns whether its bytes are needed.
    fn begin(&mut self, entry: &Entry) -> bool;
    /// Receives some of its bytes.
    fn bytes(&mut self, bytes: &[u8]);
    /// Ends the file.
    fn end(&mut self);
}

/// Reads an archive in chunks.
#[derive(Debug, Default)]
pub(super) struct Reader {
    state: State,
    /// The path that the headers before a file give it.
    path: Option<String>,
    size: Option<u64>,
}

#[derive(Debug)]
enum State {
    /// Bytes of a header.
    Header(Vec<u8>),
    /// Bytes that belong to the last header, and the padding of its last block.
    Body { left: u64, fill: u64, to: To },
    /// The archive has ended; the rest is ignored.
    Over,
}

impl Default for State {
    fn default() -> Self {
        Self::Header(Vec::new())
    }
}

#[derive(Debug)]
enum To {
    Nobody,
    Visitor,
    Name(Vec<u8>),
    Pax(Vec<u8>),
}

impl Reader {
    /// Returns whether the archive's end was seen.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Takes bytes.
    pub fn feed(&mut self, mut bytes: &[u8], visit: &mut impl Visit) -> Result<(), NotALayer> {
        while !bytes.is_empty() {
            match &mut self.state {
                State::Over => return Ok(()),
                State::Header(held) => {
                    let take = bytes.len().min(BLOCK - held.len());
                    held.extend_from_slice(&bytes[..take]);
                    bytes = &bytes[take..];
                    if held.len() == BLOCK {
                        let block = std::mem::take(held);
                        self.header(&block, visit)?;
                    }
                }
                State::Body { left, fill, to } => {
                    let take = at_most(*left, bytes.len());
                    let (body, rest) = bytes.split_at(take);
                    *left -= take as u64;
                    match to {
                        To::Visitor if !body.is_empty() => visit.bytes(body),
                        To::Name(held) | To::Pax(held) => held.extend_from_slice(body),
                        _ => {}
                    }
                    let skip = if *left == 0 { at_most(*fill, rest.len()) } else { 0 };
                    *fill -= skip as u64;
                    bytes = &rest[skip..];
                    if *left == 0 && *fill == 0 {
                        self.body_ends(visit);
                    }
                }
            }
        }
        Ok(())
    }

    fn body_ends(&mut self, visit: &mut impl Visit) {
        let State::Body { to, .. } = std::mem::take(&mut self.state) else { return };
        match to {
            To::Nobody => {}
            To::Visitor => visit.end(),
            To::Name(name) => self.path = Some(text(&name)),
            To::Pax(records) => self.pax(&records),
        }
    }

    fn header(&mut self, block: &[u8], visit: &mut impl Visit) -> Result<(), NotALayer> {
        if block.iter().all(|byte| *byte == 0) {
            self.state = State::Over;
            return Ok(());
        }
        let sum: u64 = block
            .iter()
            .enumerate()
            .map(|(at, byte)| u64::from(if (148..156).contains(&at) { b' ' } else { *byte }))
            .sum();
        if number(&block[148..156]) != Some(sum) {
            return Err(NotALayer);
        }
        let size = number(&block[124..136]).ok_or(NotALayer)?;
        let kind = block[156];
        let (size, to) = match kind {
            b'L' => (size, if size <= LONGEST { To::Name(Vec::new()) } else { To::Nobody }),
            b'x' => (size, if size <= LONGEST { To::Pax(Vec::new()) } else { To::Nobody }),
            // A global header, and the target of a link.
            b'g' | b'K' => (size, To::Nobody),
            _ => {
                let file = matches!(kind, 0 | b'0' | b'7');
                let path = self.path.take().unwrap_or_else(|| named(block));
                // Links and folders have no bytes, whatever size their header has.
                let size = if file { self.size.take().unwrap_or(size) } else { 0 };
                self.size = None;
                let wanted = visit.begin(&Entry { path, file });
                if wanted && size == 0 {
                    visit.end();
                }
                (size, if wanted { To::Visitor } else { To::Nobody })
            }
        };
        if size == 0 {
            self.state = State::default();
            return Ok(());
        }
        let block = BLOCK as u64;
        self.state = State::Body { left: size, fill: (block - size % block) % block, to };
        Ok(())
    }

    /// Reads records of `LENGTH KEY=VALUE\n`.
    fn pax(&mut self, mut records: &[u8]) {
        while let Some(space) = records.iter().position(|byte| *byte == b' ') {
            let Ok(length) = text(&records[..space]).parse::<usize>() else { return };
            let Some(record) = records.get(space + 1..length) else { return };
            let record = text(record.strip_suffix(b"\n").unwrap_or(record));
            match record.split_once('=') {
                Some(("path", path)) => self.path = Some(path.to_owned()),
                Some(("size", size)) => self.size = size.parse().ok(),
                _ => {}
            }
            records = &records[length..];
        }
    }
}

fn at_most(left: u64, have: usize) -> usize {
    usize::try_from(left).unwrap_or(usize::MAX).min(have)
}

/// Returns the text up to the first NUL.
fn text(bytes: &[u8]) -> String {
    let end = memchr::memchr(0, bytes).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn named(block: &[u8]) -> String {
    let name = text(&block[..100]);
    // GNU's own format has other fields in place of the prefix.
    let prefix = if &block[257..263] == b"ustar\0" { text(&block[345..500]) } else { String::new() };
    if prefix.is_empty() { name } else { format!("{prefix}/{name}") }
}

/// Returns an octal number, or a binary one where the first bit is set.
fn number(field: &[u8]) -> Option<u64> {
    if let [first, rest @ ..] = field
        && first & 0x80 != 0
    {
        // The bits after the first must fit; no file is so large that more of the first byte is set.
        let add = |value: u64, byte: &u8| value.checked_mul(256)?.checked_add(u64::from(*byte));
        return if *first == 0x80 { rest.iter().try_fold(0, add) } else { None };
    }
    let digits = text(field);
    let digits = digits.trim();
    if digits.is_empty() { Some(0) } else { u64::from_str_radix(digits, 8).ok() }
}
