//! Reads a server's certificate, trusted or not: for display, never for a decision.
//!
//! Only the displayed parts of the DER are parsed (RFC 5280 §4.1): names, validity, alternative names.

use std::time::Duration;

use reqwest::tls::TlsInfo;
use weftrun_core::Result;
use weftrun_core::log::clean_text;

use super::Shared;
use super::client::builder;
use super::config::RunaiTarget;
use super::error;
use crate::requests::{no_client, send};

/// The displayed fields of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificate {
    /// Common name, or the last part of the subject.
    pub subject: String,
    pub issuer: String,
    /// Host names and addresses it is valid for.
    pub names: Vec<String>,
    /// Start and end of its validity, as `2026-01-31 12:00`.
    pub valid: (String, String),
}

impl Certificate {
    pub fn is_self_signed(&self) -> bool {
        self.subject == self.issuer
    }
}

impl std::fmt::Display for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let by = if self.is_self_signed() { "itself".to_owned() } else { format!("`{}`", self.issuer) };
        write!(f, "`{}`, signed by {by}, until {}", self.subject, self.valid.1)?;
        if self.names.is_empty() { Ok(()) } else { write!(f, ", for {}", self.names.join(", ")) }
    }
}

/// Fetches a server's certificate. Nothing secret is sent, since nothing is trusted: no token, no path.
pub async fn shown_by(shared: &Shared, base: &str) -> Result<Option<Certificate>> {
    // A client that trusts `ca-file` checks the certificate, whatever else is set.
    let unchecked = RunaiTarget { insecure: true, ..shared.settings.clone() };
    let client = builder(&shared.target, &unchecked)?
        .tls_danger_accept_invalid_certs(true)
        .tls_info(true)
        .timeout(Duration::from_secs(10));
    let answer = send(client.build().map_err(no_client)?.head(format!("{base}/"))).await;
    let answer = answer.map_err(|e| error::of_network("cannot see the certificate", e))?;
    let der = answer.extensions().get::<TlsInfo>().and_then(TlsInfo::peer_certificate);
    Ok(der.and_then(read))
}

/// Returns why a server's certificate is refused, as the target's settings have it checked. Nothing secret is sent.
pub async fn refusal(shared: &Shared, base: &str) -> Result<Option<String>> {
    let client = builder(&shared.target, &shared.settings)?.timeout(Duration::from_secs(10));
    match send(client.build().map_err(no_client)?.head(format!("{base}/"))).await {
        Err(e) if error::is_certificate(&e) => {
            Ok(Some(error::of_network("the certificate is refused", e).message().to_owned()))
        }
        _ => Ok(None),
    }
}

/// Parses one element of DER: its tag, its content, and the rest.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (len, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let count = usize::from(first & 0x7f);
        let digits = rest.get(..count).filter(|_| count <= 4)?;
        (digits.iter().fold(0, |len, digit| (len << 8) | usize::from(*digit)), rest.get(count..)?)
    };
    Some((tag, rest.get(..len)?, rest.get(len..)?))
}

fn elements(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (tag, content, rest) = element(bytes)?;
        bytes = rest;
        Some((tag, content))
    })
}

const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// `id-ce-subjectAltName`, 2.5.29.17.
const ALTERNATIVE_NAMES: [u8; 3] = [0x55, 0x1d, 0x11];
/// `id-at-commonName`, 2.5.4.3.
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];

fn read(der: &[u8]) -> Option<Certificate> {
    let (_, certificate, _) = element(der)?;
    let (_, body, _) = element(certificate)?;
    let mut fields = elements(body).filter(|(tag, _)| *tag != VERSION);
    // Serial number and algorithm come first.
    let (_serial, _algorithm) = (fields.next()?, fields.next()?);
    let issuer = name(fields.next()?.1);
    let mut validity = elements(fields.next()?.1).map(|(tag, text)| time(tag, text));
    let valid = (validity.next().unwrap_or_default(), validity.next().unwrap_or_default());
    let subject = name(fields.next()?.1);
    let names = fields.find(|(tag, _)| *tag == EXTENSIONS).map(|(_, content)| alternative_names(content));
    Some(Certificate { subject, issuer, names: names.unwrap_or_default(), valid })
}

/// Returns the common name, or else the last part of the name.
fn name(sequence: &[u8]) -> String {
    let parts = elements(sequence).filter_map(|(_, set)| {
        let (_, pair, _) = element(set)?;
        let mut pair = elements(pair);
        Some((pair.next()?.1, pair.next()?.1))
    });
    let mut last = "";
    for (kind, value) in parts {
        last = std::str::from_utf8(value).unwrap_or(last);
        if kind == COMMON_NAME {
            break;
        }
    }
    clean_text(last).into_owned()
}

/// Formats `200101000000Z` (UTCTime) and `20200101000000Z` (GeneralizedTime) as `2020-01-01 00:00`.
fn time(tag: u8, text: &[u8]) -> String {
    const UTC_TIME: u8 = 0x17;
    let text: String = text.iter().filter(|b| b.is_ascii_digit()).map(|b| char::from(*b)).collect();
    let text = match tag {
        UTC_TIME if text.as_str() < "5" => format!("20{text}"),
        UTC_TIME => format!("19{text}"),
        _ => text,
    };
    let piece = |range: std::ops::Range<usize>| text.get(range).unwrap_or("??").to_owned();
    format!("{}-{}-{} {}:{}", piece(0..4), piece(4..6), piece(6..8), piece(8..10), piece(10..12))
}

fn alternative_names(extensions: &[u8]) -> Vec<String> {
    const DNS: u8 = 0x82;
    const ADDRESS: u8 = 0x87;
    let Some((_, list, _)) = element(extensions) else { return Vec::new() };
    let found = elements(list).find_map(|(_, extension)| {
        let mut parts = elements(extension);
        (parts.next()?.1 == ALTERNATIVE_NAMES).then(|| parts.last())?
    });
    let Some((_, wrapped)) = found else { return Vec::new() };
    let Some((_, names, _)) = element(wrapped) else { return Vec::new() };
    let name = |(tag, content): (u8, &[u8])| match (tag, content.len()) {
        (DNS, _) => Some(clean_text(std::str::from_utf8(content).ok()?).into_owned()),
        (ADDRESS, 4) => Some(std::net::Ipv4Addr::from(<[u8; 4]>::try_from(content).ok()?).to_string()),
        (ADDRESS, 16) => Some(std::net::Ipv6Addr::from(<[u8; 16]>::try_from(content).ok()?).to_string()),
        _ => None,
    };
    elements(names).filter_map(name).take(20).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the certificate of the testkit's control plane.
    fn der() -> Vec<u8> {
        use base64::Engine;
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../testkit/src/fake_runai/tls/server.pem");
        let pem = std::fs::read_to_string(path).unwrap();
        let body: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
        base64::engine::general_purpose::STANDARD.decode(body).unwrap()
    }

    #[test]
    fn a_certificate_says_who_it_is_and_for_how_long() {
        let certificate = read(&der()).unwrap();
        let wanted =
            "`localhost`, signed by `private authority`, until 2096-01-01 00:00, for localhost, 127.0.0.1";
        assert_eq!(certificate.to_string(), wanted);
        assert_eq!(certificate.valid.0, "2020-01-01 00:00");
        assert!(!certificate.is_self_signed());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(cut in 0usize..600, at in 0usize..600, byte: u8) {
            let mut der = der();
            der.truncate(cut);
            if let Some(place) = der.get_mut(at) {
                *place = byte;
            }
            let _ = read(&der);
        }
    }
}
