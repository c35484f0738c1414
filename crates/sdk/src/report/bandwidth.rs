//! The shape of `weftrun bandwidth -o json`.

use weftrun_core::Finding;
use weftrun_core::shape::SchemaName;
use weftrun_diagnose::Measured;
use weftrun_diagnose::counters::Counters;

weftrun_core::shapes! {
    /// `weftrun bandwidth -o json`: how fast each collective is, and which rank reaches it last.
    pub struct BandwidthReport {
        /// `weftrun/v1`.
        pub schema: SchemaName,
        /// What was measured.
        #[serde(flatten)]
        pub measured: Measured,
        /// With `--counters`, the traffic of the network interfaces; left out otherwise.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub counters: Option<Counters>,
        /// What that traffic says beside the fabric of the log and the plan; empty without `--counters`.
        pub findings: Vec<Finding>,
    }
}

impl From<Measured> for BandwidthReport {
    fn from(measured: Measured) -> Self {
        Self { schema: SchemaName, measured, counters: None, findings: Vec::new() }
    }
}
