//! Writes the archive: the same files give the same bytes, and the hash of the archive is the hash of the files.
//!
//! The format is ustar, with the entries of GNU tar for long names, which every tar in use reads.

use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use ring::digest::{Context, SHA256};
use weftrun_core::spec::CODE_FILE_TIME;

const BLOCK: usize = 512;
/// The longest name that a header holds.
const LONGEST: usize = 100;

/// An archive under construction.
pub struct Archive {
    hash: Context,
    packed: GzEncoder<Vec<u8>>,
}

impl Archive {
    pub fn new() -> Self {
        Self { hash: Context::new(&SHA256), packed: GzEncoder::new(Vec::new(), Compression::default()) }
    }

    /// Adds a file.
    pub fn file(&mut self, path: &Path, executable: bool, bytes: &[u8]) -> io::Result<()> {
        let mode = if executable { 0o755 } else { 0o644 };
        self.entry(path.as_os_str().as_bytes(), b'0', mode, &[], bytes)
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, path: &Path, target: &Path) -> io::Result<()> {
        self.entry(path.as_os_str().as_bytes(), b'2', 0o777, target.as_os_str().as_bytes(), &[])
    }

    /// Returns the hash of the files, and the compressed archive.
    pub fn finish(mut self) -> io::Result<(String, Vec<u8>)> {
        self.write(&[0; 2 * BLOCK])?;
        Ok((hex(self.hash), self.packed.finish()?))
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.packed.write_all(bytes)
    }

    fn entry(&mut self, name: &[u8], kind: u8, mode: u32, target: &[u8], bytes: &[u8]) -> io::Result<()> {
        for (long, kind) in [(target, b'K'), (name, b'L')] {
            if long.len() > LONGEST {
                let text = [long, b"\0"].concat();
                self.block(b"././@LongLink", kind, 0o644, &[], &text)?;
            }
        }
        self.block(name, kind, mode, target, bytes)
    }

    fn block(&mut self, name: &[u8], kind: u8, mode: u32, target: &[u8], bytes: &[u8]) -> io::Result<()> {
        let mut header = Vec::with_capacity(BLOCK);
        let mut field = |text: &[u8], width: usize| {
            let kept = text.get(..text.len().min(width)).unwrap_or_default();
            header.extend_from_slice(kept);
            header.resize(header.len() + width - kept.len(), 0);
        };
        field(name, LONGEST);
        field(format!("{mode:07o}").as_bytes(), 8);
        // The owner: root, which tar ignores for other users.
        field(b"0000000", 8);
        field(b"0000000", 8);
        field(format!("{:011o}", bytes.len()).as_bytes(), 12);
        field(format!("{CODE_FILE_TIME:011o}").as_bytes(), 12);
        // The checksum is computed as if it were blanks.
        field(b"        ", 8);
        field(&[kind], 1);
        field(target, LONGEST);
        field(b"ustar\x0000", 8);
        header.resize(BLOCK, 0);
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        if let Some(place) = header.get_mut(148..156) {
            place.copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
        self.write(&header)?;
        self.write(bytes)?;
        let rest = bytes.len() % BLOCK;
        if rest > 0 {
            self.write(&[0; BLOCK][rest..])?;
        }
        Ok(())
    }
}

/// Returns the hash of the files of a compressed archive.
pub fn hash_of(archive: &[u8]) -> io::Result<String> {
    let (mut hash, mut unpacked) = (Context::new(&SHA256), GzDecoder::new(archive));
    let mut block = [0; 8 << 10];
    loop {
        match unpacked.read(&mut block)? {
            0 => return Ok(hex(hash)),
            length => hash.update(block.get(..length).unwrap_or_default()),
        }
    }
}

fn hex(hash: Context) -> String {
    hash.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
