//! A bug on demand, for the test that shows that one gives the terminal back. A program that is handed out has none.

/// Panics where `WEFTRUN_TEST_BUG` says: in the loop that draws, or in a task beside it.
#[expect(clippy::panic, reason = "that is what it is for")]
pub(super) fn on_demand() {
    match std::env::var("WEFTRUN_TEST_BUG").as_deref() {
        Ok("loop") => panic!("a bug on demand, in the loop"),
        Ok("task") => drop(tokio::spawn(async { panic!("a bug on demand, in a task") })),
        _ => {}
    }
}
