//! Reads every file of a directory of logs and prints the transport between each pair of ranks.
//!
//! `cargo run -p weftrun-nccl --example log_directory -- DIRECTORY`

#![allow(clippy::print_stdout, reason = "an example prints its result")]

use std::fs;
use std::io::{self, Read};
use std::sync::Arc;

use weftrun_nccl::{SourceId, TransportMap};

fn main() -> io::Result<()> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let mut map = TransportMap::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if !entry.file_type()?.is_file() {
            continue;
        }
        let source = Arc::new(SourceId::new(entry.file_name().to_string_lossy()));
        let mut file = fs::File::open(entry.path())?;
        let mut buffer = vec![0; 1 << 20];
        loop {
            let count = file.read(&mut buffer)?;
            if count == 0 {
                break;
            }
            map.read(&source, &buffer[..count]);
        }
        map.end(&source);
    }
    let map = map.snapshot();
    println!("fabric: {}", map.verdict().fabric.label());
    for pair in map.pairs() {
        println!("{} -> {}  {}  {} channels", pair.from, pair.to, pair.transport, pair.channels.count());
    }
    Ok(())
}
