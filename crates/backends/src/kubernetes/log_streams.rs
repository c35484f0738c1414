//! Sends the requests of followed logs over shared HTTP/2 connections.
//!
//! kube's client uses HTTP/1.1 (an upgrade to a WebSocket needs it), so each followed container would need
//! its own TCP and TLS connection. The first [`OWN`] streams have their own, since that is fastest for few
//! containers. Further streams share HTTP/2 connections, if the API server offers HTTP/2 and no proxy is
//! configured.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::BodyExt;
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::config::AuthInfo;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceBuilder, ServiceExt, service_fn};
use tracing::Instrument;
use tracing::field::Empty;
use weftrun_core::Result;

use super::guard::{Answer, Guard};
use super::{error, from_kube};

/// Number of streams that each have their own connection.
const OWN: usize = 16;
/// Number of streams on one shared connection. API servers allow 100 by default since Kubernetes 1.29
/// (`MaxConcurrentStreams` in k8s.io/apiserver/pkg/server/secure_serving.go, read 2026-11-22), and a stream
/// above the server's limit would wait until another one ends.
const SHARED: usize = 64;
/// Bytes that the server may send on a stream before they are read. The window of the connection is the sum of
/// its streams' windows, so a stream that is not read for a while does not block the others.
const WINDOW: u32 = 128 << 10;
const CONNECTION_WINDOW: u32 = WINDOW * 64;
/// Interval of the pings on an idle connection; `PONG` is the time limit for an answer.
const PING: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(20);
type Connection = BoxCloneSyncService<Request<Body>, Answer, BoxError>;

/// Creates a client of a configuration that sends the requests of followed logs over shared connections, and
/// bounds each answer.
pub(super) fn client(config: kube::Config) -> Result<kube::Client> {
    let namespace = config.default_namespace.clone();
    let failed = |error| from_kube(error, "connect");
    let authorization = config.auth_layer().map_err(failed)?;
    let mut config = config;
    // The layer above adds the credentials, so that the router sees what is sent. Certificates are the connection's.
    let AuthInfo { username, password, token, token_file, auth_provider, .. } = &mut config.auth_info;
    (*username, *password, *token, *token_file, *auth_provider) = (None, None, None, None, None);
    let shared = Shared::new(&config).map(Arc::new);
    let plain = ClientBuilder::try_from(config).map_err(failed)?.build();
    let router = Router { plain, own: Arc::new(Semaphore::new(OWN)), shared };
    let send =
        service_fn(move |request: Request<Body>| Guard::of(&request).run(router.clone().send(request)));
    let service = ServiceBuilder::new().option_layer(authorization).map_err(BoxError::from).service(send);
    Ok(kube::Client::new(service, namespace))
}

/// A client that selects the connection of each request.
#[derive(Clone)]
struct Router {
    plain: kube::Client,
    /// Permits of log streams that have their own connection.
    own: Arc<Semaphore>,
    shared: Option<Arc<Shared>>,
}

/// The shared connections.
struct Shared {
    config: kube::Config,
    connections: Mutex<Vec<(Arc<Semaphore>, Connection)>>,
    /// Whether a shared connection has ever answered a request.
    worked: AtomicBool,
    /// Whether the server has refused HTTP/2.
    refused: AtomicBool,
}

impl Router {
    async fn send(
        self,
        request: Request<Body>,
    ) -> std::result::Result<(Answer, Option<OwnedSemaphorePermit>), BoxError> {
        let Some(shared) = self.shared.as_ref().filter(|_| follows_log(request.uri())) else {
            return Ok((boxed(self.plain.send(request).await?), None));
        };
        if let Ok(permit) = Arc::clone(&self.own).try_acquire_owned() {
            return Ok((boxed(self.plain.send(request).await?), Some(permit)));
        }
        // A request for a log has no body.
        let (parts, _) = request.into_parts();
        let request = || Request::from_parts(parts.clone(), Body::empty());
        if let Some((permit, connection)) = shared.next() {
            let span = tracing::debug_span!(
                "HTTP", http.method = %parts.method, http.url = %shared.url(&parts.uri), http.status_code = Empty
            );
            span.in_scope(|| tracing::debug!("requesting"));
            match connection.oneshot(request()).instrument(span.clone()).await {
                Ok(response) => {
                    span.record("http.status_code", response.status().as_u16());
                    shared.worked.store(true, Ordering::Relaxed);
                    return Ok((response, Some(permit)));
                }
                // A server that is unreachable, or that has answered over HTTP/2 before, has not refused HTTP/2.
                Err(error) if shared.worked.load(Ordering::Relaxed) || is_unreachable(&error) => {
                    return Err(error);
                }
                Err(error) => {
                    tracing::debug!("the API server does not accept HTTP/2 for log streams: {error}");
                    shared.refused.store(true, Ordering::Relaxed);
                }
            }
        }
        Ok((boxed(self.plain.send(request()).await?), None))
    }
}

