//! Bounds what an API server, or a machine before it, can do with an answer: its time, its size, and the credentials
//! that it repeats.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Sleep;
use tower::BoxError;
use weftrun_core::{Error, ErrorKind};

use crate::deadline::{CALL, Deadline};
use crate::json_answer::Counter;
use crate::sent::{self, Hider};

/// How long a watch may last: the API server ends it after 290 s, as it is asked to (`watcher` of kube-runtime 5).
const WATCH: Duration = Duration::from_secs(330);
/// Largest error body of an API server that is read; a `Status` is far smaller.
const LARGEST_ERROR: usize = 1 << 20;
/// Largest answer to a call. A page of 250 pods is about 5 MB.
const LARGEST: u64 = 256 << 20;

/// An answer of the API server.
pub(super) type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// The permit of a stream, which is kept until its body is dropped.
type Permit = Option<OwnedSemaphorePermit>;

/// What a request expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// One JSON object.
    Object,
    /// A line of JSON for each change.
    Changes,
    /// A log that ends.
    Log,
    /// A log without end; its idle limit is the connection's read timeout.
    FollowedLog,
    /// A WebSocket.
    Socket,
}

/// The bounds of one request.
pub(super) struct Guard {
    expected: Expected,
    /// When the answer must have begun.
    begins: Deadline,
    /// When it must have ended.
    deadline: Deadline,
}

impl Guard {
    /// Creates the bounds of a request that is sent now, and remembers the credentials that it sends.
    pub fn of(request: &Request<Body>) -> Self {
        for (name, value) in request.headers() {
            sent::remember_header(name.as_str(), value.as_bytes());
        }
        let expected = Expected::of(request.uri());
        let limit = if expected == Expected::Changes { WATCH } else { CALL };
        Self { expected, begins: Deadline::after(CALL), deadline: Deadline::after(limit) }
    }

    /// Waits for the beginning of the answer, which is the whole of an error.
    pub async fn run(
        self,
        sent: impl Future<Output = Result<(Answer, Permit), BoxError>>,
    ) -> Result<Answer, BoxError> {
        let until = self.begins.at(0);
        let late = |_| BoxError::from(self.begins.error("the API server does not answer"));
        let (answer, kept) = tokio::time::timeout_at(until, sent).await.map_err(late)??;
        let status = answer.status();
        if status.is_client_error() || status.is_server_error() {
            return Ok(tokio::time::timeout_at(until, refusal(answer)).await.unwrap_or_else(|_| {
                let mut empty = Response::new(whole(Bytes::new()));
                *empty.status_mut() = status;
                empty
            }));
        }
        Ok(answer.map(|body| self.bound(body, kept)))
    }

    /// Bounds the body of an answer; `kept` is dropped with it.
    fn bound(self, body: UnsyncBoxBody<Bytes, BoxError>, kept: Permit) -> UnsyncBoxBody<Bytes, BoxError> {
        let json = matches!(self.expected, Expected::Object | Expected::Changes);
        let timed = json || self.expected == Expected::Log;
        Bounded {
            body,
            sleep: timed.then(|| Box::pin(tokio::time::sleep_until(self.deadline.at(0)))),
            hider: (self.expected != Expected::Socket).then(Hider::default),
            counter: json.then(|| Counter::new(self.expected == Expected::Changes)),
            arrived: 0,
            guard: self,
            _kept: kept,
        }
        .boxed_unsync()
    }
}

impl Expected {
    fn of(uri: &Uri) -> Self {
        let query = uri.query().unwrap_or_default();
        let ends = |words: &[&str]| words.iter().any(|word| uri.path().ends_with(word));
        if ends(&["/exec", "/portforward", "/attach"]) {
            Self::Socket
        } else if ends(&["/log"]) {
            if query.contains("follow=true") { Self::FollowedLog } else { Self::Log }
        } else if query.contains("watch=") {
            Self::Changes
        } else {
            Self::Object
        }
    }
}

fn whole(bytes: Bytes) -> UnsyncBoxBody<Bytes, BoxError> {
    Full::new(bytes).map_err(BoxError::from).boxed_unsync()
}

/// Returns an error with the beginning of its body, without the credentials that were sent. The status of the answer
/// counts, whatever a `Status` in its body says.
async fn refusal(answer: Answer) -> Answer {
    let (mut parts, mut body) = answer.into_parts();
    let mut bytes = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        bytes.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
        if bytes.len() > LARGEST_ERROR {
            bytes.truncate(LARGEST_ERROR);
            break;
        }
    }
    let text = sent::hide(&String::from_utf8_lossy(&bytes)).into_owned();
    parts.headers.remove(http::header::CONTENT_LENGTH);
    let text = match serde_json::from_str(&text) {
        Ok(Value::Object(mut status)) => {
            status.insert("code".to_owned(), json!(parts.status.as_u16()));
            if parts.status == StatusCode::FORBIDDEN || parts.status == StatusCode::UNAUTHORIZED {
                status.entry("reason").or_insert_with(|| json!(""));
            }
            Value::Object(status).to_string()
        }
        _ => text,
    };
    Response::from_parts(parts, whole(text.into()))
}

/// A body within its bounds.
struct Bounded {
    body: UnsyncBoxBody<Bytes, BoxError>,
    sleep: Option<Pin<Box<Sleep>>>,
    hider: Option<Hider>,
    counter: Option<Counter>,
    arrived: u64,
    guard: Guard,
    _kept: Permit,
}

