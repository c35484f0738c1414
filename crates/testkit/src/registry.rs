//! An image registry on loopback, with the parts of the distribution specification that reading needs.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// A registry; it serves until the process ends.
#[derive(Clone, Debug)]
pub struct FakeRegistry {
    /// `127.0.0.1:PORT`, the prefix of its images' names.
    pub address: String,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// By path, with the type of the content.
    served: BTreeMap<String, (String, Vec<u8>)>,
    /// User and password, if a login is required.
    login: Option<(String, String)>,
    requests: Vec<String>,
}

const TOKEN: &str = "a-token-of-the-test";

impl FakeRegistry {
    /// Starts one on a free port.
    ///
    /// # Errors
    /// If no port is available.
    pub fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?.to_string();
        let fake = Self { address, state: Arc::default() };
        let served = fake.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let served = served.clone();
                std::thread::spawn(move || drop(served.answer(&stream)));
            }
        });
        Ok(fake)
    }

    /// Requires a login with a token from now on.
    pub fn wants_login(&self, user: &str, password: &str) {
        self.state().login = Some((user.to_owned(), password.to_owned()));
    }

    /// Adds an image with these compressed layers; returns its name.
    pub fn push(&self, repository: &str, tag: &str, env: &[&str], layers: &[Vec<u8>]) -> String {
        let config = json!({"architecture": "amd64", "os": "linux", "config": {"Env": env}}).to_string();
        let config = self.blob(repository, config.as_bytes());
        let layers: Vec<Value> = layers
            .iter()
            .map(|layer| json!({"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": self.blob(repository, layer), "size": layer.len()}))
            .collect();
        let manifest =
            json!({"schemaVersion": 2, "config": {"digest": config}, "layers": layers}).to_string();
        let digest = digest_of(manifest.as_bytes());
        let kind = "application/vnd.oci.image.manifest.v1+json";
        self.put(format!("/v2/{repository}/manifests/{digest}"), kind, manifest.as_bytes());
        // As most images are: a list, with another architecture first.
        let other = format!("sha256:{}", "0".repeat(64));
        let entry = |arch: &str, digest: &str| json!({"digest": digest, "platform": {"os": "linux", "architecture": arch}});
        let list =
            json!({"schemaVersion": 2, "manifests": [entry("arm64", &other), entry("amd64", &digest)]})
                .to_string();
        self.put(
            format!("/v2/{repository}/manifests/{tag}"),
            "application/vnd.oci.image.index.v1+json",
            list.as_bytes(),
        );
        format!("{}/{repository}:{tag}", self.address)
    }

    /// Replaces the bytes of a blob.
    pub fn spoil(&self, repository: &str, blob: &[u8], with: &[u8]) {
        self.put(format!("/v2/{repository}/blobs/{}", digest_of(blob)), "application/octet-stream", with);
    }

    /// Returns the requested paths.
    pub fn requests(&self) -> Vec<String> {
        self.state().requests.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, path: String, kind: &str, bytes: &[u8]) {
        self.state().served.insert(path, (kind.to_owned(), bytes.to_vec()));
    }

    fn blob(&self, repository: &str, bytes: &[u8]) -> String {
        let digest = digest_of(bytes);
        self.put(format!("/v2/{repository}/blobs/{digest}"), "application/octet-stream", bytes);
        digest
    }

    fn answer(&self, mut stream: &TcpStream) -> std::io::Result<()> {
        let mut lines = BufReader::new(stream).lines();
        let first = lines.next().transpose()?.unwrap_or_default();
        let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut pass = String::new();
        for line in lines {
            let line = line?;
            if line.is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(": ")
                && name.eq_ignore_ascii_case("authorization")
            {
                value.clone_into(&mut pass);
            }
        }
        let (head, body) = self.respond(&path, &pass);
        let length = body.len();
        write!(stream, "HTTP/1.1 {head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")?;
        stream.write_all(&body)
    }

    /// Returns status and headers, and the body.
    fn respond(&self, path: &str, pass: &str) -> (String, Vec<u8>) {
        let mut state = self.state();
        state.requests.push(path.to_owned());
        if let Some((user, password)) = &state.login {
            if path.starts_with("/token?") {
                let right = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
                return if pass == right {
                    ("200 OK".into(), json!({"token": TOKEN}).to_string().into_bytes())
                } else {
                    ("401 Unauthorized".into(), Vec::new())
                };
            }
            if pass != format!("Bearer {TOKEN}") {
                let realm = format!("http://{}/token", self.address);
                let head = format!(
                    "401 Unauthorized\r\nWww-Authenticate: Bearer realm=\"{realm}\",service=\"fake\",scope=\"x\""
                );
                return (
                    head,
                    json!({"errors": [{"message": "authentication required"}]}).to_string().into_bytes(),
                );
            }
        }
        match state.served.get(path) {
            Some((kind, bytes)) => (format!("200 OK\r\nContent-Type: {kind}"), bytes.clone()),
            None => (
                "404 Not Found".into(),
                json!({"errors": [{"message": "manifest unknown"}]}).to_string().into_bytes(),
            ),
        }
    }
}

fn digest_of(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

/// Returns a plain archive of these files, as layers are.
pub fn layer(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut all = Vec::new();
    for (path, body) in files {
        let mut head = [0u8; 512];
        head[..path.len()].copy_from_slice(path.as_bytes());
        head[124..136].copy_from_slice(format!("{:011o}\0", body.len()).as_bytes());
        head[156] = b'0';
        head[148..156].fill(b' ');
        let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
        head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        all.extend(head);
        all.extend_from_slice(body);
        all.resize(all.len().next_multiple_of(512), 0);
    }
    all.resize(all.len() + 1024, 0);
    all
}
