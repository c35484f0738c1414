//! The terminal UI of weftrun.
//!
//! One [`Model`](model::Model); [`update`](update::update) changes it and is pure; [`view`](view::view) draws
//! it; operations outside are [`Effect`](msg::Effect)s, run in one place ([`runtime`]). Log bytes are never
//! sent as messages: the ingest writes them into a store that the screens read. No backend is referred to by
//! name.

pub mod action;
pub mod keymap;
pub mod model;
pub mod msg;
pub mod runtime;
pub mod safe;
pub mod theme;
pub mod update;
pub mod view;

pub use keymap::keys_page;
pub use model::session::Session;
pub use runtime::view_builder::ViewBuilder;
pub use runtime::{Options, run};
