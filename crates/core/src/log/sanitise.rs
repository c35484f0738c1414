//! Makes external text safe to draw: log lines, job names, cluster events, error texts.
//!
//! The output contains no C0, C1 or bidirectional control, for any input: every character passes
//! [`Writer::push`], and nothing else writes. Colours become [`Style`]s; every other escape is removed and
//! counted; a carriage return keeps the text after it, as on a terminal; invalid UTF-8 is shown as `<ff>`,
//! invisible characters as `<U+202E>`.

use std::borrow::Cow;
use std::fmt::Write as _;

use weftrun_nccl::{Escape, LINE_CAP, measure_escape};

use super::style::Style;

/// Most combining marks on one letter. More would draw over other lines, and no language needs them.
const MARKS_CAP: u8 = 4;

/// A line that is safe to draw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CleanLine {
    /// Its text, without any control character.
    pub text: String,
    /// Where in the text each style begins, in bytes; plain before the first.
    pub styles: Vec<(usize, Style)>,
    /// Escapes and controls that were removed.
    pub removed: u32,
    /// How often a carriage return began the line again (progress bars).
    pub updates: u32,
    /// Bytes after [`LINE_CAP`] that were left out.
    pub cut: u64,
}

impl CleanLine {
    /// Returns the pieces of the text, each with its style.
    pub fn pieces(&self) -> impl Iterator<Item = (&str, Style)> {
        let starts = std::iter::once((0, Style::default())).chain(self.styles.iter().copied());
        let ends = self.styles.iter().map(|(at, _)| *at).chain(std::iter::once(self.text.len()));
        starts
            .zip(ends)
            .map(|((start, style), end)| (&self.text[start..end], style))
            .filter(|(text, _)| !text.is_empty())
    }
}

/// Returns whether a line can be drawn unchanged: printable ASCII and nothing else.
pub fn is_plain(line: &[u8]) -> bool {
    // No branch in the loop, so that it compiles to vector instructions.
    line.iter().fold(true, |plain, byte| plain & (byte.wrapping_sub(0x20) < 0x5f))
}

/// Makes one line (without its newline) safe to draw.
///
/// ```
/// use weftrun_core::log::clean_line;
/// let line = clean_line(b"\x1b[31mred\x1b[0m \x1b]52;c;AAAA\x07text 10%\r 20%");
/// assert_eq!((line.text.as_str(), line.removed, line.updates), (" 20%", 0, 1));
/// assert_eq!(clean_line("a\u{202e}b".as_bytes()).text, "a<U+202E>b");
/// ```
pub fn clean_line(line: &[u8]) -> CleanLine {
    let mut writer = Writer::default();
    if line.len() > LINE_CAP {
        writer.line.cut = (line.len() - LINE_CAP) as u64;
    }
    let line = &line[..line.len().min(LINE_CAP)];
    if is_plain(line)
        && let Ok(text) = std::str::from_utf8(line)
    {
        text.clone_into(&mut writer.line.text);
        return writer.line;
    }
    let (shown, updates) = last_segment(line);
    writer.line.updates = updates;
    writer.write(&decode(shown));
    writer.line
}

/// Makes a text of several words safe to draw on one line: names, events, error messages. Newlines become blanks.
pub fn clean_text(text: &str) -> Cow<'_, str> {
    if is_plain(text.as_bytes()) {
        return Cow::Borrowed(text);
    }
    let mut writer = Writer::default();
    writer.write(&text.replace(['\n', '\r'], " "));
    Cow::Owned(writer.line.text)
}

