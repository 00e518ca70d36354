//! Places of excluded edges in the rows of their destinations, for draws from the remaining ones.

use graphmill_core::{Graph, NodeId, memory};

use super::ExcludedEdges;

/// Appends the places in the row of node `v` of the edges from the sources of `edges`, ascending
/// ([`ExcludedEdges::sources_of`]); parallel edges have a place each. O(log d) for each edge if the
/// rows of the graph ascend, else O(d).
pub(crate) fn append_places(graph: &Graph, v: NodeId, edges: &[(NodeId, NodeId)], places: &mut Vec<usize>) {
    if edges.is_empty() {
        return;
    }
    let row = graph.in_neighbors(v);
    if graph.has_ascending_rows() {
        for &(_, u) in edges {
            let first = row.partition_point(|&other| other < u);
            let parallel = row[first..].iter().take_while(|&&other| other == u).count();
            memory::demand_extend(places, first..first + parallel);
        }
    } else {
        let is_excluded = |u: NodeId| edges.binary_search_by_key(&u, |&(_, source)| source).is_ok();
        memory::demand_extend(places, (0..row.len()).filter(|&place| is_excluded(row[place])));
    }
}

/// Place in a row of the edge of number `number` among those that remain without the edges at the
/// places `excluded`, which ascend. O(log n).
pub(crate) fn remaining_place(excluded: &[usize], number: u64) -> u64 {
    // excluded[i] - i edges remain before the excluded edge i
    let (mut low, mut high) = (0, excluded.len());
    while low < high {
        let middle = low.midpoint(high);
        if (excluded[middle] - middle) as u64 <= number { low = middle + 1 } else { high = middle }
    }
    number + low as u64
}

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
    /// Finds the places of the edges of `excluded` in the rows of `graph`. `node(i, v)` is the node
    /// that has the row of `v`, the destination of number `i` in [`ExcludedEdges::destinations`].
    pub(crate) fn new(
        excluded: &'a ExcludedEdges,
        graph: &Graph,
        node: impl Fn(usize, NodeId) -> NodeId,
    ) -> Self {
        let nodes: Vec<NodeId> = memory::demand_collect(excluded.destinations());
        let (mut ends, mut places) = (Vec::new(), Vec::new());
        memory::demand(&mut ends, nodes.len());
        for (i, &v) in nodes.iter().enumerate() {
            append_places(graph, node(i, v), excluded.sources_of(v), &mut places);
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
        remaining_place(self.of(v), number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subgraph::testing::graph_of;

    #[test]
    fn places_are_those_of_the_edges_that_are_left() {
        let unordered: [&[NodeId]; 4] = [&[3, 1, 3, 2, 0], &[], &[1, 1], &[0]];
        let ascending: [&[NodeId]; 4] = [&[0, 1, 2, 3, 3], &[], &[1, 1], &[0]];
        let mut excluded = ExcludedEdges::default();
        excluded.refill([(3, 0), (0, 0), (1, 2), (2, 3), (2, 1)]);
        for rows in [unordered, ascending] {
            let graph = graph_of(&rows);
            assert_eq!(graph.has_ascending_rows(), rows == ascending);
            let places = ExcludedPlaces::new(&excluded, &graph, |_, v| v);
            for (v, row) in (0..).zip(rows) {
                let left: Vec<NodeId> = row.iter().copied().filter(|&u| !excluded.contains(u, v)).collect();
                assert_eq!(places.left(v, row.len() as u64), left.len() as u64);
                for (number, &u) in left.iter().enumerate() {
                    assert_eq!(row[places.place(v, number as u64) as usize], u, "node {v}, number {number}");
                }
            }
        }
    }
}
