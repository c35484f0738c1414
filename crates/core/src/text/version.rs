//! Versions of libraries.

/// Returns the numbers of a version (`2.31-0ubuntu9` is 2 and 31), to be compared.
pub fn numbers(version: &str) -> Vec<u64> {
    let plain =
        version.find(|c: char| !c.is_ascii_digit() && c != '.').map_or(version, |end| &version[..end]);
    plain.split('.').map_while(|part| part.parse().ok()).collect()
}
