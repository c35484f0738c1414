//! Assembles one source's bytes into lines: torn ones joined, endless ones cut and counted, progress bars
//! collapsed.

use weftrun_nccl::{LINE_CAP, OpenLine};

use super::sanitise::last_segment;

/// A line as it is stored: without its newline, and without text that a carriage return overwrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Whole<'a> {
    /// Its bytes, at most [`LINE_CAP`].
    pub bytes: &'a [u8],
    /// Bytes left out.
    pub cut: u64,
    /// How often it was restarted.
    pub updates: u32,
}

/// The unfinished end of a source.
#[derive(Clone, Debug, Default)]
pub(super) struct Feed {
    tail: OpenLine,
    cut: u64,
    updates: u32,
    /// Carriage returns after the tail: they count once something follows them.
    returns: u32,
}

impl Feed {
    /// Passes the line that ends with `end` (a piece without its newline) to `take`.
    pub(super) fn line(&mut self, end: &[u8], take: impl FnOnce(Whole<'_>)) {
        if self.tail.kept().is_empty() && self.updates == 0 && self.returns == 0 {
            take(whole(end));
            return;
        }
        self.keep(end);
        take(Whole { bytes: self.tail.kept(), cut: self.cut, updates: self.updates });
        self.tail.clear();
        (self.cut, self.updates, self.returns) = (0, 0, 0);
    }

    /// Keeps the beginning of an unfinished line. All but the last state of a progress bar is dropped at
    /// once: a bar without a newline stays small.
    pub(super) fn keep(&mut self, piece: &[u8]) {
        let trailing = piece.iter().rev().take_while(|b| **b == b'\r').count();
        let (body, _) = piece.split_at(piece.len() - trailing);
        if !body.is_empty() {
            let (last, more) = last_segment(body);
            let updates = self.returns.saturating_add(more);
            if updates > 0 {
                self.updates = self.updates.saturating_add(updates);
                self.returns = 0;
                self.tail.clear();
                self.cut = 0;
            }
            self.cut += self.tail.keep(last) as u64;
        }
        self.returns = self.returns.saturating_add(u32::try_from(trailing).unwrap_or(u32::MAX));
    }

    /// Passes the unfinished line, if there is one, to `take`: no more bytes follow.
    pub(super) fn end(&mut self, take: impl FnOnce(Whole<'_>)) {
        if !self.tail.kept().is_empty() {
            self.line(&[], take);
        }
    }
}

fn whole(line: &[u8]) -> Whole<'_> {
    let (bytes, updates) = last_segment(line);
    let kept = bytes.len().min(LINE_CAP);
    Whole { bytes: &bytes[..kept], cut: (bytes.len() - kept) as u64, updates }
}
