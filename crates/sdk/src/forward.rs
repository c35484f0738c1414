//! A port of this machine that leads to a port inside a job.

use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use weftrun_core::backend::{ExecRequest, PortConnection};
use weftrun_core::{Error, ErrorKind, Result};

use crate::Job;
use crate::runtime::on_runtime;

/// How many connections are open at once; further ones wait.
const MOST_CONNECTIONS: usize = 64;
/// Size of the buffer of a connection.
const PIECE: usize = 32 << 10;
/// How long no byte may come after this side has closed a connection, until it is closed as a whole.
const AFTER_CLOSE: Duration = Duration::from_secs(60);

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
    /// [`ErrorKind::Refused`] if the job has ended, [`ErrorKind::NotFound`] for a rank that it does not have, and
    /// [`ErrorKind::Io`] if the port of this machine is taken. That nothing listens inside the job yet is no error.
    pub async fn forward_port(&self, rank: Option<u32>, port: u16, local: u16) -> Result<ForwardedPort> {
        on_runtime(async {
            let taken = |error: std::io::Error| {
                Error::new(ErrorKind::Io, format!("cannot listen on port {local} of 127.0.0.1"))
                    .hint("name another: `LOCAL:PORT`, or `0:PORT` for a free one")
                    .with_source(error)
            };
            // Said before anybody connects, and without a connection, which may be the only one that the service takes.
            let phase = self.describe().await?.summary.phase;
            if phase.is_terminal() {
                let message = format!("the job is {phase}, and nothing listens in it");
                return Err(Error::new(ErrorKind::Refused, message).with("handle", self.handle()));
            }
            if rank.is_some() {
                let mut request = ExecRequest::new(["true"]);
                request.rank = rank;
                let found = self.exec(&request, &mut |_, _| Ok(())).await;
                found.map(drop).or_else(|error| match error.kind() {
                    ErrorKind::NotFound => Err(error),
                    _ => Ok(()),
                })?;
            }
            let listener = TcpListener::bind(("127.0.0.1", local)).await.map_err(taken)?;
            let local = listener.local_addr().map_err(taken)?.port();
            Ok(ForwardedPort { job: self.clone(), rank, port, listener, local })
        })
        .await
    }
}

impl ForwardedPort {
    /// Carries connections until the job ends. What breaks one of them is passed on, and ends no other.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] once the job has ended, and those of [`Job::wait`].
    pub async fn serve(&self, on_error: &mut dyn FnMut(&Error)) -> Result<()> {
        on_runtime(async {
            let mut open = FuturesUnordered::new();
            let mut end = pin!(self.job.wait());
            loop {
                tokio::select! {
                    accepted = self.listener.accept(), if open.len() < MOST_CONNECTIONS => match accepted {
                        Ok((stream, _)) => open.push(self.carry(stream)),
                        Err(error) => {
                            let message = format!("port {} of 127.0.0.1 takes no connection", self.local);
                            on_error(&Error::new(ErrorKind::Io, message).with_source(error));
                            // Without a free file descriptor, the next one fails at once.
                            tokio::time::sleep(Duration::from_millis(200)).await;
                        }
                    },
                    ended = &mut end => {
                        let message = format!("the job has ended: {}", ended?.phase);
                        return Err(Error::new(ErrorKind::Refused, message).with("handle", self.job.handle()));
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
        let mut up = pin!(up);
        let mut sends = true;
        loop {
            let bytes = tokio::select! {
                bytes = connection.receive() => bytes?,
                () = &mut up, if sends => {
                    sends = false;
                    continue;
                }
                () = tokio::time::sleep(AFTER_CLOSE), if !sends => return Ok(()),
            };
            if bytes.is_empty() || write.write_all(&bytes).await.is_err() {
                return Ok(());
            }
        }
    }
}
