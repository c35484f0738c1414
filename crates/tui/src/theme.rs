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
    Frame,
}

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
    /// The brightest of the sixteen colours, and nothing dim.
    HighContrast,
}

impl Theme {
    pub const ALL: [Self; 6] =
        [Self::Default, Self::ColourBlind, Self::Dark, Self::Light, Self::HighContrast, Self::Mono];

    /// Returns the theme for a terminal whose background has this brightness, from 0 (black) to 1 (white). Without true
    /// colours it is that of the terminal's own sixteen.
    pub fn for_background(brightness: Option<f64>, true_colours: bool) -> Self {
        match brightness.filter(|_| true_colours) {
            Some(bright) if bright > 0.5 => Self::Light,
            Some(_) => Self::Dark,
            None => Self::Default,
        }
    }

    /// Its name in the config file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Mono => "mono",
            Self::ColourBlind => "colour-blind",
            Self::Dark => "dark",
            Self::Light => "light",
            Self::HighContrast => "high-contrast",
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

    pub fn style(self, meaning: Meaning) -> Style {
        let plain = Style::new();
        match meaning {
            Meaning::Selected => return plain.add_modifier(Modifier::REVERSED),
            // A frame dims its border, not its title.
            Meaning::Title => return plain.fg(Color::Reset).add_modifier(Modifier::BOLD),
            Meaning::Bad => return self.coloured(meaning).add_modifier(Modifier::BOLD),
            Meaning::Found => return self.coloured(meaning).add_modifier(Modifier::UNDERLINED),
            Meaning::Muted if self == Self::Mono => return plain,
            _ if self == Self::HighContrast && meaning != Meaning::Muted && meaning != Meaning::Frame => {
                return self.coloured(meaning).add_modifier(Modifier::BOLD);
            }
            _ => {}
        }
        self.coloured(meaning)
    }

    /// Returns the stable colour of a rank, one of eight that users who confuse colours can tell apart; none without
    /// colours.
    pub fn rank(self, rank: u32) -> Style {
        // Okabe, Ito, "Color Universal Design" (2008), https://jfly.uni-koeln.de/color/, without black, and a grey.
        const WHEEL: [u32; 8] = [
            0x00e6_9f00,
            0x0056_b4e9,
            0x0000_9e73,
            0x00cc_79a7,
            0x00f0_e442,
            0x0000_72b2,
            0x00d5_5e00,
            0x0099_9999,
        ];
        // The nearest of the sixteen colours of a terminal, none of which is the red of an error.
        const SIXTEEN: [Color; 8] = [
            Color::Yellow,
            Color::Cyan,
            Color::Green,
            Color::Magenta,
            Color::LightYellow,
            Color::Blue,
            Color::LightMagenta,
            Color::Gray,
        ];
        let at = rank as usize % WHEEL.len();
        match self {
            Self::Mono => Style::new(),
            Self::Default | Self::HighContrast => Style::new().fg(SIXTEEN[at]),
            Self::ColourBlind | Self::Dark | Self::Light => {
                let [_, red, green, blue] = WHEEL[at].to_be_bytes();
                Style::new().fg(Color::Rgb(red, green, blue))
            }
        }
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
            (Self::HighContrast, M::Good | M::Added) => Some(Color::LightGreen),
            (Self::HighContrast, M::Warn | M::Found) => Some(Color::LightYellow),
            (Self::HighContrast, M::Bad | M::Removed) => Some(Color::LightRed),
            (Self::HighContrast, M::Busy | M::Key) => Some(Color::LightCyan),
            (Self::HighContrast, M::Muted | M::Frame) => None,
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
