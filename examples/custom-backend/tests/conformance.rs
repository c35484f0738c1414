//! The suite every backend passes, run on this one.

use std::sync::Arc;

use async_trait::async_trait;
use weftrun_core::Result;
use weftrun_core::backend::{Backend, Registry, TargetConfig};
use weftrun_core::job::JobHandle;
use weftrun_testkit::conformance::{self, Fixture};

struct Shed(tempfile::TempDir);

#[async_trait]
impl Fixture for Shed {
    /// Over the registry, as the program does it.
    async fn connect(&self) -> Result<Arc<dyn Backend>> {
        let entry = *Registry::linked().get(acme_spool::NAME)?;
        let folder = self.0.path().display().to_string();
        (entry.connect)(TargetConfig::new("shed", entry.name, self.0.path()).with("folder", folder)).await
    }

    /// Executions are counted here.
    fn shared_folder(&self) -> Option<std::path::PathBuf> {
        Some(self.0.path().to_owned())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_conforms() {
    let shed = Shed(tempfile::tempdir().unwrap());
    let report = conformance::run(&shed).await;
    println!("{report}");
    report.assert();
}

/// Every value a user writes comes back as data, whatever is in it.
#[tokio::test(flavor = "multi_thread")]
async fn hostile_text_comes_back_as_data() {
    let shed = Shed(tempfile::tempdir().unwrap());
    let hostile = "a'b\"c $(touch owned) `id` \\ ;\n#!<>|&*?~ é";
    let mut spec = shed.job("hostile", 1, 1, "printf '<%s>' \"$HOSTILE\"");
    spec.env.push(weftrun_core::spec::EnvVar { name: "HOSTILE".to_owned(), value: hostile.to_owned() });
    let backend = shed.connect().await.unwrap();
    let rendered = backend.render(&shed.plan(spec)).unwrap();
    let handle: JobHandle = backend.submit(&rendered).await.unwrap();
    let mut bytes = Vec::new();
    let mut logs = backend.logs(&handle, weftrun_core::log::LogOptions::follow());
    while let Some(batch) = futures_util::StreamExt::next(&mut logs).await {
        bytes.extend(batch.unwrap().bytes);
    }
    assert_eq!(String::from_utf8(bytes).unwrap(), format!("<{hostile}>"));
}

/// A setting that is misspelt is an error, not a default.
#[tokio::test]
async fn an_unknown_setting_is_refused() {
    let target = TargetConfig::new("shed", acme_spool::NAME, "/nowhere").with("fodler", "/x");
    let error = acme_spool::connect(target).await.unwrap_err();
    assert_eq!(error.kind(), weftrun_core::ErrorKind::InvalidConfig);
    assert!(error.to_string().contains("fodler"), "{error}");
}
