//! HTTP requests, sent in one place, so that each is logged (`-vv`).

use std::borrow::Cow;
use std::time::Instant;

use base64::Engine as _;
use reqwest::{RequestBuilder, Response, Url};
use serde_json::Value;
use weftrun_core::{Error, ErrorKind};

use crate::sent;

/// Sends a request. Its method, URL without query, status and duration are logged; headers and bodies, which
/// contain secrets, are not.
///
/// # Errors
/// As [`RequestBuilder::send`].
pub async fn send(request: RequestBuilder) -> reqwest::Result<Response> {
    let (client, request) = request.build_split();
    let request = request?;
    for (name, value) in request.headers() {
        sent::remember_header(name.as_str(), value.as_bytes());
    }
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

/// Returns the text of an answer, without the secrets that were sent. One that is longer than this many bytes is cut, and
/// then fails to parse.
///
/// # Errors
/// As [`Response::chunk`].
pub async fn text(mut response: Response, longest: usize) -> reqwest::Result<String> {
    let mut bytes = Vec::new();
    while let Some(piece) = response.chunk().await? {
        bytes.extend_from_slice(&piece);
        if bytes.len() > longest {
            break;
        }
    }
    let text = String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    Ok(match sent::hide(&text) {
        Cow::Owned(shown) => shown,
        Cow::Borrowed(_) => text,
    })
}

/// Returns the claims of a JSON Web Token, none of which is verified; null if it cannot be read.
pub fn claims(token: &str) -> Value {
    let engine = base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let payload = token.split('.').nth(1).unwrap_or_default().trim_end_matches('=');
    let bytes = engine.decode(payload).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

/// Returns the error of an HTTP client that cannot be made.
pub fn no_client(cause: reqwest::Error) -> Error {
    // What rustls-platform-verifier 0.7 says of a machine without certificates, such as an empty container.
    let mut causes = std::iter::successors(std::error::Error::source(&cause), |cause| cause.source());
    let uncertified = causes.any(|cause| cause.to_string().contains("No CA certificates"));
    let error = Error::new(ErrorKind::InvalidConfig, "cannot make an HTTP client").with_source(cause);
    if !uncertified {
        return error;
    }
    error.hint("install the package `ca-certificates`, or set SSL_CERT_FILE to a file of CA certificates")
}

/// Returns whether a token that is sent to an address is unencrypted on its way to another machine.
pub fn is_clear(address: &str) -> bool {
    match Url::parse(address) {
        Ok(url) => crate::address::is_clear(url.scheme(), url.host_str().unwrap_or_default()),
        Err(_) => !address.starts_with("https://"),
    }
}
