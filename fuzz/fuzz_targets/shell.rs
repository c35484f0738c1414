#![no_main]
//! Any text as a shell string: no panic, no hang, and a second pass changes nothing.

use libfuzzer_sys::fuzz_target;
use weftrun_core::shell::Mpirun;
use weftrun_core::shell;

fuzz_target!(|text: &str| {
    let rule = Mpirun {
        bin: Some("/opt/m/bin".into()),
        forward: vec!["LD_LIBRARY_PATH".into(), "OPAL_PREFIX".into()],
        ..Mpirun::default()
    };
    let command = vec!["bash".to_owned(), "-c".to_owned(), text.to_owned()];
    let once = shell::rewrite(&command, &[], &rule);
    let twice = shell::rewrite(&once.command, &[], &rule);
    assert_eq!(twice.command, once.command);
});
