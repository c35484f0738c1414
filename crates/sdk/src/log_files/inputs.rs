//! Resolves the user's arguments to a list of files.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use weftrun_core::log::logs_or_texts;
use weftrun_core::{Error, ErrorKind, Result};

/// One input.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Input {
    /// Standard input.
    Stdin,
    /// A file, and the name it has in the report.
    File {
        /// Its path.
        path: PathBuf,
        /// Short name, unique in this run.
        name: String,
    },
}

/// What a folder is searched for.
#[derive(Clone, Copy)]
pub(super) enum Wanted {
    /// The logs of ranks.
    Logs,
    /// The files of a profiler of NCCL, which may be in logs.
    Recordings,
}

/// Finds the named files: by path, by folder, by pattern.
pub(super) fn resolve<N: AsRef<str>>(
    named: impl IntoIterator<Item = N>,
    wanted: Wanted,
) -> Result<Vec<Input>> {
    let mut paths = Vec::new();
    let mut stdin = false;
    for name in named {
        let name = name.as_ref();
        let path = Path::new(name);
        if name == "-" {
            stdin = true;
        } else if path.is_dir() {
            let found = files_in(path, wanted)?;
            if found.is_empty() {
                return Err(missing(
                    name,
                    match wanted {
                        Wanted::Logs => "the folder has no *.log, *.out, *.err or *.txt file",
                        Wanted::Recordings => "the folder has no *.log, *.jsonl, *.prom, *.out or *.err file",
                    },
                ));
            }
            paths.extend(found);
        } else if path.exists() {
            paths.push(path.to_owned());
        } else if name.contains(['*', '?']) {
            let found = matching(path);
            if found.is_empty() {
                return Err(missing(name, "no file matches the pattern"));
            }
            paths.extend(found);
        } else {
            return Err(missing(name, "there is no such file"));
        }
    }
    let mut seen = BTreeSet::new();
    paths.retain(|path| seen.insert(path.clone()));
    let mut inputs = named_files(paths);
    if stdin {
        inputs.push(Input::Stdin);
    }
    Ok(inputs)
}

fn missing(name: &str, what: &str) -> Error {
    Error::new(ErrorKind::NotFound, what).with("input", name)
}

/// Names files by as much of their path as is needed to distinguish them.
fn named_files(paths: Vec<PathBuf>) -> Vec<Input> {
    let short =
        |path: &PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut names = BTreeSet::new();
    let unique = paths.iter().all(|path| names.insert(short(path)));
    paths
        .into_iter()
        .map(|path| {
            let name = if unique { short(&path) } else { path.to_string_lossy().into_owned() };
            Input::File { path, name }
        })
        .collect()
}

/// Returns the logs of a folder: `*.log`, `*.out`, `*.err`, compressed ones, and NCCL_DEBUG_FILE's
/// `NAME.HOST.PID`.
fn files_in(folder: &Path, wanted: Wanted) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(|error| {
        Error::new(ErrorKind::Io, format!("cannot read the folder: {error}"))
            .with("folder", folder.display())
            .with_source(error)
    })?;
    let files = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    let mut found = logs_or_texts(files, |path| match wanted {
        Wanted::Logs => is_log(path),
        Wanted::Recordings => is_log(path) || has_end(path, &[".jsonl", ".prom"]),
    });
    found.sort();
    Ok(found)
}

/// Returns a file's name in lower case, without the end of a compressed one.
fn plain_name(path: &Path) -> String {
    let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    name.strip_suffix(".gz").or(name.strip_suffix(".zst")).unwrap_or(&name).to_owned()
}

fn has_end(path: &Path, ends: &[&str]) -> bool {
    let name = plain_name(path);
    ends.iter().any(|end| name.ends_with(end))
}

fn is_log(path: &Path) -> bool {
    let plain = plain_name(path);
    let by_process = plain.split('.').count() >= 3
        && plain
            .rsplit('.')
            .next()
            .is_some_and(|pid| !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit()));
    has_end(path, &[".log", ".out", ".err"]) || by_process
}

/// Returns the files that match a pattern with `*` and `?`, each within one component of the path.
fn matching(pattern: &Path) -> Vec<PathBuf> {
    const MOST: usize = 200_000;
    let mut found = vec![PathBuf::new()];
    for part in pattern.components() {
        let part = part.as_os_str().to_string_lossy().into_owned();
        if !part.contains(['*', '?']) {
            for path in &mut found {
                path.push(&part);
            }
            continue;
        }
        let mut next = Vec::new();
        for folder in &found {
            let place = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            let Ok(entries) = fs::read_dir(place) else { continue };
            let names = entries.flatten().map(|entry| entry.file_name());
            next.extend(
                names
                    .filter(|name| fits(part.as_bytes(), name.to_string_lossy().as_bytes()))
                    .map(|name| folder.join(name)),
            );
            if next.len() > MOST {
                break;
            }
        }
        next.sort();
        found = next;
    }
    found.retain(|path| path.is_file());
    found
}

/// Returns whether a name matches a pattern. Backtracks only to the last `*`, so that it is never slow.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if p < pattern.len() && pattern[p] == b'*' {
            star = Some((p, n));
            p += 1;
        } else if p < pattern.len() && (pattern[p] == b'?' || pattern[p] == name[n]) {
            p += 1;
            n += 1;
        } else if let Some((at, taken)) = star {
            star = Some((at, taken + 1));
            p = at + 1;
            n = taken + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_inside_one_name() {
        assert!(fits(b"rank*.log", b"rank12.log"));
        assert!(fits(b"*a*b?", b"xxaxxbxbc"));
        assert!(!fits(b"rank?.log", b"rank12.log"));
        // Many stars against a long name that does not match: linear, or this test would never end.
        assert!(!fits(&[b"a*".repeat(40), b"b".to_vec()].concat(), &b"a".repeat(4000)));
    }

    #[test]
    fn a_folder_gives_its_logs() {
        for name in ["a.log", "slurm-1.out", "x.ERR", "rank0.log.zst", "nccl.gpu-7.1234"] {
            assert!(is_log(Path::new(name)), "{name}");
        }
        for name in ["a.txt", "model.bin", "v1.2", "merged.jsonl"] {
            assert!(!is_log(Path::new(name)), "{name}");
        }
    }
}
