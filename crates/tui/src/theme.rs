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
    /// Not as intended, and not the worst of the screen.
    Wrong,
    /// The worst of the screen: nothing else on it has this colour.
    Bad,
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
    /// All of them, with their names in the config file.
    pub const NAMES: [(Self, &'static str); 6] = [
        (Self::Default, "default"),
        (Self::ColourBlind, "colour-blind"),
        (Self::Dark, "dark"),
        (Self::Light, "light"),
        (Self::HighContrast, "high-contrast"),
        (Self::Mono, "mono"),
    ];

    /// Returns the theme for a terminal whose background has this brightness, from 0 (black) to 1 (white). Without true
    /// colours it is that of the terminal's own sixteen.
    pub fn for_background(brightness: Option<f64>, true_colours: bool) -> Self {
        match brightness.filter(|_| true_colours) {
            Some(bright) if bright > 0.5 => Self::Light,
            Some(_) => Self::Dark,
            None => Self::Default,
        }
    }

    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(theme, _)| *theme == self).map_or("", |(_, name)| name)
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::NAMES.into_iter().find(|(_, known)| *known == name).map(|(theme, _)| theme)
    }

    /// Returns the next theme.
    #[must_use]
    pub fn next(self) -> Self {
        crate::model::next(&Self::NAMES, |(theme, _)| *theme == self).0
    }

    pub fn style(self, meaning: Meaning) -> Style {
        let plain = Style::new();
        match meaning {
            Meaning::Selected => return plain.add_modifier(Modifier::REVERSED),
            Meaning::Title => return plain.fg(Color::Reset).add_modifier(Modifier::BOLD),
            Meaning::Bad | Meaning::Wrong => return self.coloured(meaning).add_modifier(Modifier::BOLD),
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
        // The wheel darker, to be read on a light ground.
        const ON_LIGHT: [u32; 8] = [
            0x008f_6300,
            0x0035_7091,
            0x0000_6247,
            0x0087_4f6f,
            0x007a_7420,
            0x0000_4770,
            0x0085_3a00,
            0x005f_5f5f,
        ];
        let at = rank as usize % WHEEL.len();
        match self {
            Self::Mono => Style::new(),
            Self::Default | Self::HighContrast => Style::new().fg(SIXTEEN[at]),
            Self::ColourBlind | Self::Dark => Style::new().fg(rgb(WHEEL[at])),
            Self::Light => Style::new().fg(rgb(ON_LIGHT[at])),
        }
    }

    fn coloured(self, meaning: Meaning) -> Style {
        Style { fg: self.colour(meaning), ..Style::new() }
    }

    fn colour(self, meaning: Meaning) -> Option<Color> {
        use Color as C;
        let [good, warn, bad, busy, key, muted] = match self {
            Self::Mono => [None; 6],
            Self::Default => [C::Green, C::Yellow, C::Red, C::Cyan, C::Cyan, C::DarkGray].map(Some),
            Self::HighContrast => {
                let [good, warn, bad, busy] =
                    [C::LightGreen, C::LightYellow, C::LightRed, C::LightCyan].map(Some);
                [good, warn, bad, busy, busy, None]
            }
            // Wong, "Points of view: Color blindness", Nature Methods 8, 441 (2011).
            Self::ColourBlind => {
                let [blue, yellow, vermilion, sky] =
                    [0x0000_72b2, 0x00f0_e442, 0x00d5_5e00, 0x0056_b4e9].map(rgb);
                [blue, yellow, vermilion, sky, blue, C::DarkGray].map(Some)
            }
            Self::Dark => [0x008f_c97e, 0x00e5_c07b, 0x00e8_6671, 0x006c_b6eb, 0x006c_b6eb, 0x006b_7280]
                .map(|hex| Some(rgb(hex))),
            Self::Light => [0x001a_7f37, 0x009a_6700, 0x00cf_222e, 0x0009_69da, 0x0009_69da, 0x0065_6d76]
                .map(|hex| Some(rgb(hex))),
        };
        match meaning {
            Meaning::Good | Meaning::Added => good,
            Meaning::Warn | Meaning::Wrong | Meaning::Found => warn,
            Meaning::Bad | Meaning::Removed => bad,
            Meaning::Busy => busy,
            Meaning::Key => key,
            Meaning::Muted | Meaning::Frame => muted,
            Meaning::Selected | Meaning::Title => None,
        }
    }
}

fn rgb(hex: u32) -> Color {
    let [_, red, green, blue] = hex.to_be_bytes();
    Color::Rgb(red, green, blue)
}
