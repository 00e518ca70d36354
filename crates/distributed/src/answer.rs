//! Replies with neighbours of several nodes, and the block of all replies to a request.

#![forbid(unsafe_code)]

use graphmill_core::{Block, Error, NodeId, Result, memory};

use crate::{messenger::HEADER, ownership::Share};

/// Words of a reply before the counts: number of edges, and the arrays that follow their sources.
pub(crate) const REPLY_WORDS: usize = 2;

/// Bits of those arrays.
pub(crate) mod has {
    pub(crate) const WEIGHTS: u32 = 1;
    pub(crate) const POSITIONS: u32 = 2;
    /// Two words for each edge.
    pub(crate) const TIMES: u32 = 4;
}

/// Checks that the nodes of a reply are those of a graph of `count` nodes.
///
/// # Errors
/// A node is outside the graph.
pub(crate) fn check_nodes(ids: &[NodeId], count: usize) -> Result<()> {
    match ids.iter().max() {
        Some(&largest) if largest as usize >= count => Err(Error::invalid(format!(
            "a reply names node {largest}, and the graph has {count} nodes; use the same partition and build \
             on all ranks"
        ))),
        _ => Ok(()),
    }
}

/// Reply of an owner.
pub(crate) struct Answer {
    words: Vec<u32>,
    arrays: u32,
    nodes: usize,
    edges: usize,
}

impl Answer {
    /// Reads a reply for `nodes` nodes, whose neighbours are nodes below `count`.
    ///
    /// # Errors
    /// The words are not such a reply.
    pub(crate) fn read(words: Vec<u32>, nodes: usize, count: usize) -> Result<Self> {
        let bad = || Error::invalid("a neighbour reply differs from its declared length");
        let Some(&[edges, arrays]) = words.get(HEADER..HEADER + REPLY_WORDS) else { return Err(bad()) };
        let edges = edges as usize;
        let of = |bit: u32, words: usize| if arrays & bit > 0 { words * edges } else { 0 };
        let columns = edges + of(has::WEIGHTS, 1) + of(has::POSITIONS, 1) + of(has::TIMES, 2);
        let len = HEADER + REPLY_WORDS + nodes + columns;
        let ends = words.get(HEADER + REPLY_WORDS..HEADER + REPLY_WORDS + nodes).ok_or_else(bad)?;
        let sound = ends.is_sorted() && ends.last().is_none_or(|&end| end as usize == edges);
        if words.len() != len || !sound {
            return Err(bad());
        }
        let first = HEADER + REPLY_WORDS + nodes;
        check_nodes(&words[first..first + edges], count)?;
        Ok(Self { words, arrays, nodes, edges })
    }

    pub(crate) fn part<'a>(&'a self, share: &'a Share) -> Part<'a> {
        let (ends, rest) = self.words[HEADER + REPLY_WORDS..].split_at(self.nodes);
        let (indices, rest) = rest.split_at(self.edges);
        let words = |bit: u32| if self.arrays & bit > 0 { self.edges } else { 0 };
        let (weights, rest) = rest.split_at(words(has::WEIGHTS));
        let (positions, times) = rest.split_at(words(has::POSITIONS));
        let (weights, times) = (bytemuck::cast_slice(weights), bytemuck::cast_slice(times));
        Part { at: &share.at, ends, indices, weights, positions, times }
    }
}

/// Edges of some destinations.
pub(crate) struct Part<'a> {
    /// Numbers of the destinations.
    pub(crate) at: &'a [u32],
    /// End of each destination's edges.
    pub(crate) ends: &'a [u32],
    pub(crate) indices: &'a [NodeId],
    /// Weights of the edges, or empty.
    pub(crate) weights: &'a [f32],
    /// Numbers of the edges over all ranks, or empty.
    pub(crate) positions: &'a [u32],
    /// Times of the edges, the lower words first, or empty.
    pub(crate) times: &'a [[u32; 2]],
}

impl Part<'_> {
    fn runs(&self) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> + '_ {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        let runs = starts.zip(self.ends).map(|(from, &to)| from as usize..to as usize);
        self.at.iter().map(|&i| i as usize).zip(runs)
    }
}

/// Edges of all destinations, overwritten.
pub(crate) struct Merged<'a> {
    /// Edge range of each destination, `D + 1`.
    pub(crate) indptr: &'a mut Vec<u32>,
    pub(crate) indices: &'a mut Vec<NodeId>,
    /// Weights of the edges; empty if no part has any.
    pub(crate) weights: &'a mut Vec<f32>,
    /// Numbers of the edges over all ranks, if they are asked for.
    pub(crate) positions: Option<&'a mut Vec<u64>>,
    /// Times of the edges, if they are asked for.
    pub(crate) times: Option<&'a mut Vec<i64>>,
}

