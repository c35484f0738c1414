//! Checks for what the cluster would refuse or leave Pending, as far as its resources are known.

use super::Context;
use crate::Finding;
use crate::fabric::Change;
use crate::fabric::builder::PlanBuilder;
use crate::text::Quantity;

/// Checks the decided changes.
pub(crate) fn decide(ctx: &Context, plan: &mut PlanBuilder) {
    pod_security(ctx, plan);
    huge_pages(ctx, plan);
}

fn pod_security(ctx: &Context, plan: &mut PlanBuilder) {
    let Some(level @ ("baseline" | "restricted")) = ctx.facts.pod_security.as_deref() else { return };
    let forbidden: Vec<&str> = plan
        .changes()
        .filter_map(|(_, change)| match change {
            Change::Mount { .. } => Some("hostPath volumes"),
            Change::Capability { .. } => Some("the capability IPC_LOCK"),
            _ => None,
        })
        .collect();
    if let Some(what) = forbidden.first() {
        plan.report(
            Finding::warning(
                "W-POD-SECURITY",
                format!("the namespace enforces Pod Security `{level}`, which forbids {what}: every pod would be refused"),
            )
            .fix("use another namespace, or a profile whose stack is in the image (eks-image)")
            .cite("https://kubernetes.io/docs/concepts/security/pod-security-standards/"),
        );
    }
}

fn huge_pages(ctx: &Context, plan: &mut PlanBuilder) {
    const NAME: &str = "hugepages-2Mi";
    let amount = |text: &String| Quantity::parse(text);
    let most = ctx.facts.nodes.iter().filter_map(|group| group.allocatable.get(NAME).and_then(amount)).max();
    let ours = plan.changes().filter_map(|(role, change)| match change {
        Change::Resource { name, quantity } if name == NAME => Some((role.to_owned(), quantity.clone())),
        _ => None,
    });
    let own = ctx.roles().filter_map(|role| Some((role.name.clone(), role.container.asks(NAME)?.to_owned())));
    let asked = ours.chain(own).max_by_key(|(_, quantity)| amount(quantity));
    let (Some(most), Some((role, quantity))) = (most, asked) else { return };
    if amount(&quantity).is_some_and(|asked| asked > most) {
        let text = format!(
            "{quantity} of huge pages are requested, and no node has as many allocatable: the pods would stay Pending"
        );
        let fix = "--no-fabric-rule efa.hugepages leaves them out; libfabric then uses normal pages";
        plan.report(Finding::warning("W-HP-ALLOCATABLE", text).at(role).fix(fix));
    }
}
