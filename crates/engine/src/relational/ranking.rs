//! Ranks of edges among all candidates.
//!
//! # Algorithm
//!
//! Metrics of single edges rank the true end of each edge, for each end that is a query, among all
//! nodes of its type without other known edges. Metrics of lists, such as recall, make one query of
//! all edges of a node in the part: the candidates are all nodes without a known edge of an earlier
//! part. Ties have their mean rank. Metrics of classification compare the edges of the only
//! relation with pairs without an edge.
//!
//! # Source
//!
//! Bordes et al., NeurIPS 2013, section 4.2; He et al., LightGCN, SIGIR 2020, section 4.1.
//!
//! # Cost
//!
//! O(Q C F) for `Q` queries with `C` candidates, at the speed of products or distances.
//!
//! # Memory
//!
//! The rows of a chunk of queries, and a block of scores.

use std::{collections::BTreeMap, convert::Infallible, ops::Range};

use graphmill_core::{End, NodeId};
use graphmill_loader::link::{KnownTriples, NegativeLists};
use graphmill_nn::{
    Matrix, Pass,
    backend::Cpu,
    layer::gather_rows,
    link::{
        decoder::Decoder,
        rank::full::{FullRanking, Lists},
    },
};

use super::edges::{LinkEdges, Triple};
use crate::{
    Result,
    inference::fixed_sample,
    link::{LinkMetric, QueryShare, Scored, evaluate::read_nodes, split::Edge},
};

/// Number of the part that validates.
pub(crate) const VALID: usize = 1;
/// Queries that are ranked at once.
const CHUNK: usize = 1 << 14;
/// Candidates that are read at once.
const BLOCK: usize = 1 << 18;

/// Values of metrics of a part by name, and the number of ranked edges.
pub(crate) type PartMetrics = (BTreeMap<String, f64>, usize);

/// Edges of a model, ranked by its embeddings.
pub(crate) struct Ranking<'a> {
    /// The processor, in the precision of the run.
    pub(crate) processor: &'static Cpu,
    pub(crate) edges: &'a LinkEdges,
    pub(crate) decoder: &'a dyn Decoder,
    /// Embeddings of all rows.
    pub(crate) embeddings: &'a Matrix,
    /// Ends that are queries of single edges.
    pub(crate) ends: &'a [End],
    /// Most edges, or lists, of a part that are ranked; 0 for all.
    pub(crate) max: usize,
}

/// A query: a fixed end with the candidates to rank and to leave out, both ascending.
pub(crate) struct Query {
    pub(crate) end: End,
    pub(crate) relation: u32,
    pub(crate) fixed: NodeId,
    pub(crate) targets: Vec<NodeId>,
    pub(crate) excluded: Vec<NodeId>,
}

/// Metrics of the ranks of queries, by name; without those that have no value.
pub(crate) fn values<'m>(
    ranks: &[Vec<f64>],
    metrics: impl IntoIterator<Item = &'m LinkMetric>,
) -> BTreeMap<String, f64> {
    let ranks: Vec<&[f64]> = ranks.iter().map(Vec::as_slice).collect();
    let value = |metric: &LinkMetric| Some((metric.name(), metric.entry.make.of_ranks(&ranks, metric.k)?));
    metrics.into_iter().filter_map(value).collect()
}

