//! Grouping of a block's edges by source, in two ways with the same result. Edges from the trailing
//! sources, which require no gradient, are omitted.
//!
//! # Algorithm
//!
//! [`serial`] is a counting sort over the sources. [`spread`] is a radix sort of two digits: the
//! edges are first distributed to buckets of neighbouring sources (chunk by chunk, each chunk with
//! a range of its own in every bucket, so that buckets stay ordered by edge), then each bucket is
//! sorted by counting, in the cache. Both digits are stable, so destinations ascend within each
//! source; this determines the result regardless of the chunk boundaries.
//!
//! # Source
//!
//! Least-significant-digit radix sort: Knuth, *The Art of Computer Programming* 3, section 5.2.5.
//! [`symmetric`]: Zeng et al., JPDC 2021, Algorithm 6.
//!
//! # Cost
//!
//! O(S + E) each; [`spread`] moves 12 bytes per edge twice and keeps its buffers for the next
//! batch. Prefetching the counting sort's cursors 16 edges ahead does not help: the processor
//! overlaps the accesses itself.

use std::{ops::Range, sync::atomic::Ordering::Relaxed};

use rayon::prelude::*;

use super::{Block, Transposed};
use crate::{atomic_slice::atomics, memory};

/// Smallest number of edges for [`spread`]: its two passes do twice the work of [`serial`], and win
/// on two threads only if the latter misses the caches.
pub(super) const MIN_PARALLEL_EDGES: usize = 1 << 18;
/// Minimum number of edges of a chunk, and maximum number of chunks.
// Miri, which interprets the tests, has several chunks of few edges.
const CHUNK: usize = if cfg!(miri) { 1 << 7 } else { 1 << 14 };
const CHUNKS: usize = 64;
/// Maximum number of buckets: as many positions as a core can write alternately without TLB misses.
const BUCKETS: usize = 256;

/// Scratch of [`spread`], reused from call to call.
#[derive(Clone, Debug, Default)]
pub(super) struct Scratch {
    /// Source, destination and position of each edge, bucket by bucket: `3 E`.
    entries: Vec<u32>,
    /// Next write position of each chunk in each bucket.
    place: Vec<u32>,
    /// Start of each bucket, and the end of the last.
    start: Vec<u32>,
}

/// Plain counting sort.
pub(super) fn serial(block: &mut Block) {
    let sources = block.num_grad_src();
    let Block { num_dst, indptr, indices, transposed: t, .. } = block;
    t.indptr.clear();
    memory::demand_len(&mut t.indptr, sources + 1, 0);
    for &u in indices.iter() {
        if (u as usize) < sources {
            t.indptr[u as usize + 1] += 1;
        }
    }
    for u in 0..sources {
        t.indptr[u + 1] += t.indptr[u];
    }
    // Every entry is written below.
    let edges = t.indptr[sources] as usize;
    memory::demand_len(&mut t.dst, edges, 0);
    memory::demand_len(&mut t.edge, edges, 0);
    // indptr[u] serves as the write cursor of u and is shifted back afterwards.
    for (v, ends) in indptr.windows(2).enumerate().take(*num_dst) {
        for e in ends[0]..ends[1] {
            let u = indices[e as usize] as usize;
            if u < sources {
                let slot = &mut t.indptr[u];
                t.dst[*slot as usize] = v as u32;
                t.edge[*slot as usize] = e;
                *slot += 1;
            }
        }
    }
    t.indptr.copy_within(0..sources, 1);
    t.indptr[0] = 0;
}

/// Computes only the permutation of the edges: with destinations in ascending order, the next edge
/// from `u` is the next in the row of `u`.
pub(super) fn symmetric(block: &mut Block) {
    let Block { num_dst, indptr, indices, transposed: t, .. } = block;
    memory::demand_copy(&mut t.indptr, indptr);
    memory::demand_copy(&mut t.dst, indices);
    memory::demand_len(&mut t.edge, indices.len(), 0);
    for (&u, e) in indices.iter().zip(0..) {
        let slot = &mut t.indptr[u as usize];
        t.edge[*slot as usize] = e;
        *slot += 1;
    }
    // Every cursor has reached the next row's start.
    t.indptr.copy_within(0..*num_dst, 1);
    t.indptr[0] = 0;
}

