//! Evaluation of links: edges against all nodes, against given negatives, or against random pairs.
//!
//! # Algorithm
//!
//! Embeddings of all nodes are computed once. Against all candidates, the replaced end of each edge
//! is ranked among all nodes that have no known edge with its other end. Metrics of lists, such as
//! recall, make one query of all edges of a node instead: the candidates are all nodes without a
//! known edge, and the edges of the part. Against pairs, each edge is ranked among all of them, and
//! metrics of classification compare both sets. The rank of ties is their mean rank.
//!
//! # Source
//!
//! Bordes et al., NeurIPS 2013, section 4.2 (known edges are left out); Hu et al., *Open graph
//! benchmark*, NeurIPS 2020 (given negatives); Kipf and Welling, *Variational graph auto-encoders*,
//! 2016 (random pairs).
//!
//! # Cost
//!
//! O(Q V F) for `Q` queries against all nodes; O(P + N) scores against pairs.
//!
//! # Memory
//!
//! The embeddings, `V x F`, and a block of scores.

use std::{collections::BTreeMap, ops::Range};

use graphmill_core::{End, NodeId, memory};
use graphmill_data::typed::CandidateLists;
use graphmill_loader::link::{Corrupt, KnownEdges};
use graphmill_nn::{
    Matrix, Pass, Saved, View,
    backend::ops::Gather,
    link::{
        decoder::{Decoder, Pairs},
        rank::{
            Query,
            full::{FullRanking, Lists},
        },
    },
};

use super::{
    metric::LinkMetric,
    random_pairs::RandomPairs,
    split::Edge,
    task::{GivenNegatives, LinkPart, LinkTask},
};
use crate::{
    Result, TrainConfig,
    config::link::{Candidates, LinkOptions},
};

/// Pairs that are scored at once.
const CHUNK: usize = 1 << 16;

/// Edges of a part, prepared for evaluation.
#[derive(Clone, Debug)]
pub struct LinkEvaluation {
    /// Edges to evaluate.
    pub(super) edges: Vec<Edge>,
    pub(super) against: Against,
}

/// Candidates that edges are compared with.
#[derive(Clone, Debug)]
pub(super) enum Against {
    /// All nodes, at these ends.
    All(Vec<End>),
    /// The same pairs for all edges.
    Pairs(Vec<Edge>),
    /// Nodes for each edge, at this end.
    Ends { end: End, lists: CandidateLists },
}

/// Gathers the ranks of all shares, in their order, from those of one.
pub(crate) type GatherRanks<'s> = dyn Fn(&[Vec<f64>]) -> Result<Vec<Vec<f64>>> + 's;

/// Share of the queries of a ranking that this process ranks, if several processes divide them.
pub(crate) struct QueryShare<'s> {
    /// Number of the share.
    pub(crate) number: usize,
    /// Number of shares.
    pub(crate) of: usize,
    /// Gathers the ranks of all shares, in their order, from those of this one.
    pub(crate) gather: &'s GatherRanks<'s>,
}

/// Embeddings of all nodes with the decoder that scores pairs of them.
#[derive(Clone, Copy)]
pub struct Scored<'a> {
    /// Score of an edge.
    pub decoder: &'a dyn Decoder,
    /// The backend, which computes on the host.
    pub pass: Pass<'a>,
    /// Embeddings, `V x F`, in the order of the nodes, whose numbers the decoder may read.
    pub embeddings: View<'a>,
}

