//! slurmrestd: Slurm's own HTTP server, with a JSON Web Token. Where it is reachable, no login on the cluster
//! is needed.
//!
//! Each release serves several versions of one interface: `/openapi/v3` lists them, and the newest one in
//! `VERSIONS` is used. v0.0.38 was run against 22.05.8; differences of later versions are noted in the code.

mod cluster;
mod job;
mod json;
mod submit;
mod token;

use std::time::Duration;

use reqwest::{Client as Http, Method, StatusCode};
use serde_json::{Map, Value};
use tokio::sync::OnceCell;
use weftrun_core::backend::TargetConfig;
use weftrun_core::{Error, ErrorKind, Result};

use super::client::DATABASE_LIMIT;
use super::cluster::Cluster;
use super::config::SlurmTarget;
use super::error;
use super::ids::JobId;
use super::records::{Job, Shown};
use crate::json_answer::{self, Listed};
use crate::requests;
use token::Tokens;

pub use submit::submit;

/// The versions whose answers can be parsed.
const VERSIONS: std::ops::RangeInclusive<u32> = 38..=45;
/// The first version with data parsers, which writes numbers, states and environments in another form.
const PARSERS: u32 = 40;
/// Largest accepted answer: 10,000 jobs are about 50 MB.
const LONGEST: usize = 256 << 20;

/// One slurmrestd.
#[derive(Debug)]
pub struct Rest {
    base: String,
    http: Http,
    tokens: Tokens,
    version: OnceCell<u32>,
}

/// Why a request failed, and what that means for it.
#[derive(Debug)]
struct Failed {
    error: Error,
    sent: Sent,
}

/// The fate of a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// No connection was made.
    No,
    /// Refused because of its token, before it was read.
    Unauthorized,
    /// Refused by slurmrestd or slurmctld.
    Refused,
    /// It may have been read and executed.
    Unknown,
}

impl Rest {
    /// Creates the client of a target that sets `rest`; sends nothing.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`] naming the setting.
    pub fn new(target: &TargetConfig, settings: &SlurmTarget, base: &str) -> Result<Self> {
        crate::tls::provide()?;
        let mut builder = Http::builder()
            .timeout(settings.command_timeout())
            .connect_timeout(Duration::from_secs(10))
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .user_agent(concat!("weftrun/", env!("CARGO_PKG_VERSION")));
        let bad = |what: String| {
            Error::new(ErrorKind::InvalidConfig, format!("target `{}`: `ca-file`: {what}", target.name))
        };
        if let Some(path) = &settings.ca_file {
            let pem = crate::files::read(path, crate::files::MAX_CREDENTIAL)
                .map_err(|cause| bad(format!("cannot read it: {cause}")))?;
            let certificates =
                reqwest::Certificate::from_pem_bundle(&pem).map_err(|cause| bad(cause.to_string()))?;
            builder = builder.tls_certs_merge(certificates);
        }
        let http = builder.build().map_err(requests::no_client)?;
        let tokens = Tokens::new(target, settings)?;
        Ok(Self { base: base.trim_end_matches('/').to_owned(), http, tokens, version: OnceCell::new() })
    }

    /// Returns the address, for messages.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Returns all jobs in slurmctld, since no release filters by user.
    pub async fn jobs(&self) -> Result<Vec<Job>> {
        jobs(self.get(&self.path("jobs/").await?, job::queued).await?)
    }

    /// Returns the user whose jobs are the caller's own.
    pub async fn user(&self) -> Result<String> {
        Ok(self.tokens.current().await?.user)
    }

    /// Returns the rows of one job, and the further details of each; none if slurmctld has forgotten it.
    pub async fn job(&self, id: &JobId) -> Result<Vec<(Job, Shown)>> {
        let read = |one: &Value| Some((job::queued(one)?, job::shown(one)));
        match self.get(&self.path(&format!("job/{}", id.number)).await?, read).await {
            Ok(answer) => {
                let mut rows = jobs(answer)?;
                rows.retain(|(row, _)| row.belongs_to(id));
                Ok(rows)
            }
            Err(unknown) if unknown.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            Err(failed) => Err(failed),
        }
    }

