//! Any bytes as a stream of manifests: no panic, a second pass changes nothing, what has an error or nothing to change
//! stays to the byte. The first byte chooses the options.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use weftrun_core::backend::ClusterFacts;
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::{Gid, Profile, Profiles, Webhook};
use weftrun_convert::{MutateOptions, Splitter, Start, TrainerVersion, import, lint_document, mutate, runtimes_in};
use weftrun_core::request::FabricRequest;

const PROFILES: [&str; 4] = ["dgxc", "eks-image", "roce", "neuron"];
const TRAINERS: [Option<TrainerVersion>; 4] =
    [None, Some(TrainerVersion::V2_0), Some(TrainerVersion::V2_1), Some(TrainerVersion::V2_3)];

static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(Catalogue::builtin);
static FACTS: LazyLock<ClusterFacts> = LazyLock::new(ClusterFacts::default);
static SITES: LazyLock<Vec<Profile>> =
    LazyLock::new(|| PROFILES.iter().filter_map(|name| Profiles::builtin().get(name).ok()).collect());

fn pass(bytes: &[u8], choice: u8) -> Option<Vec<u8>> {
    let bit = |at: u8| choice >> at & 1 == 1;
    let profile = SITES.get(usize::from(choice & 3))?;
    let options = FabricRequest {
        webhook: if bit(4) { Webhook::Yes } else { Webhook::Auto },
        gid: bit(5).then_some(Gid::Compute),
        memory: bit(6).then(|| "9Gi".to_owned()),
        detect: Some(bit(6)),
        ..FabricRequest::default()
    };
    let trainer = TRAINERS[usize::from(choice >> 2 & 3)];
    let mut splitter = Splitter::default();
    splitter.push(bytes);
    splitter.finish();
    let (mut out, mut runtimes) = (Vec::new(), Vec::new());
    while let Some(document) = splitter.next_document() {
        let text = String::from_utf8(document).ok()?;
        runtimes.extend(runtimes_in(&text));
        let settings = MutateOptions {
            profile,
            by_evidence: None,
            options: &options,
            catalogue: &CATALOGUE,
            facts: &FACTS,
            trainer,
            runtimes: &runtimes,
            reformat: bit(7),
        };
        lint_document(&text, Start::of("fuzz"), &settings);
        let _ = import(&text, Start::of("fuzz"));
        let done = mutate(&text, Start::of("fuzz"), &settings).ok()?;
        assert!(done.jobs.iter().any(|job| job.changed) || done.text == text);
        out.extend_from_slice(done.text.as_bytes());
    }
    Some(out)
}

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, text)) = bytes.split_first() else { return };
    if let Some(once) = pass(text, *choice) {
        assert_eq!(pass(&once, *choice), Some(once));
    }
});
