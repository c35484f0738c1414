//! The control plane over TLS, with a certificate of a private authority.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::serve::Listener;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The authority's certificate.
const AUTHORITY: &[u8] = include_bytes!("tls/ca.pem");
const SERVER: &[u8] = include_bytes!("tls/server.pem");
const SERVER_KEY: &[u8] = include_bytes!("tls/server.key.pem");
const SELF_SIGNED: &[u8] = include_bytes!("tls/self-signed.pem");
const SELF_SIGNED_KEY: &[u8] = include_bytes!("tls/self-signed.key.pem");

/// Returns the file with the self-signed certificate.
pub fn self_signed() -> PathBuf {
    file("self-signed.pem")
}

/// Returns the file with the authority's certificate, for clients that should trust it.
pub fn authority() -> PathBuf {
    file("ca.pem")
}

/// Returns the file with a client's certificate and key.
pub fn client_identity() -> PathBuf {
    file("client-both.pem")
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/fake_runai/tls").join(name)
}

/// Accepts connections, and completes their handshakes.
pub struct TlsListener {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl TlsListener {
    /// Wraps a listener. With `known_clients_only`, a client must present a certificate of the same
    /// authority.
    pub fn new(listener: TcpListener, known_clients_only: bool) -> io::Result<Self> {
        let config = config(known_clients_only, SERVER, SERVER_KEY).map_err(io::Error::other)?;
        Ok(Self { listener, acceptor: TlsAcceptor::from(Arc::new(config)) })
    }

    /// Wraps a listener with a self-signed certificate.
    pub fn self_signed(listener: TcpListener) -> io::Result<Self> {
        let config = config(false, SELF_SIGNED, SELF_SIGNED_KEY).map_err(io::Error::other)?;
        Ok(Self { listener, acceptor: TlsAcceptor::from(Arc::new(config)) })
    }
}

fn config(
    known_clients_only: bool,
    certificate: &[u8],
    key: &[u8],
) -> Result<ServerConfig, Box<dyn std::error::Error + Send + Sync>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(key)?;
    let builder =
        ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    if !known_clients_only {
        return Ok(builder.with_no_client_auth().with_single_cert(chain, key)?);
    }
    let mut roots = rustls::RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(AUTHORITY) {
        roots.add(authority?)?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
    Ok(builder.with_client_cert_verifier(verifier).with_single_cert(chain, key)?)
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            // A client that rejects the certificate disconnects during the handshake.
            let Ok((stream, address)) = self.listener.accept().await else { continue };
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}
