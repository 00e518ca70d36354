//! The edges among some nodes of a graph, as a square block.

use super::{Block, join::Halves};
use crate::{Error, Graph, NodeId, Result, prefetch::prefetch};

/// Numbers nodes within a subgraph; kept from subgraph to subgraph.
///
/// A bit per node says whether it is in the subgraph, and is all that is read of the many neighbours that are not: the numbers
/// themselves, 4 bytes a node, would not stay in the caches. Memory: `V / 8 + 4 V` bytes, of which a subgraph of `n` nodes
/// touches the lines of its own.
#[derive(Clone, Debug, Default)]
pub struct Induce {
    inside: Vec<u64>,
    pub(super) local: Vec<u32>,
    /// Which neighbours of a row are inside.
    pub(super) kept: Vec<u32>,
    pub(super) plain: Halves<u32>,
    pub(super) numbered: Halves<u64>,
}

impl Induce {
    /// Overwrites the edges of `block` by those among `nodes` (distinct, ascending): destination and source `i` is `nodes[i]`,
    /// and neighbours keep their order. Every edge's position among the graph's edges is told to `each`, in the order of the
    /// block's edges. O(in-degrees of the nodes in the whole graph).
    ///
    /// # Errors
    /// There are more edges than a block's 32-bit positions can number; the block is then undefined.
    pub fn block(
        &mut self,
        graph: &Graph,
        nodes: &[NodeId],
        block: &mut Block,
        each: impl FnMut(u64),
    ) -> Result<()> {
        self.enter(graph.num_nodes(), nodes);
        block.clear();
        (block.num_dst, block.num_src) = (nodes.len(), nodes.len());
        let found = self.edges(graph, nodes, block, each);
        self.leave(nodes);
        found
    }

    /// Marks and numbers `nodes`, of `num_nodes`.
    pub(super) fn enter(&mut self, num_nodes: usize, nodes: &[NodeId]) {
        let words = num_nodes.div_ceil(64);
        if self.inside.len() < words {
            self.inside.resize(words, 0);
            self.local.resize(num_nodes, 0);
        }
        for (i, &v) in (0..).zip(nodes) {
            self.inside[v as usize / 64] |= 1 << (v % 64);
            self.local[v as usize] = i;
        }
    }

    /// Takes the marks away.
    pub(super) fn leave(&mut self, nodes: &[NodeId]) {
        for &v in nodes {
            self.inside[v as usize / 64] = 0;
        }
    }

    /// Writes the offsets of the neighbours that are inside to the front of `kept`, which is as long as the row, and says how many.
    #[inline(always)]
    pub(super) fn keep(&self, row: &[NodeId], kept: &mut [u32]) -> usize {
        // Whether a neighbour is inside is a coin toss to a branch: write every one, and keep those that are.
        let mut n = 0;
        for (offset, &u) in (0..).zip(row) {
            kept[n] = offset;
            n += (self.inside[u as usize / 64] >> (u % 64) & 1) as usize;
        }
        n
    }

    fn edges(
        &self,
        graph: &Graph,
        nodes: &[NodeId],
        block: &mut Block,
        mut each: impl FnMut(u64),
    ) -> Result<()> {
        let Block { indptr, indices, .. } = block;
        indptr.push(0);
        let (rows, neighbors) = (graph.indptr(), graph.indices());
        for (i, &v) in nodes.iter().enumerate() {
            ahead(rows, neighbors, nodes, i);
            let (start, end) = (rows[v as usize], rows[v as usize + 1]);
            let (row, from) = (&neighbors[start as usize..end as usize], indices.len());
            indices.resize(from + row.len(), 0);
            let kept = &mut indices[from..];
            let n = self.keep(row, kept);
            for slot in &mut kept[..n] {
                each(start + u64::from(*slot));
                *slot = self.local[row[*slot as usize] as usize];
            }
            indices.truncate(from + n);
            let end = u32::try_from(indices.len())
                .map_err(|_| Error::invalid("a subgraph of 2^32 edges or more: draw smaller ones"))?;
            indptr.push(end);
        }
        Ok(())
    }
}

/// Rows ahead of the one looked at whose ends are asked for, and whose neighbours are.
const FAR: usize = 16;
const NEAR: usize = 8;

