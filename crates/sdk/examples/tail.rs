//! Follows a job that another process submitted, and stops and goes on again without losing a byte: the cursors are
//! kept in a file. `cargo run -p weftrun --example tail HANDLE [CURSORS.json]`
#![allow(clippy::print_stderr, reason = "an example prints its result")]

use std::collections::BTreeMap;
use std::io::Write as _;

use futures_util::TryStreamExt;
use weftrun::core::log::Cursor;
use weftrun::prelude::*;
use weftrun::{Error, ErrorKind};

#[tokio::main]
async fn main() -> weftrun::Result<()> {
    let mut args = std::env::args().skip(1);
    let handle = args.next().ok_or_else(|| Error::new(ErrorKind::Usage, "say whose logs: a handle"))?;
    let kept = args.next();
    let client = Client::builder().config(Config::load()?).build()?;
    let job = client.attach(&handle.parse()?).await?;

    let mut cursors: BTreeMap<String, Cursor> = BTreeMap::new();
    if let Some(text) = kept.as_ref().and_then(|path| std::fs::read_to_string(path).ok()) {
        cursors = serde_json::from_str(&text).map_err(|error| wrong("the cursors", error))?;
    }
    let mut options = LogOptions::follow();
    options.from = cursors.values().cloned().collect();
    let mut logs = job.logs(options);
    let mut stdout = std::io::stdout().lock();
    while let Some(batch) = logs.try_next().await? {
        stdout.write_all(&batch.bytes).map_err(|error| wrong("stdout", error))?;
        if let Some(mark) = &batch.mark {
            eprintln!("{}: {mark:?}", batch.source);
        }
        cursors.insert(batch.source.uid.clone(), batch.cursor);
        if let Some(path) = &kept {
            let text = serde_json::to_string(&cursors).map_err(|error| wrong("the cursors", error))?;
            std::fs::write(path, text).map_err(|error| wrong(path, error))?;
        }
    }
    Ok(())
}

fn wrong(what: &str, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Io, format!("{what} cannot be used")).with_source(error)
}
