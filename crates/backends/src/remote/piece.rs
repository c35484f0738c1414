//! New bytes of files, each from a known offset; those of another host in one answer.

use jiff::{SignedDuration, Timestamp};

use crate::clock;

/// Returns the shell function `weftrun_read PATH OFFSET HEADER`, which prints a [`Piece`]; the first line of the file too
/// where HEADER is not 0, and at most `most` bytes, a number or a word of the shell. A file that cannot be read is named on standard error behind `NONCE! `.
pub fn reader(nonce: &str, most: impl std::fmt::Display) -> String {
    format!(
        "weftrun_read() {{\ns=$(stat -L -c '%i %s %Y' -- \"$1\" 2> /dev/null) || return 0\na=$(($(date +%s) - ${{s##* }})) s=${{s% *}}\n\
         [ -r \"$1\" ] || {{ printf '{nonce}! %s\\n' \"$1\" >&2; return 0; }}\nn=$((${{s#* }} - $2))\n[ $n -le {most} ] || n={most}\n\
         printf '{nonce} %s %s %s %s %s\\n' \"$s\" \"$a\" \"$2\" \"$n\" \"$1\"\n\
         [ \"$3\" = 0 ] || head -n 1 -- \"$1\" | head -c 4000\nprintf '{nonce}|'\n\
         [ $n -le 0 ] || tail -c +$(($2 + 1)) -- \"$1\" | head -c $n\nprintf '{nonce}.\\n'\n}}\n"
    )
}

/// What one poll returned of one file.
#[derive(Debug, Default)]
pub struct Piece {
    /// The path.
    pub path: String,
    /// Inode, which differs if the file was replaced.
    pub inode: u64,
    /// Size of the file at the poll.
    pub size: u64,
    /// When the file was written last, by the clock of this machine.
    pub modified: Timestamp,
    /// Offset of the first requested byte.
    pub offset: u64,
    /// The first line of the file, if requested.
    pub header: Vec<u8>,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Piece {
    /// Returns when the file was last written, if the piece ends where the file does.
    pub fn written(&self) -> Option<Timestamp> {
        let is_last = self.offset.saturating_add(self.bytes.len() as u64) >= self.size;
        is_last.then_some(self.modified)
    }

    /// Parses the pieces of an answer: `NONCE inode size age offset count path`, header, `NONCE|`, bytes,
    /// `NONCE.`.
    pub fn all(answer: &[u8], nonce: &[u8]) -> Vec<Self> {
        let begin = [nonce, b" "].concat();
        let middle = [nonce, b"|"].concat();
        let end = [nonce, b"."].concat();
        let mut pieces = Vec::new();
        let mut rest = answer;
        while let Some(piece) = Self::next(&mut rest, &begin, &middle, &end) {
            pieces.push(piece);
        }
        pieces
    }

    fn next(rest: &mut &[u8], begin: &[u8], middle: &[u8], end: &[u8]) -> Option<Self> {
        let start = memchr::memmem::find(rest, begin)? + begin.len();
        let line_end = start + memchr::memchr(b'\n', rest.get(start..)?)?;
        let line = String::from_utf8_lossy(rest.get(start..line_end)?).into_owned();
        let body = rest.get(line_end + 1..)?;
        let header = memchr::memmem::find(body, middle)?;
        let bytes = body.get(header + middle.len()..)?;
        let stop = memchr::memmem::find(bytes, end)?;
        let mut words = line.splitn(6, ' ');
        let mut number = || words.next().and_then(|word| word.parse::<i64>().ok());
        let (inode, size, age, offset, _count) = (number()?, number()?, number()?, number()?, number()?);
        let piece = Self {
            path: words.next()?.to_owned(),
            inode: inode.unsigned_abs(),
            size: size.unsigned_abs(),
            modified: clock::now().saturating_sub(SignedDuration::from_secs(age.max(0))).unwrap_or_default(),
            offset: offset.unsigned_abs(),
            header: body.get(..header)?.to_vec(),
            bytes: bytes.get(..stop)?.to_vec(),
        };
        *rest = bytes.get(stop + end.len()..)?;
        Some(piece)
    }
}
