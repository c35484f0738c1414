//! What frames are written to: crossterm, but for the one question that needs an answer from the terminal.
//!
//! ratatui asks where the cursor is whenever it clears a screen (on every resize). The answer takes a round trip,
//! competes with the keyboard, and some terminals and recorders never give it. A full screen needs no answer.

use std::io::{self, BufWriter, Stdout, Write};

use ratatui::backend::{Backend, ClearType, CrosstermBackend, WindowSize};
use ratatui::buffer::Cell;
use ratatui::layout::{Position, Size};

/// One write a frame, however many cells change.
const BUFFER: usize = 256 * 1024;

/// The terminal as frames are written to it.
pub(super) struct ScreenOut(CrosstermBackend<BufWriter<Stdout>>);

impl ScreenOut {
    pub(super) fn new() -> Self {
        Self(CrosstermBackend::new(BufWriter::with_capacity(BUFFER, io::stdout())))
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
        self.0.draw(content)
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        self.0.hide_cursor()
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        self.0.show_cursor()
    }

    /// Not asked: a frame puts the cursor where it belongs.
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
