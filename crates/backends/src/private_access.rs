//! Whether an endpoint is reached without the public internet, for `doctor --private-access`: what its name resolves to.
//! The steps that the findings name are those of `docs/guides/private-access.md`.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use weftrun_core::backend::ClusterFacts;
use weftrun_core::fabric::PRIVATE_ACCESS;
use weftrun_core::{Error, ErrorKind, Finding};

use crate::address;
use crate::kubernetes::NOT_TRUSTED;

/// Longest wait for a name or a connection.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The code of what is found.
pub const CODE: &str = "PRIVATE-ACCESS";

/// Resolves a host. The error is a sentence.
pub async fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let bare = host.trim_matches(['[', ']']);
    match tokio::time::timeout(PATIENCE, tokio::net::lookup_host((bare, port))).await {
        Ok(Ok(addresses)) => Ok(addresses.collect()),
        Ok(Err(error)) => Err(format!("`{host}` does not resolve: {error}")),
        Err(_) => Err(format!("`{host}` did not resolve within {} s", PATIENCE.as_secs())),
    }
}

/// Returns the network of an address: `private`, `public`, `link-local` or `this machine`.
pub fn network_of(ip: IpAddr) -> &'static str {
    // `::ffff:10.0.0.7` is the address 10.0.0.7.
    let ip = ip.to_canonical();
    let private = match ip {
        // 100.64.0.0/10 is shared between a provider and its customers (RFC 6598).
        IpAddr::V4(ip) => ip.is_private() || (ip.octets()[0] == 100 && ip.octets()[1] & 0xc0 == 64),
        IpAddr::V6(ip) => ip.is_unique_local(),
    };
    match ip {
        _ if ip.is_loopback() => "this machine",
        IpAddr::V4(ip) if ip.is_link_local() => "link-local",
        IpAddr::V6(ip) if ip.is_unicast_link_local() => "link-local",
        _ if ip.is_unspecified() => "this machine",
        _ if private => "private",
        _ => "public",
    }
}

/// Formats addresses with their networks: `10.0.3.7 (private), 34.1.2.3 (public)`.
pub fn with_networks(addresses: &[IpAddr]) -> String {
    let shown: Vec<String> = addresses.iter().map(|ip| format!("{ip} ({})", network_of(*ip))).collect();
    shown.join(", ")
}

/// Resolves the host of a URL, unless a proxy does, and adds what is known of the way to it.
pub async fn check_url(what: &str, url: &str, proxy: Option<&str>, facts: &mut ClusterFacts) {
    let Some((scheme, _, host, port)) = address::parts(url) else { return };
    let port = port.unwrap_or(if scheme.eq_ignore_ascii_case("http") { 80 } else { 443 });
    let found = if proxy.is_some() { Ok(Vec::new()) } else { resolve(host, port).await };
    match found {
        Ok(found) => {
            let ips: Vec<IpAddr> = found.iter().map(SocketAddr::ip).collect();
            check(what, host, &ips, proxy, facts);
        }
        Err(error) => {
            check(what, host, &[], None, facts);
            facts.notes.push(Finding::error(CODE, error).at(what).fix(NO_NAME));
        }
    }
}

/// Adds what is known of the way to one endpoint: a row, and a finding unless all its addresses are private.
pub fn check(what: &str, host: &str, addresses: &[IpAddr], proxy: Option<&str>, facts: &mut ClusterFacts) {
    let shown = match (proxy, addresses.is_empty()) {
        (Some(_), _) => "by a proxy".to_owned(),
        (None, true) => "no address".to_owned(),
        (None, false) => with_networks(addresses),
    };
    let before =
        facts.extra.get(PRIVATE_ACCESS).and_then(serde_json::Value::as_str).map(|text| format!("{text}; "));
    facts
        .extra
        .insert(PRIVATE_ACCESS.to_owned(), format!("{}{what}: {shown}", before.unwrap_or_default()).into());
    facts.notes.extend(judge(host, addresses, proxy).map(|finding| finding.at(what)));
}

fn judge(host: &str, addresses: &[IpAddr], proxy: Option<&str>) -> Option<Finding> {
    if let Some(proxy) = proxy {
        let message =
            format!("`{host}` is reached through the proxy {proxy}: what is behind it cannot be seen");
        let fix = "add the host to NO_PROXY, or take `proxy-url` out of the kubeconfig, and check again";
        return Some(Finding::error(CODE, message).fix(fix));
    }
    let of = |network: &str| addresses.iter().find(|ip| network_of(**ip) == network);
    if let Some(ip) = of("public") {
        let message = format!("`{host}` resolves to the public address {ip}: private access is not proven");
        return Some(Finding::error(CODE, message).fix(NO_NAME));
    }
    let ip = of("this machine").or_else(|| of("link-local"))?;
    let network = network_of(*ip);
    let is = if host == ip.to_string() { network.to_owned() } else { format!("{ip}, {network}") };
    let message = format!("`{host}` is {is}: where it leads cannot be seen");
    Some(Finding::error(CODE, message).fix("check without the tunnel, from a machine of the VPC"))
}