impl Scored<'_> {
    /// Scores of edges.
    pub fn pairs(&self, edges: &[Edge]) -> Vec<f32> {
        let (mut rows, mut saved) = ([Matrix::default(), Matrix::default()], Saved::default());
        let (mut scores, mut all) = (Matrix::default(), Vec::new());
        memory::demand(&mut all, edges.len());
        for chunk in edges.chunks(CHUNK) {
            let ends = [End::Source, End::Destination];
            let ends = ends.map(|end| memory::demand_collect(chunk.iter().map(|&edge| end_of(edge, end))));
            let [source, destination] = &mut rows;
            for (rows, ids) in [&mut *source, &mut *destination].into_iter().zip(&ends) {
                rows.resize(ids.len(), self.embeddings.num_cols());
                Gather { src: self.embeddings, ids, dst: rows.view_mut() }.run(self.pass.backend);
            }
            let nodes = ends.each_ref().map(Vec::as_slice);
            let (source, destination) = (source.view(), destination.view());
            let pairs = Pairs { source, destination, relation: &[], nodes };
            self.decoder.forward(&self.pass, &pairs, &mut saved, &mut scores);
            all.extend_from_slice(scores.view().host());
        }
        all
    }

    /// Values of metrics by name, if all `edges` are compared with the same `pairs`; `None` for
    /// those that are not defined against pairs.
    pub(crate) fn against_pairs(
        &self,
        edges: &[Edge],
        pairs: &[Edge],
        metrics: &[LinkMetric],
    ) -> BTreeMap<String, Option<f64>> {
        let (positive, negative) = (self.pairs(edges), self.pairs(pairs));
        let ranks = ranks_among(&positive, &negative);
        let relevant: Vec<u32> = (0..positive.len() as u32).collect();
        let all = [positive, negative].concat();
        let query = [Query { scores: &all, relevant: &relevant }];
        let value = |metric: &LinkMetric| match metric.is_pooled() {
            true => metric.entry.make.score(&query, metric.k),
            false => mean(metric, &ranks).filter(|_| !metric.is_of_lists()),
        };
        metrics.iter().map(|metric| (metric.name(), value(metric))).collect()
    }

    /// The `k` best candidates of each of the `nodes`, which are the other ends than `end`, with
    /// their scores. Nodes with a `known` edge, and the node itself, are left out.
    pub fn top(
        &self,
        nodes: &[NodeId],
        end: End,
        known: Option<&KnownEdges>,
        k: usize,
    ) -> Vec<Vec<(NodeId, f32)>> {
        let queries = NodeLists::new(nodes.iter().map(|&node| match known {
            Some(known) => left_out(known, end, node, &[]),
            None => vec![node],
        }));
        self.ranking(nodes, end, &queries, |ranking| ranking.top(k))
    }

    /// Runs `work` on the ranking of all nodes for queries of these nodes.
    fn ranking<R>(
        &self,
        nodes: &[NodeId],
        end: End,
        excluded: &NodeLists,
        work: impl FnOnce(&FullRanking) -> R,
    ) -> R {
        let mut rows = Matrix::default();
        rows.resize(nodes.len(), self.embeddings.num_cols());
        Gather { src: self.embeddings, ids: nodes, dst: rows.view_mut() }.run(self.pass.backend);
        let all = read_nodes(self.decoder, 0..self.embeddings.num_rows() as NodeId);
        work(&FullRanking {
            decoder: self.decoder,
            pass: self.pass,
            end,
            queries: rows.view(),
            relation: &[],
            candidates: self.embeddings,
            excluded: excluded.view(),
            nodes: [nodes, &all],
        })
    }
}

/// Numbers of these candidates, unless the decoder is a formula over their rows.
pub(crate) fn read_nodes(decoder: &dyn Decoder, candidates: Range<NodeId>) -> Vec<NodeId> {
    if decoder.pair_score().is_some() { Vec::new() } else { memory::demand_collect(candidates) }
}

/// Lists of nodes, one after the other.
struct NodeLists {
    indptr: Vec<usize>,
    ids: Vec<NodeId>,
}

impl NodeLists {
    fn new(lists: impl Iterator<Item = Vec<NodeId>>) -> Self {
        let mut all = Self { indptr: vec![0], ids: Vec::new() };
        for list in lists {
            memory::demand_extend(&mut all.ids, list);
            memory::demand_push(&mut all.indptr, all.ids.len());
        }
        all
    }

    fn view(&self) -> Lists<'_> {
        Lists::new(&self.indptr, &self.ids)
    }
}

/// Candidates at `end` that a query of `node` leaves out: those of known edges without the
/// `targets`, and the node itself. Distinct.
fn left_out(known: &KnownEdges, end: End, node: NodeId, targets: &[NodeId]) -> Vec<NodeId> {
    let mut all: Vec<NodeId> = Vec::new();
    memory::demand_copy(&mut all, known.ends_of(end, node));
    memory::demand(&mut all, 1);
    if let Err(at) = all.binary_search(&node) {
        all.insert(at, node);
    }
    all.retain(|id| !targets.contains(id));
    all
}

/// The end of an edge.
pub(crate) fn end_of(edge: Edge, end: End) -> NodeId {
    match end {
        End::Source => edge.0,
        End::Destination => edge.1,
    }
}

impl LinkTask {
    /// Edges of the part of this name, prepared for evaluation: at most `--eval-nodes`.
    ///
    /// # Errors
    /// The graph has too few pairs without an edge.
    pub fn evaluation(&self, config: &TrainConfig, name: &str) -> Result<LinkEvaluation> {
        let ends = config.own.get::<LinkOptions>().ends(self.undirected);
        LinkEvaluation::new(self, ends, self.part(name), (name, config.seed), config.eval_nodes)
    }
}

