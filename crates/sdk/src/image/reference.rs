//! The name of an image (`nvcr.io/nvidia/pytorch:25.09-py3`).

use weftrun_backends::address;
use weftrun_core::{Error, ErrorKind, Result};

/// The location of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    /// Host, and port if there is one.
    pub registry: String,
    pub repository: String,
    /// Tag or digest.
    pub version: String,
}

/// The host of docker.io's images.
const DOCKER_HUB: &str = "registry-1.docker.io";

impl Reference {
    /// Parses a name as container engines do: without a host it is Docker Hub's, without a tag the tag is
    /// `latest`.
    pub fn parse(image: &str) -> Result<Self> {
        // As enroot writes it, for Slurm: docker://nvcr.io#nvidia/pytorch:25.09-py3.
        let named = image.strip_prefix("docker://").unwrap_or(image).replacen('#', "/", 1);
        let (name, digest) = match named.split_once('@') {
            Some((name, digest)) => (name, Some(digest)),
            None => (named.as_str(), None),
        };
        let (host, rest) = match name.split_once('/') {
            Some((host, rest)) if host.contains(['.', ':']) || host == "localhost" => (host, rest),
            _ => ("docker.io", name),
        };
        let (path, tag) = rest.rsplit_once(':').unwrap_or((rest, "latest"));
        let hub = matches!(host, "docker.io" | "index.docker.io");
        let repository = if hub && !path.contains('/') { format!("library/{path}") } else { path.to_owned() };
        let plain = |text: &str, more: &str| {
            !text.is_empty()
                && text.len() <= 255
                && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
        };
        let path_is_fine =
            plain(&repository, "._-/") && !repository.split('/').any(|part| matches!(part, "" | "." | ".."));
        let version = digest.unwrap_or(tag);
        let version_is_fine =
            if digest.is_some() { super::is_digest(version) } else { plain(version, "._-") };
        if !plain(host, ".-:") || !path_is_fine || !version_is_fine {
            let message = format!("`{image}` is not the name of an image in a registry");
            return Err(Error::new(ErrorKind::InvalidSpec, message)
                .hint("[HOST/]NAME[:TAG] or [HOST/]NAME@sha256:DIGEST"));
        }
        let registry = if hub { DOCKER_HUB } else { host };
        Ok(Self { registry: registry.to_owned(), repository, version: version.to_owned() })
    }

    /// Returns the registry's address: unencrypted only on this machine.
    pub fn base(&self) -> String {
        let scheme = if is_loopback(&self.registry) { "http" } else { "https" };
        format!("{scheme}://{}", self.registry)
    }

    /// Returns the registry's names in docker's own settings.
    pub fn login_names(&self) -> Vec<String> {
        if self.registry == DOCKER_HUB {
            return vec!["https://index.docker.io/v1/".into(), "docker.io".into(), "index.docker.io".into()];
        }
        let name = &self.registry;
        vec![
            name.clone(),
            format!("https://{name}"),
            format!("https://{name}/"),
            format!("https://{name}/v1/"),
            format!("https://{name}/v2/"),
        ]
    }
}

/// Returns whether a host, with its port, is this machine.
pub(super) fn is_loopback(host: &str) -> bool {
    address::is_this_machine(address::split_port(host).0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_engines_do() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let pinned = format!("ghcr.io/o/i:1@{digest}");
        let cases = [
            ("busybox", "https://registry-1.docker.io", "library/busybox", "latest"),
            ("pytorch/pytorch:2.8", "https://registry-1.docker.io", "pytorch/pytorch", "2.8"),
            ("nvcr.io/nvidia/pytorch:25.09-py3", "https://nvcr.io", "nvidia/pytorch", "25.09-py3"),
            ("docker://nvcr.io#nvidia/pytorch:25.09-py3", "https://nvcr.io", "nvidia/pytorch", "25.09-py3"),
            ("localhost:5000/a", "http://localhost:5000", "a", "latest"),
            ("127.0.0.1:5000/a/b:c", "http://127.0.0.1:5000", "a/b", "c"),
            (&pinned, "https://ghcr.io", "o/i", &digest),
        ];
        for (image, base, repository, version) in cases {
            let read = Reference::parse(image).unwrap();
            assert_eq!(
                (read.base().as_str(), &*read.repository, &*read.version),
                (base, repository, version),
                "{image}"
            );
        }
        for image in
            ["", "a b", "a:", "x.io/../y", "x.io//y", "a@sha256:12", "a?b=c:1", "x.io/a?b", "user:pw@x.io/a"]
        {
            assert!(Reference::parse(image).is_err(), "{image}");
        }
    }
}
