//! Rankings of edges with times among drawn candidates, each edge as of its own time.
//!
//! # Algorithm
//!
//! The ends of the edges and their candidates are seeds at the times of the edges, whose embeddings
//! are computed from whole neighbourhoods in chunks of queries. Metrics of rankings rank the
//! targets of each query among its candidates; those of pairs compare all edges of the part with
//! all candidates.
//!
//! # Source
//!
//! As for [`crate::relational`]'s drawn candidates.
//!
//! # Cost
//!
//! The neighbourhoods of `(K + 2) Q` nodes at times for `Q` edges with `K` candidates.

use std::collections::{BTreeMap, HashMap};

use graphmill_core::NodeId;
use graphmill_nn::{Matrix, Pass, link::rank::Query};

use super::{super::inference::TypedInference, learner::LinkModel, timed::TimedRanking};
use crate::{
    Result,
    build::processor,
    link::{LinkMetric, Scored, split::Edge},
    relational::DrawnQuery,
};

/// Pairs whose ends are embedded at once.
const PAIRS: usize = 1 << 14;

/// Nodes at times, each once.
struct NodesAt {
    /// Nodes of each type, and their times.
    nodes: Vec<Vec<NodeId>>,
    times: Vec<Vec<i64>>,
    /// Type and position of each row at a time.
    places: HashMap<(NodeId, i64), (usize, usize)>,
}

impl TimedRanking<'_> {
    /// Metrics of a part of the split by name, and the number of ranked edges, with `k` drawn
    /// candidates of each query.
    ///
    /// # Errors
    /// The model does not fit the dataset, or the work is stopped.
    pub(super) fn drawn_scores(
        &self,
        model: &LinkModel,
        part: usize,
        metrics: &[LinkMetric],
        k: usize,
    ) -> Result<(BTreeMap<String, f64>, usize)> {
        let (mut scores, mut count) = (BTreeMap::new(), 0);
        for of_lists in [false, true] {
            let own: Vec<&LinkMetric> = metrics.iter().filter(|m| m.is_of_lists() == of_lists).collect();
            if own.is_empty() {
                continue;
            }
            let (max, seed) = (self.config.eval_nodes, self.config.seed);
            let queries = self.of.edges.drawn_queries((part, of_lists), max, (k, seed));
            let found = self.score_queries(model, &queries)?;
            count = queries.iter().map(|query| query.targets.len()).sum();
            let most = queries.iter().map(|query| query.targets.len()).max().unwrap_or(0);
            let relevant: Vec<u32> = (0..most as u32).collect();
            let scored = found.iter().zip(&queries);
            let scored =
                scored.map(|(scores, query)| Query { scores, relevant: &relevant[..query.targets.len()] });
            let scored: Vec<Query> = scored.collect();
            let value =
                |metric: &&LinkMetric| Some((metric.name(), metric.entry.make.score(&scored, metric.k)?));
            scores.extend(own.iter().filter_map(value));
        }
        Ok((scores, count))
    }

    /// Scores of the targets of each query, then of its other candidates.
    fn score_queries(&self, model: &LinkModel, queries: &[DrawnQuery]) -> Result<Vec<Vec<f32>>> {
        let inference = TypedInference::new(self.config, &self.of.inputs, self.sampler, self.tables.clone())?;
        let mut inference = inference.watched(self.watch);
        let pass = Pass { backend: processor(self.config), training: false, key: 0 };
        let (mut all, mut rows) = (Vec::with_capacity(queries.len()), Matrix::default());
        let num_pairs = |query: &DrawnQuery| query.targets.len() + query.others.len();
        let mut left = queries;
        while !left.is_empty() {
            let mut pairs = 0;
            let fits = |query: &&DrawnQuery| {
                pairs += num_pairs(query);
                pairs <= PAIRS
            };
            let (chunk, rest) = left.split_at(left.iter().take_while(fits).count().max(1));
            left = rest;
            let mut at = NodesAt::new(self.of.inputs.graph.schema().num_types());
            for query in chunk {
                for &row in [&query.source].into_iter().chain(&query.targets).chain(&query.others) {
                    at.add((row, query.time), self.of.edges.node(row));
                }
            }
            inference.embed_at(&model.encoder, (&at.nodes, &at.times), &mut rows)?;
            let starts = at.starts();
            let place = |row: NodeId, time: i64| {
                let (t, i) = at.places[&(row, time)];
                (starts[t] + i) as NodeId
            };
            let pairs_of = |query: &DrawnQuery| -> Vec<Edge> {
                let source = place(query.source, query.time);
                let candidates = query.targets.iter().chain(&query.others);
                candidates.map(|&row| (source, place(row, query.time))).collect()
            };
            let pairs: Vec<Edge> = chunk.iter().flat_map(pairs_of).collect();
            let scored = Scored { decoder: &*model.decoder, pass, embeddings: rows.view() };
            let scores = rayon::scope(|_| scored.pairs(&pairs));
            let mut scores = &scores[..];
            for query in chunk {
                let (own, rest) = scores.split_at(num_pairs(query));
                all.push(own.to_vec());
                scores = rest;
            }
        }
        Ok(all)
    }
}

impl NodesAt {
    fn new(types: usize) -> Self {
        Self { nodes: vec![Vec::new(); types], times: vec![Vec::new(); types], places: HashMap::new() }
    }

    /// Adds a row at a time, which is node `v` of the type `t`.
    fn add(&mut self, at: (NodeId, i64), (t, v): (usize, NodeId)) {
        let Self { nodes, times, places } = self;
        places.entry(at).or_insert_with(|| {
            nodes[t].push(v);
            times[t].push(at.1);
            (t, nodes[t].len() - 1)
        });
    }

    /// Number of the first row of each type, of those of one type after those of another.
    fn starts(&self) -> Vec<usize> {
        let mut next = 0;
        let start = |nodes: &Vec<NodeId>| {
            let first = next;
            next += nodes.len();
            first
        };
        self.nodes.iter().map(start).collect()
    }
}
