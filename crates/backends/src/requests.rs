//! Requests over HTTP: sent in one place, so that each is in the log (`-vv`).

use std::time::Instant;

use reqwest::{RequestBuilder, Response};

/// Sends a request. Its method, URL without query, status and time go to the log; headers and bodies, which hold secrets, do not.
///
/// # Errors
/// As [`RequestBuilder::send`].
pub async fn send(request: RequestBuilder) -> reqwest::Result<Response> {
    let (client, request) = request.build_split();
    let request = request?;
    let method = request.method().clone();
    let mut url = request.url().clone();
    let _ = (url.set_password(None), url.set_username(""));
    url.set_query(None);
    let begun = Instant::now();
    let answer = client.execute(request).await;
    let ms = begun.elapsed().as_millis();
    match &answer {
        Ok(answer) => tracing::trace!(%method, %url, status = answer.status().as_u16(), ms, "request"),
        Err(error) => {
            let kind = if error.is_timeout() { "timeout" } else { "no answer" };
            tracing::trace!(%method, %url, error = kind, ms, "request");
        }
    }
    answer
}
