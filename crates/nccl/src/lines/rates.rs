//! Reads runs of lines with a rate: a training log has one in nearly every line.

/// Decides when reading every line is faster than searching for lines with a rate. In a typical training log nearly all
/// lines have one, and a separate search for each line takes several times as long.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RateRun {
    /// Consecutive lines with a rate that the search found.
    streak: u32,
    /// Consecutive attempts that read no line.
    failures: u32,
}

impl RateRun {
    /// Returns whether to try reading every line. Each consecutive failure doubles the number of lines to search first.
    pub(super) fn attempt(self) -> bool {
        self.streak >= 2 << self.failures.min(12)
    }

    /// Records an attempt.
    pub(super) fn note(&mut self, succeeded: bool) {
        if succeeded {
            self.failures = 0;
        } else {
            (self.streak, self.failures) = (0, self.failures.saturating_add(1));
        }
    }

    /// Records a line that the search found.
    pub(super) fn see(&mut self, rate: bool) {
        if rate {
            self.streak = self.streak.saturating_add(1);
        }
    }
}

/// Returns the first slash and the end of the line that begins at `from`; none if it has no slash, is JSON, is long, is at
/// the end of the block, or has control characters other than tabs. Reads eight bytes at once.
pub(super) fn plain_line(block: &[u8], from: usize) -> Option<(usize, usize)> {
    const LONG: usize = 4096;
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGH: u64 = u64::from_le_bytes([0x80; 8]);
    const SLASHES: u64 = u64::from_le_bytes([b'/'; 8]);
    const BLANKS: u64 = u64::from_le_bytes([b' '; 8]);
    let slashes = |word: u64| (word ^ SLASHES).wrapping_sub(ONES) & !(word ^ SLASHES) & HIGH;
    let controls = |word: u64| word.wrapping_sub(BLANKS) & !word & HIGH;
    // The lowest marked byte is correct; a borrow may also mark bytes above it.
    let first = |mask: u64| (mask.trailing_zeros() / 8) as usize;
    let rest = block.get(from..)?;
    if rest.first() == Some(&b'{') {
        return None;
    }
    let mut slash = None;
    let mut at = 0;
    while at < LONG {
        let word = u64::from_le_bytes(*rest.get(at..)?.first_chunk()?);
        let control = controls(word);
        if slash.is_none() {
            let found = slashes(word);
            if found != 0 && (control == 0 || first(found) < first(control)) {
                slash = Some(from + at + first(found));
            }
        }
        if control == 0 {
            at += 8;
            continue;
        }
        at += first(control);
        match rest.get(at)? {
            b'\n' => return Some((slash?, from + at)),
            b'\t' => at += 1,
            _ => return None,
        }
    }
    None
}

/// Returns the start of the word of [`RATES`] whose slash is at a position.
pub(super) fn rate_at_slash(block: &[u8], slash: usize) -> Option<usize> {
    let (before, behind) = block.split_at_checked(slash)?;
    if behind.get(1) != Some(&b's') {
        return None;
    }
    // Returns the word that begins first, as a search would.
    if before.ends_with(b"tokens") {
        return Some(slash - 6);
    }
    if before.ends_with(b"it") {
        return Some(slash - 2);
    }
    behind.starts_with(b"/sec").then_some(slash)
}
