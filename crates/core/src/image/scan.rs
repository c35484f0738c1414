//! Finds the files of a layer that matter to the fabric.

use memchr::memmem;
use serde::{Deserialize, Serialize};

use super::tar::{Entry, Reader, Visit};
use super::{Library, Part};

/// Most libraries of one layer, and most files removed by it, that are kept.
const MOST: usize = 16 * 1024;
/// Most bytes of paths of one layer that are kept, and of one path (PATH_MAX).
const MOST_BYTES: usize = 2 << 20;
const LONGEST_PATH: usize = 4096;
/// Longest text of a version with its prefix.
const LONGEST: usize = 256;

/// What one layer adds and removes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageLayer {
    /// The libraries in it.
    pub found: Vec<Library>,
    /// Files and folders of lower layers that are removed, or are no regular files any more.
    pub removed: Vec<String>,
    /// Folders whose contents in lower layers are all removed.
    pub emptied: Vec<String>,
    /// Whether there was more than is kept.
    #[serde(default)]
    pub cut: bool,
}

/// The bytes are no tar archive, or end in the middle of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotALayer;

impl std::fmt::Display for NotALayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("it is not a tar archive, or it is damaged")
    }
}

impl std::error::Error for NotALayer {}

/// Reads a layer: an uncompressed tar archive, in chunks of any size.
#[derive(Debug, Default)]
pub struct LayerScan {
    tar: Reader,
    looking: Looking,
}

impl LayerScan {
    /// Takes bytes.
    ///
    /// # Errors
    /// [`NotALayer`]; nothing more can be read then.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), NotALayer> {
        self.tar.feed(bytes, &mut self.looking)
    }

    /// Returns what was found.
    ///
    /// # Errors
    /// [`NotALayer`] if the archive is truncated.
    pub fn finish(self) -> Result<ImageLayer, NotALayer> {
        if self.tar.is_over() { Ok(self.looking.layer) } else { Err(NotALayer) }
    }
}

#[derive(Debug, Default)]
struct Looking {
    layer: ImageLayer,
    file: Option<File>,
    /// Bytes of paths kept.
    bytes: usize,
}

/// The file that is being read.
#[derive(Debug)]
struct File {
    found: Library,
    /// The end of the bytes read so far, in which a text may begin.
    held: Vec<u8>,
    /// Whether the search in this file is finished.
    done: bool,
}

impl Visit for Looking {
    fn begin(&mut self, entry: &Entry) -> bool {
        let Some(path) = absolute(&entry.path) else { return false };
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", &path));
        // https://github.com/opencontainers/image-spec/blob/main/layer.md#whiteouts (2026-11-21)
        if name == ".wh..wh..opq" {
            if self.has_room(folder, self.layer.emptied.len()) {
                self.layer.emptied.push(folder.to_owned());
            }
            return false;
        }
        if let Some(gone) = name.strip_prefix(".wh.") {
            if self.has_room(&path, self.layer.removed.len()) {
                self.layer.removed.push(format!("{folder}/{gone}"));
            }
            return false;
        }
        let Some(part) = part(name) else { return false };
        if !entry.file {
            if self.has_room(&path, self.layer.removed.len()) {
                self.layer.removed.push(path);
            }
            return false;
        }
        let version = version_of_name(part, name);
        self.file = Some(File { found: Library { part, path, version }, held: Vec::new(), done: false });
        true
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let Some(file) = self.file.as_mut().filter(|file| !file.done) else { return };
        file.held.extend_from_slice(bytes);
        file.look(false);
    }

    fn end(&mut self) {
        let Some(mut file) = self.file.take() else { return };
        if !file.done {
            file.look(true);
        }
        // MPICH's libmpi lacks Open MPI's banner.
        if file.found.part == Part::OpenMpi && file.found.version.is_none() {
            return;
        }
        if self.has_room(&file.found.path, self.layer.found.len()) {
            self.layer.found.push(file.found);
        }
    }
}

