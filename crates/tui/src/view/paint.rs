//! Small helpers for all screens.

use std::borrow::Cow;

use jiff::Timestamp;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Clear, Paragraph};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};
use weftrun::Severity;
use weftrun::core::job::JobPhase;
use weftrun::core::log::clean_text;

use super::mouse_targets::{Bar, MouseTarget, MouseTargets};
use crate::theme::{Meaning, Theme};

#[derive(Clone, Copy, Debug)]
pub struct Paint<'s> {
    theme: Theme,
    quiet: bool,
    spots: Option<&'s MouseTargets>,
}

impl<'s> Paint<'s> {
    pub fn new(theme: Theme) -> Self {
        Self { theme, quiet: false, spots: None }
    }

    /// Notes what can be clicked.
    #[must_use]
    pub fn noting(self, spots: &'s MouseTargets) -> Self {
        Self { spots: Some(spots), ..self }
    }

    /// Draws what is wrong as less than the worst of the screen, which another panel shows.
    #[must_use]
    pub fn quiet(self) -> Self {
        Self { quiet: true, ..self }
    }

    /// Returns where to note what can be clicked, if a mouse is used.
    pub fn spots(self) -> Option<&'s MouseTargets> {
        self.spots
    }

    /// Notes that a row of an area can be clicked.
    pub fn spot(self, area: Rect, row: usize, spot: impl FnOnce() -> MouseTarget) {
        let Some(spots) = self.spots else { return };
        let y = area.y.saturating_add(u16::try_from(row).unwrap_or(u16::MAX));
        if y < area.bottom() {
            spots.add(Rect { y, height: 1, ..area }, spot());
        }
    }

    pub fn style(self, meaning: Meaning) -> Style {
        match meaning {
            Meaning::Bad if self.quiet => self.theme.style(Meaning::Wrong),
            meaning => self.theme.style(meaning),
        }
    }

    /// Returns the style of a rank's name in its own colour.
    pub fn rank(self, rank: u32) -> Style {
        self.theme.rank(rank)
    }

    /// Returns whether ranks may have their own colours.
    pub fn colours(self) -> bool {
        self.theme != Theme::Mono
    }

    pub fn span<'a>(self, text: impl Into<Cow<'a, str>>, meaning: Meaning) -> Span<'a> {
        Span::styled(text, self.style(meaning))
    }

    /// Returns a line under the cursor, as wide as its area: one bar of one style.
    pub fn under_cursor<'a>(self, line: &Line<'_>, columns: usize) -> Line<'a> {
        let blanks = columns.saturating_sub(line.width());
        let text: String = line.spans.iter().map(|span| span.content.as_ref()).collect();
        Line::from(self.span(format!("{text}{}", " ".repeat(blanks)), Meaning::Selected))
    }

    /// Draws the rule above a panel with its title, and a line on its left if another panel is there; returns the area
    /// inside. Neighbours share their borders: a panel has none below, and a scroll bar on its right.
    pub fn frame(self, frame: &mut Frame, area: Rect, title: impl Into<String>) -> Rect {
        let whole = frame.area();
        let left = u16::from(area.x > whole.x);
        let corner = match (left, area.y > whole.y + 1) {
            (0, _) => "",
            (_, true) => "├",
            (_, false) => "┬",
        };
        let title = title.into();
        let title = fit(&clean_text(&title), usize::from(area.width).saturating_sub(5)).into_owned();
        let used = width(corner) + 3 + width(&title);
        let rest = "─".repeat(usize::from(area.width).saturating_sub(used));
        let rule = Line::from(vec![
            self.span(format!("{corner}─"), Meaning::Frame),
            self.span(format!(" {title} "), Meaning::Title),
            self.span(rest, Meaning::Frame),
        ]);
        frame.render_widget(rule, Rect { height: 1.min(area.height), ..area });
        let below = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
        if left > 0 {
            let side = vec![Line::from(self.span("│", Meaning::Frame)); usize::from(below.height)];
            frame.render_widget(Paragraph::new(side), Rect { width: 1.min(area.width), ..below });
        }
        Rect { x: below.x + left, width: below.width.saturating_sub(left + 1), ..below }
    }

    /// Draws a note on the rule above a panel, on the right, if it fits behind the title.
    pub fn corner(self, frame: &mut Frame, area: Rect, title: usize, text: &str) {
        let wide = u16::try_from(width(text)).unwrap_or(u16::MAX);
        let title = u16::try_from(title).unwrap_or(u16::MAX);
        if area.height > 0 && wide.saturating_add(title).saturating_add(8) <= area.width {
            let place = Rect { x: area.right() - wide - 1, y: area.y, width: wide, height: 1 };
            frame.render_widget(Line::from(self.span(text.to_owned(), Meaning::Key)), place);
        }
    }

    /// Draws on the right of a panel which part of a list is seen, if not all of it is, and notes that it can
    /// be dragged.
    pub fn scroll_bar(
        self,
        frame: &mut Frame,
        panel: Rect,
        bar: Bar,
        seen: std::ops::Range<usize>,
        all: usize,
    ) {
        let (shown, track) = (seen.len(), usize::from(panel.height.saturating_sub(1)));
        if shown == 0 || shown >= all || track < 2 || panel.width < 2 {
            return;
        }
        let thumb = (track.saturating_mul(shown) / all).clamp(1, track - 1);
        // At an end only if the list is.
        let (first, most) = (seen.start.min(all - shown), all - shown);
        let at = match first {
            0 => 0,
            first if first == most => track - thumb,
            first => (first.saturating_mul(track - thumb) / most)
                .clamp(1, (track - thumb).saturating_sub(1).max(1)),
        };
        let row = |at: usize| u16::try_from(at).unwrap_or(u16::MAX);
        let area = Rect { x: panel.right() - 1, y: panel.y + 1, width: 1, height: panel.height - 1 };
        let part = Rect { y: area.y + row(at), height: row(thumb), ..area };
        let lines: Vec<Line> = (0..thumb).map(|_| Line::from(self.span("█", Meaning::Frame))).collect();
        frame.render_widget(Paragraph::new(lines), part.intersection(area));
        if let Some(spots) = self.spots {
            spots.add_bar(area, bar);
        }
    }

    pub fn panel(self, frame: &mut Frame, area: Rect, title: impl Into<String>, lines: Vec<Line<'_>>) {
        let inside = self.frame(frame, area, title);
        frame.render_widget(Paragraph::new(lines), inside);
    }

    /// Draws a frame over everything, in the middle, and returns the area inside.
    pub fn popup(self, frame: &mut Frame, area: Rect, size: (u16, u16), title: impl Into<String>) -> Rect {
        let (width, height) = (size.0.min(area.width), size.1.min(area.height));
        let popup = Rect {
            x: area.x + (area.width - width) / 2,
            y: area.y + (area.height - height) / 2,
            width,
            height,
        };
        frame.render_widget(Clear, popup);
        let title = title.into();
        let title = fit(&clean_text(&title), usize::from(width).saturating_sub(4)).into_owned();
        let block = Block::new()
            .borders(Borders::ALL)
            .border_style(self.style(Meaning::Frame))
            .title(Span::styled(format!(" {title} "), self.style(Meaning::Title)));
        let inside = block.inner(popup);
        frame.render_widget(block, popup);
        inside
    }

    /// Returns the meaning of a phase, and its short word.
    pub fn phase(phase: JobPhase) -> (Meaning, &'static str) {
        match phase {
            JobPhase::Submitted => (Meaning::Busy, "SUBM"),
            JobPhase::Pending => (Meaning::Busy, "PEND"),
            JobPhase::Starting => (Meaning::Busy, "START"),
            JobPhase::Running => (Meaning::Good, "RUN"),
            JobPhase::Restarting => (Meaning::Warn, "RETRY"),
            JobPhase::Suspended => (Meaning::Warn, "SUSP"),
            JobPhase::Stopping => (Meaning::Warn, "STOP"),
            JobPhase::Succeeded => (Meaning::Muted, "DONE"),
            JobPhase::Failed => (Meaning::Bad, "FAIL"),
            JobPhase::Cancelled => (Meaning::Muted, "CANC"),
            _ => (Meaning::Warn, "?"),
        }
    }

    /// Returns the meaning of a severity, and its word.
    pub fn severity(severity: Severity) -> (Meaning, &'static str) {
        match severity {
            Severity::Error => (Meaning::Bad, "ERROR"),
            Severity::Warning => (Meaning::Warn, "WARN"),
            Severity::Info => (Meaning::Muted, "info"),
        }
    }
}

