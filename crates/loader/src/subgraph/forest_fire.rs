//! Forest fire: subgraphs grown by fires that spread to some neighbours of each burning node.
//!
//! # Algorithm
//!
//! A fire starts at a uniform root. A burning node ignites `x` of its unburnt neighbours, chosen
//! uniformly, where `x` is geometric of mean `p / (1 - p)`: each further one with probability `p`.
//! Nodes burn in the order in which they were ignited. When a fire dies, another starts at a
//! uniform unburnt root, until `budget` nodes or all roots and the nodes that their fires reach are
//! burnt.
//!
//! # Source
//!
//! Leskovec and Faloutsos, *Sampling from large graphs*, KDD 2006, section 3.3.
//!
//! # Cost
//!
//! Choosing among unburnt neighbours takes tries while few are burnt, and a pass over the row after
//! many failed tries: usually O(x), at worst O(deg), so hubs do not cost their degree.
//!
//! # Memory
//!
//! 4 bytes per root.

use clap::Args;
use graphmill_core::{
    Graph, NodeId, Result,
    keyed::{self, Stream},
    memory,
    options::{Fault, OptionSet, probability},
};
use serde::{Deserialize, Serialize};

use super::{BatchKey, SubgraphSampler, SubgraphScratch, check_roots, visited::Visited};

/// Options of [`ForestFire`].
#[derive(Args, Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ForestFireOptions {
    /// Probability of spreading to one more neighbour (forest-fire).
    ///
    /// From 0 to below 1; larger values burn more neighbours of each node. The authors recommend
    /// 0.7.
    #[arg(long, alias = "burning", value_name = "P")]
    pub burn_prob: f64,
}

impl Default for ForestFireOptions {
    fn default() -> Self {
        Self { burn_prob: 0.7 }
    }
}

impl OptionSet for ForestFireOptions {
    fn check(&self) -> Result<(), Fault> {
        probability("burn_prob", self.burn_prob)
    }
}

/// Draws the nodes of fires. Memory: 4 bytes per root.
#[derive(Clone, Debug)]
pub struct ForestFire {
    roots: Vec<NodeId>,
    num_nodes: usize,
    budget: usize,
    burning: f64,
}

/// Number of failed tries after which the unburnt nodes are listed.
const MAX_FAILURES: usize = 16;

impl ForestFire {
    /// Creates a sampler with fires from `roots` (below `V`).
    ///
    /// # Errors
    /// There are no roots, or the probability is not in `[0, 1)`.
    pub fn new(
        graph: &Graph,
        roots: &[NodeId],
        budget: usize,
        options: &ForestFireOptions,
    ) -> Result<Self, String> {
        check_roots(graph, roots)?;
        options.check().map_err(|fault| fault.to_string())?;
        let burning = options.burn_prob;
        Ok(Self { roots: roots.to_vec(), num_nodes: graph.num_nodes(), budget, burning })
    }

    /// Writes the nodes in the order in which they were ignited.
    fn burn(&self, graph: &Graph, key: BatchKey, scratch: &mut SubgraphScratch, nodes: &mut Vec<NodeId>) {
        let SubgraphScratch { visited, list, .. } = scratch;
        let mut stream = Stream::new(keyed::key(&[key.seed, key.epoch, key.batch]));
        nodes.clear();
        let mut burning = 0;
        while nodes.len() < self.budget {
            if burning == nodes.len() {
                if ignite(&self.roots, 1, &mut stream, visited, list, nodes) == 0 {
                    break;
                }
                continue;
            }
            let row = graph.in_neighbors(nodes[burning]);
            burning += 1;
            let mut spread = 0;
            while spread < row.len().min(self.budget - nodes.len()) && stream.uniform() < self.burning {
                spread += 1;
            }
            ignite(row, spread, &mut stream, visited, list, nodes);
        }
    }
}

/// Ignites `count` of the unburnt nodes of `row`, or all of them, uniformly one after the other (a
/// node that occurs twice counts twice), and returns their number.
fn ignite(
    row: &[NodeId],
    count: usize,
    stream: &mut Stream,
    visited: &mut Visited,
    list: &mut Vec<NodeId>,
    nodes: &mut Vec<NodeId>,
) -> usize {
    // nothing is refused between the visit of a node and its place in the list
    memory::demand(nodes, count.min(row.len()));
    let mut ignited = 0;
    let mut failed = 0;
    // a try hits each unburnt node with the same probability
    while ignited < count && failed < MAX_FAILURES && !row.is_empty() {
        let v = row[stream.below(row.len() as u64) as usize];
        if visited.insert(v) {
            nodes.push(v);
            ignited += 1;
        } else {
            failed += 1;
        }
    }
    if ignited < count {
        list.clear();
        memory::demand_extend(list, row.iter().copied().filter(|&v| !visited.contains(v)));
        while ignited < count && !list.is_empty() {
            let v = list.swap_remove(stream.below(list.len() as u64) as usize);
            if visited.insert(v) {
                nodes.push(v);
                ignited += 1;
            }
        }
    }
    ignited
}

