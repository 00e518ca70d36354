//! From supervision edges to the seeds of minibatches.

use std::{iter::repeat_n, ops::Range, sync::Arc};

use graphmill_core::{End, Error, NodeId, Result, keyed::key, memory};

use super::{
    LinkBatch,
    known::KnownEdges,
    lists::NegativeLists,
    negatives::{NegativeRequest, NegativeSampler, NegativeSource, TABLE},
    walks::Walks,
};
use crate::{BatchKey, Seeds};

/// Part of the key of negatives.
const NEGATIVES: u64 = 0x6e65_6761_7469_7665;

/// Ends that negatives replace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Corrupt {
    /// The destination of every negative.
    #[default]
    Destination,
    /// The source of every negative.
    Source,
    /// The destination of the first negative of an edge, the source of the second, and so on.
    Both,
}

/// Edges that the blocks of a batch leave out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exclude {
    /// None: the graph does not hold the supervision edges.
    Nothing,
    /// The batch's positives.
    Edges,
    /// The batch's positives and their reverses.
    #[default]
    WithReverses,
}

/// Edges to learn, and the rules by which batches are made of them.
#[derive(Clone)]
pub struct LinkSource {
    /// Source and destination of each supervision edge.
    pub edges: Arc<[(NodeId, NodeId)]>,
    /// Relation of each supervision edge, or empty: there is one.
    pub relations: Arc<[u32]>,
    /// Latest time from which a negative of each supervision edge may exist, or empty: any.
    pub latest: Arc<[i64]>,
    /// Edges that are no negatives.
    pub known: Arc<KnownEdges>,
    /// Nodes that may replace a source, and those that may replace a destination.
    pub candidates: [Range<NodeId>; 2],
    /// Number of negatives of each positive, `K`.
    pub num_negatives: usize,
    /// Ends that negatives replace.
    pub corrupt: Corrupt,
    /// Edges that blocks leave out.
    pub exclude: Exclude,
    /// Walks whose pairs of nodes are the positives in the place of `edges`, if any: the numbers
    /// that [`LinkSource::fill`] takes are those of walks.
    pub walks: Option<Arc<Walks>>,
    /// Samplers of sources and of destinations.
    samplers: [Arc<dyn NegativeSampler>; 2],
}

impl LinkSource {
    /// Creates the source of `edges`, which are among the known ones or not, with one negative for
    /// each, drawn by the row `negatives` of [`TABLE`]: its destination is any node.
    ///
    /// # Errors
    /// The row is unknown, or has nothing to draw.
    pub fn new(
        edges: impl Into<Arc<[(NodeId, NodeId)]>>,
        known: Arc<KnownEdges>,
        negatives: &str,
    ) -> Result<Self> {
        let all = 0..known.num_nodes() as NodeId;
        Self::with_candidates(edges, known, negatives, [all.clone(), all])
    }

    /// [`LinkSource::new`] with the nodes that may be sources and destinations of negatives.
    ///
    /// # Errors
    /// As [`LinkSource::new`].
    pub fn with_candidates(
        edges: impl Into<Arc<[(NodeId, NodeId)]>>,
        known: Arc<KnownEdges>,
        negatives: &str,
        candidates: [Range<NodeId>; 2],
    ) -> Result<Self> {
        Self::with_times(edges, known, negatives, candidates, None)
    }

    /// [`LinkSource::new`] with the lists that negatives are drawn from, if `negatives` needs some.
    ///
    /// # Errors
    /// As [`LinkSource::new`].
    pub fn with_lists(
        edges: impl Into<Arc<[(NodeId, NodeId)]>>,
        known: Arc<KnownEdges>,
        negatives: &str,
        lists: Option<&Arc<NegativeLists>>,
    ) -> Result<Self> {
        let all = 0..known.num_nodes() as NodeId;
        Self::with_all(edges, known, negatives, [all.clone(), all], (None, lists))
    }

    /// [`LinkSource::with_candidates`] with the time from which each node exists (`V`), for
    /// negatives that exist at the time of their edge. Set [`LinkSource::latest`] to these times.
    ///
    /// # Errors
    /// As [`LinkSource::new`].
    pub fn with_times(
        edges: impl Into<Arc<[(NodeId, NodeId)]>>,
        known: Arc<KnownEdges>,
        negatives: &str,
        candidates: [Range<NodeId>; 2],
        node_time: Option<&[i64]>,
    ) -> Result<Self> {
        Self::with_all(edges, known, negatives, candidates, (node_time, None))
    }

