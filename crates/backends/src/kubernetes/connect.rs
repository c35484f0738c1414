//! Creates a client from a kubeconfig.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use weftrun_core::backend::TargetConfig;
use weftrun_core::{Error, ErrorKind, Result};

use super::{exec_plugin, log_streams, retry};
use crate::proxy::proxy_for;
use crate::{address, files};

/// The settings that select a cluster, and the caller's environment.
#[derive(Clone, Default)]
pub struct ClusterConfig {
    /// The kubeconfig; `KUBECONFIG`, then `~/.kube/config` if none.
    pub kubeconfig: Option<PathBuf>,
    /// The context; the kubeconfig's current one if none.
    pub context: Option<String>,
    /// The namespace; the context's if none.
    pub namespace: Option<String>,
    /// The calling program's environment.
    pub env: BTreeMap<String, String>,
    /// How long requests are repeated that a busy API server rejects.
    pub patience: Option<Duration>,
}

impl std::fmt::Debug for ClusterConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kubeconfig, context, namespace, env: _, patience: _ } = self;
        let mut shown = f.debug_struct("ClusterConfig");
        shown.field("kubeconfig", kubeconfig).field("context", context).field("namespace", namespace);
        shown.finish_non_exhaustive()
    }
}

/// A connected cluster, in one namespace.
#[derive(Clone)]
pub struct Cluster {
    /// The client.
    pub client: kube::Client,
    /// The namespace.
    pub namespace: String,
    /// The context's name, for messages.
    pub context: String,
    /// The server's address, for messages.
    pub server: String,
    /// The host of the proxy to it, if there is one.
    pub proxy: Option<String>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster")
            .field("context", &self.context)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

impl ClusterConfig {
    /// Returns the settings of a target that has a cluster; a target of Run:ai needs one for a few operations only, and
    /// names it.
    pub fn of(target: &TargetConfig) -> Option<Self> {
        let text = |key: &str| target.settings.get(key).and_then(|value| value.as_str()).map(str::to_owned);
        let (kubeconfig, context) = (text("kubeconfig").map(PathBuf::from), text("context"));
        let named = kubeconfig.is_some() || context.is_some();
        let has_cluster = target.backend == "kubeflow" || (target.backend == "runai" && named);
        has_cluster.then(|| Self { kubeconfig, context, env: target.env.clone(), ..Self::default() })
    }

    /// Returns the kubeconfig files, in order of precedence.
    fn paths(&self) -> Vec<PathBuf> {
        if let Some(path) = &self.kubeconfig {
            return vec![self.expand(path)];
        }
        match self.env.get("KUBECONFIG").filter(|value| !value.is_empty()) {
            Some(list) => std::env::split_paths(list).filter(|path| !path.as_os_str().is_empty()).collect(),
            None => files::absolute(self.env.get("HOME"))
                .map(|home| home.join(".kube/config"))
                .into_iter()
                .collect(),
        }
    }

    /// Returns the names of those files, which identify the user.
    pub fn files(&self) -> String {
        self.paths().iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
    }

    fn expand(&self, path: &Path) -> PathBuf {
        match (path.strip_prefix("~"), files::absolute(self.env.get("HOME"))) {
            (Ok(rest), Some(home)) => home.join(rest),
            _ => path.to_owned(),
        }
    }

    /// Reads and merges the kubeconfig files.
    fn read(&self) -> Result<Kubeconfig> {
        let (paths, shown) = (self.paths(), self.files());
        let there: Vec<_> = paths.iter().filter(|path| path.is_file()).collect();
        if there.is_empty() {
            return Err(Error::new(ErrorKind::InvalidConfig, "there is no kubeconfig")
                .with("looked for", if shown.is_empty() { "~/.kube/config".to_owned() } else { shown })
                .hint("set KUBECONFIG, or `kubeconfig` of the target; your cluster's admin or cloud CLI makes the file"));
        }
        let bad = |error: kube::config::KubeconfigError| {
            Error::new(ErrorKind::InvalidConfig, "the kubeconfig cannot be read")
                .with("files", &shown)
                .with_source(error)
        };
        for path in &there {
            // kube reads the whole file regardless of its size.
            let size = path.metadata().map_or(0, |found| found.len());
            if size > files::MAX_CREDENTIAL {
                let message =
                    format!("the kubeconfig is {size} bytes; at most {} are read", files::MAX_CREDENTIAL);
                return Err(Error::new(ErrorKind::InvalidConfig, message).with("file", path.display()));
            }
        }
        there.into_iter().try_fold(Kubeconfig::default(), |merged, path| {
            Kubeconfig::read_from(path).and_then(|next| merged.merge(next)).map_err(bad)
        })
    }