/// Asks for what will be read of rows to come, when the row of `nodes[i]` is to be looked at.
#[inline(always)]
pub(super) fn ahead(rows: &[u64], neighbors: &[NodeId], nodes: &[NodeId], i: usize) {
    if let Some(&far) = nodes.get(i + FAR) {
        prefetch(rows, far as usize);
    }
    if let Some(&near) = nodes.get(i + NEAR) {
        let start = rows[near as usize] as usize;
        prefetch(neighbors, start);
        prefetch(neighbors, start + 16);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{EdgeOptions, Oriented, build};

    proptest! {
        #[test]
        fn the_edges_are_those_among_the_nodes(
            edges in prop::collection::vec((0u32..70, 0u32..70), 0..300),
            chosen in prop::collection::btree_set(0u32..70, 0..70),
        ) {
            let (src, dst): (Vec<u32>, Vec<u32>) = edges.into_iter().unzip();
            let graph = build(70, &src, &dst, EdgeOptions::DIRECTED).unwrap();
            let nodes: Vec<u32> = chosen.into_iter().collect();
            let mut induce = Induce::default();
            let mut block = Block::default();
            // what was there before leaves no trace
            induce.block(&graph, &[3, 5, 60], &mut block, |_| {}).unwrap();
            let mut positions = Vec::new();
            induce.block(&graph, &nodes, &mut block, |e| positions.push(e)).unwrap();
            let mut expected = Vec::new();
            for (i, &v) in nodes.iter().enumerate() {
                for (offset, u) in graph.in_neighbors(v).iter().enumerate() {
                    if let Ok(j) = nodes.binary_search(u) {
                        expected.push((i, j as u32, graph.indptr()[v as usize] + offset as u64));
                    }
                }
            }
            let mut found = Vec::new();
            for i in 0..block.num_dst {
                found.extend(block.edges(i).map(|e| (i, block.indices[e], positions[e])));
            }
            prop_assert_eq!(found, expected);
            prop_assert_eq!((block.num_dst, block.num_src, block.indptr.len()), (nodes.len(), nodes.len(), nodes.len() + 1));
        }

        #[test]
        fn a_symmetric_block_transposes_by_one_pass(edges in prop::collection::vec((0u32..40, 0u32..40), 0..200)) {
            let (src, dst): (Vec<u32>, Vec<u32>) = edges.into_iter().unzip();
            let graph = build(40, &src, &dst, EdgeOptions { undirected: true, ..EdgeOptions::DIRECTED }).unwrap();
            let nodes: Vec<u32> = (0..40).filter(|v| v % 3 != 0).collect();
            let (mut block, mut induce) = (Block::default(), Induce::default());
            induce.block(&graph, &nodes, &mut block, |_| {}).unwrap();
            let mut other = block.clone();
            block.transpose();
            other.transpose_symmetric();
            let (a, b) = (&block.transposed, &other.transposed);
            prop_assert_eq!((&a.indptr, &a.dst, &a.edge), (&b.indptr, &b.dst, &b.edge));
        }

        #[test]
        fn a_symmetric_graphs_block_is_the_same_from_one_end(
            edges in prop::collection::vec((0u32..60, 0u32..60), 0..300),
            hub in 0u32..60,
            loops in any::<bool>(),
            keep_duplicates in any::<bool>(),
            chosen in prop::collection::vec(prop::collection::btree_set(0u32..60, 0..60), 1..4),
        ) {
            let edges = edges.into_iter().chain((0..60).map(|v| (hub, v)));
            let (src, dst): (Vec<u32>, Vec<u32>) = edges.unzip();
            let options = EdgeOptions { undirected: true, drop_self_loops: !loops, keep_duplicates };
            let graph = build(60, &src, &dst, options).unwrap();
            let oriented = Oriented::new(&graph).unwrap();
            // an edge's number tells its ends
            let ends = |v: u32, u: u32| v.min(u) * 100 + v.max(u);
            let rows = (0..60u32).flat_map(|v| {
                let row = oriented.indptr()[v as usize] as usize..oriented.indptr()[v as usize + 1] as usize;
                oriented.indices()[row].iter().map(move |&u| ends(v, u))
            });
            let of: Vec<u32> = rows.collect();
            let mut induce = Induce::default();
            let (mut block, mut whole) = (Block::default(), Block::default());
            for nodes in chosen {
                let nodes: Vec<u32> = nodes.into_iter().collect();
                induce.block(&graph, &nodes, &mut whole, |_| {}).unwrap();
                induce.symmetric_block(&oriented, &nodes, &mut block).unwrap();
                prop_assert_eq!((&block.indptr, &block.indices), (&whole.indptr, &whole.indices));
                prop_assert_eq!((block.num_dst, block.num_src), (nodes.len(), nodes.len()));
                let mut numbers = Vec::new();
                induce.numbered_block(&oriented, &of, &nodes, &mut block, |number| numbers.push(number)).unwrap();
                prop_assert_eq!((&block.indptr, &block.indices), (&whole.indptr, &whole.indices));
                let expected: Vec<u32> = (0..nodes.len())
                    .flat_map(|i| whole.edges(i).map(move |e| (i, e)))
                    .map(|(i, e)| ends(nodes[i], nodes[whole.indices[e] as usize]))
                    .collect();
                prop_assert_eq!(&numbers, &expected);
                let mut once = Vec::new();
                induce.each_edge(&oriented, &nodes, |at| once.push(of[at as usize]));
                once.sort_unstable();
                let mut below: Vec<u32> = (0..nodes.len())
                    .flat_map(|i| whole.edges(i).map(move |e| (i, e)))
                    .filter(|&(i, e)| whole.indices[e] as usize <= i)
                    .map(|(i, e)| ends(nodes[i], nodes[whole.indices[e] as usize]))
                    .collect();
                below.sort_unstable();
                prop_assert_eq!(once, below);
            }
        }
    }
}
