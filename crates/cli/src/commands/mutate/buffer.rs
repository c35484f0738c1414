//! Output that is held back until everything has succeeded: in memory while small, in a temporary file
//! beyond.

use std::io::{Seek, SeekFrom, Write};

use tempfile::SpooledTempFile;
use weftrun::files::{NamedFile, Staged};
use weftrun::{Error, ErrorKind, Result};

use crate::output::{DocumentWriter, unwritten};

/// Bytes held in memory.
const IN_MEMORY: usize = 8 << 20;

/// Output that is held back.
pub struct Buffer {
    file: SpooledTempFile,
}

impl Default for Buffer {
    fn default() -> Self {
        Self { file: SpooledTempFile::new(IN_MEMORY) }
    }
}

impl Buffer {
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|error| io("cannot hold the output back", error))
    }

    /// Copies all of it to a writer of the output, and finishes that.
    pub fn onto(mut self, mut output: DocumentWriter) -> Result<()> {
        self.rewind()?;
        std::io::copy(&mut self.file, &mut output).map_err(unwritten)?;
        output.finish()
    }

    /// Copies all of it to a writer.
    pub fn copy_to(mut self, out: &mut dyn Write) -> Result<()> {
        self.rewind()?;
        std::io::copy(&mut self.file, out).map(drop).map_err(|error| io("cannot write the output", error))
    }

    /// Writes all of it beside a file.
    pub fn stage(self, file: NamedFile) -> Result<Staged> {
        file.stage(|new| self.copy_to(new))
    }

    fn rewind(&mut self) -> Result<()> {
        self.file.seek(SeekFrom::Start(0)).map(drop).map_err(|error| io("cannot read the output back", error))
    }
}

fn io(what: &str, error: std::io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("{what}: {error}")).with_source(error)
}
