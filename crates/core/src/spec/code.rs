//! Code sent with a job: a script, a Git repository, or a folder as it was when the job was submitted.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::JobSpec;
use crate::text::{counted, rounded_size};

/// Largest number of files of a folder that is sent with a job.
pub const MAX_CODE_FILES: u64 = 20_000;
/// Largest size of the files of a folder that is sent with a job.
pub const MAX_CODE_BYTES: u64 = 100 << 20;

/// The time of every file of a folder that is sent with a job, in seconds since 1970, 1980-01-01 00:00:37: not 0, of which GNU tar warns,
/// and an odd second, which no zip archive holds. The job's script on Slurm finds the files by it.
pub const CODE_FILE_TIME: u64 = 315_532_837;

/// The comment of a script whose text says nothing of the fabric of its job, as a line of its own.
pub const NO_EVIDENCE: &str = "# A script of weftrun: what it names is no evidence of a fabric.";

/// Code brought along.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Code {
    /// One file, carried inside the job.
    Script {
        /// File name it gets on the node.
        name: String,
        /// Its text.
        text: String,
    },
    /// A Git repository, cloned before the start.
    Git {
        /// Address.
        url: String,
        /// Branch, tag or commit.
        rev: Option<String>,
    },
    /// A folder: the files that git would commit, as they are when the job is submitted.
    Folder {
        /// The folder, as the job names it.
        dir: String,
        /// What was in it; none until it is read.
        content: Option<CodeContent>,
    },
}

/// The files of a folder, as they were read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CodeContent {
    /// SHA-256 of the names, modes and bytes of the files, in hexadecimal digits.
    pub hash: String,
    /// The commit that is checked out; none outside a repository, and before the first commit.
    pub commit: Option<String>,
    /// Whether the folder differs from the commit.
    pub dirty: bool,
    /// The number of files.
    pub files: u64,
    /// The size of the files.
    pub bytes: u64,
    /// The files, as a gzip-compressed tar archive. It is not part of what is recorded of a job.
    #[serde(skip)]
    pub archive: Archive,
}

/// Bytes of an archive, which copies of a job share.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Archive(Arc<Vec<u8>>);

impl Archive {
    /// Makes an archive of its bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Arc::new(bytes))
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Archive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Archive({} bytes)", self.0.len())
    }
}

impl CodeContent {
    /// Returns the state of the files in one line: `commit 3f2a9c1d0b7e with changes, 12 files, 34 KiB, sha256 9b1c…`.
    pub fn line(&self) -> String {
        let commit = match (&self.commit, self.dirty) {
            (Some(commit), dirty) => {
                let short: String = commit.chars().take(12).collect();
                format!("commit {short}{}", if dirty { " with uncommitted changes" } else { "" })
            }
            (None, _) => "no git commit".to_owned(),
        };
        let files = counted(usize::try_from(self.files).unwrap_or(usize::MAX), "file");
        let hash: String = self.hash.chars().take(12).collect();
        format!("{commit}, {files}, {}, sha256 {hash}", rounded_size(self.bytes))
    }
}

impl JobSpec {
    /// Returns the folder whose files are sent with the job, with its files once they are read.
    pub fn code_folder(&self) -> Option<(&str, Option<&CodeContent>)> {
        match &self.code {
            Some(Code::Folder { dir, content }) => Some((dir, content.as_ref())),
            _ => None,
        }
    }

    /// Returns the files of that folder, once they are read.
    pub fn code_content(&self) -> Option<&CodeContent> {
        self.code_folder()?.1
    }

    /// Returns the working directory if it is inside the folder that is sent with the job: a relative path.
    pub fn workdir_in_code(&self) -> Option<&str> {
        let dir = self.workdir.as_deref()?;
        (self.code_folder().is_some() && !dir.starts_with('/')).then_some(dir)
    }

    /// Returns the archive of the job's folder, for a backend that sends it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSpec`](crate::ErrorKind::InvalidSpec) for a folder that nobody has read.
    pub fn code_archive(&self) -> crate::Result<Option<&CodeContent>> {
        match self.code_folder() {
            None => Ok(None),
            Some((_, Some(content))) if !content.archive.bytes().is_empty() => Ok(Some(content)),
            Some((dir, _)) => {
                let message = "the files of the job's folder were not read";
                Err(crate::Error::new(crate::ErrorKind::InvalidSpec, message)
                    .with("code.dir", dir)
                    .hint("read the job with `Client::job_file`, or the folder with `weftrun::code_folder`"))
            }
        }
    }
}

/// Hides the text, and the part of an address before its host.
impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Script { name, text } => {
                f.debug_struct("Script").field("name", name).field("bytes", &text.len()).finish()
            }
            Self::Git { url, rev } => {
                let shown = url.rsplit_once('@').map_or(url.as_str(), |(_, rest)| rest);
                f.debug_struct("Git").field("url", &shown).field("rev", rev).finish()
            }
            Self::Folder { dir, content } => {
                f.debug_struct("Folder").field("dir", dir).field("content", content).finish()
            }
        }
    }
}
