//! Tokens: fetched, kept until shortly before they expire, fetched again after a 401.

use std::time::{Duration, Instant};

use reqwest::{Client, StatusCode};
use serde::Deserialize;
use tokio::sync::Mutex;
use weftrun_core::secret::Secret;
use weftrun_core::text::percent::encode;
use weftrun_core::{Error, ErrorKind, Result};

use super::client::{LONGEST_ANSWER, TRIES, backoff};
use super::config::{Credentials, read_secret};
use super::error;
use crate::deadline::{CALL, Deadline};
use crate::{helper, requests, sent};

/// How long before its expiry a token is renewed.
const MARGIN: Duration = Duration::from_secs(60);
/// Assumed lifetime of a token without an expiry.
const DEFAULT_LIFE: Duration = Duration::from_secs(600);

/// A token and when to fetch the next.
#[derive(Clone, Debug)]
struct Token {
    secret: Secret,
    renew_at: Option<Instant>,
}

/// The tokens of one target.
#[derive(Debug)]
pub struct Auth {
    base: String,
    credentials: Credentials,
    current: Mutex<Option<Token>>,
}

/// A token of version 1 of the interface. Not one struct with aliases: an answer may have both spellings.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct V1 {
    access_token: String,
    expires_in: Option<u64>,
}

#[derive(Deserialize)]
struct V2 {
    access_token: String,
    expires_in: Option<u64>,
}

impl Auth {
    /// Creates the token store of a control plane; sends nothing yet.
    pub fn new(base: String, credentials: Credentials) -> Self {
        Self { base, credentials, current: Mutex::new(None) }
    }

    /// Returns a valid token.
    pub async fn token(&self, http: &Client) -> Result<Secret> {
        self.current_or_new(http, |token| token.renew_at.is_none_or(|at| Instant::now() < at)).await
    }

    /// Returns a token other than one that was refused. Several requests refused at once share one new token.
    pub async fn renewed(&self, http: &Client, refused: &Secret) -> Result<Secret> {
        self.current_or_new(http, |token| token.secret != *refused).await
    }

    async fn current_or_new(&self, http: &Client, good: impl Fn(&Token) -> bool) -> Result<Secret> {
        let mut current = self.current.lock().await;
        if let Some(token) = current.as_ref().filter(|token| good(token)) {
            return Ok(token.secret.clone());
        }
        let token = self.fetch(http).await?;
        let secret = token.secret.clone();
        *current = Some(token);
        Ok(secret)
    }

    async fn fetch(&self, http: &Client) -> Result<Token> {
        match &self.credentials {
            Credentials::Token(secret) => Ok(Token { secret: secret.clone(), renew_at: None }),
            Credentials::File(file) => Ok(Token::new(read_secret(file)?.expose().to_owned(), None)),
            Credentials::Official(login) => Ok(Token::new(login.token()?.expose().to_owned(), None)),
            Credentials::Command(argv) => run(argv).await,
            Credentials::Application { id, secret } => self.application(http, id, secret).await,
        }
    }

    /// Tries v2 first; v1 `client_credentials` if v2 is not served; `app_token` if v1 does not support that
    /// grant.
    async fn application(&self, http: &Client, id: &str, secret: &Secret) -> Result<Token> {
        const WHAT: &str = "cannot get a token";
        // It is in the body, where the sender of a request does not look.
        sent::remember(secret.expose());
        let form = format!(
            "grant_type=client_credentials&client_id={}&client_secret={}",
            encode(id),
            encode(secret.expose())
        );
        let request = http
            .post(format!("{}/api/v2/token", self.base))
            .header("content-type", "application/x-www-form-urlencoded")
            .body(form);
        let (status, body) = send(&request).await?;
        if status.is_success() {
            // Some servers return a page of the user interface for unknown paths, which is not a token.
            if let Ok(token) = serde_json::from_str::<V2>(&body) {
                return Ok(Token::new(token.access_token, token.expires_in));
            }
        } else if status != StatusCode::NOT_FOUND && status != StatusCode::METHOD_NOT_ALLOWED {
            return Err(error::of_answer(WHAT, status, &body));
        }
        let v1 = format!("{}/api/v1/token", self.base);
        let body = serde_json::json!({"grantType": "client_credentials", "clientID": id, "clientSecret": secret.expose()});
        let (mut status, mut answer) = send(&http.post(&v1).json(&body)).await?;
        if status == StatusCode::BAD_REQUEST {
            let body =
                serde_json::json!({"grantType": "app_token", "AppId": id, "AppSecret": secret.expose()});
            (status, answer) = send(&http.post(&v1).json(&body)).await?;
        }
        if !status.is_success() {
            return Err(error::of_answer(WHAT, status, &answer));
        }
        let token: V1 = serde_json::from_str(&answer).map_err(|e| error::of_shape(WHAT, "", &e))?;
        Ok(Token::new(token.access_token, token.expires_in))
    }
}

impl Token {
    /// Creates a token that is renewed a minute before its expiry: according to the answer, else to the token
    /// itself, else after ten minutes.
    fn new(text: String, expires_in: Option<u64>) -> Self {
        let life = expires_in.map(Duration::from_secs).or_else(|| life_of(&text)).unwrap_or(DEFAULT_LIFE);
        let margin = MARGIN.min(life / 2);
        Self { secret: Secret::new(text), renew_at: Instant::now().checked_add(life.saturating_sub(margin)) }
    }
}

/// Returns the remaining lifetime of a JWT, by its `exp`.
fn life_of(token: &str) -> Option<Duration> {
    let claims = requests::claims(token);
    let left = claims.get("exp")?.as_i64()?.saturating_sub(crate::clock::now().as_second());
    u64::try_from(left).ok().map(Duration::from_secs)
}

/// Sends a request that may be repeated: fetching a token changes nothing.
async fn send(request: &reqwest::RequestBuilder) -> Result<(StatusCode, String)> {
    const WHAT: &str = "cannot get a token";
    let silent = Deadline::after(CALL);
    let mut tries = 0;
    loop {
        tries += 1;
        let request = request.try_clone().ok_or_else(|| Error::new(ErrorKind::Unexpected, WHAT))?;
        let answer = match requests::send(request).await {
            Ok(response) => {
                let status = response.status();
                requests::text(response, LONGEST_ANSWER).await.map(|text| (status, text))
            }
            Err(error) => Err(error),
        };
        let again = match &answer {
            Ok((status, _)) => matches!(status.as_u16(), 429 | 500 | 502..=504),
            // A certificate that is refused once is always refused.
            Err(error) => error.is_timeout() || !error.is_connect(),
        };
        if !again || tries >= TRIES || silent.is_over() {
            return answer.map_err(|error| error::of_network(WHAT, error));
        }
        tokio::time::sleep(backoff(tries)).await;
    }
}

async fn run(argv: &[String]) -> Result<Token> {
    let hint = "run it by hand; or set `client-id` and `client-secret-env` in the target's table";
    let text = helper::token(argv, hint).await?.trim().to_owned();
    if text.is_empty() || text.contains(char::is_whitespace) {
        return Err(helper::no_token(argv, "what it printed is not one word", hint));
    }
    Ok(Token::new(text, None))
}
