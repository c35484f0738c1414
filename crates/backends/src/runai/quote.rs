//! An argv as the API's one string, which the server splits like a shell.

use weftrun_core::{Error, ErrorKind, Result};

/// Longest text of command or arguments that is known to arrive (NeMo-Run issue 478, 2026-04).
pub const LONGEST: usize = 10_000;

/// Joins words so that they come back as they are.
///
/// # Errors
/// [`ErrorKind::InvalidSpec`] for a word with a NUL byte.
pub fn join(words: &[String]) -> Result<String> {
    shlex::try_join(words.iter().map(String::as_str)).map_err(|_| {
        Error::new(ErrorKind::InvalidSpec, "an argument holds a NUL byte, which no command line can carry")
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn words_come_back_as_they_are(words in proptest::collection::vec("([^\\x00]|[$(])*", 1..6)) {
            prop_assert_eq!(shlex::split(&join(&words).unwrap()).unwrap(), words);
        }
    }

    #[test]
    fn a_word_with_a_nul_byte_is_refused() {
        assert!(join(&["a\0b".into()]).is_err());
    }
}