impl File {
    /// Searches for the text before the version; a possible beginning of it is kept.
    fn look(&mut self, last: bool) {
        let needle = needle(self.found.part);
        let mut from = 0;
        while let Some(at) = memmem::find(&self.held[from..], needle).map(|at| from + at) {
            let behind = &self.held[at + needle.len()..];
            if behind.len() < LONGEST && !last {
                self.held.drain(..at);
                return;
            }
            let behind = &behind[..behind.len().min(LONGEST)];
            if self.found.part == Part::NetPlugin {
                self.found.part = Part::AwsOfiNccl;
            }
            if let Some(version) = version_in(self.found.part, behind) {
                self.found.version = Some(version);
                self.done = true;
                self.held = Vec::new();
                return;
            }
            from = at + needle.len();
        }
        // A text may begin in the last bytes.
        let keep = (self.held.len() + 1).saturating_sub(needle.len()).max(from);
        self.held.drain(..keep.min(self.held.len()));
    }
}

impl Looking {
    /// Returns whether one more path fits in a list of this length.
    fn has_room(&mut self, path: &str, kept: usize) -> bool {
        let room = kept < MOST && path.len() <= LONGEST_PATH && self.bytes + path.len() <= MOST_BYTES;
        self.bytes += if room { path.len() } else { 0 };
        self.layer.cut |= !room;
        room
    }
}

/// Returns a path from the root, without dots; none if it leads out of the image.
fn absolute(path: &str) -> Option<String> {
    let mut all = String::new();
    for part in path.split('/').filter(|part| !matches!(*part, "" | ".")) {
        if part == ".." {
            return None;
        }
        all.push('/');
        all.push_str(part);
    }
    (!all.is_empty()).then_some(all)
}

/// Returns the kind of file by its name.
fn part(name: &str) -> Option<Part> {
    Some(match name {
        "libc.so.6" => Part::Glibc,
        "libfabric.pc" => Part::LibfabricNote,
        _ if name.starts_with("libc-2.") && name.ends_with(".so") => Part::Glibc,
        _ if name.starts_with("ld-musl-") => Part::Musl,
        _ if name.starts_with("libfabric.so") => Part::Libfabric,
        _ if name.starts_with("libnccl-net") && name.contains(".so") => Part::NetPlugin,
        _ if name.starts_with("libnccl.so") => Part::Nccl,
        _ if name.starts_with("libmpi.so") => Part::OpenMpi,
        _ => return None,
    })
}

/// Returns the text before the version in the file. glibc's and Open MPI's are their banners, NCCL's is its
/// startup message, and the plugin's is its package name.
fn needle(part: Part) -> &'static [u8] {
    match part {
        Part::Glibc => b"GNU C Library (",
        Part::LibfabricNote => b"Version:",
        Part::NetPlugin | Part::AwsOfiNccl => b"aws-ofi-nccl",
        Part::Nccl => b"NCCL version ",
        Part::OpenMpi => b"Open MPI v",
        // These files do not contain their version.
        Part::Libfabric | Part::Musl => b"\0weftrun: no such text\0",
    }
}

fn version_in(part: Part, behind: &[u8]) -> Option<String> {
    let text: String =
        behind.iter().take_while(|byte| matches!(byte, 32..=126)).map(|b| char::from(*b)).collect();
    let text = if part == Part::Glibc { text.split_once("version ")?.1.to_owned() } else { text };
    let text = text.trim_start();
    let own = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '-' | '_');
    let end = text.find(|c: char| !own(c)).unwrap_or(text.len());
    let version = text[..end].trim_end_matches('.');
    // A format string (`NCCL version %d`) is no version.
    version.starts_with(|c: char| c.is_ascii_digit()).then(|| version.to_owned())
}

fn version_of_name(part: Part, name: &str) -> Option<String> {
    let version = match part {
        Part::Glibc => name.strip_prefix("libc-")?.strip_suffix(".so")?,
        Part::Nccl => name.strip_prefix("libnccl.so.")?,
        _ => return None,
    };
    (super::numbers(version).len() >= 2).then(|| version.to_owned())
}
