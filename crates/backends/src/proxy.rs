//! The proxy of a URL according to the caller's environment. All clients use this module, so that NO_PROXY
//! has the same meaning for each.

use std::collections::BTreeMap;

use hyper_util::client::proxy::matcher::Matcher;

use crate::address;

/// Returns the proxy for a URL from `HTTPS_PROXY`, `HTTP_PROXY` or `ALL_PROXY` (upper case first), unless
/// `NO_PROXY` contains the host: by name, suffix, address, CIDR block or `*`, each with or without a port.
/// This machine itself is never reached through a proxy.
pub fn proxy_for(url: &str, env: &BTreeMap<String, String>) -> Option<String> {
    let get = |upper: &str| {
        let lower = upper.to_lowercase();
        [upper, &lower].into_iter().find_map(|key| env.get(key).filter(|value| !value.trim().is_empty()))
    };
    let (scheme, _, host, port) = address::parts(url)?;
    let (secure, wanted) = match scheme {
        "https" | "wss" => (true, "HTTPS_PROXY"),
        "http" | "ws" => (false, "HTTP_PROXY"),
        _ => return None,
    };
    let port = port.unwrap_or(if secure { 443 } else { 80 });
    if address::is_this_machine(host) {
        return None;
    }
    let proxy = get(wanted).or_else(|| get("ALL_PROXY"))?;
    let exempt = exempt_on_port(get("NO_PROXY").map_or("", String::as_str), port);
    // The matcher only decides the exemptions, so it gets a placeholder proxy: the real one may have a form
    // that it does not parse, and the client that uses it reports that.
    let matcher = Matcher::builder().all("http://proxy.invalid").no(exempt).build();
    let shown = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let target = format!("{}://{shown}/", if secure { "https" } else { "http" });
    matcher.intercept(&target.parse().ok()?).map(|_| proxy.trim().to_owned())
}

/// Returns the entries of NO_PROXY that apply to a port, in the matcher's syntax, which has no ports,
/// brackets, `*.suffix` or blanks between entries.
fn exempt_on_port(list: &str, port: u16) -> String {
    let entries = list.split([',', ' ', '\t', '\n']).map(str::trim).filter(|entry| !entry.is_empty());
    let entries = entries.filter_map(|entry| {
        let (host, only) = address::split_port(entry);
        let host = host.trim_matches(['[', ']']).trim_end_matches('.');
        let host = host.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(host);
        (only.is_none_or(|only| only == port) && !host.is_empty()).then_some(host)
    });
    entries.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(no: &str, url: &str) -> Option<String> {
        let pairs = [
            ("https_proxy", "http://user:pw@proxy:3128"),
            ("HTTP_PROXY", "http://plain:3128"),
            ("NO_PROXY", no),
        ];
        proxy_for(url, &pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
    }

    #[test]
    fn no_proxy_names_hosts_suffixes_blocks_and_ports() {
        let exempt = [
            ("10.0.0.0/8", "https://10.20.30.40:6443/"),
            ("10.0.0.1", "https://10.0.0.1:6443"),
            ("fd00::/8", "https://[fd00::1]:6443/x"),
            ("[fd00::1]", "https://[fd00::1]/"),
            ("[fd00::1]:6443", "https://[fd00::1]:6443/"),
            ("api.example:6443", "https://api.example:6443"),
            ("10.0.0.0/8:6443", "https://10.1.2.3:6443"),
            ("api.example:443", "https://api.example/path"),
            (".corp.example", "https://k8s.corp.example"),
            ("corp.example", "https://k8s.corp.example"),
            ("*.corp.example", "https://k8s.corp.example"),
            ("CORP.example", "https://k8s.corp.EXAMPLE"),
            ("a.example b.example", "https://b.example"),
            ("x, corp.example. ,y", "https://corp.example./"),
            ("*", "https://anything.example"),
            ("", "https://127.0.0.9:1/"),
            ("", "https://localhost:6443"),
            ("", "https://[::1]:6443"),
            ("registry.example:5000", "http://registry.example:5000/v2/"),
        ];
        for (no, url) in exempt {
            assert_eq!(proxy(no, url), None, "NO_PROXY={no} {url}");
        }
        let proxied = [
            ("10.0.0.0/8", "https://11.0.0.1"),
            ("api.example:6443", "https://api.example"),
            ("10.0.0.0/8:6443", "https://10.1.2.3:443"),
            ("corp.example", "https://evilcorp.example"),
            ("10.0.0.1", "https://10.0.0.11"),
            ("[fd00::1]:6443", "https://[fd00::1]:443/"),
            ("", "https://127.evil.example"),
        ];
        for (no, url) in proxied {
            assert_eq!(proxy(no, url).as_deref(), Some("http://user:pw@proxy:3128"), "NO_PROXY={no} {url}");
        }
        assert_eq!(proxy("", "http://other").as_deref(), Some("http://plain:3128"));
        assert_eq!(proxy("", "not a url"), None);
    }
}
