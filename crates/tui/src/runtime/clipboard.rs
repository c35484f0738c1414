//! The clipboard of the person in front of the terminal, through the terminal itself.

use base64::Engine as _;

/// Most bytes that are sent: terminals throw longer ones away.
const MAX: usize = 74_994;

/// Returns the sequence that copies a text to the clipboard (OSC 52). The text is encoded: nothing of it reaches the terminal.
pub(super) fn osc52(text: &str) -> String {
    let end = (0..=MAX.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let encoded = base64::engine::general_purpose::STANDARD.encode(&text[..end]);
    format!("\x1b]52;c;{encoded}\x07")
}
