//! Laws of the mutation over corrupted texts: cases with random changes of lines and characters.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use weftrun_convert::{MutateOptions, Splitter, Start, is_sbatch, lint_document, mutate, mutate_sbatch};
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::Profiles;
use weftrun_core::request::FabricRequest;
use weftrun_core::shell;
use weftrun_core::shell::Mpirun;

fn texts() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/mutate");
    let mut found: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .filter_map(|entry| fs::read_to_string(entry.unwrap().path().join("before.yaml")).ok())
        .collect();
    found.push(
        "#!/bin/bash\n#SBATCH -N 2\n#SBATCH --gres=gpu:8\nexport A=1\nsrun --container-image=x mpirun y\n"
            .into(),
    );
    found.sort();
    found
}

/// Corrupts a text: lines dropped, doubled, swapped or indented, characters inserted.
fn knock(text: &str, blows: &[(u8, usize, usize)]) -> String {
    const PIECES: [&str; 22] = [
        "\t", " ", "\n", "\r\n", "- ", ": ", "#", "'", "\"", "|", ">", "{", "}", "[", "]", "&a ", "*a",
        "<<: *a", "---\n", "ü", "null", "\u{feff}",
    ];
    let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    for (kind, at, what) in blows {
        let index = at % lines.len().max(1);
        let Some(line) = lines.get(index).cloned() else { continue };
        match kind % 5 {
            0 => drop(lines.remove(index)),
            1 => lines.insert(index, line),
            2 => {
                let other = what % lines.len();
                lines.swap(index, other);
            }
            3 => lines[index] = format!("  {line}"),
            _ => {
                let place = line
                    .char_indices()
                    .map(|(at, _)| at)
                    .nth(what % line.chars().count().max(1))
                    .unwrap_or(0);
                lines[index].insert_str(place, PIECES[(at + what) % PIECES.len()]);
            }
        }
    }
    lines.concat()
}

fn pass(text: &str, reformat: bool) -> Option<String> {
    let profile = Profiles::builtin().get("dgxc").ok()?;
    let (catalogue, options) = (Catalogue::builtin(), FabricRequest::default());
    let settings = MutateOptions { reformat, ..MutateOptions::offline(&profile, &options, &catalogue) };
    let mut splitter = Splitter::default();
    splitter.push(text.as_bytes());
    splitter.finish();
    let mut out = String::new();
    while let Some(document) = splitter.next_document() {
        let document = String::from_utf8(document).ok()?;
        let errors = |text: &str| -> Vec<String> {
            let found = super::documents(text);
            let found = found.iter().flat_map(|document| lint_document(document, Start::of("x"), &settings));
            found.filter(weftrun_core::Finding::is_error).map(|one| one.code).collect()
        };
        let known = errors(&document);
        let done = if is_sbatch(&document) {
            mutate_sbatch(&document, Start::of("x"), &settings)
        } else {
            mutate(&document, Start::of("x"), &settings).ok()?
        };
        let changed = done.jobs.iter().any(|job| job.changed);
        assert!(changed || done.text == document, "nothing changed, and yet it did");
        let new = errors(&done.text).into_iter().find(|error| !known.contains(error));
        assert_eq!(new, None, "lint finds it only afterwards in\n{}", done.text);
        out.push_str(&done.text);
    }
    Some(out)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_second_pass_changes_nothing(
        which in 0_usize..1000,
        blows in prop::collection::vec((any::<u8>(), 0_usize..400, 0_usize..400), 0..6),
        reformat in any::<bool>(),
    ) {
        let texts = texts();
        let text = knock(&texts[which % texts.len()], &blows);
        if let Some(once) = pass(&text, reformat) {
            let twice = pass(&once, reformat);
            prop_assert_eq!(twice.as_deref(), Some(once.as_str()), "of\n{}", text);
        }
    }

    #[test]
    fn a_script_is_rewritten_once_and_to_a_readable_one(
        pieces in prop::collection::vec(0_usize..24, 0..24),
    ) {
        const WORDS: [&str; 24] = [
            "mpirun ", "-x A ", "; ", "&& ", "| ", "(", ")", "{ ", "; }", "\n", "if ", "then ", "; fi", "'", "\"", "$(", "`",
            "<<E\n", "E\n", "# ", "\\\n", "case x in ", "bash -c ", "ü=1 ",
        ];
        let script: String = pieces.iter().map(|&piece| WORDS[piece]).collect();
        let rule = Mpirun { bin: Some("/m".into()), forward: vec!["A".into(), "B".into()], ..Mpirun::default() };
        let command = vec!["sh".to_owned(), "-c".to_owned(), script];
        let once = shell::rewrite(&command, &[], &rule);
        let twice = shell::rewrite(&once.command, &[], &rule);
        prop_assert_eq!(&twice.command, &once.command);
        prop_assert_eq!(twice.changed, 0);
    }
}
