//! The JSON schemas of all output of `-o json`.

use schemars::{JsonSchema, Schema, generate::SchemaSettings};

use super::{
    ActReport, AdvisoriesReport, BackendsReport, CodesReport, ConfigReport, DescribeReport, DoctorReport,
    ErrorReport, EventLine, ExplainReport, HealthReport, ImportReport, InstancesReport, JobReport,
    LintReport, ListReport, MutateReport, PlanReport, ProbeReport, ProfilesReport, RenderReport,
    TargetsReport, TransportReport, VerifyHistoryReport, VerifyReport, WaitReport, WhyReport,
};

/// Returns each schema with its name, from which `docs/reference/NAME.schema.json` is generated.
pub fn all() -> Vec<(&'static str, Schema)> {
    vec![
        ("act", of::<ActReport>()),
        ("advisories", of::<AdvisoriesReport>()),
        ("backends", of::<BackendsReport>()),
        ("codes", of::<CodesReport>()),
        ("config", of::<ConfigReport>()),
        ("describe", of::<DescribeReport>()),
        ("doctor", of::<DoctorReport>()),
        ("error", of::<ErrorReport>()),
        ("event", of::<EventLine>()),
        ("explain", of::<ExplainReport>()),
        ("import", of::<ImportReport>()),
        ("instances", of::<InstancesReport>()),
        ("lint", of::<LintReport>()),
        ("list", of::<ListReport>()),
        ("mutate", of::<MutateReport>()),
        ("plan", of::<PlanReport>()),
        ("probe", of::<ProbeReport>()),
        ("profiles", of::<ProfilesReport>()),
        ("render", of::<RenderReport>()),
        ("report", of::<JobReport>()),
        ("targets", of::<TargetsReport>()),
        ("transport", of::<TransportReport>()),
        ("verify", of::<VerifyReport>()),
        ("verify-history", of::<VerifyHistoryReport>()),
        ("wait", of::<WaitReport>()),
        ("why", of::<WhyReport>()),
        ("health", of::<HealthReport>()),
    ]
}

/// Returns the schema of the written form, not of the accepted input.
fn of<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>()
}
