//! Random numbers that no other process draws.

use weftrun_core::{Error, ErrorKind, Result};

/// Returns random bits of the operating system. A generator of this process does not serve for names and ids: after `fork`, parent
/// and children draw the same numbers from it.
///
/// # Errors
/// [`ErrorKind::Io`] if the system gives none.
pub fn bits() -> Result<u128> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        Error::new(ErrorKind::Io, "the operating system gives no random numbers").with_source(error)
    })?;
    Ok(u128::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_two_are_equal() {
        let drawn: std::collections::BTreeSet<u128> = (0..1000).map(|_| super::bits().unwrap()).collect();
        assert_eq!(drawn.len(), 1000);
    }
}
