//! Where lines go that memory has no room for.

use std::fmt::Debug;

/// Where a store puts what it has no room for in memory: a file, in a program that has files.
pub trait Spill: Debug + Send + Sync {
    /// Keeps bytes; gives where they begin, or none if there is no room. The store then drops lines and counts them.
    fn put(&mut self, bytes: &[u8]) -> Option<u64>;

    /// Reads bytes back, as many as `into` takes; false if that fails.
    fn get(&self, at: u64, into: &mut [u8]) -> bool;
}