pub fn width(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// Cuts a text to some columns, and marks the cut with `…`.
pub fn fit(text: &str, columns: usize) -> Cow<'_, str> {
    if width(text) <= columns {
        return Cow::Borrowed(text);
    }
    let (mut out, mut used) = (String::new(), 0);
    for c in text.chars() {
        let wide = c.width().unwrap_or(0);
        if used + wide + 1 > columns {
            break;
        }
        out.push(c);
        used += wide;
    }
    if columns > 0 {
        out.push('…');
    }
    Cow::Owned(out)
}

/// Cuts a text in its middle to some columns: a message names what failed first, and the reason last.
pub fn fit_ends(text: &str, columns: usize) -> Cow<'_, str> {
    if width(text) <= columns {
        return Cow::Borrowed(text);
    }
    let (mut end, mut used) = (text.len(), 0);
    for (at, c) in text.char_indices().rev() {
        used += c.width().unwrap_or(0);
        if used > columns / 2 {
            break;
        }
        end = at;
    }
    let tail = &text[end..];
    Cow::Owned(format!("{}{tail}", fit(&text[..end], columns.saturating_sub(width(tail)))))
}

/// What is complete, under way, and not begun, in a bar.
pub const FULL: &str = "▄";
pub const PART: &str = "▂";
pub const NONE: &str = "▁";

