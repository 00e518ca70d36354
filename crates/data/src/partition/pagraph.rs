//! PaGraph's partitioning: training nodes by the neighbours that a part already has.
//!
//! # Algorithm
//!
//! 1. Training nodes in id order: each goes to the part with the highest score `(|T(i) ∩ N(t)| + 1)
//!    (T / K - |T(i)|) / (|P(i)| + 1)`, where `T(i)` are the part's training nodes, `N(t)` the
//!    in-neighbours of `t`, `T` the number of all training nodes, and `P(i)` the rows that the part
//!    needs: its training nodes with their in-neighbours. The middle factor balances the training
//!    nodes, the last the rows. Ties go to the part with fewer training nodes, then to the lower
//!    number.
//! 2. The other nodes in id order, by the rule of [`ldg`](super::ldg): to the part with most
//!    neighbours, discounted as the part fills.
//!
//! # Source
//!
//! Lin, Li, Miao, Liu and Xu, *PaGraph: scaling GNN training on large graphs via computation-aware
//! caching*, SoCC 2020, section on data partitioning, and the ones that the authors' program adds
//! to both counts. A baseline of Liu et al., *BGL*, NSDI 2023.
//!
//! # Cost
//!
//! O(E + V K), sequential, because every choice depends on the previous ones.
//!
//! # Memory
//!
//! 2 bytes a node, a set entry for every row of every `P(i)` (at most one for each edge into a
//! training node), and a copy of a directed graph with every edge in both directions.
//!
//! # Deviations
//!
//! PaGraph copies the L-hop neighbourhoods of a part's training nodes to that part, and drops nodes
//! that none of them reaches. Here every node belongs to one part, hence step 2. `N(t)` and `P(i)`
//! are of one hop, as by default in the authors' program; the paper's text has L hops.

use std::collections::HashSet;

use graphmill_core::{
    Graph, NodeId, Result, memory,
    progress::{Progress, Unit},
};

use super::{
    Options, PartitionBook, Partitioner,
    ldg::discounted,
    stream::{NONE, assign_rest},
};

/// PaGraph's partitioner with its options.
pub(super) struct PaGraph(Options);

impl PaGraph {
    pub(super) fn new(options: &Options) -> Self {
        Self(options.clone())
    }
}

impl Partitioner for PaGraph {
    fn partition(&self, graph: &Graph, train: &[NodeId], progress: &dyn Progress) -> Result<PartitionBook> {
        self.0.check(graph, train)?;
        progress.stage("assigning the training nodes", None, Unit::Rows);
        let of = training(graph, train, self.0.parts)?;
        let capacity = graph.num_nodes().div_ceil(self.0.parts.into());
        assign_rest(graph, train, &self.0, progress, of, capacity, discounted(capacity))
    }
}

/// Part of every training node, and [`NONE`] of the others.
fn training(graph: &Graph, train: &[NodeId], parts: u16) -> Result<Vec<u16>> {
    let mut of: Vec<u16> = memory::reserve(graph.num_nodes())?;
    of.resize(graph.num_nodes(), NONE);
    let parts = usize::from(parts);
    let mean = train.len() as f64 / parts as f64;
    let mut held: HashSet<(u16, NodeId)> = HashSet::new();
    let (mut trains, mut rows, mut inside) = (vec![0u64; parts], vec![0u64; parts], vec![0u64; parts]);
    for &t in train {
        inside.fill(0);
        for &u in graph.in_neighbors(t) {
            if of[u as usize] != NONE {
                inside[usize::from(of[u as usize])] += 1;
            }
        }
        let score =
            |part: usize| (inside[part] + 1) as f64 * (mean - trains[part] as f64) / (rows[part] + 1) as f64;
        // a part with fewer training nodes than the mean exists, so the best score is positive
        let best = (1..parts).fold((score(0), 0), |best, part| {
            let other = (score(part), part);
            let order = best.0.total_cmp(&other.0).then(trains[part].cmp(&trains[best.1]).reverse());
            if order.is_lt() { other } else { best }
        });
        let best = best.1;
        of[t as usize] = best as u16;
        trains[best] += 1;
        for &v in graph.in_neighbors(t).iter().chain([&t]) {
            rows[best] += u64::from(held.insert((best as u16, v)));
        }
    }
    Ok(of)
}

#[cfg(test)]
mod tests {
    use graphmill_core::{EdgeOptions, build, progress::Quiet};

    use super::*;

    #[test]
    fn training_nodes_follow_their_neighbours_within_the_balance() {
        // training nodes 0 to 3; 0 - 2 and 1 - 3 are neighbours, 4 and 5 do not train
        let graph = build(6, &[0, 1, 4], &[2, 3, 0], EdgeOptions::UNDIRECTED).unwrap();
        // 0 goes to part 0 by its number; 1 to the part with fewer rows; 2 and 3 to neighbours
        assert_eq!(training(&graph, &[0, 1, 2, 3], 2).unwrap(), [0, 1, 0, 1, NONE, NONE]);
        // neighbours of one part only: the balance sends the second half elsewhere
        let star = build(4, &[0, 0, 0], &[1, 2, 3], EdgeOptions::UNDIRECTED).unwrap();
        let of = training(&star, &[0, 1, 2, 3], 2).unwrap();
        assert_eq!(of.iter().filter(|&&part| part == 0).count(), 2, "{of:?}");
    }

    #[test]
    fn parts_differ_by_at_most_one_training_node() {
        let nodes = 400u32;
        let ends =
            |side| (0..1600).map(|e| (graphmill_core::keyed::key(&[e, side]) % 400) as NodeId).collect();
        let (src, dst): (Vec<_>, Vec<_>) = (ends(0), ends(1));
        let graph = build(nodes as usize, &src, &dst, EdgeOptions::UNDIRECTED).unwrap();
        let train: Vec<NodeId> = (0..nodes).step_by(3).collect();
        let options = Options { parts: 4, ..Options::default() };
        let book = PaGraph::new(&options).partition(&graph, &train, &Quiet).unwrap();
        assert!(book.sizes().iter().all(|&size| size <= 100), "{:?}", book.sizes());
        let (trains, mean) = (book.sizes_of(&train), train.len() / 4);
        assert!(trains.iter().all(|&size| size.abs_diff(mean) <= 1), "{trains:?}");
    }
}
