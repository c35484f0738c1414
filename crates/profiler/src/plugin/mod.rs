//! Measures NCCL's operations. NCCL's threads note an operation's start and its channels' times in a slot of [`ops`]; the
//! thread of [`writer`] sums the finished ones and writes a line for each communicator, collective and size every second.

mod c;
mod comms;
mod ops;
mod sums;
mod writer;

#[cfg(not(any(test, clippy)))]
pub use c::halt;
