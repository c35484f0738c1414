//! Which fabric a job gets: every decision with its reason, and the operations that carry it out.
//!
//! [`decide`] is the only engine: it turns a [`JobView`] into a [`FabricPlan`]. A job file becomes a view
//! in [`FabricPlan::new`], a Kubernetes object or a script by the crate `weftrun-convert`. A backend
//! translates the operations ([`Op`]) and decides nothing.

pub(crate) mod builder;
mod decide;
mod device;
pub mod evidence;
mod facts;
pub mod fits;
mod job_view;
pub(crate) mod merge;
pub mod node;
pub(crate) mod op;
mod plan;
mod profile;
mod profiles;
pub mod rules;
mod skip;
pub mod view;

pub use crate::request::{Fabric, FabricRequest, Gid, Inject, Origin, RuleSetting, Stack, Webhook};
pub use decide::{FABRIC_UNMET, decide, too_many_roles};
pub use device::DeviceKind;
pub use facts::{ClusterFacts, NetworkApi, NodeGroup, NodeState, PRIVATE_ACCESS, PodNetwork, Queue, Scope};
pub use op::{Change, Op, PROFILER_PATH, PodList, Removed};
pub use plan::{Decision, FabricPlan};
pub use profile::{
    AddProfile, EfaProfile, InfinibandProfile, LauncherProfile, NodeProfile, Placement, PodProfile, Profile,
    QueueProfile, RemoveProfile, RoceProfile, StackProfile, TolerationProfile,
};
pub use profiles::Profiles;
pub use rules::profiler::RULE as PROFILER_RULE;
pub use skip::{SkipReason, Skipped};
pub use view::JobView;
