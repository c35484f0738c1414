//! Reads the text of an answer, with a size limit.

use reqwest::Response;

/// Largest answer that is read; a page of workloads is far smaller.
const LONGEST: usize = 64 << 20;

/// Returns the text of an answer. An endless one is cut, and then fails to parse.
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
