//! Requests to a control plane: one token, one retry after a 401, retries of requests that may be repeated,
//! and none of the others.

use std::time::{Duration, Instant, SystemTime};

use reqwest::header::RETRY_AFTER;
use reqwest::{Client, Method, StatusCode};
use serde_json::Value;
use weftrun_core::backend::TargetConfig;
use weftrun_core::{Error, ErrorKind, Result};

use super::auth::Auth;
use super::config::RunaiTarget;
use super::{error, trust_anchor};
use crate::deadline::{CALL, Deadline};
use crate::json_answer::{self, Listed};
use crate::proxy::proxy_for;
use crate::requests;
use crate::{address, files};

/// Number of tries of a request that may be repeated, if the control plane sends no `Retry-After`.
pub(super) const TRIES: u32 = 4;
/// Default time for which a request is repeated if the control plane sends `Retry-After`.
const PATIENCE: Duration = Duration::from_secs(120);
/// Entries per page: the largest number that every version accepts.
const PAGE: usize = 500;
/// Most entries of a list.
const LONGEST_LIST: usize = 100_000;
/// Largest answer that is read; a page of workloads is far smaller.
pub const LONGEST_ANSWER: usize = 64 << 20;

#[derive(Debug)]
pub struct ControlPlane {
    http: Client,
    base: String,
    auth: Auth,
    patience: Duration,
    /// Time of one try.
    limit: Duration,
}

/// Whether a request may be sent again after its answer was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repeat {
    /// Reads, and idempotent writes.
    Safe,
    Never,
}

impl ControlPlane {
    /// Creates the client of a target; sends nothing.
    pub fn new(target: &TargetConfig, settings: &RunaiTarget) -> Result<Self> {
        let base = settings.base(target)?;
        let auth = Auth::new(base.clone(), settings.credentials(target)?);
        let patience = settings.retry_seconds.map_or(PATIENCE, Duration::from_secs);
        Ok(Self {
            http: builder(target, settings)?.build().map_err(crate::requests::no_client)?,
            base,
            auth,
            patience,
            limit: limit(settings),
        })
    }

    /// Returns the base URL.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Returns a valid token, for the cluster API.
    pub async fn token(&self) -> Result<weftrun_core::secret::Secret> {
        self.auth.token(&self.http).await
    }

    /// Returns a token other than one that was refused.
    pub async fn renewed(
        &self,
        refused: &weftrun_core::secret::Secret,
    ) -> Result<weftrun_core::secret::Secret> {
        self.auth.renewed(&self.http, refused).await
    }

    /// Returns the HTTP client, for the cluster API.
    pub fn http(&self) -> &Client {
        &self.http
    }

    /// Reads one resource.
    pub async fn get(&self, what: &str, path: &str, query: &[(&str, String)]) -> Result<Value> {
        let body = self.send(what, Method::GET, path, query, None, Repeat::Safe).await?;
        parse(what, &body)
    }

    /// Reads a list that has no pages.
    pub async fn entries(
        &self,
        what: &str,
        path: &str,
        query: &[(&str, String)],
        key: &str,
    ) -> Result<Vec<Value>> {
        let body = self.send(what, Method::GET, path, query, None, Repeat::Safe).await?;
        self::entries(what, &body, key)?.rows.ok_or_else(|| error::without(what, &body, key))
    }

