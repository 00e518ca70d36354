//! Mapping from the ids in files to node numbers.

use graphmill_core::{Buffer, NodeId, Result, location::Location, memory, progress::Unit};
use rayon::prelude::*;

use super::super::{claims, splits};
use crate::external::{Edges, Rows, Scratch};

/// Mapping from ids to node numbers.
pub(super) enum Ids {
    /// Identity: an id is the node number.
    Plain(usize),
    /// Ids in use, ascending: the rank is the node number.
    Compact(Index),
}

impl Ids {
    /// Creates the identity mapping for edges whose largest id is `largest`.
    pub(super) fn plain(
        largest: Option<NodeId>,
        edges: u64,
        known: Option<usize>,
        at: &Location,
    ) -> Result<Self> {
        if let Some(nodes) = known {
            return Ok(Self::Plain(nodes));
        }
        let nodes = largest.map_or(0, |last| u64::from(last) + 1);
        // Sparse ids would create a graph of isolated nodes, and a single one could allocate all
        // memory.
        if !claims::are_plausible(nodes, edges) {
            return Err(at.error(format!(
                "the largest id is {}, but there are only {edges} edges; pass compact-ids if ids are sparse, \
                 or num-nodes",
                nodes - 1,
            )));
        }
        Ok(Self::Plain(nodes as usize))
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Plain(nodes) => *nodes,
            Self::Compact(index) => index.ids.len(),
        }
    }

    pub(super) fn number(&self, id: u64) -> Option<NodeId> {
        match self {
            Self::Plain(nodes) => (id < *nodes as u64).then_some(id).and_then(|id| id.try_into().ok()),
            Self::Compact(index) => index.number(id),
        }
    }

    /// Node numbers of a part's ids.
    pub(super) fn part(&self, ids: Vec<u64>, at: &Location) -> Result<Buffer<NodeId>> {
        let ids = match self {
            Self::Plain(_) => ids,
            Self::Compact(_) => {
                let number = |id: u64| {
                    self.number(id)
                        .map(u64::from)
                        .ok_or_else(|| at.error(format!("no edge names the node {id}")))
                };
                ids.into_iter().map(number).collect::<Result<_>>()?
            }
        };
        splits::from_ids(ids, self.len(), at)
    }
}

/// Number of ids looked up together.
const BATCH: usize = 1 << 25;

/// Edges between 64-bit ids, stored until all ids are known.
pub(super) struct Sparse {
    scratch: Scratch,
    pairs: Rows<u64>,
    /// Weights of the edges, if weighted.
    weights: Option<Rows<f32>>,
    /// Distinct ids of the previous batches, ascending.
    ids: Vec<u64>,
    batch: Vec<u64>,
    /// Number of edges processed.
    edges: u64,
}

impl Sparse {
    pub(super) fn new(scratch: &Scratch, weighted: bool) -> Result<Self> {
        let pairs = scratch.rows("pairs", 2)?;
        let weights = weighted.then(|| scratch.column("pair-weights")).transpose()?;
        Ok(Self { scratch: scratch.clone(), pairs, weights, ids: Vec::new(), batch: Vec::new(), edges: 0 })
    }

    pub(super) fn extend(&mut self, from: &[u64], to: &[u64], weight: &[f32]) -> Result<()> {
        let pairs: Vec<u64> = from.iter().zip(to).flat_map(|(&u, &v)| [u, v]).collect();
        self.pairs.extend(&pairs)?;
        if let Some(weights) = &mut self.weights {
            weights.extend(weight)?;
        }
        self.batch.extend_from_slice(&pairs);
        self.edges += from.len() as u64;
        if self.batch.len() >= BATCH { self.merge() } else { Ok(()) }
    }

    fn merge(&mut self) -> Result<()> {
        let mut batch = std::mem::take(&mut self.batch);
        batch.par_sort_unstable();
        batch.dedup();
        let mut merged = graphmill_core::memory::reserve(self.ids.len() + batch.len())?;
        let (mut a, mut b) = (self.ids.iter().peekable(), batch.iter().peekable());
        loop {
            let next = match (a.peek(), b.peek()) {
                (Some(&&x), Some(&&y)) if x < y => (a.next(), x).1,
                (Some(&&x), Some(&&y)) if x == y => (a.next(), b.next(), x).2,
                (_, Some(&&y)) => (b.next(), y).1,
                (Some(&&x), None) => (a.next(), x).1,
                (None, None) => break,
            };
            merged.push(next);
        }
        self.ids = merged;
        batch.clear();
        self.batch = batch;
        Ok(())
    }

