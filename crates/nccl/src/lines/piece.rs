//! One line as its program printed it.

use super::{Line, end_of, pieces, unwrap};
use crate::launcher::{self, Prefix};
use crate::record::{self, Writer};

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
}

impl<'a> Piece<'a> {
    /// Reads the prefixes of a line that may report a failure.
    #[cfg(test)]
    pub fn of(bytes: &'a [u8]) -> Self {
        Self::read(1, bytes, Some(b""))
    }

    fn read(line: u64, bytes: &'a [u8], failure: Option<&'a [u8]>) -> Self {
        let prefix = launcher::prefix(bytes);
        Self { line, bytes, prefix, text: &bytes[prefix.body..], failure }
    }

    /// Returns the process that printed it, by NCCL's prefix.
    pub fn process(&self) -> Option<Writer<'a>> {
        record::writer(self.text)
    }
}

/// Passes on the pieces of a line.
pub(crate) fn each_piece(line: &Line<'_>, mut sink: impl FnMut(&Piece<'_>)) {
    let mut above = line.failure;
    for bytes in pieces(&unwrap(line.bytes)) {
        sink(&Piece::read(line.number, bytes, above));
        above = above.map(|_| end_of(bytes));
    }
}
