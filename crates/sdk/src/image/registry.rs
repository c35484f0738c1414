//! Requests to a registry (<https://github.com/opencontainers/distribution-spec/blob/v1.1.1/spec.md>, 2026-11-21).

use std::time::Duration;

use reqwest::{Client, Response, StatusCode};
use serde_json::Value;
use tokio::sync::Mutex;
use weftrun_backends::deadline::{CALL, Deadline};
use weftrun_backends::json_answer::whole;
use weftrun_backends::sent;
use weftrun_core::log::clean_text;
use weftrun_core::secret::Secret;
use weftrun_core::{Error, ErrorKind, Result};

use super::auth::{Challenge, Login};
use super::reference::{Reference, is_loopback};
use crate::Config;

/// The media types of manifests, of OCI and of Docker.
const MANIFESTS: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";
/// Largest manifest or configuration (registries refuse manifests above 4 MiB).
const LARGEST_JSON: usize = 8 << 20;
/// Largest error body that is read; its time limit is below.
const LARGEST_ERROR: usize = 256 << 10;
const ERROR_TIME: Duration = Duration::from_secs(20);
/// The architecture that is chosen if there are several.
const ARCHITECTURE: &str = "amd64";
const TRIES: u32 = 3;

/// One repository of a registry.
pub(super) struct Registry {
    http: Client,
    at: Reference,
    login: Login,
    /// The `Authorization` header of every request, once obtained.
    pass: Mutex<Option<Secret>>,
}