    /// Reads all pages of a list: `next` is the next offset, and absent on the last page.
    pub async fn pages(
        &self,
        what: &str,
        path: &str,
        query: &[(&str, String)],
        key: &str,
        limit: Option<usize>,
    ) -> Result<Vec<Value>> {
        let mut all: Vec<Value> = Vec::new();
        let (mut offset, mut pages) = (0, 0);
        loop {
            let mut asked = query.to_vec();
            let page = limit.map_or(PAGE, |limit| PAGE.min(limit - all.len()));
            asked.extend([("limit", page.to_string()), ("offset", offset.to_string())]);
            let body = self.send(what, Method::GET, path, &asked, None, Repeat::Safe).await?;
            let answer = self::entries(what, &body, key)?;
            let Some(entries) = answer.rows else { return Err(error::without(what, &body, key)) };
            all.extend(entries);
            if all.len() > LONGEST_LIST {
                let message = format!("{what}: the list has more than {LONGEST_LIST} entries");
                return Err(Error::new(ErrorKind::Protocol, message));
            }
            pages += 1;
            // The list of templates uses another field.
            let paged = answer.rest.get("pagination").and_then(|pagination| pagination.get("nextOffset"));
            let next = answer.rest.get("next").or(paged);
            let next = next.and_then(number).filter(|next| *next > offset);
            match next {
                Some(_) if pages == LONGEST_LIST / PAGE => {
                    let message = format!("{what}: the list has more than {pages} pages");
                    return Err(Error::new(ErrorKind::Protocol, message));
                }
                Some(next) if limit.is_none_or(|limit| all.len() < limit) => offset = next,
                _ => return Ok(all),
            }
        }
    }

    /// Creates a resource, and never sends the request twice.
    pub async fn create(&self, what: &str, path: &str, body: &str) -> Result<Value> {
        let answer = self.send(what, Method::POST, path, &[], Some(body), Repeat::Never).await?;
        parse(what, &answer)
    }

    /// Sends an idempotent write.
    pub async fn act(&self, what: &str, method: Method, path: &str) -> Result<()> {
        self.send(what, method, path, &[], None, Repeat::Safe).await.map(|_| ())
    }

    async fn send(
        &self,
        what: &str,
        method: Method,
        path: &str,
        query: &[(&str, String)],
        body: Option<&str>,
        repeat: Repeat,
    ) -> Result<String> {
        let began = Instant::now();
        // Tries without an answer share one deadline.
        let mut silent = Deadline::after(CALL.max(self.limit));
        let mut tries = 0;
        let mut renewed = false;
        let mut token = self.auth.token(&self.http).await?;
        loop {
            tries += 1;
            let mut request = self
                .http
                .request(method.clone(), format!("{}{path}", self.base))
                .query(query)
                .timeout(self.limit.min(silent.left()))
                .bearer_auth(token.expose());
            if let Some(body) = body {
                request = request.header("content-type", "application/json").body(body.to_owned());
            }
            let failed = match requests::send(request).await {
                Err(error) => {
                    // A connection that was never established carried nothing, so even a create may be
                    // retried.
                    let unsent = error.is_connect();
                    let hopeless = error::is_certificate(&error);
                    let error = error::of_network(what, error);
                    if hopeless || (repeat == Repeat::Never && !unsent) {
                        return Err(error);
                    }
                    (error, None)
                }
                Ok(response) => {
                    let status = response.status();
                    let wait = retry_after(&response);
                    let text = match requests::text(response, LONGEST_ANSWER).await {
                        Ok(text) => text,
                        // The answer broke off: for a create, this is the same as a lost answer.
                        Err(error) if repeat == Repeat::Safe && tries < TRIES && !silent.is_over() => {
                            tracing::debug!(%error, what, "the answer broke off");
                            tokio::time::sleep(backoff(tries)).await;
                            continue;
                        }
                        Err(error) => return Err(error::of_network(what, error)),
                    };
                    if status.is_success() {
                        return Ok(text);
                    }
                    if status == StatusCode::UNAUTHORIZED && !renewed {
                        renewed = true;
                        tries -= 1;
                        token = self.auth.renewed(&self.http, &token).await?;
                        continue;
                    }
                    let error = error::of_answer(what, status, &text);
                    // 429 means that nothing was done; a gateway's 502, 503 or 504 proves nothing about a
                    // create.
                    let again = status == StatusCode::TOO_MANY_REQUESTS
                        || (repeat == Repeat::Safe && matches!(status.as_u16(), 500 | 502..=504));
                    if !again {
                        return Err(error);
                    }
                    (error, wait)
                }
            };
            let (error, asked) = failed;
            let Some(pause) = asked else {
                if tries >= TRIES || silent.is_over() {
                    return Err(error);
                }
                tokio::time::sleep(backoff(tries)).await;
                continue;
            };
            let tried = began.elapsed();
            if tried + pause > self.patience {
                let error = error.with("tries", tries).with("tried for", format!("{} s", tried.as_secs()));
                return Err(error.hint(format!(
                    "the control plane requires a wait of {} s, but requests are repeated for at most {} s; set `retry-seconds` in \
                     the target's table to wait longer",
                    pause.as_secs(),
                    self.patience.as_secs()
                )));
            }
            tokio::time::sleep(pause).await;
            silent = Deadline::after(CALL.max(self.limit));
        }
    }
}

