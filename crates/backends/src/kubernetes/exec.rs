//! Runs a command in a container of a pod, over the API server.

use std::io::{Read as _, Write};

use futures_util::{Sink, SinkExt as _};
use k8s_openapi::api::core::v1::Pod as Object;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::{Api, AttachParams, AttachedProcess, TerminalSize};
use kube::client::UpgradeConnectionError;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt as _};
use tokio::signal::unix::{SignalKind, signal};
use weftrun_core::backend::{ExecRequest, ExecSink, ExecStream};
use weftrun_core::job::JobHandle;
use weftrun_core::{Error, ErrorKind, Result};

use super::{Cluster, from_kube, one_line};
use crate::attach::{RawTerminal, endings};
use crate::refusals::no_rank;

/// Size of the output buffer.
const BUFFER: usize = 16 * 1024;
/// How many pieces of input may wait for the connection.
const PIECES: usize = 16;

/// Runs a command in a container, and returns its exit code.
///
/// # Errors
/// [`ErrorKind::Credentials`] without the right to `pods/exec`; [`ErrorKind::Refused`] if the command cannot
/// be started.
pub async fn exec(
    cluster: &Cluster,
    pod: &str,
    container: &str,
    command: &[String],
    sink: &mut ExecSink<'_>,
) -> Result<i32> {
    let params = AttachParams::default().container(container).stdin(false).stdout(true).stderr(true);
    start(cluster, pod, command, &params).await?.relay(sink).await
}

/// Runs a command in a container with this process's input and output, and returns its exit code.
///
/// # Errors
/// As [`exec`]; [`ErrorKind::Usage`] if a terminal is asked for where this process has none.
pub async fn attach(cluster: &Cluster, pod: &str, container: &str, request: &ExecRequest) -> Result<i32> {
    // A terminal has one output.
    let params = AttachParams::default().container(container).stdin(true).stdout(true);
    let params = params.stderr(!request.terminal).tty(request.terminal);
    let mut process = start(cluster, pod, &request.command, &params).await?;
    let terminal = request.terminal.then(RawTerminal::open).transpose()?;
    let (input, sizes) = (process.0.stdin(), process.0.terminal_size());
    let failed = |what: &str, error| Error::new(ErrorKind::Io, what.to_owned()).with_source(error);
    let (mut term, mut hang_up) = endings().map_err(|error| failed("cannot wait for signals", error))?;
    let mut sink = |stream, bytes: &[u8]| {
        let written = match stream {
            ExecStream::Stdout => write_whole(&mut std::io::stdout(), bytes),
            ExecStream::Stderr => write_whole(&mut std::io::stderr(), bytes),
        };
        written.map_err(|error| failed("cannot write the output", error))
    };
    let ended =
        || Error::new(ErrorKind::Interrupted, "ended from outside: the connection to the command is closed");
    // The end of the input is not that of the command.
    let beside = async {
        tokio::join!(feed(input), resize(terminal.as_ref(), sizes));
        std::future::pending().await
    };
    tokio::select! {
        code = process.relay(&mut sink) => code,
        never = beside => never,
        _ = term.recv() => Err(ended()),
        _ = hang_up.recv() => Err(ended()),
    }
}

fn write_whole(to: &mut dyn Write, bytes: &[u8]) -> std::io::Result<()> {
    to.write_all(bytes)?;
    to.flush()
}

/// Sends this process's input until it ends. A thread reads it: a read of a terminal cannot be interrupted, and must delay no end.
async fn feed(to: Option<impl AsyncWrite + Unpin>) {
    let Some(mut to) = to else { return };
    let (send, mut receive) = tokio::sync::mpsc::channel::<Vec<u8>>(PIECES);
    std::thread::spawn(move || {
        let mut bytes = vec![0; BUFFER];
        while let Ok(length @ 1..) = std::io::stdin().read(&mut bytes) {
            if send.blocking_send(bytes.get(..length).unwrap_or_default().to_vec()).is_err() {
                return;
            }
        }
    });
    while let Some(bytes) = receive.recv().await {
        if to.write_all(&bytes).await.is_err() || to.flush().await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}

/// Sends the size of this process's terminal, and each change of it.
async fn resize(terminal: Option<&RawTerminal>, to: Option<impl Sink<TerminalSize> + Unpin>) {
    let (Some(terminal), Some(mut to)) = (terminal, to) else { return };
    let Ok(mut changes) = signal(SignalKind::window_change()) else { return };
    loop {
        if let Some((width, height)) = terminal.size()
            && to.send(TerminalSize { width, height }).await.is_err()
        {
            return;
        }
        if changes.recv().await.is_none() {
            return;
        }
    }
}

async fn start(cluster: &Cluster, pod: &str, command: &[String], params: &AttachParams) -> Result<Attached> {
    let what = format!("run a command in {pod}");
    let api: Api<Object> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let process = api.exec(pod, command, params).await.map_err(|error| refused(error, &what, "pods/exec"))?;
    Ok(Attached(process, what))
}

/// A command whose connection is closed when it is dropped. The kubelet does not kill the command, which ends
/// when its output is closed.
struct Attached(AttachedProcess, String);

impl Drop for Attached {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Attached {
    /// Passes the output on until the command ends, and returns its exit code.
    async fn relay(&mut self, sink: &mut ExecSink<'_>) -> Result<i32> {
        let status = self.0.take_status();
        let (mut out, mut err) = (self.0.stdout(), self.0.stderr());
        let (mut out_bytes, mut err_bytes) = (vec![0; BUFFER], vec![0; BUFFER]);
        loop {
            // After an output ended or broke, nothing more comes of it; how the command ended is in the status.
            tokio::select! {
                read = next(&mut out, &mut out_bytes), if out.is_some() => match read {
                    Ok(length @ 1..) => sink(ExecStream::Stdout, out_bytes.get(..length).unwrap_or_default())?,
                    _ => out = None,
                },
                read = next(&mut err, &mut err_bytes), if err.is_some() => match read {
                    Ok(length @ 1..) => sink(ExecStream::Stderr, err_bytes.get(..length).unwrap_or_default())?,
                    _ => err = None,
                },
                else => break,
            }
        }
        let status = match status {
            Some(status) => status.await,
            None => None,
        };
        code(status.as_ref()).map_err(|error| error.with("while", &self.1))
    }
}

/// Returns the number of the node that runs a rank; the first node if none is given.
///
/// # Errors
/// [`ErrorKind::NotFound`] for a rank that the job does not have.
pub fn node_of(rank: Option<u32>, nodes: u32, ranks: u32) -> Result<u32> {
    let Some(rank) = rank else { return Ok(0) };
    let node = rank / ranks;
    if node < nodes {
        return Ok(node);
    }
    Err(no_rank(ErrorKind::NotFound, rank, nodes.saturating_mul(ranks)))
}

/// Returns the error of a node whose pod does not run.
pub fn does_not_run(handle: &JobHandle, node: u32) -> Error {
    Error::new(ErrorKind::Refused, format!("the pod of node {node} does not run now")).with("handle", handle)
}

/// The word before the number of ranks in the command of a job with `launch = "per-rank"`.
const PER_RANK: &str = "weftrun-ranks";

/// Returns the number of ranks that the command of a node starts: the value of torchrun's option, or of weftrun's
/// own for `launch = "per-rank"`.
pub fn ranks_of<'w>(words: impl IntoIterator<Item = &'w str>) -> Option<u32> {
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let option = word.replace('_', "-");
        let number = match option.strip_prefix("--nproc-per-node") {
            _ if word == PER_RANK => words.next(),
            Some("") => words.next(),
            Some(_) => word.split_once('=').map(|(_, number)| number),
            None => continue,
        };
        return number?.parse().ok();
    }
    None
}