    /// Numbers the ids in use, which must be `known` many, and passes the edges by node number to
    /// `edges`.
    pub(super) fn number(mut self, known: Option<usize>, edges: &mut Edges, at: &Location) -> Result<Ids> {
        self.merge()?;
        let (count, ids) = (self.edges, std::mem::take(&mut self.ids));
        if let Some(nodes) = known.filter(|&nodes| nodes != ids.len()) {
            return Err(at.error(format!(
                "the edges name {} different ids, but there are {nodes} nodes; compact-ids needs every node \
                 to have an edge",
                ids.len()
            )));
        }
        if ids.len() > NodeId::MAX as usize {
            return Err(at.error("more ids than 32 bits can number"));
        }
        let index = Index::new(ids)?;
        self.scratch.stage("numbering ids", Some(count), Unit::Edges);
        let pairs = self.pairs.finish()?;
        let weights = self.weights.map(Rows::finish).transpose()?.unwrap_or_default();
        let mut weights = weights.chunks(1 << 20);
        let mut done = 0;
        for piece in pairs.chunks(1 << 21) {
            // Every id is present, because the index was built from them.
            let number = |id: u64| index.number(id).unwrap_or_default();
            let (src, dst): (Vec<NodeId>, Vec<NodeId>) =
                piece.par_chunks_exact(2).map(|pair| (number(pair[0]), number(pair[1]))).unzip();
            edges.extend_weighted(&src, &dst, weights.next().unwrap_or_default())?;
            done += src.len() as u64;
            self.scratch.done(done);
        }
        Ok(Ids::Compact(index))
    }
}

/// Ascending ids with an index on their upper bits.
pub(super) struct Index {
    ids: Vec<u64>,
    shift: u32,
    starts: Vec<u32>,
}

impl Index {
    fn new(ids: Vec<u64>) -> Result<Self> {
        // About two ids per entry if they are evenly spread.
        let bits = (usize::BITS - ids.len().leading_zeros()).saturating_sub(1).clamp(1, 26);
        let most = ids.last().copied().unwrap_or(0);
        let shift = (64 - most.leading_zeros()).saturating_sub(bits);
        let mut starts = memory::reserve((most >> shift) as usize + 2)?;
        for top in 0..=(most >> shift) {
            let from = starts.last().map_or(0, |&start: &u32| start as usize);
            let more = ids[from..].iter().take_while(|&&id| id >> shift < top).count();
            starts.push((from + more) as u32);
        }
        starts.push(ids.len() as u32);
        Ok(Self { ids, shift, starts })
    }

    fn number(&self, id: u64) -> Option<NodeId> {
        let top = (id >> self.shift) as usize;
        let (from, to) = (*self.starts.get(top)?, *self.starts.get(top + 1)?);
        let place = self.ids[from as usize..to as usize].binary_search(&id).ok()?;
        Some(from + place as NodeId)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    fn compact(pairs: &[(u64, u64)], known: Option<usize>) -> Result<(Ids, Edges)> {
        let scratch = Scratch::in_memory();
        let mut sparse = Sparse::new(&scratch, false)?;
        for &(u, v) in pairs {
            sparse.extend(&[u], &[v], &[])?;
            sparse.merge()?; // as often as can be
        }
        let mut edges = Edges::default();
        let ids = sparse.number(known, &mut edges, &Location::new(Path::new("a"), "ids"))?;
        Ok((ids, edges))
    }

    #[test]
    fn node_numbers_follow_the_order_of_ids() {
        let at = Location::new(Path::new("a"), "ids");
        let plain = Ids::plain(Some(4), 2, None, &at).unwrap();
        assert_eq!((plain.len(), plain.number(3), plain.number(5)), (5, Some(3), None));
        let (compacted, edges) = compact(&[(90, 7), (7, u64::MAX)], None).unwrap();
        assert_eq!((compacted.len(), compacted.number(90), compacted.number(8)), (3, Some(1), None));
        assert_eq!(compacted.part(vec![u64::MAX, 7], &at).unwrap()[..], [0, 2]);
        assert!(compacted.part(vec![8], &at).is_err() && plain.part(vec![5], &at).is_err());
        assert_eq!(edges.build(3).unwrap().indices(), [1, 0]);
        assert!(Ids::plain(Some(u32::MAX), 1, None, &at).is_err());
        assert!(compact(&[(1, 2)], Some(3)).is_err());
        assert_eq!(compact(&[], None).unwrap().0.len(), 0);
    }

    proptest! {
        #[test]
        fn the_rank_of_an_id_is_its_node_number(
            ids in prop::collection::btree_set(prop_oneof![any::<u64>(), 0u64..200, Just(u64::MAX)], 1..150),
            others in prop::collection::vec(any::<u64>(), 20),
        ) {
            let sorted: Vec<u64> = ids.iter().copied().collect();
            let index = Index::new(sorted.clone()).unwrap();
            for id in others.into_iter().chain(sorted.clone()).chain(0..200) {
                prop_assert_eq!(index.number(id), sorted.binary_search(&id).ok().map(|i| i as u32));
            }
        }
    }
}
