//! The terminal UI of weftrun.
//!
//! One [`Model`](model::Model); [`update`](update::update) changes it and is pure; [`view`](view::view) draws
//! it; operations outside are [`Effect`](msg::Effect)s, run in one place ([`runtime`]). Log bytes are never
//! sent as messages: the ingest writes them into a store that the screens read. No backend is referred to by
//! name.

// Public for the tests and for the pages of the command line. They are no interface, so that comments say only what
// names do not.
#[doc(hidden)]
pub mod action;
#[doc(hidden)]
pub mod keymap;
#[doc(hidden)]
pub mod model;
#[doc(hidden)]
pub mod msg;
pub mod runtime;
#[doc(hidden)]
pub mod safe;
#[doc(hidden)]
pub mod theme;
#[doc(hidden)]
pub mod update;
#[doc(hidden)]
pub mod view;

pub use keymap::keys_page;
pub use model::session::Session;
pub use runtime::spill::TempFile;
pub use runtime::view_builder::ViewBuilder;
pub use runtime::{Options, run};