impl Shared {
    /// Returns the shared connections; none without TLS, where HTTP/2 cannot be negotiated, or where a proxy is
    /// configured.
    fn new(config: &kube::Config) -> Option<Self> {
        let direct = config.proxy_url.is_none() && config.cluster_url.scheme_str() == Some("https");
        direct.then(|| Self {
            config: config.clone(),
            connections: Mutex::default(),
            worked: AtomicBool::new(false),
            refused: AtomicBool::new(false),
        })
    }

    /// Returns a connection that has a free stream; none if the server has refused HTTP/2.
    fn next(&self) -> Option<(OwnedSemaphorePermit, Connection)> {
        if self.refused.load(Ordering::Relaxed) {
            return None;
        }
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        for (streams, connection) in connections.iter() {
            if let Ok(permit) = Arc::clone(streams).try_acquire_owned() {
                return Some((permit, connection.clone()));
            }
        }
        let (streams, connection) = (Arc::new(Semaphore::new(SHARED)), self.connect()?);
        let permit = Arc::clone(&streams).try_acquire_owned().ok()?;
        connections.push((streams, connection.clone()));
        Some((permit, connection))
    }

    /// Returns the whole URL of a request.
    fn url(&self, uri: &Uri) -> String {
        format!("{}{uri}", self.config.cluster_url.to_string().trim_end_matches('/'))
    }

    /// Creates a connection, which is opened by its first request.
    fn connect(&self) -> Option<Connection> {
        let config = &self.config;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(config.connect_timeout);
        let mut tls =
            HttpsConnectorBuilder::new().with_tls_config(config.rustls_client_config().ok()?).https_only();
        if let Some(name) = &config.tls_server_name {
            tls = tls.with_server_name_resolver(FixedServerNameResolver::new(name.clone().try_into().ok()?));
        }
        let client = legacy::Builder::new(TokioExecutor::new())
            .http2_only(true)
            .http2_initial_stream_window_size(WINDOW)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            .http2_keep_alive_interval(PING)
            .http2_keep_alive_timeout(PONG)
            .timer(TokioTimer::new())
            .build(tls.enable_http2().wrap_connector(tcp));
        let service = ServiceBuilder::new()
            .layer(config.base_uri_layer())
            .layer(config.extra_headers_layer().ok()?)
            .map_err(BoxError::from)
            .service(client)
            .map_response(boxed);
        Some(BoxCloneSyncService::new(service))
    }
}

fn boxed<B>(response: Response<B>) -> Answer
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    response.map(|body| body.map_err(Into::into).boxed_unsync())
}

/// Returns whether a connection could not be opened or was interrupted, which does not mean that the server refuses
/// HTTP/2.
fn is_unreachable(error: &BoxError) -> bool {
    use std::io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable, TimedOut};
    let io = error::chain(error.as_ref()).find_map(|cause| cause.downcast_ref::<std::io::Error>());
    io.is_some_and(|io| {
        matches!(io.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable | TimedOut)
    })
}

