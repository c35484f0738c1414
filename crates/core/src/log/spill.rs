//! Storage for lines that do not fit in memory.

use std::fmt::Debug;

/// Where a store puts segments that do not fit in memory: a file, in a program that has files.
pub trait Spill: Debug + Send + Sync {
    /// Stores bytes; returns their offset, or none if there is no space. The store then drops lines and
    /// counts them.
    fn put(&mut self, bytes: &[u8]) -> Option<u64>;

    /// Reads bytes back, as many as `into` takes; returns false if that fails.
    fn get(&self, at: u64, into: &mut [u8]) -> bool;
}
