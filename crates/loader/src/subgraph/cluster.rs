//! Unions of the parts of a partition (Cluster-GCN).
//!
//! # Algorithm
//!
//! Every epoch cuts a random permutation of the parts into groups of `parts_per_batch`; a subgraph
//! is the nodes of a group. So an epoch's subgraphs hold every node once. Batch numbers beyond the
//! epoch start again from the first group.
//!
//! Without a given [`partition`], parts of `V / parts` nodes each are grown one after the other,
//! breadth first. A part that runs out of neighbours continues at the first unassigned node, and
//! the next part begins beside the previous one.
//!
//! [`partition`]: super::SubgraphContext::partition
//!
//! # Source
//!
//! Chiang et al., *Cluster-GCN: an efficient algorithm for training deep and large graph
//! convolutional networks*, KDD 2019, section 3.2 (stochastic multiple partitions).
//!
//! # Cost
//!
//! O(V + E) once on one thread; O(parts + nodes of the subgraph) per subgraph.
//!
//! # Memory
//!
//! 4 bytes per node and 8 per part.

use clap::Args;
use graphmill_core::{
    Graph, NodeId, Result,
    keyed::{self, Stream},
    memory,
    options::{Fault, OptionSet, range},
    progress::{Progress, Unit},
};
use serde::{Deserialize, Serialize};

use super::{BatchKey, SubgraphSampler, SubgraphScratch, check_roots};

/// Options of [`Cluster`].
#[derive(Args, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterOptions {
    /// Partition whose parts form the subgraphs (cluster).
    ///
    /// A directory that `graphmill partition` wrote for this dataset, or a .npy file with the part
    /// of every node. Without it, the sampler grows --parts parts itself.
    #[arg(long, value_name = "PATH")]
    pub clusters: String,
    /// Number of parts into which the graph is cut (cluster).
    ///
    /// More parts make smaller and less connected subgraphs. At most the number of nodes.
    #[arg(long, value_name = "N")]
    pub parts: usize,
    /// Number of parts in a subgraph (cluster).
    ///
    /// More parts keep more of the edges between parts, and make larger subgraphs.
    #[arg(long, value_name = "N")]
    pub parts_per_batch: usize,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self { clusters: String::new(), parts: 50, parts_per_batch: 5 }
    }
}

impl OptionSet for ClusterOptions {
    fn check(&self) -> Result<(), Fault> {
        range("parts", self.parts, 1..)?;
        range("parts_per_batch", self.parts_per_batch, 1..)
    }

    fn unused(&self, option: &str) -> Option<String> {
        let why = "--clusters gives the parts, so none are grown; leave out one of the two";
        (option == "parts" && !self.clusters.is_empty()).then(|| why.into())
    }
}

/// Draws unions of a partition's parts. Memory: 4 bytes per node, 8 per part.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Nodes by part, in ascending order within a part.
    nodes: Vec<NodeId>,
    /// Position of each part's first node (`parts + 1`).
    starts: Vec<usize>,
    num_nodes: usize,
    roots: usize,
    per_batch: usize,
}

impl Cluster {
    /// Creates a sampler of the nodes that have neighbours in `graph` or are among `roots`, by
    /// `partition` (part numbers of the `V` nodes) or by grown parts.
    ///
    /// # Errors
    /// There are no roots, there are no parts or more than nodes, a subgraph has more parts than
    /// there are, the partition has another length or part numbers beyond the number of nodes, or
    /// `progress` stops the work.
    pub fn new(
        graph: &Graph,
        roots: &[NodeId],
        options: &ClusterOptions,
        (partition, progress): (Option<&[u32]>, &dyn Progress),
    ) -> Result<Self, String> {
        check_roots(graph, roots)?;
        let num_nodes = graph.num_nodes();
        let mut is_member = vec![false; num_nodes];
        for v in 0..num_nodes as NodeId {
            is_member[v as usize] |= graph.in_degree(v) > 0;
            // a node with out-edges only is a member as well
            graph.in_neighbors(v).iter().for_each(|&u| is_member[u as usize] = true);
        }
        roots.iter().for_each(|&v| is_member[v as usize] = true);
        let grown;
        let part_of: &[u32] = match partition {
            Some(partition) if partition.len() != num_nodes => {
                return Err(format!(
                    "the partition has {} nodes and the graph has {num_nodes}; use a partition of this graph",
                    partition.len()
                ));
            }
            Some(partition) => partition,
            None => {
                let members = is_member.iter().filter(|&&member| member).count();
                if options.parts == 0 || options.parts > members {
                    return Err(format!(
                        "{} parts of {members} nodes are not possible; use 1 to {members}",
                        options.parts
                    ));
                }
                progress.stage("growing the parts of clusters", Some(members as u64), Unit::Rows);
                grown =
                    grow(graph, &is_member, members, options.parts, progress).map_err(|e| e.to_string())?;
                &grown
            }
        };
        let parts = part_of.iter().max().map_or(0, |&part| part as usize + 1);
        if parts > num_nodes {
            return Err(format!(
                "part {} of a partition of {num_nodes} nodes is out of range; number the parts from 0",
                parts - 1
            ));
        }
        // counting sort; parts without members are dropped
        let mut starts = vec![0; parts + 1];
        for (&part, _) in part_of.iter().zip(&is_member).filter(|&(_, &member)| member) {
            starts[part as usize + 1] += 1;
        }
        for part in 0..parts {
            starts[part + 1] += starts[part];
        }
        let mut next = starts.clone();
        let mut nodes = vec![0; starts[parts]];
        for v in (0..num_nodes).filter(|&v| is_member[v]) {
            let part = part_of[v] as usize;
            nodes[next[part]] = v as NodeId;
            next[part] += 1;
        }
        starts.dedup();
        let (parts, per_batch) = (starts.len() - 1, options.parts_per_batch);
        if per_batch == 0 || per_batch > parts {
            return Err(format!(
                "{per_batch} of {parts} parts per subgraph are not possible; use 1 to {parts}"
            ));
        }
        Ok(Self { nodes, starts, num_nodes, roots: roots.len(), per_batch })
    }

