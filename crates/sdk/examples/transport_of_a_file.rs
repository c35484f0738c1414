//! What NCCL's log files prove: pairs, transports, verdict. No client, no backend, no async: nothing of a cluster.
//! `cargo run -p weftrun --example transport_of_a_file rank*.log`
#![allow(clippy::print_stdout, reason = "an example prints its result")]

use std::sync::Arc;

use weftrun::core::log::SourceId;
use weftrun::core::nccl::TransportMap;
use weftrun::diagnose::Sources;
use weftrun::{Error, ErrorKind};

fn main() -> weftrun::Result<()> {
    let mut map = TransportMap::new();
    for path in std::env::args().skip(1) {
        let bytes = std::fs::read(&path).map_err(|error| {
            Error::new(ErrorKind::NotFound, format!("cannot read {path}")).with_source(error)
        })?;
        let source = Arc::new(SourceId::new(path));
        map.read(&source, &bytes);
        map.end(&source);
    }
    let seen = map.snapshot();
    for pair in seen.pairs() {
        println!("{} -> {} over {}", pair.from, pair.to, pair.transport);
    }
    println!("the fabric is {}", seen.verdict().fabric.label());
    for finding in Sources::of_logs(&map).diagnose().findings {
        println!("{}: {}", finding.code, finding.message);
    }
    Ok(())
}
