//! The text of an answer, of which no more is taken than any of them needs.

use reqwest::Response;

/// Longest answer that is taken; a page of workloads is far below.
const LONGEST: usize = 64 << 20;

/// The text of an answer. One that does not end is cut, and then is not what was expected.
pub async fn text(mut response: Response) -> reqwest::Result<String> {
    let mut bytes = Vec::new();
    while let Some(piece) = response.chunk().await? {
        bytes.extend_from_slice(&piece);
        if bytes.len() > LONGEST {
            break;
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
