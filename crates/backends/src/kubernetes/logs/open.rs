//! One connection to one container's log.

use futures_util::{AsyncBufRead, AsyncBufReadExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod as Object;
use kube::api::{Api, LogParams};
use weftrun_core::Error;

use crate::kubernetes::{Cluster, from_kube};

/// The parameters of a log request.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    pub follow: bool,
    pub previous: bool,
    pub since: Option<Timestamp>,
    pub tail: Option<u64>,
}

/// Why a log cannot be opened.
#[derive(Debug)]
pub enum NotOpen {
    /// The container has not started.
    Waiting,
    /// The pod, or the node it was on, is not there.
    Gone(String),
    /// The user has no right to read it.
    Refused(Error),
    /// A retry may help.
    Later,
}

/// Opens the log of a container.
pub async fn open(
    cluster: &Cluster,
    pod: &str,
    container: &str,
    ask: &Ask,
) -> Result<impl AsyncBufRead + Unpin + Send + use<>, NotOpen> {
    let api: Api<Object> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let params = LogParams {
        container: Some(container.to_owned()),
        follow: ask.follow,
        previous: ask.previous,
        since_time: ask.since,
        tail_lines: ask.tail.map(|lines| i64::try_from(lines).unwrap_or(i64::MAX)),
        timestamps: true,
        ..LogParams::default()
    };
    match api.log_stream(pod, &params).await {
        Ok(stream) => Ok(Box::pin(stream)),
        Err(kube::Error::Api(status))
            if status.code == 400 && status.message.contains("waiting to start") =>
        {
            Err(NotOpen::Waiting)
        }
        Err(kube::Error::Api(status)) if status.code == 400 || status.code == 404 => {
            Err(NotOpen::Gone(crate::kubernetes::one_line(&status.message)))
        }
        Err(kube::Error::Api(status)) if matches!(status.code, 401 | 403) => {
            Err(NotOpen::Refused(from_kube(kube::Error::Api(status), &format!("read the log of {pod}"))))
        }
        Err(_) => Err(NotOpen::Later),
    }
}

/// Returns the next bytes; none at the end of the stream.
pub async fn next(stream: &mut (impl AsyncBufRead + Unpin)) -> std::io::Result<Option<&[u8]>> {
    let bytes = stream.fill_buf().await?;
    Ok(if bytes.is_empty() { None } else { Some(bytes) })
}
