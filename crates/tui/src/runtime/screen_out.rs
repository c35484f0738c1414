//! The output of frames: crossterm, except for the one query that needs an answer from the terminal.
//!
//! ratatui queries the cursor position whenever it clears a screen (on every resize). The answer takes a
//! round trip, competes with the keyboard, and some terminals and recorders never send it. A full screen does
//! not need it.

use std::io::{self, BufWriter, Write};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use ratatui::backend::{Backend, ClearType, CrosstermBackend, WindowSize};
use ratatui::buffer::{Cell, CellWidth};
use ratatui::layout::{Position, Size};

/// One write per frame, regardless of how many cells change.
const BUFFER: usize = 256 * 1024;

/// Whether a panic has restored the terminal. Other threads run until the process has ended: their frames
/// would hide the message, and their sequences would change the terminal that the shell uses again.
static CLOSED: Mutex<bool> = Mutex::new(false);
/// How long a panic waits for a frame that another thread is writing. A blocked terminal must not keep the
/// message from stderr.
const FRAME: Duration = Duration::from_secs(1);

/// Returns a guard if the terminal may still be used. A panic restores the terminal only after the guard is
/// dropped.
pub(super) fn open() -> Option<MutexGuard<'static, bool>> {
    let guard = CLOSED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    (!*guard).then_some(guard)
}

/// Closes the terminal to frames, for good. The thread that panics may be the one that writes, so the wait is bounded.
pub(super) fn close() {
    let began = Instant::now();
    loop {
        match CLOSED.try_lock() {
            Ok(mut closed) => return *closed = true,
            Err(TryLockError::Poisoned(poisoned)) => return *poisoned.into_inner() = true,
            Err(TryLockError::WouldBlock) if began.elapsed() > FRAME => return,
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Stdout, until the terminal is closed to frames; then nothing.
struct OpenStdout;

impl Write for OpenStdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(_open) = open() else { return Ok(bytes.len()) };
        // In one piece, so that no frame is cut by what a panic writes.
        let mut stdout = io::stdout().lock();
        stdout.write_all(bytes).and_then(|()| stdout.flush())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns whether terminals disagree on the width of a symbol: pictures, and letters with marks. Letters, frames,
/// bars and the scripts of East Asia are the same everywhere.
fn is_doubtful(cell: &Cell) -> bool {
    let mut chars = cell.symbol().chars();
    let first = chars.next().unwrap_or(' ');
    chars.next().is_some()
        || !matches!(first, ..'\u{300}' | '\u{370}'..='\u{52f}' | '\u{2010}'..='\u{2027}' | '\u{2500}'..='\u{259f}'
            | '\u{2800}'..='\u{28ff}' | '\u{2e80}'..='\u{d7a3}' | '\u{ff00}'..='\u{ff60}')
}

/// The terminal as frames are written to it.
pub(super) struct ScreenOut(CrosstermBackend<BufWriter<OpenStdout>>);

impl ScreenOut {
    pub(super) fn new() -> Self {
        Self(CrosstermBackend::new(BufWriter::with_capacity(BUFFER, OpenStdout)))
    }
}

impl Write for ScreenOut {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Write::flush(&mut self.0)
    }
}

impl Backend for ScreenOut {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let cells: Vec<_> = content.collect();
        // Blank first: a terminal that takes the character for a narrow one does not touch its second column.
        let blank = Cell::new(" ");
        let emoji = cells.iter().filter(|(.., cell)| is_doubtful(cell) && cell.cell_width() == 2);
        self.0.draw(emoji.flat_map(|(x, y, _)| [(*x, *y, &blank), (x.saturating_add(1), *y, &blank)]))?;
        // The cursor is placed again after such a character, however wide the terminal has drawn it.
        cells
            .chunk_by(|(.., left), _| !is_doubtful(left))
            .try_for_each(|run| self.0.draw(run.iter().copied()))
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        self.0.hide_cursor()
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        self.0.show_cursor()
    }

    /// Not queried: a frame sets the cursor position.
    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        self.0.set_cursor_position(position)
    }

    fn clear(&mut self) -> io::Result<()> {
        self.0.clear()
    }

    fn clear_region(&mut self, clear_type: ClearType) -> io::Result<()> {
        self.0.clear_region(clear_type)
    }

    fn size(&self) -> io::Result<Size> {
        self.0.size()
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        self.0.window_size()
    }

    fn flush(&mut self) -> io::Result<()> {
        Backend::flush(&mut self.0)
    }
}
