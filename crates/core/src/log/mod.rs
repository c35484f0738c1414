//! Processes log bytes on their way from a rank to a screen: batches, cursors, and (sans-IO) the assembly
//! of lines.
//!
//! A backend returns [`LogBatch`]es; a [`LogStore`] splits them into lines, each with its rank, time and
//! level; a [`Projection`] selects the lines to show; and only [`CleanLine`]s are drawn.

mod batch;
mod entry;
mod filter;
mod folder;
mod line_assembler;
mod mark;
mod place;
mod projection;
mod resume;
mod sanitise;
mod search;
mod segment;
mod severity;
mod spill;
mod stamp;
mod store;
mod stream;
mod style;

pub use batch::{Anchor, Cursor, LineEnd, LogBatch, LogOptions, Mark};
pub use entry::Entry;
pub use filter::{Filter, Pattern, parse_ranks};
pub use folder::logs_or_texts;
pub use mark::{Note, cut_text, mark_text};
pub use place::LogPosition;
pub use projection::Projection;
pub use resume::{Fed, Moved, Resume};
pub use sanitise::{CleanLine, clean_line, clean_message, clean_text, escape_controls, is_plain};
pub use severity::{Level, level};
pub use spill::Spill;
pub use store::{DEFAULT_BUDGET, LogStore};
pub use stream::{LogStream, StreamId};
pub use style::{Colour, Style};
pub use weftrun_nccl::SourceId;
