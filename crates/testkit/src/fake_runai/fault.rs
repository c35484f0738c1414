//! Faults between a client and a control plane.

use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State as Extract};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::{Seen, Shared, lock};

/// A fault of the next matching requests.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Method.
    pub method: &'static str,
    /// Beginning of the path.
    pub path: &'static str,
    /// Number of requests it affects.
    pub times: u32,
    /// The kind of fault.
    pub trouble: Trouble,
}

/// The fault of a request.
#[derive(Clone, Debug)]
pub enum Trouble {
    /// This answer, without executing the request.
    Status(u16),
    /// Too many requests; retry after this many seconds.
    RetryAfter(u32),
    /// Too many requests; retry after this duration, which the answer contains as a date.
    RetryAt(Duration),
    /// A gateway's HTML page.
    Html(u16),
    /// The answer is delayed.
    Slow(Duration),
    /// The connection breaks before the request is executed.
    CutBefore,
    /// The request is executed, and the connection breaks before the answer.
    CutAfter,
    /// The token has expired.
    TokenExpired,
}

/// Records the request, and applies the next matching fault.
pub async fn layer(Extract(state): Extract<Shared>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let bytes = to_bytes(body, 32 << 20).await.unwrap_or_default();
    let path = parts.uri.path_and_query().map_or_else(String::new, ToString::to_string);
    let (trouble, at) = {
        let mut state = lock(&state);
        let body = String::from_utf8_lossy(&bytes).into_owned();
        state.journal.push(Seen { method: parts.method.to_string(), path: path.clone(), body, status: 0 });
        (take(&mut state.faults, parts.method.as_str(), &path), state.journal.len() - 1)
    };
    let request = Request::from_parts(parts, Body::from(bytes));
    let broke = matches!(trouble, Some(Trouble::CutBefore | Trouble::CutAfter));
    let answer = answer(&state, trouble, request, next).await;
    if !broke && let Some(seen) = lock(&state).journal.get_mut(at) {
        seen.status = answer.status().as_u16();
    }
    answer
}

async fn answer(state: &Shared, trouble: Option<Trouble>, request: Request, next: Next) -> Response {
    match trouble {
        None => next.run(request).await,
        Some(Trouble::Status(code)) => {
            let body = format!("{{\"code\":{code},\"message\":\"made to fail\"}}");
            (StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), body).into_response()
        }
        Some(Trouble::RetryAfter(seconds)) => {
            let mut answer = (StatusCode::TOO_MANY_REQUESTS, "{\"message\":\"slow down\"}").into_response();
            answer.headers_mut().insert("retry-after", HeaderValue::from(seconds));
            answer
        }
        Some(Trouble::RetryAt(wait)) => {
            // A date has no fractions of a second.
            let at = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(wait.as_secs().cast_signed());
            let date = at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
            let mut answer = (StatusCode::TOO_MANY_REQUESTS, "{\"message\":\"slow down\"}").into_response();
            if let Ok(date) = HeaderValue::from_str(&date) {
                answer.headers_mut().insert("retry-after", date);
            }
            answer
        }
        Some(Trouble::Html(code)) => {
            let page = "<!DOCTYPE html><html><body>502 Bad Gateway</body></html>";
            (StatusCode::from_u16(code).unwrap_or(StatusCode::BAD_GATEWAY), page).into_response()
        }
        Some(Trouble::Slow(wait)) => {
            tokio::time::sleep(wait).await;
            next.run(request).await
        }
        Some(Trouble::CutBefore) => broken(),
        Some(Trouble::CutAfter) => {
            let _ = next.run(request).await;
            broken()
        }
        Some(Trouble::TokenExpired) => {
            lock(state).tokens.clear();
            next.run(request).await
        }
    }
}

fn take(faults: &mut Vec<Fault>, method: &str, path: &str) -> Option<Trouble> {
    let at = faults.iter().position(|fault| fault.method == method && path.starts_with(fault.path))?;
    let trouble = faults[at].trouble.clone();
    faults[at].times = faults[at].times.saturating_sub(1);
    if faults[at].times == 0 {
        faults.remove(at);
    }
    Some(trouble)
}

/// Returns an answer that announces more bytes than it sends, as a client sees a cut connection.
fn broken() -> Response {
    let pieces = futures_util::stream::iter([Err::<Bytes, _>(std::io::Error::other("cut"))]);
    Response::builder().header("content-length", "100").body(Body::from_stream(pieces)).unwrap_or_default()
}