    /// Number of parts with members.
    pub fn parts(&self) -> usize {
        self.starts.len() - 1
    }

    /// Nodes by part, in ascending order within a part, and the position of each part's first node
    /// (`parts + 1`).
    pub fn members(&self) -> (&[NodeId], &[usize]) {
        (&self.nodes, &self.starts)
    }

    fn groups(&self) -> usize {
        self.parts().div_ceil(self.per_batch)
    }
}

/// Number of steps of a search between two checks of its progress.
const CHECKED_STEPS: u32 = 1 << 12;

/// Part number of each member, and 0 of other nodes.
///
/// # Errors
/// `progress` stops the work.
fn grow(
    graph: &Graph,
    is_member: &[bool],
    members: usize,
    parts: usize,
    progress: &dyn Progress,
) -> Result<Vec<u32>> {
    const NONE: u32 = u32::MAX;
    let mut part_of: Vec<u32> = is_member.iter().map(|&member| if member { NONE } else { 0 }).collect();
    let mut queue: Vec<NodeId> = Vec::new();
    let (mut first, mut steps) = (0, 0u32);
    for part in 0..parts {
        progress.done((members * part / parts) as u64);
        // sizes differ by at most one
        let mut left = members * (part + 1) / parts - members * part / parts;
        // start at the node that the previous part would have taken next
        let begin = queue.iter().copied().find(|&v| part_of[v as usize] == NONE);
        queue.clear();
        queue.extend(begin);
        let mut head = 0;
        while left > 0 {
            if head == queue.len() {
                while part_of[first] != NONE {
                    first += 1;
                }
                queue.push(first as NodeId);
            }
            let v = queue[head];
            head += 1;
            steps = steps.wrapping_add(1);
            if steps.is_multiple_of(CHECKED_STEPS) {
                progress.check()?;
            }
            if part_of[v as usize] != NONE {
                continue;
            }
            part_of[v as usize] = part as u32;
            left -= 1;
            queue.extend(graph.in_neighbors(v).iter().filter(|&&u| part_of[u as usize] == NONE));
        }
        queue.drain(..head);
    }
    Ok(part_of)
}

impl SubgraphSampler for Cluster {
    /// Mean number of training nodes in a subgraph, because parts have any size.
    fn budget(&self) -> usize {
        self.roots.div_ceil(self.groups())
    }

    fn epoch(&self, _training: usize) -> usize {
        self.groups()
    }

