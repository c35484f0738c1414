//! Reads files and growing files into the map.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use weftrun::core::log::SourceId;
use weftrun::core::nccl::{Event, TransportMap};
use weftrun::log_files::Input;
use weftrun::{Error, ErrorKind, LogFiles, Result};

/// Bytes of a followed file that are read at once.
const CHUNK: usize = 1024 * 1024;
/// Time between two reads of a followed file.
const PAUSE: Duration = Duration::from_millis(100);

/// Reads everything, and with `follow` continues until Ctrl-C.
pub fn all(
    logs: &LogFiles,
    follow: bool,
    map: &mut TransportMap,
    mut show: impl FnMut(&Event) -> Result<()>,
) -> Result<()> {
    if follow && logs.inputs().iter().any(|input| matches!(input, Input::File { .. })) {
        return grow(logs.inputs(), map, &mut vec![0; CHUNK], &mut show);
    }
    logs.read_into(map, show)
}

struct Growing<'a> {
    path: &'a Path,
    source: Arc<SourceId>,
    file: Option<File>,
    offset: u64,
}

/// Follows files until Ctrl-C: appended data is read, a file that was truncated or rotated is read from the
/// beginning of the new one, and a missing one is waited for.
fn grow(
    inputs: &[Input],
    map: &mut TransportMap,
    buffer: &mut [u8],
    show: &mut impl FnMut(&Event) -> Result<()>,
) -> Result<()> {
    let mut files: Vec<Growing<'_>> = inputs
        .iter()
        .filter_map(|input| match input {
            Input::File { path, name } => {
                Some(Growing { path, source: Arc::new(SourceId::new(name)), file: None, offset: 0 })
            }
            _ => None,
        })
        .collect();
    let stop = interrupted()?;
    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
        let mut idle = true;
        for file in &mut files {
            let read = file.step(map, buffer, show).map_err(|error| {
                Error::new(ErrorKind::Io, format!("cannot read: {error}"))
                    .with("input", &file.source.name)
                    .with_source(error)
            })??;
            idle &= !read;
        }
        if idle {
            std::thread::sleep(PAUSE);
        }
    }
    for file in &files {
        map.end(&file.source);
    }
    Ok(())
}

impl Growing<'_> {
    fn step(
        &mut self,
        map: &mut TransportMap,
        buffer: &mut [u8],
        show: &mut impl FnMut(&Event) -> Result<()>,
    ) -> io::Result<Result<bool>> {
        if self.file.is_none() {
            self.file = File::open(self.path).ok();
        }
        let Some(file) = &mut self.file else { return Ok(Ok(false)) };
        if file.metadata()?.len() < self.offset {
            map.end(&self.source);
            file.seek(SeekFrom::Start(0))?;
            self.offset = 0;
        }
        let read = file.read(buffer)?;
        if read == 0 && is_another(self.path, file)? {
            map.end(&self.source);
            (self.file, self.offset) = (None, 0);
            return Ok(Ok(true));
        }
        self.offset += read as u64;
        for event in map.read(&self.source, &buffer[..read]) {
            if let Err(error) = show(&event) {
                return Ok(Err(error));
            }
        }
        Ok(Ok(read > 0))
    }
}

/// Returns whether a path refers to another file than the open one: it was rotated, and the new one exists.
fn is_another(path: &Path, open: &File) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let Ok(now) = std::fs::metadata(path) else { return Ok(false) };
    let then = open.metadata()?;
    Ok((now.dev(), now.ino()) != (then.dev(), then.ino()))
}

/// Returns a flag that Ctrl-C sets.
fn interrupted() -> Result<Arc<std::sync::atomic::AtomicBool>> {
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    weftrun::files::spare_descriptors()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::new(ErrorKind::Io, "cannot wait for Ctrl-C").with_source(error))?;
    std::thread::spawn(move || {
        runtime.block_on(crate::interrupt::interrupted());
        flag.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    Ok(stop)
}
