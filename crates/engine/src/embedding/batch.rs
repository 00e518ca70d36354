//! Batches of queries: supervision edges with their negatives.

use std::{ops::Range, sync::Arc};

use graphmill_core::{End, NodeId};
use graphmill_loader::{
    BatchKey,
    link::{KnownEdges, NegativeLists, Walks},
};
use graphmill_nn::link::table::QueryBatch;

use crate::{
    Error, Result, TrainConfig,
    config::{embedding::EmbeddingOptions, link::LinkOptions},
    link::find_loss,
    relational::{AnyRow, Buckets, LinkEdges, RelationNegatives, ends},
};

/// Edges that each count starts with, in the weights of RotatE's code.
const FIRST_COUNT: usize = 3;

/// Makes the batches of a run. The batch of a key is the same for any number of threads.
pub(super) struct Batches<'a> {
    edges: &'a LinkEdges,
    /// Ends that candidates replace.
    ends: Vec<End>,
    num_negatives: usize,
    subsampling: bool,
    /// Draws of negatives; `None` if edges are compared with all candidates.
    negatives: Option<RelationNegatives<'a>>,
    /// True if the loss reads how likely negatives are, which are not equally likely.
    corrects_draws: bool,
    /// Walks whose pairs are the positives in the place of the edges, if any.
    walks: Option<Walks>,
    /// Facts for the user.
    pub(super) notes: Vec<String>,
}

impl<'a> Batches<'a> {
    /// Prepares the batches of a configuration.
    ///
    /// # Errors
    /// The sampler of negatives is unknown, has nothing to draw, or does not state the
    /// probabilities that the loss reads; or the edges have no walks.
    pub(super) fn new(config: &TrainConfig, edges: &'a LinkEdges) -> Result<Self> {
        let (links, options): (LinkOptions, EmbeddingOptions) = (config.own.get(), config.own.get());
        let (mut ends, mut notes) = (ends(config, edges), Vec::new());
        let (walks, any_row) = walks(&links, &options, edges)?.unzip();
        if let Some(walks) = &walks {
            // pairs come in both directions
            ends = vec![End::Destination];
            let (count, length) = (walks.len(), links.walk_nodes);
            let note =
                format!("seeds are {count} walks of {length} nodes, and positives pairs of their nodes");
            notes.push(note);
        }
        let is_drawn = !options.one_vs_all;
        let corrects_draws = is_drawn
            && find_loss(config, |kind| kind.is_uniform || kind.has_ratios)?.corrects_draws
            && links.negative_kind().is_some_and(|kind| !kind.is_uniform);
        let buckets = Buckets::new(edges.num_rows(), options.buckets);
        let negatives =
            is_drawn.then(|| RelationNegatives::new(&links, edges, &ends, any_row, buckets)).transpose()?;
        notes.extend(negatives.iter().flat_map(|negatives| negatives.notes.clone()));
        let num_negatives = if is_drawn { links.num_negatives } else { 0 };
        let subsampling = options.subsampling;
        Ok(Self { edges, ends, num_negatives, subsampling, negatives, corrects_draws, walks, notes })
    }

    /// Lists of hard negatives, if the run draws them.
    pub(super) fn hard(&self, config: &TrainConfig) -> Option<Arc<NegativeLists>> {
        self.negatives.as_ref()?.hard(&config.own.get())
    }

    /// Ends of queries with the relations and rows that are fixed in some query of training:
    /// ascending.
    pub(super) fn queries(&self) -> Vec<(End, u32, Vec<NodeId>)> {
        let mut all = Vec::new();
        for &end in &self.ends {
            if self.walks.is_some() {
                all.push((end, 0, (0..self.edges.num_rows() as NodeId).collect()));
            } else {
                all.extend(self.edges.fixed(end).into_iter().map(|(relation, rows)| (end, relation, rows)));
            }
        }
        all
    }

    /// Number of pairs that a loss of these queries scores.
    pub(super) fn num_pairs(&self, queries: &QueryBatch) -> u64 {
        if self.negatives.is_some() {
            return queries.candidates.len() as u64;
        }
        // all candidates of each query
        let all = (0..queries.len()).map(|i| {
            let relation = queries.relation.get(i).map_or(0, |&relation| relation as usize);
            self.edges.relations[relation].candidates[queries.end[i] as usize].len() as u64
        });
        all.sum()
    }

    /// Number of seeds of an epoch: edges or walks.
    pub(super) fn num_seeds(&self) -> usize {
        self.walks.as_ref().map_or(self.edges.parts[0].len(), Walks::len)
    }

