//! The reader of compressed streams, for logs and image layers: gzip with several members, and zstd with
//! several frames and skippable frames (RFC 8878, 3.1.2), as written by pzstd, zstd:chunked layers and log
//! rotation.
//!
//! Memory is bounded by the window size of one frame, which the decoder limits.

use std::io::{self, BufRead, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Returns whether bytes begin with a skippable frame: `0x184D2A5?`, little endian.
fn is_skippable(magic: &[u8]) -> bool {
    matches!(magic, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
}

/// Returns the bytes of a stream, decompressed if they begin like gzip or zstd. Works on pipes too: nothing
/// is read twice.
///
/// # Errors
/// Errors of reading the first bytes; the stream returns [`io::ErrorKind::InvalidData`] if it is damaged.
pub fn unpacked<'r>(mut from: impl Read + 'r, buffer: usize) -> io::Result<Box<dyn Read + 'r>> {
    let mut magic = Vec::with_capacity(4);
    from.by_ref().take(4).read_to_end(&mut magic)?;
    let (gzip, zstd) = (magic.starts_with(&GZIP), magic.starts_with(&ZSTD) || is_skippable(&magic));
    let whole = io::Cursor::new(magic).chain(from);
    if !gzip && !zstd {
        return Ok(Box::new(whole));
    }
    let buffered = io::BufReader::with_capacity(buffer, whole);
    Ok(if gzip {
        Box::new(flate2::bufread::MultiGzDecoder::new(buffered))
    } else {
        Box::new(Zstd { source: buffered, decoder: FrameDecoder::new(), in_frame: false })
    })
}

/// Successive frames of zstd; each reuses the memory of the previous one.
struct Zstd<R> {
    source: R,
    decoder: FrameDecoder,
    in_frame: bool,
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if self.in_frame {
                while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                    let some = BlockDecodingStrategy::UptoBlocks(1);
                    self.decoder.decode_blocks(&mut self.source, some).map_err(|error| invalid(&error))?;
                }
                let read = self.decoder.read(buffer)?;
                if read > 0 {
                    return Ok(read);
                }
                self.in_frame = false;
            }
            if self.source.fill_buf()?.is_empty() {
                return Ok(0);
            }
            match self.decoder.init(&mut self.source) {
                Ok(()) => self.in_frame = true,
                // The decoder reads the header of a skippable frame, and returns its length.
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => skip(&mut self.source, u64::from(length))?,
                Err(error) => return Err(invalid(&error)),
            }
        }
    }
}

/// Skips bytes, all of which must be present.
fn skip(from: &mut impl BufRead, length: u64) -> io::Result<()> {
    let skipped = io::copy(&mut from.take(length), &mut io::sink())?;
    if skipped == length { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn invalid(error: &dyn std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn skippable(kind: u8, content: &[u8]) -> Vec<u8> {
        let length = u32::try_from(content.len()).unwrap().to_le_bytes();
        [&[0x50 + kind, 0x2a, 0x4d, 0x18], length.as_slice(), content].concat()
    }

    fn read(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        unpacked(bytes, 16)?.read_to_end(&mut out)?;
        Ok(out)
    }

    #[test]
    fn members_frames_and_skippable_frames_are_one_stream() {
        let large = vec![b'x'; 300_000];
        let cases = [
            (b"plain".to_vec(), b"plain".to_vec()),
            (b"".to_vec(), b"".to_vec()),
            (b"ab".to_vec(), b"ab".to_vec()),
            ([gzip(b"a"), gzip(&large), gzip(b"")].concat(), [b"a".as_slice(), &large].concat()),
            ([zstd(b"a"), zstd(b""), zstd(&large)].concat(), [b"a".as_slice(), &large].concat()),
            ([skippable(0, b"note"), zstd(b"a"), skippable(15, &large), zstd(b"b")].concat(), b"ab".to_vec()),
            ([zstd(b"a"), skippable(3, b"")].concat(), b"a".to_vec()),
            (skippable(0, b"nothing else"), b"".to_vec()),
        ];
        for (packed, plain) in cases {
            assert_eq!(read(&packed).unwrap(), plain, "{packed:x?}");
        }
    }

    #[test]
    fn damaged_streams_are_errors_and_no_end() {
        let whole = zstd(&vec![b'x'; 10_000]);
        let cut = &whole[..whole.len() - 3];
        let behind = [zstd(b"a"), b"garbage".to_vec()].concat();
        let long = [0x50, 0x2a, 0x4d, 0x18, 0xff, 0xff, 0xff, 0xff, 1];
        for damaged in [cut, &behind, &long, &[0x50, 0x2a, 0x4d, 0x18, 1]] {
            assert!(read(damaged).is_err(), "{damaged:x?}");
        }
    }
}
