//! What can be asked of the fabric: its kind, the rules by id, the opt-outs; and where each value came from.

mod fabric;
mod origin;
pub(crate) mod rules;

pub use fabric::{Fabric, FabricRequest, Gid, Inject, RuleSetting, Stack, Webhook};
pub use origin::Origin;
pub use rules::{RULES, Rule};
