//! JSON Web Tokens for slurmrestd: from a variable, a file or a command.

use std::path::PathBuf;

use serde_json::Value;
use tokio::sync::Mutex;
use weftrun_core::backend::TargetConfig;
use weftrun_core::secret::Secret;
use weftrun_core::{Error, ErrorKind, Result};

use crate::slurm::config::SlurmTarget;

/// The variable that Slurm's own commands read a token from.
const VARIABLE: &str = "SLURM_JWT";
/// Seconds before its expiry when a token is renewed.
const MARGIN: i64 = 30;
/// Longest token file that is read.
const MOST: u64 = 64 << 10;

/// A token and its user.
#[derive(Clone, Debug)]
pub struct Token {
    /// The token itself.
    pub secret: Secret,
    pub user: String,
    /// The expiry that the token claims, in epoch seconds.
    ends: Option<i64>,
}

impl Token {
    /// Returns whether it has expired.
    pub fn has_ended(&self) -> bool {
        self.ends.is_some_and(|ends| ends <= crate::clock::now().as_second())
    }
}

/// The source of tokens.
#[derive(Debug)]
enum From {
    Variable(Secret),
    File(PathBuf),
    Command(Vec<String>),
}

/// The tokens of one target.
#[derive(Debug)]
pub struct Tokens {
    from: From,
    user: Option<String>,
    caller: Option<String>,
    kept: Mutex<Option<Token>>,
}

impl Tokens {
    /// Creates the tokens of a target; runs no command yet.
    pub fn new(target: &TargetConfig, settings: &SlurmTarget) -> Result<Self> {
        let from = if !settings.token_command.is_empty() {
            From::Command(settings.token_command.clone())
        } else if let Some(file) = &settings.token_file {
            From::File(file.clone())
        } else {
            let name = settings.token_env.as_deref().unwrap_or(VARIABLE);
            let text = target.env.get(name).map(|text| text.trim()).filter(|text| !text.is_empty());
            From::Variable(Secret::new(text.ok_or_else(|| {
                Error::new(ErrorKind::Credentials, format!("target `{}`: {name} holds no token", target.name))
                    .hint("`export $(scontrol token lifespan=28800)` on the cluster prints and sets one")
                    .hint("or set `token-command`, `token-file` or `token-env` in the target's table")
            })?))
        };
        let caller = ["USER", "LOGNAME"].iter().find_map(|name| target.env.get(*name).cloned());
        Ok(Self { from, user: settings.rest_user.clone(), caller, kept: Mutex::new(None) })
    }

    /// Returns whether fetching again may give another token.
    pub fn renews(&self) -> bool {
        !matches!(self.from, From::Variable(_))
    }

    /// Makes the next request fetch a token.
    pub async fn forget(&self) {
        *self.kept.lock().await = None;
    }

    /// Returns a valid token.
    pub async fn current(&self) -> Result<Token> {
        let mut kept = self.kept.lock().await;
        let soon = crate::clock::now().as_second() + MARGIN;
        if let Some(token) = kept.as_ref().filter(|token| token.ends.is_none_or(|ends| ends > soon)) {
            return Ok(token.clone());
        }
        let token = self.read(&self.fetch().await?)?;
        *kept = Some(token.clone());
        Ok(token)
    }

    async fn fetch(&self) -> Result<Secret> {
        let text = match &self.from {
            From::Variable(secret) => return Ok(secret.clone()),
            From::File(file) => file_text(file)?,
            From::Command(argv) => {
                let hint = "run it by hand: it must print the token, or `SLURM_JWT=…`, as its last line";
                crate::helper::token(argv, hint).await?
            }
        };
        // `scontrol token` prints `SLURM_JWT=…`.
        let word = text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
        Ok(Secret::new(word.strip_prefix("SLURM_JWT=").unwrap_or(word)))
    }

    fn read(&self, secret: &Secret) -> Result<Token> {
        let plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        let text = secret.expose();
        let text = text.strip_prefix("SLURM_JWT=").unwrap_or(text);
        if !plain(text) {
            return Err(Error::new(ErrorKind::Credentials, "the token for slurmrestd is not one word"));
        }
        let claims = crate::requests::claims(text);
        // `sun` is Slurm's own claim (slurm.schedmd.com/jwt.html); tokens of other issuers have `username`.
        let named = ["sun", "username"].iter().find_map(|key| claims.get(key)?.as_str().map(str::to_owned));
        let user = self.user.clone().or(named).or_else(|| self.caller.clone()).filter(|user| plain(user));
        let user = user.ok_or_else(|| {
            Error::new(ErrorKind::InvalidConfig, "the token has no user name (`sun`)")
                .hint("set `rest-user` in the target's table")
        })?;
        Ok(Token { secret: Secret::new(text), user, ends: claims.get("exp").and_then(Value::as_i64) })
    }
}

fn file_text(file: &std::path::Path) -> Result<String> {
    crate::files::read_text(file, MOST).map_err(|cause| {
        Error::new(ErrorKind::Credentials, format!("cannot read the token file {}: {cause}", file.display()))
            .with_source(cause)
    })
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;

    use super::*;

    fn tokens(settings: &SlurmTarget, env: &[(&str, &str)]) -> Result<Tokens> {
        let mut target = TargetConfig::new("t", "slurm", "/state");
        target.env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Tokens::new(&target, settings)
    }

    fn jwt(claims: &str) -> String {
        let engine = base64::engine::general_purpose::URL_SAFE_NO_PAD;
        format!("e30.{}.c2ln", engine.encode(claims))
    }

    #[tokio::test]
    async fn a_token_says_whose_it_is_and_when_it_ends() {
        let jwt = jwt(r#"{"exp":1,"iat":0,"sun":"researcher"}"#);
        let token = tokens(&SlurmTarget::default(), &[("SLURM_JWT", &jwt)]).unwrap().current().await.unwrap();
        assert_eq!((token.user.as_str(), token.has_ended()), ("researcher", true));
        assert!(!format!("{token:?}").contains("c2ln"), "it is not printed");
        let opaque = tokens(&SlurmTarget::default(), &[("SLURM_JWT", "opaque")]).unwrap();
        assert_eq!(opaque.current().await.unwrap_err().kind(), ErrorKind::InvalidConfig);
    }

    #[tokio::test]
    async fn a_command_may_print_what_scontrol_prints() {
        let settings = SlurmTarget {
            token_command: ["sh", "-c", "echo Welcome; echo SLURM_JWT=a.b.c"].map(str::to_owned).into(),
            rest_user: Some("me".to_owned()),
            ..SlurmTarget::default()
        };
        let token = tokens(&settings, &[]).unwrap().current().await.unwrap();
        assert_eq!((token.secret.expose(), token.user.as_str()), ("a.b.c", "me"));
        assert_eq!(tokens(&SlurmTarget::default(), &[]).unwrap_err().kind(), ErrorKind::Credentials);
    }
}
