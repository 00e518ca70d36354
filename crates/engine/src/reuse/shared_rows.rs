//! Reused rows over ranks: every hot node's row is made by one rank, its owner unless that is a
//! graph store, and all ranks that train receive it.
//!
//! # Algorithm
//!
//! ```text
//!   every rank:   draw own shares of the batches ─► requests per node ─► sum over ranks ─► the same hot queue
//!                 rows of own hot nodes ─► gather over ranks ─► the same table of rows
//! ```
//!
//! The owner has the neighbours of its nodes, so it draws them without requests. Graph stores have
//! no model: the ranks that train make the rows in turns, and request the neighbours. A node counts
//! once for each share of a batch that requests it.
//!
//! # Source
//!
//! Ai et al., *NeutronOrch: Rethinking Sample-based GNN Training under CPU-GPU Heterogeneous
//! Environments*, VLDB 2024, section 4.2, with the owners of nodes in the place of the host.
//!
//! # Cost
//!
//! Each super-batch sends, to every other rank, 8 bytes for a node that a rank requests, and the
//! rows that the rank makes.

use std::ops::Range;

use graphmill_core::{Matrix, NodeId};
use graphmill_distributed::numbers::{of_words, to_words};

use super::{
    Embeddings, GatheredRows, Lookahead, RowExchange, RowMaker, RowShape, RowVersion, Slice,
    exchange::other_length,
};
use crate::{Result, learner::StepContext, stage::Loader};

impl dyn RowExchange + '_ {
    /// Gathers the rows of all ranks, of `width` values each.
    ///
    /// # Errors
    /// A rank did not take part, or has rows of another width.
    pub fn gather_rows(&self, own: &GatheredRows, width: usize) -> Result<GatheredRows> {
        let mut words = to_words([own.edges, own.nodes.len() as u64]);
        let head = words.len();
        words.extend_from_slice(&own.nodes);
        words.extend_from_slice(bytemuck::cast_slice(&own.rows));
        let mut all = GatheredRows::default();
        for (rank, words) in self.gather(&words)?.iter().enumerate() {
            let (numbers, rest) = words.split_at_checked(head).ok_or_else(|| other_length(rank))?;
            let mut numbers = of_words(numbers);
            let (edges, len) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0) as usize);
            if rest.len() != len.saturating_mul(1 + width) {
                return Err(other_length(rank));
            }
            let (nodes, rows) = rest.split_at(len);
            all.nodes.extend_from_slice(nodes);
            all.rows.extend_from_slice(bytemuck::cast_slice(rows));
            all.edges += edges;
        }
        Ok(all)
    }

    /// Makes the rows of a slice of hot `nodes`, those of each owner on its rank, and writes all of
    /// them to `rows`.
    ///
    /// # Errors
    /// As [`RowMaker::make`], or a rank did not take part.
    pub fn make(
        &self,
        maker: &mut RowMaker,
        (loader, context): (&Loader, &StepContext),
        version: RowVersion,
        (nodes, slice): (&[NodeId], Range<usize>),
        shape: &RowShape,
        rows: &mut Embeddings,
    ) -> Result<()> {
        let own: Vec<NodeId> =
            nodes[slice.clone()].iter().copied().filter(|&v| self.maker(v) == self.rank()).collect();
        let mut made = Embeddings::default();
        shape.resize(&mut made, own.len(), rows.bound);
        maker.make(loader, context, version, &own, 0, &mut made)?;
        let mut words = Vec::new();
        for part in parts(&mut made) {
            words.extend_from_slice(bytemuck::cast_slice(part.view().host()));
        }
        let received = self.gather(&words)?;
        rows.slices.push(Slice { from: slice.start, version: version.version });
        let mut places = vec![Vec::new(); received.len()];
        for (i, &v) in slice.clone().zip(&nodes[slice]) {
            places[self.maker(v)].push(i);
        }
        for (rank, (words, places)) in received.iter().zip(&places).enumerate() {
            let mut values: &[f32] = bytemuck::cast_slice(words);
            for part in parts(rows) {
                let width = part.num_cols();
                let Some((own, rest)) = values.split_at_checked(width * places.len()) else {
                    return Err(other_length(rank));
                };
                values = rest;
                let to = part.view_mut().host();
                for (row, &i) in own.chunks_exact(width.max(1)).zip(places) {
                    to[i * width..(i + 1) * width].copy_from_slice(row);
                }
            }
            if !values.is_empty() {
                return Err(other_length(rank));
            }
        }
        Ok(())
    }

    /// Replaces the counts of rows that the batches of a super-batch request and reuse by their
    /// sums over ranks. Returns the sum of `edges`.
    ///
    /// # Errors
    /// A rank did not take part.
    pub fn count(&self, ahead: &mut Lookahead, edges: u64) -> Result<u64> {
        let mut words = vec![edges as u32, (edges >> 32) as u32];
        ahead.visit_counts(&mut |counts| words.extend([counts.0 as u32, counts.1 as u32]));
        let gathered = self.gather(&words)?;
        if let Some(rank) = gathered.iter().position(|of| of.len() != words.len()) {
            return Err(other_length(rank));
        }
        let mut next = 2;
        let sum = |at: usize| gathered.iter().map(|words| u64::from(words[at])).sum();
        ahead.visit_counts(&mut |counts| {
            *counts = (sum(next), sum(next + 1));
            next += 2;
        });
        let of_rank = |words: &Vec<u32>| u64::from(words[1]) << 32 | u64::from(words[0]);
        Ok(gathered.iter().map(of_rank).sum())
    }
}

/// Tables of rows, in the order in which ranks send them.
fn parts(rows: &mut Embeddings) -> impl Iterator<Item = &mut Matrix> {
    [&mut rows.rows, &mut rows.coordinates].into_iter().chain(&mut rows.aggregates)
}