    /// Returns the runs of jobs in accounting: of one job, or of the user's jobs of the last `days` days;
    /// none if there is no accounting.
    pub async fn accounting(&self, id: Option<&JobId>, days: u32) -> Result<Option<Vec<Job>>> {
        let version = self.version().await?;
        let path = if let Some(id) = id {
            format!("/slurmdb/v0.0.{version}/job/{}", id.number)
        } else {
            let since = crate::clock::now().as_second() - i64::from(days) * 86_400;
            let user = weftrun_core::text::percent::encode(&self.user().await?);
            format!("/slurmdb/v0.0.{version}/jobs/?start_time={since}&users={user}")
        };
        match self.get_accounting(&path, job::accounted).await {
            Ok(answer) => {
                let user = self.user().await?;
                let mut rows = jobs(answer)?;
                rows.retain(|row| id.is_some_and(|id| row.belongs_to(id)) || row.user == user);
                Ok(Some(rows))
            }
            Err(failed)
                if failed.is_retryable()
                    || matches!(failed.kind(), ErrorKind::Credentials | ErrorKind::Protocol) =>
            {
                Err(failed)
            }
            Err(none) => {
                tracing::debug!(error = %none, "slurmrestd gives no accounting");
                Ok(None)
            }
        }
    }

    /// Ends a job, or sends a signal to its ranks.
    pub async fn cancel(&self, id: &JobId, signal: Option<i32>) -> Result<()> {
        let query = signal.map_or_else(String::new, |number| format!("?signal={number}"));
        let path = self.path(&format!("job/{id}{query}")).await?;
        self.send(Method::DELETE, &path, None, drop_row).await.map(drop)
    }

    /// Holds a pending job, or releases it.
    pub async fn hold(&self, id: &JobId, hold: bool) -> Result<()> {
        let change = serde_json::json!({ "hold": hold });
        self.send(Method::POST, &self.path(&format!("job/{id}")).await?, Some(&change), drop_row)
            .await
            .map(drop)
    }

    /// Returns the cluster facts.
    pub async fn described(&self) -> Result<Cluster> {
        let partitions = self.get(&self.path("partitions/").await?, drop_row).await?;
        let nodes = self.get(&self.path("nodes/").await?, drop_row).await?;
        let listed = [(&partitions, "partitions"), (&nodes, "nodes")];
        if let Some((answer, key)) =
            listed.into_iter().find(|(answer, key)| !answer.rest.get(*key).is_some_and(Value::is_array))
        {
            return Err(missing(key, &answer.rest));
        }
        Ok(cluster::read(&partitions.rest.into(), &nodes.rest.into()))
    }

    /// Returns a path below slurmctld's interface of the newest version that both sides support.
    async fn path(&self, rest: &str) -> Result<String> {
        Ok(format!("/slurm/v0.0.{}/{rest}", self.version().await?))
    }

    /// Returns the newest version that both sides support.
    async fn version(&self) -> Result<u32> {
        self.version.get_or_try_init(|| self.find_version()).await.copied()
    }

    async fn find_version(&self) -> Result<u32> {
        let offered = self.get("/openapi/v3", drop_row).await?;
        let Some(paths) = offered.rest.get("paths").and_then(Value::as_object) else {
            return Err(missing("paths", &offered.rest));
        };
        let found = |path: &String| {
            let number = path.strip_prefix("/slurm/v0.0.")?.strip_suffix("/job/submit")?;
            number.parse::<u32>().ok()
        };
        let mut versions: Vec<u32> = paths.keys().filter_map(found).collect();
        versions.sort_unstable();
        versions.iter().rfind(|version| VERSIONS.contains(version)).copied().ok_or_else(|| {
            let all: Vec<String> = versions.iter().map(|version| format!("v0.0.{version}")).collect();
            Error::unsupported(super::BACKEND, "rest")
                .with(
                    "slurmrestd offers",
                    if all.is_empty() { "no version".to_owned() } else { all.join(", ") },
                )
                .hint("weftrun supports v0.0.38 to v0.0.45; `ssh` in the target works with every release")
        })
    }

