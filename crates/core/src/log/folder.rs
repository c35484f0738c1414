//! Which files of a folder are logs.

use std::path::{Path, PathBuf};

/// Returns the files of a folder that are logs; if none is, its texts: beside logs, a text is a list of requirements or a
/// readme.
///
/// ```
/// use std::path::{Path, PathBuf};
/// use weftrun_core::log::logs_or_texts;
/// let is_log = |file: &Path| file.extension().is_some_and(|end| end == "log");
/// let found = |names: &[&str]| logs_or_texts(names.iter().map(PathBuf::from).collect(), is_log);
/// assert_eq!(found(&["a.log", "readme.txt"]), [PathBuf::from("a.log")]);
/// assert_eq!(found(&["nccl.txt", "train.py"]), [PathBuf::from("nccl.txt")]);
/// ```
pub fn logs_or_texts(files: Vec<PathBuf>, is_log: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let (logs, others): (Vec<PathBuf>, Vec<PathBuf>) = files.into_iter().partition(|file| is_log(file));
    if !logs.is_empty() {
        return logs;
    }
    others.into_iter().filter(|file| file.extension().is_some_and(|end| end == "txt")).collect()
}