    /// Replaces `out` by the queries of the training edges, or of the walks, with these numbers.
    ///
    /// # Errors
    /// An edge has no negative.
    pub(super) fn fill(&self, of: BatchKey, numbers: &[NodeId], out: &mut QueryBatch) -> Result<()> {
        out.clear();
        let edges: Vec<[u32; 3]> = match &self.walks {
            Some(walks) => {
                let pairs = walks.pairs(of.seed, of.epoch, numbers)?;
                pairs.into_iter().map(|(u, v)| [u, 0, v]).collect()
            }
            None => numbers.iter().map(|&i| self.edges.parts[0][i as usize]).collect(),
        };
        for &end in &self.ends {
            let negatives = match &self.negatives {
                Some(negatives) => {
                    let ratios = self.corrects_draws.then_some(&mut out.log_expected);
                    negatives.draw_with_ratios(of, end, (&edges, &[]), self.num_negatives, ratios)?
                }
                None => Vec::new(),
            };
            for (i, &[source, relation, destination]) in edges.iter().enumerate() {
                let (truth, fixed) = match end {
                    End::Source => (source, destination),
                    End::Destination => (destination, source),
                };
                out.end.push(end);
                out.fixed.push(fixed);
                out.relation.push(relation);
                out.candidates.push(truth);
                out.candidates
                    .extend_from_slice(&negatives[i * self.num_negatives..(i + 1) * self.num_negatives]);
                if self.subsampling {
                    out.weight.push(self.weight(source, relation, destination));
                }
            }
        }
        Ok(())
    }

    /// Root of the reciprocal number of edges with the same relation and end.
    fn weight(&self, source: NodeId, relation: u32, destination: NodeId) -> f32 {
        let count =
            |end: End, node: NodeId| FIRST_COUNT + self.edges.learned.ends_of(relation, end, node).len();
        let edges = count(End::Destination, source) + count(End::Source, destination);
        (edges as f32).sqrt().recip()
    }
}

/// The walks of a run with the rows and the training edges in both directions, if its positives are
/// the walks' pairs, whose ends are any rows.
///
/// # Errors
/// There are several relations, which walks do not distinguish, or pairs are compared with all
/// candidates.
fn walks(
    links: &LinkOptions,
    options: &EmbeddingOptions,
    edges: &LinkEdges,
) -> Result<Option<(Walks, AnyRow)>> {
    let Some(rule) = links.walk_rule() else { return Ok(None) };
    let refuse = |why: String| Err(Error::usage(format!("--positives walks: {why}")));
    if edges.relations.len() > 1 {
        return refuse(format!(
            "their pairs have no relation, and there are {}; choose one with --task, or use --positives \
             edges",
            edges.relations.len()
        ));
    }
    if options.one_vs_all || options.subsampling {
        return refuse(
            "--one-vs-all and --subsampling are for edges; leave them out, or use --positives edges".into(),
        );
    }
    let [mut from, mut to] = edges.learned_ends();
    let walks = Walks::new(edges.num_rows(), &from, &to, rule)?;
    if walks.is_empty() {
        return refuse("all training edges lead from a node to itself; use another dataset".into());
    }
    let count = from.len();
    from.extend_from_within(..);
    to.extend_from_within(..);
    for i in 0..count {
        (from[count + i], to[count + i]) = (to[i], from[i]);
    }
    let known = KnownEdges::new(edges.num_rows(), &from, &to)?;
    let rows: Range<NodeId> = 0..edges.num_rows() as NodeId;
    Ok(Some((walks, AnyRow { rows, known })))
}

#[cfg(test)]
mod tests {
    use graphmill_core::keyed::{Stream, key};
    use graphmill_data::{
        TypedBuilder,
        typed::{EdgeType, TypedDataset},
    };

    use super::*;

    /// Three relations between 20 entities. By the first, entity 0 has edges to almost all others.
    fn data() -> TypedDataset {
        let (mut builder, mut stream) = (TypedBuilder::new("graph"), Stream::new(key(&[5])));
        builder.node_type("entity", 20);
        for (name, edges) in [("all", 40), ("some", 25), ("few", 6)] {
            let mut pairs: Vec<(u32, u32)> = Vec::new();
            if name == "all" {
                pairs.extend((1..18).filter(|&v| v != 5).map(|v| (0, v)));
            }
            while pairs.len() < edges {
                let pair = (1 + stream.below(19) as u32, stream.below(20).min(stream.below(20)) as u32);
                if !pairs.contains(&pair) {
                    pairs.push(pair);
                }
            }
            let (src, dst): (Vec<u32>, Vec<u32>) = pairs.iter().copied().unzip();
            builder.edge_type("entity", name, "entity").edges(src, dst);
            let learned = pairs.iter().flat_map(|&(u, v)| [u, v]).collect::<Vec<u32>>();
            let on = EdgeType::new("entity", name, "entity");
            builder.task(name).on_edges(on).positives([learned, vec![], vec![]]);
        }
        builder.build().unwrap()
    }