    /// Returns the namespace, without a request to the cluster; none if neither the target nor the kubeconfig
    /// sets one.
    pub fn known_namespace(&self) -> Option<String> {
        if self.namespace.is_some() {
            return self.namespace.clone();
        }
        let config = self.read().ok()?;
        let name = self.context.clone().or(config.current_context)?;
        config.contexts.into_iter().find(|context| context.name == name)?.context?.namespace
    }

    /// Returns the context, if its certificates are not checked (`insecure-skip-tls-verify`); sends nothing.
    pub fn unchecked_context(&self) -> Option<String> {
        let config = self.read().ok()?;
        let name = self.context.clone().or(config.current_context)?;
        let cluster = config.contexts.into_iter().find(|context| context.name == name)?.context?.cluster;
        let cluster = config.clusters.into_iter().find(|known| known.name == cluster)?.cluster?;
        (cluster.insecure_skip_tls_verify == Some(true)).then_some(name)
    }

    /// Returns the contexts of the kubeconfig, the current one first.
    pub fn contexts(&self) -> Result<Vec<String>> {
        let config = self.read()?;
        let mut names: Vec<_> = config.contexts.into_iter().map(|context| context.name).collect();
        names.sort_by_key(|name| config.current_context.as_ref() != Some(name));
        Ok(names)
    }

