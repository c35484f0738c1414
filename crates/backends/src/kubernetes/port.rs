//! Connects to a port of localhost in a pod, over the API server.

use std::pin::Pin;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod as Object;
use kube::api::{Api, Portforwarder};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::Mutex;
use tokio::time::timeout;
use weftrun_core::backend::PortConnection;
use weftrun_core::{Error, ErrorKind, Result};

use super::exec::refused;
use super::{Cluster, one_line};
use crate::attach::nothing_listens;

/// Size of the read buffer.
const BUFFER: usize = 16 * 1024;
/// How long to wait for the reason of a closed connection, which comes on a separate channel.
const REASON: Duration = Duration::from_secs(5);

/// Connects to a port.
///
/// # Errors
/// [`ErrorKind::Credentials`] without the right to `pods/portforward`; [`ErrorKind::Refused`] if the node
/// cannot forward ports.
pub async fn open_port(cluster: &Cluster, pod: &str, port: u16) -> Result<Box<dyn PortConnection>> {
    let what = format!("connect to port {port} in {pod}");
    let api: Api<Object> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let forwarded = api.portforward(pod, &[port]).await;
    let mut forwarder = forwarded.map_err(|error| refused(error, &what, "pods/portforward"))?;
    let (Some(stream), Some(reason)) = (forwarder.take_stream(port), forwarder.take_error(port)) else {
        return Err(Error::new(ErrorKind::Unexpected, "the port was not forwarded").with("while", what));
    };
    let (read, write) = tokio::io::split(Box::new(stream) as Box<dyn Stream>);
    let (read, write) = (Mutex::new(read), Mutex::new(write));
    Ok(Box::new(Forwarded { forwarder, read, write, reason: Mutex::new(Some(Box::pin(reason))), port, what }))
}

/// Bytes to and from a port.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// The answer why a connection ended.
type Reason = Pin<Box<dyn Future<Output = Option<String>> + Send>>;

struct Forwarded {
    forwarder: Portforwarder,
    read: Mutex<ReadHalf<Box<dyn Stream>>>,
    write: Mutex<WriteHalf<Box<dyn Stream>>>,
    /// Why the connection ended, if the node reports it.
    reason: Mutex<Option<Reason>>,
    port: u16,
    what: String,
}

impl Forwarded {
    /// Returns the error of a closed connection, if there was one.
    async fn reason(&self) -> Option<Error> {
        let reason = self.reason.lock().await.take()?;
        let reason = timeout(REASON, reason).await.ok()??;
        Some(unforwarded(&reason, self.port).with("while", &self.what))
    }
}

/// Returns the error for a kubelet's reason: for an address where nothing listens, the runtime's message is
/// that of the C library.
fn unforwarded(reason: &str, port: u16) -> Error {
    if reason.contains("connection refused") || reason.contains("Connection refused") {
        return nothing_listens(port);
    }
    Error::new(ErrorKind::Refused, format!("the port cannot be forwarded: {}", one_line(reason)))
}

#[async_trait]
impl PortConnection for Forwarded {
    async fn send(&self, bytes: &[u8]) -> Result<()> {
        let mut write = self.write.lock().await;
        let sent = match write.write_all(bytes).await {
            Ok(()) => write.flush().await,
            failed => failed,
        };
        match sent {
            Ok(()) => Ok(()),
            Err(error) => Err(self.reason().await.unwrap_or_else(|| broken(error).with("while", &self.what))),
        }
    }

    async fn receive(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; BUFFER];
        let failed = match self.read.lock().await.read(&mut bytes).await {
            Ok(length @ 1..) => {
                bytes.truncate(length);
                return Ok(bytes);
            }
            Ok(_) => None,
            Err(error) => Some(error),
        };
        match (self.reason().await, failed) {
            (Some(reason), _) => Err(reason),
            (None, Some(error)) => Err(broken(error).with("while", &self.what)),
            (None, None) => Ok(Vec::new()),
        }
    }
}

impl Drop for Forwarded {
    fn drop(&mut self) {
        self.forwarder.abort();
    }
}

fn broken(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Unreachable, "the connection to the port broke").with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_where_nothing_listens_is_no_missing_right() {
        let refused = "error forwarding port 28028 to pod 1f, uid : failed to execute portforward in network namespace \
            \"/var/run/netns/cni-1\": failed to connect to localhost:28028 inside namespace \"1f\", IPv4: dial tcp4 \
            127.0.0.1:28028: connect: connection refused";
        let error = unforwarded(refused, 28028);
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        assert!(error.to_string().contains("nothing listens on port 28028"), "{error}");
        let error = unforwarded("unable to do port forwarding: socat not found", 28028);
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(error.to_string().contains("socat not found"), "{error}");
    }
}
