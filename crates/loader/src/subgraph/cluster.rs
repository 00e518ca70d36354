//! Unions of parts of a partition (Chiang et al., *Cluster-GCN*, KDD 2019, section 3.2: stochastic
//! multiple partitions).
//!
//! Every epoch deals the parts anew, a random permutation cut into groups of `parts_per_batch`; a
//! subgraph is a group's nodes. So an epoch's subgraphs hold every node once. Batch numbers beyond
//! the epoch begin again.
//!
//! Where no partition is given, parts are grown one after the other, breadth first, to `V / parts`
//! nodes each; one that runs out of neighbours goes on at the first node that no part has, and the
//! next one begins beside the one before. O(V + E), one thread.

use clap::Args;
use graphmill_core::{
    Graph, NodeId, Result,
    keyed::{self, Stream},
    options::{Fault, OptionSet, range},
};
use serde::{Deserialize, Serialize};

use super::{BatchKey, SubgraphSampler, SubgraphScratch, check_roots};

/// Options of [`Cluster`].
#[derive(Args, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterOptions {
    /// Parts that the graph is cut into.
    #[arg(long, value_name = "N")]
    pub parts: usize,
    /// Parts of a subgraph.
    #[arg(long, value_name = "N")]
    pub parts_per_batch: usize,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self { parts: 50, parts_per_batch: 5 }
    }
}

impl OptionSet for ClusterOptions {
    fn check(&self) -> Result<(), Fault> {
        range("parts", self.parts, 1..)?;
        range("parts_per_batch", self.parts_per_batch, 1..)
    }
}

/// See the module's text. Memory: 4 bytes a node, 8 a part.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Nodes by part, ascending within one.
    nodes: Vec<NodeId>,
    /// Where the parts' nodes begin (`parts + 1`).
    starts: Vec<usize>,
    num_nodes: usize,
    roots: usize,
    per_batch: usize,
}

impl Cluster {
    /// Of the nodes that have neighbours in `graph` or are among `roots`, by `partition` (`V` part
    /// numbers) or grown.
    ///
    /// # Errors
    /// There are no roots; no parts or more than nodes; more parts in a subgraph than there are; a
    /// partition of another length, or with part numbers beyond the number of nodes.
    pub fn new(
        graph: &Graph,
        roots: &[NodeId],
        options: &ClusterOptions,
        partition: Option<&[u32]>,
    ) -> Result<Self, String> {
        check_roots(graph, roots)?;
        let num_nodes = graph.num_nodes();
        let mut is_member = vec![false; num_nodes];
        for v in 0..num_nodes as NodeId {
            is_member[v as usize] |= graph.in_degree(v) > 0;
            // one that only sends is of the graph as well
            graph.in_neighbors(v).iter().for_each(|&u| is_member[u as usize] = true);
        }
        roots.iter().for_each(|&v| is_member[v as usize] = true);
        let grown;
        let part_of: &[u32] = match partition {
            Some(partition) if partition.len() != num_nodes => {
                return Err(format!("a partition of {} nodes for a graph of {num_nodes}", partition.len()));
            }
            Some(partition) => partition,
            None => {
                let members = is_member.iter().filter(|&&member| member).count();
                if options.parts == 0 || options.parts > members {
                    return Err(format!("{} parts of {members} nodes: give 1 to {members}", options.parts));
                }
                grown = grow(graph, &is_member, members, options.parts);
                &grown
            }
        };
        let parts = part_of.iter().max().map_or(0, |&part| part as usize + 1);
        if parts > num_nodes {
            return Err(format!(
                "part {} of a partition of {num_nodes} nodes: number the parts from 0 on",
                parts - 1
            ));
        }
        // counting sort; parts that have no members are left out
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
            return Err(format!("{per_batch} parts in a subgraph, of {parts}: give 1 to {parts}"));
        }
        Ok(Self { nodes, starts, num_nodes, roots: roots.len(), per_batch })
    }

    /// How many parts have members.
    pub fn parts(&self) -> usize {
        self.starts.len() - 1
    }

    /// Nodes by part, ascending within one, and where each part's begin (`parts + 1`).
    pub fn members(&self) -> (&[NodeId], &[usize]) {
        (&self.nodes, &self.starts)
    }

    fn groups(&self) -> usize {
        self.parts().div_ceil(self.per_batch)
    }
}

