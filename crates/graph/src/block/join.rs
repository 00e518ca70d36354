//! The edges among some nodes of a symmetric graph, found at one of their ends.

use super::{Block, Induce, induce::ahead};
use crate::{Error, NodeId, Oriented, Result};

/// A neighbour within the subgraph, alone or with its edge's number: ordered by the neighbour.
pub(super) trait Entry: Copy + Ord + Default {
    fn new(local: u32, number: u32) -> Self;
    fn local(self) -> u32;
    fn number(self) -> u32;
}

impl Entry for u32 {
    #[inline(always)]
    fn new(local: u32, _: u32) -> Self {
        local
    }

    #[inline(always)]
    fn local(self) -> u32 {
        self
    }

    fn number(self) -> u32 {
        0
    }
}

impl Entry for u64 {
    #[inline(always)]
    fn new(local: u32, number: u32) -> Self {
        u64::from(local) << 32 | u64::from(number)
    }

    #[inline(always)]
    fn local(self) -> u32 {
        (self >> 32) as u32
    }

    #[inline(always)]
    fn number(self) -> u32 {
        self as u32
    }
}

/// What a block's rows are joined from; kept from subgraph to subgraph.
#[derive(Clone, Debug, Default)]
pub(super) struct Halves<T> {
    /// The neighbours in each node's own row, and where each row ends.
    own: Vec<T>,
    own_ends: Vec<u32>,
    /// The nodes whose rows have it, ascending, and where each list ends.
    other: Vec<T>,
    other_ends: Vec<u32>,
    /// Both, where they are not joined in the block itself.
    joined: Vec<T>,
}

impl Induce {
    /// As [`Induce::block`] of the symmetric graph that `graph` was made from: the same block, by reading its nodes' rows in `graph` alone. An edge
    /// that is found costs some 4 ns more, a neighbour that need not be looked at saves 2: see [`pays`]. O(rows of the nodes in `graph` + edges).
    ///
    /// # Errors
    /// There are more edges than a block's 32-bit positions can number; the block is then undefined.
    pub fn symmetric_block(&mut self, graph: &Oriented, nodes: &[NodeId], block: &mut Block) -> Result<()> {
        let mut halves = std::mem::take(&mut self.plain);
        let mut indices = std::mem::take(&mut block.indices);
        let joined = self.join(graph, nodes, block, &mut halves, &mut indices, |_| 0);
        (self.plain, block.indices) = (halves, indices);
        joined
    }

    /// The same, and tells `each` what `of`, which is by the positions of `graph`, has for every edge, in the order of the block's edges.
    ///
    /// # Errors
    /// As [`Induce::symmetric_block`].
    pub fn numbered_block(
        &mut self,
        graph: &Oriented,
        of: &[u32],
        nodes: &[NodeId],
        block: &mut Block,
        each: impl FnMut(u32),
    ) -> Result<()> {
        let mut halves = std::mem::take(&mut self.numbered);
        let mut all = std::mem::take(&mut halves.joined);
        let joined = self.join(graph, nodes, block, &mut halves, &mut all, |at| of[at]);
        if joined.is_ok() {
            block.indices.extend(all.iter().map(|entry| entry.local()));
            all.iter().map(|entry| entry.number()).for_each(each);
        }
        halves.joined = all;
        self.numbered = halves;
        joined
    }

    /// The position in `graph` of every edge among `nodes` (distinct), once. O(rows of the nodes in `graph`).
    pub fn each_edge(&mut self, graph: &Oriented, nodes: &[NodeId], mut each: impl FnMut(u64)) {
        self.enter(graph.num_nodes(), nodes);
        let mut kept = std::mem::take(&mut self.kept);
        self.rows(graph, nodes, &mut kept, |_, start, _, offsets| {
            offsets.iter().for_each(|&offset| each(start + u64::from(offset)));
        });
        self.kept = kept;
        self.leave(nodes);
    }

    /// Calls `each` for every node with its number, where its row begins, the row, and where in it the neighbours that are inside stand.
    #[inline(always)]
    fn rows(
        &self,
        graph: &Oriented,
        nodes: &[NodeId],
        kept: &mut Vec<u32>,
        mut each: impl FnMut(u32, u64, &[NodeId], &[u32]),
    ) {
        let (indptr, indices) = (graph.indptr(), graph.indices());
        for (i, &v) in nodes.iter().enumerate() {
            ahead(indptr, indices, nodes, i);
            let (start, end) = (indptr[v as usize], indptr[v as usize + 1]);
            let row = &indices[start as usize..end as usize];
            if kept.len() < row.len() {
                kept.resize(row.len(), 0);
            }
            let n = self.keep(row, kept);
            each(i as u32, start, row, &kept[..n]);
        }
    }

