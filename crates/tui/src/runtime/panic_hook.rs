//! Panics on demand, for the test that a panic restores the terminal. Release builds do not contain it.

use super::terminal::Screenful;

/// Panics at the place named in `WEFTRUN_TEST_BUG`: in the loop that draws, in a task beside it, or in a
/// thread while frames are drawn without a pause.
#[expect(clippy::panic, reason = "that is what it is for")]
pub(super) fn on_demand(screen: &mut Screenful) {
    match std::env::var("WEFTRUN_TEST_BUG").as_deref() {
        Ok("loop") => panic!("a bug on demand, in the loop"),
        Ok("task") => drop(tokio::spawn(async { panic!("a bug on demand, in a task") })),
        Ok("frame") => {
            let thread = std::thread::spawn(|| panic!("a bug on demand, in a thread"));
            while !thread.is_finished() {
                let _ = screen.clear();
                let _ = screen.draw(|frame| frame.render_widget("drawn over the message", frame.area()));
            }
        }
        _ => {}
    }
}