/// Returns whether a text is a digest of a supported algorithm.
pub(super) fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|hex| {
        hex.len() == 64 && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

pub(super) fn digest_of(bytes: &[u8]) -> String {
    hex(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref())
}

/// Formats `sha256:…`.
pub(super) fn hex(digest: &[u8]) -> String {
    digest.iter().fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

impl Registry {
    /// Creates the client; sends nothing.
    pub fn new(at: &Reference, config: &Config) -> Result<Self> {
        weftrun_backends::tls::provide()?;
        let env = config.env.clone();
        let http = Client::builder()
            .proxy(reqwest::Proxy::custom(move |url| weftrun_backends::proxy::proxy_for(url.as_str(), &env)))
            .user_agent(concat!("weftrun/", env!("CARGO_PKG_VERSION")))
            .https_only(!is_loopback(&at.registry))
            .connect_timeout(Duration::from_secs(15))
            .read_timeout(Duration::from_secs(60))
            .build()
            .map_err(weftrun_backends::requests::no_client)?;
        let login = Login::new(&config.env, at.login_names());
        Ok(Self { http, at: at.clone(), login, pass: Mutex::new(None) })
    }

    /// Returns the image's manifest with its digest: from a list, the one for this architecture.
    pub async fn manifest(&self) -> Result<(String, Value)> {
        let (digest, manifest) = self.one_manifest(&self.at.version).await?;
        let Some(list) = manifest["manifests"].as_array() else { return Ok((digest, manifest)) };
        let linux = || list.iter().filter(|entry| entry["platform"]["os"] == "linux");
        let fits = linux()
            .find(|entry| entry["platform"]["architecture"] == ARCHITECTURE)
            .or_else(|| linux().next());
        let digest = fits.and_then(|entry| entry["digest"].as_str()).filter(|digest| is_digest(digest));
        let Some(digest) = digest else {
            return Err(Error::new(ErrorKind::Protocol, "the image's list names no manifest for Linux")
                .with("image", self.image()));
        };
        self.one_manifest(digest).await
    }

    async fn one_manifest(&self, version: &str) -> Result<(String, Value)> {
        let bytes = self.small(&format!("manifests/{version}"), Some(MANIFESTS)).await?;
        let digest = digest_of(&bytes);
        if is_digest(version) && digest != version {
            return Err(self.other_bytes(version));
        }
        Ok((digest, self.parsed(&bytes)?))
    }

    /// Returns a blob as JSON.
    pub async fn json(&self, digest: &str) -> Result<Value> {
        if !is_digest(digest) {
            return Err(Error::new(ErrorKind::Protocol, "the manifest names no configuration")
                .with("image", self.image()));
        }
        let bytes = self.small(&format!("blobs/{digest}"), None).await?;
        if digest_of(&bytes) != digest {
            return Err(self.other_bytes(digest));
        }
        self.parsed(&bytes)
    }

    /// Returns a blob as a stream.
    pub async fn blob(&self, digest: &str) -> Result<Response> {
        self.within(self.get(&format!("blobs/{digest}"), None)).await
    }

    /// Runs a request that must end in the time of a call.
    async fn within<T>(&self, request: impl Future<Output = Result<T>>) -> Result<T> {
        let answer = Deadline::after(CALL).run("the registry does not answer", Box::pin(request)).await;
        answer.map_err(
            |error| if error.context().is_empty() { error.with("image", self.image()) } else { error },
        )
    }

    fn parsed(&self, bytes: &[u8]) -> Result<Value> {
        whole(&String::from_utf8_lossy(bytes)).map_err(|error| {
            Error::new(ErrorKind::Protocol, "the registry's answer cannot be read as JSON")
                .with("image", self.image())
                .with_source(error)
        })
    }

    fn other_bytes(&self, digest: &str) -> Error {
        Error::new(ErrorKind::Protocol, "the registry sent other bytes than requested")
            .with("digest", digest)
            .with("image", self.image())
    }

    fn image(&self) -> String {
        let sign = if is_digest(&self.at.version) { '@' } else { ':' };
        format!("{}/{}{sign}{}", self.at.registry, self.at.repository, self.at.version)
    }

    async fn small(&self, path: &str, accept: Option<&str>) -> Result<Vec<u8>> {
        self.within(self.small_now(path, accept)).await
    }

    async fn small_now(&self, path: &str, accept: Option<&str>) -> Result<Vec<u8>> {
        let mut answer = self.get(path, accept).await?;
        let mut bytes = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(|error| self.lost(error))? {
            if bytes.len() + chunk.len() > LARGEST_JSON {
                return Err(Error::new(ErrorKind::Protocol, "the registry's answer is too long")
                    .with("image", self.image()));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }

    fn lost(&self, error: reqwest::Error) -> Error {
        Error::new(ErrorKind::Unreachable, "the registry does not answer")
            .with("image", self.image())
            .hint("check the network, the proxy (HTTPS_PROXY) and the name of the registry")
            .retryable()
            .with_source(error.without_url())
    }

    /// Reads a path, and authenticates if necessary.
    async fn get(&self, path: &str, accept: Option<&str>) -> Result<Response> {
        let url = format!("{}/v2/{}/{path}", self.at.base(), self.at.repository);
        let (mut asked, mut tries) = (false, 0);
        loop {
            let pass = self.pass.lock().await.clone();
            let mut request = self.http.get(&url);
            if let Some(accept) = accept {
                request = request.header("accept", accept);
            }
            if let Some(pass) = &pass {
                request = request.header("authorization", pass.expose());
            }
            tries += 1;
            let answer = match weftrun_backends::requests::send(request).await {
                Ok(answer) => answer,
                Err(error) if tries < TRIES && !error.is_builder() => {
                    tracing::debug!(%error, "the request to the registry is repeated");
                    tokio::time::sleep(Duration::from_millis(300) * tries).await;
                    continue;
                }
                Err(error) => return Err(self.lost(error)),
            };
            let status = answer.status();
            if status.is_success() {
                return Ok(answer);
            }
            if status == StatusCode::UNAUTHORIZED && !asked {
                asked = true;
                self.let_in(&answer, pass.as_ref()).await?;
                continue;
            }
            let busy = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
            if busy && tries < TRIES {
                tokio::time::sleep(Duration::from_secs(1) * tries).await;
                continue;
            }
            return Err(self.refused(answer).await);
        }
    }

    /// Authenticates as the refusal requires, unless another request has done so meanwhile.
    async fn let_in(&self, refusal: &Response, had: Option<&Secret>) -> Result<()> {
        let mut pass = self.pass.lock().await;
        if pass.as_ref() != had {
            return Ok(());
        }
        let header = refusal
            .headers()
            .get("www-authenticate")
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let challenge = Challenge::parse(&sent::hide(header));
        let scope = format!("repository:{}:pull", self.at.repository);
        *pass = challenge.answer(&self.http, &self.login, &scope, is_loopback(&self.at.registry)).await?;
        Ok(())
    }

    async fn refused(&self, mut answer: Response) -> Error {
        let status = answer.status();
        // An endless error body is cut: the rest is not JSON then.
        let mut bytes = Vec::new();
        let reading = async {
            while let Ok(Some(chunk)) = answer.chunk().await {
                bytes.extend_from_slice(&chunk);
                if bytes.len() > LARGEST_ERROR {
                    break;
                }
            }
        };
        let _ = tokio::time::timeout(ERROR_TIME, reading).await;
        let said = serde_json::from_slice::<Value>(&bytes).ok();
        let said = said
            .as_ref()
            .and_then(|body| body.pointer("/errors/0/message"))
            .and_then(Value::as_str)
            .unwrap_or_default();
        let said =
            if said.is_empty() { String::new() } else { format!(": {}", clean_text(&sent::hide(said))) };
        let error = |kind, text: &str| {
            Error::new(kind, format!("{text} ({status}{said})")).with("image", self.image())
        };
        match status {
            StatusCode::NOT_FOUND => error(ErrorKind::NotFound, "the registry has no such image")
                .hint("check the name and the tag"),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                error(ErrorKind::Credentials, "the registry does not let you read the image")
                    .hint("`docker login` (or podman's) with the registry; its credentials are used")
            }
            _ if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                error(ErrorKind::Unreachable, "the registry cannot answer now").retryable()
            }
            _ => error(ErrorKind::Protocol, "the registry refuses the request"),
        }
    }
}
