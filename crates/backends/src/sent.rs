//! The secrets that this process has sent: whatever a server answers is read without them, so that a server which
//! repeats one gets it neither printed nor logged nor stored. All HTTP clients use this module.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use memchr::memmem::Finder;
use weftrun_core::text::percent;

/// What stands for a secret.
const HIDDEN: &str = "…";
/// A shorter text is no secret, and would be found in ordinary words.
const SHORTEST: usize = 6;
/// Number of secrets that are remembered; tokens are renewed about once an hour.
const MOST: usize = 64;
/// The headers whose values are secrets.
const HEADERS: [&str; 4] = ["authorization", "proxy-authorization", "x-slurm-user-token", "cookie"];

/// One secret, in the forms in which an answer may hold it.
struct Sent {
    secret: String,
    forms: Vec<Finder<'static>>,
}

static SENT: LazyLock<RwLock<VecDeque<Arc<Sent>>>> = LazyLock::new(RwLock::default);

/// Remembers a secret that is sent.
pub fn remember(secret: &str) {
    let secret = secret.trim();
    let known = |sent: &VecDeque<Arc<Sent>>| sent.iter().any(|one| one.secret == secret);
    if secret.len() < SHORTEST || known(&SENT.read().unwrap_or_else(PoisonError::into_inner)) {
        return;
    }
    let forms = forms(secret).iter().map(|form| Finder::new(form).into_owned()).collect();
    let mut sent = SENT.write().unwrap_or_else(PoisonError::into_inner);
    if known(&sent) {
        return;
    }
    sent.push_front(Arc::new(Sent { secret: secret.to_owned(), forms }));
    sent.truncate(MOST);
}

/// Remembers the secret in a header, if it holds one.
pub fn remember_header(name: &str, value: &[u8]) {
    let Ok(value) = std::str::from_utf8(value) else { return };
    if !HEADERS.contains(&name) {
        return;
    }
    let (scheme, secret) = value.split_once(' ').unwrap_or(("", value));
    remember(secret);
    // A server may repeat the password of `Basic` credentials.
    if scheme.eq_ignore_ascii_case("basic")
        && let Ok(bytes) = STANDARD_NO_PAD.decode(secret.trim().trim_end_matches('='))
        && let Ok(pair) = String::from_utf8(bytes)
    {
        remember(pair.split_once(':').map_or(pair.as_str(), |(_, password)| password));
    }
}

/// Returns a text without the secrets that were sent.
pub fn hide(text: &str) -> Cow<'_, str> {
    match hide_bytes(text.as_bytes()) {
        // Secrets are text, so what is left of text is text.
        Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        Cow::Borrowed(_) => Cow::Borrowed(text),
    }
}

/// Returns bytes without the secrets that were sent.
pub fn hide_bytes(bytes: &[u8]) -> Cow<'_, [u8]> {
    let sent: Vec<Arc<Sent>> =
        SENT.read().unwrap_or_else(PoisonError::into_inner).iter().map(Arc::clone).collect();
    let mut shown = Cow::Borrowed(bytes);
    for form in sent.iter().flat_map(|one| &one.forms) {
        if form.find(&shown).is_none() {
            continue;
        }
        let (mut kept, mut from) = (Vec::with_capacity(shown.len()), 0);
        for at in form.find_iter(&shown) {
            kept.extend_from_slice(shown.get(from..at).unwrap_or_default());
            kept.extend_from_slice(HIDDEN.as_bytes());
            from = at + form.needle().len();
        }
        kept.extend_from_slice(shown.get(from..).unwrap_or_default());
        shown = Cow::Owned(kept);
    }
    shown
}

/// Hides secrets in bytes that arrive in pieces.
#[derive(Debug, Default)]
pub struct Hider {
    /// The end of what has arrived, which may be the beginning of a secret.
    held: Vec<u8>,
}

impl Hider {
    /// Returns what can be passed on of what has arrived.
    pub fn next(&mut self, piece: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(piece);
        let mut shown = match hide_bytes(&self.held) {
            Cow::Owned(shown) => shown,
            Cow::Borrowed(_) => std::mem::take(&mut self.held),
        };
        self.held = shown.split_off(shown.len() - begun(&shown));
        shown
    }