fn follows_log(uri: &Uri) -> bool {
    uri.path().ends_with("/log") && uri.query().is_some_and(|query| query.contains("follow=true"))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::atomic::AtomicUsize;

    use futures_util::{AsyncBufReadExt, StreamExt};
    use k8s_openapi::api::core::v1::Pod;
    use kube::api::{Api, LogParams};
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::server::TlsStream;

    use super::*;

    /// The testkit's certificates, which are valid for 127.0.0.1.
    fn pem(name: &str) -> String {
        format!("{}/../testkit/src/fake_runai/tls/{name}", env!("CARGO_MANIFEST_DIR"))
    }

    /// An API server whose containers write one line each and keep running. Counts the connections of each protocol.
    #[derive(Default)]
    struct Server {
        http1: AtomicUsize,
        http2: AtomicUsize,
    }

    impl Server {
        async fn start(protocols: &[&str]) -> (Arc<Self>, kube::Client) {
            let certificate = vec![CertificateDer::from_pem_file(pem("server.pem")).unwrap()];
            let key = PrivateKeyDer::from_pem_file(pem("server.key.pem")).unwrap();
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            crate::tls::provide().unwrap();
            let mut tls = rustls::ServerConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(certificate, key)
                .unwrap();
            tls.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let server = Arc::new(Self::default());
            tokio::spawn(Arc::clone(&server).accept(listener, TlsAcceptor::from(Arc::new(tls))));
            (server, Self::client(address))
        }

        fn client(address: SocketAddr) -> kube::Client {
            let mut config = kube::Config::new(format!("https://{address}").parse().unwrap());
            config.root_cert = Some(vec![CertificateDer::from_pem_file(pem("ca.pem")).unwrap().to_vec()]);
            client(config).unwrap()
        }

        async fn accept(self: Arc<Self>, listener: TcpListener, tls: TlsAcceptor) {
            loop {
                let (tcp, _) = listener.accept().await.unwrap();
                let (server, tls) = (Arc::clone(&self), tls.clone());
                tokio::spawn(async move {
                    let Ok(stream) = tls.accept(tcp).await else { return };
                    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                        server.http2.fetch_add(1, Ordering::Relaxed);
                        http2(stream).await;
                    } else {
                        server.http1.fetch_add(1, Ordering::Relaxed);
                        http1(stream).await;
                    }
                });
            }
        }

        fn connections(&self) -> (usize, usize) {
            (self.http1.load(Ordering::Relaxed), self.http2.load(Ordering::Relaxed))
        }
    }

    async fn http1(mut stream: TlsStream<TcpStream>) {
        let mut head = [0; 4096];
        assert!(stream.read(&mut head).await.unwrap() > 0);
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(format!("{head}6\r\nhello\n\r\n").as_bytes()).await.unwrap();
        std::future::pending::<()>().await;
    }

    async fn http2(stream: TlsStream<TcpStream>) {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        let mut open = Vec::new();
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            assert!(request.uri().path().ends_with("/log"), "{}", request.uri());
            let mut body = respond.send_response(Response::new(()), false).unwrap();
            body.send_data(Bytes::from_static(b"hello\n"), false).unwrap();
            open.push(body);
        }
    }

    /// Follows this many containers at once, and returns their streams after the first line of each.
    async fn follow(
        client: &kube::Client,
        containers: usize,
    ) -> Vec<impl futures_util::AsyncBufRead + use<>> {
        let pods: Api<Pod> = Api::namespaced(client.clone(), "research");
        let params = LogParams { follow: true, ..LogParams::default() };
        let names: Vec<_> = (0..containers).map(|index| format!("pod-{index}")).collect();
        let opened = names.iter().map(|name| async {
            let mut lines = Box::pin(pods.log_stream(name, &params).await.unwrap());
            let mut line = String::new();
            lines.read_line(&mut line).await.unwrap();
            assert_eq!(line, "hello\n");
            lines
        });
        futures_util::stream::iter(opened).buffer_unordered(containers).collect().await
    }

    #[tokio::test]
    async fn streams_beyond_the_first_share_connections_until_they_end() {
        let (server, client) = Server::start(&["h2", "http/1.1"]).await;
        let streams = follow(&client, OWN + 2 * SHARED + 1).await;
        assert_eq!(server.connections(), (OWN, 3));
        drop(streams);
        // New streams use the capacity of those that ended.
        let streams = follow(&client, OWN + SHARED).await;
        assert_eq!(server.connections().1, 3);
        drop(streams);
    }

    #[tokio::test]
    async fn a_server_without_http2_gets_a_connection_for_each_stream() {
        for protocols in [&["http/1.1"][..], &[]] {
            let (server, client) = Server::start(protocols).await;
            let streams = follow(&client, OWN + 8).await;
            assert_eq!((streams.len(), server.connections().1), (OWN + 8, 0), "{protocols:?}");
        }
    }
}
