//! Queries of a batch, and the distinct rows that it reads.

use graphmill_core::{End, NodeId};
use rayon::prelude::*;

/// Queries with sampled candidates: `Q` queries with `1 + K` candidates each, the true one first.
#[derive(Clone, Debug, Default)]
pub struct QueryBatch {
    /// End that the candidates of each query are, `Q`.
    pub end: Vec<End>,
    /// The other end, `Q`.
    pub fixed: Vec<NodeId>,
    /// Relation, `Q`, or empty: relation 0.
    pub relation: Vec<u32>,
    /// Candidates, `Q x (1 + K)`.
    pub candidates: Vec<NodeId>,
    /// Weight of each query, `Q`, or empty: all weights are 1.
    pub weight: Vec<f32>,
    /// Logarithm of the expected number of draws of each negative, `Q x K`, or empty: 0.
    pub log_expected: Vec<f32>,
}

impl QueryBatch {
    /// Number of queries, `Q`.
    pub fn len(&self) -> usize {
        self.fixed.len()
    }

    /// Returns true if there are no queries.
    pub fn is_empty(&self) -> bool {
        self.fixed.is_empty()
    }

    /// Number of candidates of a query, `1 + K`.
    pub fn width(&self) -> usize {
        self.candidates.len() / self.len().max(1)
    }

    /// Removes all queries and keeps the memory.
    pub fn clear(&mut self) {
        let Self { end, fixed, relation, candidates, weight, log_expected } = self;
        end.clear();
        fixed.clear();
        relation.clear();
        candidates.clear();
        weight.clear();
        log_expected.clear();
    }
}

/// Distinct rows of a batch, ascending, and the places that read each of them.
///
/// Places are numbered: the candidates `0..Q (1 + K)`, then the fixed ends.
#[derive(Clone, Debug, Default)]
pub struct Touched {
    /// Distinct rows, `R`.
    pub ids: Vec<NodeId>,
    /// Position in [`Touched::ids`] of each place.
    pub position: Vec<u32>,
    /// Range of [`Touched::places`] of each row, `R + 1`.
    starts: Vec<u32>,
    /// Places of each row, ascending.
    places: Vec<u32>,
    /// Rows with their places, in the order of both.
    keys: Vec<u64>,
}

impl Touched {
    /// Replaces the rows by those of `batch`. O(P log P) with `P` places.
    pub fn refill(&mut self, batch: &QueryBatch) {
        let Self { ids, position, starts, places, keys } = self;
        keys.clear();
        let all = batch.candidates.iter().chain(&batch.fixed);
        keys.extend((0..).zip(all).map(|(place, &id)| u64::from(id) << 32 | place));
        // distinct keys: the order does not depend on the sort
        keys.par_sort_unstable();
        ids.clear();
        starts.clear();
        places.clear();
        position.resize(keys.len(), 0);
        for (i, &key) in keys.iter().enumerate() {
            let (id, place) = ((key >> 32) as NodeId, key as u32);
            if ids.last() != Some(&id) {
                ids.push(id);
                starts.push(i as u32);
            }
            position[place as usize] = ids.len() as u32 - 1;
            places.push(place);
        }
        starts.push(keys.len() as u32);
    }

    /// Places of the row at position `i` of [`Touched::ids`], ascending.
    pub fn places(&self, i: usize) -> &[u32] {
        &self.places[self.starts[i] as usize..self.starts[i + 1] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_distinct_and_list_their_places() {
        let batch = QueryBatch {
            end: vec![End::Destination, End::Source],
            fixed: vec![7, 2],
            candidates: vec![2, 9, 7, 2],
            ..QueryBatch::default()
        };
        let mut touched = Touched::default();
        touched.refill(&batch);
        assert_eq!(touched.ids, [2, 7, 9]);
        assert_eq!(touched.position, [0, 2, 1, 0, 1, 0]);
        let places: Vec<&[u32]> = (0..3).map(|i| touched.places(i)).collect();
        assert_eq!(places, [&[0, 3, 5][..], &[2, 4], &[1]]);
        assert_eq!((batch.len(), batch.width()), (2, 2));
    }
}