    /// Returns the rest, when no more arrives.
    pub fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }
}

/// Returns the length of the longest end of some bytes with which a secret begins.
fn begun(bytes: &[u8]) -> usize {
    let sent = SENT.read().unwrap_or_else(PoisonError::into_inner);
    let of = |needle: &[u8]| {
        let most = bytes.len().min(needle.len().saturating_sub(1));
        (1..=most).rev().find(|length| bytes.ends_with(needle.get(..*length).unwrap_or_default()))
    };
    sent.iter().flat_map(|one| &one.forms).filter_map(|form| of(form.needle())).max().unwrap_or(0)
}

/// Returns a secret as it may be repeated: as it is, percent-encoded, in JSON, and inside of base64 at each of the
/// three places where its first byte can be. The longest come first.
fn forms(secret: &str) -> Vec<Vec<u8>> {
    let json = serde_json::Value::from(secret).to_string();
    let json = json.get(1..json.len().saturating_sub(1)).unwrap_or_default().to_owned();
    let percent = percent::encode(secret);
    let mut forms: Vec<String> = vec![secret.to_owned(), percent.replace("%20", "+"), percent, json];
    for before in 0..3 {
        let bytes = [&vec![0; before], secret.as_bytes()].concat();
        // Characters that the neighbouring bytes share are left out.
        let (from, to) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
        for encoded in [STANDARD_NO_PAD.encode(&bytes), URL_SAFE_NO_PAD.encode(&bytes)] {
            forms.extend(encoded.get(from..to).map(str::to_owned));
        }
    }
    forms.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    forms.dedup();
    forms.into_iter().map(String::into_bytes).collect()
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    #[test]
    fn a_secret_is_hidden_in_every_form_in_which_it_is_repeated() {
        let secret = "q9/Z+x\"w é?1=";
        remember_header("authorization", format!("Bearer {secret}").as_bytes());
        let basic = STANDARD.encode("user:pass-of-q9Zx");
        remember_header("proxy-authorization", format!("Basic {basic}").as_bytes());
        let mut repeated = vec![
            secret.to_owned(),
            percent::encode(secret),
            serde_json::Value::from(secret).to_string(),
            basic,
            "pass-of-q9Zx".to_owned(),
        ];
        for around in ["", "a", "ab", "abc:"] {
            repeated.push(STANDARD.encode(format!("{around}{secret}{around}")));
            repeated.push(URL_SAFE_NO_PAD.encode(format!("{around}{secret}")));
        }
        for text in repeated {
            let shown = hide(&text);
            assert!(shown.contains(HIDDEN), "{text}: {shown}");
            // At most the characters of base64 that are shared with its neighbours are left.
            assert!(!shown.contains("q9") && shown.len() < 24, "{text}: {shown}");
        }
        assert_eq!(hide("nothing of it"), "nothing of it");
    }

    #[test]
    fn a_secret_that_arrives_in_pieces_is_hidden_and_all_else_arrives() {
        let secret = "piecewise-7Kd2-secret";
        remember(secret);
        let text = format!("piece{secret} of a p{secret}{secret}piecewise-");
        for size in 1..text.len() {
            let mut hider = Hider::default();
            let mut shown: Vec<u8> =
                text.as_bytes().chunks(size).flat_map(|piece| hider.next(piece)).collect();
            shown.extend(hider.rest());
            assert_eq!(String::from_utf8(shown).unwrap(), "piece… of a p……piecewise-", "pieces of {size}");
        }
        let mut hider = Hider::default();
        assert_eq!(hider.next(b"{\"type\":\"ADDED\"}\n"), b"{\"type\":\"ADDED\"}\n", "nothing is held back");
    }

    #[test]
    fn what_is_no_secret_is_left() {
        remember("short");
        remember("");
        remember_header("accept", b"application/json");
        assert_eq!(hide("a short application/json"), "a short application/json");
    }
}