fn limit(settings: &RunaiTarget) -> Duration {
    Duration::from_secs(settings.timeout_seconds.unwrap_or(30))
}

/// Returns half a second, doubled with each try, with a third of jitter.
pub(super) fn backoff(tries: u32) -> Duration {
    let base = 500u64 << tries.saturating_sub(1).min(6);
    Duration::from_millis(base * 2 / 3 + fastrand::u64(0..=base * 2 / 3))
}

fn retry_after(response: &reqwest::Response) -> Option<Duration> {
    let value = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    crate::retry_after::parse(value, SystemTime::now())
}

fn number(value: &Value) -> Option<usize> {
    value.as_u64().and_then(|n| usize::try_from(n).ok()).or_else(|| value.as_str()?.parse().ok())
}

fn entries(what: &str, body: &str, key: &str) -> Result<Listed<Value>> {
    json_answer::entries(body, key).map_err(|error| error::of_shape(what, body, &error))
}

fn parse(what: &str, body: &str) -> Result<Value> {
    let text = if body.trim().is_empty() { "null" } else { body };
    json_answer::whole(text).map_err(|error| error::of_shape(what, body, &error))
}

/// Returns an HTTP client builder with a target's settings.
pub(super) fn builder(target: &TargetConfig, settings: &RunaiTarget) -> Result<reqwest::ClientBuilder> {
    crate::tls::provide()?;
    let bad = |what: &str, path: &std::path::Path, error: &dyn std::fmt::Display| {
        Error::new(ErrorKind::InvalidConfig, format!("{what} {}: {error}", path.display()))
    };
    let mut builder = Client::builder()
        .timeout(limit(settings))
        .connect_timeout(Duration::from_secs(10))
        .redirect(reqwest::redirect::Policy::none())
        .proxy(proxy(target, settings)?)
        .user_agent(concat!("weftrun/", env!("CARGO_PKG_VERSION")));
    let identity = match &settings.client_certificate {
        None => None,
        Some(path) => {
            let pem = files::read(path, files::MAX_CREDENTIAL)
                .map_err(|error| bad("cannot read `client-certificate`", path, &error))?;
            let identity = reqwest::Identity::from_pem(&pem)
                .map_err(|error| bad("`client-certificate`", path, &error))?;
            builder = builder.identity(identity);
            Some(pem)
        }
    };
    if let Some(path) = &settings.ca_file {
        let pem = files::read(path, files::MAX_CREDENTIAL)
            .map_err(|error| bad("cannot read `ca-file`", path, &error))?;
        let config = trust_anchor::client_config(&pem, identity.as_deref())
            .map_err(|error| bad("`ca-file`", path, &error))?;
        if !settings.insecure {
            builder = builder.tls_backend_preconfigured(config);
        }
    }
    if settings.insecure {
        tracing::debug!(target = target.name, "`insecure`: any certificate is taken");
        builder = builder.tls_danger_accept_invalid_certs(true);
    }
    Ok(builder)
}

/// Returns the target's proxy for all hosts, else that of the caller's environment, unless NO_PROXY contains
/// the host.
fn proxy(target: &TargetConfig, settings: &RunaiTarget) -> Result<reqwest::Proxy> {
    if let Some(own) = &settings.proxy {
        address::warn_of_proxy(own);
        return reqwest::Proxy::all(own).map_err(|error| {
            Error::new(ErrorKind::InvalidConfig, format!("`proxy` is not a URL: {error}"))
                .with("proxy", own.rsplit_once('@').map_or(own.as_str(), |(_, rest)| rest))
        });
    }
    let env = target.env.clone();
    Ok(reqwest::Proxy::custom(move |url| proxy_for(url.as_str(), &env)))
}
