//! Draws a finished frame in ASCII, for terminals that have nothing else. Called once, so that no screen knows of it.

use ratatui::buffer::Buffer;

/// Replaces each cell that is not ASCII by a sign that looks like it.
pub(super) fn replace(buffer: &mut Buffer) {
    for cell in buffer.content.iter_mut().filter(|cell| !cell.symbol().is_ascii()) {
        let first = cell.symbol().chars().next().unwrap_or(' ');
        let sign = match first {
            '─' => "-",
            '│' => "|",
            '┌' | '┐' | '└' | '┘' | '├' | '┤' | '┬' | '┴' | '┼' => "+",
            '█' | '▓' | '▄' => "#",
            '▒' | '▂' => ">",
            '░' | '▁' | '·' => ".",
            '▲' => "+",
            '▼' => "-",
            '▉'..='▌' => "=",
            '▍'..='▏' => "-",
            '…' => "~",
            '⏎' => "$",
            '×' => "x",
            '\u{2800}'..='\u{28ff}' => "*",
            _ => "?",
        };
        cell.set_symbol(sign);
    }
}