/// Makes text of several lines safe to print on a terminal: newlines, tabs and the plain styles of SGR stay, every other
/// escape and control is removed, invisible characters show as `<U+202E>`. A style that is left open ends with the text.
///
/// ```
/// use weftrun_core::log::clean_message;
/// let shown = clean_message("\x1b[31merror\x1b[0m: \x1b]52;c;AAAA\x07a\u{202e}b\n");
/// assert_eq!(shown, "\x1b[31merror\x1b[0m: a<U+202E>b\n");
/// ```
pub fn clean_message(text: &str) -> Cow<'_, str> {
    if text.bytes().fold(true, |plain, byte| plain & is_plain_in_message(byte)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let (mut open, mut marks) = (false, 0u8);
    let mut rest = text;
    while !rest.is_empty() {
        let plain = rest.bytes().position(|byte| !is_plain_in_message(byte)).unwrap_or(rest.len());
        if plain > 0 {
            marks = 0;
            out.push_str(&rest[..plain]);
            rest = &rest[plain..];
            continue;
        }
        let Some(c) = rest.chars().next() else { break };
        if starts_escape(c) {
            let escape = measure_escape(rest);
            if let Escape::Sgr(parameters, _) = escape
                && is_plain_style(parameters)
            {
                out.push_str("\x1b[");
                out.push_str(parameters);
                out.push('m');
                open = !matches!(parameters, "" | "0");
            }
            rest = &rest[escape.len()..];
            continue;
        }
        rest = &rest[c.len_utf8()..];
        match c {
            c if c.is_control() || is_selector(c) => {}
            c if is_invisible(c) => {
                let _ = write!(out, "<U+{:04X}>", u32::from(c));
                marks = 0;
            }
            c => {
                let is_mark = unicode_width::UnicodeWidthChar::width(c).unwrap_or(0) == 0;
                marks = if is_mark { marks.saturating_add(1) } else { 0 };
                if marks <= MARKS_CAP {
                    out.push(c);
                }
            }
        }
    }
    if open {
        out.push_str("\x1b[0m");
    }
    Cow::Owned(out)
}

