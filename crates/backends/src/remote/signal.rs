//! Numbers of signals, as the shells of other hosts take them.

use weftrun_core::{Error, ErrorKind, Result};

/// Refuses what is not the number of a signal: `kill` and `scancel` take `-9` for 9.
///
/// # Errors
/// [`ErrorKind::Usage`].
pub fn check(number: i32) -> Result<()> {
    if (1..=64).contains(&number) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Usage, format!("{number} is not the number of a signal"))
        .hint("signals have the numbers 1 to 64; `kill -l` lists them"))
}
