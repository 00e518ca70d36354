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
    /// Walks whose pairs are the positives in the place of the edges, if any.
    walks: Option<Walks>,
    /// Facts for the user.
    pub(super) notes: Vec<String>,
}

impl<'a> Batches<'a> {
    /// Prepares the batches of a configuration.
    ///
    /// # Errors
    /// The sampler of negatives is unknown, or has nothing to draw; or the edges have no walks.
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
        let buckets = Buckets::new(edges.num_rows(), options.buckets);
        let negatives =
            is_drawn.then(|| RelationNegatives::new(&links, edges, &ends, any_row, buckets)).transpose()?;
        notes.extend(negatives.iter().flat_map(|negatives| negatives.notes.clone()));
        let num_negatives = if is_drawn { links.num_negatives } else { 0 };
        Ok(Self { edges, ends, num_negatives, subsampling: options.subsampling, negatives, walks, notes })
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
                Some(negatives) => negatives.draw(of, end, (&edges, &[]), self.num_negatives)?,
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
