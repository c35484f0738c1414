//! The linked backends are those of the features, a name belongs to one backend only, and what each cannot
//! express is a checked-in table.

#[cfg(all(feature = "hosts", feature = "kubeflow", feature = "local", feature = "runai", feature = "slurm"))]
mod inexpressible;

use std::sync::Arc;

use weftrun_core::backend::{Backend, BackendEntry, Registry, TargetConfig};
use weftrun_core::{Error, ErrorKind, Result};

/// The backends of the features this test was built with, sorted.
fn expected() -> Vec<&'static str> {
    let all = [
        ("hosts", cfg!(feature = "hosts")),
        ("kubeflow", cfg!(feature = "kubeflow")),
        ("local", cfg!(feature = "local")),
        ("runai", cfg!(feature = "runai")),
        ("slurm", cfg!(feature = "slurm")),
    ];
    all.into_iter().filter(|(_, on)| *on).map(|(name, _)| name).collect()
}

#[test]
fn linked_names_are_those_of_the_features() {
    weftrun_backends::link();
    let registry = Registry::linked();
    registry.check().unwrap();
    assert_eq!(registry.names(), expected());
}

#[allow(clippy::unused_async, reason = "a registry keeps an async function")]
async fn refuse(_: TargetConfig) -> Result<Arc<dyn Backend>> {
    Err(Error::new(ErrorKind::Unsupported, "only its name matters here"))
}

fn entry(krate: &'static str) -> BackendEntry {
    BackendEntry::new("flyte", "", krate, |target| Box::pin(refuse(target)))
}

#[test]
fn two_backends_of_one_name_are_an_error_naming_both_crates() {
    let registry = Registry::empty().with(entry("zeta-flyte")).with(entry("acme-flyte"));
    let error = registry.check().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert!(error.message().contains("acme-flyte") && error.message().contains("zeta-flyte"), "{error}");
}

#[test]
fn an_unknown_name_lists_what_is_linked() {
    let error = Registry::empty().with(entry("acme-flyte")).get("flyt").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("flyte"), "{error}");
    assert_eq!(error.hints(), ["did you mean `flyte`?"]);
}