async fn next(from: &mut Option<impl AsyncRead + Unpin>, bytes: &mut [u8]) -> std::io::Result<usize> {
    match from {
        Some(from) => from.read(bytes).await,
        None => std::future::pending().await,
    }
}

/// Returns the exit code in a status.
fn code(status: Option<&Status>) -> Result<i32> {
    let Some(status) = status else {
        return Err(Error::new(ErrorKind::Unreachable, "the connection ended before the command did"));
    };
    if status.status.as_deref() == Some("Success") {
        return Ok(0);
    }
    let causes = status.details.iter().flat_map(|details| details.causes.iter().flatten());
    let mut exit = causes.filter(|cause| cause.reason.as_deref() == Some("ExitCode"));
    let code = exit.find_map(|cause| cause.message.as_ref()?.parse().ok());
    code.ok_or_else(|| {
        let message = one_line(status.message.as_deref().unwrap_or("the command cannot be started"));
        Error::new(ErrorKind::Refused, message)
    })
}

/// Returns the error of a connection that the API server refuses, with the required right (`pods/exec`).
pub(super) fn refused(error: kube::Error, what: &str, right: &str) -> Error {
    let status = match &error {
        kube::Error::UpgradeConnection(UpgradeConnectionError::ProtocolSwitch(status)) => status.as_u16(),
        _ => 0,
    };
    let made = |kind, text: &str| Error::new(kind, text.to_owned()).with("while", what);
    match status {
        401 => made(ErrorKind::Credentials, "the API server rejected your credentials (401)")
            .hint("the token or certificate has expired or is wrong: log in again"),
        403 => made(ErrorKind::Credentials, &format!("you may not use `{right}` in this namespace")).hint(
            format!(
                "ask your cluster administrator for a Role with the verbs `get` and `create` on `{right}`"
            ),
        ),
        404 => made(ErrorKind::NotFound, "the pod or its container is gone"),
        400..=499 => made(ErrorKind::Refused, "the API server refuses the connection"),
        _ => from_kube(error, what),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(value: serde_json::Value) -> Status {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn the_ranks_of_a_node_are_in_its_command() {
        for (line, ranks) in [
            ("torchrun --nnodes 2 --nproc-per-node=8 train.py", Some(8)),
            ("python -m torch.distributed.run --nproc_per_node 4 train.py --nproc-per-node 2", Some(4)),
            ("/bin/sh -c … weftrun-ranks 3 python train.py", Some(3)),
            ("torchrun --nproc-per-node gpu train.py", None),
            ("python train.py", None),
        ] {
            assert_eq!(ranks_of(line.split(' ')), ranks, "{line}");
        }
    }

    #[test]
    fn an_exit_code_comes_from_the_status() {
        assert_eq!(code(Some(&status(serde_json::json!({"status": "Success"})))).unwrap(), 0);
        let failed = serde_json::json!({
            "status": "Failure", "reason": "NonZeroExitCode", "message": "command terminated with exit code 7",
            "details": {"causes": [{"reason": "ExitCode", "message": "7"}]},
        });
        assert_eq!(code(Some(&status(failed))).unwrap(), 7);
        let unknown = serde_json::json!({"status": "Failure", "message": "exec: \"py-spy\": not found"});
        assert_eq!(code(Some(&status(unknown))).unwrap_err().kind(), ErrorKind::Refused);
        assert_eq!(code(None).unwrap_err().kind(), ErrorKind::Unreachable);
    }
}
