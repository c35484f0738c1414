//! Streams a layer from the connection into the scan, checks its digest meanwhile, and never stores it.

use std::io::{BufReader, Read};

use reqwest::Response;
use ring::digest::{Context, SHA256};
use tokio::sync::mpsc;
use weftrun_backends::deadline::{CALL, Deadline};
use weftrun_core::image::{ImageLayer, LayerScan};
use weftrun_core::{Error, ErrorKind, Result};

use super::registry::hex;
use crate::compressed::unpacked;

/// Number of queued pieces between the connection and the scan.
const WAITING: usize = 16;
/// Largest decompressed layer: the size that a few bytes of zeros can expand to must be bounded.
const LARGEST: u64 = 64 << 30;

/// Reads a layer to its end: returns its contents, or why they cannot be determined.
pub(super) async fn read(
    mut answer: Response,
    digest: &str,
    size: u64,
) -> Result<std::result::Result<ImageLayer, String>> {
    let (sender, receiver) = mpsc::channel(WAITING);
    let scan = tokio::task::spawn_blocking(move || scan(Pieces::new(receiver)));
    let (mut got, mut lost) = (0u64, None);
    let deadline = Deadline::after(CALL);
    loop {
        let Ok(piece) = tokio::time::timeout_at(deadline.at(got), answer.chunk()).await else {
            return Err(deadline.error("the registry is too slow").with("layer", digest));
        };
        match piece {
            Ok(Some(piece)) => {
                got += piece.len() as u64;
                // A longer layer is not the one that the manifest names.
                if got > size || sender.send(piece.to_vec()).await.is_err() {
                    break;
                }
            }
            Ok(None) => break,
            Err(error) => {
                lost = Some(error);
                break;
            }
        }
    }
    drop(sender);
    if let Some(error) = lost {
        return Err(Error::new(
            ErrorKind::Unreachable,
            "the registry's connection broke in the middle of a layer",
        )
        .with("layer", digest)
        .hint("try again: layers that were read whole are not read again")
        .retryable()
        .with_source(error.without_url()));
    }
    let (found, sum) = scan.await.map_err(|error| {
        Error::new(ErrorKind::Unexpected, "the scan of a layer was given up").with_source(error)
    })?;
    if got != size || sum != digest {
        let message = "the registry gave other bytes than those that the manifest names";
        return Err(Error::new(ErrorKind::Protocol, message).with("layer", digest));
    }
    Ok(found)
}

/// Returns the contents of a layer, and the digest of its bytes.
fn scan(pieces: Pieces) -> (std::result::Result<ImageLayer, String>, String) {
    let mut input = BufReader::with_capacity(64 * 1024, pieces);
    let found = scanned(&mut input);
    // Bytes after the archive are part of the digest.
    let _ = std::io::copy(&mut input, &mut std::io::sink());
    let sum = input.into_inner().sum.finish();
    (found, hex(sum.as_ref()))
}

fn scanned(input: &mut BufReader<Pieces>) -> std::result::Result<ImageLayer, String> {
    let mut plain = unpacked(input, 64 * 1024).map_err(|error| error.to_string())?;
    let mut scan = LayerScan::default();
    let mut buffer = vec![0; 128 * 1024];
    let mut total = 0u64;
    loop {
        let read = plain.read(&mut buffer).map_err(|error| format!("it cannot be decompressed: {error}"))?;
        if read == 0 {
            return scan.finish().map_err(|error| error.to_string());
        }
        total += read as u64;
        if total > LARGEST {
            return Err(format!("it grows beyond {} GB", LARGEST >> 30));
        }
        scan.feed(&buffer[..read]).map_err(|error| error.to_string())?;
    }
}

/// The connection's pieces as a reader that computes the digest.
struct Pieces {
    from: mpsc::Receiver<Vec<u8>>,
    piece: Vec<u8>,
    at: usize,
    sum: Context,
}

impl Pieces {
    fn new(from: mpsc::Receiver<Vec<u8>>) -> Self {
        Self { from, piece: Vec::new(), at: 0, sum: Context::new(&SHA256) }
    }
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        while self.at == self.piece.len() {
            let Some(piece) = self.from.blocking_recv() else { return Ok(0) };
            self.sum.update(&piece);
            (self.piece, self.at) = (piece, 0);
        }
        let take = buffer.len().min(self.piece.len() - self.at);
        buffer[..take].copy_from_slice(&self.piece[self.at..self.at + take]);
        self.at += take;
        Ok(take)
    }
}
