//! HTTP requests, sent in one place, so that each is logged (`-vv`).

use std::time::Instant;

use reqwest::{RequestBuilder, Response};

/// Sends a request. Its method, URL without query, status and duration are logged; headers and bodies, which
/// contain secrets, are not.
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
