//! Whether the terminal's background is dark or light, where the terminal reports it.

use std::io::Write;
use std::time::{Duration, Instant};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Longest wait for an answer. A terminal on this machine answers in a moment; over a network none is asked.
const PATIENCE: Duration = Duration::from_millis(50);
/// Most bytes of an answer.
const LONGEST: usize = 256;

/// Returns the brightness of the background, from 0 to 1, and the keys that were typed meanwhile. The terminal is in raw
/// mode, and nothing else reads from it.
pub(super) fn brightness(remote: bool) -> (Option<f64>, Vec<KeyEvent>) {
    if let Some(known) = std::env::var("COLORFGBG").ok().and_then(|value| of_colorfgbg(&value)) {
        return (Some(known), Vec::new());
    }
    if remote {
        return (None, Vec::new());
    }
    // The second question is answered by every terminal, so that the wait ends where the first is not understood.
    let mut out = std::io::stdout();
    if out.write_all(b"\x1b]11;?\x1b\\\x1b[c").and_then(|()| out.flush()).is_err() {
        return (None, Vec::new());
    }
    let answer = answer();
    (of_answer(&answer), typed(&answer))
}

/// Reads until the answer to the second question has come. Not through the buffer of [`std::io::stdin`]: what that holds
/// back, the reader of the keys never sees.
fn answer() -> Vec<u8> {
    let (mut answer, begun) = (Vec::new(), Instant::now());
    let stdin = std::io::stdin();
    while answer.len() < LONGEST && !is_answered(&answer) {
        let left = PATIENCE.saturating_sub(begun.elapsed());
        let Ok(left) = Timespec::try_from(left) else { break };
        let mut asked = [PollFd::new(&stdin, PollFlags::IN)];
        let ready = poll(&mut asked, Some(&left)).is_ok_and(|count| count > 0);
        let mut bytes = [0; LONGEST];
        match if ready { rustix::io::read(&stdin, &mut bytes) } else { Ok(0) } {
            Ok(count @ 1..) => answer.extend_from_slice(&bytes[..count.min(LONGEST)]),
            _ => break,
        }
    }
    answer
}

/// Returns whether the answer to the second question is there: `ESC [ ? … c`.
fn is_answered(bytes: &[u8]) -> bool {
    pieces(bytes).any(|piece| piece.starts_with(b"\x1b[?") && piece.ends_with(b"c"))
}

/// Splits bytes into escape sequences and what is between them.
fn pieces(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let length = match rest {
            [] => return None,
            [0x1b, b'[', parameters @ ..] => {
                parameters.iter().position(|byte| (0x40..=0x7e).contains(byte)).map(|at| at + 3)
            }
            [0x1b, b'O', _, ..] => Some(3),
            [0x1b, b']', text @ ..] => {
                let bell = text.iter().position(|byte| *byte == 0x07).map(|at| at + 3);
                let end = text.windows(2).position(|two| two == b"\x1b\\").map(|at| at + 4);
                bell.into_iter().chain(end).min()
            }
            [0x1b, ..] => Some(1),
            text => text.iter().position(|byte| *byte == 0x1b),
        };
        let (piece, after) = rest.split_at(length.unwrap_or(rest.len()));
        rest = after;
        Some(piece)
    })
}

/// Returns the keys among the answers. Sequences other than those of arrows are answers, or keys that are never pressed
/// within [`PATIENCE`].
fn typed(bytes: &[u8]) -> Vec<KeyEvent> {
    let key = |code| KeyEvent::new(code, KeyModifiers::NONE);
    let keys = |piece: &[u8]| match piece {
        [0x1b] => vec![key(KeyCode::Esc)],
        [0x1b, b'[' | b'O', b'A'] => vec![key(KeyCode::Up)],
        [0x1b, b'[' | b'O', b'B'] => vec![key(KeyCode::Down)],
        [0x1b, b'[' | b'O', b'C'] => vec![key(KeyCode::Right)],
        [0x1b, b'[' | b'O', b'D'] => vec![key(KeyCode::Left)],
        [0x1b, ..] => Vec::new(),
        text => String::from_utf8_lossy(text).chars().filter_map(of_char).collect(),
    };
    pieces(bytes).flat_map(keys).collect()
}

