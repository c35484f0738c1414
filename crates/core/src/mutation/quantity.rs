//! Kubernetes quantities: `32`, `5Gi`, `500m`, `1e3`.

/// A quantity, in thousandths so that `500m` is exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity(i128);

impl Quantity {
    /// Reads a quantity; none if it is not one.
    ///
    /// ```
    /// use weftrun_core::mutation::Quantity;
    /// assert_eq!(Quantity::parse("5Gi"), Quantity::parse("5120Mi"));
    /// assert_eq!(Quantity::parse("32").map(Quantity::whole), Some(32));
    /// assert_eq!(Quantity::parse("$EFA_PER_NODE"), None);
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let split = text.find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-')).unwrap_or(text.len());
        let (number, suffix) = text.split_at(split);
        let thousandths = decimal_thousandths(number)?;
        if suffix == "m" {
            return Some(Self(thousandths / 1000));
        }
        thousandths.checked_mul(multiplier(suffix)?).map(Self)
    }

    /// The number of whole units, rounded down; 0 below zero.
    pub fn whole(self) -> u64 {
        u64::try_from(self.0 / 1000).unwrap_or(0)
    }

    /// Whether it is nothing.
    pub fn is_zero(self) -> bool {
        self.0 == 0
    }
}

/// `12.5` as 12500. Digits behind the third are dropped, as nothing here is that small.
fn decimal_thousandths(text: &str) -> Option<i128> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let only_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !only_digits(whole) || !only_digits(fraction) {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()?.into() };
    let fraction: i128 = format!("{fraction:0<3}").get(..3)?.parse().ok()?;
    let value = whole * 1000 + fraction;
    Some(if negative { -value } else { value })
}

fn multiplier(suffix: &str) -> Option<i128> {
    const KI: i128 = 1024;
    Some(match suffix {
        "" => 1,
        "k" => 1000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "P" => 1_000_000_000_000_000,
        "Ki" => KI,
        "Mi" => KI.pow(2),
        "Gi" => KI.pow(3),
        "Ti" => KI.pow(4),
        "Pi" => KI.pow(5),
        "E" => 1_000_000_000_000_000_000,
        "Ei" => KI.pow(6),
        exponent => return power_of_ten(exponent),
    })
}

/// The `e3` of `1e3`.
fn power_of_ten(suffix: &str) -> Option<i128> {
    let exponent: u32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    if exponent > 18 { None } else { Some(10_i128.pow(exponent)) }
}
