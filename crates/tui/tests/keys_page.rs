//! The reference page of the keys is the table of actions.

use std::fs;
use std::path::Path;

#[test]
fn the_reference_page_is_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/keys.md");
    if std::env::var_os("WEFTRUN_WRITE_DOCS").is_some() {
        fs::write(&path, weftrun_tui::keys_page()).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == weftrun_tui::keys_page(),
        "run this test with WEFTRUN_WRITE_DOCS=1 to write {}",
        path.display()
    );
}
