//! How much the evidence of a fabric weighs: the signs for it, and those of another one against it.

use super::{FabricEvidence, SignKind, Site};

/// The score from which a fabric's profile applies.
pub const ENOUGH: u32 = 8;
/// Least weight of the sign that a profile needs beside others: many weak signs show a cloud, and no fabric.
const STRONG: u32 = 5;

/// The weight of the evidence for a fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Score {
    /// Sum of the signs of the fabric, and of the more general fabrics it belongs to.
    pub sum: u32,
    /// Sum of the resources, networks, labels, instance types and settings of other fabrics, and of the variables
    /// that name one.
    pub against: u32,
    /// Whether one of the signs for it is strong: it names the fabric, or a cloud that has only this one.
    pub strong: bool,
    /// Weight of the variables of other fabrics that does not count, since a resource, type or label says what the nodes
    /// are.
    left_over: u32,
}

impl Score {
    /// Adds the evidence for and against a site.
    pub fn of(site: &'static Site, evidence: &[FabricEvidence]) -> Self {
        let mut score = Self { sum: 0, against: 0, strong: false, left_over: 0 };
        let (mut of_variables, mut has_place) = (0, false);
        for one in evidence {
            let Some(other) = Site::named(&one.fabric) else { continue };
            if other == site || site.ancestors().any(|parent| parent == other) {
                score.sum += one.weight;
                score.strong |= one.weight >= STRONG;
                has_place |= contradicts(one);
            } else if other.root() != site.root() {
                if contradicts(one) {
                    score.against += one.weight;
                } else if one.kind == SignKind::Env && one.weight >= STRONG {
                    of_variables += one.weight;
                }
            }
        }
        score.against += of_variables;
        score.left_over = if has_place { of_variables } else { 0 };
        score
    }

    /// Returns whether a profile may apply.
    pub fn is_enough(self) -> bool {
        self.strong && (self.sum + self.left_over).saturating_sub(self.against) >= ENOUGH
    }
}

impl std::fmt::Display for Score {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { sum, against, strong, left_over } = self;
        write!(f, "{sum} for it, {against} against it")?;
        if *left_over > 0 {
            write!(f, " ({left_over} of variables, which count less than what the nodes are)")?;
        }
        write!(f, ", {ENOUGH} needed")?;
        if *strong { Ok(()) } else { write!(f, ", and one sign of {STRONG}") }
    }
}

/// Returns whether a sign excludes other fabrics: a node has one of these, while images, paths and variables
/// are copied from one cloud to the next.
fn contradicts(sign: &FabricEvidence) -> bool {
    use SignKind::{Annotation, Device, DeviceClass, Instance, Label, Network, Resource, Setting};
    matches!(sign.kind, Resource | DeviceClass | Network | Label | Annotation | Instance | Setting | Device)
        && sign.weight + 1 >= STRONG
}
