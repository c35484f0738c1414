//! The JSON shapes for other programs (`-o json`), one for the output of each verb. Changes are additive
//! only. The schemas under `docs/reference/` are generated from these types, and a test compares the
//! binary's own output with them.

/// Declares objects that verbs print: the schema is their first field, and `new` takes the others in their order.
macro_rules! report {
    ($($(#[$about:meta])* pub struct $name:ident<$life:lifetime> { $($(#[$note:meta])* pub $field:ident: $type:ty,)* })*) => {$(
        weftrun_core::shapes! {
            $(#[$about])*
            pub struct $name<$life> {
                /// The contract.
                pub schema: $crate::report::SchemaName,
                $($(#[$note])* pub $field: $type,)*
            }
        }

        impl<$life> $name<$life> {
            /// Makes the report.
            pub fn new($($field: $type),*) -> Self {
                Self { schema: $crate::report::SchemaName, $($field),* }
            }
        }
    )*};
}

mod bandwidth;
mod events;
mod findings;
mod job;
mod jobs;
mod nodes;
mod plan;
#[cfg(feature = "schema")]
pub mod schemas;
mod site;
mod verify;

pub use bandwidth::BandwidthReport;
pub use events::{Event, EventLine, LogLine, OwnEvent};
pub use findings::{CodesReport, ErrorBody, ErrorReport, ExplainReport, LintReport, MutateReport};
pub use job::JobReport;
pub use jobs::{ActReport, DescribeReport, ListReport, PlanShape, PortReport, WaitReport};
pub use nodes::{HistoryExport, HistoryReport, NodesReport, RetryReport};
pub use plan::{ImportReport, PlanReport, RenderReport, TasksShape};
pub use site::{
    AdvisoriesReport, BackendShape, BackendsReport, ConfigReport, DoctorReport, FoundTargetShape,
    InstancesReport, ProfileShape, ProfileValue, ProfilesReport, SettingShape, TargetShape, TargetsReport,
};
pub use verify::{
    ProbeFabric, ProbeNode, ProbeReport, VerifyGroup, VerifyHistoryReport, VerifyReport, VerifyRun,
    VerifySearch,
};
pub use weftrun_core::shape::{SCHEMA, SchemaName};
pub use weftrun_diagnose::report::{Asked, HealthDiagnostics, HealthReport, TransportReport, WhyReport};
