//! A port of this machine that leads to a port inside a job.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use weftrun_core::backend::PortConnection;
use weftrun_core::{Error, ErrorKind, Result};

use crate::Job;
use crate::runtime::on_runtime;

/// How many connections are open at once; further ones wait.
const MOST_CONNECTIONS: usize = 64;
/// Size of the buffer of a connection.
const PIECE: usize = 32 << 10;
/// How long an answer is waited for after this side has closed a connection.
const AFTER_CLOSE: Duration = Duration::from_secs(5);

/// A port of this machine that leads to a port inside a job: see [`Job::forward_port`].
#[derive(Debug)]
pub struct ForwardedPort {
    job: Job,
    rank: Option<u32>,
    port: u16,
    listener: TcpListener,
    /// The port of this machine's 127.0.0.1.
    pub local: u16,
}

impl Job {
    /// Listens on a port of 127.0.0.1 (a free one for 0), whose connections go to a port of localhost beside a rank, or in
    /// the job's first node, pod or process. [`ForwardedPort::serve`] carries them.
    ///
    /// ```no_run
    /// # async fn example(job: weftrun::Job) -> weftrun::Result<()> {
    /// let tensorboard = job.forward_port(Some(0), 6006, 0).await?;
    /// println!("http://127.0.0.1:{}", tensorboard.local);
    /// tensorboard.serve(&mut |error| eprintln!("{error}")).await
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Job::open_port`]; [`ErrorKind::Io`] if the port of this machine is taken. A service that does not listen yet is none.
    pub async fn forward_port(&self, rank: Option<u32>, port: u16, local: u16) -> Result<ForwardedPort> {
        on_runtime(async {
            let taken = |error: std::io::Error| {
                Error::new(ErrorKind::Io, format!("cannot listen on port {local} of 127.0.0.1"))
                    .hint("name another: `LOCAL:PORT`, or `0:PORT` for a free one")
                    .with_source(error)
            };
            let listener = TcpListener::bind(("127.0.0.1", local)).await.map_err(taken)?;
            let local = listener.local_addr().map_err(taken)?.port();
            // A job that does not run and a missing right are said before anybody connects.
            match self.open_port(rank, port).await {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Unreachable && !error.is_retryable() => {}
                Err(error) => return Err(error),
            }
            Ok(ForwardedPort { job: self.clone(), rank, port, listener, local })
        })
        .await
    }
}

impl ForwardedPort {
    /// Carries connections until the future is dropped. What breaks one of them is passed on, and ends no other.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the port of this machine can no longer be used.
    pub async fn serve(&self, on_error: &mut dyn FnMut(&Error)) -> Result<()> {
        on_runtime(async {
            let mut open = FuturesUnordered::new();
            loop {
                tokio::select! {
                    accepted = self.listener.accept(), if open.len() < MOST_CONNECTIONS => {
                        let (stream, _) = accepted.map_err(|error| {
                            Error::new(ErrorKind::Io, format!("port {} of 127.0.0.1 takes no connection", self.local))
                                .with_source(error)
                        })?;
                        open.push(self.carry(stream));
                    }
                    Some(ended) = open.next() => if let Err(error) = ended {
                        on_error(&error);
                    }
                }
            }
        })
        .await
    }

    async fn carry(&self, stream: TcpStream) -> Result<()> {
        let connection = self.job.open_port(self.rank, self.port).await?;
        let connection: &dyn PortConnection = connection.as_ref();
        let (mut read, mut write) = stream.into_split();
        // A caller that goes away is no error.
        let up = async {
            let mut bytes = vec![0; PIECE];
            while let Ok(length @ 1..) = read.read(&mut bytes).await {
                if connection.send(bytes.get(..length).unwrap_or_default()).await.is_err() {
                    // The other direction has the reason.
                    return std::future::pending().await;
                }
            }
        };
        let mut down = std::pin::pin!(async {
            loop {
                let bytes = connection.receive().await?;
                if bytes.is_empty() || write.write_all(&bytes).await.is_err() {
                    return Ok(());
                }
            }
        });
        tokio::select! {
            ended = &mut down => return ended,
            () = up => {}
        }
        tokio::time::timeout(AFTER_CLOSE, down).await.unwrap_or(Ok(()))
    }
}
