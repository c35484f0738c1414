//! Names from which clusters derive other names.

use super::{Findings, shown};
use crate::spec::JobSpec;
use crate::spec::file::join;

/// Longest DNS label (RFC 1035 §2.3.4): host names of pods are labels.
const LABEL: usize = 63;

pub(super) fn check(job: &JobSpec, out: &mut Findings) {
    job_name(job, out);
    for (path, map) in [("labels", &job.labels), ("annotations", &job.annotations)] {
        for (key, value) in map {
            if let Some(why) = bad_key(key) {
                let message = format!("`{}` is no {path} key: {why}", shown(key));
                out.error("SPEC-LABEL", &join(path, key), message).fix(
                    "a key is `name` or `domain/name`, the name at most 63 letters, digits, `-`, `_` and `.`",
                );
            } else if path == "labels" && !label_value(value) {
                let message = format!("label `{key}` cannot have the value `{}`", shown(value));
                out.error("SPEC-LABEL", &join(path, key), message)
                    .fix("a label's value is at most 63 letters, digits, `-`, `_` and `.`; annotations take any text");
            }
        }
    }
    for (path, value) in [("queue", &job.queue), ("priority", &job.priority), ("profile", &job.profile)] {
        if let Some(text) = value
            && (text.is_empty() || text.contains(|c: char| c.is_whitespace() || c.is_control() || c == ','))
        {
            out.error("SPEC-VALUE", path, format!("`{}` is not the name of a {path}", shown(text)));
        }
    }
}

fn job_name(job: &JobSpec, out: &mut Findings) {
    let name = &job.name;
    if name.is_empty() {
        return out.error("SPEC-NAME", "name", "the job has no name").fix("set `name = \"…\"`, or `--name`");
    }
    if !is_label(name) {
        let message = format!("`{}` cannot be a job's name: clusters derive host names from it", shown(name));
        let last = out.error("SPEC-NAME", "name", message);
        match label_of(name) {
            Some(near) => {
                last.fix(format!("`{near}` would do: lower-case letters, digits and `-`, a letter first"));
            }
            None => last.fix("use lower-case letters, digits and `-`, a letter first"),
        }
    }
}

/// Returns whether a text is a DNS-1035 label, which the operators require of names
/// (kubeflow/training-operator v1.9, `pkg/webhooks/pytorch`; Trainer's CEL rule on `metadata.name`).
pub(super) fn is_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    let good = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-';
    text.len() <= LABEL
        && bytes.first().is_some_and(u8::is_ascii_lowercase)
        && bytes.last().is_some_and(|b| *b != b'-')
        && bytes.iter().all(good)
}

/// Returns the label nearest to a name: `My_Job.v2` is `my-job-v2`.
fn label_of(name: &str) -> Option<String> {
    // The suffixes of pods must fit too.
    const ROOM: usize = 13;
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let text: String = name.chars().map(plain).take(LABEL - ROOM).collect();
    let text = text.trim_start_matches(|c: char| !c.is_ascii_lowercase()).trim_end_matches('-').to_owned();
    is_label(&text).then_some(text)
}

/// Returns whether a text is a DNS subdomain (RFC 1123), the form of names of claims and secrets.
pub(super) fn is_subdomain(text: &str) -> bool {
    let good = |part: &str| {
        let bytes = part.as_bytes();
        let ends = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        ends(bytes.first())
            && ends(bytes.last())
            && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
    };
    !text.is_empty() && text.len() <= 253 && text.split('.').all(good)
}

/// Returns why a text is no key of a label or annotation.
pub(super) fn bad_key(key: &str) -> Option<&'static str> {
    let name = match key.split_once('/') {
        Some((domain, _)) if !is_subdomain(domain) => return Some("the part before `/` is not a domain"),
        Some((_, name)) => name,
        None => key,
    };
    if name.is_empty() {
        Some("the name is empty")
    } else if !label_value(name) {
        Some("it has characters no key can have, or is too long")
    } else {
        None
    }
}

/// Returns whether all characters are valid in a label's value; a key's name has the same ones.
fn label_value(text: &str) -> bool {
    let bytes = text.as_bytes();
    let ends = |b: Option<&u8>| b.is_none_or(u8::is_ascii_alphanumeric);
    text.len() <= LABEL
        && ends(bytes.first())
        && ends(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}
