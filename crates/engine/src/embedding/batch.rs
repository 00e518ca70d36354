//! Batches of queries: supervision edges with their negatives.

use std::{ops::Range, path::Path, sync::Arc};

use graphmill_core::{End, NodeId, keyed::key};
use graphmill_loader::{
    BatchKey,
    link::{
        self, Corrupt, Known, KnownEdges, NegativeLists, NegativeRequest, NegativeSampler, NegativeSource,
        Walks,
    },
};
use graphmill_nn::link::table::QueryBatch;
use rayon::prelude::*;

use super::edges::LinkEdges;
use crate::{
    Error, Result, TrainConfig,
    config::{embedding::EmbeddingOptions, link::LinkOptions},
    link::lists::{self, FileLists},
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
    /// Walks whose pairs are the positives in the place of the edges, if any.
    walks: Option<PairsOfWalks>,
    /// Lists that negatives are drawn from, if any.
    lists: Option<Arc<NegativeLists>>,
    /// Facts for the user.
    pub(super) notes: Vec<String>,
}

/// Pairs of walks, whose ends are any rows.
struct PairsOfWalks {
    walks: Walks,
    rows: Range<NodeId>,
    /// The training edges in both directions.
    known: KnownEdges,
}

/// Ends of an edge that are replaced by candidates.
pub(super) fn ends(config: &TrainConfig, edges: &LinkEdges) -> Vec<End> {
    // relations have queries for both ends, users have queries for items
    match config.own.get::<LinkOptions>().ends(edges.relations.len() > 1 || edges.undirected) {
        Corrupt::Destination => vec![End::Destination],
        Corrupt::Source => vec![End::Source],
        Corrupt::Both => vec![End::Destination, End::Source],
    }
}

impl<'a> Batches<'a> {
    /// Prepares the batches of a configuration.
    ///
    /// # Errors
    /// The sampler of negatives is unknown, or has nothing to draw; or the edges have no walks.
    pub(super) fn new(config: &TrainConfig, edges: &'a LinkEdges) -> Result<Self> {
        let (links, options): (LinkOptions, EmbeddingOptions) = (config.own.get(), config.own.get());
        let mut batches = Self {
            edges,
            ends: ends(config, edges),
            num_negatives: links.num_negatives,
            subsampling: options.subsampling,
            samplers: Vec::new(),
            walks: PairsOfWalks::new(&links, &options, edges)?,
            lists: None,
            notes: Vec::new(),
        };
        if let Some(PairsOfWalks { walks, .. }) = &batches.walks {
            // pairs come in both directions
            batches.ends = vec![End::Destination];
            let (count, length) = (walks.len(), links.walk_nodes);
            let note =
                format!("seeds are {count} walks of {length} nodes, and positives pairs of their nodes");
            batches.notes.push(note);
        }
        if options.one_vs_all {
            batches.num_negatives = 0;
            return Ok(batches);
        }
        let make = link::TABLE.find(&links.negatives).map_err(Error::name)?.make;
        batches.lists = batches.read_lists(&links)?;
        let [sources, destinations] = edges.learned_ends();
        let known = KnownEdges::new(edges.num_rows(), &sources, &destinations)?;
        for &end in &batches.ends {
            for relation in 0..edges.relations.len() {
                let candidates = batches.candidates(relation as u32, end).clone();
                let has = |(of, range, _): &(End, Range<NodeId>, _)| *of == end && *range == candidates;
                if !batches.samplers.iter().any(has) {
                    let (candidates, lists) = (&candidates, batches.lists.as_ref());
                    let source = NegativeSource { known: &known, end, candidates, node_time: None, lists };
                    let sampler = make(&source)?;
                    batches.samplers.push((end, candidates.clone(), sampler));
                }
            }
        }
        Ok(batches)
    }

