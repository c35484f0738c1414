//! Requests that a busy API server turns away are sent again.
//!
//! API priority and fairness answers 429 with `Retry-After`, an API server that starts or loses etcd 500 to 504, and a load balancer
//! in front of it resets connections. A read changes nothing and is sent again after all of these; a write only after 429, which
//! says that nothing was done. Whether a write that may have been done is repeated is decided where it is made.

use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use http::header::RETRY_AFTER;
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tower::{BoxError, Service};

use crate::retry_after;

/// How long a request is repeated before its error counts, unless the target says otherwise.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A request that is repeated for longer is mentioned on stderr.
const NOTICE: Duration = Duration::from_secs(5);
/// Most bytes of an error that are read.
const LARGEST_ERROR: usize = 1 << 20;

/// A client that repeats what was turned away.
#[derive(Clone)]
struct Retrying {
    client: kube::Client,
    patience: Duration,
}

/// Makes a client that repeats what was turned away.
pub(super) fn retrying(client: kube::Client, patience: Duration) -> kube::Client {
    let namespace = client.default_namespace().to_owned();
    kube::Client::new(Retrying { client, patience }, namespace)
}

impl Retrying {
    async fn send(self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let (parts, body) = request.into_parts();
        let read = parts.method == Method::GET && !is_stream(&parts.uri);
        let (began, mut pause, mut tries) = (Instant::now(), FIRST_PAUSE, 0u32);
        let mut noticed = false;
        loop {
            let Some(copy) = body.try_clone() else {
                return Ok(self.client.send(Request::from_parts(parts, body)).await?);
            };
            tries += 1;
            let answer = self.client.send(Request::from_parts(parts.clone(), copy)).await;
            let (wait, why) = match &answer {
                Ok(response) if turned_away(response.status(), read) => {
                    let asked = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
                    let asked = asked.and_then(|value| retry_after::parse(value, SystemTime::now()));
                    (asked.unwrap_or(pause), response.status().to_string())
                }
                Err(error) if read && broke_off(error) => (pause, "the connection broke".to_owned()),
                _ => return Ok(answer?),
            };
            let tried = began.elapsed();
            if tried + wait > self.patience {
                return match answer {
                    Ok(response) => Ok(with_tries(response, tries, tried).await),
                    Err(error) => Err(error.into()),
                };
            }
            if !noticed && tried + wait > NOTICE {
                noticed = true;
                let limit = self.patience.as_secs();
                tracing::warn!("the API server is busy ({why}); trying again for up to {limit} s");
            }
            drop(answer);
            sleep(wait).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// The last refusal, with how often and how long the request was tried.
async fn with_tries(response: Response<Body>, tries: u32, tried: Duration) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    let bytes = Limited::new(body, LARGEST_ERROR).collect().await.map(http_body_util::Collected::to_bytes);
    let said = bytes.unwrap_or_default();
    let mut status = serde_json::from_slice(&said).ok().filter(Value::is_object).unwrap_or_else(|| {
        let plain = String::from_utf8_lossy(&said).trim().to_owned();
        let text = if plain.is_empty() { parts.status.to_string() } else { plain };
        json!({"message": text})
    });
    let message = status["message"].as_str().unwrap_or_default().to_owned();
    let times = if tries == 1 { "1 try".to_owned() } else { format!("{tries} tries") };
    status["message"] =
        json!(format!("the API server is busy: {message} ({times} in {} s)", tried.as_secs()));
    let reason = status["reason"].as_str().unwrap_or_default().to_owned();
    status["reason"] = json!(reason);
    status["code"] = json!(parts.status.as_u16());
    status["status"] = json!("Failure");
    parts.headers.remove(http::header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(status.to_string().into_bytes()))
}

impl Service<Request<Body>> for Retrying {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().send(request))
    }
}

/// Whether a request is a watch or a log, whose readers open them again where they were left, or a command, which may have run.
fn is_stream(uri: &Uri) -> bool {
    ["/log", "/exec"].iter().any(|end| uri.path().ends_with(end))
        || uri.query().is_some_and(|query| query.contains("watch="))
}

fn turned_away(status: StatusCode, read: bool) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || (read && matches!(status.as_u16(), 500 | 502 | 503 | 504))
}

/// Whether a connection was there and broke. An address where nobody answers is an error at once.
fn broke_off(error: &kube::Error) -> bool {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    let mut transport = matches!(error, kube::Error::HyperError(_));
    while let Some(error) = next {
        if let Some(client) = error.downcast_ref::<hyper_util::client::legacy::Error>() {
            if client.is_connect() {
                return false;
            }
            transport = true;
        }
        next = error.source();
    }
    transport
}
