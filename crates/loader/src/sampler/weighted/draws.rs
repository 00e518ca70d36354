//! Draws of one hop by weight.

use graphmill_core::{
    Block, NodeId,
    alias::{RowAlias, Rows},
    keyed, memory,
};

use super::{
    super::{HopRequest, reservoir::reservoir, scratch::RunScratch},
    PREFETCH_DISTANCE, Weighted, Weights,
};
use crate::prefetch::prefetch;

/// Number of nodes whose reads are in flight together.
const GROUP: usize = 16;

/// Draws of one hop.
pub(super) struct Draws<'a> {
    pub(super) sampler: &'a Weighted,
    pub(super) request: &'a HopRequest<'a>,
    pub(super) fanout: usize,
    pub(super) key: u64,
}

impl Draws<'_> {
    /// Appends the neighbours of `dst`. A group of destinations prefetches its cells of the tables,
    /// then reads them and prefetches its edges, and then reads those.
    pub(super) fn draw(&self, dst: &[NodeId], scratch: &mut RunScratch, block: &mut Block) {
        let (rows, neighbors) = (self.request.graph.indptr(), self.request.graph.indices());
        let tables = self.sampler.alias.as_ref().map(RowAlias::rows);
        for first in (0..dst.len()).step_by(GROUP) {
            let next = dst[first..].iter().skip(GROUP).take(GROUP);
            next.for_each(|&v| prefetch(rows, v as usize));
            let group = &dst[first..(first + GROUP).min(dst.len())];
            scratch.positions.clear();
            match (tables, self.sampler.replace || self.fanout == usize::MAX) {
                (Some(alias), true) if self.fanout < usize::MAX => {
                    self.with_replacement(alias, group, scratch, block)
                }
                (Some(alias), false) => self.distinct(alias, group, scratch, block),
                _ => group.iter().for_each(|&v| self.without_table(v, scratch, block)),
            }
            let positions = &scratch.positions;
            positions.iter().for_each(|&e| prefetch(neighbors, e as usize));
            memory::demand(&mut block.indices, positions.len());
            block.indices.extend(positions.iter().map(|&e| neighbors[e as usize]));
        }
    }

    /// First and last position of the edges of `v`, the number of drawable ones, and the random
    /// stream.
    #[inline(always)]
    fn row(&self, v: NodeId) -> (u64, u64, usize, keyed::Stream) {
        let rows = self.request.graph.indptr();
        let (start, end) = (rows[v as usize], rows[v as usize + 1]);
        let can = self.sampler.can.as_ref().map_or((end - start) as usize, |can| can[v as usize] as usize);
        let name = u64::from(self.request.name(v)).wrapping_mul(keyed::GOLDEN);
        let stream = keyed::Stream::new(keyed::mix(self.key ^ name));
        (start, end, can, stream)
    }

    /// Positions and weights of a range of edges.
    fn weights(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, f64)> {
        let neighbors = self.request.graph.indices();
        let stored = self.request.graph.edge_weight().unwrap_or_default();
        (start..end).map(move |e| {
            let weight = match &self.sampler.weights {
                Weights::Equal(_) => 1.0,
                Weights::Stored => stored[e as usize],
                Weights::OfSource(weights) => {
                    if let Some(&ahead) = neighbors.get(e as usize + PREFETCH_DISTANCE) {
                        prefetch(weights, ahead as usize);
                    }
                    weights[neighbors[e as usize] as usize]
                }
            };
            (e, f64::from(weight))
        })
    }

    /// Draws with replacement, by alias tables.
    fn with_replacement(&self, alias: Rows, group: &[NodeId], scratch: &mut RunScratch, block: &mut Block) {
        scratch.aims.clear();
        for &v in group {
            let (start, end, can, mut stream) = self.row(v);
            let draws = if can == 0 { 0 } else { self.fanout };
            memory::demand(&mut scratch.aims, draws);
            scratch.aims.extend((0..draws).map(|_| alias.begin_draw(start, end, stream.next_u64())));
            end_row(block, draws);
        }
        memory::demand_extend(&mut scratch.positions, scratch.aims.iter().map(|&aim| alias.end_draw(aim)));
    }

    /// Draws without replacement, by alias tables.
    fn distinct(&self, alias: Rows, group: &[NodeId], scratch: &mut RunScratch, block: &mut Block) {
        let k = self.fanout;
        let by_tries = |can: usize| can > k + k / 4;
        scratch.aims.clear();
        for &v in group {
            let (start, end, can, mut stream) = self.row(v);
            if by_tries(can) {
                memory::demand(&mut scratch.aims, k);
                scratch.aims.extend((0..k).map(|_| alias.begin_draw(start, end, stream.next_u64())));
            }
        }
        let mut aims = 0;
        for &v in group {
            let (start, end, can, mut stream) = self.row(v);
            if !by_tries(can) {
                self.pass(k, can, (start, end), &mut stream, scratch);
                end_row(block, k.min(can));
                continue;
            }
            let first = scratch.positions.len();
            let max_tries = 4 * k + can / 64;
            let words = (end - start).div_ceil(64) as usize;
            if scratch.bits.len() < words {
                memory::demand_len(&mut scratch.bits, words, 0);
            }
            // nothing is refused while bits are set
            memory::demand(&mut scratch.positions, k);
            for tries in 0..max_tries {
                let word = stream.next_u64();
                let aim =
                    if tries < k { scratch.aims[aims + tries] } else { alias.begin_draw(start, end, word) };
                let e = alias.end_draw(aim);
                let (word, bit) = (&mut scratch.bits[(e - start) as usize / 64], 1 << ((e - start) % 64));
                if *word & bit == 0 {
                    *word |= bit;
                    scratch.positions.push(e);
                    if scratch.positions.len() == first + k {
                        break;
                    }
                }
            }
            aims += k;
            let missing = first + k - scratch.positions.len();
            if missing > 0 {
                let bits = &scratch.bits;
                let is_left =
                    |&(e, _): &(u64, f64)| bits[(e - start) as usize / 64] >> ((e - start) % 64) & 1 == 0;
                let rest = self.weights(start, end).filter(is_left);
                reservoir(missing, rest, &mut stream, &mut scratch.ahead);
            }
            for &e in &scratch.positions[first..] {
                scratch.bits[(e - start) as usize / 64] = 0;
            }
            if missing > 0 {
                scratch.positions.extend(scratch.ahead.drain().map(|candidate| candidate.position));
            }
            end_row(block, k);
        }
    }

    /// Draws without tables, or takes all edges.
    fn without_table(&self, v: NodeId, scratch: &mut RunScratch, block: &mut Block) {
        let (start, end, can, mut stream) = self.row(v);
        let k = self.fanout;
        if !self.sampler.replace || k == usize::MAX {
            self.pass(k, can, (start, end), &mut stream, scratch);
            return end_row(block, k.min(can));
        }
        let draws = if can == 0 { 0 } else { k };
        memory::demand(&mut scratch.positions, draws);
        if let Weights::Equal(_) = self.sampler.weights {
            scratch.positions.extend((0..draws).map(|_| start + stream.below(end - start)));
        } else if draws > 0 {
            let mut sum = 0.0;
            scratch.sums.clear();
            memory::demand(&mut scratch.sums, (end - start) as usize);
            scratch.sums.extend(self.weights(start, end).map(|(_, weight)| {
                sum += weight;
                sum
            }));
            // strictly below the sum: the first prefix sum above it is at an edge of positive
            // weight
            let limit = sum.next_down();
            scratch.positions.extend((0..draws).map(|_| {
                let at = (stream.uniform() * sum).min(limit);
                start + scratch.sums.partition_point(|&sum| sum <= at) as u64
            }));
        }
        end_row(block, draws);
    }

    /// Draws at most `k` of the `can` drawable edges of a row, without replacement, in one pass.
    fn pass(
        &self,
        k: usize,
        can: usize,
        (start, end): (u64, u64),
        stream: &mut keyed::Stream,
        scratch: &mut RunScratch,
    ) {
        memory::demand(&mut scratch.positions, k.min(can));
        if can <= k {
            let all = can as u64 == end - start;
            let edges = self.weights(start, end).filter(|&(_, weight)| weight > 0.0).map(|(e, _)| e);
            if all {
                scratch.positions.extend(start..end)
            } else {
                scratch.positions.extend(edges)
            }
            return;
        }
        reservoir(k, self.weights(start, end), stream, &mut scratch.ahead);
        scratch.positions.extend(scratch.ahead.drain().map(|candidate| candidate.position));
    }
}

/// Ends the row of a destination that has `edges` edges.
fn end_row(block: &mut Block, edges: usize) {
    let end = block.indptr[block.indptr.len() - 1].wrapping_add(edges as u32);
    block.indptr.push(end);
}
