//! Programs with two-way input and output: a command with this process's own terminal, and a connection to a port.

use std::io::stdin;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;

use async_trait::async_trait;
use rustix::process::{Pid, kill_process};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Mutex;
use weftrun_core::backend::{ExecRequest, PortConnection};
use weftrun_core::{Error, ErrorKind, Result};

use crate::helper::GroupGuard;

/// Size of the buffer of a connection.
const PIECE: usize = 32 << 10;
/// The exit codes of [`connect_request`] for a port where nothing listens, and of a shell without bash.
const NOTHING_LISTENS: i32 = 97;
const NOT_FOUND: i32 = 127;
/// What [`connect_request`] prints before the first byte of the port: a login script may print before it.
const OPENED: &str = "#weftrun port=open\n";
/// Bytes that may stand before it.
const MOST_NOISE: usize = 1 << 20;

/// Runs a program with this process's input and output, and returns its exit code as a shell reports it. Ctrl-C is the
/// program's: it is not ended here. SIGTERM and SIGHUP are passed on to it.
///
/// # Errors
/// [`ErrorKind::Io`] if it cannot be started or waited for.
pub async fn attach(mut command: Command) -> Result<i32> {
    let program = command.as_std().get_program().to_string_lossy().into_owned();
    let failed = |error: std::io::Error| {
        Error::new(ErrorKind::Io, format!("cannot run `{program}`")).with_source(error)
    };
    command.stdin(Stdio::inherit()).stdout(Stdio::inherit()).stderr(Stdio::inherit());
    command.kill_on_drop(true);
    let (mut term, mut hang_up) = endings().map_err(failed)?;
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(
                Error::new(ErrorKind::NotFound, format!("cannot start `{program}`")).with_source(error)
            );
        }
        Err(error) => return Err(failed(error)),
    };
    let pass = |child: &Child, signal| {
        let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let _ = pid.map(|pid| kill_process(pid, signal));
    };
    loop {
        tokio::select! {
            Some(()) = term.recv() => pass(&child, rustix::process::Signal::TERM),
            Some(()) = hang_up.recv() => pass(&child, rustix::process::Signal::HUP),
            status = child.wait() => {
                let status = status.map_err(failed)?;
                return Ok(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)));
            }
            Ok(()) = tokio::signal::ctrl_c() => {}
        }
    }
}

/// Returns the signals that end this process.
pub fn endings() -> std::io::Result<(Signal, Signal)> {
    Ok((signal(SignalKind::terminate())?, signal(SignalKind::hangup())?))
}

/// The terminal of standard input, passing on each key as it is typed until it is dropped.
#[derive(Debug)]
pub struct RawTerminal {
    before: Termios,
}

impl RawTerminal {
    /// Makes the terminal raw.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if there is none.
    pub fn open() -> Result<Self> {
        let none = |error: rustix::io::Errno| {
            Error::new(ErrorKind::Usage, "a terminal is asked for, and standard input is none")
                .hint("leave out `-t`")
                .with_source(error)
        };
        let before = tcgetattr(stdin()).map_err(none)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin(), OptionalActions::Drain, &raw).map_err(none)?;
        Ok(Self { before })
    }

    /// Returns its columns and rows.
    pub fn size(&self) -> Option<(u16, u16)> {
        tcgetwinsize(stdin()).ok().map(|size| (size.ws_col, size.ws_row))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        let _ = tcsetattr(stdin(), OptionalActions::Drain, &self.before);
    }
}

/// Returns the request to run a command that connects its input and output to a port of localhost beside a rank, where bash is
/// the tool that most images have.
pub fn connect_request(rank: Option<u32>, port: u16) -> ExecRequest {
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/$1 || exit {NOTHING_LISTENS}\n\
         printf '%s' '{OPENED}'\n\
         exec 4<&0\ncat <&3 & reader=$!\n{{ cat <&4 >&3; kill $reader; }} > /dev/null 2>&1 & writer=$!\n\
         wait $reader\nkill $writer 2> /dev/null\nexit 0\n"
    );
    let mut request = ExecRequest::new(["bash", "-c", &script, "weftrun", &port.to_string()]);
    request.rank = rank;
    request
}

/// A connection to a port through a program that was started with [`connect_request`].
#[derive(Debug)]
pub struct PipedPort {
    port: u16,
    stdin: Mutex<ChildStdin>,
    stdout: Mutex<PortOutput>,
    child: Mutex<Child>,
    _guard: GroupGuard,
}

/// The output of the program: what comes from the port stands behind [`OPENED`].
#[derive(Debug)]
struct PortOutput {
    stdout: ChildStdout,
    /// What was read before [`OPENED`] was seen; none once it was.
    before: Option<Vec<u8>>,
}

