//! Suggestions for misspelt words, and numbers with their noun or unit.

/// Returns the known word nearest to a misspelt one, if one is near enough.
///
/// ```
/// use weftrun_core::text::did_you_mean;
/// assert_eq!(did_you_mean("gpu_per_node", ["nodes", "gpus_per_node"]), Some("gpus_per_node"));
/// assert_eq!(did_you_mean("colour", ["nodes", "gpus_per_node"]), None);
/// ```
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // The distance is quadratic in the length, and words this long are never misspellings.
    if word.len() > 100 {
        return None;
    }
    let allowed = (word.len() / 3).clamp(1, 3);
    let word = normal(word);
    known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&word, &normal(candidate)), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Returns the question after the nearest known word, if one is near enough: ``did you mean `nodes`?``.
pub fn suggestion<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    did_you_mean(word, known).map(|near| format!("did you mean `{near}`?"))
}

/// Returns a common form: `gpusPerNode`, `gpus-per-node` and `GPUS_PER_NODE` are the same word in three
/// styles.
fn normal(word: &str) -> String {
    let mut out = String::with_capacity(word.len() + 4);
    let mut lower = false;
    for c in word.chars() {
        if c.is_uppercase() && lower {
            out.push('_');
        }
        lower = c.is_lowercase() || c.is_ascii_digit();
        out.extend(if c == '-' { '_' } else { c }.to_lowercase());
    }
    out
}

/// Returns a number with its noun in singular or plural.
///
/// ```
/// use weftrun_core::text::counted;
/// assert_eq!(counted(1, "process"), "1 process");
/// assert_eq!(counted(0, "process"), "0 processes");
/// assert_eq!(counted(2, "error"), "2 errors");
/// ```
pub fn counted(number: usize, noun: &str) -> String {
    let ending = match number {
        1 => "",
        _ if noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{number} {noun}{ending}")
}

/// Returns names as a list, of which the first `most` are named and the others counted.
///
/// ```
/// use weftrun_core::text::listed;
/// assert_eq!(listed(["a", "b"], 4), "a, b");
/// assert_eq!(listed(0..9, 2), "0, 1 and 7 more");
/// ```
pub fn listed<T: ToString>(names: impl IntoIterator<Item = T>, most: usize) -> String {
    let mut names = names.into_iter();
    let named: Vec<String> = names.by_ref().take(most).map(|name| name.to_string()).collect();
    match names.count() {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

/// Returns a size in the largest binary unit that divides it.
///
/// ```
/// use weftrun_core::text::binary_size;
/// assert_eq!(binary_size(1 << 30), "1 GiB");
/// assert_eq!(binary_size(1536 << 10), "1536 KiB");
/// assert_eq!(binary_size(1000), "1000 B");
/// ```
pub fn binary_size(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let fits = |(shift, _): &(u32, &str)| bytes > 0 && bytes.trailing_zeros() >= *shift;
    match units.into_iter().find(fits) {
        Some((shift, unit)) => format!("{} {unit}", bytes >> shift),
        None => format!("{bytes} B"),
    }
}

/// Returns a size that need not be a whole number of its unit.
///
/// ```
/// use weftrun_core::text::rounded_size;
/// assert_eq!(rounded_size(64 << 20), "64 MiB");
/// assert_eq!(rounded_size(1_600_000), "1.5 MiB");
/// ```
pub fn rounded_size(bytes: u64) -> String {
    let power = bytes.max(1).ilog2() / 10 * 10;
    if bytes.trailing_zeros() >= power || power > 50 {
        return binary_size(bytes);
    }
    let unit = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"].get(power as usize / 10).unwrap_or(&"B");
    format!("{:.1} {unit}", bytes as f64 / (1_u64 << power) as f64)
}

/// Implements `FromStr` of an enum by its `as_str` and `ALL`. The error names the nearest word.
macro_rules! words {
    ($type:ty, $what:literal) => {
        impl std::str::FromStr for $type {
            type Err = $crate::Error;

            fn from_str(text: &str) -> $crate::Result<Self> {
                Self::ALL
                    .into_iter()
                    .find(|value| value.as_str() == text)
                    .ok_or_else(|| $crate::text::unknown_word($what, text, &Self::ALL.map(Self::as_str)))
            }
        }
    };
}
pub(crate) use words;

/// Returns the error of a word that is none of the known ones.
pub(crate) fn unknown_word(what: &str, text: &str, known: &[&str]) -> crate::Error {
    let hint = suggestion(text, known.iter().copied());
    crate::Error::new(crate::ErrorKind::Usage, format!("unknown {what} `{text}`"))
        .hint(hint.unwrap_or_else(|| format!("use one of {}", known.join(", "))))
}