    /// Lists that negatives are drawn from.
    fn read_lists(&mut self, links: &LinkOptions) -> Result<Option<Arc<NegativeLists>>> {
        match links.negatives.as_str() {
            "file" => {
                let candidates: Vec<_> =
                    self.edges.relations.iter().map(|relation| relation.candidates.clone()).collect();
                let learned = &self.edges.learned;
                let is_edge =
                    |[u, r, v]: [u32; 3]| learned.ends_of(r, End::Destination, u).binary_search(&v).is_ok();
                let path = Path::new(&links.negatives_file);
                let FileLists { lists, note } = lists::read(path, &candidates, &is_edge)?;
                self.notes.push(note);
                Ok(Some(Arc::new(lists)))
            }
            "hard" => Ok(Some(Arc::default())),
            _ => Ok(None),
        }
    }

    /// Lists of hard negatives, if the run draws them.
    pub(super) fn hard(&self, config: &TrainConfig) -> Option<Arc<NegativeLists>> {
        let is_hard = config.own.get::<LinkOptions>().negatives == "hard";
        self.lists.clone().filter(|_| is_hard)
    }

    /// Ends of queries with the relations and rows that are fixed in some query of training:
    /// ascending.
    pub(super) fn queries(&self) -> Vec<(End, u32, Vec<NodeId>)> {
        let mut all = Vec::new();
        for &end in &self.ends {
            let mut fixed: Vec<(u32, NodeId)> = match &self.walks {
                Some(of) => of.rows.clone().map(|row| (0, row)).collect(),
                None => {
                    let fixed = |&[u, r, v]: &[u32; 3]| (r, if end == End::Source { v } else { u });
                    self.edges.parts[0].iter().map(fixed).collect()
                }
            };
            fixed.par_sort_unstable();
            fixed.dedup();
            let of_relations = fixed.chunk_by(|a, b| a.0 == b.0);
            all.extend(of_relations.map(|of| (end, of[0].0, of.iter().map(|query| query.1).collect())));
        }
        all
    }

    /// Number of seeds of an epoch: edges or walks.
    pub(super) fn num_seeds(&self) -> usize {
        self.walks.as_ref().map_or(self.edges.parts[0].len(), |of| of.walks.len())
    }

    /// Rows that may replace an end of an edge of a relation.
    fn candidates(&self, relation: u32, end: End) -> &Range<NodeId> {
        match &self.walks {
            Some(of) => &of.rows,
            None => &self.edges.relations[relation as usize].candidates[end as usize],
        }
    }

    /// Replaces `out` by the queries of the training edges, or of the walks, with these numbers.
    ///
    /// # Errors
    /// An edge has no negative.
    pub(super) fn fill(&self, of: BatchKey, numbers: &[NodeId], out: &mut QueryBatch) -> Result<()> {
        out.clear();
        let edges: Vec<[u32; 3]> = match &self.walks {
            Some(PairsOfWalks { walks, .. }) => {
                let pairs = walks.pairs(of.seed, of.epoch, numbers)?;
                pairs.into_iter().map(|(u, v)| [u, 0, v]).collect()
            }
            None => numbers.iter().map(|&i| self.edges.parts[0][i as usize]).collect(),
        };
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
            let candidates = self.candidates(relation, end);
            let positives: Vec<(NodeId, NodeId)> =
                group.iter().map(|&i| (edges[i][0], edges[i][2])).collect();
            let of_relation = self.edges.learned.of_relation(relation);
            let known: &dyn Known = self.walks.as_ref().map_or(&of_relation, |of| &of.known);
            let parts = [of.seed, of.epoch, of.batch, NEGATIVES, end as u64, relation.into()];
            let request = NegativeRequest {
                known,
                relation,
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

impl PairsOfWalks {
    /// Prepares the walks of a run, if its positives are their pairs.
    ///
    /// # Errors
    /// There are several relations, which walks do not distinguish, or pairs are compared with all
    /// candidates.
    fn new(links: &LinkOptions, options: &EmbeddingOptions, edges: &LinkEdges) -> Result<Option<Self>> {
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
                "--one-vs-all and --subsampling are for edges; leave them out, or use --positives edges"
                    .into(),
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
        Ok(Some(Self { walks, rows: 0..edges.num_rows() as NodeId, known }))
    }
}