    async fn get<T>(&self, path: &str, read: impl Fn(&Value) -> T + Copy) -> Result<Listed<T>> {
        match self.send(Method::GET, path, None, read).await {
            // A request that changes nothing may be repeated after a lost connection.
            Err(lost)
                if lost.is_retryable()
                    && lost.kind() != ErrorKind::Timeout
                    && !error::is_down_database(&lost) =>
            {
                tokio::time::sleep(Duration::from_millis(300)).await;
                self.send(Method::GET, path, None, read).await
            }
            answer => answer,
        }
    }

    /// Sends a query that slurmrestd forwards to slurmdbd. slurmrestd waits 45 s if slurmdbd accepts the connection
    /// but does not answer (observed with 22.05).
    async fn get_accounting<T>(&self, path: &str, read: impl Fn(&Value) -> T + Copy) -> Result<Listed<T>> {
        let limit = Duration::from_secs(DATABASE_LIMIT);
        tokio::time::timeout(limit, self.get(path, read)).await.unwrap_or_else(|_| {
            Err(error::no_database(&format!("slurmrestd had no answer from it for {DATABASE_LIMIT} s")))
        })
    }

    async fn send<T>(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        read: impl Fn(&Value) -> T + Copy,
    ) -> Result<Listed<T>> {
        self.send_once(method, path, body, read).await.map_err(|failed| failed.error)
    }

    /// Sends a request that may be sent twice; repeats it with another token if the first was refused and
    /// another is available. Requests that create a job go through [`Rest::post_once`].
    async fn send_once<T>(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        read: impl Fn(&Value) -> T + Copy,
    ) -> std::result::Result<Listed<T>, Failed> {
        let unsent = |error| Failed { error, sent: Sent::Refused };
        let token = self.tokens.current().await.map_err(unsent)?;
        match self.exchange(method.clone(), path, body, &token, read).await {
            Err(refused) if refused.error.kind() == ErrorKind::Credentials && self.tokens.renews() => {
                self.tokens.forget().await;
                let token = self.tokens.current().await.map_err(unsent)?;
                self.exchange(method, path, body, &token, read).await
            }
            answer => answer,
        }
    }

    /// Posts a body exactly once, regardless of the answer.
    async fn post_once(&self, path: &str, body: &Value) -> std::result::Result<Value, Failed> {
        let token = self.tokens.current().await.map_err(|error| Failed { error, sent: Sent::Refused })?;
        let answer = self.exchange(Method::POST, path, Some(body), &token, drop_row).await?;
        Ok(answer.rest.into())
    }

    /// Sends a request; `read` keeps what is needed of each job in the answer.
    async fn exchange<T>(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        token: &token::Token,
        read: impl Fn(&Value) -> T,
    ) -> std::result::Result<Listed<T>, Failed> {
        let mut request = self
            .http
            .request(method, format!("{}{path}", self.base))
            .header("accept", "application/json")
            .header("x-slurm-user-name", &token.user)
            .header("x-slurm-user-token", token.secret.expose());
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let response = requests::send(request).await.map_err(|cause| self.unreachable(cause))?;
        let status = response.status();
        let text = requests::text(response, LONGEST).await.map_err(|cause| self.unreachable(cause))?;
        let answer = json_answer::rows(&text, "jobs", |one| read(&one));
        match (answer.as_ref().ok().and_then(|answer| message_of(&answer.rest)), answer) {
            (Some(message), _) if !status.is_success() || message.is_error => {
                Err(Failed { error: of_answer(status, &message, token), sent: fate(status, &message) })
            }
            (_, Ok(answer)) if status.is_success() => Ok(answer),
            (_, Err(cause)) if status.is_success() => Err(Failed {
                error: unexpected(&format!("{cause}: {}", beginning(&text))),
                sent: Sent::Unknown,
            }),
            _ => {
                let message = RestMessage { text: error::clean(&text), ..RestMessage::default() };
                Err(Failed { error: of_answer(status, &message, token), sent: fate(status, &message) })
            }
        }
    }

