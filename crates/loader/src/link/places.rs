//! Places of excluded edges in the rows of their destinations, for draws from single edges.

use graphmill_core::NodeId;

use super::ExcludedEdges;

/// Places of the excluded edges in the rows of their destinations: a walk numbers the edges that
/// are left, and finds the place of a number, without a pass over the row.
#[derive(Debug)]
pub(crate) struct ExcludedPlaces<'a> {
    excluded: &'a ExcludedEdges,
    /// Destinations of excluded edges, ascending.
    nodes: Vec<NodeId>,
    /// End of each destination's places.
    ends: Vec<usize>,
    /// Places in the rows, ascending for each destination.
    places: Vec<usize>,
}

impl<'a> ExcludedPlaces<'a> {
    /// Finds the places of the edges of `excluded`. `row(i, v)` is the row of `v`, the destination
    /// of number `i` in [`ExcludedEdges::destinations`]. O(d log n) for each destination.
    pub(crate) fn new<'r>(
        excluded: &'a ExcludedEdges,
        mut row: impl FnMut(usize, NodeId) -> &'r [NodeId],
    ) -> Self {
        let nodes: Vec<NodeId> = excluded.destinations().collect();
        let (mut ends, mut places) = (Vec::with_capacity(nodes.len()), Vec::new());
        for (i, &v) in nodes.iter().enumerate() {
            let out = excluded.sources_of(v);
            let of_row = row(i, v).iter().enumerate();
            places.extend(of_row.filter(|(_, u)| out.binary_search(&(v, **u)).is_ok()).map(|(at, _)| at));
            ends.push(places.len());
        }
        Self { excluded, nodes, ends, places }
    }

    /// Places in the row of `v` of the edges that are excluded.
    fn of(&self, v: NodeId) -> &[usize] {
        if !self.excluded.may_reach(v) {
            return &[];
        }
        self.nodes.binary_search(&v).map_or(&[], |i| {
            let first = i.checked_sub(1).map_or(0, |before| self.ends[before]);
            &self.places[first..self.ends[i]]
        })
    }

    /// Number of edges that are left of the `degree` edges into `v`.
    pub(crate) fn left(&self, v: NodeId, degree: u64) -> u64 {
        degree - self.of(v).len() as u64
    }

    /// Place in the row of `v` of the edge of number `number` among those that are left.
    pub(crate) fn place(&self, v: NodeId, number: u64) -> u64 {
        self.of(v).iter().fold(number, |place, &out| place + u64::from(out as u64 <= place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_of_the_edges_that_are_left() {
        let rows: [&[NodeId]; 4] = [&[3, 1, 3, 2, 0], &[], &[1, 1], &[0]];
        let mut excluded = ExcludedEdges::default();
        excluded.refill([(3, 0), (0, 0), (1, 2), (2, 3)]);
        let places = ExcludedPlaces::new(&excluded, |_, v| rows[v as usize]);
        for (v, row) in (0..).zip(rows) {
            let left: Vec<NodeId> = row.iter().copied().filter(|&u| !excluded.contains(u, v)).collect();
            assert_eq!(places.left(v, row.len() as u64), left.len() as u64);
            for (number, &u) in left.iter().enumerate() {
                assert_eq!(row[places.place(v, number as u64) as usize], u, "node {v}, number {number}");
            }
        }
    }
}
