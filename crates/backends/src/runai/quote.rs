//! An argv as the API's one string. The server splits it like a shell, and Kubernetes then expands `$(NAME)`.

use weftrun_core::{Error, ErrorKind, Result};

/// Longest text of command or arguments that is known to arrive (NeMo-Run issue 478, 2026-04).
pub const LONGEST: usize = 10_000;

/// Joins words so that they come back as they are. `$(` of the user's own becomes `$$(`, which Kubernetes turns back;
/// with `expand` it stays, for the few values that only the pod knows.
///
/// # Errors
/// [`ErrorKind::InvalidSpec`] for a word with a NUL byte.
pub fn join(words: &[String], expand: bool) -> Result<String> {
    let escaped: Vec<String> =
        words.iter().map(|word| if expand { word.clone() } else { word.replace("$(", "$$(") }).collect();
    shlex::try_join(escaped.iter().map(String::as_str)).map_err(|_| {
        Error::new(ErrorKind::InvalidSpec, "an argument holds a NUL byte, which no command line can carry")
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn words_come_back_as_they_are(words in proptest::collection::vec("[^\\x00]{0,20}", 1..6)) {
            let joined = join(&words, false).unwrap();
            let back: Vec<String> = shlex::split(&joined).unwrap();
            let expanded: Vec<String> = back.iter().map(|word| word.replace("$$(", "$(")).collect();
            let original: Vec<String> = words.iter().map(|w| w.replace("$(", "$$(").replace("$$(", "$(")).collect();
            prop_assert_eq!(expanded, original);
        }
    }

    #[test]
    fn what_kubernetes_would_expand_is_kept_literal() {
        assert_eq!(join(&["echo".into(), "$(RANK) it's".into()], false).unwrap(), "echo \"\\$\\$(RANK) it's\"");
        assert!(join(&["a\0b".into()], false).is_err());
    }
}