/// Makes every control and invisible character of a document visible, as `\u001b`, and counts them. Newlines, tabs and
/// the carriage returns before newlines stay. Inside a quoted string of JSON, YAML or TOML this form still means the
/// same character.
///
/// ```
/// use weftrun_core::log::escape_controls;
/// assert_eq!(escape_controls("a\x1b[2Jb\r\n"), ("a\\u001b[2Jb\r\n".into(), 1));
/// ```
pub fn escape_controls(text: &str) -> (Cow<'_, str>, usize) {
    if text.bytes().fold(true, |plain, byte| plain & is_plain_in_message(byte)) {
        return (Cow::Borrowed(text), 0);
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut escaped = 0;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let stays = matches!(c, '\n' | '\t') || (c == '\r' && chars.peek() == Some(&'\n'));
        let tag = matches!(c, '\u{e0000}'..='\u{e0fff}');
        if stays || !(c.is_control() || is_invisible(c) || tag) {
            out.push(c);
            continue;
        }
        escaped += 1;
        let mut units = [0; 2];
        for unit in c.encode_utf16(&mut units) {
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
    (Cow::Owned(out), escaped)
}

/// Returns whether a byte is printable ASCII, a newline or a tab. Without a branch, so that loops over it
/// compile to vector instructions.
#[allow(clippy::needless_bitwise_bool, reason = "a branch would keep loops from being vectorised")]
fn is_plain_in_message(byte: u8) -> bool {
    (byte.wrapping_sub(0x20) < 0x5f) | (byte == b'\n') | (byte == b'\t')
}

/// Returns whether SGR parameters only set colour or weight: no blinking, no concealing, no fonts.
fn is_plain_style(parameters: &str) -> bool {
    let mut numbers = parameters.split([';', ':']);
    while let Some(number) = numbers.next() {
        let plain = match number {
            "38" | "48" => match numbers.next() {
                Some("5") => numbers.next().is_some(),
                Some("2") => numbers.by_ref().take(3).count() == 3,
                _ => false,
            },
            "" => true,
            number => matches!(
                number.parse::<u8>(),
                Ok(0..=4 | 7 | 9 | 22..=24 | 27 | 29..=37 | 39..=47 | 49 | 90..=97 | 100..=107)
            ),
        };
        if !plain {
            return false;
        }
    }
    true
}

/// Returns what a terminal would show of a line with carriage returns, and how often the line was
/// restarted.
pub(super) fn last_segment(line: &[u8]) -> (&[u8], u32) {
    let mut end = line.len();
    while end > 0 && line[end - 1] == b'\r' {
        end -= 1;
    }
    let body = &line[..end];
    match memchr::memrchr(b'\r', body) {
        None => (body, 0),
        Some(at) => {
            (&body[at + 1..], u32::try_from(memchr::memchr_iter(b'\r', body).count()).unwrap_or(u32::MAX))
        }
    }
}

fn decode(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        for byte in chunk.invalid() {
            out.push_str(&format!("<{byte:02x}>"));
        }
    }
    Cow::Owned(out)
}

#[derive(Default)]
struct Writer {
    line: CleanLine,
    style: Style,
    column: usize,
    marks: u8,
}

impl Writer {
    fn write(&mut self, text: &str) {
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            if self.line.text.len() >= LINE_CAP {
                self.line.cut += rest.len() as u64;
                return;
            }
            if starts_escape(c) {
                let escape = measure_escape(rest);
                self.escape(escape);
                rest = &rest[escape.len()..];
            } else {
                self.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }

    fn escape(&mut self, escape: Escape<'_>) {
        let Escape::Sgr(parameters, _) = escape else {
            self.removed();
            return;
        };
        let mut style = self.style;
        style.apply_sgr(parameters);
        if style != self.style {
            self.style = style;
            let at = self.line.text.len();
            match self.line.styles.last_mut() {
                Some(last) if last.0 == at => last.1 = style,
                _ => self.line.styles.push((at, style)),
            }
        }
    }

    fn removed(&mut self) {
        self.line.removed = self.line.removed.saturating_add(1);
    }

    fn push(&mut self, c: char) {
        match c {
            '\t' => {
                let blanks = 8 - self.column % 8;
                self.line.text.extend(std::iter::repeat_n(' ', blanks));
                self.column += blanks;
                self.marks = 0;
            }
            c if c.is_control() => self.removed(),
            // Variation selectors and tags carry nothing that a reader of a log needs, and terminals
            // disagree on their width.
            c if is_selector(c) => self.removed(),
            c if is_invisible(c) => {
                let shown = format!("<U+{:04X}>", u32::from(c));
                self.column += shown.len();
                self.line.text.push_str(&shown);
                self.marks = 0;
            }
            c => {
                let width = unicode_width::UnicodeWidthChar::width(c).unwrap_or(0);
                self.marks = if width == 0 { self.marks.saturating_add(1) } else { 0 };
                if self.marks > MARKS_CAP {
                    self.removed();
                    return;
                }
                self.column += width;
                self.line.text.push(c);
            }
        }
    }
}

/// Returns whether a character begins an escape sequence, in the form of 7 bits or of 8.
fn starts_escape(c: char) -> bool {
    matches!(c, '\x1b' | '\u{90}' | '\u{98}' | '\u{9b}' | '\u{9d}'..='\u{9f}')
}

/// Returns whether a character is a variation selector or a tag.
fn is_selector(c: char) -> bool {
    matches!(c, '\u{fe00}'..='\u{fe0f}' | '\u{e0000}'..='\u{e0fff}')
}

/// Returns whether a character affects the direction or joining of others, or has no width: it is shown as
/// a code.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}'
        | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}')
}

#[cfg(test)]
mod tests {
    use super::super::style::Colour;
    use super::*;

    fn text(line: &[u8]) -> String {
        clean_line(line).text
    }

    #[test]
    fn colours_become_styles() {
        let line = clean_line(b"a\x1b[1;31mb\x1b[38;2;1;2;3mc\x1b[0md");
        let pieces: Vec<_> = line.pieces().collect();
        assert_eq!(line.text, "abcd");
        assert_eq!(
            pieces[1].1,
            Style { foreground: Some(Colour::Indexed(1)), bold: true, ..Style::default() }
        );
        assert_eq!(pieces[2].1.foreground, Some(Colour::Rgb(1, 2, 3)));
        assert_eq!(pieces[3], ("d", Style::default()));
        assert_eq!(line.removed, 0);
    }

    #[test]
    fn other_escapes_go_and_the_text_behind_them_stays() {
        for (hostile, shown) in [
            (&b"a\x1b]0;title\x07b"[..], "ab"),
            (b"a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\b", "alinkb"),
            (b"a\x1bPq#0\x1b\\b", "ab"),
            (b"a\x1b[2J\x1b[1;1Hb", "ab"),
            (b"a\x1b(0b\x1bcd", "abd"),
            (b"\x07\x07\x08x\x7f", "x"),
            ("a\u{9b}31mb\u{9d}0;t\u{9c}c".as_bytes(), "abc"),
            (b"a\x1b]0;never ended", "a0;never ended"),
            (b"a\x1b[12", "a12"),
            (b"a\x1b", "a"),
        ] {
            assert_eq!(text(hostile), shown, "{hostile:?}");
        }
    }

