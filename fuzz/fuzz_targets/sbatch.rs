//! Any text as an sbatch script: no panic, a second pass changes nothing, `#SBATCH` lines stay as they are.

#![no_main]

use libfuzzer_sys::fuzz_target;
use weftrun_core::backend::ClusterFacts;
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::Profiles;
use weftrun_core::manifest::{Settings, Start, is_sbatch, lint_document, mutate_sbatch};
use weftrun_core::mutation::Options;

fuzz_target!(|text: &str| {
    let text = if is_sbatch(text) { text.to_owned() } else { format!("#!/bin/bash\n#SBATCH -N 2 --exclusive\n{text}") };
    let (catalogue, facts, options) = (Catalogue::builtin(), ClusterFacts::default(), Options::default());
    for name in ["parallelcluster", "dgxc", "roce"] {
        let Ok(profile) = Profiles::builtin().get(name) else { return };
        let settings = Settings {
            profile: &profile,
            options: &options,
            catalogue: &catalogue,
            facts: &facts,
            trainer: None,
            runtimes: &[],
            reformat: false,
        };
        lint_document(&text, Start::of("fuzz"), &settings);
        let once = mutate_sbatch(&text, Start::of("fuzz"), &settings).text.into_owned();
        let twice = mutate_sbatch(&once, Start::of("fuzz"), &settings);
        assert_eq!(twice.text, once, "{name}");
        let directives = |text: &str| text.lines().filter(|line| line.starts_with("#SBATCH")).count();
        assert_eq!(directives(&once), directives(&text));
    }
});