impl<'a> Merged<'a> {
    /// Edges of a block.
    pub(crate) fn of(block: &'a mut Block, positions: Option<&'a mut Vec<u64>>) -> Self {
        let Block { indptr, indices, edge_weight: weights, .. } = block;
        Self { indptr, indices, weights, positions, times: None }
    }

    /// Merges the edges of these parts, of `dst` destinations. Unwinds as [`memory::demand`] if the
    /// system refuses the memory.
    ///
    /// # Errors
    /// There are more edges than 32-bit positions can number, or a part lacks a column that is
    /// asked for.
    pub(crate) fn fill(mut self, dst: usize, parts: &[Part]) -> Result<()> {
        let edges: usize = parts.iter().map(|part| part.indices.len()).sum();
        if edges > u32::MAX as usize {
            return Err(Error::invalid(format!("a block of {edges} edges: the maximum is 2^32 - 1")));
        }
        let is_complete = |part: &Part| {
            (self.positions.is_none() || part.positions.len() == part.indices.len())
                && (self.times.is_none() || part.times.len() == part.indices.len())
        };
        if !parts.iter().all(is_complete) {
            return Err(Error::invalid(
                "a neighbour reply lacks a column; use the same build and options on all ranks",
            ));
        }
        self.fill_ends(dst, parts);
        let weighted = parts.iter().any(|part| !part.weights.is_empty());
        refill(self.indices, edges);
        refill(self.weights, if weighted { edges } else { 0 });
        self.positions.iter_mut().for_each(|positions| refill(positions, edges));
        self.times.iter_mut().for_each(|times| refill(times, edges));
        for part in parts {
            for (i, run) in part.runs() {
                let to = self.indptr[i] as usize..self.indptr[i + 1] as usize;
                if weighted {
                    self.weights[to.clone()].copy_from_slice(&part.weights[run.clone()]);
                }
                if let Some(positions) = &mut self.positions {
                    let numbers = positions[to.clone()].iter_mut().zip(&part.positions[run.clone()]);
                    numbers.for_each(|(to, &number)| *to = number.into());
                }
                if let Some(times) = &mut self.times {
                    let words = times[to.clone()].iter_mut().zip(&part.times[run.clone()]);
                    words.for_each(|(to, &words)| *to = time_of(words));
                }
                self.indices[to].copy_from_slice(&part.indices[run]);
            }
        }
        Ok(())
    }

    /// Writes the edge range of each destination.
    fn fill_ends(&mut self, dst: usize, parts: &[Part]) {
        refill(self.indptr, dst + 1);
        for part in parts {
            for (i, run) in part.runs() {
                self.indptr[i + 1] = run.len() as u32;
            }
        }
        let mut sum = 0;
        for end in self.indptr.iter_mut() {
            sum += *end;
            *end = sum;
        }
    }
}

/// Resizes a vector to `len` zeros. Unwinds as [`memory::demand`].
fn refill<T: Clone + Default>(vec: &mut Vec<T>, len: usize) {
    vec.clear();
    memory::demand_len(vec, len, T::default());
}

/// Words of a time, the lower first.
pub(crate) fn words_of_time(time: i64) -> [u32; 2] {
    [time as u32, (time >> 32) as u32]
}

/// The time of its words.
pub(crate) fn time_of([low, high]: [u32; 2]) -> i64 {
    i64::from(high as i32) << 32 | i64::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reply with two edges of the first of two nodes and one of the second.
    fn reply(indices: [u32; 3]) -> Vec<u32> {
        [vec![0; HEADER], vec![3, 0], vec![2, 3], indices.to_vec()].concat()
    }

    #[test]
    fn neighbours_outside_of_the_graph_are_refused() {
        let share = Share { ids: vec![4, 7], at: vec![0, 1] };
        let answer = Answer::read(reply([8, 0, 9]), 2, 10).unwrap();
        assert_eq!(answer.part(&share).indices, [8, 0, 9]);
        for bad in [[8, 0, 10], [u32::MAX, 0, 1]] {
            let error = Answer::read(reply(bad), 2, 10).err().unwrap().to_string();
            let largest = bad.into_iter().max().unwrap();
            assert!(error.starts_with(&format!("a reply names node {largest}, and the graph")), "{error}");
        }
        // the numbers behind the neighbours are not nodes
        let numbered = [vec![0; HEADER], vec![1, has::POSITIONS], vec![1], vec![3, 99]].concat();
        assert!(Answer::read(numbered, 1, 10).is_ok());
        assert!(Answer::read(reply([0; 3])[..HEADER + 6].to_vec(), 2, 10).is_err());
    }
}
