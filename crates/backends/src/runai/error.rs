//! Converts the control plane's answers and network failures to [`weftrun_core::Error`].

use reqwest::StatusCode;
use serde::Deserialize;
use weftrun_core::{Error, ErrorKind, Finding};

/// An error body: `{code, message, details?, complianceIssues?}`, or RFC 6749's `{error, error_description?}`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Body {
    message: Option<String>,
    details: Option<serde_json::Value>,
    compliance_issues: Vec<Issue>,
    error: Option<String>,
    error_description: Option<String>,
}

/// A violation of a project's policy.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Issue {
    field: String,
    details: Option<String>,
    rule: Option<String>,
}

/// Longest part of an answer that is quoted.
const QUOTED: usize = 300;

/// Returns the error of an answer that is not a success.
pub fn of_answer(what: &str, status: StatusCode, body: &str) -> Error {
    let parsed: Body = serde_json::from_str(body).unwrap_or_default();
    let said = parsed
        .message
        .clone()
        .or_else(|| parsed.error_description.clone())
        .or_else(|| parsed.error.clone())
        .unwrap_or_else(|| quote(body));
    let message = if body.trim_start().starts_with('<') {
        format!("{what}: an HTML page came with {status}, so something before the control plane answered")
    } else if said.is_empty() {
        format!("{what}: the control plane answered {status}")
    } else {
        format!("{what}: {}", clean(&said))
    };
    let mut error = Error::new(kind(status), message).with("status", status.as_u16());
    if let Some(details) = parsed.details.filter(|details| !details.is_null()) {
        error = error.with("details", quote(&details.to_string()));
    }
    if !parsed.compliance_issues.is_empty() {
        let findings = parsed.compliance_issues.iter().map(finding).collect();
        error = Error::from_findings(ErrorKind::Refused, error.to_string(), findings);
    }
    match status.as_u16() {
        401 => error.hint("the token was refused twice; check the application's id and secret, or log in again"),
        403 => error.hint("the token may not do this; ask your Run:ai administrator for the role, or put `project-id` and `cluster-id` in the target's table"),
        429 | 500 | 502..=504 => error.retryable(),
        _ => error,
    }
}

fn finding(issue: &Issue) -> Finding {
    let rule = issue.rule.as_deref().unwrap_or("policy");
    let text = issue.details.clone().unwrap_or_else(|| format!("refused by the rule `{rule}`"));
    Finding::error("RUNAI-POLICY", clean(&text)).at(clean(&issue.field)).fix(match rule {
        "min" | "max" | "step" => "change the value to one the policy allows",
        "options" => "choose one of the values the policy lists",
        "required" => "set the field",
        "canEdit" | "locked" => "leave the field unset: the policy decides it",
        "canAdd" => "remove the entry: the policy allows no more",
        _ => "change the value that the policy refuses, or ask your Run:ai administrator",
    })
}

fn kind(status: StatusCode) -> ErrorKind {
    match status.as_u16() {
        401 | 403 => ErrorKind::Credentials,
        404 => ErrorKind::NotFound,
        409 => ErrorKind::AlreadyExists,
        429 | 500..=599 => ErrorKind::Unreachable,
        400..=499 => ErrorKind::Refused,
        _ => ErrorKind::Protocol,
    }
}

/// Returns the error of a request without an answer. URLs contain no secrets, since tokens are sent in
/// headers only.
pub fn of_network(what: &str, error: reqwest::Error) -> Error {
    let kind = if error.is_timeout() { ErrorKind::Timeout } else { ErrorKind::Unreachable };
    let made = Error::new(kind, format!("{what}: {}", clean(&cause(&error))));
    let made = match error.url() {
        Some(url) => made.with("host", url.host_str().unwrap_or("?")),
        None => made,
    };
    if is_certificate(&error) && cause(&error).to_lowercase().contains("not valid for name") {
        return made
            .hint("another server answers there: correct the URL in the target's table, or the name's DNS record")
            .hint("`weftrun doctor` says which certificate answers");
    }
    if is_certificate(&error) {
        return made
            .hint("set `ca-file` in the target's table to the CA of the control plane")
            .hint("`weftrun doctor` says which certificate answers");
    }
    made.retryable().with_source(error)
}

/// Returns whether the certificate of either side was refused: a retry cannot help.
pub fn is_certificate(error: &reqwest::Error) -> bool {
    let cause = cause(error);
    ["certificate", "UnknownIssuer", "CertificateRequired"].iter().any(|word| cause.contains(word))
}

/// Returns the innermost cause.
fn cause(error: &reqwest::Error) -> String {
    let mut root: &dyn std::error::Error = error;
    while let Some(next) = root.source() {
        root = next;
    }
    root.to_string()
}

/// Returns the error of an answer that cannot be parsed.
pub fn of_shape(what: &str, body: &str, error: &serde_json::Error) -> Error {
    let html = body.trim_start().starts_with('<');
    let said = if html { "an HTML page: is the URL the control plane's?".to_owned() } else { quote(body) };
    Error::new(ErrorKind::Protocol, format!("{what}: the answer is not what was expected: {said}"))
        .with("parse", error)
}

/// Returns the error of an answer without a field that every version has.
pub fn without(what: &str, body: &str, key: &str) -> Error {
    let message = format!("{what}: the answer is not what was expected: {}", quote(body));
    Error::new(ErrorKind::Protocol, message).with("missing", key)
}

/// Returns the beginning of a text, safe to print.
pub fn quote(text: &str) -> String {
    clean(&text.chars().take(QUOTED).collect::<String>())
}

fn clean(text: &str) -> String {
    weftrun_core::log::clean_text(text).into_owned()
}
