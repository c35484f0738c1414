//! Any text as an sbatch script: no panic, a second pass changes nothing, `#SBATCH` lines stay as they are.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use weftrun_core::backend::ClusterFacts;
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::{Profile, Profiles};
use weftrun_convert::{MutateOptions, Start, is_sbatch, lint_document, mutate_sbatch};
use weftrun_core::request::FabricRequest;

static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(Catalogue::builtin);
static SITES: LazyLock<Vec<Profile>> = LazyLock::new(|| {
    let names = ["parallelcluster", "dgxc", "roce"];
    names.iter().filter_map(|name| Profiles::builtin().get(name).ok()).collect()
});

fuzz_target!(|text: &str| {
    let text = if is_sbatch(text) {
        text.to_owned()
    } else {
        format!("#!/bin/bash\n#SBATCH -N 2 --exclusive\n{text}")
    };
    let (facts, options) = (ClusterFacts::default(), FabricRequest::default());
    for profile in SITES.iter() {
        let settings = MutateOptions {
            profile,
            by_evidence: None,
            options: &options,
            catalogue: &CATALOGUE,
            facts: &facts,
            trainer: None,
            runtimes: &[],
            reformat: false,
        };
        lint_document(&text, Start::of("fuzz"), &settings);
        let once = mutate_sbatch(&text, Start::of("fuzz"), &settings).text.into_owned();
        let twice = mutate_sbatch(&once, Start::of("fuzz"), &settings);
        assert_eq!(twice.text, once, "{}", profile.name);
        let directives = |text: &str| text.lines().filter(|line| line.starts_with("#SBATCH")).count();
        assert_eq!(directives(&once), directives(&text));
    }
});
