#![no_main]
//! Any bytes as a stream of manifests or a script: no panic, and a second pass changes nothing.

use libfuzzer_sys::fuzz_target;
use weftrun_core::backend::ClusterFacts;
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::Profiles;
use weftrun_core::manifest::{Settings, Splitter, Start, is_sbatch, lint_document, mutate, mutate_sbatch};
use weftrun_core::mutation::Options;

fn pass(bytes: &[u8]) -> Option<Vec<u8>> {
    let profile = Profiles::builtin().get("dgxc").ok()?;
    let (catalogue, facts, options) = (Catalogue::builtin(), ClusterFacts::default(), Options::default());
    let settings = Settings {
        profile: &profile,
        options: &options,
        catalogue: &catalogue,
        facts: &facts,
        trainer: None,
        runtimes: &[],
        reformat: false,
    };
    let mut splitter = Splitter::default();
    splitter.push(bytes);
    splitter.finish();
    let mut out = Vec::new();
    while let Some(document) = splitter.next_document() {
        let text = String::from_utf8(document).ok()?;
        lint_document(&text, Start::of("fuzz"), &settings);
        let done = if is_sbatch(&text) {
            mutate_sbatch(&text, Start::of("fuzz"), &settings)
        } else {
            mutate(&text, Start::of("fuzz"), &settings).ok()?
        };
        out.extend_from_slice(done.text.as_bytes());
    }
    Some(out)
}

fuzz_target!(|bytes: &[u8]| {
    if let Some(once) = pass(bytes) {
        assert_eq!(pass(&once), Some(once));
    }
});