/// Two-pass sort over the threads of the pool.
pub(super) fn spread(block: &mut Block) {
    let sources = block.num_grad_src();
    let Block { indptr, indices, transposed, .. } = block;
    let Transposed { indptr: starts, dst, edge, scratch: Scratch { entries, place, start } } = transposed;
    let shift = (usize::BITS - sources.div_ceil(BUCKETS).leading_zeros()).max(8);
    let buckets = sources.div_ceil(1 << shift).max(1);
    let chunk = CHUNK.max(indices.len().div_ceil(CHUNKS));
    let chunks = indices.len().div_ceil(chunk);

    place.clear();
    memory::demand_len(place, chunks * buckets, 0);
    indices.par_chunks(chunk).zip(place.par_chunks_mut(buckets)).for_each(|(indices, count)| {
        let listed = indices.iter().filter(|&&u| (u as usize) < sources);
        listed.for_each(|&u| count[u as usize >> shift] += 1);
    });
    start.clear();
    let mut next = 0;
    for bucket in 0..buckets {
        start.push(next);
        for chunk in 0..chunks {
            let count = std::mem::replace(&mut place[chunk * buckets + bucket], next);
            next += count;
        }
    }
    start.push(next);

    // Every entry is written below.
    let edges = next as usize;
    memory::demand_len(entries, 3 * edges, 0);
    memory::demand_len(dst, edges, 0);
    memory::demand_len(edge, edges, 0);
    memory::demand_len(starts, sources + 1, 0);
    let shared = atomics(entries);
    indices.par_chunks(chunk).zip(place.par_chunks_mut(buckets)).enumerate().for_each(
        |(i, (part, place))| {
            let first = (i * chunk) as u32;
            // Destination whose range holds the first edge: the last that starts at or before it.
            let mut v = indptr.partition_point(|&start| start <= first) - 1;
            for (e, &u) in (first..).zip(part) {
                if u as usize >= sources {
                    continue;
                }
                while indptr[v + 1] <= e {
                    v += 1;
                }
                let at = &mut place[u as usize >> shift];
                for (word, value) in shared[3 * *at as usize..][..3].iter().zip([u, v as u32, e]) {
                    word.store(value, Relaxed);
                }
                *at += 1;
            }
        },
    );

    starts[sources] = edges as u32;
    let out = Out { starts: &mut starts[..sources], dst, edge };
    each_bucket(0..buckets, shift, start, entries, out);
}

/// Output rows of some buckets.
struct Out<'a> {
    starts: &'a mut [u32],
    dst: &'a mut [u32],
    edge: &'a mut [u32],
}

/// Sorts the buckets of `range`, whose entries and rows are given, in parallel.
fn each_bucket(range: Range<usize>, shift: u32, start: &[u32], entries: &[u32], out: Out) {
    let first = start[range.start];
    if range.len() == 1 {
        return sort_bucket(range.start << shift, first, entries, out);
    }
    let middle = range.start + range.len() / 2;
    let edges = (start[middle] - first) as usize;
    let entries = entries.split_at(3 * edges);
    let starts = out.starts.split_at_mut((middle - range.start) << shift);
    let (dst, edge) = (out.dst.split_at_mut(edges), out.edge.split_at_mut(edges));
    let low = Out { starts: starts.0, dst: dst.0, edge: edge.0 };
    let high = Out { starts: starts.1, dst: dst.1, edge: edge.1 };
    rayon::join(
        || each_bucket(range.start..middle, shift, start, entries.0, low),
        || each_bucket(middle..range.end, shift, start, entries.1, high),
    );
}

/// Counting sort of the edges of the sources from `source` on, whose first edge has position
/// `first`.
fn sort_bucket(source: usize, first: u32, entries: &[u32], out: Out) {
    let Out { starts, dst, edge } = out;
    starts.fill(0);
    for entry in entries.chunks_exact(3) {
        starts[entry[0] as usize - source] += 1;
    }
    let mut next = 0;
    for start in starts.iter_mut() {
        next += std::mem::replace(start, next);
    }
    for entry in entries.chunks_exact(3) {
        let slot = &mut starts[entry[0] as usize - source];
        dst[*slot as usize] = entry[1];
        edge[*slot as usize] = entry[2];
        *slot += 1;
    }
    // Each entry is now its source's end, which is the next one's start.
    let last = starts.len() - 1;
    starts.copy_within(..last, 1);
    starts[0] = 0;
    starts.iter_mut().for_each(|start| *start += first);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyed::Stream;

    #[test]
    fn serial_and_parallel_transposes_agree() {
        let mut stream = Stream::new(3);
        for (sources, dsts, edges) in
            [(1, 1, 0), (1, 1, 5), (7, 3, 40), (1000, 10, 300), (70_000, 5000, 150_000), (300, 200, 100_000)]
        {
            // Miri, which interprets the test, has several chunks and buckets of these, too
            let most = if cfg!(miri) { [1000, 300, 700] } else { [u64::MAX; 3] };
            let (sources, dsts, edges) = (sources.min(most[0]), dsts.min(most[1]), edges.min(most[2]));
            // Skewed sources; some destinations without edges.
            let indices: Vec<u32> =
                (0..edges).map(|_| stream.below(1 + stream.clone().below(sources)) as u32).collect();
            let mut ends: Vec<u32> = (1..dsts).map(|_| stream.below(edges + 1) as u32).collect();
            ends.extend([0, edges as u32]);
            ends.sort_unstable();
            let mut block = Block {
                num_dst: dsts as usize,
                num_src: sources as usize,
                indptr: ends,
                indices,
                ..Block::default()
            };
            // The larger block first, so that stale entries would show.
            serial(&mut block);
            let all = block.transposed.clone();
            for wanting in [None, Some(sources.div_ceil(2) as usize), Some(1)] {
                block.grad_src = wanting;
                serial(&mut block);
                let expected = block.transposed.clone();
                let listed = all.indptr[block.num_grad_src()] as usize;
                assert_eq!(expected.indptr, all.indptr[..=block.num_grad_src()]);
                assert_eq!(
                    (&expected.dst[..], &expected.edge[..]),
                    (&all.dst[..listed], &all.edge[..listed])
                );
                for threads in [1, 3] {
                    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                    block.transposed.dst.fill(9);
                    pool.install(|| spread(&mut block));
                    let t = &block.transposed;
                    assert_eq!(
                        (&t.indptr, &t.dst, &t.edge),
                        (&expected.indptr, &expected.dst, &expected.edge)
                    );
                }
            }
        }
    }
}
