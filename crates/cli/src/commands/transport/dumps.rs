//! Reads dumps of PyTorch's flight recorder.

use std::fs;
use std::path::{Path, PathBuf};

use weftrun::core::nccl::flight_recorder::{DumpError, FlightRecorder};
use weftrun::diagnose::flight_recorder;
use weftrun::{Error, ErrorKind, Finding, Result};

/// Largest dump that is read.
const MAX_DUMP: u64 = 512 << 20;

/// Returns the findings of flight recorder dumps. Their names end in the rank (`fr_3`, `nccl_trace_rank_3`).
pub fn findings(dumps: &[PathBuf]) -> Result<Vec<Finding>> {
    let mut recorder = FlightRecorder::default();
    for path in dumps {
        let files = if path.is_dir() { dumps_in(path)? } else { vec![path.clone()] };
        for file in files {
            let Some(rank) = rank_in_name(&file) else {
                return Err(Error::new(ErrorKind::Usage, "the name of a dump must end in its rank")
                    .with("file", file.display()));
            };
            let bytes = weftrun::files::read_named(&file, MAX_DUMP).map_err(|error| {
                let kind = if file.exists() { ErrorKind::Io } else { ErrorKind::NotFound };
                Error::new(kind, format!("cannot read the dump: {error}"))
                    .with("file", file.display())
                    .with_source(error)
            })?;
            recorder.add(rank, &bytes).map_err(|error| unreadable_dump(error, &file))?;
        }
    }
    Ok(flight_recorder::findings(&recorder))
}

fn unreadable_dump(error: DumpError, file: &Path) -> Error {
    let plain = matches!(error, DumpError::NotPlainData { .. });
    let error = Error::new(ErrorKind::InvalidSpec, error.to_string()).with("file", file.display());
    if plain { error.hint("only plain data is read: lists, dictionaries, text, numbers") } else { error }
}

fn dumps_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(|error| {
        Error::new(ErrorKind::Io, format!("cannot read the folder: {error}"))
            .with("folder", folder.display())
            .with_source(error)
    })?;
    let is_dump =
        |path: &PathBuf| path.is_file() && path.extension().is_none() && rank_in_name(path).is_some();
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_dump).collect();
    found.sort();
    Ok(found)
}

fn rank_in_name(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_string_lossy().into_owned();
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    name[name.len() - digits..].parse().ok()
}
