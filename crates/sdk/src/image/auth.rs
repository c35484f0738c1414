//! Authentication at a registry: the challenge of its refusal, and the credentials that `docker login` stores
//! (<https://distribution.github.io/distribution/spec/auth/token/>,
//! <https://github.com/docker/docker-credential-helpers>, 2026-11-21).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::{Client, Url};
use serde_json::Value;
use weftrun_backends::helper::Helper;
use weftrun_core::secret::Secret;
use weftrun_core::{Error, ErrorKind, Result};

use super::reference::is_loopback;
use crate::files::{absolute, read_text};

const LARGEST_SETTINGS: u64 = 1 << 20;
const LARGEST_TOKEN: usize = 1 << 20;
/// Time limit of a credential helper.
const HELPER: Duration = Duration::from_secs(30);

/// The authentication that a registry requires.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    /// A token from this address.
    Bearer { realm: String, service: String },
    /// User and password.
    Basic,
    /// Something else, or nothing.
    Unknown,
}

impl Challenge {
    pub fn parse(header: &str) -> Self {
        let (kind, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
        let value = |key: &str| {
            let at = rest.find(&format!("{key}=\""))? + key.len() + 2;
            Some(rest[at..].split('"').next()?.to_owned())
        };
        match kind.to_ascii_lowercase().as_str() {
            "basic" => Self::Basic,
            "bearer" => match value("realm") {
                Some(realm) => Self::Bearer { realm, service: value("service").unwrap_or_default() },
                None => Self::Unknown,
            },
            _ => Self::Unknown,
        }
    }

    /// Returns the `Authorization` header; none if there is nothing to send.
    pub async fn answer(
        &self,
        http: &Client,
        login: &Login,
        scope: &str,
        local: bool,
    ) -> Result<Option<Secret>> {
        let known = login.find().await?;
        let basic = known.as_ref().map(|(user, word)| {
            Secret::new(format!("Basic {}", STANDARD.encode(format!("{user}:{}", word.expose()))))
        });
        let Self::Bearer { realm, service } = self else { return Ok(basic) };
        let bad = |what: &str| {
            Error::new(ErrorKind::Protocol, format!("the registry's place for tokens {what}"))
                .with("realm", realm)
        };
        let mut url = Url::parse(realm).map_err(|_| bad("is not a URL"))?;
        let host = url.host_str().unwrap_or_default().to_owned();
        // A password is sent unencrypted only to this machine.
        if url.scheme() != "https" && !(local && is_loopback(&host)) {
            return Err(bad("is not reached by https"));
        }
        url.query_pairs_mut().append_pair("service", service).append_pair("scope", scope);
        let mut request = http.get(url);
        if let Some(basic) = &basic {
            request = request.header("authorization", basic.expose());
        }
        let lost = |error: reqwest::Error| {
            Error::new(ErrorKind::Unreachable, "the registry's place for tokens does not answer")
                .with("realm", realm)
                .retryable()
                .with_source(error.without_url())
        };
        let mut answer = weftrun_backends::requests::send(request).await.map_err(lost)?;
        if !answer.status().is_success() {
            let message = format!("the registry gives no token ({})", answer.status());
            return Err(Error::new(ErrorKind::Credentials, message)
                .with("realm", realm)
                .hint("`docker login` (or podman's) with the registry; its credentials are used"));
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(lost)? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > LARGEST_TOKEN {
                return Err(bad("is too long"));
            }
        }
        let body: Value = serde_json::from_slice(&bytes).map_err(|_| bad("does not answer in JSON"))?;
        let token = body["token"].as_str().or_else(|| body["access_token"].as_str());
        Ok(token.map(|token| Secret::new(format!("Bearer {token}"))))
    }
}

/// The sources of credentials for a registry.
#[derive(Debug)]
pub(super) struct Login {
    files: Vec<PathBuf>,
    names: Vec<String>,
    path: Option<String>,
}

impl Login {
    /// Creates it; looks nothing up yet.
    pub fn new(env: &BTreeMap<String, String>, names: Vec<String>) -> Self {
        let var = |name: &str| absolute(env.get(name));
        // Relative ones would refer to settings, and through them to programs, in the working directory.
        let docker = var("DOCKER_CONFIG").or_else(|| Some(var("HOME")?.join(".docker")));
        let files = [
            var("REGISTRY_AUTH_FILE"),
            var("XDG_RUNTIME_DIR").map(|dir| dir.join("containers/auth.json")),
            docker.map(|dir| dir.join("config.json")),
        ];
        Self { files: files.into_iter().flatten().collect(), names, path: env.get("PATH").cloned() }
    }

    /// Returns user and password, if there are any.
    async fn find(&self) -> Result<Option<(String, Secret)>> {
        for file in &self.files {
            let Some(text) = read_text(file, LARGEST_SETTINGS)? else { continue };
            let settings: Value = serde_json::from_str(&text).map_err(|error| {
                Error::new(ErrorKind::InvalidConfig, "the registries' credentials are not JSON")
                    .with("file", file.display())
                    .with_source(error)
            })?;
            for name in &self.names {
                let helper = settings["credHelpers"][name].as_str();
                let found = match helper {
                    Some(helper) => self.helped(helper, name).await?,
                    None => stored(&settings["auths"][name]),
                };
                if found.is_some() {
                    return Ok(found);
                }
            }
            if let Some(helper) = settings["credsStore"].as_str() {
                let name = self.names.iter().find(|name| settings["auths"].get(name.as_str()).is_some());
                if let Some(name) = name
                    && let Some(found) = self.helped(helper, name).await?
                {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    /// Runs a credential helper, a program that the user's own settings name.
    async fn helped(&self, helper: &str, name: &str) -> Result<Option<(String, Secret)>> {
        if !helper.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')) {
            return Ok(None);
        }
        let program = format!("docker-credential-{helper}");
        let bad = |what: &str| {
            Error::new(ErrorKind::Credentials, format!("the credential helper {what}"))
                .with("helper", &program)
                .hint("`docker pull` of the image shows the details")
        };
        let mut command = tokio::process::Command::new(&program);
        command.arg("get");
        if let Some(path) = &self.path {
            command.env("PATH", path);
        }
        let runner =
            Helper { input: Some(format!("{name}\n").into_bytes()), end_children: true, ..Helper::default() };
        let output = runner.output(command, HELPER).await.map_err(|error| match error.kind() {
            std::io::ErrorKind::TimedOut => bad("does not answer"),
            _ => bad("cannot be started").with_source(error),
        })?;
        if !output.status.success() {
            // It has none for this registry, which may need none.
            return Ok(None);
        }
        let answer: Value =
            serde_json::from_slice(&output.stdout).map_err(|_| bad("does not answer in JSON"))?;
        let (user, word) = (answer["Username"].as_str(), answer["Secret"].as_str());
        // A user named `<token>` means a token to be exchanged, which only Azure's registry uses.
        Ok(user
            .zip(word)
            .filter(|(user, _)| *user != "<token>")
            .map(|(user, word)| (user.to_owned(), Secret::new(word))))
    }
}

/// Parses an entry of `auths`.
fn stored(entry: &Value) -> Option<(String, Secret)> {
    let bytes = STANDARD.decode(entry["auth"].as_str()?).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let (user, word) = text.split_once(':')?;
    (!user.is_empty()).then(|| (user.to_owned(), Secret::new(word)))
}
