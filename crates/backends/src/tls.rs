//! The TLS provider of the process.

use weftrun_core::{Error, ErrorKind, Result};

/// Sets rustls' default provider to ring, unless the program has set one. kube and reqwest take theirs from
/// there: without one reqwest panics, and so does rustls in a program with several (rustls 0.23,
/// `CryptoProvider::get_default_or_install_from_crate_features`, read 2026-11-23).
///
/// # Errors
/// [`ErrorKind::Io`] if this machine's clock is set to before 1970, where rustls panics (`UnixTime::now`).
pub fn provide() -> Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    if crate::clock::now() >= jiff::Timestamp::UNIX_EPOCH {
        return Ok(());
    }
    let message = "this machine's clock is set to before 1970, so that no certificate can be checked";
    Err(Error::new(ErrorKind::Io, message).hint("set the clock; `date` prints what it says"))
}
