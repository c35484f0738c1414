//! The fabric request: its kind, the rules by id, the opt-outs; and the origin of each value.

mod fabric;
mod origin;
pub(crate) mod rules;

pub use fabric::{Fabric, FabricRequest, Gid, Inject, RuleSetting, Stack, Webhook};
pub use origin::Origin;
pub use rules::{FabricRule, RULES};