    #[test]
    fn a_progress_bar_is_its_last_state() {
        let bar = clean_line(b"10%\r20%\r30%\r");
        assert_eq!((bar.text.as_str(), bar.updates), ("30%", 2));
        assert_eq!(clean_line(b"plain\r").text, "plain");
    }

    #[test]
    fn bad_bytes_stay_visible() {
        assert_eq!(text(b"a\xff\xfeb"), "a<ff><fe>b");
        assert_eq!(
            text("torn \u{20ac}".as_bytes().split_last().map(|(_, rest)| rest).unwrap_or_default()),
            "torn <e2><82>"
        );
    }

    #[test]
    fn tabs_stand_at_columns_and_are_bounded() {
        assert_eq!(text(b"a\tb"), "a       b");
        assert!(text(&vec![b'\t'; LINE_CAP]).len() < LINE_CAP + 8);
    }

    #[test]
    fn a_long_line_is_cut_and_counted() {
        let line = clean_line(&vec![b'x'; LINE_CAP + 5]);
        assert_eq!((line.text.len(), line.cut), (LINE_CAP, 5));
    }

    #[test]
    fn a_message_keeps_its_lines_and_styles_and_nothing_else() {
        for (text, shown) in [
            ("a\n\tb\u{e9}", "a\n\tb\u{e9}"),
            ("\x1b[1;31mred\x1b[0m\r\n", "\x1b[1;31mred\x1b[0m\n"),
            ("\x1b[38;5;9mx\x1b[m", "\x1b[38;5;9mx\x1b[m"),
            ("\x1b[31mleft open", "\x1b[31mleft open\x1b[0m"),
            ("a\x1b[8mhidden\x1b[5mb", "ahiddenb"),
            ("a\x1b]52;c;AAAA\x07b\x1b]8;;http://x\x1b\\c", "abc"),
            ("\u{9b}2Ja\u{9d}0;t\u{9c}b\u{85}c\x7f\x08", "abc"),
            ("a\u{202e}b\u{2066}\u{200b}", "a<U+202E>b<U+2066><U+200B>"),
            ("\u{9b}31mx", "\x1b[31mx\x1b[0m"),
        ] {
            assert_eq!(clean_message(text), shown, "{text:?}");
            assert_eq!(clean_message(shown), shown, "{text:?}");
        }
    }

    #[test]
    fn escaped_controls_mean_the_same_in_json() {
        let text = "a\u{1b}[2J\u{9b}\u{202e}\u{e0001}\u{7f}";
        let quoted = format!("\"{}\"", text.replace('\u{1b}', "\\u001b"));
        let (shown, escaped) = escape_controls(&quoted);
        assert_eq!(escaped, 4, "{shown}");
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
    }

    #[test]
    fn lines_of_nothing_but_introducers_take_linear_time() {
        for piece in ["\u{9d}", "\u{90}", "\x1b]", "\x1bP", "\x1b[", "\u{9b}1", "\x1b ", "\u{9d}\u{90}"] {
            // The shortest of several runs: other load on the machine only makes one longer.
            let time = |count: usize| {
                let line = piece.repeat(count);
                let run = || {
                    let began = std::time::Instant::now();
                    std::hint::black_box(clean_message(&line));
                    began.elapsed()
                };
                (0..5).map(|_| run()).min().unwrap_or_default()
            };
            let (once, many) = (time(20_000), time(160_000));
            // Eight times the text takes eight times as long, but 64 times where each introducer is scanned
            // to the end.
            assert!(
                many < once * 30 + std::time::Duration::from_millis(200),
                "{piece:?}: {once:?}, {many:?}"
            );
        }
    }

    #[test]
    fn names_lose_their_controls() {
        assert_eq!(clean_text("job\x1b[31m\n\u{202e}x"), "job <U+202E>x");
        assert!(matches!(clean_text("plain"), Cow::Borrowed("plain")));
    }
}
