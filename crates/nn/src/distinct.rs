//! Distinct nodes of a list.

#![forbid(unsafe_code)]

use graphmill_core::NodeId;

/// Distinct nodes of a list in the order of their first places, and the number of each place's node
/// among them.
#[derive(Clone, Debug, Default)]
pub struct DistinctNodes {
    nodes: Vec<NodeId>,
    numbers: Vec<NodeId>,
    /// Number of each possible node, plus 1; zeros between lists.
    number_of: Vec<NodeId>,
}

impl DistinctNodes {
    /// Replaces the list by `of`, nodes below `count`. O(the length of the list), after the first
    /// list of a `count`.
    ///
    /// # Panics
    /// A node is not below `count`: a bug in the caller.
    pub fn list(&mut self, of: &[NodeId], count: usize) {
        let Self { nodes, numbers, number_of } = self;
        if number_of.len() < count {
            number_of.resize(count, 0);
        }
        nodes.clear();
        numbers.clear();
        for &v in of {
            let number = &mut number_of[v as usize];
            if *number == 0 {
                nodes.push(v);
                *number = nodes.len() as NodeId;
            }
            numbers.push(*number - 1);
        }
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
        for count in [10, 8] {
            distinct.list(&[7, 2, 7, 0, 2], count);
            assert_eq!((distinct.nodes(), distinct.numbers()), (&[7, 2, 0][..], &[0, 1, 0, 2, 1][..]));
            distinct.list(&[], count);
            assert!(distinct.nodes().is_empty() && distinct.numbers().is_empty());
        }
    }
}
