//! Whether a graph is undirected.

use rayon::prelude::*;

use crate::{Graph, NodeId};

/// Whether every edge stands as often in one direction as in the other. Rows that are not sorted (none that this project
/// makes) count as no. O(E log(largest degree)), parallel.
pub fn is_symmetric(graph: &Graph) -> bool {
    let times = |row: &[NodeId], u: NodeId| {
        let from = row.partition_point(|&w| w < u);
        row[from..].partition_point(|&w| w == u)
    };
    let nodes = graph.num_nodes() as NodeId;
    let sorted = |v: NodeId| graph.in_neighbors(v).is_sorted();
    let mirrored = |v: NodeId| {
        graph
            .in_neighbors(v)
            .chunk_by(|a, b| a == b)
            .all(|run| times(graph.in_neighbors(run[0]), v) == run.len())
    };
    (0..nodes).into_par_iter().with_min_len(1 << 10).all(sorted)
        && (0..nodes).into_par_iter().with_min_len(1 << 10).all(mirrored)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EdgeOptions, build};

    #[test]
    fn both_directions_are_counted() {
        let all = EdgeOptions { keep_duplicates: true, ..EdgeOptions::DIRECTED };
        let symmetric = |src: &[u32], dst: &[u32]| is_symmetric(&build(4, src, dst, all).unwrap());
        assert!(symmetric(&[], &[]));
        assert!(symmetric(&[0, 1, 2], &[1, 0, 2]));
        assert!(symmetric(&[0, 1, 0, 1], &[1, 0, 1, 0]));
        assert!(!symmetric(&[0], &[1]));
        assert!(!symmetric(&[0, 1, 0], &[1, 0, 1]));
        assert!(!symmetric(&[0, 1, 2], &[1, 2, 0]));
    }
}
