//! The settings and the result of rewriting an `mpirun`. [`shell::rewrite`](crate::shell::rewrite) does it.

/// The wanted form of every `mpirun` of a launcher.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mpirun {
    /// Folder whose `mpirun`, `mpiexec` and `orterun` is used instead of the image's; none keeps the word.
    pub bin: Option<String>,
    /// Names to forward with `-x`, in order, unless the same command forwards them already.
    pub forward: Vec<String>,
    /// Folders that an `-x LD_LIBRARY_PATH=…` of the user's should hold; only reported.
    pub library_dirs: Vec<String>,
    /// The launcher's own `OMPI_MCA_mca_base_env_list`, which excludes `-x` as the option of that name does.
    pub env_list: Option<String>,
}

/// A command line after the rewriting. The border between `command` and `args` is unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewrite {
    /// `command`.
    pub command: Vec<String>,
    /// `args`.
    pub args: Vec<String>,
    /// How many simple commands were changed; 0 means that the lists are unchanged.
    pub changed: usize,
    /// Notes to report.
    pub notes: Vec<MpirunNote>,
}

/// A note about an `mpirun`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MpirunNote {
    /// It is called by another absolute path, which was kept (`W-MPIRUN-OTHER`).
    OtherPath(String),
    /// No `mpirun` was found: a script file, or no command at all (`W-MPIRUN-OPAQUE`).
    Opaque {
        /// The script, if a file is what runs.
        script: Option<String>,
    },
    /// `--mca mca_base_env_list` is used, which excludes `-x`; these names are missing from it (`W-MPIRUN-ENV-LIST`).
    EnvList(Vec<String>),
    /// The user forwards an `LD_LIBRARY_PATH` of their own that lacks the stack's folders (`W-MPIRUN-LDPATH`).
    LibraryPath(String),
    /// A here-document contains one, which may run later; it was kept (`W-MPIRUN-OPAQUE`).
    Document,
    /// The shell string cannot be parsed; it was kept (`W-MPIRUN-OPAQUE`).
    Unreadable(String),
}
