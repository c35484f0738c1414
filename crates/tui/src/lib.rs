//! The terminal UI of weftrun.
//!
//! One [`Model`](model::Model); [`update`](update::update) changes it and is pure; [`view`](view::view) draws it; what
//! must happen outside is an [`Effect`](msg::Effect), run in one place ([`runtime`]). Log bytes never travel as
//! messages: the ingest writes them into a store the screens read. Knows no backend by name.

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
pub use runtime::{Options, run};
