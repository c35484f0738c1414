//! Which fabric a job gets, and every decision behind it.

mod plan;
mod profile;
mod request;
pub mod rules;

pub use plan::{Decision, FabricPlan, Origin, Skipped};
pub use profile::Profile;
pub use request::{Fabric, FabricRequest, Gid, Inject, RuleSetting, Stack, Webhook};
