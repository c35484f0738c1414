//! The JSON shapes for other programs (`-o json`), one for the output of each verb. Changes are additive
//! only. The schemas under `docs/reference/` are generated from these types, and a test compares the
//! binary's own output with them.

/// Declares objects that verbs print: the schema is their first field, and `new` takes the others in their order.
macro_rules! report {
    ($($(#[$about:meta])* pub struct $name:ident<$life:lifetime> { $($(#[$note:meta])* pub $field:ident: $type:ty,)* })*) => {$(
        shapes! {
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

/// Declares objects of reports, with the derives that all have; `new`, if there is one, is written by hand.
macro_rules! shapes {
    ($($(#[$about:meta])* pub struct $name:ident$(<$life:lifetime>)? { $($(#[$note:meta])* pub $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$about])*
            #[derive(Clone, Debug, serde::Serialize)]
            #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
            #[non_exhaustive]
            pub struct $name$(<$life>)? {
                $($(#[$note])* pub $field: $type,)*
            }
        )*
    };
}

mod events;
mod findings;
mod health;
mod job;
mod jobs;
mod plan;
#[cfg(feature = "schema")]
pub mod schemas;
mod site;
pub mod transport;
mod verify;
mod why;

pub use events::{Event, EventLine, LogLine, OwnEvent};
pub use findings::{CodesReport, ErrorBody, ErrorReport, ExplainReport, LintReport, MutateReport};
pub use health::{Asked, HealthReport};
pub use job::JobReport;
pub use jobs::{ActReport, DescribeReport, ListReport, PlanShape, WaitReport};
pub use plan::{ImportReport, PlanReport, RenderReport};
pub use site::{
    AdvisoriesReport, BackendShape, BackendsReport, ConfigReport, DoctorReport, InstancesReport,
    ProfileShape, ProfileValue, ProfilesReport, SettingShape, TargetShape, TargetsReport,
};
pub use transport::TransportReport;
pub use verify::{
    ProbeFabric, ProbeNode, ProbeReport, VerifyGroup, VerifyHistoryReport, VerifyReport, VerifyRun,
    VerifySearch,
};
pub use why::WhyReport;

use serde::{Serialize, Serializer};

/// The schema name in every object.
pub const SCHEMA: &str = "weftrun/v1";

/// The first field of every object, written as [`SCHEMA`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchemaName;

impl Serialize for SchemaName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(SCHEMA)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for SchemaName {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SchemaName".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"const": SCHEMA, "description": "Name of the contract; it changes only with a break."})
    }
}