    /// Creates the client; sends nothing yet.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`] for a bad kubeconfig or an unknown context.
    pub async fn connect(&self) -> Result<Cluster> {
        crate::tls::provide()?;
        let kubeconfig = self.read()?;
        let known: Vec<String> = kubeconfig.contexts.iter().map(|context| context.name.clone()).collect();
        let context = self.context.clone().or_else(|| kubeconfig.current_context.clone()).unwrap_or_default();
        if !known.contains(&context) {
            return Err(unknown_context(&context, &known));
        }
        let options = KubeConfigOptions { context: Some(context.clone()), ..KubeConfigOptions::default() };
        let named = kubeconfig.contexts.iter().find(|c| c.name == context).and_then(|c| c.context.as_ref());
        let cluster = named.map(|c| c.cluster.clone()).unwrap_or_default();
        let cluster = kubeconfig.clusters.iter().find(|c| c.name == cluster).and_then(|c| c.cluster.clone());
        let user = named.and_then(|c| c.user.clone()).unwrap_or_default();
        let user = kubeconfig.auth_infos.iter().find(|u| u.name == user).and_then(|u| u.auth_info.as_ref());
        let files = [
            cluster.as_ref().and_then(|c| c.certificate_authority.as_ref()),
            user.and_then(|u| u.client_certificate.as_ref()),
            user.and_then(|u| u.client_key.as_ref()),
            user.and_then(|u| u.token_file.as_ref()),
        ];
        files.into_iter().flatten().try_for_each(|path| bounded(Path::new(path)))?;
        let own_proxy = cluster.as_ref().and_then(|c| c.proxy_url.clone()).filter(|url| !url.is_empty());
        let bad = |error: kube::config::KubeconfigError| {
            Error::new(ErrorKind::InvalidConfig, "the kubeconfig cannot be used")
                .with("context", &context)
                .with_source(error)
        };
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(bad)?;
        let server = &config.cluster_url;
        let (scheme, host) = (server.scheme_str().unwrap_or_default(), server.host().unwrap_or_default());
        refuse_clear(&context, scheme, host, own_proxy.as_deref())?;
        // kube 5.0 compares NO_PROXY with the proxy's own host, so it is evaluated here.
        let server = config.cluster_url.to_string();
        config.proxy_url = match own_proxy.or_else(|| proxy_for(&server, &self.env)) {
            None => None,
            Some(url) => Some(url.parse().inspect(|_| address::warn_of_proxy(&url)).map_err(|error| {
                Error::new(ErrorKind::InvalidConfig, format!("the proxy is not a URL: {error}"))
                    .with("proxy", url.rsplit_once('@').map_or(url.as_str(), |(_, rest)| rest))
            })?),
        };
        // A half-dead connection must end: watches are renewed within five minutes, log streams resume
        // exactly.
        config.read_timeout = Some(Duration::from_mins(5));
        config.connect_timeout = Some(Duration::from_secs(10));
        // Retries are decided where it is known whether a request may be sent twice.
        config.default_retry = false;
        let namespace = self.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let server = config.cluster_url.to_string();
        let proxy = config.proxy_url.as_ref().and_then(|proxy| Some(proxy.host()?.to_owned()));
        let client = match config.auth_info.exec.take() {
            Some(exec) => exec_plugin::client(exec, config).await?,
            None => log_streams::client(config)?,
        };
        let client = retry::retrying(client, self.patience.unwrap_or(retry::PATIENCE));
        Ok(Cluster { client, namespace, context, server, proxy })
    }
}

/// Refuses a server to which credentials, jobs and their secrets would be sent unencrypted. kubectl sends such a server
/// no token and runs no plugin for it, so nothing is lost that would work.
fn refuse_clear(context: &str, scheme: &str, host: &str, proxy: Option<&str>) -> Result<()> {
    let why = if address::is_clear(scheme, host) {
        format!("the API server {host} is reached without TLS: credentials would be sent to it unencrypted")
    } else if address::is_clear_through(scheme, proxy) {
        "the API server is reached without TLS, through a proxy on another machine: credentials would be sent to it \
         unencrypted"
            .to_owned()
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::InvalidConfig, why).with("context", context).hint(
        "use the server's `https://` address in the kubeconfig; `kubectl proxy` on this machine may be `http://127.0.0.1`",
    ))
}

/// Refuses a device, a FIFO or a very large file, which kube would read completely. A missing file is
/// reported by kube.
fn bounded(path: &Path) -> Result<()> {
    let bad = |why: String| {
        Err(Error::new(ErrorKind::InvalidConfig, format!("a file of the kubeconfig cannot be used: {why}"))
            .with("file", path.display()))
    };
    match files::open(path).and_then(|file| Ok(file.metadata()?.len())) {
        Ok(size) if size > files::MAX_CREDENTIAL => {
            bad(format!("it is {size} bytes; at most {} are read", files::MAX_CREDENTIAL))
        }
        Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => bad(error.to_string()),
        _ => Ok(()),
    }
}

