//! Kubernetes quantities, exact: `32`, `5Gi`, `500m`, `1.5`, `1e3`.
//!
//! The grammar is Kubernetes' own (`apimachinery/pkg/api/resource/quantity.go`, read 2026-11): a decimal
//! number, then nothing, a decimal suffix, a binary suffix or an exponent. `5GB` is none of them, and its
//! meaning is not guessed.

/// A quantity, in thousandths, so that `500m` is exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity(i128);

/// Suffixes with their values, in thousandths.
const SUFFIXES: [(&str, i128); 14] = [
    ("m", 1),
    ("", 1000),
    ("k", 1_000_000),
    ("M", 1_000_000_000),
    ("G", 1_000_000_000_000),
    ("T", 1_000_000_000_000_000),
    ("P", 1_000_000_000_000_000_000),
    ("E", 1_000_000_000_000_000_000_000),
    ("Ki", 1000 << 10),
    ("Mi", 1000 << 20),
    ("Gi", 1000 << 30),
    ("Ti", 1000 << 40),
    ("Pi", 1000 << 50),
    ("Ei", 1000 << 60),
];

/// More digits than any quantity has; keeps the arithmetic far from its limits.
const MAX_DIGITS: usize = 15;

impl Quantity {
    /// Reads a quantity; none if it is not one.
    ///
    /// ```
    /// use weftrun_core::text::Quantity;
    /// assert_eq!(Quantity::parse("5Gi"), Quantity::parse("5120Mi"));
    /// assert_eq!(Quantity::parse("32").map(Quantity::whole), Some(32));
    /// assert_eq!(Quantity::parse("5GB"), None);
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        Self::read(text).ok()
    }

    /// Reads a quantity, or returns what is wrong with it and what was probably meant.
    ///
    /// # Errors
    /// A sentence for the user, and the quantities that may have been meant, where there are any.
    pub fn read(text: &str) -> Result<Self, NotAQuantity> {
        let split = text.find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-')).unwrap_or(text.len());
        let (number, suffix) = text.split_at(split);
        let wrong = |meant: Vec<String>| NotAQuantity { text: text.to_owned(), meant };
        let Some((digits, places)) = decimal(number) else { return Err(wrong(Vec::new())) };
        let scaled = |unit: i128| {
            // Rounded up, as Kubernetes rounds what is finer than it can hold.
            let whole = digits * unit;
            let divisor = 10_i128.pow(places);
            Self(whole.div_euclid(divisor) + i128::from(whole.rem_euclid(divisor) != 0))
        };
        if let Some((_, unit)) = SUFFIXES.iter().find(|(known, _)| *known == suffix) {
            return Ok(scaled(*unit));
        }
        match exponent(suffix) {
            Some(power) => Ok(scaled(1000 * 10_i128.pow(power))),
            None => Err(wrong(meant(number, suffix))),
        }
    }

    /// Returns the number of whole units, rounded down; 0 below zero.
    pub fn whole(self) -> u64 {
        u64::try_from(self.0.div_euclid(1000)).unwrap_or(if self.0 < 0 { 0 } else { u64::MAX })
    }

    /// Returns whether it is zero.
    pub fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Returns whether it is below zero.
    pub fn is_negative(self) -> bool {
        self.0 < 0
    }

    /// Returns whether it has a fraction of a unit.
    pub fn is_fraction(self) -> bool {
        self.0 % 1000 != 0
    }

    /// Makes the quantity of a number of MiB.
    pub fn mib(count: u64) -> Self {
        Self(i128::from(count) * (1000 << 20))
    }

    /// Makes the quantity of a whole number.
    pub fn units(count: u64) -> Self {
        Self(i128::from(count) * 1000)
    }
}

/// A text that is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAQuantity {
    text: String,
    meant: Vec<String>,
}

impl NotAQuantity {
    /// Returns the quantities that may have been meant.
    pub fn meant(&self) -> &[String] {
        &self.meant
    }
}

impl std::fmt::Display for NotAQuantity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown: String = self.text.chars().take(40).collect();
        write!(f, "`{shown}` is not a quantity")
    }
}

impl std::error::Error for NotAQuantity {}

/// Returns the digits of a decimal number, and how many of them are after the point.
fn decimal(text: &str) -> Option<(i128, u32)> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = [whole, fraction].concat();
    if all.is_empty() || all.len() > MAX_DIGITS || !all.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((sign * all.parse::<i128>().ok()?, u32::try_from(fraction.len()).ok()?))
}

/// Reads the `e3` of `1e3`.
fn exponent(suffix: &str) -> Option<u32> {
    let power: u32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    (power <= 18).then_some(power)
}

/// Returns what a wrong suffix may have meant: `GB` and `gb` can be `G` or `Gi`, `GiB` is `Gi`, a space is
/// none.
fn meant(number: &str, suffix: &str) -> Vec<String> {
    let bare = suffix.trim();
    let letters = bare.strip_suffix(['B', 'b']).filter(|rest| !rest.is_empty()).unwrap_or(bare);
    let mut letters = letters.chars();
    let first = letters.next().map(|c| c.to_ascii_uppercase());
    let Some(prefix) = first.filter(|prefix| "KMGTP".contains(*prefix)) else { return Vec::new() };
    let decimal = if prefix == 'K' { 'k' } else { prefix };
    match letters.as_str() {
        "" => vec![format!("{number}{decimal}"), format!("{number}{prefix}i")],
        "i" | "I" => vec![format!("{number}{prefix}i")],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_kubernetes_reads_exactly() {
        for (text, thousandths) in [
            ("0", 0),
            ("32", 32_000),
            ("250m", 250),
            ("1.5", 1500),
            (".5", 500),
            ("5.", 5000),
            ("+3", 3000),
            ("-1", -1000),
            ("1e3", 1_000_000),
            ("1E3", 1_000_000),
            ("1E", 1_000_000_000_000_000_000_000),
            ("5G", 5_000_000_000_000),
            ("5Gi", 5_368_709_120_000),
            ("1.5Gi", 1_610_612_736_000),
            ("0.0001", 1),
            ("1800Gi", 1_932_735_283_200_000),
        ] {
            assert_eq!(Quantity::parse(text), Some(Quantity(thousandths)), "{text}");
        }
    }

    #[test]
    fn refuses_the_rest_and_says_what_was_meant() {
        for (text, meant) in [
            ("5GB", vec!["5G", "5Gi"]),
            ("5gb", vec!["5G", "5Gi"]),
            ("5g", vec!["5G", "5Gi"]),
            ("64 Gi", vec!["64Gi"]),
            ("64GiB", vec!["64Gi"]),
            ("512mb", vec!["512M", "512Mi"]),
            ("100K", vec!["100k", "100Ki"]),
            ("", vec![]),
            ("all", vec![]),
            ("1..2", vec![]),
            ("1e99", vec![]),
            ("1234567890123456", vec![]),
            ("$MEMORY", vec![]),
            ("5Gx", vec![]),
        ] {
            assert_eq!(Quantity::read(text).unwrap_err().meant(), meant, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn never_panics(text in "\\PC{0,24}") {
            let _ = Quantity::read(&text);
        }

        #[test]
        fn order_is_the_numbers_order(a in 0_u32.., b in 0_u32..) {
            let (qa, qb) = (Quantity::parse(&format!("{a}Mi")), Quantity::parse(&format!("{b}Mi")));
            proptest::prop_assert_eq!(qa.cmp(&qb), a.cmp(&b));
        }
    }
}
