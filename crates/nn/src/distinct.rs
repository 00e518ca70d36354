//! Distinct nodes of a list.

#![forbid(unsafe_code)]

use std::collections::HashMap;

use graphmill_core::{NodeId, memory};

/// Largest number of possible nodes that have a place each, 32 MiB; more have those of a map.
const MAX_DENSE: usize = 1 << 23;

/// Distinct nodes of a list in the order of their first places, and the number of each place's node
/// among them.
#[derive(Clone, Debug, Default)]
pub struct DistinctNodes {
    nodes: Vec<NodeId>,
    numbers: Vec<NodeId>,
    /// Number of each possible node, plus 1; zeros between lists.
    number_of: Vec<NodeId>,
    /// Number of each node of the list, in the place of `number_of` if it would be large.
    in_map: HashMap<NodeId, NodeId>,
}

impl DistinctNodes {
    /// Replaces the list by `of`, nodes below `count`. O(the length of the list), after the first
    /// list of a `count`. If the system refuses memory, the thread unwinds ([`memory::demand`]).
    ///
    /// # Panics
    /// A node is not below `count`: a bug in the caller.
    pub fn list(&mut self, of: &[NodeId], count: usize) {
        self.list_by(of, count, MAX_DENSE);
    }

    /// [`DistinctNodes::list`] with a place for each node up to `most` possible nodes.
    fn list_by(&mut self, of: &[NodeId], count: usize, most: usize) {
        let Self { nodes, numbers, number_of, in_map } = self;
        nodes.clear();
        numbers.clear();
        // all memory at once: places that are taken are zero again at the end
        memory::demand(nodes, of.len());
        memory::demand(numbers, of.len());
        let mut add = |v: NodeId, number: &mut NodeId| {
            if *number == 0 {
                nodes.push(v);
                *number = nodes.len() as NodeId;
            }
            numbers.push(*number - 1);
        };
        if count > most {
            in_map.clear();
            memory::demand_in_map(in_map, of.len());
            for &v in of {
                assert!((v as usize) < count, "node {v} of {count}");
                add(v, in_map.entry(v).or_insert(0));
            }
            return;
        }
        if number_of.len() < count {
            memory::demand_len(number_of, count, 0);
        }
        of.iter().for_each(|&v| add(v, &mut number_of[v as usize]));
        nodes.iter().for_each(|&v| number_of[v as usize] = 0);
    }

    /// The distinct nodes.
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// Number of each place's node among [`DistinctNodes::nodes`].
    pub fn numbers(&self) -> &[NodeId] {
        &self.numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_numbered_by_their_first_places() {
        let mut distinct = DistinctNodes::default();
        // with a place for each node, in a map, and again
        for (count, most) in [(10, 10), (8, 10), (10, 9), (10, 9), (9, 9)] {
            distinct.list_by(&[7, 2, 7, 0, 2], count, most);
            assert_eq!((distinct.nodes(), distinct.numbers()), (&[7, 2, 0][..], &[0, 1, 0, 2, 1][..]));
            distinct.list_by(&[], count, most);
            assert!(distinct.nodes().is_empty() && distinct.numbers().is_empty());
        }
    }
}