fn unknown_context(context: &str, known: &[String]) -> Error {
    let message = match context {
        "" => "the kubeconfig has no current context".to_owned(),
        name => format!("the kubeconfig has no context `{name}`"),
    };
    let error = Error::new(ErrorKind::InvalidConfig, message).with("contexts", known.join(", "));
    let near = weftrun_core::text::suggestion(context, known.iter().map(String::as_str));
    error.hint(near.as_deref().unwrap_or("set `context` of the target, or `kubectl config use-context NAME`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[tokio::test]
    async fn a_missing_kubeconfig_and_a_wrong_context_say_what_to_do() {
        let config = ClusterConfig { env: env(&[("HOME", "/nonexistent")]), ..ClusterConfig::default() };
        let error = config.connect().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        assert!(error.hints()[0].contains("KUBECONFIG"));

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let text = "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n\
                    users: [{name: u, user: {token: t}}]\ncontexts: [{name: prod, context: {cluster: c, user: u, namespace: nlp}}]\n\
                    current-context: prod\n";
        std::fs::write(&path, text).unwrap();
        let mut config = ClusterConfig { kubeconfig: Some(path), ..ClusterConfig::default() };
        assert_eq!(config.known_namespace().as_deref(), Some("nlp"));
        assert_eq!(config.connect().await.unwrap().namespace, "nlp");
        config.context = Some("prdo".into());
        let error = config.connect().await.unwrap_err();
        assert_eq!(error.message(), "the kubeconfig has no context `prdo`");
        assert_eq!(error.hints(), ["did you mean `prod`?"]);
    }

    /// An API server that answers `/version` and records the authorization of each request.
    fn api_server(requests: usize) -> (String, std::sync::mpsc::Receiver<String>) {
        use std::io::{BufRead, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let (said, heard) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for _ in 0..requests {
                let (mut stream, _) = listener.accept().unwrap();
                let lines = std::io::BufReader::new(stream.try_clone().unwrap()).lines();
                let head = lines.map(|line| line.unwrap()).take_while(|line| !line.is_empty());
                let given = head.filter(|line| line.to_ascii_lowercase().starts_with("authorization:"));
                said.send(given.collect()).unwrap();
                let body = r#"{"major":"1","minor":"34","gitVersion":"v1","gitCommit":"","gitTreeState":"","buildDate":"",
                    "goVersion":"","compiler":"","platform":""}"#;
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
                write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
            }
        });
        (address, heard)
    }

    /// Returns a target whose kubeconfig gets its token from a shell script.
    fn by_plugin(folder: &Path, server: &str, script: &str) -> ClusterConfig {
        std::fs::write(folder.join("plugin.sh"), script).unwrap();
        let exec = serde_json::json!({
            "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "interactiveMode": "Never",
            "args": [folder.join("plugin.sh")],
        });
        written(folder, &serde_json::json!({"server": server}), &serde_json::json!({"exec": exec}))
    }

    /// Returns a target with a kubeconfig of one cluster and one user.
    fn written(folder: &Path, cluster: &serde_json::Value, user: &serde_json::Value) -> ClusterConfig {
        let config = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "x",
            "clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        });
        let path = folder.join("config");
        std::fs::write(&path, config.to_string()).unwrap();
        ClusterConfig { kubeconfig: Some(path), ..ClusterConfig::default() }
    }

    #[tokio::test]
    async fn every_request_carries_the_token_of_the_plugin_that_is_good_now() {
        let folder = tempfile::tempdir().unwrap();
        let (server, heard) = api_server(3);
        let runs = folder.path().join("runs");
        let script = |end: &str| {
            format!(
                "echo x >> {0}; printf '{{\"status\":{{\"token\":\"t%s\",\"expirationTimestamp\":\"{end}\"}}}}' $(grep -c x {0})",
                runs.display()
            )
        };
        let config = by_plugin(folder.path(), &server, &script("2020-01-01T00:00:00Z"));
        let cluster = config.connect().await.unwrap();
        // The expiry was in the past, so each request fetches a new token, until one expires in the future.
        cluster.client.apiserver_version().await.unwrap();
        assert_eq!(heard.recv().unwrap().to_ascii_lowercase(), "authorization: bearer t2");
        std::fs::write(folder.path().join("plugin.sh"), script("2120-01-01T00:00:00Z")).unwrap();
        for _ in 0..2 {
            cluster.client.apiserver_version().await.unwrap();
            assert_eq!(heard.recv().unwrap().to_ascii_lowercase(), "authorization: bearer t3");
        }
    }

    #[tokio::test]
    async fn a_plugin_that_fails_is_an_error_of_credentials_whenever_it_fails() {
        let folder = tempfile::tempdir().unwrap();
        let (server, _heard) = api_server(1);
        let config = by_plugin(folder.path(), &server, "echo 'log in first' >&2; exit 1");
        let error = config.connect().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Credentials, "{error}");
        let good = r#"printf '{"status":{"token":"t","expirationTimestamp":"2020-01-01T00:00:00Z"}}'"#;
        let cluster = by_plugin(folder.path(), &server, good).connect().await.unwrap();
        std::fs::write(folder.path().join("plugin.sh"), "echo 'log in first' >&2; exit 1").unwrap();
        let failed = cluster.client.apiserver_version().await.unwrap_err();
        let error = super::super::from_kube(failed, "ask for the version");
        assert_eq!(error.kind(), ErrorKind::Credentials, "{error:?}");
        assert!(format!("{error:?}").contains("log in first"), "{error:?}");
    }

    #[tokio::test]
    async fn files_that_a_kubeconfig_names_are_regular_and_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let huge = folder.path().join("huge");
        std::fs::File::create(&huge).unwrap().set_len(1 << 30).unwrap();
        for named in [Path::new("/dev/zero"), &fifo, &huge] {
            for key in ["certificate-authority", "client-certificate", "client-key", "tokenFile"] {
                let (mut cluster, mut user) =
                    (serde_json::json!({"server": "https://127.0.0.1:1"}), serde_json::json!({}));
                let holder = if key == "certificate-authority" { &mut cluster } else { &mut user };
                holder[key] = named.to_str().unwrap().into();
                let error = written(folder.path(), &cluster, &user).connect().await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{key}: {error}");
                assert!(error.message().contains("a file of the kubeconfig"), "{key}: {error}");
            }
        }
    }

    /// Starts an API server that gives one answer to every request. Returns its address.
    fn answering(status: &'static str, body: &'static str) -> String {
        use std::io::{Read, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    if stream.read(&mut byte).unwrap_or(0) == 0 {
                        break;
                    }
                    head.push(byte[0]);
                }
                let head = String::from_utf8_lossy(&head).replace('\r', "").replace('\n', " ");
                // An answer before the body was read would be lost with the connection.
                let length = head
                    .to_lowercase()
                    .split("content-length: ")
                    .nth(1)
                    .and_then(|rest| rest.split(' ').next()?.parse().ok());
                let _ = stream.read_exact(&mut vec![0; length.unwrap_or(0)]);
                let body = body.replace("REPEATED", head.trim());
                let length = body.len();
                let _ = write!(
                    stream,
                    "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
                );
            }
        });
        address
    }

    const TOKEN: &str = "kubeconfig-token-4Wm8";

    /// Returns the errors and values of each operation with a server that gives one answer.
    async fn each(
        status: &'static str,
        body: &'static str,
        user: &serde_json::Value,
    ) -> Vec<(&'static str, Result<String>)> {
        let folder = tempfile::tempdir().unwrap();
        let server = answering(status, body);
        let cluster =
            written(folder.path(), &serde_json::json!({"server": server}), user).connect().await.unwrap();
        let pods = super::super::Resource::PODS;
        let write = super::super::Write::Real;
        let object = serde_json::json!({"metadata": {"name": "a"}});
        let text = |value: serde_json::Value| value.to_string();
        vec![
            ("list", cluster.list(&pods, "").await.map(|list| text(list.into()))),
            ("get", cluster.get(&pods, "a").await.map(text)),
            ("create", cluster.create(&pods, &object, write).await.map(text)),
            ("raw", cluster.raw("/apis/x").await.map(text)),
        ]
    }

    #[tokio::test]
    async fn a_server_that_repeats_a_credential_gets_it_into_no_error_and_no_answer() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, TOKEN).unwrap();
        let plugin = serde_json::json!({
            "apiVersion": "client.authentication.k8s.io/v1", "command": "printf", "interactiveMode": "Never",
            "args": [format!(r#"{{"status":{{"token":"{TOKEN}"}}}}"#)],
        });
        let basic = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, format!("me:{TOKEN}"));
        for user in [
            serde_json::json!({"token": TOKEN}),
            serde_json::json!({"tokenFile": file}),
            serde_json::json!({"username": "me", "password": TOKEN}),
            serde_json::json!({"exec": plugin}),
        ] {
            for (status, body) in [
                ("403 Forbidden", r#"{"kind": "Status", "message": "REPEATED", "reason": "REPEATED"}"#),
                (
                    "422 Unprocessable Entity",
                    r#"{"message": "x", "details": {"causes": [{"field": "REPEATED", "message": "REPEATED"}]}}"#,
                ),
                ("400 Bad Request", "<html>REPEATED"),
                ("200 OK", r#"{"metadata": {"name": "REPEATED"}, "items": [{"message": "REPEATED"}]}"#),
                ("200 OK", r#""REPEATED""#),
            ] {
                for (verb, answer) in each(status, body, &user).await {
                    let shown = format!("{answer:?}");
                    assert!(
                        !shown.contains(TOKEN) && !shown.contains(&basic),
                        "{verb} {user} {status}: {shown}"
                    );
                    assert!(shown.contains('…') || body.starts_with('"'), "{verb} {user} {status}: {shown}");
                }
            }
        }
    }

    #[tokio::test]
    async fn an_answer_that_is_nonsense_is_an_error_of_the_server() {
        let user = serde_json::json!({"token": TOKEN});
        for body in [
            "null",
            "\"x\"",
            "{}",
            "[]",
            "5",
            "",
            r#"{"items": 5}"#,
            r#"{"items": {}}"#,
            r#"{"items": [5]}"#,
            r#"{"items": [null]}"#,
        ] {
            for (verb, answer) in each("200 OK", body, &user).await {
                if verb == "raw" && body.starts_with('{') {
                    continue;
                }
                let error = answer.err().unwrap_or_else(|| panic!("{verb}: {body}"));
                assert!(error.message().contains("unexpected answer"), "{verb} {body}: {error}");
                // Whether a create was done is not known.
                let kinds = [ErrorKind::Protocol, ErrorKind::Unreachable];
                assert!(kinds.contains(&error.kind()), "{verb} {body}: {error:?}");
            }
        }
        for body in ["{}", "null", "", r#"{"message": "", "code": 200}"#] {
            for (verb, answer) in each("403 Forbidden", body, &user).await {
                let error = answer.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Credentials, "{verb} {body}: {error}");
                assert!(
                    error.message().contains("you may not") || !body.starts_with('{'),
                    "{verb} {body}: {error}"
                );
            }
        }
    }

    #[tokio::test]
    async fn a_token_goes_over_tls_or_to_this_machine_only_and_no_plugin_runs_before() {
        let folder = tempfile::tempdir().unwrap();
        let ran = folder.path().join("ran");
        let plugin = serde_json::json!({
            "apiVersion": "client.authentication.k8s.io/v1", "command": "touch", "interactiveMode": "Never", "args": [ran],
        });
        for server in [
            "http://10.255.0.1:1",
            "http://api.example",
            "HTTP://127.0.0.1.example:80",
            "http://user@10.0.0.1",
        ] {
            for user in [
                serde_json::json!({"token": TOKEN}),
                serde_json::json!({"exec": plugin}),
                serde_json::json!({}),
            ] {
                let config = written(folder.path(), &serde_json::json!({"server": server}), &user);
                let error = config.connect().await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{server}: {error}");
                assert!(error.message().contains("without TLS"), "{server}: {error}");
            }
        }
        assert!(!ran.exists(), "the plugin was run");
        let proxied =
            serde_json::json!({"server": "http://127.0.0.1:1", "proxy-url": "http://10.0.0.1:3128"});
        let user = serde_json::json!({"token": TOKEN});
        let error = written(folder.path(), &proxied, &user).connect().await.unwrap_err();
        assert!(error.message().contains("through a proxy"), "{error}");
        for server in
            ["https://10.255.0.1:1", "http://127.0.0.1:1", "http://localhost:8001", "http://[::1]:1"]
        {
            written(folder.path(), &serde_json::json!({"server": server}), &user).connect().await.unwrap();
        }
        let skips = serde_json::json!({"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": true});
        assert_eq!(written(folder.path(), &skips, &user).unchecked_context().as_deref(), Some("x"));
        let checks = serde_json::json!({"server": "https://127.0.0.1:1"});
        assert_eq!(written(folder.path(), &checks, &user).unchecked_context(), None);
    }
}
