//! The connections of ranks: one ring over all ranks, and the double binary tree between nodes.

/// A job's shape in NCCL.
#[derive(Clone, Copy, Debug)]
pub(super) struct Topology {
    pub nodes: u32,
    pub local: u32,
}

/// A rank's position in one tree. Missing neighbours are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TreePlace {
    pub up: Option<u32>,
    pub down: [Option<u32>; 3],
}

impl Topology {
    pub fn world(self) -> u32 {
        self.nodes * self.local
    }

    pub fn node_of(self, rank: u32) -> u32 {
        rank / self.local
    }

    pub fn local_of(self, rank: u32) -> u32 {
        rank % self.local
    }

    /// Returns the previous and next rank on the ring; none if the rank is alone.
    pub fn ring(self, rank: u32) -> Option<(u32, u32)> {
        let world = self.world();
        (world > 1).then(|| ((rank + world - 1) % world, (rank + 1) % world))
    }

    /// Returns a rank's position in the tree of a channel: a chain inside the node, and between the nodes'
    /// first ranks the binary tree of even channels or its mirror image of odd ones.
    pub fn tree(self, rank: u32, channel: u32) -> TreePlace {
        let (node, local) = (self.node_of(rank), self.local_of(rank));
        let below = (local + 1 < self.local).then_some(rank + 1);
        if local > 0 {
            return TreePlace { up: Some(rank - 1), down: [below, None, None] };
        }
        let head = |node: u32| node * self.local;
        let (up, down) =
            if channel.is_multiple_of(2) { binary(self.nodes, node) } else { mirrored(self.nodes, node) };
        let mut down: Vec<_> =
            below.into_iter().chain(down.into_iter().flatten().map(head)).map(Some).collect();
        down.resize(3, None);
        TreePlace { up: up.map(head), down: [down[0], down[1], down[2]] }
    }
}

/// Returns parent and children in the binary tree in which the lowest set bit is the height (Sanders, Speck,
/// Träff 2009, which NCCL's trees follow).
fn binary(nodes: u32, node: u32) -> (Option<u32>, [Option<u32>; 2]) {
    if node == 0 {
        let top = nodes.next_power_of_two() >> 1;
        return (None, [(nodes > 1).then_some(top.max(1)), None]);
    }
    let bit = node & node.wrapping_neg();
    let parent = (node ^ bit) | (bit << 1);
    let parent = if parent >= nodes { node ^ bit } else { parent };
    let half = bit >> 1;
    let left = (half > 0).then(|| node - half);
    let mut step = half;
    while step > 0 && node + step >= nodes {
        step >>= 1;
    }
    (Some(parent), [left, (step > 0).then(|| node + step)])
}

/// Returns the other tree: shifted by one node if their number is odd, else mirrored, so that inner nodes of
/// one are leaves of the other.
fn mirrored(nodes: u32, node: u32) -> (Option<u32>, [Option<u32>; 2]) {
    if nodes % 2 == 1 {
        let back = |n: u32| (n + 1) % nodes;
        let (up, down) = binary(nodes, (node + nodes - 1) % nodes);
        return (up.map(back), down.map(|child| child.map(back)));
    }
    let back = |n: u32| nodes - 1 - n;
    let (up, down) = binary(nodes, back(node));
    (up.map(back), down.map(|child| child.map(back)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trees_of_the_capture() {
        let two = Topology { nodes: 2, local: 2 };
        assert_eq!(two.tree(0, 0), TreePlace { up: None, down: [Some(1), Some(2), None] });
        assert_eq!(two.tree(2, 0), TreePlace { up: Some(0), down: [Some(3), None, None] });
        assert_eq!(two.tree(0, 1), TreePlace { up: Some(2), down: [Some(1), None, None] });
        assert_eq!(two.tree(2, 1), TreePlace { up: None, down: [Some(3), Some(0), None] });
        assert_eq!(two.tree(3, 1), TreePlace { up: Some(2), down: [None, None, None] });
    }

    #[test]
    fn every_child_knows_its_parent_and_one_rank_is_the_root() {
        for nodes in 1..70 {
            let topology = Topology { nodes, local: 3 };
            for channel in 0..2 {
                let roots = (0..topology.world()).filter(|r| topology.tree(*r, channel).up.is_none()).count();
                assert_eq!(roots, 1, "{nodes} nodes");
                for rank in 0..topology.world() {
                    for child in topology.tree(rank, channel).down.into_iter().flatten() {
                        assert_eq!(
                            topology.tree(child, channel).up,
                            Some(rank),
                            "{nodes} nodes, child {child}"
                        );
                    }
                }
            }
        }
    }
}
