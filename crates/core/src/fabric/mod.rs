//! Which fabric a job gets, and every decision behind it.

mod job_view;
pub(crate) mod node;
mod plan;
mod profile;
mod profiles;
mod request;
pub mod rules;

pub use plan::{Decision, FabricPlan, Origin, Skipped};
pub use profile::{
    EfaProfile, InfinibandProfile, LauncherProfile, NodeProfile, Placement, Profile, RoceProfile,
    StackProfile, TolerationProfile,
};
pub use profiles::Profiles;
pub use request::{Fabric, FabricRequest, Gid, Inject, RuleSetting, Stack, Webhook};
