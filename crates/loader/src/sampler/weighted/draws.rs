//! The draws of one hop by weight.

use graphmill_core::{
    Block, Graph, NodeId,
    alias::{RowAlias, Rows},
    keyed,
};

use super::{
    super::{reservoir::reservoir, scratch::RunScratch},
    AHEAD, Weighted, Weights,
};
use crate::prefetch::prefetch;

/// Nodes whose reads are in flight together.
const GROUP: usize = 16;

/// One hop's draws.
pub(super) struct Draws<'a> {
    pub(super) sampler: &'a Weighted,
    pub(super) graph: &'a Graph,
    pub(super) fanout: usize,
    pub(super) key: u64,
}

impl Draws<'_> {
    /// Appends what `dst` draw. A group of destinations says where it reads in the tables, then
    /// looks there and says where it reads among the edges, then reads.
    pub(super) fn draw(&self, dst: &[NodeId], scratch: &mut RunScratch, block: &mut Block) {
        let (rows, neighbors) = (self.graph.indptr(), self.graph.indices());
        let tables = self.sampler.alias.as_ref().map(RowAlias::rows);
        for first in (0..dst.len()).step_by(GROUP) {
            let next = dst[first..].iter().skip(GROUP).take(GROUP);
            next.for_each(|&v| prefetch(rows, v as usize));
            let group = &dst[first..(first + GROUP).min(dst.len())];
            scratch.positions.clear();
            match (tables, self.sampler.replace || self.fanout == usize::MAX) {
                (Some(alias), true) if self.fanout < usize::MAX => self.again(alias, group, scratch, block),
                (Some(alias), false) => self.distinct(alias, group, scratch, block),
                _ => group.iter().for_each(|&v| self.without_table(v, scratch, block)),
            }
            let positions = &scratch.positions;
            positions.iter().for_each(|&e| prefetch(neighbors, e as usize));
            block.indices.extend(positions.iter().map(|&e| neighbors[e as usize]));
        }
    }

    /// The positions of the edges of `v`, how many of them can be drawn, and its random numbers.
    #[inline(always)]
    fn row(&self, v: NodeId) -> (u64, u64, usize, keyed::Stream) {
        let rows = self.graph.indptr();
        let (start, end) = (rows[v as usize], rows[v as usize + 1]);
        let can = self.sampler.can.as_ref().map_or((end - start) as usize, |can| can[v as usize] as usize);
        let stream = keyed::Stream::new(keyed::mix(self.key ^ u64::from(v).wrapping_mul(keyed::GOLDEN)));
        (start, end, can, stream)
    }

    /// What the edges at these positions weigh.
    fn weights(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, f64)> {
        let neighbors = self.graph.indices();
        let stored = self.graph.edge_weight().unwrap_or_default();
        (start..end).map(move |e| {
            let weight = match &self.sampler.weights {
                Weights::Equal(_) => 1.0,
                Weights::Stored => stored[e as usize],
                Weights::OfSource(weights) => {
                    if let Some(&ahead) = neighbors.get(e as usize + AHEAD) {
                        prefetch(weights, ahead as usize);
                    }
                    weights[neighbors[e as usize] as usize]
                }
            };
            (e, f64::from(weight))
        })
    }

    /// With replacement, by alias tables.
    fn again(&self, alias: Rows, group: &[NodeId], scratch: &mut RunScratch, block: &mut Block) {
        scratch.aims.clear();
        for &v in group {
            let (start, end, can, mut stream) = self.row(v);
            let draws = if can == 0 { 0 } else { self.fanout };
            scratch.aims.extend((0..draws).map(|_| alias.aim(start, end, stream.next_u64())));
            end_row(block, draws);
        }
        scratch.positions.extend(scratch.aims.iter().map(|&aim| alias.settle(aim)));
    }

    /// Without replacement, by alias tables.
    fn distinct(&self, alias: Rows, group: &[NodeId], scratch: &mut RunScratch, block: &mut Block) {
        let k = self.fanout;
        let by_tries = |can: usize| can > k + k / 4;
        scratch.aims.clear();
        for &v in group {
            let (start, end, can, mut stream) = self.row(v);
            if by_tries(can) {
                scratch.aims.extend((0..k).map(|_| alias.aim(start, end, stream.next_u64())));
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
            let most = 4 * k + can / 64;
            let words = (end - start).div_ceil(64) as usize;
            if scratch.bits.len() < words {
                scratch.bits.resize(words, 0);
            }
            for tries in 0..most {
                let word = stream.next_u64();
                let aim = if tries < k { scratch.aims[aims + tries] } else { alias.aim(start, end, word) };
                let e = alias.settle(aim);
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

    /// Without tables, or all there are.
    fn without_table(&self, v: NodeId, scratch: &mut RunScratch, block: &mut Block) {
        let (start, end, can, mut stream) = self.row(v);
        let k = self.fanout;
        if !self.sampler.replace || k == usize::MAX {
            self.pass(k, can, (start, end), &mut stream, scratch);
            return end_row(block, k.min(can));
        }
        let draws = if can == 0 { 0 } else { k };
        if let Weights::Equal(_) = self.sampler.weights {
            scratch.positions.extend((0..draws).map(|_| start + stream.below(end - start)));
        } else if draws > 0 {
            let mut sum = 0.0;
            scratch.sums.clear();
            scratch.sums.extend(self.weights(start, end).map(|(_, weight)| {
                sum += weight;
                sum
            }));
            // below the sum: the first that is larger then stands at an edge that weighs something
            let most = sum.next_down();
            scratch.positions.extend((0..draws).map(|_| {
                let at = (stream.uniform() * sum).min(most);
                start + scratch.sums.partition_point(|&sum| sum <= at) as u64
            }));
        }
        end_row(block, draws);
    }

    /// At most `k` of the `can` of a row that can be drawn, without replacement, in one pass.
    fn pass(
        &self,
        k: usize,
        can: usize,
        (start, end): (u64, u64),
        stream: &mut keyed::Stream,
        scratch: &mut RunScratch,
    ) {
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

/// Ends the row of a destination with so many edges.
fn end_row(block: &mut Block, edges: usize) {
    let end = block.indptr[block.indptr.len() - 1].wrapping_add(edges as u32);
    block.indptr.push(end);
}