impl LinkEvaluation {
    /// Prepares the edges of `part`, of which at most `max` are evaluated (all if it is 0), always
    /// the same ones. Random pairs are functions of the `seed` and the `name` of the part.
    ///
    /// # Errors
    /// The graph has too few pairs without an edge.
    fn new(
        task: &LinkTask,
        ends: Corrupt,
        part: LinkPart,
        (name, seed): (&str, u64),
        max: usize,
    ) -> Result<Self> {
        let numbers: Vec<NodeId> = (0..part.edges.len() as NodeId).collect();
        let kept = crate::inference::fixed_sample(&numbers, max);
        let edges: Vec<Edge> = kept.iter().map(|&i| part.edges[i as usize]).collect();
        let nodes = 0..task.known.num_nodes() as NodeId;
        let random = RandomPairs {
            name: &task.data.name,
            candidates: [nodes.clone(), nodes],
            undirected: task.undirected,
            is_known: &|(u, v)| task.known.contains(u, v),
        };
        let pairs = || random.draw(edges.len(), (name, seed));
        let against = match (task.candidates, part.negatives) {
            (Candidates::All, _) => Against::All(match ends {
                Corrupt::Destination => vec![End::Destination],
                Corrupt::Source => vec![End::Source],
                Corrupt::Both => vec![End::Destination, End::Source],
            }),
            (Candidates::Auto, Some(GivenNegatives::Pairs(pairs))) => Against::Pairs(pairs),
            (Candidates::Auto, Some(GivenNegatives::Ends { end, lists })) => {
                let of = |&i: &NodeId| lists.list(i as usize).iter().copied();
                Against::Ends { end, lists: CandidateLists::new(kept.iter().map(of)) }
            }
            (Candidates::Auto | Candidates::Pairs, _) => Against::Pairs(pairs()?),
        };
        Ok(Self { edges, against })
    }

    /// The edges.
    pub fn edges(&self) -> Vec<Edge> {
        self.edges.clone()
    }

    /// Pairs that all edges are compared with, if the candidates are pairs.
    pub fn pairs(&self) -> Option<&[Edge]> {
        match &self.against {
            Against::Pairs(pairs) => Some(pairs),
            _ => None,
        }
    }

    /// Number of edges.
    pub fn len(&self) -> usize {
        self.edges.len()
    }

    /// Returns true if there are no edges.
    pub fn is_empty(&self) -> bool {
        self.edges.is_empty()
    }

    /// Number of pairs that [`LinkEvaluation::score`] scores on a graph of this number of nodes.
    pub(crate) fn num_pairs(&self, metric: &LinkMetric, nodes: usize) -> u64 {
        let edges = self.len() as u64;
        match &self.against {
            Against::All(_) if metric.is_pooled() => 0,
            Against::All(ends) => {
                let queries = |&end: &End| queries(&sorted(&self.edges, end)).count() as u64;
                ends.iter().map(queries).sum::<u64>() * nodes as u64
            }
            Against::Pairs(pairs) => edges + pairs.len() as u64,
            Against::Ends { lists, .. } => edges + lists.nodes.len() as u64,
        }
    }

    /// Value of a metric; `None` if it is not defined against these candidates.
    pub fn score(&self, scored: &Scored, known: &KnownEdges, metric: &LinkMetric) -> Option<f64> {
        self.scores(scored, known, std::slice::from_ref(metric)).pop_first().and_then(|(_, value)| value)
    }

    /// [`LinkEvaluation::score`] of processes that divide the queries against all nodes among them.
    /// All of them call this at the same time.
    ///
    /// # Errors
    /// Another process did not take part.
    pub(crate) fn score_by_share(
        &self,
        scored: &Scored,
        known: &KnownEdges,
        metric: &LinkMetric,
        share: &QueryShare,
    ) -> Result<Option<f64>> {
        let ends = match &self.against {
            Against::All(ends) if !self.is_empty() && !metric.is_pooled() => ends,
            _ => return Ok(self.score(scored, known, metric)),
        };
        let mut ranks = Vec::new();
        for &end in ends {
            let own = self.ranks(scored, known, (end, metric.is_of_lists()), (share.number, share.of));
            ranks.extend((share.gather)(&own)?);
        }
        Ok(mean(metric, &ranks))
    }

