//! Requests that a busy API server turns away are sent again.
//!
//! API priority and fairness answers 429 with `Retry-After`, an API server that starts or loses etcd 500 to 504, and a load balancer
//! in front of it resets connections. A read changes nothing and is sent again after all of these; a write only after 429, which
//! says that nothing was done. Whether a write that may have been done is repeated is decided where it is made.

use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::header::RETRY_AFTER;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use kube::client::Body;
use tokio::time::{Instant, sleep};
use tower::{BoxError, Service};

/// How long a request is repeated before its error counts.
const PATIENCE: Duration = Duration::from_secs(20);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A client that repeats what was turned away.
#[derive(Clone)]
struct Patient(kube::Client);

/// Makes a client that repeats what was turned away.
pub(super) fn patient(client: kube::Client) -> kube::Client {
    let namespace = client.default_namespace().to_owned();
    kube::Client::new(Patient(client), namespace)
}

impl Patient {
    async fn send(self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let (parts, body) = request.into_parts();
        let read = parts.method == Method::GET && !is_stream(&parts.uri);
        let (began, mut pause) = (Instant::now(), FIRST_PAUSE);
        loop {
            let Some(copy) = body.try_clone() else {
                return Ok(self.0.send(Request::from_parts(parts, body)).await?);
            };
            let answer = self.0.send(Request::from_parts(parts.clone(), copy)).await;
            let wait = match &answer {
                Ok(response) if turned_away(response.status(), read) => {
                    retry_after(response.headers()).unwrap_or(pause)
                }
                Err(error) if read && broke_off(error) => pause,
                _ => return Ok(answer?),
            };
            if began.elapsed() + wait > PATIENCE {
                return Ok(answer?);
            }
            drop(answer);
            sleep(wait).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

impl Service<Request<Body>> for Patient {
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

/// Whether a request is a watch or a log: whoever reads them opens them again where they were left.
fn is_stream(uri: &Uri) -> bool {
    uri.path().ends_with("/log") || uri.query().is_some_and(|query| query.contains("watch="))
}

fn turned_away(status: StatusCode, read: bool) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || (read && matches!(status.as_u16(), 500 | 502 | 503 | 504))
}

/// The pause that the server asks for, in seconds. API servers write no dates.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
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
