//! Replies with neighbours of several nodes, and the block of all replies to a request.

use graphmill_core::{Block, Error, NodeId, Result};

use crate::{messenger::HEADER, ownership::Share};

/// Words of a reply before the counts: number of edges, and whether they have weights.
pub(crate) const REPLY_WORDS: usize = 2;

/// Reply of an owner.
pub(crate) struct Answer {
    words: Vec<u32>,
    nodes: usize,
    edges: usize,
}

impl Answer {
    pub(crate) fn read(words: Vec<u32>, nodes: usize) -> Result<Self> {
        let bad = || Error::invalid("a neighbour reply differs from its declared length");
        let Some(&[edges, weighted]) = words.get(HEADER..HEADER + REPLY_WORDS) else { return Err(bad()) };
        let edges = edges as usize;
        let len = HEADER + REPLY_WORDS + nodes + if weighted == 1 { 2 * edges } else { edges };
        let ends = words.get(HEADER + REPLY_WORDS..HEADER + REPLY_WORDS + nodes).ok_or_else(bad)?;
        let sound = ends.is_sorted() && ends.last().is_none_or(|&end| end as usize == edges);
        if words.len() != len || !sound {
            return Err(bad());
        }
        Ok(Self { words, nodes, edges })
    }

    pub(crate) fn part<'a>(&'a self, share: &'a Share) -> Part<'a> {
        let (ends, rest) = self.words[HEADER + REPLY_WORDS..].split_at(self.nodes);
        let (indices, weights) = rest.split_at(self.edges);
        Part { at: &share.at, ends, indices, weights: bytemuck::cast_slice(weights) }
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
}

impl Part<'_> {
    fn runs(&self) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> + '_ {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        let runs = starts.zip(self.ends).map(|(from, &to)| from as usize..to as usize);
        self.at.iter().map(|&i| i as usize).zip(runs)
    }
}

/// Merges these parts to the block of `dst` destinations.
pub(crate) fn merge(dst: usize, parts: &[Part], block: &mut Block) -> Result<()> {
    let Block { indptr, indices, edge_weight, .. } = block;
    let edges: usize = parts.iter().map(|part| part.indices.len()).sum();
    if edges > u32::MAX as usize {
        return Err(Error::invalid(format!("a block of {edges} edges: the maximum is 2^32 - 1")));
    }
    indptr.clear();
    indptr.resize(dst + 1, 0);
    for part in parts {
        for (i, run) in part.runs() {
            indptr[i + 1] = run.len() as u32;
        }
    }
    let mut sum = 0;
    for end in indptr.iter_mut() {
        sum += *end;
        *end = sum;
    }
    let weighted = parts.iter().any(|part| !part.weights.is_empty());
    indices.clear();
    indices.resize(edges, 0);
    edge_weight.clear();
    edge_weight.resize(if weighted { edges } else { 0 }, 0.0);
    for part in parts {
        for (i, run) in part.runs() {
            let to = indptr[i] as usize..indptr[i + 1] as usize;
            if weighted {
                edge_weight[to.clone()].copy_from_slice(&part.weights[run.clone()]);
            }
            indices[to].copy_from_slice(&part.indices[run]);
        }
    }
    Ok(())
}