impl SubgraphSampler for ForestFire {
    fn budget(&self) -> usize {
        self.budget
    }

    fn sample(
        &self,
        graph: &Graph,
        key: BatchKey,
        scratch: &mut SubgraphScratch,
        nodes: &mut Vec<NodeId>,
    ) -> Result<()> {
        scratch.start(graph, self.num_nodes)?;
        let burnt = memory::catch(|| self.burn(graph, key, scratch, nodes));
        // the set is empty for the next subgraph, also if memory was refused
        scratch.visited.drain(nodes);
        burnt
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subgraph::testing::{agree, fits, graph_of};

    fn fire(graph: &Graph, roots: &[NodeId], budget: usize, burning: f64) -> Result<ForestFire, String> {
        ForestFire::new(graph, roots, budget, &ForestFireOptions { burn_prob: burning })
    }

    /// Reference: the module's algorithm, with lists of unburnt nodes.
    fn plain(graph: &Graph, roots: &[NodeId], budget: usize, p: f64, mut stream: Stream) -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> = Vec::new();
        let mut burning = 0;
        while nodes.len() < budget {
            let (row, mut spread) = if burning == nodes.len() {
                (roots, 1)
            } else {
                burning += 1;
                let mut spread = 0;
                while stream.uniform() < p {
                    spread += 1;
                }
                (graph.in_neighbors(nodes[burning - 1]), spread)
            };
            let relight = burning == nodes.len();
            let mut fresh: Vec<NodeId> = row.iter().copied().filter(|v| !nodes.contains(v)).collect();
            if relight && fresh.is_empty() && std::ptr::eq(row, roots) {
                break;
            }
            while spread > 0 && !fresh.is_empty() && nodes.len() < budget {
                nodes.push(fresh.swap_remove(stream.below(fresh.len() as u64) as usize));
                spread -= 1;
            }
        }
        nodes
    }

    #[test]
    fn fires_spread_as_in_the_reference() {
        let graph = graph_of(&[&[1, 2, 3, 4], &[0, 2], &[0, 1, 3], &[0, 2], &[0], &[], &[]]);
        let roots = [0, 1, 4, 5];
        for burning in [0.3, 0.8] {
            let sampler = fire(&graph, &roots, 4, burning).unwrap();
            let mut scratch = SubgraphScratch::default();
            let mut nodes = Vec::new();
            let kind =
                |nodes: &[NodeId]| (0..4).fold(0, |k, i| 8 * k + nodes.get(i).map_or(7, |&v| v as usize));
            let (mut ours, mut theirs) = (vec![0; 4096], vec![0; 4096]);
            for batch in 0..100_000 {
                scratch.start(&graph, 7).unwrap();
                sampler.burn(&graph, BatchKey { seed: 5, epoch: 0, batch }, &mut scratch, &mut nodes);
                ours[kind(&nodes)] += 1;
                scratch.visited.drain(&mut nodes);
                let stream = Stream::new(keyed::key(&[77, batch]));
                theirs[kind(&plain(&graph, &roots, 4, burning, stream))] += 1;
            }
            agree(&ours, &theirs);
        }
    }

    #[test]
    fn fires_end_after_all_reachable_nodes() {
        let graph = graph_of(&[&[1], &[], &[2], &[]]);
        let mut scratch = SubgraphScratch::default();
        let mut nodes = Vec::new();
        let key = BatchKey { seed: 0, epoch: 0, batch: 0 };
        // all roots and the nodes that they reach
        let sampler = fire(&graph, &[0, 2, 2], 1000, 0.999).unwrap();
        sampler.sample(&graph, key, &mut scratch, &mut nodes).unwrap();
        assert_eq!(nodes, [0, 1, 2]);
        let sampler = fire(&graph, &[0, 1, 2, 3], 1000, 0.0).unwrap();
        sampler.sample(&graph, key, &mut scratch, &mut nodes).unwrap();
        assert_eq!(nodes, [0, 1, 2, 3]);
        for burning in [1.0, -0.1, f64::NAN] {
            let error = fire(&graph, &[0], 10, burning).unwrap_err();
            let says = format!("burn_prob: '{burning}': a probability of at least 0 and below 1");
            assert_eq!(error, says);
        }
    }

    #[test]
    fn unburnt_nodes_are_ignited_uniformly() {
        let row: Vec<NodeId> = (0..40).collect();
        let mut counts = vec![0; 40];
        let mut weights = vec![0.0; 40];
        let mut stream = Stream::new(4);
        for _ in 0..20_000 {
            let mut visited = Visited::default();
            visited.fit(40);
            (0..37).for_each(|v| _ = visited.insert(v));
            let mut nodes = Vec::new();
            assert_eq!(ignite(&row, 1, &mut stream, &mut visited, &mut Vec::new(), &mut nodes), 1);
            counts[nodes[0] as usize] += 1;
        }
        weights[37..].fill(1.0);
        fits(&counts, &weights);
    }
}
