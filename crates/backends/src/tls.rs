//! The TLS provider of the process.

/// Sets rustls' default provider to ring, unless the program has set one. kube and reqwest take theirs from
/// there: without one reqwest panics, and so does rustls in a program with several (rustls 0.23,
/// `CryptoProvider::get_default_or_install_from_crate_features`, read 2026-11-23).
pub fn provide() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}