    fn config(loss: &str, negatives: &str, buckets: usize) -> TrainConfig {
        let mut config = TrainConfig { loss: loss.into(), ..TrainConfig::default() };
        let negatives = negatives.into();
        config.own.set(LinkOptions { negatives, num_negatives: 5, ..LinkOptions::default() });
        config.own.set(EmbeddingOptions { buckets, ..EmbeddingOptions::default() });
        config
    }

    /// Logarithm of the probability of a negative of a query times the number of its candidates, by
    /// the definition of the draws.
    fn log_expected(edges: &LinkEdges, query: (End, u32, u32), truth: u32, drawn: u32, rows: usize) -> f32 {
        let (end, relation, fixed) = query;
        let triples = &edges.parts[0];
        let bucket = |row: u32| row as usize / rows;
        let pair = |u: u32| if end == End::Source { (u, fixed) } else { (fixed, u) };
        let candidates: Vec<u32> = (0..20).filter(|&u| bucket(u) == bucket(truth)).collect();
        let is_negative =
            |&u: &u32| u != fixed && !triples.iter().any(|&[h, r, t]| r == relation && (h, t) == pair(u));
        let degree = |u: u32| {
            let of_u = triples.iter().filter(|[h, _, t]| u == if end == End::Source { *h } else { *t });
            of_u.map(|[h, _, t]| (*h, *t)).collect::<std::collections::BTreeSet<_>>().len()
        };
        let weight = |u: u32| (degree(u) as f64).powf(0.75);
        let all: f64 = candidates.iter().map(|&u| weight(u)).sum();
        let fit: Vec<u32> = candidates.iter().copied().filter(is_negative).collect();
        let accepted: f64 = fit.iter().map(|&u| weight(u)).sum::<f64>() / all;
        let (mut probability, mut left) = (0.0, 1.0);
        for _ in 0..64 {
            probability += left * weight(drawn) / all;
            left *= 1.0 - accepted;
        }
        probability += left / fit.len() as f64;
        (probability * fit.len() as f64).ln() as f32
    }

    #[test]
    fn queries_have_the_expected_draws_of_their_negatives() {
        let data = data();
        let of = BatchKey { seed: 3, epoch: 1, batch: 2 };
        for buckets in [1, 2] {
            let config = config("sampled-softmax", "degree", buckets);
            let edges = LinkEdges::new(&data, &config).unwrap();
            let batches = Batches::new(&config, &edges).unwrap();
            let mut queries = QueryBatch::default();
            let numbers: Vec<NodeId> = (0..edges.parts[0].len() as NodeId).rev().collect();
            for _ in 0..2 {
                // the memory of a batch is reused
                batches.fill(of, &numbers, &mut queries).unwrap();
            }
            assert_eq!(queries.log_expected.len(), queries.len() * 5);
            let of_query = queries.candidates.chunks(6).zip(queries.log_expected.chunks(5));
            let mut largest = 0.0f32;
            for (i, (candidates, found)) in of_query.enumerate() {
                let query = (queries.end[i], queries.relation[i], queries.fixed[i]);
                for (&drawn, found) in candidates[1..].iter().zip(found) {
                    let expected = log_expected(&edges, query, candidates[0], drawn, 20 / buckets);
                    assert!((found - expected).abs() < 1e-4, "{query:?} {drawn}: {found} {expected}");
                    largest = largest.max(expected.abs());
                }
            }
            assert!(largest > 0.5, "{largest}");
        }
    }

    #[test]
    fn other_losses_and_uniform_negatives_are_not_corrected() {
        let data = data();
        let of = BatchKey { seed: 3, epoch: 1, batch: 2 };
        for (loss, negatives) in [("sampled-softmax", "uniform"), ("info-nce", "degree"), ("bce", "in-batch")]
        {
            let config = config(loss, negatives, 1);
            let edges = LinkEdges::new(&data, &config).unwrap();
            let mut queries = QueryBatch::default();
            Batches::new(&config, &edges).unwrap().fill(of, &[0, 7, 60], &mut queries).unwrap();
            assert!(queries.log_expected.is_empty(), "{loss} {negatives}");
        }
    }
}