    /// The block but for its neighbours, which `joined` gets.
    fn join<T: Entry>(
        &mut self,
        graph: &Oriented,
        nodes: &[NodeId],
        block: &mut Block,
        halves: &mut Halves<T>,
        joined: &mut Vec<T>,
        number: impl Fn(usize) -> u32,
    ) -> Result<()> {
        block.clear();
        (block.num_dst, block.num_src) = (nodes.len(), nodes.len());
        let Halves { own, own_ends, other, other_ends, .. } = halves;
        own_ends.clear();
        other_ends.clear();
        other_ends.resize(nodes.len() + 1, 0);
        self.enter(graph.num_nodes(), nodes);
        let mut kept = std::mem::take(&mut self.kept);
        let (local, mut found) = (&self.local[..], 0);
        self.rows(graph, nodes, &mut kept, |i, start, row, offsets| {
            if own.len() < found + offsets.len() {
                own.resize((2 * own.len()).max(found + offsets.len()), T::default());
            }
            for (slot, &offset) in own[found..].iter_mut().zip(offsets) {
                let neighbor = local[row[offset as usize] as usize];
                // a loop is in its own row alone
                other_ends[neighbor as usize + 1] += u32::from(neighbor != i);
                *slot = T::new(neighbor, number(start as usize + offset as usize));
            }
            found += offsets.len();
            own_ends.push(found as u32);
        });
        self.kept = kept;
        self.leave(nodes);
        if found > u32::MAX as usize / 2 {
            return Err(Error::invalid("a subgraph of 2^32 edges or more: draw smaller ones"));
        }

        // a counting sort by neighbour; `other_ends[i]` is the cursor of `i`, and in the end where its list ends
        for i in 0..nodes.len() {
            other_ends[i + 1] += other_ends[i];
        }
        let others = other_ends[nodes.len()] as usize;
        // every place is written below, and of `joined`
        other.resize(others.max(other.len()), T::default());
        let mut start = 0;
        for (i, &end) in (0..).zip(own_ends.iter()) {
            for entry in &own[start..end as usize] {
                if entry.local() != i {
                    let slot = &mut other_ends[entry.local() as usize];
                    other[*slot as usize] = T::new(i, entry.number());
                    *slot += 1;
                }
            }
            start = end as usize;
        }

        joined.resize(found + others, T::default());
        block.indptr.push(0);
        let (mut a, mut b, mut rest) = (0, 0, &mut joined[..]);
        for (&own_end, &other_end) in own_ends.iter().zip(other_ends.iter()) {
            let (left, right) = (&own[a..own_end as usize], &other[b..other_end as usize]);
            (a, b) = (own_end as usize, other_end as usize);
            let row;
            (row, rest) = rest.split_at_mut(left.len() + right.len());
            merge(left, right, row);
            block.indptr.push((a + b) as u32);
        }
        Ok(())
    }
}

/// Whether [`Induce::symmetric_block`] is faster than [`Induce::block`] for subgraphs with so many `edges`, whose nodes have `whole`
/// neighbours in the graph and `own` in the oriented one.
pub fn pays(whole: u64, own: u64, edges: u64) -> bool {
    whole.saturating_sub(own) > 3 * edges
}

/// Overwrites `out` with the entries of both, ascending; no neighbour is in both.
///
/// From both ends at once: the next one hangs on the last one's comparison, and two such chains take no longer than one.
#[inline(always)]
fn merge<T: Entry>(mut left: &[T], mut right: &[T], mut out: &mut [T]) {
    loop {
        let sure = left.len().min(right.len());
        if sure == 0 {
            out.copy_from_slice(if left.is_empty() { right } else { left });
            return;
        }
        // neither end runs out in so many steps
        let (front, rest) = out.split_at_mut(sure);
        let middle = rest.len() - sure;
        let (inner, back) = rest.split_at_mut(middle);
        let (mut i, mut j, mut k, mut l) = (0, 0, left.len() - 1, right.len() - 1);
        // which is less is a coin toss to a branch
        for (first, last) in front.iter_mut().zip(back.iter_mut().rev()) {
            let (a, b, c, d) = (left[i], right[j], left[k], right[l]);
            *first = a.min(b);
            *last = c.max(d);
            let (less, more) = (usize::from(a < b), usize::from(c > d));
            i += less;
            j += 1 - less;
            k = k.wrapping_sub(more);
            l = l.wrapping_sub(1 - more);
        }
        (left, right, out) = (&left[i..k.wrapping_add(1)], &right[j..l.wrapping_add(1)], inner);
    }
}
