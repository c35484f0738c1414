//! The settings of a Run:ai target.

use std::path::PathBuf;

use serde::Deserialize;
use weftrun_core::backend::TargetConfig;
use weftrun_core::secret::Secret;
use weftrun_core::{Error, ErrorKind, Result};

use super::cli_login::Official;
use crate::address;

/// The target's table in the config file, without the keys of every target.
#[derive(Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct RunaiTarget {
    /// Base URL of the control plane (`https://tenant.run.ai`); by default that of the official command line.
    pub url: Option<String>,
    /// Id of the project, for users without the right to list projects.
    pub project_id: Option<String>,
    /// Id of the cluster, for users without the right to list clusters.
    pub cluster_id: Option<String>,
    /// Version of the control plane (`2.21`), if the cluster does not report it.
    pub version: Option<String>,
    /// The application's id.
    pub client_id: Option<String>,
    /// Environment variable that holds the application's secret.
    pub client_secret_env: Option<String>,
    /// File that holds the application's secret.
    pub client_secret_file: Option<PathBuf>,
    /// Environment variable that holds a token.
    pub token_env: Option<String>,
    /// File that holds a token.
    pub token_file: Option<PathBuf>,
    /// Command that prints a token (`["runai", "auth", "get-token", "-o", "plaintext"]`).
    pub token_command: Vec<String>,
    /// CA certificates (PEM) of a private control plane or cluster.
    pub ca_file: Option<PathBuf>,
    /// Client certificate and key (PEM, one file).
    pub client_certificate: Option<PathBuf>,
    /// Accept any certificate. Reported at every use.
    pub insecure: bool,
    /// Proxy for all requests; the system's by default.
    pub proxy: Option<String>,
    /// Kubeconfig for logs that the cluster API cannot give.
    pub kubeconfig: Option<PathBuf>,
    /// Context in it, or in the kubeconfig of the environment.
    pub context: Option<String>,
    /// Base URL of the cluster's own API, for users who may not read clusters.
    pub cluster_url: Option<String>,
    /// Path of the cluster API's log stream, with `{project}`, `{type}`, `{framework}`, `{name}`.
    pub log_path: Option<String>,
    /// Seconds between two looks at a workload.
    pub poll_seconds: Option<u64>,
    /// Seconds for which a request is repeated while the control plane answers that it is busy (120 unless set).
    pub retry_seconds: Option<u64>,
    /// Seconds a request may take.
    pub timeout_seconds: Option<u64>,
}

/// The address of a proxy may hold a password.
impl std::fmt::Debug for RunaiTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunaiTarget")
            .field("url", &self.url)
            .field("insecure", &self.insecure)
            .finish_non_exhaustive()
    }
}

/// Where a token comes from.
#[derive(Clone, Debug)]
pub enum Credentials {
    /// An application, with which tokens are fetched when they expire.
    Application { id: String, secret: Secret },
    /// A token that is renewed outside weftrun.
    Token(Secret),
    /// A file with a token, read again each time.
    File(PathBuf),
    /// The login of the official command line.
    Official(Official),
    /// A command that prints a token.
    Command(Vec<String>),
}

impl RunaiTarget {
    /// Reads the settings of a target.
    pub fn of(target: &TargetConfig) -> Result<Self> {
        target.settings()
    }

    /// Returns the base URL, without a trailing slash.
    pub fn base(&self, target: &TargetConfig) -> Result<String> {
        let url = self.url.clone().or_else(|| target.env.get("RUNAI_URL").cloned());
        let url = url.or_else(|| Official::of(target)?.url()).ok_or_else(|| {
            Error::new(ErrorKind::InvalidConfig, format!("target `{}` names no `url`", target.name))
                .hint("set `url` in the target's table, or RUNAI_URL, or log in with `runai login`")
        })?;
        if !url.starts_with("https://") && !url.starts_with("http://") {
            return Err(Error::new(ErrorKind::InvalidConfig, format!("`{url}` is not a URL"))
                .with("target", &target.name));
        }
        self.refuse_clear(&url)?;
        Ok(url.trim_end_matches('/').to_owned())
    }

