//! The part of a graph with new nodes and edges that the rows of some nodes depend on.
//!
//! # Algorithm
//!
//! The in-neighbours of the wanted nodes are followed hop by hop, in the known graph and in the new
//! edges. The nodes that are found are numbered in the order of their ids, so the neighbours of a
//! node keep their order, and rows that are computed on the part have the bits of those on the
//! whole graph. Nodes of the last hop have no edges in the part, and their degrees are those of the
//! whole graph.
//!
//! # Source
//!
//! Hamilton, Ying and Leskovec, *Inductive Representation Learning on Large Graphs*, NeurIPS 2017,
//! algorithm 2, lines 1 to 7 (the nodes of a minibatch, without sampling).
//!
//! # Cost
//!
//! O(N log N + E) for the `N` nodes and `E` edges within the hops, whatever the size of the graph,
//! while `N` is below 1/256 of its nodes; a bit for each node of the graph beyond.

use graphmill_core::{Buffer, Graph, NodeId};

use super::graph::NewEdges;
use crate::inference::{Added, NodeSet};

/// Edges of a relation, known and new, between two types of nodes.
pub(crate) struct Edges<'g> {
    /// The known edges: a row for each known destination.
    pub(crate) known: &'g Graph,
    /// The new edges.
    pub(crate) new: &'g NewEdges,
    /// Number of the type of the sources.
    pub(crate) src: usize,
    /// Number of the type of the destinations.
    pub(crate) dst: usize,
    /// True if the part needs the rows of its edges.
    pub(crate) with_rows: bool,
}

/// Part of a graph.
pub(crate) struct Part {
    /// Ids in the whole graph of the nodes of each type, ascending.
    pub(crate) ids: Vec<Vec<NodeId>>,
    /// Edges of each relation between these nodes.
    pub(crate) relations: Vec<Graph>,
    /// Row of each edge among those of the known edges, followed by those of the new ones, for each
    /// relation that wants them.
    pub(crate) rows: Vec<Option<Vec<NodeId>>>,
}

impl Edges<'_> {
    /// Known in-neighbours of `v`.
    fn known_row(&self, v: NodeId) -> &[NodeId] {
        if (v as usize) < self.known.num_nodes() { self.known.in_neighbors(v) } else { &[] }
    }

    /// In-degrees of `ids` with the new edges.
    pub(crate) fn in_degrees(&self, ids: &[NodeId]) -> Buffer<u32> {
        let degree = |&v: &NodeId| (self.known_row(v).len() + self.new.row(v).len()) as u32;
        ids.iter().map(degree).collect::<Vec<_>>().into()
    }

    /// Out-degrees of `ids` with the new edges, from those of the known nodes.
    pub(crate) fn out_degrees(&self, known: &[u32], ids: &[NodeId]) -> Vec<u32> {
        let mut degrees = self.new.out_degrees(ids);
        for (degree, &v) in degrees.iter_mut().zip(ids) {
            *degree += known.get(v as usize).copied().unwrap_or_default();
        }
        degrees
    }

    /// The neighbours of the `inner` ones of the `outer` nodes, by their numbers among these, and
    /// the rows of the edges.
    fn among(&self, inner: &[NodeSet], outer: &[NodeSet]) -> (Graph, Option<Vec<NodeId>>) {
        let (mut indptr, mut numbers) = (vec![0], self.with_rows.then(Vec::new));
        let (mut indices, mut weights) = (Vec::new(), self.known.edge_weight().map(|_| Vec::new()));
        let mut rows = inner[self.dst].ids().iter().peekable();
        for v in outer[self.dst].ids() {
            if rows.next_if_eq(&v).is_some() {
                let (known, new) = (self.known_row(*v), self.new.row(*v));
                indices.extend_from_slice(known);
                indices.extend(new.iter().map(|edge| edge.src));
                if let Some(numbers) = &mut numbers {
                    if !known.is_empty() {
                        let first = self.known.indptr()[*v as usize] as NodeId;
                        numbers.extend(first..first + known.len() as NodeId);
                    }
                    numbers.extend(new.iter().map(|edge| edge.row_behind(self.known)));
                }
                if let (Some(weights), Some(all)) = (&mut weights, self.known.edge_weight()) {
                    if !known.is_empty() {
                        let first = self.known.indptr()[*v as usize] as usize;
                        weights.extend_from_slice(&all[first..first + known.len()]);
                    }
                    weights.extend(new.iter().map(|edge| edge.weight));
                }
            }
            indptr.push(indices.len() as u64);
        }
        outer[self.src].number(&mut indices);
        (Graph::sorted(indptr.into(), indices.into(), weights.map(Into::into)), numbers)
    }
}

