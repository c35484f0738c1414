//! Log bytes on their way from a rank to a screen: batches, cursors, and (sans-IO) everything that makes them whole.

mod batch;

pub use batch::{Cursor, LineEnd, LogBatch, LogOptions, Mark, SourceId};
