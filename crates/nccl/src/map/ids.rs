//! The numbers of a map's entries. Each kind has its own type, so that they cannot be confused.

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident($number:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name($number);

        // All tables are bounded far below the maximum.
        impl From<usize> for $name {
            fn from(at: usize) -> Self {
                Self(<$number>::try_from(at).unwrap_or(<$number>::MAX))
            }
        }

        impl From<$name> for usize {
            fn from(id: $name) -> Self {
                id.0 as usize
            }
        }
    )*};
}

ids! {
    /// A source of log bytes, in the order in which sources were first read.
    SourceIndex(u32);
    ProcessId(u32);
    /// A communicator.
    CommId(u32);
    /// A communicator in one process: an entry of the process.
    LocalId(u32);
    /// Connection lines that one call printed: an entry of the process.
    BurstId(u32);
    /// A connection: an entry of the process.
    LinkId(u32);
    HostId(u32);
    /// The name of a transport or a network.
    NameId(u16);
}

/// A rank of the job. Ranks of a communicator are plain numbers, as its lines print them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GlobalRank(pub u32);

impl From<GlobalRank> for u32 {
    fn from(rank: GlobalRank) -> Self {
        rank.0
    }
}