    fn with_all(
        edges: impl Into<Arc<[(NodeId, NodeId)]>>,
        known: Arc<KnownEdges>,
        negatives: &str,
        candidates: [Range<NodeId>; 2],
        (node_time, lists): (Option<&[i64]>, Option<&Arc<NegativeLists>>),
    ) -> Result<Self> {
        let make = TABLE.find(negatives)?.make.make;
        let sampler = |end: End| -> Result<Arc<dyn NegativeSampler>> {
            let candidates = &candidates[end as usize];
            Ok(make(&NegativeSource { known: &*known, end, candidates, node_time, lists })?.into())
        };
        let samplers = [sampler(End::Source)?, sampler(End::Destination)?];
        Ok(Self {
            edges: edges.into(),
            relations: Arc::default(),
            latest: Arc::default(),
            known,
            candidates,
            num_negatives: 1,
            corrupt: Corrupt::default(),
            exclude: Exclude::default(),
            walks: None,
            samplers,
        })
    }

    /// Makes the seeds of a batch of the edges, or walks, with these numbers: both ends of the
    /// edges and of their negatives, in first-seen order. A pure function of the key and the
    /// numbers, independent of the number of threads.
    ///
    /// # Errors
    /// A number is not below that of the edges or walks, or an edge has no negative.
    pub fn fill(&self, batch: BatchKey, numbers: &[NodeId], mut seeds: Seeds) -> Result<Seeds> {
        let mut links = seeds.links.take().unwrap_or_default();
        seeds = seeds.refill(batch.batch, []);
        links.clear();
        let edge = |&number: &NodeId| {
            self.edges.get(number as usize).copied().ok_or_else(|| {
                Error::invalid(format!("edge {number} of {} supervision edges", self.edges.len()))
            })
        };
        let positives = match &self.walks {
            Some(walks) => walks.pairs(batch.seed, batch.epoch, numbers)?,
            None => {
                let mut edges = Vec::new();
                memory::demand(&mut edges, numbers.len());
                numbers.iter().try_for_each(|number| edge(number).map(|edge| edges.push(edge)))?;
                edges
            }
        };
        let latest: Vec<i64> = match &self.latest[..] {
            [] => Vec::new(),
            latest if latest.len() == self.edges.len() => {
                memory::demand_collect(numbers.iter().map(|&number| latest[number as usize]))
            }
            latest => {
                return Err(Error::invalid(format!(
                    "{} times for {} supervision edges; pass one for each, or none",
                    latest.len(),
                    self.edges.len()
                )));
            }
        };
        links.positives = positives.len();
        for &(source, destination) in &positives {
            links.push(source, destination, &mut seeds.nodes);
        }
        self.push_negatives(batch, &positives, &latest, &mut links, &mut seeds.nodes)?;
        if !self.relations.is_empty() {
            let of = |&number: &NodeId| self.relations[number as usize];
            memory::demand(&mut links.relation, numbers.len() * (1 + self.num_negatives));
            links.relation.extend(numbers.iter().map(of));
            links.relation.extend(numbers.iter().flat_map(|n| repeat_n(of(n), self.num_negatives)));
        }
        match self.exclude {
            Exclude::Nothing => {}
            Exclude::Edges => links.excluded.refill(positives.iter().copied()),
            Exclude::WithReverses => {
                let both = positives.iter().flat_map(|&(u, v)| [(u, v), (v, u)]);
                links.excluded.refill(both);
            }
        }
        seeds.links = Some(links);
        Ok(seeds)
    }

