//! Replaces what terminals disagree about: characters that take other columns together than one by one (flags, skin
//! tones, joined emoji). A terminal that counts them otherwise would shift the rest of the row, and leave cells of it
//! behind in the next frame. Called once, on the finished frame.

use ratatui::buffer::{Buffer, CellWidth};

/// Replaces such characters everywhere on a screen: a flag by its two letters, others by their first character.
pub(super) fn replace(buffer: &mut Buffer) {
    let columns = usize::from(buffer.area.width).max(1);
    let mut at = 0;
    while at < buffer.content.len() {
        let symbol = buffer.content[at].symbol();
        let wide = if symbol.len() == 1 { 1 } else { usize::from(symbol.cell_width()).max(1) };
        // A cell at the right border has no second column.
        let wide = wide.min(columns - at % columns);
        if let Some(parts) = settled(symbol, wide) {
            let style = buffer.content[at].style();
            for (cell, part) in buffer.content[at..at + wide].iter_mut().zip(parts) {
                cell.set_symbol(&part).set_style(style);
            }
        }
        at += wide;
    }
}

/// Returns what is drawn in each of the columns instead of a symbol; none if all terminals draw it alike. A second
/// column that the first character covers is not returned.
fn settled(symbol: &str, wide: usize) -> Option<Vec<String>> {
    if symbol.len() == 1 {
        return None;
    }
    let width = |c: char| usize::from(c.encode_utf8(&mut [0; 4]).cell_width());
    let whole = symbol.chars().map(width).sum::<usize>() == wide;
    if whole || symbol.chars().any(|c| letter(c).is_some()) {
        // These join what is before them in some terminals, and take columns of their own in others.
        return symbol
            .chars()
            .any(|c| part(c).is_some())
            .then(|| filled(symbol.chars().map(|c| part(c).unwrap_or(c).to_string()).collect(), wide));
    }
    let mut chars = symbol.chars();
    let first = chars.next()?;
    let covered = width(first);
    if covered > wide {
        return Some(filled(Vec::new(), wide));
    }
    // Marks of the character stay; what joins, selects or encloses does not.
    let marks = chars.take_while(|c| {
        width(*c) == 0 && !matches!(c, '\u{200d}' | '\u{20d0}'..='\u{20ff}' | '\u{fe00}'..='\u{fe0f}')
    });
    let part = std::iter::once(first).chain(marks).collect();
    Some(if covered == wide { vec![part] } else { filled(vec![part], wide) })
}

/// Returns a skin tone without a picture as a shade, a voiced sound mark of halfwidth Katakana as the sign that looks
/// like it, and a half of a flag as its letter.
fn part(c: char) -> Option<char> {
    match c {
        '\u{1f3fb}'..='\u{1f3ff}' => Some('▒'),
        '\u{ff9e}' => Some('"'),
        '\u{ff9f}' => Some('°'),
        c => letter(c),
    }
}

/// Returns the letter of a regional indicator: two of them are a flag.
fn letter(c: char) -> Option<char> {
    let at = u32::from(c).checked_sub(0x1f1e6).filter(|at| *at < 26)?;
    char::from_u32(u32::from('A') + at)
}

fn filled(mut parts: Vec<String>, wide: usize) -> Vec<String> {
    parts.resize(wide, " ".to_owned());
    parts
}

#[cfg(test)]
mod tests {
    use ratatui::layout::Rect;
    use ratatui::style::{Color, Style};
    use unicode_width::UnicodeWidthChar;

    use super::*;

    fn drawn(text: &str) -> String {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 30, 1));
        buffer.set_string(0, 0, text, Style::new().fg(Color::Red));
        replace(&mut buffer);
        let mut shown = String::new();
        let mut at = 0;
        while at < 30 {
            let symbol = buffer[(at, 0)].symbol();
            shown.push_str(symbol);
            at += symbol.cell_width().max(1);
        }
        shown.trim_end().to_owned()
    }

    #[test]
    fn each_character_takes_the_columns_that_it_takes_alone() {
        for (text, shown) in [
            ("plain, ünïcode, 日本 │", "plain, ünïcode, 日本 │"),
            ("a 🚀 b", "a 🚀 b"),
            ("a 🇩🇪 b", "a DE b"),
            ("a 👍🏽 b", "a 👍 b"),
            ("a 👩\u{200d}👩\u{200d}👧 b", "a 👩 b"),
            ("a ❤\u{fe0f} b", "a ❤  b"),
            ("a 1\u{fe0f}\u{20e3} b", "a 1  b"),
            ("e\u{301}\u{302} ｶﾞ|", "e\u{301}\u{302} ｶ\" |"),
            ("a \u{1f3fd} b", "a ▒  b"),
        ] {
            let out = drawn(text);
            assert_eq!(out, shown, "{text}");
            let alone: usize = out.chars().map(|c| c.width().unwrap_or(0)).sum();
            assert_eq!(alone, usize::from(out.cell_width()), "{text}");
        }
    }

    #[test]
    fn a_flag_at_the_border_stays_inside() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 3, 2));
        buffer[(2, 0)].set_symbol("🇩🇪");
        buffer[(0, 1)].set_symbol("x");
        replace(&mut buffer);
        assert_eq!((buffer[(2, 0)].symbol(), buffer[(0, 1)].symbol()), ("D", "x"));
    }
}
