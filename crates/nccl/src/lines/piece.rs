//! One line as its program printed it.

use super::{Line, end_of, pieces, unwrap};
use crate::launcher::{self, Prefix};
use crate::record::{self, Record, Writer};

/// What one program printed: a line, or a part of one into which a launcher, a shipper or a terminal joined several.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece<'a> {
    /// Line in the source, from 1.
    pub line: u64,
    /// All of it.
    pub bytes: &'a [u8],
    /// What launchers wrote before it.
    pub prefix: Prefix<'a>,
    /// What is behind.
    pub text: &'a [u8],
    /// The end of the line above, if the line may belong to the report of a failure.
    pub failure: Option<&'a [u8]>,
    /// The record of NCCL that the whole text is, where it is the usual one.
    pub record: Option<Record<'a>>,
}

impl<'a> Piece<'a> {
    /// Reads the prefixes of a line that may report a failure.
    #[cfg(test)]
    pub fn of(bytes: &'a [u8]) -> Self {
        Self::read(1, bytes, Some(b""))
    }

    fn read(line: u64, bytes: &'a [u8], failure: Option<&'a [u8]>) -> Self {
        let prefix = launcher::prefix(bytes);
        Self { line, bytes, prefix, text: &bytes[prefix.body..], failure, record: None }
    }

    /// Returns the process that printed it, by NCCL's prefix.
    pub fn process(&self) -> Option<Writer<'a>> {
        self.record.map_or_else(|| record::writer(self.text), |record| record.writer)
    }
}

/// Passes on the pieces of a line.
pub(crate) fn each_piece(line: &Line<'_>, mut sink: impl FnMut(&Piece<'_>)) {
    let Line { number, bytes, failure, .. } = *line;
    if let record @ Some(_) = record::plain(bytes) {
        let prefix = Prefix::default();
        return sink(&Piece { line: number, bytes, prefix, text: bytes, failure, record });
    }
    let whole = unwrap(bytes);
    let mut above = failure;
    for bytes in pieces(&whole) {
        sink(&Piece::read(number, bytes, above));
        above = failure.map(|_| end_of(bytes));
    }
}
