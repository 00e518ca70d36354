//! Batches of queries: supervision edges with their negatives.

use std::ops::Range;

use graphmill_core::{End, NodeId, keyed::key};
use graphmill_loader::{
    BatchKey,
    link::{self, Corrupt, KnownEdges, NegativeRequest, NegativeSampler, NegativeSource},
};
use graphmill_nn::link::table::QueryBatch;
use rayon::prelude::*;

use super::edges::LinkEdges;
use crate::{
    Error, Result, TrainConfig,
    config::{embedding::EmbeddingOptions, link::LinkOptions},
};

/// Part of the key of negatives.
const NEGATIVES: u64 = 0x6e65_6761_7469_7665;
/// Edges that each count starts with, in the weights of RotatE's code.
const FIRST_COUNT: usize = 3;

/// Makes the batches of a run. The batch of a key is the same for any number of threads.
pub(super) struct Batches<'a> {
    edges: &'a LinkEdges,
    /// Ends that candidates replace.
    ends: Vec<End>,
    num_negatives: usize,
    subsampling: bool,
    /// Samplers by end and candidates; empty if there are no negatives.
    samplers: Vec<(End, Range<NodeId>, Box<dyn NegativeSampler>)>,
}

/// Ends of an edge that are replaced by candidates.
pub(super) fn ends(config: &TrainConfig, edges: &LinkEdges) -> Vec<End> {
    // relations have queries for both ends, users have queries for items
    match config.own.get::<LinkOptions>().ends(edges.relations.len() > 1) {
        Corrupt::Destination => vec![End::Destination],
        Corrupt::Source => vec![End::Source],
        Corrupt::Both => vec![End::Destination, End::Source],
    }
}

impl<'a> Batches<'a> {
    /// Prepares the batches of a configuration.
    ///
    /// # Errors
    /// The sampler of negatives is unknown, or has nothing to draw.
    pub(super) fn new(config: &TrainConfig, edges: &'a LinkEdges) -> Result<Self> {
        let (links, options): (LinkOptions, EmbeddingOptions) = (config.own.get(), config.own.get());
        let mut batches = Self {
            edges,
            ends: ends(config, edges),
            num_negatives: links.num_negatives,
            subsampling: options.subsampling,
            samplers: Vec::new(),
        };
        if options.one_vs_all {
            batches.num_negatives = 0;
            return Ok(batches);
        }
        let make = link::TABLE.find(&links.negatives).map_err(Error::name)?.make;
        let [train, ..] = &edges.parts;
        let sources: Vec<NodeId> = train.iter().map(|&[source, ..]| source).collect();
        let destinations: Vec<NodeId> = train.iter().map(|&[.., destination]| destination).collect();
        let known = KnownEdges::new(edges.num_rows(), &sources, &destinations)?;
        for &end in &batches.ends {
            for relation in &edges.relations {
                let candidates = &relation.candidates[end as usize];
                let has = |(of, range, _): &(End, Range<NodeId>, _)| *of == end && range == candidates;
                if !batches.samplers.iter().any(has) {
                    let sampler = make(&NegativeSource { known: &known, end, candidates, node_time: None })?;
                    batches.samplers.push((end, candidates.clone(), sampler));
                }
            }
        }
        Ok(batches)
    }

    /// Replaces `out` by the queries of the training edges with these numbers.
    ///
    /// # Errors
    /// An edge has no negative.
    pub(super) fn fill(&self, of: BatchKey, numbers: &[NodeId], out: &mut QueryBatch) -> Result<()> {
        out.clear();
        let edges: Vec<[u32; 3]> = numbers.iter().map(|&i| self.edges.parts[0][i as usize]).collect();
        for &end in &self.ends {
            let negatives = self.negatives(of, end, &edges)?;
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

    /// Negatives of each edge at this end. The edges of a relation are drawn together.
    fn negatives(&self, of: BatchKey, end: End, edges: &[[u32; 3]]) -> Result<Vec<NodeId>> {
        let each = self.num_negatives;
        let mut out = vec![0; edges.len() * each];
        if each == 0 {
            return Ok(out);
        }
        let mut order: Vec<usize> = (0..edges.len()).collect();
        order.sort_by_key(|&i| edges[i][1]);
        let groups: Vec<&[usize]> = order.chunk_by(|&a, &b| edges[a][1] == edges[b][1]).collect();
        let draw = |group: &&[usize]| -> Result<Vec<NodeId>> {
            let relation = edges[group[0]][1];
            let candidates = &self.edges.relations[relation as usize].candidates[end as usize];
            let positives: Vec<(NodeId, NodeId)> =
                group.iter().map(|&i| (edges[i][0], edges[i][2])).collect();
            let known = self.edges.learned.of_relation(relation);
            let parts = [of.seed, of.epoch, of.batch, NEGATIVES, end as u64, relation.into()];
            let request = NegativeRequest {
                known: &known,
                end,
                candidates,
                positives: &positives,
                latest: &[],
                key: key(&parts),
            };
            let mut drawn = vec![0; group.len() * each];
            let fits = |(of, range, _): &&(End, Range<NodeId>, _)| *of == end && range == candidates;
            if let Some((.., sampler)) = self.samplers.iter().find(fits) {
                sampler.draw(&request, &mut drawn)?;
            }
            Ok(drawn)
        };
        let drawn: Vec<Vec<NodeId>> = groups.par_iter().map(draw).collect::<Result<_>>()?;
        for (group, drawn) in groups.iter().zip(&drawn) {
            for (&i, row) in group.iter().zip(drawn.chunks(each)) {
                out[i * each..(i + 1) * each].copy_from_slice(row);
            }
        }
        Ok(out)
    }
}
