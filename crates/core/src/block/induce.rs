//! Square block of the edges between some nodes of a graph.

use super::{
    Block,
    membership::{SLACK, keep},
};
use crate::{Error, Graph, NodeId, Result, memory, prefetch::prefetch};

/// Numbering of nodes within a subgraph, reused from subgraph to subgraph.
///
/// A bitmap marks the nodes of the subgraph and is all that is read for the many neighbours outside
/// of it. Because nodes ascend, the number of a node is that of the first node in its word of the
/// bitmap, and the marked bits below its own. Memory: `V / 8 + V / 16` bytes, of which a subgraph
/// of `n` nodes touches only its own cache lines.
#[derive(Clone, Debug, Default)]
pub struct Induce {
    inside: Vec<u64>,
    /// Number of the first node in each word of the bitmap that has some.
    first: Vec<u32>,
    /// Neighbours of a row that are inside.
    kept: Vec<u32>,
}

impl Induce {
    /// Overwrites the edges of `block` by those between `nodes` (distinct, ascending): destination
    /// and source `i` is `nodes[i]`, and neighbours keep their order. Every edge's position in the
    /// graph is passed to `each`, in the order of the block's edges. O(in-degrees of the nodes in
    /// the whole graph).
    ///
    /// # Errors
    /// The nodes do not ascend, or the edges exceed a block's 32-bit positions; the block is then
    /// undefined.
    pub fn block(
        &mut self,
        graph: &Graph,
        nodes: &[NodeId],
        block: &mut Block,
        each: impl FnMut(u64),
    ) -> Result<()> {
        if !nodes.is_sorted_by(|a, b| a < b) {
            return Err(Error::invalid("the nodes of a subgraph repeat or do not ascend: sort them"));
        }
        let words = graph.num_nodes().div_ceil(64);
        if self.inside.len() < words {
            // the tested vector grows last, so that a refusal of either is repeated
            memory::demand_len(&mut self.first, words, 0);
            memory::demand_len(&mut self.inside, words, 0);
        }
        for (i, &v) in (0..).zip(nodes) {
            let word = v as usize / 64;
            if self.inside[word] == 0 {
                self.first[word] = i;
            }
            self.inside[word] |= 1 << (v % 64);
        }
        block.clear();
        (block.num_dst, block.num_src) = (nodes.len(), nodes.len());
        let mut kept = std::mem::take(&mut self.kept);
        // the marks are cleared whether or not there is memory for the edges
        let found = memory::catch(|| self.edges(graph, nodes, block, &mut kept, each));
        self.kept = kept;
        for &v in nodes {
            self.inside[v as usize / 64] = 0;
        }
        found.and_then(|found| found)
    }

    fn edges(
        &self,
        graph: &Graph,
        nodes: &[NodeId],
        block: &mut Block,
        kept: &mut Vec<u32>,
        mut each: impl FnMut(u64),
    ) -> Result<()> {
        let Block { indptr, indices, .. } = block;
        memory::demand(indptr, nodes.len() + 1);
        indptr.push(0);
        let (rows, neighbors) = (graph.indptr(), graph.indices());
        for (i, &v) in nodes.iter().enumerate() {
            prefetch_rows(rows, neighbors, nodes, i);
            let (start, end) = (rows[v as usize], rows[v as usize + 1]);
            let row = &neighbors[start as usize..end as usize];
            if kept.len() < row.len() + SLACK {
                memory::demand_len(kept, row.len() + SLACK, 0);
            }
            let n = keep(&self.inside, row, kept);
            memory::demand(indices, n);
            indices.extend(kept[..n].iter().map(|&offset| {
                each(start + u64::from(offset));
                self.number(row[offset as usize])
            }));
            let end = u32::try_from(indices.len())
                .map_err(|_| Error::invalid("a subgraph of 2^32 edges or more: draw smaller ones"))?;
            indptr.push(end);
        }
        Ok(())
    }

    /// Number of a node of the subgraph.
    #[inline(always)]
    fn number(&self, v: NodeId) -> u32 {
        let (word, below) = (v as usize / 64, (1 << (v % 64)) - 1);
        self.first[word] + (self.inside[word] & below).count_ones()
    }
}

/// Prefetch distances, in rows, of the row ends and of the neighbours.
const FAR: usize = 16;
const NEAR: usize = 8;
/// Prefetched cache lines of a row; the processor itself prefetches longer ones.
const LINES: usize = 8;

/// Prefetches data of later rows, before the row of `nodes[i]` is read.
#[inline(always)]
fn prefetch_rows(rows: &[u64], neighbors: &[NodeId], nodes: &[NodeId], i: usize) {
    if let Some(&far) = nodes.get(i + FAR) {
        prefetch(rows, far as usize);
    }
    if let Some(&near) = nodes.get(i + NEAR) {
        let (start, end) = (rows[near as usize] as usize, rows[near as usize + 1] as usize);
        (start..end).step_by(16).take(LINES).for_each(|at| prefetch(neighbors, at));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{EdgeOptions, build};

    proptest! {
        #[test]
        fn blocks_contain_exactly_the_induced_edges(
            edges in prop::collection::vec((0u32..70, 0u32..70), 0..300),
            chosen in prop::collection::btree_set(0u32..70, 0..70),
        ) {
            let (src, dst): (Vec<u32>, Vec<u32>) = edges.into_iter().unzip();
            let graph = build(70, &src, &dst, EdgeOptions::DIRECTED).unwrap();
            let nodes: Vec<u32> = chosen.into_iter().collect();
            let mut induce = Induce::default();
            let mut block = Block::default();
            // Previous contents leave no trace.
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
            for nodes in [&[5, 3][..], &[5, 5]] {
                let refused = induce.block(&graph, nodes, &mut block, |_| {}).is_err();
                prop_assert!(refused, "{nodes:?}");
            }
            let n = nodes.len();
            prop_assert_eq!((block.num_dst, block.num_src, block.indptr.len()), (n, n, n + 1));
        }

        #[test]
        fn symmetric_blocks_transpose_in_one_pass(
            edges in prop::collection::vec((0u32..40, 0u32..40), 0..200)
        ) {
            let (src, dst): (Vec<u32>, Vec<u32>) = edges.into_iter().unzip();
            let options = EdgeOptions { undirected: true, ..EdgeOptions::DIRECTED };
            let graph = build(40, &src, &dst, options).unwrap();
            let nodes: Vec<u32> = (0..40).filter(|v| v % 3 != 0).collect();
            let (mut block, mut induce) = (Block::default(), Induce::default());
            induce.block(&graph, &nodes, &mut block, |_| {}).unwrap();
            let mut other = block.clone();
            block.transpose();
            other.transpose_symmetric();
            let (a, b) = (&block.transposed, &other.transposed);
            prop_assert_eq!((&a.indptr, &a.dst, &a.edge), (&b.indptr, &b.dst, &b.edge));
        }
    }
}