    fn unreachable(&self, cause: reqwest::Error) -> Failed {
        let sent = if cause.is_connect() { Sent::No } else { Sent::Unknown };
        let kind = if cause.is_timeout() && sent == Sent::Unknown {
            ErrorKind::Timeout
        } else {
            ErrorKind::Unreachable
        };
        let error = Error::new(kind, format!("slurmrestd at {} does not answer", self.base))
            .hint("check `rest` of the target: address, port, and whether slurmrestd runs");
        Failed { error: error.with_source(cause.without_url()).retryable(), sent }
    }
}

/// Reads nothing of a job.
fn drop_row(_: &Value) {}

/// Returns the jobs of an answer about jobs.
fn jobs<T>(answer: Listed<Option<T>>) -> Result<Vec<T>> {
    let Some(rows) = answer.rows else { return Err(missing("jobs", &answer.rest)) };
    let some = !rows.is_empty();
    let read: Vec<T> = rows.into_iter().flatten().collect();
    if some && read.is_empty() { Err(unexpected("no job in it has an id")) } else { Ok(read) }
}

/// Returns the error of an answer that is none of slurmrestd's.
fn unexpected(why: &str) -> Error {
    Error::new(ErrorKind::Protocol, format!("unexpected answer of slurmrestd: {}", error::clean(why)))
        .hint("check `rest` of the target: something else may answer there")
}

fn missing(key: &str, answer: &Map<String, Value>) -> Error {
    unexpected(&format!("it has no `{key}`: {}", beginning(&Value::from(answer.clone()).to_string())))
}

/// Returns the beginning of a text.
fn beginning(text: &str) -> String {
    text.chars().take(200).collect()
}

/// Returns what an answer means for a submission. Only slurmctld's own refusals (slurm_errno.h: 2000 to 2999,
/// accounting 7000 to 7999, slurmrestd's parsers from 9000) and HTTP client errors are refusals; errors of
/// the connection (1000 to 1999, 5000 to 5999) or of a proxy, and unspecified ones, leave open whether the
/// job is queued.
fn fate(status: StatusCode, message: &RestMessage) -> Sent {
    const HTTP_OPEN: [u16; 3] = [408, 425, 429];
    match (status.as_u16(), message.number) {
        (401 | 403 | 511, _) | (_, 1007) => Sent::Unauthorized,
        (_, 2000..=2999 | 7000..=7999 | 9000..) => Sent::Refused,
        (code @ 400..=499, number) if number <= 0 && !HTTP_OPEN.contains(&code) => Sent::Refused,
        _ => Sent::Unknown,
    }
}

/// The error number for a slurmrestd without a connection to slurmdbd (`ESLURM_DB_CONNECTION` of slurm_errno.h).
const NO_DATABASE: i64 = 7000;

fn lacks_database(status: StatusCode, message: &RestMessage) -> bool {
    message.number == NO_DATABASE || status.is_server_error() && error::is_no_database(&message.text)
}

/// An entry of an answer's `errors`.
#[derive(Debug, Default)]
struct RestMessage {
    number: i64,
    text: String,
    is_error: bool,
}

