//! k-hop uniform neighbour sampling without replacement (GraphSAGE; FGNN section 2).
//!
//! A node of degree `d` at most the fanout `k` takes all its neighbours, in order. Otherwise `k` distinct
//! positions of `0..d` are drawn by Floyd's algorithm (Bentley and Floyd, *Programming pearls: a sample of
//! brilliance*, CACM 1987): for `j` from `d - k` to `d - 1`, draw `t` of `0..=j` and take `t`, or `j` if
//! `t` is taken already. O(k) draws whatever the degree, and every `k`-subset is equally likely. (GNNLab's Fisher-Yates
//! variant permutes the adjacency in place, which makes it hidden sampler state; ours reads only.)
//!
//! The draws of a node are a function of (seed, epoch, batch, hop, node) alone.
//!
//! Memory latency is what sampling costs, so the loop is software-pipelined over groups of nodes: draw the positions of
//! one group and prefetch their cache lines, then read the neighbours of the group before.

use graphmill_graph::{Graph, NodeId, keyed};
use rayon::prelude::*;

use super::{BatchKey, Sampler, Scratch};
use crate::prefetch::prefetch;

/// Nodes whose reads are in flight together.
const GROUP: usize = 16;
/// Destinations one task draws for, when a call is spread over threads.
const TASK: usize = 2048;
/// Up to this fanout membership is a scan of the drawn positions, above it a hash table.
const SCAN: usize = 48;

/// Uniform neighbour sampling.
#[derive(Clone, Debug)]
pub struct Neighbor {
    /// Per hop from the seeds outward; `usize::MAX` takes all.
    fanout: Vec<usize>,
}

impl Neighbor {
    /// `fanout[h]` neighbours per node at hop `h` from the seeds; -1 takes all.
    ///
    /// # Errors
    /// No hops, more than 64, or a fanout that is neither -1 nor positive.
    pub fn new(fanout: &[i64]) -> Result<Self, String> {
        if fanout.is_empty() || fanout.len() > 64 {
            return Err(format!("a fanout has 1 to 64 hops, not {}", fanout.len()));
        }
        let fanout = fanout
            .iter()
            .map(|&k| match k {
                -1 => Ok(usize::MAX),
                1..=1_000_000 => Ok(k as usize),
                _ => Err(format!("fanout {k}: give a number of neighbours from 1 to 1000000, or -1 for all")),
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { fanout })
    }
}

impl Sampler for Neighbor {
    fn num_layers(&self) -> usize {
        self.fanout.len()
    }

    fn sample_layer(
        &self,
        graph: &Graph,
        hop: usize,
        dst: &[NodeId],
        key: BatchKey,
        scratch: &mut Scratch,
        indptr: &mut Vec<u32>,
        indices: &mut Vec<NodeId>,
    ) {
        let fanout = self.fanout[hop];
        let key = keyed::key(&[key.seed, key.epoch, key.batch, hop as u64]);
        let rows = graph.indptr();
        indptr.clear();
        indptr.push(0);
        let mut edges = 0u64;
        for (i, &v) in dst.iter().enumerate() {
            if let Some(&ahead) = dst.get(i + GROUP) {
                prefetch(rows, ahead as usize);
            }
            edges += (rows[v as usize + 1] - rows[v as usize]).min(fanout as u64);
            indptr.push(edges as u32);
        }
        assert!(
            edges <= u64::from(u32::MAX),
            "one block of {edges} edges: a block holds at most {}; use a smaller batch or fanout",
            u32::MAX
        );
        indices.resize(edges as usize, 0);
        if dst.len() < 2 * TASK || rayon::current_num_threads() == 1 {
            draw(graph, fanout, key, dst, indptr, indices, scratch);
            return;
        }
        // every task owns its run of the output
        let mut rest = &mut indices[..];
        let mut tasks = Vec::with_capacity(dst.len().div_ceil(TASK));
        for (i, part) in dst.chunks(TASK).enumerate() {
            let ends = &indptr[i * TASK..=i * TASK + part.len()];
            let (own, after) = rest.split_at_mut((ends[part.len()] - ends[0]) as usize);
            tasks.push((part, ends, own));
            rest = after;
        }
        tasks.into_par_iter().for_each_init(Scratch::default, |scratch, (part, ends, own)| {
            draw(graph, fanout, key, part, ends, own, scratch);
        });
    }
}

/// Writes the drawn neighbours of `dst` to `out`; the run of `dst[i]` is
/// `indptr[i] - indptr[0] .. indptr[i + 1] - indptr[0]`.
fn draw(
    graph: &Graph,
    fanout: usize,
    key: u64,
    dst: &[NodeId],
    indptr: &[u32],
    out: &mut [NodeId],
    scratch: &mut Scratch,
) {
    let (rows, neighbors) = (graph.indptr(), graph.indices());
    let Scratch { positions: [current, previous], table } = scratch;
    previous.clear();
    let mut written = 0;
    for (group, nodes) in dst.chunks(GROUP).enumerate() {
        current.clear();
        for (i, &v) in nodes.iter().enumerate() {
            let i = group * GROUP + i;
            if let Some(&ahead) = dst.get(i + GROUP) {
                prefetch(rows, ahead as usize);
            }
            let (start, end) = (rows[v as usize], rows[v as usize + 1]);
            let count = (indptr[i + 1] - indptr[i]) as usize;
            let from = current.len();
            if (end - start) as usize <= fanout {
                // one prefetch per cache line of the row
                current.extend(start..end);
                (start..end).step_by(16).for_each(|e| prefetch(neighbors, e as usize));
            } else {
                let stream = keyed::Stream::new(keyed::mix(key ^ u64::from(v).wrapping_mul(keyed::GOLDEN)));
                floyd(stream, count, end - start, current, table);
                for position in &mut current[from..] {
                    *position += start;
                    prefetch(neighbors, *position as usize);
                }
            }
        }
        for &position in previous.iter() {
            out[written] = neighbors[position as usize];
            written += 1;
        }
        std::mem::swap(current, previous);
    }
    for &position in previous.iter() {
        out[written] = neighbors[position as usize];
        written += 1;
    }
}

/// Appends `k` distinct numbers of `0..d` to `out`, `k < d`.
#[inline]
fn floyd(mut stream: keyed::Stream, k: usize, d: u64, out: &mut Vec<u64>, table: &mut Vec<u32>) {
    let from = out.len();
    if k <= SCAN {
        for j in d - k as u64..d {
            let t = stream.below(j + 1);
            let taken = out[from..].iter().fold(false, |taken, &p| taken | (p == t));
            out.push(if taken { j } else { t });
        }
        return;
    }
    // Open addressing over the places of what was drawn; `j` itself is never taken before its turn.
    let bits = usize::BITS - (2 * k).leading_zeros();
    table.clear();
    table.resize(1 << bits, u32::MAX);
    let mask = table.len() - 1;
    for j in d - k as u64..d {
        let mut t = stream.below(j + 1);
        let mut slot = keyed::mix(t) as usize & mask;
        while table[slot] != u32::MAX {
            if out[from + table[slot] as usize] == t {
                t = j;
                slot = keyed::mix(t) as usize & mask;
                // look for a free slot only
                while table[slot] != u32::MAX {
                    slot = (slot + 1) & mask;
                }
                break;
            }
            slot = (slot + 1) & mask;
        }
        table[slot] = (out.len() - from) as u32;
        out.push(t);
    }
}
