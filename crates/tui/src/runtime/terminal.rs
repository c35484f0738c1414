//! The terminal: taken over, drawn on, and restored in every case.

use std::io::{self, Write};

use crossterm::event::{
    DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture,
};
use crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode,
};
use crossterm::{cursor, execute, queue};
use ratatui::{Frame, Terminal};
use tokio::signal::unix::{Signal, SignalKind, signal};
use weftrun::{Error, ErrorKind, Result};

use super::clipboard;
use super::screen_out::{self, ScreenOut};

/// The terminal while it is taken over.
pub(super) struct Screenful {
    terminal: Terminal<ScreenOut>,
    mouse: bool,
}

pub(super) fn io(what: &str, error: &io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("could not {what}: {error}"))
}

#[allow(clippy::needless_pass_by_value, reason = "what map_err calls")]
fn failed(error: io::Error) -> Error {
    io("use the terminal", &error)
}

impl Screenful {
    /// Takes over the terminal. A panic restores it before it prints.
    pub(super) fn enter() -> Result<Self> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            screen_out::close();
            restore();
            before(info);
        }));
        let terminal = Terminal::new(ScreenOut::new()).map_err(failed)?;
        let mut screen = Self { terminal, mouse: false };
        screen.take()?;
        Ok(screen)
    }

    fn take(&mut self) -> Result<()> {
        if let Some(_open) = screen_out::open() {
            enable_raw_mode().map_err(failed)?;
        }
        let out = self.terminal.backend_mut();
        execute!(out, EnterAlternateScreen, EnableBracketedPaste, cursor::Hide).map_err(failed)?;
        self.terminal.clear().map_err(failed)?;
        self.mouse(self.mouse)
    }

    #[allow(clippy::unused_self, reason = "who has left has no screen any more")]
    pub(super) fn leave(self) {
        give_back();
    }

    pub(super) fn size(&self) -> Result<(u16, u16)> {
        self.terminal.size().map(|size| (size.width, size.height)).map_err(failed)
    }

    /// Draws a frame; a terminal with synchronized updates shows it at once.
    pub(super) fn draw(&mut self, view: impl FnOnce(&mut Frame)) -> Result<()> {
        queue!(self.terminal.backend_mut(), BeginSynchronizedUpdate).map_err(failed)?;
        self.terminal.draw(view).map_err(failed)?;
        execute!(self.terminal.backend_mut(), EndSynchronizedUpdate).map_err(failed)
    }

    /// Makes the next frame draw every cell.
    pub(super) fn clear(&mut self) -> Result<()> {
        self.terminal.clear().map_err(failed)
    }

    /// Enables the mouse wheel, or leaves the mouse to the terminal.
    pub(super) fn mouse(&mut self, on: bool) -> Result<()> {
        let out = self.terminal.backend_mut();
        if on {
            execute!(out, EnableMouseCapture).map_err(failed)?;
        } else if self.mouse {
            execute!(out, DisableMouseCapture).map_err(failed)?;
        }
        self.mouse = on;
        Ok(())
    }

    /// Puts a text on the clipboard of the terminal's owner, over ssh too.
    pub(super) fn copy(&mut self, text: &str) -> Result<()> {
        let out = self.terminal.backend_mut();
        out.write_all(clipboard::osc52(text).as_bytes()).and_then(|()| Write::flush(out)).map_err(failed)
    }

    /// Restores the terminal while another program uses it.
    pub(super) fn outside<T>(&mut self, run: impl FnOnce() -> T) -> Result<T> {
        give_back();
        let answer = run();
        self.take()?;
        Ok(answer)
    }

    /// Stops this process until the shell continues it.
    pub(super) fn sleep(&mut self) -> Result<()> {
        self.outside(|| {
            // STOP, not TSTP: TSTP is handled here, so that one from outside restores the terminal too.
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP);
        })
    }
}

impl Drop for Screenful {
    fn drop(&mut self) {
        give_back();
    }
}

/// Restores the terminal, unless a panic has: a second time would move the cursor back over its message.
fn give_back() {
    if let Some(_open) = screen_out::open() {
        restore();
    }
}

/// Resets what [`Screenful::take`] set.
fn restore() {
    let mut out = io::stdout();
    let _ = execute!(
        out,
        EndSynchronizedUpdate,
        DisableMouseCapture,
        DisableBracketedPaste,
        LeaveAlternateScreen,
        cursor::Show
    );
    let _ = disable_raw_mode();
}

/// Signals that concern the terminal.
pub(super) struct Signals {
    stop: Signal,
    quit: [Signal; 4],
}

impl Signals {
    pub(super) fn new() -> Result<Self> {
        let listen = |kind| signal(kind).map_err(|error| io("listen to signals", &error));
        Ok(Self {
            stop: listen(SignalKind::from_raw(rustix::process::Signal::TSTP.as_raw()))?,
            quit: [
                listen(SignalKind::terminate())?,
                listen(SignalKind::hangup())?,
                listen(SignalKind::interrupt())?,
                listen(SignalKind::quit())?,
            ],
        })
    }

    /// Waits for a signal to stop (`true`) or to end (`false`).
    pub(super) async fn next(&mut self) -> bool {
        let [a, b, c, d] = &mut self.quit;
        tokio::select! {
            _ = self.stop.recv() => true,
            _ = a.recv() => false,
            _ = b.recv() => false,
            _ = c.recv() => false,
            _ = d.recv() => false,
        }
    }
}
