//! The tokens of previews: each allows one call, with the arguments that were shown, for a while.

use std::time::{Duration, Instant};

use weftrun::{Error, ErrorKind, Result};

/// How long a token is valid.
pub const VALID: Duration = Duration::from_mins(5);
/// Number of tokens that are kept; the oldest is forgotten first.
const MOST: usize = 8;

/// A preview that waits for its confirmation.
#[derive(Debug)]
struct Pending {
    token: String,
    argv: Vec<String>,
    document: String,
    until: Instant,
}

/// The previews that wait.
#[derive(Debug, Default)]
pub struct Tokens(Vec<Pending>);

impl Tokens {
    /// Keeps a preview under a token.
    pub fn keep(&mut self, token: String, argv: Vec<String>, document: String, now: Instant) {
        self.0.retain(|pending| pending.until > now);
        if self.0.len() >= MOST {
            self.0.remove(0);
        }
        self.0.push(Pending { token, argv, document, until: now + VALID });
    }

    /// Takes the document of a preview. The token is gone afterwards, whatever the answer is.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] for a token that is unknown, used or expired, or of other arguments.
    pub fn take(&mut self, token: &str, argv: &[String], now: Instant) -> Result<String> {
        let refused = |why: &str| {
            Err(Error::new(ErrorKind::Refused, format!("nothing was done: {why}"))
                .hint("call without `token` for a new preview"))
        };
        let Some(at) = self.0.iter().position(|pending| pending.token == token) else {
            return refused("the token is unknown or was used");
        };
        let pending = self.0.remove(at);
        if pending.until <= now {
            return refused("the token has expired");
        }
        if pending.argv != argv {
            return refused("the arguments are not those of the preview");
        }
        Ok(pending.document)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_of_one_use_of_its_arguments_and_expires() {
        let (now, mut tokens) = (Instant::now(), Tokens::default());
        let (argv, other) = (["a".to_owned()], ["b".to_owned()]);
        let keep = |tokens: &mut Tokens| tokens.keep("t".to_owned(), argv.to_vec(), "doc".to_owned(), now);
        keep(&mut tokens);
        assert_eq!(tokens.take("t", &argv, now).unwrap(), "doc");
        assert!(tokens.take("t", &argv, now).unwrap_err().to_string().contains("was used"));
        keep(&mut tokens);
        assert!(tokens.take("t", &other, now).unwrap_err().to_string().contains("not those of the preview"));
        assert!(tokens.take("t", &argv, now).is_err(), "a wrong use spends it");
        keep(&mut tokens);
        assert!(tokens.take("t", &argv, now + VALID).unwrap_err().to_string().contains("expired"));
    }

    #[test]
    fn few_are_kept() {
        let (now, mut tokens) = (Instant::now(), Tokens::default());
        for n in 0..20 {
            tokens.keep(n.to_string(), Vec::new(), String::new(), now);
        }
        assert_eq!(tokens.0.len(), MOST);
        assert!(tokens.take("19", &[], now).is_ok() && tokens.take("0", &[], now).is_err());
    }
}