    /// Refuses an address to which a token would be sent unencrypted, unless the user allows it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`] for `http` to another machine without `insecure`.
    pub fn refuse_clear(&self, url: &str) -> Result<()> {
        let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
        let through = address::is_clear_through(scheme, self.proxy.as_deref());
        if self.insecure || !(crate::requests::is_clear(url) || through) {
            return Ok(());
        }
        let host = url.trim_start_matches("http://").split('/').next().unwrap_or_default();
        Err(Error::new(ErrorKind::InvalidConfig, format!("a token would be sent to {host} unencrypted"))
            .hint("use https, or set `insecure = true` in the target's table"))
    }

    /// Returns the source of tokens: the first of command, file, variable and application that is configured,
    /// then the login of the official command line.
    pub fn credentials(&self, target: &TargetConfig) -> Result<Credentials> {
        if !self.token_command.is_empty() {
            return Ok(Credentials::Command(self.token_command.clone()));
        }
        if let Some(file) = &self.token_file {
            return Ok(Credentials::File(file.clone()));
        }
        if let Some(name) = &self.token_env {
            return Ok(Credentials::Token(variable(target, name)?));
        }
        let id = self.client_id.clone().or_else(|| target.env.get("RUNAI_CLIENT_ID").cloned());
        if let Some(id) = id {
            let secret = match (&self.client_secret_file, &self.client_secret_env) {
                (Some(file), _) => read_secret(file)?,
                (None, Some(name)) => variable(target, name)?,
                (None, None) => variable(target, "RUNAI_CLIENT_SECRET")?,
            };
            return Ok(Credentials::Application { id, secret });
        }
        if let Some(token) = target.env.get("RUNAI_TOKEN") {
            return Ok(Credentials::Token(Secret::new(token)));
        }
        let official = Official::of(target).filter(Official::logged_in).map(Credentials::Official);
        official.ok_or_else(|| {
            Error::new(ErrorKind::Credentials, format!("target `{}` has no credentials", target.name))
                .hint("set `client-id` and `client-secret-env`, or `token-command`, in the target's table")
                .hint("or log in with `runai login`")
        })
    }
}

fn variable(target: &TargetConfig, name: &str) -> Result<Secret> {
    target.env.get(name).filter(|value| !value.is_empty()).map(Secret::new).ok_or_else(|| {
        Error::new(ErrorKind::Credentials, format!("the environment variable {name} is not set"))
            .with("target", &target.name)
    })
}

/// Reads a file that contains only a secret.
pub fn read_secret(file: &std::path::Path) -> Result<Secret> {
    let text = crate::files::read_text(file, crate::files::MAX_CREDENTIAL).map_err(|error| {
        Error::new(ErrorKind::Credentials, format!("cannot read {}: {error}", file.display()))
            .with_source(error)
    })?;
    Ok(Secret::new(text.trim()))
}

#[cfg(test)]
mod tests {
    use super::RunaiTarget;

    #[test]
    fn tokens_leave_this_machine_encrypted_or_not_at_all() {
        let careful = RunaiTarget::default();
        for url in ["https://tenant.run.ai", "http://127.0.0.1:8080/x", "http://localhost", "http://[::1]:1"]
        {
            careful.refuse_clear(url).unwrap();
        }
        for host in ["tenant.run.ai", "127.0.0.1@tenant.run.ai", "127.evil.example", "10.0.0.1"] {
            let url = format!("http://{host}/");
            assert!(careful.refuse_clear(&url).is_err(), "{url}");
        }
        let proxied =
            RunaiTarget { proxy: Some("http://10.0.0.1:3128".to_owned()), ..RunaiTarget::default() };
        assert!(proxied.refuse_clear("http://127.0.0.1:8080").is_err());
        proxied.refuse_clear("https://tenant.run.ai").unwrap();
        RunaiTarget { insecure: true, ..RunaiTarget::default() }.refuse_clear("http://10.0.0.1").unwrap();
    }
}
