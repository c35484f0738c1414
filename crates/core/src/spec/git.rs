//! Which repositories a job may be cloned from.
//!
//! git runs a program for an address such as `ext::sh -c …`, waits for ever on `fd::17`, and sends what `git://` and
//! `http://` carry in the clear (gitremote-helpers(7), git-remote-ext(1), git-remote-fd(1)).

use crate::mask;

/// How long a clone may take, in seconds.
pub const CLONE_LIMIT: u64 = 1800;

/// Returns why no job may be cloned from an address; none if one may.
pub fn refusal(url: &str) -> Option<String> {
    let starts_badly = |text: &str| text.is_empty() || text.starts_with('-');
    if starts_badly(url) || url.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Some("it is not the URL of a repository".to_owned());
    }
    if url.split(['/', '@']).next().is_some_and(|first| first.contains("::")) {
        return Some("git would run a helper program for it".to_owned());
    }
    if let Some((scheme, rest)) = url.split_once("://") {
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let address = authority.rsplit_once('@').map_or(authority, |(_, address)| address);
        let host = match address.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => address.split(':').next().unwrap_or_default(),
        };
        let is_here = host == "localhost"
            || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
        return match scheme {
            "file" if rest.starts_with('/') => None,
            "https" | "ssh" if !starts_badly(host) && !authority.starts_with('-') => None,
            "http" if is_here => None,
            "http" => Some("`http://` is not encrypted".to_owned()),
            "https" | "ssh" | "file" => Some("it names no host, or no absolute path".to_owned()),
            other => Some(format!("`{}://` is not a way to clone a job's code", other.escape_debug())),
        };
    }
    // As scp writes it.
    let remote = url.split_once(':').filter(|(host, path)| !host.contains('/') && !path.is_empty());
    match remote {
        Some((host, _))
            if !starts_badly(host) && !starts_badly(host.rsplit('@').next().unwrap_or_default()) =>
        {
            None
        }
        None if url.starts_with('/') => None,
        _ => Some("it is neither a URL nor an absolute path".to_owned()),
    }
}

/// Returns whether an address holds a password or token, which everybody who sees the job could read.
pub fn holds_secret(url: &str) -> bool {
    let user = url.split_once("://").and_then(|(scheme, rest)| {
        let (user, _) = rest.split(['/', '?', '#']).next()?.rsplit_once('@')?;
        Some((scheme, user))
    });
    mask::holds_secret(url)
        || user.is_some_and(|(scheme, user)| {
            user.contains(':') || (scheme.starts_with("http") && !mask::is_user(user))
        })
}

/// Returns the transports that git may use for an address, for `GIT_ALLOW_PROTOCOL` (git(1)).
pub fn protocols(url: &str) -> &'static str {
    if url.starts_with("http://") { "https:ssh:file:http" } else { "https:ssh:file" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_transports_that_run_no_program_and_end_are_cloned_from() {
        for url in [
            "https://github.com/me/x.git",
            "https://git@host:8443/x",
            "ssh://git@host:22/x",
            "git@github.com:me/x.git",
            "host:x",
            "file:///shared/x.git",
            "/shared/x.git",
            "http://127.0.0.1:3000/x",
            "http://[::1]:3000/x",
        ] {
            assert_eq!(refusal(url), None, "{url}");
            assert!(!holds_secret(url), "{url}");
        }
        for url in [
            "fd::17/foo",
            "ext::sh -c x",
            "ext::sh%20-c%20x",
            "helper::https://host/x",
            "fd::17",
            "git://host/x",
            "http://host/x",
            "http://127.0.0.1.evil.example/x",
            "http://127.0.0.1@host/x",
            "ftp://host/x",
            "rsync://host/x",
            "gopher://x",
            "ext://x",
            "https://",
            "https://-x/y",
            "ssh://-oProxyCommand=x/y",
            "ssh://",
            "-oProxyCommand=x:y",
            "me@-oProxyCommand=x:y",
            "file://host/x",
            "../x",
            "x",
            "",
            "--upload-pack=x",
            "a b",
            "HTTPS://host/x",
        ] {
            assert!(refusal(url).is_some(), "{url}");
        }
    }

    #[test]
    fn a_token_in_an_address_is_found() {
        for url in [
            "https://0123456789abcdef0123@host/x",
            "https://me:pw@host/x",
            "https://x-access-token:t@host/x",
            "https://Ab12Cd34@host/x",
            "ssh://me:pw@host/x",
            "https://host/x?access_token=abc123def",
        ] {
            assert!(holds_secret(url), "{url}");
        }
        assert!(!holds_secret("https://a-name@bitbucket.org/x"));
    }
}
