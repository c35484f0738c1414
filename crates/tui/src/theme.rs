//! The meanings of colors. Code names a meaning, never a color; and color is never the only sign of a
//! meaning.

use ratatui::style::{Color, Modifier, Style};

/// What a piece of text means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// As intended.
    Good,
    /// Works, but not as intended.
    Warn,
    /// Does not work.
    Bad,
    /// Under way.
    Busy,
    /// Less important.
    Muted,
    /// Titles.
    Title,
    /// Keys in the footer and in the help.
    Key,
    /// The line or cell under the cursor.
    Selected,
    /// Where a search found its text.
    Found,
    /// A line that is added.
    Added,
    /// A line that is removed.
    Removed,
    /// Frames.
    Frame,
}

/// A theme.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Theme {
    /// The terminal's own sixteen colours.
    #[default]
    Default,
    /// No colours at all (`NO_COLOR`).
    Mono,
    /// Blue and orange, for users who cannot distinguish red from green.
    ColourBlind,
    /// True colours on a dark ground.
    Dark,
    /// True colours on a light ground.
    Light,
}

impl Theme {
    /// All themes.
    pub const ALL: [Self; 5] = [Self::Default, Self::ColourBlind, Self::Dark, Self::Light, Self::Mono];

    /// Its name in the config file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Mono => "mono",
            Self::ColourBlind => "colour-blind",
            Self::Dark => "dark",
            Self::Light => "light",
        }
    }

    /// The theme of a name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|theme| theme.name() == name)
    }

    /// The theme behind this one.
    #[must_use]
    pub fn next(self) -> Self {
        let at = Self::ALL.iter().position(|theme| *theme == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()]
    }

    /// How a meaning looks.
    pub fn style(self, meaning: Meaning) -> Style {
        let plain = Style::new();
        match meaning {
            Meaning::Selected => return plain.add_modifier(Modifier::REVERSED),
            Meaning::Title | Meaning::Bad => return self.coloured(meaning).add_modifier(Modifier::BOLD),
            Meaning::Found => return self.coloured(meaning).add_modifier(Modifier::UNDERLINED),
            Meaning::Muted if self == Self::Mono => return plain,
            _ => {}
        }
        self.coloured(meaning)
    }

    fn coloured(self, meaning: Meaning) -> Style {
        match self.colour(meaning) {
            Some(colour) => Style::new().fg(colour),
            None => Style::new(),
        }
    }

    fn colour(self, meaning: Meaning) -> Option<Color> {
        use Meaning as M;
        let rgb = |hex: u32| {
            let [_, r, g, b] = hex.to_be_bytes();
            Some(Color::Rgb(r, g, b))
        };
        match (self, meaning) {
            (Self::Mono, _) | (_, M::Selected | M::Title) => None,
            (Self::Default, M::Good | M::Added) => Some(Color::Green),
            (Self::Default, M::Warn | M::Found) => Some(Color::Yellow),
            (Self::Default, M::Bad | M::Removed) => Some(Color::Red),
            (Self::Default, M::Busy | M::Key) => Some(Color::Cyan),
            (Self::Default | Self::ColourBlind, M::Muted | M::Frame) => Some(Color::DarkGray),
            // Wong, "Points of view: Color blindness", Nature Methods 8, 441 (2011).
            (Self::ColourBlind, M::Good | M::Added | M::Key) => rgb(0x0000_72b2),
            (Self::ColourBlind, M::Warn | M::Found) => rgb(0x00f0_e442),
            (Self::ColourBlind, M::Bad | M::Removed) => rgb(0x00d5_5e00),
            (Self::ColourBlind, M::Busy) => rgb(0x0056_b4e9),
            (Self::Dark, M::Good | M::Added) => rgb(0x008f_c97e),
            (Self::Dark, M::Warn | M::Found) => rgb(0x00e5_c07b),
            (Self::Dark, M::Bad | M::Removed) => rgb(0x00e8_6671),
            (Self::Dark, M::Busy | M::Key) => rgb(0x006c_b6eb),
            (Self::Dark, M::Muted | M::Frame) => rgb(0x006b_7280),
            (Self::Light, M::Good | M::Added) => rgb(0x001a_7f37),
            (Self::Light, M::Warn | M::Found) => rgb(0x009a_6700),
            (Self::Light, M::Bad | M::Removed) => rgb(0x00cf_222e),
            (Self::Light, M::Busy | M::Key) => rgb(0x0009_69da),
            (Self::Light, M::Muted | M::Frame) => rgb(0x0065_6d76),
        }
    }
}