impl PortOutput {
    /// Reads the next bytes of the port; none at the end.
    async fn read(&mut self) -> std::io::Result<Vec<u8>> {
        loop {
            let mut bytes = Vec::with_capacity(PIECE);
            self.stdout.read_buf(&mut bytes).await?;
            let Some(before) = &mut self.before else { return Ok(bytes) };
            if bytes.is_empty() {
                return Ok(bytes);
            }
            if before.len() > MOST_NOISE {
                return Err(std::io::Error::other("it prints without an end"));
            }
            let from = before.len().saturating_sub(OPENED.len());
            before.extend_from_slice(&bytes);
            if let Some(at) = memchr::memmem::find(&before[from..], OPENED.as_bytes()) {
                let first = before.split_off(from + at + OPENED.len());
                self.before = None;
                if !first.is_empty() {
                    return Ok(first);
                }
            }
        }
    }
}

impl PipedPort {
    /// Starts the program, in a process group that ends with the connection.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if it cannot be started.
    pub fn start(mut command: Command, port: u16) -> Result<Box<dyn PortConnection>> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.process_group(0).kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| {
            Error::new(ErrorKind::Io, "cannot start the program that connects to the port").with_source(error)
        })?;
        let guard = GroupGuard::of(&child);
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::new(ErrorKind::Unexpected, "a program was started without its outputs"));
        };
        let stdout = PortOutput { stdout, before: Some(Vec::new()) };
        let (stdin, stdout, child) = (Mutex::new(stdin), Mutex::new(stdout), Mutex::new(child));
        Ok(Box::new(Self { port, stdin, stdout, child, _guard: guard }))
    }
}

#[async_trait]
impl PortConnection for PipedPort {
    async fn send(&self, bytes: &[u8]) -> Result<()> {
        let mut stdin = self.stdin.lock().await;
        let sent = match stdin.write_all(bytes).await {
            Ok(()) => stdin.flush().await,
            failed => failed,
        };
        sent.map_err(|_| closed(self.port))
    }

    async fn receive(&self) -> Result<Vec<u8>> {
        let bytes = self.stdout.lock().await.read().await.map_err(|_| closed(self.port))?;
        if !bytes.is_empty() {
            return Ok(bytes);
        }
        let status = self.child.lock().await.wait().await.map_err(|_| closed(self.port))?;
        match status.code() {
            Some(0) => Ok(Vec::new()),
            Some(NOTHING_LISTENS) => Err(nothing_listens(self.port)),
            Some(NOT_FOUND) => Err(Error::new(
                ErrorKind::Unsupported,
                "there is no bash beside the rank, which connects to the port",
            )),
            _ => Err(closed(self.port)),
        }
    }
}

/// Returns the error of a port without a service.
pub fn nothing_listens(port: u16) -> Error {
    Error::new(ErrorKind::Unreachable, format!("nothing listens on port {port} of localhost inside the job"))
}

fn closed(port: u16) -> Error {
    Error::new(ErrorKind::Unreachable, format!("the connection to port {port} inside the job broke"))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use weftrun_testkit::child;

    use super::*;

    /// Connects by a shell whose login script prints, as on many clusters.
    fn start(port: u16) -> Box<dyn PortConnection> {
        let mut command = Command::from(child::command("sh"));
        command.args(["-c", "echo '*** Welcome ***'; exec \"$@\"", "login"]);
        command.args(connect_request(None, port).command);
        PipedPort::start(command, port).unwrap()
    }

    #[tokio::test]
    async fn bytes_go_both_ways_at_once_and_a_closed_port_is_told() {
        const LENGTH: usize = 3 << 20;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (mut read, mut write) = stream.split();
            // It reads all only after it has written all: both directions must move at once.
            let sent = vec![b'\0'; LENGTH];
            let mut got = vec![0; LENGTH];
            let (written, read) = tokio::join!(write.write_all(&sent), read.read_exact(&mut got));
            written.unwrap();
            read.unwrap();
            got
        });
        let connection = start(port);
        let all: Vec<u8> = (0..LENGTH).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let receive = async {
            let mut count = 0;
            loop {
                match connection.receive().await.unwrap().len() {
                    0 => return count,
                    more => count += more,
                }
            }
        };
        let (sent, count) = tokio::join!(connection.send(&all), receive);
        sent.unwrap();
        assert_eq!((count, server.await.unwrap() == all), (LENGTH, true));
        let nothing = start(port).receive().await.unwrap_err();
        assert_eq!(
            (nothing.kind(), nothing.message().contains("nothing listens")),
            (ErrorKind::Unreachable, true)
        );
    }

    #[tokio::test]
    async fn the_exit_code_of_an_attached_program_is_the_shells() {
        for (script, code) in [("exit 7", 7), ("kill -9 $$", 137)] {
            let mut command = Command::from(child::command("sh"));
            command.args(["-c", script]);
            assert_eq!(attach(command).await.unwrap(), code, "{script}");
        }
    }
}
