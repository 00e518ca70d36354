//! Capacity limits of parts, and the repair of empty parts.

use graphmill_core::{Graph, NodeId, Result};

use super::{Options, PartitionBook};

/// Capacity of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Maximum number of nodes.
    pub(super) nodes: u64,
    /// Maximum number of training nodes.
    pub(super) train: u64,
}

impl Limits {
    /// Creates limits of `1 + slack` times the mean, and at least the mean rounded up, so that all
    /// nodes fit.
    pub(super) fn new(nodes: usize, train: usize, options: &Options) -> Self {
        let most = |count: usize, slack: f64| {
            let mean = count as f64 / f64::from(options.parts);
            ((mean * (1.0 + slack)).floor() as u64).max(mean.ceil() as u64)
        };
        Self { nodes: most(nodes, options.slack), train: most(train, options.train_slack) }
    }
}

/// Nodes and training nodes of a node, a block or a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) nodes: u64,
    pub(super) train: u64,
}

impl Load {
    /// Load of one node.
    pub(super) fn of(trains: bool) -> Self {
        Self { nodes: 1, train: trains.into() }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.nodes += other.nodes;
        self.train += other.train;
    }

    pub(super) fn remove(&mut self, other: Self) {
        self.nodes -= other.nodes;
        self.train -= other.train;
    }

    /// Returns true if a part with this load can take `other` within the limits.
    pub(super) fn has_capacity(&self, other: Self, limits: Limits) -> bool {
        self.nodes + other.nodes <= limits.nodes
            && (other.train == 0 || self.train + other.train <= limits.train)
    }

    /// Returns true if the load exceeds the limits.
    #[cfg(test)]
    pub(super) fn is_over(&self, limits: Limits) -> bool {
        self.nodes > limits.nodes || self.train > limits.train
    }
}

/// Moves one node of the largest part to each empty part: the non-training node with the fewest
/// edges to its part. O(V + E) per empty part; only tiny graphs have any.
pub(super) fn fill_empty(
    graph: &Graph,
    trains: &[bool],
    parts: u16,
    mut of: Vec<u16>,
) -> Result<PartitionBook> {
    let mut sizes = vec![0usize; parts.into()];
    of.iter().for_each(|&part| sizes[usize::from(part)] += 1);
    while let Some(empty) = sizes.iter().position(|&size| size == 0) {
        let Some((largest, _)) =
            sizes.iter().enumerate().max_by_key(|&(part, &size)| (size, usize::MAX - part))
        else {
            break;
        };
        let own = |v: NodeId| {
            graph.in_neighbors(v).iter().filter(|&&u| usize::from(of[u as usize]) == largest).count()
        };
        let all = (0..of.len() as NodeId).filter(|&v| usize::from(of[v as usize]) == largest);
        let Some(v) = all.min_by_key(|&v| (trains[v as usize], own(v), v)) else { break };
        of[v as usize] = empty as u16;
        sizes[largest] -= 1;
        sizes[empty] += 1;
    }
    PartitionBook::new(parts, of)
}