/// A part's number for each member, and 0 for other nodes.
fn grow(graph: &Graph, is_member: &[bool], members: usize, parts: usize) -> Vec<u32> {
    const NONE: u32 = u32::MAX;
    let mut part_of: Vec<u32> = is_member.iter().map(|&member| if member { NONE } else { 0 }).collect();
    let mut queue: Vec<NodeId> = Vec::new();
    let mut first = 0;
    for part in 0..parts {
        // sizes differ by at most one
        let mut scratch = members * (part + 1) / parts - members * part / parts;
        // what the part before would have taken next
        let begin = queue.iter().copied().find(|&v| part_of[v as usize] == NONE);
        queue.clear();
        queue.extend(begin);
        let mut head = 0;
        while scratch > 0 {
            if head == queue.len() {
                while part_of[first] != NONE {
                    first += 1;
                }
                queue.push(first as NodeId);
            }
            let v = queue[head];
            head += 1;
            if part_of[v as usize] != NONE {
                continue;
            }
            part_of[v as usize] = part as u32;
            scratch -= 1;
            queue.extend(graph.in_neighbors(v).iter().filter(|&&u| part_of[u as usize] == NONE));
        }
        queue.drain(..head);
    }
    part_of
}

impl SubgraphSampler for Cluster {
    /// The training nodes of a subgraph on average: parts are of any size.
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
        order.extend(0..self.parts() as u32);
        Stream::new(keyed::key(&[key.seed, key.epoch])).shuffle(order);
        let first = (key.batch % self.groups() as u64) as usize * self.per_batch;
        nodes.clear();
        for &part in &order[first..(first + self.per_batch).min(self.parts())] {
            nodes.extend_from_slice(&self.nodes[self.starts[part as usize]..self.starts[part as usize + 1]]);
        }
        if self.per_batch > 1 {
            nodes.sort_unstable();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subgraph::testing::{fits, graph_of};

    fn of(
        graph: &Graph,
        roots: &[NodeId],
        (parts, parts_per_batch): (usize, usize),
        partition: Option<&[u32]>,
    ) -> Result<Cluster, String> {
        Cluster::new(graph, roots, &ClusterOptions { parts, parts_per_batch }, partition)
    }

    /// A ring of `n`.
    fn ring(n: u32) -> Graph {
        let rows: Vec<[u32; 2]> = (0..n).map(|v| [(v + n - 1) % n, (v + 1) % n]).collect();
        graph_of(&rows.iter().map(|row| &row[..]).collect::<Vec<_>>())
    }

    #[test]
    fn an_epoch_holds_every_node_once_and_pairs_of_parts_are_as_likely() {
        let graph = ring(12);
        let partition = [0, 1, 2, 3, 3, 3, 9, 9, 0, 0, 1, 2];
        let roots = [0, 1, 2, 3, 6];
        let sampler = of(&graph, &roots, (0, 2), Some(&partition)).unwrap();
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
    fn grown_parts_are_even_and_connected() {
        let graph = ring(30);
        let part_of = grow(&graph, &[true; 30], 30, 4);
        for part in 0..4 {
            let size = part_of.iter().filter(|&&p| p == part).count();
            assert!((7..=8).contains(&size), "{part_of:?}");
            // ends of runs along the ring
            let ends = (0..30).filter(|&v| part_of[v] == part && part_of[(v + 1) % 30] != part).count();
            assert!(ends <= 2, "{part_of:?}");
        }
        // nodes that nothing reaches, and nodes that are none of the graph's
        let graph = graph_of(&[&[], &[2], &[], &[], &[1]]);
        let sampler = of(&graph, &[0], (2, 2), None).unwrap();
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
    fn wrong_partitions_are_refused() {
        let graph = ring(5);
        let wrong = |parts, partition| of(&graph, &[0], parts, partition).unwrap_err();
        assert!(wrong((0, 1), None).contains("1 to 5"));
        assert!(wrong((6, 1), None).contains("6 parts"));
        assert!(wrong((5, 6), None).contains("1 to 5"));
        assert!(wrong((5, 0), None).contains("0 parts"));
        assert!(wrong((5, 1), Some(&[0; 4])).contains("partition of 4"));
        assert!(wrong((5, 1), Some(&[0, 1, 2, 3, 5])).contains("part 5"));
    }
}