impl Ranking<'_> {
    /// Metrics of a part of the split by name, and the number of ranked edges. Metrics of pairs are
    /// left out if the part has none.
    pub(crate) fn scores(&self, part: usize, metrics: &[LinkMetric]) -> PartMetrics {
        match self.scores_of(part, metrics, |queries| Ok::<_, Infallible>(self.ranks(queries))) {
            Ok(scores) => scores,
            Err(never) => match never {},
        }
    }

    /// [`Ranking::scores`] of processes that divide the queries among them. All of them call this
    /// at the same time.
    ///
    /// # Errors
    /// Another process did not take part.
    pub(crate) fn scores_by_share(
        &self,
        part: usize,
        metrics: &[LinkMetric],
        share: &QueryShare,
    ) -> Result<PartMetrics> {
        self.scores_of(part, metrics, |queries| {
            let start = |number: usize| number * queries.len() / share.of;
            (share.gather)(&self.ranks(&queries[start(share.number)..start(share.number + 1)]))
        })
    }

    /// [`Ranking::scores`] by the ranks that `ranks` returns for queries.
    fn scores_of<E>(
        &self,
        part: usize,
        metrics: &[LinkMetric],
        ranks: impl Fn(&[Query]) -> Result<Vec<Vec<f64>>, E>,
    ) -> Result<PartMetrics, E> {
        let (mut scores, mut count) = (BTreeMap::new(), 0);
        let pooled: Vec<LinkMetric> = metrics.iter().filter(|m| m.is_pooled()).cloned().collect();
        if let (false, Some(pairs)) = (pooled.is_empty(), &self.edges.pairs[part - 1]) {
            let pass = Pass { backend: self.processor, training: false, key: 0 };
            let scored = Scored { decoder: self.decoder, pass, embeddings: self.embeddings.view() };
            let edges: Vec<Edge> =
                self.sample(&self.edges.parts[part]).into_iter().map(|&[u, _, v]| (u, v)).collect();
            count = edges.len();
            let values = scored.against_pairs(&edges, pairs, &pooled);
            scores.extend(values.into_iter().filter_map(|(name, value)| Some((name, value?))));
        }
        for of_lists in [false, true] {
            let own: Vec<&LinkMetric> =
                metrics.iter().filter(|m| !m.is_pooled() && m.is_of_lists() == of_lists).collect();
            if own.is_empty() {
                continue;
            }
            let queries = if of_lists { self.lists(part) } else { self.single(part) };
            let ranks = ranks(&queries)?;
            count = ranks.iter().map(Vec::len).sum::<usize>() / if of_lists { 1 } else { self.ends.len() };
            scores.extend(values(&ranks, own));
        }
        Ok((scores, count))
    }

    /// Number of pairs that [`Ranking::scores`] scores for a metric on a part.
    pub(crate) fn num_pairs(&self, part: usize, metric: &LinkMetric) -> u64 {
        if metric.is_pooled() {
            let pairs = self.edges.pairs[part - 1].as_ref().map_or(0, |pairs| pairs.len());
            return (self.sample(&self.edges.parts[part]).len() + pairs) as u64;
        }
        let queries = if metric.is_of_lists() { self.lists(part) } else { self.single(part) };
        queries.iter().map(|query| self.candidates(query).len() as u64).sum()
    }

    /// Candidates of a query.
    fn candidates(&self, query: &Query) -> &Range<NodeId> {
        &self.edges.relations[query.relation as usize].candidates[query.end as usize]
    }

    /// Edges of a part, at most `max` of them.
    fn sample<'t>(&self, triples: &'t [Triple]) -> Vec<&'t Triple> {
        let numbers: Vec<NodeId> = (0..triples.len() as NodeId).collect();
        fixed_sample(&numbers, self.max).into_iter().map(|i| &triples[i as usize]).collect()
    }

    /// A query for each end of each edge.
    fn single(&self, part: usize) -> Vec<Query> {
        let edges = self.sample(&self.edges.parts[part]);
        let of_edge = |&&[source, relation, destination]: &&Triple| {
            self.ends.iter().map(move |&end| {
                let (fixed, target) = match end {
                    End::Source => (destination, source),
                    End::Destination => (source, destination),
                };
                let excluded = self.edges.known.ends_of(relation, end, fixed).to_vec();
                Query { end, relation, fixed, targets: vec![target], excluded }
            })
        };
        edges.iter().flat_map(of_edge).collect()
    }

    /// A query for each source with edges in the part.
    fn lists(&self, part: usize) -> Vec<Query> {
        let mut lists: BTreeMap<(u32, NodeId), Vec<NodeId>> = BTreeMap::new();
        for &[source, relation, destination] in &self.edges.parts[part] {
            lists.entry((relation, source)).or_default().push(destination);
        }
        let mut earlier: BTreeMap<(u32, NodeId), Vec<NodeId>> = BTreeMap::new();
        for &[source, relation, destination] in self.edges.parts[..part].iter().flatten() {
            if lists.contains_key(&(relation, source)) {
                earlier.entry((relation, source)).or_default().push(destination);
            }
        }
        let numbers: Vec<NodeId> = (0..lists.len() as NodeId).collect();
        let mut chosen = fixed_sample(&numbers, self.max).into_iter().peekable();
        let mut queries = Vec::new();
        for (i, ((relation, fixed), mut targets)) in (0..).zip(lists) {
            if chosen.next_if_eq(&i).is_none() {
                continue;
            }
            let mut excluded = earlier.remove(&(relation, fixed)).unwrap_or_default();
            for list in [&mut excluded, &mut targets] {
                list.sort_unstable();
                list.dedup();
            }
            queries.push(Query { end: End::Destination, relation, fixed, targets, excluded });
        }
        queries
    }

    /// Ranks of the targets of each query.
    pub(crate) fn ranks(&self, queries: &[Query]) -> Vec<Vec<f64>> {
        let mut ranks = vec![Vec::new(); queries.len()];
        self.for_each_chunk(queries, |numbers, first, ranking| {
            let (mut starts, mut targets) = (vec![0], Vec::new());
            for &i in numbers {
                targets.extend(queries[i].targets.iter().map(|&target| target - first));
                starts.push(targets.len());
            }
            let targets = Lists::new(&starts, &targets);
            let found = if ranking.candidates.num_rows() > BLOCK {
                ranking.ranks_by_blocks(&targets, BLOCK)
            } else {
                ranking.ranks(&targets)
            };
            for (&i, range) in numbers.iter().zip(starts.windows(2)) {
                ranks[i] = found[range[0]..range[1]].to_vec();
            }
        });
        ranks
    }

    /// The `k` best candidates of each node as the end of an edge of `relation`, with their scores.
    /// The `known` edges are left out.
    pub(crate) fn top(
        &self,
        known: Option<&KnownTriples>,
        (relation, end): (u32, End),
        nodes: &[NodeId],
        k: usize,
    ) -> Vec<Vec<(NodeId, f32)>> {
        let query = |&fixed: &NodeId| {
            let excluded = known.map_or(Vec::new(), |known| known.ends_of(relation, end, fixed).to_vec());
            Query { end, relation, fixed, targets: Vec::new(), excluded }
        };
        let queries: Vec<Query> = nodes.iter().map(query).collect();
        let mut best = vec![Vec::new(); queries.len()];
        self.for_each_chunk(&queries, |numbers, first, ranking| {
            for (&i, own) in numbers.iter().zip(ranking.top(k)) {
                best[i] = own.into_iter().map(|(candidate, score)| (candidate + first, score)).collect();
            }
        });
        best
    }

    /// Replaces lists of hard negatives by the `k` best non-edges of each row that queries fix.
    pub(crate) fn harden(&self, lists: &NegativeLists, queries: &[(End, u32, Vec<NodeId>)], k: usize) {
        for end in [End::Source, End::Destination] {
            let best = |(_, relation, fixed): &(End, u32, Vec<NodeId>)| {
                let best = self.top(Some(&self.edges.learned), (*relation, end), fixed, k);
                let ids = |best: Vec<(NodeId, f32)>| best.into_iter().map(|(id, _)| id).collect();
                let lists = fixed.iter().zip(best).map(|(&v, best)| (*relation, v, ids(best)));
                lists.collect::<Vec<(u32, NodeId, Vec<NodeId>)>>()
            };
            lists.replace(end, queries.iter().filter(|query| query.0 == end).flat_map(best));
        }
    }

    /// Calls `work` with the numbers of queries of the same end and candidates, the first candidate
    /// and their ranking.
    fn for_each_chunk(&self, queries: &[Query], mut work: impl FnMut(&[usize], NodeId, &FullRanking)) {
        let candidates = |i: usize| (queries[i].end, self.candidates(&queries[i]));
        let mut groups: BTreeMap<(usize, NodeId, NodeId), Vec<usize>> = BTreeMap::new();
        for i in 0..queries.len() {
            let (end, range) = candidates(i);
            groups.entry((end as usize, range.start, range.end)).or_default().push(i);
        }
        let pass = Pass { backend: self.processor, training: false, key: 0 };
        let mut rows = Matrix::default();
        for numbers in groups.values().flat_map(|numbers| numbers.chunks(CHUNK)) {
            let (end, range) = candidates(numbers[0]);
            let fixed: Vec<NodeId> = numbers.iter().map(|&i| queries[i].fixed).collect();
            let relation: Vec<u32> = numbers.iter().map(|&i| queries[i].relation).collect();
            gather_rows(self.processor, self.embeddings.view(), &fixed, &mut rows);
            let (mut starts, mut excluded) = (vec![0], Vec::new());
            for &i in numbers {
                let own = queries[i].excluded.iter().filter(|id| range.contains(id));
                excluded.extend(own.map(|&id| id - range.start));
                starts.push(excluded.len());
            }
            // rows of the only type are its nodes
            let nodes = read_nodes(self.decoder, range.clone());
            let ranking = FullRanking {
                decoder: self.decoder,
                pass,
                end,
                queries: rows.view(),
                relation: &relation,
                candidates: self.embeddings.rows(range.start as usize..range.end as usize),
                excluded: Lists::new(&starts, &excluded),
                nodes: [&fixed, &nodes],
            };
            work(numbers, range.start, &ranking);
        }
    }
}
