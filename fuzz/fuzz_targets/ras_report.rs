//! Any bytes as the answer of a RAS service: no panic, no quadratic time; what it says is judged without one too.

#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use weftrun_diagnose::health::{Observer, culprits};
use weftrun_core::nccl::TransportMap;
use weftrun_core::nccl::ras::Report;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(report) = Report::read(bytes) {
        let _ = Observer::default().observe(Duration::ZERO, &report);
        let _ = culprits(&report, &TransportMap::new());
    }
});
