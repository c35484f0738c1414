//! The shape of `weftrun bandwidth -o json`.

use weftrun_core::nccl::bandwidth::Speeds;
use weftrun_core::shape::SchemaName;

weftrun_core::shapes! {
    /// `weftrun bandwidth -o json`: how fast each collective is, and which rank reaches it last.
    pub struct BandwidthReport {
        /// `weftrun/v1`.
        pub schema: SchemaName,
        /// What was measured.
        #[serde(flatten)]
        pub speeds: Speeds,
    }
}

impl From<Speeds> for BandwidthReport {
    fn from(speeds: Speeds) -> Self {
        Self { schema: SchemaName, speeds }
    }
}
