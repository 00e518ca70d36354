//! How much of the training nodes' neighbourhoods lies in their own parts.

use graphmill_core::{
    Graph, NodeId,
    keyed::{self, Stream},
};
use graphmill_data::partition::PartitionBook;
use rayon::prelude::*;

/// Sets these draws apart from others of the same seed.
const DOMAIN: u64 = 0x7061_7274_6c6f_6361;
/// Training nodes that are looked at, at most.
const NODES: u64 = 1 << 14;
/// Walks from each.
const WALKS: u64 = 8;

/// The share of random walks of 1, 2 and 3 steps along in-neighbours that end in the part of the
/// node of `train` where they began: each node of a neighbourhood counts as often as a sampler
/// reaches it. At most 16,384 training nodes, drawn; a walk that can go nowhere ends where it is.
/// Constant time, parallel.
pub fn locality(graph: &Graph, train: &[NodeId], book: &PartitionBook, seed: u64) -> [f64; 3] {
    let starts = NODES.min(train.len() as u64);
    let walks = |i: u64| {
        let mut stream = Stream::new(keyed::key(&[DOMAIN, seed, i]));
        let start = if starts < NODES { i } else { stream.below(train.len() as u64) };
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
