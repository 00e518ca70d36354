//! Full ranking by blocks of candidates, for more candidates than memory holds.
//!
//! # Algorithm
//!
//! The scores of the targets come first, from products with the rows of the targets alone. Each
//! block of candidates then adds the numbers of its candidates with a larger and with an equal
//! score. A score has the same bits in any block, so the ranks are those of [`FullRanking::ranks`].
//!
//! # Source
//!
//! Ranks as in [`super::full`]; the blocks are Graphmill's own.
//!
//! # Cost
//!
//! O(Q C F), as for all candidates at once. The candidates are read once for all queries.
//!
//! # Memory
//!
//! A block of candidates, if they are mapped from a file, and a block of scores.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use graphmill_core::{NodeId, maps};

use super::full::{FullRanking, Lists, count};
use crate::{Matrix, layer::gather_rows};

/// Queries whose targets are scored at once.
const QUERIES: usize = 256;

impl FullRanking<'_> {
    /// [`FullRanking::ranks`] by blocks of `len` candidates. Candidates in a mapped file leave
    /// memory after their block.
    ///
    /// # Panics
    /// As [`FullRanking::ranks`], or `len` is below 2.
    pub fn ranks_by_blocks(&self, targets: &Lists, len: usize) -> Vec<f64> {
        assert!(len >= 2, "a product with one candidate is summed in another order");
        let candidates = self.candidates.num_rows();
        let own = self.target_scores(targets);
        let [larger, equal] = [0, 1].map(|_| own.iter().map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
        let mut start = 0;
        while start < candidates {
            // the last block has at least two candidates
            let end = if candidates - start <= len + 1 { candidates } else { start + len };
            maps::expect(self.candidates.rows(start..end).host());
            let (starts, ids) = self.excluded_within(start as u32..end as u32);
            let block = FullRanking {
                candidates: self.candidates.rows(start..end),
                nodes: [self.nodes[0], self.nodes[1].get(start..end).unwrap_or_default()],
                excluded: Lists::new(&starts, &ids),
                ..*self
            };
            block.score(&|query, scores| {
                block.excluded.of(query).1.iter().for_each(|&i| scores[i as usize] = f32::NAN);
                let (first, targets) = targets.of(query);
                for i in first..first + targets.len() {
                    let (above, beside) = count(scores, own[i]);
                    larger[i].fetch_add(above, Relaxed);
                    equal[i].fetch_add(beside, Relaxed);
                }
            });
            maps::release(block.candidates.host());
            start = end;
        }
        let mut ranks = Vec::with_capacity(own.len());
        for query in 0..self.queries.num_rows() {
            let (first, targets) = targets.of(query);
            let excluded = self.excluded.of(query).1;
            for (i, target) in (first..).zip(targets) {
                let is_left_out = excluded.contains(target);
                ranks.push(if own[i].is_nan() {
                    (candidates - excluded.len() + usize::from(is_left_out)) as f64
                } else {
                    let others = equal[i].load(Relaxed) - u64::from(!is_left_out);
                    1.0 + larger[i].load(Relaxed) as f64 + others as f64 / 2.0
                });
            }
        }
        ranks
    }

    /// Scores of the targets, with the bits that they have among all candidates.
    fn target_scores(&self, targets: &Lists) -> Vec<f32> {
        let (queries, mut scores, mut rows) = (self.queries.num_rows(), Vec::new(), Matrix::default());
        for first in (0..queries).step_by(QUERIES) {
            let block = first..queries.min(first + QUERIES);
            let mut own: Vec<u32> = block.clone().flat_map(|query| targets.of(query).1).copied().collect();
            own.sort_unstable();
            own.dedup();
            // two candidates at least, as in every block
            if let [only] = own[..] {
                own.extend((0..self.candidates.num_rows() as u32).find(|&i| i != only));
                own.sort_unstable();
            }
            let (mut starts, mut ids) = (vec![0], Vec::new());
            for query in block.clone() {
                let of = targets.of(query).1.iter();
                ids.extend(of.map(|target| own.partition_point(|id| id < target) as u32));
                starts.push(ids.len());
            }
            gather_rows(self.pass.backend, self.candidates, &own, &mut rows);
            let none = vec![0; block.len() + 1];
            let relation = self.relation.get(block.clone()).unwrap_or_default();
            let numbers = self.nodes[0].get(block.clone()).unwrap_or_default();
            let of_own = own.iter().filter_map(|&i| self.nodes[1].get(i as usize));
            let of_own: Vec<NodeId> = of_own.copied().collect();
            let ranking = FullRanking {
                queries: self.queries.rows(block),
                relation,
                candidates: rows.view(),
                nodes: [numbers, &of_own],
                excluded: Lists::new(&none, &[]),
                ..*self
            };
            scores.extend(ranking.scores(&Lists::new(&starts, &ids)));
        }
        scores
    }

    /// Candidates of a range that each query leaves out, by their places in the range.
    fn excluded_within(&self, range: std::ops::Range<u32>) -> (Vec<usize>, Vec<u32>) {
        let (mut starts, mut ids) = (vec![0], Vec::new());
        for query in 0..self.queries.num_rows() {
            let own = self.excluded.of(query).1.iter().filter(|id| range.contains(id));
            ids.extend(own.map(|id| id - range.start));
            starts.push(ids.len());
        }
        (starts, ids)
    }
}
