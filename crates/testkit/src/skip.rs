use std::io::Write;

/// Reports that the running test checks less than it would elsewhere: `skipped TEST: WHY`.
///
/// The line goes to stderr itself, since `println!` and `eprintln!` of a test that passes are not shown.
pub fn skipped(why: impl std::fmt::Display) {
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "skipped {}: {why}", thread.name().unwrap_or("a test"));
}