/// Cuts or fills a text to exactly some columns.
pub fn cell(text: &str, columns: usize) -> String {
    let text = fit(text, columns);
    let blanks = columns.saturating_sub(width(&text));
    format!("{text}{}", " ".repeat(blanks))
}

/// Returns how long ago it was; `-` where it is not known.
pub fn age(now: Timestamp, then: Option<Timestamp>) -> String {
    then.map_or("-".to_owned(), |then| weftrun::core::job::age(now, then))
}

/// Ranks as ranges: `0-3,8`.
pub fn ranges(ranks: &[u32]) -> String {
    let mut sorted = ranks.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for rank in sorted {
        match parts.last_mut() {
            Some((_, end)) if *end + 1 == rank => *end = rank,
            _ => parts.push((rank, rank)),
        }
    }
    let text: Vec<String> =
        parts.iter().map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") }).collect();
    text.join(",")
}

/// Breaks a text into lines of at most some columns, at blanks where there are any.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(8);
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split_inclusive(' ') {
        let wide = width(word.trim_end());
        if used > 0 && used + wide > columns {
            lines.push(String::new());
            used = 0;
        }
        for c in word.chars() {
            let wide = c.width().unwrap_or(0);
            if used + wide > columns {
                if c == ' ' {
                    continue;
                }
                lines.push(String::new());
                used = 0;
            }
            if let Some(line) = lines.last_mut() {
                line.push(c);
            }
            used += wide;
        }
    }
    lines
}

/// Returns a series as a line of braille, from its least value to its greatest: two values a column, the newest on the
/// right.
pub fn timeline(series: &[f64], columns: usize) -> String {
    // The dots of a column from the bottom, left and right (Unicode 16, block U+2800).
    const LEFT: [u32; 5] = [0, 0x40, 0x44, 0x46, 0x47];
    const RIGHT: [u32; 5] = [0, 0x80, 0xa0, 0xb0, 0xb8];
    let shown = &series[series.len().saturating_sub(2 * columns)..];
    let top = shown.iter().copied().fold(f64::MIN, f64::max);
    let bottom = shown.iter().copied().fold(f64::MAX, f64::min);
    let level = |value: f64| {
        let part = if top > bottom { (value - bottom) / (top - bottom) * 3.0 } else { 1.0 };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0..=3")]
        let part = part.clamp(0.0, 3.0).round() as usize;
        part + 1
    };
    let column = |pair: &[f64]| {
        let left = pair.first().map_or(0, |value| LEFT[level(*value)]);
        let right = pair.get(1).map_or(0, |value| RIGHT[level(*value)]);
        char::from_u32(0x2800 + left + right).unwrap_or(' ')
    };
    shown.chunks(2).map(column).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_fit_their_columns() {
        assert_eq!(fit("abcdef", 4), "abc…");
        assert_eq!(cell("日本語", 5), "日本…");
        assert_eq!(fit_ends("cannot write /a/b/c: disk full", 20), "cannot wr… disk full");
        assert_eq!(fit_ends("日本語日本語", 7), "日本…語");
        assert_eq!(fit_ends("abc", 0), "");
        assert_eq!(wrap("aa bb cccccccccccc", 8), ["aa bb ", "cccccccc", "cccc"]);
        assert_eq!(ranges(&[3, 0, 1, 2, 8]), "0-3,8");
        assert_eq!(timeline(&[0.0, 1.0, 2.0, 3.0], 2), "⣠⣾");
        assert_eq!(timeline(&[9.0, 5.0, 5.0, 5.0], 1), "⣤");
        assert_eq!(timeline(&[5.0], 2), "⡄");
    }
}