    /// Values of metrics by name; `None` for those that are not defined against these candidates.
    pub fn scores(
        &self,
        scored: &Scored,
        known: &KnownEdges,
        metrics: &[LinkMetric],
    ) -> BTreeMap<String, Option<f64>> {
        let of = |value: &dyn Fn(&LinkMetric) -> Option<f64>| {
            metrics.iter().map(|metric| (metric.name(), value(metric))).collect()
        };
        if self.is_empty() {
            return of(&|_| None);
        }
        match &self.against {
            Against::All(ends) => {
                let any = |of_lists| metrics.iter().any(|m| !m.is_pooled() && m.is_of_lists() == of_lists);
                let ranks = |of_lists| match any(of_lists) {
                    true => {
                        let of = |&end: &End| self.ranks(scored, known, (end, of_lists), (0, 1));
                        ends.iter().flat_map(of).collect()
                    }
                    false => Vec::new(),
                };
                let [of_edges, of_lists]: [Vec<Vec<f64>>; 2] = [ranks(false), ranks(true)];
                of(&|metric| mean(metric, if metric.is_of_lists() { &of_lists } else { &of_edges }))
            }
            Against::Pairs(pairs) => scored.against_pairs(&self.edges, pairs, metrics),
            Against::Ends { end, lists } => {
                let (scores, mut next) = (self.with_negatives(scored, *end, lists), 0);
                let query = |i: usize| {
                    let start = next;
                    next += 1 + lists.list(i).len();
                    Query { scores: &scores[start..next], relevant: &[0] }
                };
                let queries: Vec<Query> = (0..self.len()).map(query).collect();
                of(&|metric| metric.entry.make.score(&queries, metric.k).filter(|_| !metric.is_of_lists()))
            }
        }
    }

    /// Scores of each edge, each followed by those of its negatives.
    fn with_negatives(&self, scored: &Scored, end: End, lists: &CandidateLists) -> Vec<f32> {
        let mut all = Vec::with_capacity(self.edges.len() + lists.nodes.len());
        for (i, &(u, v)) in self.edges.iter().enumerate() {
            all.push((u, v));
            all.extend(lists.list(i).iter().map(|&node| match end {
                End::Source => (node, v),
                End::Destination => (u, node),
            }));
        }
        scored.pairs(&all)
    }

    /// Ranks of the edges against all nodes at `end`: of each edge alone or, `of_lists`, of all
    /// edges of a node. Of the queries, only those of share `number` of `of`.
    fn ranks(
        &self,
        scored: &Scored,
        known: &KnownEdges,
        (end, of_lists): (End, bool),
        (number, of): (usize, usize),
    ) -> Vec<Vec<f64>> {
        let edges = sorted(&self.edges, end);
        let queries: Vec<&[(NodeId, NodeId)]> = queries(&edges).collect();
        let queries = &queries[number * queries.len() / of..(number + 1) * queries.len() / of];
        let nodes: Vec<NodeId> = queries.iter().map(|query| query[0].0).collect();
        let ends = |query: &[(NodeId, NodeId)]| query.iter().map(|edge| edge.1).collect::<Vec<_>>();
        let targets = NodeLists::new(queries.iter().map(|query| ends(query)));
        let excluded = NodeLists::new(queries.iter().map(|query| {
            let own = if of_lists { ends(query) } else { Vec::new() };
            left_out(known, end, query[0].0, &own)
        }));
        let ranks = scored.ranking(&nodes, end, &excluded, |ranking| ranking.ranks(&targets.view()));
        match of_lists {
            false => ranks.into_iter().map(|rank| vec![rank]).collect(),
            true => targets.indptr.windows(2).map(|ends| ranks[ends[0]..ends[1]].to_vec()).collect(),
        }
    }
}

/// Distinct edges in ascending order, each with the other end first.
fn sorted(edges: &[Edge], end: End) -> Vec<(NodeId, NodeId)> {
    let mut edges: Vec<_> =
        edges.iter().map(|&edge| (end_of(edge, end.other()), end_of(edge, end))).collect();
    edges.sort_unstable();
    edges.dedup();
    edges
}

/// Queries of edges by [`sorted`]: those of the same first node.
fn queries(edges: &[(NodeId, NodeId)]) -> impl Iterator<Item = &[(NodeId, NodeId)]> {
    edges.chunk_by(|a, b| a.0 == b.0)
}

/// Mean of a metric over ranks.
fn mean(metric: &LinkMetric, ranks: &[Vec<f64>]) -> Option<f64> {
    metric.entry.make.of_ranks(&ranks.iter().map(Vec::as_slice).collect::<Vec<_>>(), metric.k)
}

/// Rank of each positive among itself and all negatives, ties by their mean; NaN is last.
fn ranks_among(positive: &[f32], negative: &[f32]) -> Vec<Vec<f64>> {
    let mut sorted: Vec<f32> = negative.iter().copied().filter(|x| !x.is_nan()).collect();
    sorted.sort_unstable_by(f32::total_cmp);
    let rank = |score: f32| {
        if score.is_nan() {
            return negative.len() as f64 + 1.0;
        }
        let at_most = sorted.partition_point(|&x| x <= score);
        let below = sorted.partition_point(|&x| x < score);
        1.0 + (sorted.len() - at_most) as f64 + (at_most - below) as f64 / 2.0
    };
    positive.iter().map(|&score| vec![rank(score)]).collect()
}