impl Bounded {
    /// Returns what is passed on of a piece.
    fn take(&mut self, piece: Bytes) -> Result<Bytes, BoxError> {
        self.arrived += piece.len() as u64;
        let is_call = self.guard.expected == Expected::Object;
        let too_large = self.counter.as_mut().is_some_and(|counter| !counter.next(&piece))
            || (is_call && self.arrived > LARGEST);
        if too_large {
            let message = "the API server's answer is too large to be read";
            return Err(Error::new(ErrorKind::Protocol, message).into());
        }
        if let (Some(sleep), Expected::Log) = (&mut self.sleep, self.guard.expected) {
            sleep.as_mut().reset(self.guard.deadline.at(self.arrived));
        }
        Ok(match &mut self.hider {
            Some(hider) => hider.next(&piece).into(),
            None => piece,
        })
    }
}

impl http_body::Body for Bounded {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if this.sleep.as_mut().is_some_and(|sleep| sleep.as_mut().poll(context).is_ready()) {
            this.sleep = None;
            return Poll::Ready(Some(Err(this.guard.deadline.error("the API server is too slow").into())));
        }
        loop {
            let frame = match Pin::new(&mut this.body).poll_frame(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => {
                    let rest = this.hider.as_mut().map(Hider::rest).unwrap_or_default();
                    return Poll::Ready((!rest.is_empty()).then(|| Ok(Frame::data(rest.into()))));
                }
            };
            let piece = match frame.into_data() {
                Ok(piece) => this.take(piece),
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            };
            match piece {
                Ok(piece) if piece.is_empty() => {}
                piece => return Poll::Ready(Some(piece.map(Frame::data))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    static PIECE: [u8; 64 << 10] = [b'x'; 64 << 10];

    /// A body whose pieces come at intervals.
    struct Slow(std::collections::VecDeque<&'static [u8]>, Pin<Box<Sleep>>, Duration);

    impl http_body::Body for Slow {
        type Data = Bytes;
        type Error = BoxError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
            if self.1.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            let next = tokio::time::Instant::now() + self.2;
            self.1.as_mut().reset(next);
            Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(Bytes::from_static(piece)))))
        }
    }

    fn slow(pieces: usize, piece: &'static [u8], pause: Duration) -> Answer {
        let first = Box::pin(tokio::time::sleep(Duration::ZERO));
        Response::new(Slow(std::iter::repeat_n(piece, pieces).collect(), first, pause).boxed_unsync())
    }

    async fn read(expected: Expected, limit: Duration, answer: Answer) -> Result<usize, String> {
        let deadline = Deadline::after(limit);
        let guard = Guard { expected, begins: deadline, deadline };
        let answer = guard.run(async { Ok((answer, None)) }).await.map_err(|error| error.to_string())?;
        answer
            .into_body()
            .collect()
            .await
            .map(|body| body.to_bytes().len())
            .map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn an_answer_that_comes_byte_by_byte_ends_at_its_deadline() {
        let began = Instant::now();
        for expected in [Expected::Object, Expected::Changes, Expected::Log] {
            let limit = Duration::from_millis(100);
            let error =
                read(expected, limit, slow(100_000, b" ", Duration::from_millis(5))).await.unwrap_err();
            assert!(error.contains("not complete after 0 s"), "{expected:?}: {error}");
        }
        assert!(began.elapsed() < Duration::from_secs(60));
        // A followed log has no deadline, and one that is read has more time the more has arrived.
        for expected in [Expected::FollowedLog, Expected::Log] {
            let answer = slow(30, &PIECE, Duration::from_millis(10));
            assert_eq!(read(expected, Duration::from_millis(100), answer).await, Ok(30 * PIECE.len()));
        }
    }

    #[tokio::test]
    async fn an_answer_that_never_begins_ends_at_its_deadline() {
        let deadline = Deadline::after(Duration::from_millis(20));
        let guard = Guard { expected: Expected::FollowedLog, begins: deadline, deadline };
        let error = guard.run(std::future::pending()).await.map(drop).unwrap_err();
        let error = error.downcast_ref::<Error>().unwrap();
        assert!(error.kind() == ErrorKind::Unreachable && error.is_retryable(), "{error}");
    }

    #[tokio::test]
    async fn an_answer_is_read_without_what_was_sent_and_its_status_counts() {
        let token = "guard-token-8Hq2";
        let request = || {
            let request = Request::get("/api/v1/namespaces/a/pods");
            request.header("authorization", format!("Bearer {token}")).body(Body::empty()).unwrap()
        };
        let said = json!({"message": format!("token {token} may not list pods"), "code": 200}).to_string();
        for status in [200, 403, 500] {
            let mut answer = Response::new(whole(said.clone().into()));
            *answer.status_mut() = StatusCode::from_u16(status).unwrap();
            let guard = Guard::of(&request());
            let answer = guard.run(async { Ok((answer, None)) }).await.unwrap();
            let body: Value =
                serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap();
            assert_eq!(body["message"], "token … may not list pods", "{status}");
            assert_eq!(body["code"], status);
        }
    }

    #[tokio::test]
    async fn an_error_without_end_is_cut() {
        let mut answer = slow(10_000, &PIECE, Duration::ZERO);
        *answer.status_mut() = StatusCode::BAD_GATEWAY;
        assert_eq!(read(Expected::Object, CALL, answer).await, Ok(LARGEST_ERROR));
    }
}
