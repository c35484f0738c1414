//! Job files: no bytes make the reader panic, hang, or use memory without bound, in either syntax; and what it takes it
//! writes back as the same job.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weftrun_core::spec::{JobFile, to_toml};

fuzz_target!(|bytes: &[u8]| {
    for name in ["job.toml", "job.yaml"] {
        let Ok(file) = JobFile::parse(name, bytes) else { continue };
        let written = to_toml(&file.spec);
        let back = JobFile::parse("written.toml", written.as_bytes()).expect("what was written is read");
        assert_eq!(back.spec, file.spec);
    }
});
