//! The JSON schemas of all output of `-o json`.

use schemars::{JsonSchema, Schema, generate::SchemaSettings};

/// Returns each schema with its name, from which `docs/reference/NAME.schema.json` is generated.
pub fn all() -> Vec<(&'static str, Schema)> {
    vec![
        ("act", of::<super::ActReport>()),
        ("advisories", of::<super::AdvisoriesReport>()),
        ("bandwidth", of::<super::BandwidthReport>()),
        ("backends", of::<super::BackendsReport>()),
        ("codes", of::<super::CodesReport>()),
        ("config", of::<super::ConfigReport>()),
        ("describe", of::<super::DescribeReport>()),
        ("doctor", of::<super::DoctorReport>()),
        ("error", of::<super::ErrorReport>()),
        ("event", of::<super::EventLine>()),
        ("explain", of::<super::ExplainReport>()),
        ("history", of::<super::HistoryReport>()),
        ("history-export", of::<super::HistoryExport>()),
        ("import", of::<super::ImportReport>()),
        ("instances", of::<super::InstancesReport>()),
        ("lint", of::<super::LintReport>()),
        ("list", of::<super::ListReport>()),
        ("mutate", of::<super::MutateReport>()),
        ("nodes", of::<super::NodesReport>()),
        ("plan", of::<super::PlanReport>()),
        ("port-forward", of::<super::PortReport>()),
        ("probe", of::<super::ProbeReport>()),
        ("profiles", of::<super::ProfilesReport>()),
        ("render", of::<super::RenderReport>()),
        ("report", of::<super::JobReport>()),
        ("retry", of::<super::RetryReport>()),
        ("targets", of::<super::TargetsReport>()),
        ("transport", of::<super::TransportReport>()),
        ("verify", of::<super::VerifyReport>()),
        ("verify-history", of::<super::VerifyHistoryReport>()),
        ("wait", of::<super::WaitReport>()),
        ("why", of::<super::WhyReport>()),
        ("health", of::<super::HealthReport>()),
    ]
}

/// Returns the schema of the written form, not of the accepted input.
fn of<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>()
}
