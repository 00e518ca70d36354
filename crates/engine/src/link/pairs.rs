//! Scores of pairs, as a full ranking of destinations gives them.
//!
//! # Algorithm
//!
//! A full ranking multiplies the rows of queries by those of candidates, and the order of the sums
//! differs from that of a decoder's formula over one pair. Pairs are therefore scored as the
//! candidates of their sources, in small blocks, so that a pair has the same bits here and in a
//! list of best candidates.
//!
//! # Source
//!
//! None: the products of [`FullRanking`], on fewer candidates.
//!
//! # Cost
//!
//! O([`BLOCK`] F) per pair.

use std::ops::Range;

use graphmill_core::{End, NodeId, memory};
use graphmill_nn::{
    Matrix,
    layer::gather_rows,
    link::rank::full::{FullRanking, Lists},
};
use rayon::prelude::*;

use super::{Scored, split::Edge};

/// Pairs whose sources and destinations are multiplied together.
const BLOCK: usize = 64;

impl Scored<'_> {
    /// Scores of `pairs` of a relation, in their order: those of [`Scored::top`] for destinations
    /// among all `candidates`, to the bit.
    ///
    /// # Panics
    /// A node is outside the embeddings: a bug in the caller.
    pub(crate) fn as_ranked(&self, relation: u32, candidates: &Range<NodeId>, pairs: &[Edge]) -> Vec<f32> {
        let mut order: Vec<usize> = memory::demand_collect(0..pairs.len());
        order.sort_unstable_by_key(|&i| (pairs[i], i));
        let of_block = |block: &[usize]| self.of_block(relation, candidates, pairs, block);
        let blocks: Vec<Vec<f32>> = memory::demand_par_collect(order.par_chunks(BLOCK).map(of_block));
        let mut scores: Vec<f32> = memory::demand_zeros(pairs.len());
        order.iter().zip(blocks.iter().flatten()).for_each(|(&i, &score)| scores[i] = score);
        scores
    }

    /// Scores of the pairs with these numbers, which ascend by their sources.
    fn of_block(
        &self,
        relation: u32,
        candidates: &Range<NodeId>,
        pairs: &[Edge],
        block: &[usize],
    ) -> Vec<f32> {
        let mut own: Vec<NodeId> = block.iter().map(|&i| pairs[i].1).collect();
        own.sort_unstable();
        own.dedup();
        // a product with one candidate is summed in another order than with several
        if own.len() == 1 {
            let other = candidates.clone().find(|&node| node != own[0]);
            own.extend(other);
            own.sort_unstable();
        }
        let (mut sources, mut starts, mut targets) = (Vec::new(), vec![0], Vec::new());
        for query in block.chunk_by(|&a, &b| pairs[a].0 == pairs[b].0) {
            sources.push(pairs[query[0]].0);
            targets.extend(query.iter().map(|&i| own.partition_point(|&node| node < pairs[i].1) as u32));
            starts.push(targets.len());
        }
        let (mut queries, mut rows) = (Matrix::default(), Matrix::default());
        gather_rows(self.pass.backend, self.embeddings, &sources, &mut queries);
        gather_rows(self.pass.backend, self.embeddings, &own, &mut rows);
        let none = vec![0; sources.len() + 1];
        let ranking = FullRanking {
            decoder: self.decoder,
            pass: self.pass,
            end: End::Destination,
            queries: queries.view(),
            relation: &vec![relation; sources.len()],
            candidates: rows.view(),
            excluded: Lists::new(&none, &[]),
            nodes: [&sources, &own],
        };
        ranking.scores(&Lists::new(&starts, &targets))
    }
}
