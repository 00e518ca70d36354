//! Fraction of the training nodes' neighbourhoods that lies in their own parts.

use graphmill_core::{
    Graph, NodeId,
    keyed::{self, Stream},
};
use graphmill_data::partition::PartitionBook;
use rayon::prelude::*;

/// Domain of these draws, distinct from other draws of the same seed.
const DOMAIN: u64 = 0x7061_7274_6c6f_6361;
/// Maximum number of sampled training nodes.
const MAX_NODES: u64 = 1 << 14;
/// Walks from each node.
const WALKS: u64 = 8;

/// Fraction of random walks of 1, 2 and 3 steps along in-neighbours that end in the part of the
/// `train` node where they started.
///
/// A node of a neighbourhood counts as often as a sampler reaches it. Walks start from at most
/// 16,384 random training nodes, and stop at nodes without in-neighbours. Constant time, parallel.
pub fn locality(graph: &Graph, train: &[NodeId], book: &PartitionBook, seed: u64) -> [f64; 3] {
    let starts = MAX_NODES.min(train.len() as u64);
    let walks = |i: u64| {
        let mut stream = Stream::new(keyed::key(&[DOMAIN, seed, i]));
        let start = if starts < MAX_NODES { i } else { stream.below(train.len() as u64) };
        let start = train[start as usize];
        let mut inside = [0u64; 3];
        for _ in 0..WALKS {
            let mut v = start;
            for count in &mut inside {
                let neighbors = graph.in_neighbors(v);
                if !neighbors.is_empty() {
                    v = neighbors[stream.below(neighbors.len() as u64) as usize];
                }
                *count += u64::from(book.part_of(v) == book.part_of(start));
            }
        }
        inside
    };
    let add = |a: [u64; 3], b: [u64; 3]| [a[0] + b[0], a[1] + b[1], a[2] + b[2]];
    let inside = (0..starts).into_par_iter().map(walks).reduce(|| [0; 3], add);
    inside.map(|count| count as f64 / (starts * WALKS).max(1) as f64)
}