/// Returns the key of a character that a terminal sends.
fn of_char(sent: char) -> Option<KeyEvent> {
    let (code, modifiers) = match sent {
        '\r' => (KeyCode::Enter, KeyModifiers::NONE),
        '\t' => (KeyCode::Tab, KeyModifiers::NONE),
        '\x7f' => (KeyCode::Backspace, KeyModifiers::NONE),
        '\x01'..='\x1a' => (KeyCode::Char(char::from(sent as u8 - 1 + b'a')), KeyModifiers::CONTROL),
        sent if sent.is_control() => return None,
        sent if sent.is_uppercase() => (KeyCode::Char(sent), KeyModifiers::SHIFT),
        sent => (KeyCode::Char(sent), KeyModifiers::NONE),
    };
    Some(KeyEvent::new(code, modifiers))
}

/// Reads `rgb:1e1e/1e1e/1e1e`, in one to four hexadecimal digits a colour.
fn of_answer(answer: &[u8]) -> Option<f64> {
    let text = String::from_utf8_lossy(answer);
    let colours = text.split_once("rgb:")?.1;
    let colour = |text: &str| {
        let digits: String = text.chars().take_while(char::is_ascii_hexdigit).take(4).collect();
        let most = f64::from(16_u32.pow(u32::try_from(digits.len()).ok()?) - 1);
        u32::from_str_radix(&digits, 16).ok().map(|value| f64::from(value) / most)
    };
    let mut parts = colours.splitn(3, '/').map(colour);
    let (red, green, blue) = (parts.next()??, parts.next()??, parts.next()??);
    // ITU-R BT.601: the weights of the colours in what is seen as brightness.
    Some(0.299 * red + 0.587 * green + 0.114 * blue)
}

/// Reads the variable of rxvt, Konsole and others: foreground and background by number, `15;0`.
fn of_colorfgbg(value: &str) -> Option<f64> {
    match value.rsplit(';').next()?.parse::<u8>().ok()? {
        7 | 9..=15 => Some(1.0),
        0..=6 | 8 => Some(0.0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_terminals_are_read() {
        let close = |answer: &[u8], wanted: f64| {
            let seen = of_answer(answer).unwrap();
            assert!((seen - wanted).abs() < 0.01, "{seen}");
        };
        close(b"\x1b]11;rgb:ffff/ffff/ffff\x1b\\\x1b[?62c", 1.0);
        close(b"\x1b]11;rgb:00/00/00\x07\x1b[?1;2c", 0.0);
        close(b"\x1b]11;rgb:1d1d/2020/2626\x1b\\", 0.12);
        for answer in
            [&b""[..], b"\x1b[?1;2c", b"\x1b]11;rgb:\x1b\\", b"rgb:12", b"rgb:/12/12", b"\xff\xfergb:zz/1/1"]
        {
            assert_eq!(of_answer(answer), None, "{answer:?}");
        }
        assert_eq!(
            (of_colorfgbg("15;0"), of_colorfgbg("0;default;15"), of_colorfgbg("x")),
            (Some(0.0), Some(1.0), None)
        );
    }
    #[test]
    fn keys_among_the_answers_are_kept() {
        let bytes = b"jc\x1b]11;rgb:00/00/00\x1b\\K\x1b[B\x1b[?1;2c\r\x03";
        let keys: Vec<_> = typed(bytes).iter().map(|key| (key.code, key.modifiers)).collect();
        assert_eq!(
            keys,
            [
                (KeyCode::Char('j'), KeyModifiers::NONE),
                (KeyCode::Char('c'), KeyModifiers::NONE),
                (KeyCode::Char('K'), KeyModifiers::SHIFT),
                (KeyCode::Down, KeyModifiers::NONE),
                (KeyCode::Enter, KeyModifiers::NONE),
                (KeyCode::Char('c'), KeyModifiers::CONTROL),
            ]
        );
        assert!(is_answered(bytes));
        for partial in [&b"jc"[..], b"\x1b]11;rgb:cc/cc/cc\x1b\\", b"\x1b]11;rgb:0c", b"\x1b[?1;2", b"\x1b[c"]
        {
            assert!(!is_answered(partial), "{partial:?}");
        }
    }
}
