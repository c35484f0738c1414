//! Any bytes as a layer of an image, in pieces of any size: no panic, bounded memory, and the same however it is cut. The
//! first byte is the size of the pieces.

#![no_main]

use libfuzzer_sys::fuzz_target;
use weftrun_core::image::{ImageLayer, LayerScan, over};

fuzz_target!(|bytes: &[u8]| {
    let (size, tar) = bytes.split_first().map_or((1, bytes), |(size, tar)| (usize::from(*size).max(1), tar));
    let whole = scan(tar, usize::MAX);
    assert_eq!(whole, scan(tar, size));
    if let Some(layer) = whole {
        over([&layer, &layer]);
    }
});

fn scan(tar: &[u8], size: usize) -> Option<ImageLayer> {
    let mut scan = LayerScan::default();
    for piece in tar.chunks(size.min(tar.len().max(1))) {
        scan.feed(piece).ok()?;
    }
    scan.finish().ok()
}
