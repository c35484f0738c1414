//! Reads, decompresses and searches files on one thread while another builds the map.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use weftrun_core::log::SourceId;
use weftrun_core::nccl::Candidates;
use weftrun_core::{Error, ErrorKind, Result};

use super::Input;
use crate::compressed::unpacked;

/// Bytes read at once: enough that waking the other thread for each chunk costs little.
const CHUNK: usize = 1024 * 1024;

/// Number of buffers in use: enough that neither side waits for the other, few enough to stay in the cache.
const BUFFERS: usize = 3;

/// Largest number of ranks in one recording.
const MOST_RANKS: usize = 1 << 18;
/// Longest line of a recording; the rest of a longer one is dropped, and it is then not a valid chunk.
const LONGEST_LINE: u64 = 64 << 20;

/// Returns the lines of a recording, of bounded length.
fn bounded_lines(mut from: impl BufRead) -> impl Iterator<Item = io::Result<String>> {
    std::iter::from_fn(move || {
        let mut line = Vec::new();
        match from.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line) {
            Ok(0) => None,
            Ok(_) => Some(Ok(String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).to_owned())),
            Err(error) => Some(Err(error)),
        }
    })
}

/// The next part of a source.
pub(super) enum Piece<'a> {
    /// A piece of a file, and the places in it that may report failures.
    Bytes(&'a [u8], &'a Candidates),
    /// The end of the source.
    End,
}

/// A message from the reading thread.
enum Sent {
    Begin(Arc<SourceId>),
    Bytes { buffer: Vec<u8>, length: usize, candidates: Candidates },
    End,
    Failed(Error),
}

fn failed(name: &str, error: io::Error) -> Error {
    let kind = if error.kind() == io::ErrorKind::NotFound { ErrorKind::NotFound } else { ErrorKind::Io };
    Error::new(kind, format!("cannot read: {error}")).with("input", name).with_source(error)
}

/// The output of the reading thread.
struct Out {
    full: SyncSender<Sent>,
    empty: Receiver<Vec<u8>>,
    /// A buffer left over from the end of the previous source.
    spare: RefCell<Option<Vec<u8>>>,
}

/// The receiver has failed and is gone.
struct Unwanted;

/// Reads inputs in order and passes on their bytes.
pub(super) fn read(
    inputs: &[Input],
    mut take: impl FnMut(&Arc<SourceId>, Piece<'_>) -> Result<()>,
) -> Result<()> {
    let (full, filled) = sync_channel(BUFFERS);
    let (emptied, empty) = sync_channel(BUFFERS + 1);
    for _ in 0..BUFFERS {
        let _ = emptied.send(vec![0; CHUNK]);
    }
    // Everything is moved in, so that a failure here ends the reading thread.
    thread::scope(move |scope| {
        scope.spawn(move || {
            let out = Out { full, empty, spare: RefCell::default() };
            for input in inputs {
                if out.input(input).is_err() {
                    return;
                }
            }
        });
        let mut source = Arc::new(SourceId::new("-"));
        for sent in &filled {
            match sent {
                Sent::Begin(next) => source = next,
                Sent::Bytes { buffer, length, candidates } => {
                    take(&source, Piece::Bytes(&buffer[..length], &candidates))?;
                    // The reader may have ended already and no longer need the buffer.
                    let _ = emptied.try_send(buffer);
                }
                Sent::End => take(&source, Piece::End)?,
                Sent::Failed(error) => return Err(error),
            }
        }
        Ok(())
    })
}

impl Out {
    fn send(&self, sent: Sent) -> std::result::Result<(), Unwanted> {
        self.full.send(sent).map_err(|_| Unwanted)
    }

    fn input(&self, input: &Input) -> std::result::Result<(), Unwanted> {
        let (name, done) = match input {
            Input::Stdin => ("-", unpacked(io::stdin().lock(), CHUNK).and_then(|from| self.drain("-", from))),
            Input::File { path, name } => (name.as_str(), self.file(path, name)),
        };
        match done {
            Ok(done) => done,
            Err(error) => self.send(Sent::Failed(failed(name, error))),
        }
    }

    fn file(&self, path: &Path, name: &str) -> io::Result<std::result::Result<(), Unwanted>> {
        if path.extension().is_some_and(|end| end == "jsonl")
            && let Some(done) = self.recording(path, name)?
        {
            return Ok(done);
        }
        self.drain(name, unpacked(File::open(path)?, CHUNK)?)
    }

    fn drain(&self, name: &str, mut from: impl Read) -> io::Result<std::result::Result<(), Unwanted>> {
        if self.send(Sent::Begin(Arc::new(SourceId::new(name)))).is_err() {
            return Ok(Err(Unwanted));
        }
        loop {
            let spare = self.spare.take();
            let Some(mut buffer) = spare.or_else(|| self.empty.recv().ok()) else { return Ok(Err(Unwanted)) };
            buffer.resize(CHUNK, 0);
            let length = match from.read(&mut buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    self.spare.replace(Some(buffer));
                    continue;
                }
                Err(error) => {
                    self.spare.replace(Some(buffer));
                    return Err(error);
                }
            };
            if length == 0 {
                self.spare.replace(Some(buffer));
                return Ok(self.send(Sent::End));
            }
            let candidates = Candidates::of(&buffer[..length]);
            if self.send(Sent::Bytes { buffer, length, candidates }).is_err() {
                return Ok(Err(Unwanted));
            }
        }
    }

    /// Reads a `.jsonl` file if it is a recording of several ranks (`{"rank": 0, "bytes": "…"}` per line, as
    /// the replayer writes them). Returns none for JSON log lines, which the parser reads itself.
    fn recording(&self, path: &Path, name: &str) -> io::Result<Option<std::result::Result<(), Unwanted>>> {
        #[derive(serde::Deserialize)]
        struct Chunk {
            rank: u32,
            bytes: String,
        }
        let mut lines = bounded_lines(BufReader::new(File::open(path)?)).peekable();
        let first = lines.peek().and_then(|line| line.as_ref().ok());
        if first.is_none_or(|line| serde_json::from_str::<Chunk>(line).is_err()) {
            return Ok(None);
        }
        let other = Arc::new(SourceId::new(format!("{name}:other-ranks")));
        let mut ranks: BTreeMap<u32, Arc<SourceId>> = BTreeMap::new();
        for line in lines {
            let Ok(chunk) = serde_json::from_str::<Chunk>(&line?) else { continue };
            let full = ranks.len() >= MOST_RANKS && !ranks.contains_key(&chunk.rank);
            let source = if full {
                &other
            } else {
                let new = || Arc::new(SourceId::new(format!("{name}:rank{}", chunk.rank)));
                ranks.entry(chunk.rank).or_insert_with(new)
            };
            let buffer = chunk.bytes.into_bytes();
            let length = buffer.len();
            let candidates = Candidates::of(&buffer);
            let sent = self
                .send(Sent::Begin(Arc::clone(source)))
                .and_then(|()| self.send(Sent::Bytes { buffer, length, candidates }));
            if sent.is_err() {
                return Ok(Some(Err(Unwanted)));
            }
        }
        for source in ranks.into_values().chain([other]) {
            if self.send(Sent::Begin(source)).and_then(|()| self.send(Sent::End)).is_err() {
                return Ok(Some(Err(Unwanted)));
            }
        }
        Ok(Some(Ok(())))
    }
}