    /// Adds the negatives of all positives.
    fn push_negatives(
        &self,
        batch: BatchKey,
        positives: &[(NodeId, NodeId)],
        latest: &[i64],
        links: &mut LinkBatch,
        seeds: &mut Vec<NodeId>,
    ) -> Result<()> {
        let of_end = |end: End, each: usize| -> Result<Vec<NodeId>> {
            let mut out = memory::demand_zeros(positives.len() * each);
            if each > 0 {
                let number = end as usize;
                let request = NegativeRequest {
                    known: &*self.known,
                    relation: 0,
                    end,
                    candidates: &self.candidates[number],
                    positives,
                    latest,
                    key: key(&[batch.seed, batch.epoch, batch.batch, NEGATIVES, number as u64]),
                };
                self.samplers[number].draw(&request, &mut out)?;
            }
            Ok(out)
        };
        let (sources, destinations) = match self.corrupt {
            Corrupt::Destination => (0, self.num_negatives),
            Corrupt::Source => (self.num_negatives, 0),
            Corrupt::Both => (self.num_negatives / 2, self.num_negatives.div_ceil(2)),
        };
        let drawn = [of_end(End::Source, sources)?, of_end(End::Destination, destinations)?];
        for (i, &(source, destination)) in positives.iter().enumerate() {
            for k in 0..sources.max(destinations) {
                if k < destinations {
                    links.push(source, drawn[1][i * destinations + k], seeds);
                }
                if k < sources {
                    links.push(drawn[0][i * sources + k], destination, seeds);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: BatchKey = BatchKey { seed: 1, epoch: 2, batch: 3 };

    fn source(corrupt: Corrupt, exclude: Exclude) -> LinkSource {
        let edges = [(0, 1), (1, 2), (2, 3), (3, 0)];
        let (from, to): (Vec<_>, Vec<_>) = edges.into_iter().unzip();
        let known = KnownEdges::new(9, &from, &to).unwrap();
        let source = LinkSource::new(edges, Arc::new(known), "uniform").unwrap();
        LinkSource { num_negatives: 3, corrupt, exclude, ..source }
    }

    #[test]
    fn pairs_are_positives_then_negatives_of_each() {
        for (corrupt, replaces) in [
            (Corrupt::Destination, [false, false, false]),
            (Corrupt::Source, [true, true, true]),
            (Corrupt::Both, [false, true, false]),
        ] {
            let source = source(corrupt, Exclude::Edges);
            let seeds = source.fill(KEY, &[2, 0], Seeds::default()).unwrap();
            let links = seeds.links.as_ref().unwrap();
            let pairs: Vec<(NodeId, NodeId)> = (links.source.iter().zip(&links.destination))
                .map(|(&u, &v)| (seeds.nodes[u as usize], seeds.nodes[v as usize]))
                .collect();
            assert_eq!((&pairs[..2], links.num_negatives()), (&[(2, 3), (0, 1)][..], 3));
            for (row, &(u, v)) in pairs[2..].chunks(3).zip(&pairs[..2]) {
                for (&(a, b), by_source) in row.iter().zip(replaces) {
                    assert!(if by_source { b == v } else { a == u }, "{pairs:?}");
                    assert!(!source.edges.contains(&(a, b)) && a != b);
                }
            }
            let mut distinct = seeds.nodes.clone();
            distinct.sort_unstable();
            distinct.dedup();
            assert_eq!(distinct.len(), seeds.nodes.len());
            assert!(links.excluded.contains(2, 3) && !links.excluded.contains(3, 2));
        }
    }

    #[test]
    fn batches_are_functions_of_their_keys() {
        let source = source(Corrupt::Both, Exclude::WithReverses);
        let first = source.fill(KEY, &[1, 3], Seeds::default()).unwrap();
        let (nodes, links) = (first.nodes.clone(), first.links.clone().unwrap());
        assert!(links.excluded.contains(2, 1) && links.excluded.contains(0, 3));
        // memory of another batch changes nothing
        let again = source.fill(BatchKey { batch: 4, ..KEY }, &[0], first).unwrap();
        let again = source.fill(KEY, &[1, 3], again).unwrap();
        let same = again.links.as_ref().unwrap();
        assert_eq!(
            (&again.nodes, &same.source, &same.destination),
            (&nodes, &links.source, &links.destination)
        );
        assert_eq!(same.excluded, links.excluded);
    }

    #[test]
    fn negatives_exist_at_the_times_of_their_edges() {
        let edges = [(0, 1), (1, 2), (2, 3)];
        let known = Arc::new(KnownEdges::new(9, &[0, 1, 2], &[1, 2, 3]).unwrap());
        // node v exists from time v on
        let node_time: Vec<i64> = (0..9).collect();
        let candidates = [0..9, 0..9];
        let source = LinkSource::with_times(edges, known, "existing", candidates, Some(&node_time)).unwrap();
        let source = LinkSource { latest: [4, 5, 8].into(), num_negatives: 20, ..source };
        let seeds = source.fill(KEY, &[1, 0], Seeds::default()).unwrap();
        let links = seeds.links.as_ref().unwrap();
        let negatives: Vec<NodeId> =
            links.destination[2..].iter().map(|&v| seeds.nodes[v as usize]).collect();
        assert!(negatives[..20].iter().all(|&v| v <= 5) && negatives[..20].contains(&5));
        assert!(negatives[20..].iter().all(|&v| v <= 4) && negatives[20..].contains(&4));
        let wrong = LinkSource { latest: [4].into(), ..source };
        let error = wrong.fill(KEY, &[1], Seeds::default()).unwrap_err().to_string();
        assert!(error.contains("1 times for 3 supervision edges"), "{error}");
    }

    #[test]
    fn relations_follow_their_edges() {
        let source = LinkSource { relations: [4, 5, 6, 7].into(), ..source(Corrupt::Both, Exclude::Nothing) };
        let seeds = source.fill(KEY, &[3, 1], Seeds::default()).unwrap();
        let links = seeds.links.unwrap();
        assert_eq!(links.relation, [7, 5, 7, 7, 7, 5, 5, 5]);
        assert!(links.excluded.is_empty());
        assert!(source.fill(KEY, &[4], Seeds::default()).is_err());
    }
}
