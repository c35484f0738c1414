//! Rewrites one `mpirun` with its words.

use super::{Mpirun, MpirunNote};

const WORDS: [&str; 3] = ["mpirun", "mpiexec", "orterun"];

/// Folders whose Open MPI is the image's own and can be replaced (Debian, NGC's HPC-X, NGC's older images).
const IMAGE_FOLDERS: [&str; 4] = ["/usr/local/mpi/bin", "/opt/hpcx/ompi/bin", "/usr/bin", "/usr/local/bin"];

/// Returns whether a word calls an `mpirun`, by any path.
pub fn is_mpirun(word: &str) -> bool {
    WORDS.contains(&word.rsplit('/').next().unwrap_or(word))
}

/// The result for a command word.
pub(super) enum Verdict {
    NotMpirun,
    /// It is one, and is kept.
    Left(MpirunNote),
    /// It is replaced by this word, followed by these.
    Becomes {
        word: String,
        add: Vec<String>,
        notes: Vec<MpirunNote>,
    },
}

/// Judges a command word with the words after it, all without their quotes.
pub(super) fn judge<'a>(word: &str, rest: &[&'a str], rule: &'a Mpirun) -> Verdict {
    let (folder, name) = word.rsplit_once('/').map_or((None, word), |(folder, name)| (Some(folder), name));
    if !WORDS.contains(&name) {
        return Verdict::NotMpirun;
    }
    let word = match (&rule.bin, folder) {
        (None, _) => word.to_owned(),
        (Some(bin), Some(folder)) if folder == bin.trim_end_matches('/') => word.to_owned(),
        (Some(bin), None) => format!("{}/{name}", bin.trim_end_matches('/')),
        (Some(bin), Some(folder)) if IMAGE_FOLDERS.contains(&folder) => {
            format!("{}/{name}", bin.trim_end_matches('/'))
        }
        (Some(_), Some(_)) => return Verdict::Left(MpirunNote::OtherPath(word.to_owned())),
    };
    let mut forwarded = Forwarded::read(rest);
    if let Some(list) = &rule.env_list {
        forwarded.env_list(list);
    }
    let mut notes = Vec::new();
    if let Some(path) = forwarded.library_path
        && rule.library_dirs.iter().any(|dir| !path.split(':').any(|have| have == dir))
    {
        notes.push(MpirunNote::LibraryPath(path.to_owned()));
    }
    let missing: Vec<String> =
        rule.forward.iter().filter(|name| !forwarded.names.contains(&name.as_str())).cloned().collect();
    let add = if forwarded.env_list {
        if !missing.is_empty() {
            notes.push(MpirunNote::EnvList(missing));
        }
        Vec::new()
    } else {
        missing.into_iter().flat_map(|name| ["-x".to_owned(), name]).collect()
    };
    Verdict::Becomes { word, add, notes }
}

/// What a command already forwards to its ranks.
struct Forwarded<'a> {
    names: Vec<&'a str>,
    /// `--mca mca_base_env_list` is used, which Open MPI refuses beside `-x`.
    env_list: bool,
    /// The value of `-x LD_LIBRARY_PATH=…`.
    library_path: Option<&'a str>,
}

impl<'a> Forwarded<'a> {
    fn read(words: &[&'a str]) -> Self {
        let mut found = Self { names: Vec::new(), env_list: false, library_path: None };
        for (index, word) in words.iter().enumerate() {
            let next = |n: usize| words.get(index + n).copied().unwrap_or_default();
            match *word {
                "-x" | "--x" => found.add(next(1)),
                "-mca" | "--mca" | "-gmca" | "--gmca" if next(1) == "mca_base_env_list" => {
                    found.env_list(next(2));
                }
                _ => {}
            }
        }
        found
    }

    fn env_list(&mut self, list: &'a str) {
        self.env_list = true;
        list.split([';', ',']).for_each(|one| self.add(one.trim()));
    }

    fn add(&mut self, assignment: &'a str) {
        let (name, value) =
            assignment.split_once('=').map_or((assignment, None), |(name, value)| (name, Some(value)));
        self.names.push(name);
        if name == "LD_LIBRARY_PATH" {
            self.library_path = value.or(self.library_path);
        }
    }
}
