//! Distinct nodes of a list.

#![forbid(unsafe_code)]

use graphmill_core::{NodeId, keyed::GOLDEN, memory};

/// Largest number of possible nodes that have a place each, 32 MiB; more have slots of a hash
/// table.
const MAX_DENSE: usize = 1 << 23;

/// Distinct nodes of a list in the order of their first places, and the number of each place's node
/// among them.
#[derive(Clone, Debug, Default)]
pub struct DistinctNodes {
    nodes: Vec<NodeId>,
    numbers: Vec<NodeId>,
    /// Number of each possible node, plus 1; zeros between lists.
    number_of: Vec<NodeId>,
    /// Hash table of the numbers of the list's nodes, plus 1, in the place of `number_of` if that
    /// would be large: open addressing, half of the slots or more are 0.
    slots: Vec<NodeId>,
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
        let Self { nodes, numbers, number_of, slots } = self;
        nodes.clear();
        numbers.clear();
        // all memory at once: places that are taken are zero again at the end
        memory::demand(nodes, of.len());
        memory::demand(numbers, of.len());
        if count > most {
            let len = (2 * of.len()).next_power_of_two().max(2);
            slots.clear();
            memory::demand_len(slots, len, 0);
            let (mask, shift) = (len - 1, u64::BITS - len.ilog2());
            for &v in of {
                assert!((v as usize) < count, "node {v} of {count}");
                let mut slot = (u64::from(v).wrapping_mul(GOLDEN) >> shift) as usize;
                while slots[slot] != 0 && nodes[slots[slot] as usize - 1] != v {
                    slot = (slot + 1) & mask;
                }
                add(v, &mut slots[slot], nodes, numbers);
            }
            return;
        }
        if number_of.len() < count {
            memory::demand_len(number_of, count, 0);
        }
        of.iter().for_each(|&v| add(v, &mut number_of[v as usize], nodes, numbers));
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

/// Appends a place of node `v`, whose number plus 1 is `number`; 0 if the node is new.
#[inline]
fn add(v: NodeId, number: &mut NodeId, nodes: &mut Vec<NodeId>, numbers: &mut Vec<NodeId>) {
    if *number == 0 {
        nodes.push(v);
        *number = nodes.len() as NodeId;
    }
    numbers.push(*number - 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_numbered_by_their_first_places() {
        let mut distinct = DistinctNodes::default();
        // with a place for each node, in a hash table, and again
        for (count, most) in [(10, 10), (8, 10), (10, 9), (10, 9), (9, 9)] {
            distinct.list_by(&[7, 2, 7, 0, 2], count, most);
            assert_eq!((distinct.nodes(), distinct.numbers()), (&[7, 2, 0][..], &[0, 1, 0, 2, 1][..]));
            distinct.list_by(&[], count, most);
            assert!(distinct.nodes().is_empty() && distinct.numbers().is_empty());
        }
    }

    #[test]
    fn a_hash_table_numbers_nodes_as_places_do() {
        let mut distinct = [DistinctNodes::default(), DistinctNodes::default()];
        for len in [0, 1, 2, 3, 64, 1000] {
            // a third of the nodes repeat, and neighbours share slots
            let list: Vec<NodeId> = (0..len).map(|i| i * 7919 % 997 * 3 % 1500).collect();
            distinct[0].list_by(&list, 1500, 1500);
            distinct[1].list_by(&list, 1500, 0);
            let [expected, found] = &distinct;
            assert_eq!((found.nodes(), found.numbers()), (expected.nodes(), expected.numbers()), "{len}");
        }
    }
}
