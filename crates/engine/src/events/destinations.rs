//! Destinations of single edges, without a list of those of all.

use graphmill_core::{NodeId, maps};
use graphmill_data::typed::EdgeData;

/// Nodes that are tried one after the other for the next edge.
const NEAR: usize = 16;

/// Destinations of edges, found in steps if the edges ascend.
#[derive(Clone)]
pub(super) struct Destinations<'d> {
    indptr: &'d [u64],
    at: usize,
}

impl<'d> Destinations<'d> {
    /// Destinations of the edges of these rows.
    pub(super) fn new(indptr: &'d [u64]) -> Self {
        Self { indptr, at: 0 }
    }

    /// Destination of edge `e`, which exists. O(1) if few nodes lie between it and the last one,
    /// else O(log D).
    pub(super) fn of(&mut self, e: usize) -> NodeId {
        let (e, last) = (e as u64, self.at + NEAR);
        while self.at < last && self.indptr[self.at + 1] <= e {
            self.at += 1;
        }
        if !(self.indptr[self.at]..self.indptr[self.at + 1]).contains(&e) {
            self.at = self.indptr.partition_point(|&start| start <= e) - 1;
        }
        self.at as NodeId
    }
}

/// Takes the ends of edges in the file of the dataset out of the memory of the process, until they
/// are used again.
pub(super) fn release(edges: &EdgeData) {
    maps::release(&edges.indices);
    maps::release(&edges.indptr);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_those_of_all_edges_in_any_order() {
        // rows of 0 to 2 edges, and one behind many without any
        let mut indptr: Vec<u64> = vec![0, 0, 2, 3, 3, 5];
        indptr.extend([5; 3 * NEAR]);
        indptr.push(6);
        let last = indptr.len() as NodeId - 2;
        let expected = [1, 1, 2, 4, 4, last];
        let mut ascending = Destinations::new(&indptr);
        assert_eq!([0, 1, 2, 3, 4, 5].map(|e| ascending.of(e)), expected);
        let mut any = Destinations::new(&indptr);
        for e in [5, 0, 3, 3, 1, 5, 4, 2] {
            assert_eq!(any.of(e), expected[e], "{e}");
        }
    }
}
