//! Any text as the answer of a Run:ai control plane: no panic, and nothing of it that would be printed can talk to a
//! terminal.

#![no_main]

use libfuzzer_sys::fuzz_target;
use weftrun_backends::runai::fuzzing::printed;

fuzz_target!(|answer: &str| {
    for status in [400, 403, 502] {
        for text in printed(status, answer) {
            let control = text.chars().find(|shown| shown.is_control() && *shown != '\n');
            assert_eq!(control, None, "{text:?}");
        }
    }
});