impl Part {
    /// The nodes of each type within `hops` of those of `wanted`, with the edges that lead to the
    /// wanted ones. `counts` has the number of nodes of each type with the new ones.
    pub(crate) fn around(relations: &[Edges], counts: &[usize], wanted: &[Vec<NodeId>], hops: usize) -> Self {
        let mut added: Vec<Added> = counts.iter().map(|&count| Added::new(count)).collect();
        for (added, nodes) in added.iter_mut().zip(wanted) {
            added.add(nodes.iter().copied());
        }
        let sets = |added: &mut [Added]| added.iter_mut().map(Added::set).collect::<Vec<NodeSet>>();
        let mut outer = sets(&mut added);
        let mut inner = Vec::new();
        for _ in 0..hops {
            inner = outer;
            for edges in relations {
                let (ids, added) = (inner[edges.dst].ids(), &mut added[edges.src]);
                added.add_rows(ids, |v| edges.known_row(v));
                added.add(ids.iter().flat_map(|&v| edges.new.row(v)).map(|edge| edge.src));
            }
            outer = sets(&mut added);
        }
        let (relations, rows) = relations.iter().map(|edges| edges.among(&inner, &outer)).unzip();
        Self { ids: outer.iter().map(|set| set.ids().to_vec()).collect(), relations, rows }
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::{EdgeOptions, build_weighted};
    use graphmill_data::external::Scratch;
    use proptest::prelude::*;

    use super::*;
    use crate::saved::on::NodeIds;

    proptest! {
        #[test]
        fn rows_of_a_part_are_those_of_the_joined_graph(
            edges in prop::collection::btree_set((0u32..40, 0u32..40), 0..70),
            known in 30usize..40,
            hops in 1usize..4,
        ) {
            let ids = NodeIds { known, new: 40 - known, places: &[] };
            let weighted = edges.iter().map(|&(u, v)| (u, v, (u * 40 + v) as f32));
            let is_known = |&(u, v, _): &(u32, u32, f32)| (u as usize) < known && (v as usize) < known;
            let old: Vec<_> = weighted.clone().filter(is_known).collect();
            let column = |c: &dyn Fn(&(u32, u32, f32)) -> u32| old.iter().map(c).collect::<Vec<u32>>();
            let weights: Vec<f32> = old.iter().map(|edge| edge.2).collect();
            let options = EdgeOptions { undirected: false, drop_self_loops: false, keep_duplicates: false };
            let [src, dst] = [column(&|edge| edge.0), column(&|edge| edge.1)];
            let graph = build_weighted(known, &src, &dst, &weights, options).unwrap();
            let new = NewEdges::listed("edges", weighted.filter(|edge| !is_known(edge)), [ids; 2]).unwrap();
            let whole = new.added_to(&graph, 40 - known, &Scratch::in_memory()).unwrap();
            let mut rows_of_whole = Vec::new();
            let scratch = Scratch::in_memory();
            new.added_with_rows(&graph, 40 - known, &scratch, Some(&mut rows_of_whole)).unwrap();
            let of = Edges { known: &graph, new: &new, src: 0, dst: 0, with_rows: true };
            let wanted: Vec<NodeId> = (known as NodeId..40).collect();
            let part = Part::around(std::slice::from_ref(&of), &[40], std::slice::from_ref(&wanted), hops);
            let (ids, rows) = (&part.ids[0], &part.relations[0]);
            prop_assert!(ids.is_sorted());
            prop_assert_eq!(rows.num_nodes(), ids.len());
            let degrees = of.in_degrees(ids);
            let mut out = [0; 40];
            whole.indices().iter().for_each(|&u| out[u as usize] += 1);
            let mut of_known = vec![0; known];
            graph.indices().iter().for_each(|&u| of_known[u as usize] += 1);
            let of_out = of.out_degrees(&of_known, ids);
            // hops from the wanted nodes
            let mut inner = wanted.clone();
            for _ in 1..hops {
                let further = inner.iter().flat_map(|&v| whole.in_neighbors(v)).copied();
                let further: Vec<NodeId> = further.collect();
                inner.extend(further);
            }
            let outer = inner.iter().flat_map(|&v| whole.in_neighbors(v)).chain(&inner).copied();
            let mut expected: Vec<NodeId> = outer.collect();
            expected.sort_unstable();
            expected.dedup();
            prop_assert_eq!(ids, &expected);
            for (i, &v) in ids.iter().enumerate() {
                prop_assert_eq!(degrees[i] as usize, whole.in_degree(v));
                prop_assert_eq!(of_out[i], out[v as usize]);
                let row = rows.in_neighbors(i as NodeId).iter().map(|&u| ids[u as usize]);
                let row: Vec<NodeId> = row.collect();
                let (weights, all) = (rows.edge_weight().unwrap(), whole.edge_weight().unwrap());
                let span = |graph: &Graph, v: usize| {
                    graph.indptr()[v] as usize..graph.indptr()[v + 1] as usize
                };
                if inner.contains(&v) {
                    prop_assert_eq!(row, whole.in_neighbors(v));
                    let numbers = &part.rows[0].as_ref().unwrap()[span(rows, i)];
                    prop_assert_eq!(numbers, &rows_of_whole[span(&whole, v as usize)]);
                    prop_assert_eq!(&weights[span(rows, i)], &all[span(&whole, v as usize)]);
                } else {
                    prop_assert!(row.is_empty());
                }
            }
        }
    }
}
