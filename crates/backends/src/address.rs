//! Which addresses may be sent a secret: over TLS, or on this machine itself. All clients use this module.

use std::net::IpAddr;

/// Returns whether a host, without its port, is this machine.
pub fn is_this_machine(host: &str) -> bool {
    let bare = host.trim_matches(['[', ']']).trim_end_matches('.');
    bare.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Returns whether what is sent to a host is unencrypted on its way to another machine.
pub fn is_clear(scheme: &str, host: &str) -> bool {
    !matches!(scheme.to_ascii_lowercase().as_str(), "https" | "wss") && !is_this_machine(host)
}

/// Returns whether what is sent through a proxy is unencrypted on its way to another machine, namely the proxy's.
pub fn is_clear_through(scheme: &str, proxy: Option<&str>) -> bool {
    let host = proxy.map(|url| parts(url).map_or(url, |(_, _, host, _)| host));
    matches!(scheme.to_ascii_lowercase().as_str(), "http" | "ws")
        && host.is_some_and(|host| !is_this_machine(host))
}

/// Returns the scheme, the user with the password, the host without brackets, and the port of a URL; none if it has
/// no scheme. The port is none if it is missing or no number.
pub fn parts(url: &str) -> Option<(&str, Option<&str>, &str, Option<u16>)> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#', '\\']).next()?;
    let (user, address) = match authority.rsplit_once('@') {
        Some((user, address)) => (Some(user), address),
        None => (None, authority),
    };
    let (host, port) = split_port(address);
    // A name may end with the dot of the root.
    Some((scheme, user, host.trim_matches(['[', ']']).trim_end_matches('.'), port))
}

/// Splits `host:port` or `[v6]:port`, where the port may be missing.
pub fn split_port(text: &str) -> (&str, Option<u16>) {
    match text.rsplit_once(':') {
        Some((host, port)) if host.ends_with(']') || !host.contains(':') => match port.parse() {
            Ok(port) => (host, Some(port)),
            Err(_) => (text, None),
        },
        _ => (text, None),
    }
}

/// Warns of a proxy to which its own password is sent unencrypted.
pub fn warn_of_proxy(proxy: &str) {
    let Some((scheme, Some(user), host, _)) = parts(proxy) else { return };
    if user.contains(':') && is_clear(scheme, host) {
        tracing::warn!(
            "the password of the proxy {host} is sent to it unencrypted; an `https://` proxy encrypts it"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tls_and_this_machine_may_get_a_secret() {
        for (url, clear) in [
            ("https://tenant.run.ai", false),
            ("http://127.0.0.1:8080/x", false),
            ("http://localhost.:1", false),
            ("http://[::1]:1", false),
            ("ws://10.0.0.1", true),
            ("HTTP://api.example", true),
            ("http://127.0.0.1@api.example/", true),
            ("http://127.evil.example", true),
            ("http://localhost.evil.example", true),
            ("http://0.0.0.0:1", true),
            ("http://[::ffff:10.0.0.1]:1", true),
        ] {
            let (scheme, _, host, _) = parts(url).unwrap();
            assert_eq!(is_clear(scheme, host), clear, "{url}");
        }
        assert_eq!(parts("no url"), None);
    }
}