/// How a name without a private address is corrected.
const NO_NAME: &str = "step 4, names: give the private zone a record of it (for a cluster's own API: its private endpoint), and let this \
                       machine ask the VPC's resolver";

/// How a failed connection to a private address is corrected.
pub const NO_WAY: &str = "the address is private: connect the VPN; or step 2, routes: there and back; or step 3, the endpoint's security \
                          group: port 443";

/// How a certificate that is refused is corrected.
pub const OTHER_SERVER: &str =
    "step 4, names: the record leads to another service; or the CA that is trusted here is not that server's";

/// Returns the finding for a cluster's API that does not answer, or not with a trusted certificate; none where it answered. The
/// step is that of an earlier finding about its addresses, if there is one.
pub fn of_answer(what: &str, error: &Error, before: &[Finding]) -> Option<Finding> {
    let is_of_certificate = error.message().contains(NOT_TRUSTED);
    let finding = Finding::error(CODE, error.message()).at(what);
    match error.kind() {
        _ if is_of_certificate => Some(finding.fix(OTHER_SERVER)),
        ErrorKind::Unreachable | ErrorKind::Timeout => {
            let is_named =
                before.iter().any(|note| note.code == CODE && note.subject.as_deref() == Some(what));
            Some(if is_named { finding } else { finding.fix(NO_WAY) })
        }
        _ => None,
    }
}

/// Returns the error of an endpoint that cannot be used, with all facts gathered so far.
pub fn explain_with_facts(error: &Error, code: &str, facts: ClusterFacts) -> Error {
    let mut findings = facts.notes;
    let rows = facts.extra.iter().filter_map(|(key, value)| Some((key, value.as_str()?)));
    findings.extend(rows.map(|(key, value)| Finding::info(code, format!("{key}: {value}"))));
    let mut made = Error::from_findings(error.kind(), error.message().to_owned(), findings);
    for (key, value) in error.context() {
        made = made.with(key, value);
    }
    for hint in error.hints() {
        made = made.hint(hint.clone());
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_apart() {
        let cases = [
            ("10.1.2.3", "private"),
            ("172.31.0.1", "private"),
            ("100.64.0.1", "private"),
            ("100.128.0.1", "public"),
            ("fd12::1", "private"),
            ("2600::1", "public"),
            ("127.0.0.1", "this machine"),
            ("::ffff:127.0.0.1", "this machine"),
            ("0.0.0.0", "this machine"),
            ("::ffff:10.1.2.3", "private"),
            ("fe80::1", "link-local"),
            ("169.254.169.254", "link-local"),
            ("34.1.2.3", "public"),
        ];
        for (address, wanted) in cases {
            assert_eq!(network_of(address.parse().unwrap()), wanted, "{address}");
        }
    }

    /// A private address is no proof: what does not answer there, or with another certificate, is an error with a step.
    #[test]
    fn an_api_that_does_not_answer_names_a_step() {
        let step = |kind, message: &str, before: &[Finding]| {
            let found = of_answer("cluster", &Error::new(kind, message), before)?;
            assert!(found.is_error());
            Some(found.fix.map(|fix| fix.text).unwrap_or_default())
        };
        let dead = step(ErrorKind::Unreachable, "the API server does not answer", &[]).unwrap();
        assert!(dead.contains("step 2"), "{dead}");
        let public = Finding::error(CODE, "public").at("cluster").fix(NO_NAME);
        assert_eq!(step(ErrorKind::Timeout, "no answer", &[public]).unwrap(), "");
        let other = step(ErrorKind::Credentials, NOT_TRUSTED, &[]).unwrap();
        assert!(other.contains("step 4"), "{other}");
        assert_eq!(step(ErrorKind::Credentials, "you may not get this (403)", &[]), None);
    }

    #[test]
    fn only_private_addresses_are_private_access() {
        let said = |addresses: &[&str], proxy| {
            let addresses: Vec<IpAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
            let mut facts = ClusterFacts::default();
            check("cluster", "a.run.ai", &addresses, proxy, &mut facts);
            let row = facts.extra[PRIVATE_ACCESS].as_str().unwrap().to_owned();
            (row, facts.notes.first().map(|note| (note.is_error(), note.message.clone())))
        };
        assert_eq!(
            said(&["10.0.3.7", "10.0.4.7"], None),
            ("cluster: 10.0.3.7 (private), 10.0.4.7 (private)".into(), None)
        );
        for (addresses, proxy, words) in [
            (&["10.0.3.7", "34.1.2.3"][..], None, "the public address 34.1.2.3"),
            (&["127.0.0.1"], None, "is 127.0.0.1, this machine"),
            (&[], Some("proxy:3128"), "through the proxy proxy:3128"),
        ] {
            let (row, finding) = said(addresses, proxy);
            let (is_error, message) = finding.unwrap_or_else(|| panic!("{row}"));
            assert!(is_error && message.contains(words), "{message}");
        }
    }
}
