//! Lists of candidates, one for each positive of a part of a task.

use graphmill_core::{Buffer, NodeId, search::position};

/// Nodes to rank each positive against, of any number for each.
#[derive(Clone, Debug, Default)]
pub struct CandidateLists {
    /// Start of the list of each positive among the nodes, and the number of nodes.
    pub starts: Buffer<u64>,
    /// Nodes, list by list.
    pub nodes: Buffer<NodeId>,
}

impl CandidateLists {
    /// Joins lists, in their order.
    pub fn new<L: IntoIterator<Item = NodeId>>(lists: impl IntoIterator<Item = L>) -> Self {
        let (mut starts, mut nodes) = (vec![0], Vec::new());
        for list in lists {
            nodes.extend(list);
            starts.push(nodes.len() as u64);
        }
        Self { starts: starts.into(), nodes: nodes.into() }
    }

    /// Lists of `each` nodes for every one of `count` positives.
    pub fn equal(count: usize, each: usize, nodes: Buffer<NodeId>) -> Self {
        Self { starts: (0..=count).map(|i| (i * each) as u64).collect::<Vec<_>>().into(), nodes }
    }

    /// Number of lists.
    pub fn len(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// Returns true if there are no lists.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// List of positive number `i`.
    ///
    /// # Panics
    /// There is no such list, or the starts have a [`fault`](Self::fault): a bug in the caller.
    pub fn list(&self, i: usize) -> &[NodeId] {
        &self.nodes[self.starts[i] as usize..self.starts[i + 1] as usize]
    }

    /// Length of all lists, if it is the same.
    pub fn each(&self) -> Option<usize> {
        let length = |ends: &[u64]| (ends[1] - ends[0]) as usize;
        let first = self.starts.windows(2).next().map(length)?;
        self.starts.windows(2).all(|ends| length(ends) == first).then_some(first)
    }

    /// First fault of the lists of `positives`, whose nodes are below `count`.
    pub fn fault(&self, positives: usize, count: usize) -> Option<String> {
        let (starts, total) = (&self.starts, self.nodes.len() as u64);
        if starts.len() != positives + 1 {
            return Some(format!("{} starts of lists for {positives} positives", starts.len()));
        }
        if starts[0] != 0 || starts[positives] != total {
            let message = format!("lists from {} to {} of {total} nodes", starts[0], starts[positives]);
            return Some(message);
        }
        if let Some(i) = starts.windows(2).position(|ends| ends[0] > ends[1]) {
            return Some(format!("the list of positive {i} ends before it starts"));
        }
        let at = position(&self.nodes, |&v| v as usize >= count)?;
        let positive = starts.partition_point(|&start| start <= at as u64) - 1;
        Some(format!("a node of positive {positive} is {}, but there are {count}", self.nodes[at]))
    }
}

impl PartialEq for CandidateLists {
    fn eq(&self, other: &Self) -> bool {
        self.starts[..] == other.starts[..] && self.nodes[..] == other.nodes[..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_those_that_were_joined() {
        let lists = CandidateLists::new([vec![4, 1], vec![], vec![2]]);
        assert_eq!((lists.len(), lists.list(0), lists.list(1)), (3, &[4, 1][..], &[][..]));
        assert_eq!((lists.each(), lists.fault(3, 5)), (None, None));
        let equal = CandidateLists::equal(2, 2, vec![1, 2, 3, 4].into());
        assert_eq!(equal, CandidateLists::new([[1, 2], [3, 4]]));
        assert_eq!((equal.each(), CandidateLists::default().is_empty()), (Some(2), true));
        let wrong = |starts: &[u64]| CandidateLists { starts: starts.to_vec().into(), ..lists.clone() };
        for (lists, positives, count, fault) in [
            (lists.clone(), 2, 5, "4 starts of lists for 2 positives"),
            (lists.clone(), 3, 4, "a node of positive 0 is 4, but there are 4"),
            (wrong(&[0, 2, 1, 3]), 3, 5, "positive 1 ends before it starts"),
            (wrong(&[1, 2, 2, 3]), 3, 5, "lists from 1 to 3 of 3 nodes"),
            (wrong(&[0, 2, 2, 2]), 3, 5, "lists from 0 to 2 of 3 nodes"),
        ] {
            let found = lists.fault(positives, count).unwrap();
            assert!(found.contains(fault), "{found}");
        }
    }
}
