//! Subgraph induced by a set of nodes.

#![forbid(unsafe_code)]

use rayon::prelude::*;

use crate::{Graph, NodeId, Result, memory};

/// Builds the graph of the same nodes with only the edges between `nodes`, on which an inductive
/// run trains. Edge weights are dropped. O(V + in-degrees of `nodes`), parallel.
///
/// # Errors
/// Memory runs out.
pub fn induced_graph(graph: &Graph, nodes: &[NodeId]) -> Result<Graph> {
    let mut inside = memory::filled(false, graph.num_nodes())?;
    nodes.iter().for_each(|&v| inside[v as usize] = true);
    let kept = |v: usize| {
        let row = if inside[v] { graph.in_neighbors(v as NodeId) } else { &[] };
        row.iter().copied().filter(|&u| inside[u as usize])
    };
    let mut indptr: Vec<u64> = memory::zeroed(graph.num_nodes() + 1)?;
    indptr[1..]
        .par_iter_mut()
        .enumerate()
        .with_min_len(1 << 10)
        .for_each(|(v, n)| *n = kept(v).count() as u64);
    for v in 1..indptr.len() {
        indptr[v] += indptr[v - 1];
    }
    let mut indices: Vec<NodeId> = memory::zeroed(indptr[indptr.len() - 1] as usize)?;
    fill(&indptr, &mut indices, 0, &|v, row| row.iter_mut().zip(kept(v)).for_each(|(slot, u)| *slot = u));
    Graph::new(indptr.into(), indices.into())
}

/// Minimum number of nodes per task.
const MIN_TASK_LEN: usize = 1 << 12;

/// Passes its row of `rows` to every node from `first` on.
fn fill(indptr: &[u64], rows: &mut [NodeId], first: usize, each: &(impl Fn(usize, &mut [NodeId]) + Sync)) {
    let nodes = indptr.len() - 1;
    let at = |i: usize| (indptr[i] - indptr[0]) as usize;
    if nodes > MIN_TASK_LEN {
        let middle = nodes / 2;
        let (left, right) = rows.split_at_mut(at(middle));
        rayon::join(
            || fill(&indptr[..=middle], left, first, each),
            || fill(&indptr[middle..], right, first + middle, each),
        );
        return;
    }
    for v in 0..nodes {
        each(first + v, &mut rows[at(v)..at(v + 1)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EdgeOptions, build};

    #[test]
    fn only_edges_between_the_nodes_remain() {
        let nodes = 3 * MIN_TASK_LEN as u32;
        let src: Vec<u32> = (0..nodes).chain(0..nodes).collect();
        let dst: Vec<u32> =
            (0..nodes).map(|v| (v + 1) % nodes).chain((0..nodes).map(|v| (v * 5 + 2) % nodes)).collect();
        let graph = build(nodes as usize, &src, &dst, EdgeOptions::DIRECTED).unwrap();
        let some: Vec<u32> = (0..nodes).filter(|v| v % 3 < 2).collect();
        let less = induced_graph(&graph, &some).unwrap();
        assert_eq!(less.num_nodes(), graph.num_nodes());
        for v in 0..nodes {
            let all = graph.in_neighbors(v).iter().copied();
            let expected: Vec<u32> = all.filter(|u| v % 3 < 2 && u % 3 < 2).collect();
            assert_eq!(less.in_neighbors(v), expected, "{v}");
        }
        assert_eq!(induced_graph(&graph, &[]).unwrap().num_edges(), 0);
        assert_eq!(induced_graph(&Graph::default(), &[]).unwrap().num_nodes(), 0);
    }
}