    fn sample(
        &self,
        graph: &Graph,
        key: BatchKey,
        scratch: &mut SubgraphScratch,
        nodes: &mut Vec<NodeId>,
    ) -> Result<()> {
        scratch.start(graph, self.num_nodes)?;
        let order = &mut scratch.list;
        order.clear();
        memory::demand_extend(order, 0..self.parts() as u32);
        Stream::new(keyed::key(&[key.seed, key.epoch])).shuffle(order);
        let first = (key.batch % self.groups() as u64) as usize * self.per_batch;
        nodes.clear();
        for &part in &order[first..(first + self.per_batch).min(self.parts())] {
            let members = self.starts[part as usize]..self.starts[part as usize + 1];
            memory::demand_append(nodes, &self.nodes[members]);
        }
        if self.per_batch > 1 {
            nodes.sort_unstable();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::progress::Quiet;

    use super::*;
    use crate::subgraph::testing::{fits, graph_of};

    fn cluster(
        graph: &Graph,
        roots: &[NodeId],
        (parts, parts_per_batch): (usize, usize),
        partition: Option<&[u32]>,
    ) -> Result<Cluster, String> {
        Cluster::new(
            graph,
            roots,
            &ClusterOptions { parts, parts_per_batch, ..ClusterOptions::default() },
            (partition, &Quiet),
        )
    }

    /// A ring of `n` nodes.
    fn ring(n: u32) -> Graph {
        let rows: Vec<[u32; 2]> = (0..n).map(|v| [(v + n - 1) % n, (v + 1) % n]).collect();
        graph_of(&rows.iter().map(|row| &row[..]).collect::<Vec<_>>())
    }

    #[test]
    fn epochs_hold_every_node_once_and_pairs_of_parts_are_equally_likely() {
        let graph = ring(12);
        let partition = [0, 1, 2, 3, 3, 3, 9, 9, 0, 0, 1, 2];
        let roots = [0, 1, 2, 3, 6];
        let sampler = cluster(&graph, &roots, (0, 2), Some(&partition)).unwrap();
        assert_eq!((sampler.epoch(5), sampler.budget()), (3, 2));
        let mut scratch = SubgraphScratch::default();
        let mut nodes = Vec::new();
        let mut pairs = vec![0; 10];
        for epoch in 0..5000 {
            let mut all = Vec::new();
            for batch in 0..3 {
                sampler.sample(&graph, BatchKey { seed: 2, epoch, batch }, &mut scratch, &mut nodes).unwrap();
                assert!(nodes.is_sorted());
                let mut parts: Vec<usize> =
                    nodes.iter().map(|&v| partition[v as usize].min(4) as usize).collect();
                parts.sort_unstable();
                parts.dedup();
                if batch == 0 {
                    // the number of a pair a < b of 0..5
                    pairs[parts[1] * (parts[1] - 1) / 2 + parts[0]] += 1;
                }
                all.extend_from_slice(&nodes);
            }
            all.sort_unstable();
            assert_eq!(all, (0..12).collect::<Vec<_>>());
        }
        fits(&pairs, &[1.0; 10]);
    }

    #[test]
    fn given_parts_leave_the_number_of_grown_parts_without_effect() {
        let given = ClusterOptions { clusters: "parts".into(), ..ClusterOptions::default() };
        assert!(given.unused("parts").unwrap().contains("--clusters"));
        assert_eq!(
            (given.unused("parts_per_batch"), ClusterOptions::default().unused("parts")),
            (None, None)
        );
    }

    #[test]
    fn a_stop_ends_the_growth_of_parts() {
        struct Stopped;
        impl Progress for Stopped {
            fn is_stopped(&self) -> bool {
                true
            }
        }
        let outcome = grow(&ring(10_000), &[true; 10_000], 10_000, 4, &Stopped);
        assert!(matches!(outcome, Err(graphmill_core::Error::Stopped)));
    }

    #[test]
    fn grown_parts_are_even_and_connected() {
        let graph = ring(30);
        let part_of = grow(&graph, &[true; 30], 30, 4, &Quiet).unwrap();
        for part in 0..4 {
            let size = part_of.iter().filter(|&&p| p == part).count();
            assert!((7..=8).contains(&size), "{part_of:?}");
            // ends of runs along the ring
            let ends = (0..30).filter(|&v| part_of[v] == part && part_of[(v + 1) % 30] != part).count();
            assert!(ends <= 2, "{part_of:?}");
        }
        // isolated nodes, and nodes that are not members
        let graph = graph_of(&[&[], &[2], &[], &[], &[1]]);
        let sampler = cluster(&graph, &[0], (2, 2), None).unwrap();
        let mut nodes = Vec::new();
        sampler
            .sample(
                &graph,
                BatchKey { seed: 0, epoch: 0, batch: 7 },
                &mut SubgraphScratch::default(),
                &mut nodes,
            )
            .unwrap();
        assert_eq!(nodes, [0, 1, 2, 4]);
    }

    #[test]
    fn invalid_partitions_are_rejected() {
        let graph = ring(5);
        let wrong = |parts, partition| cluster(&graph, &[0], parts, partition).unwrap_err();
        assert!(wrong((0, 1), None).contains("1 to 5"));
        assert!(wrong((6, 1), None).contains("6 parts"));
        assert!(wrong((5, 6), None).contains("1 to 5"));
        assert!(wrong((5, 0), None).contains("0 of 5 parts"));
        assert!(wrong((5, 1), Some(&[0; 4])).contains("partition has 4"));
        assert!(wrong((5, 1), Some(&[0, 1, 2, 3, 5])).contains("part 5"));
    }
}
