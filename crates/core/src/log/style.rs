//! The colours of a rank's text, separate from the text.

/// A colour as a rank named it; the terminal's own palette decides how the first sixteen look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Colour {
    /// Number in the terminal's palette; 0 to 15 are the named ones.
    Indexed(u8),
    /// Red, green, blue.
    Rgb(u8, u8, u8),
}

/// The appearance of a piece of text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Style {
    /// Colour of the letters.
    pub foreground: Option<Colour>,
    /// Colour behind them.
    pub background: Option<Colour>,
    /// Bold.
    pub bold: bool,
    /// Faint.
    pub dim: bool,
    /// Italic.
    pub italic: bool,
    /// Underlined.
    pub underline: bool,
    /// Foreground and background swapped.
    pub reverse: bool,
}

impl Style {
    /// Applies the parameters of one SGR sequence (the text between `ESC [` and `m`). Unknown ones are
    /// ignored.
    pub(super) fn apply_sgr(&mut self, parameters: &str) {
        let mut numbers =
            parameters.split([';', ':']).map(|n| if n.is_empty() { Some(0) } else { n.parse::<u16>().ok() });
        while let Some(number) = numbers.next() {
            match number {
                Some(0) => *self = Self::default(),
                Some(1) => self.bold = true,
                Some(2) => self.dim = true,
                Some(3) => self.italic = true,
                Some(4) => self.underline = true,
                Some(7) => self.reverse = true,
                Some(22) => (self.bold, self.dim) = (false, false),
                Some(23) => self.italic = false,
                Some(24) => self.underline = false,
                Some(27) => self.reverse = false,
                Some(n @ 30..=37) => self.foreground = indexed(n - 30),
                Some(38) => self.foreground = extended(&mut numbers).or(self.foreground),
                Some(39) => self.foreground = None,
                Some(n @ 40..=47) => self.background = indexed(n - 40),
                Some(48) => self.background = extended(&mut numbers).or(self.background),
                Some(49) => self.background = None,
                Some(n @ 90..=97) => self.foreground = indexed(n - 82),
                Some(n @ 100..=107) => self.background = indexed(n - 92),
                _ => {}
            }
        }
    }
}

fn indexed(number: u16) -> Option<Colour> {
    u8::try_from(number).ok().map(Colour::Indexed)
}

fn extended(numbers: &mut impl Iterator<Item = Option<u16>>) -> Option<Colour> {
    let mut byte = || numbers.next().flatten().and_then(|n| u8::try_from(n).ok());
    match byte()? {
        5 => byte().map(Colour::Indexed),
        2 => Some(Colour::Rgb(byte()?, byte()?, byte()?)),
        _ => None,
    }
}
