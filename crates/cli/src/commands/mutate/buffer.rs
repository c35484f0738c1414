//! Output that is held back until everything has succeeded: in memory while small, in a temporary file
//! beyond.

use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use tempfile::{NamedTempFile, SpooledTempFile};
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
        std::io::copy(&mut self.file, out).map(drop).map_err(|error| io("cannot write the report", error))
    }

    /// Replaces a file atomically: writes a new file beside it, with the same mode, then renames it.
    pub fn replace(mut self, path: &Path) -> Result<()> {
        self.rewind()?;
        let fail = |error| io("cannot write the file", error).with("file", path.display());
        // A link is kept: the file it points to is written.
        let path = path.canonicalize().map_err(fail)?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let mut new = NamedTempFile::new_in(folder).map_err(fail)?;
        std::io::copy(&mut self.file, &mut new).map_err(fail)?;
        let rights = std::fs::metadata(&path).map_err(fail)?.permissions();
        new.as_file().set_permissions(rights).map_err(fail)?;
        new.as_file().sync_all().map_err(fail)?;
        new.persist(&path).map_err(|error| fail(error.error))?;
        Ok(())
    }

    fn rewind(&mut self) -> Result<()> {
        self.file.seek(SeekFrom::Start(0)).map(drop).map_err(|error| io("cannot read the output back", error))
    }
}

fn io(what: &str, error: std::io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("{what}: {error}")).with_source(error)
}