/// Returns the first error of an answer. A job that is queued in a held state is also listed as an error, and
/// is not one.
fn message_of(answer: &Map<String, Value>) -> Option<RestMessage> {
    let errors = answer.get("errors")?.as_array()?;
    let read = |error: &Value| {
        let number = ["error_number", "error_code"].iter().find_map(|key| error.get(key)?.as_i64());
        let texts = ["error", "description"].iter().filter_map(|key| error.get(key)?.as_str());
        let text = texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(": ");
        let number = number.unwrap_or(-1);
        RestMessage { number, is_error: number != 2042 && !(number <= 0 && text.is_empty()), text }
    };
    let mut all: Vec<RestMessage> = errors.iter().map(read).collect();
    // v0.0.38 lists the reason first, then that parsing failed.
    let first = all.iter().position(|message_of| message_of.is_error)?;
    Some(all.swap_remove(first))
}

/// Returns the error of an answer. The numbers are slurm_errno.h's; 22.05 reports a bad token as an
/// unspecified error with status 500.
fn of_answer(status: StatusCode, message: &RestMessage, token: &token::Token) -> Error {
    let credentials =
        "create a new token (`scontrol token lifespan=28800`), and check `rest-user` of the target";
    let text = error::clean(&message.text);
    let refused = matches!(status.as_u16(), 401 | 403 | 511)
        || message.number == 1007
        || (status == StatusCode::INTERNAL_SERVER_ERROR
            && message.number == -1
            && text.contains("Unspecified error"));
    if refused {
        let message = if token.has_ended() {
            "the token for slurmrestd has run out".to_owned()
        } else {
            format!("slurmrestd refused the token of `{}`", token.user)
        };
        return Error::new(ErrorKind::Credentials, message).with("status", status.as_u16()).hint(credentials);
    }
    if lacks_database(status, message) {
        return error::no_database(&text);
    }
    if message.number == 2017 || message.number == 2021 {
        return Error::new(ErrorKind::NotFound, format!("slurmrestd: {text}"));
    }
    let error = error::of_command("slurmrestd", &text, i32::from(status.as_u16()));
    if matches!(status.as_u16(), 502..=504) {
        error.retryable()
    } else {
        error.with("status", status.as_u16())
    }
}

/// Parses a value as each answer about jobs.
#[cfg(fuzzing)]
pub fn fuzz_jobs(value: &Value) {
    for one in json::list(&value["jobs"]).iter().chain([value]) {
        job::queued(one);
        job::accounted(one);
        job::shown(one);
    }
    cluster::read(value, value);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first answer is from Slurm 22.05.8, which sends it with status 200.
    #[test]
    fn an_answer_without_slurmdbd_is_named_so() {
        for (status, number, text, lacks) in [
            (200, 7000, "Unable to connect to database: Failed connecting to slurmdbd", true),
            (500, -1, "Failed to open slurmdbd connection", true),
            (500, 2017, "Invalid job id specified", false),
            (401, -1, "Authentication failure", false),
        ] {
            let message = RestMessage { number, text: text.to_owned(), is_error: true };
            assert_eq!(lacks_database(StatusCode::from_u16(status).unwrap(), &message), lacks, "{text}");
        }
    }

    #[test]
    fn only_a_clear_refusal_of_slurmrestd_is_one() {
        let fate = |status: u16, number: i64| {
            let message = RestMessage { number, text: "x".to_owned(), is_error: true };
            super::fate(StatusCode::from_u16(status).unwrap(), &message)
        };
        for (status, number) in [(500, 2000), (200, 2062), (500, 9200), (400, -1), (404, 0)] {
            assert_eq!(fate(status, number), Sent::Refused, "{status} {number}");
        }
        for (status, number) in [
            (500, -1),
            (502, 0),
            (503, -1),
            (504, 0),
            (500, 1001),
            (500, 5004),
            (200, -1),
            (408, 0),
            (500, 110),
        ] {
            assert_eq!(fate(status, number), Sent::Unknown, "{status} {number}");
        }
        for (status, number) in [(401, 0), (403, -1), (511, 0), (500, 1007)] {
            assert_eq!(fate(status, number), Sent::Unauthorized, "{status} {number}");
        }
    }
}
