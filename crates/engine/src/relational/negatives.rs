//! Negatives of edges by relation.

use std::{ops::Range, path::Path, sync::Arc};

use graphmill_core::{End, NodeId, keyed::key, memory, options::one_of};
use graphmill_loader::{
    BatchKey,
    link::{
        self, Known, KnownAt, KnownEdges, ListSource, NegativeKind, NegativeLists, NegativeRequest,
        NegativeSampler, NegativeSource,
    },
};
use rayon::prelude::*;

use super::{
    buckets::Buckets,
    edges::{LinkEdges, Triple},
};
use crate::{
    Error, Result,
    config::link::{LinkOptions, LinkTimes},
    link::lists::{self, FileLists},
};

/// Part of the key of negatives.
const NEGATIVES: u64 = 0x6e65_6761_7469_7665;

/// Rows that negatives of every edge are drawn from, whatever its relation.
pub(crate) struct AnyRow {
    pub(crate) rows: Range<NodeId>,
    /// Edges that are no negatives.
    pub(crate) known: KnownEdges,
}

/// Draws negatives for the edges of each relation. A draw is a function of its key, for any number
/// of threads.
pub(crate) struct RelationNegatives<'a> {
    edges: &'a LinkEdges,
    /// Samplers by end and candidates.
    samplers: Vec<(End, Range<NodeId>, Box<dyn NegativeSampler>)>,
    any_row: Option<AnyRow>,
    /// Buckets of rows; the negatives of an end are of its bucket.
    buckets: Buckets,
    /// Lists that negatives are drawn from, if any.
    lists: Option<Arc<NegativeLists>>,
    /// Facts for the user.
    pub(crate) notes: Vec<String>,
}

impl<'a> RelationNegatives<'a> {
    /// Prepares draws for these ends of `edges`.
    ///
    /// # Errors
    /// The sampler of negatives is unknown, or has nothing to draw.
    pub(crate) fn new(
        options: &LinkOptions,
        edges: &'a LinkEdges,
        ends: &[End],
        any_row: Option<AnyRow>,
        buckets: Buckets,
    ) -> Result<Self> {
        let make = link::TABLE.find(&options.negatives).map_err(Error::name)?.make.make;
        let mut negatives =
            Self { edges, samplers: Vec::new(), any_row, buckets, lists: None, notes: Vec::new() };
        negatives.lists = negatives.read_lists(options)?;
        let [sources, destinations] = edges.learned_ends();
        let known = KnownEdges::new(edges.num_rows(), &sources, &destinations)?;
        let node_time = edges.times.as_ref().and_then(|times| times.of_nodes(edges.num_rows()));
        let node_time = node_time.as_deref();
        for &end in ends {
            for candidates in negatives.drawn_from(end) {
                let has = |(of, range, _): &(End, Range<NodeId>, _)| *of == end && *range == candidates;
                if !negatives.samplers.iter().any(has) {
                    let (candidates, lists) = (&candidates, negatives.lists.as_ref());
                    let source = NegativeSource { known: &known, end, candidates, node_time, lists };
                    let sampler = make(&source)?;
                    negatives.samplers.push((end, candidates.clone(), sampler));
                }
            }
        }
        Ok(negatives)
    }

    /// Lists that negatives are drawn from.
    fn read_lists(&mut self, options: &LinkOptions) -> Result<Option<Arc<NegativeLists>>> {
        let NegativeKind { lists, needs_times, is_of_batch, .. } =
            link::TABLE.find(&options.negatives).map_err(Error::name)?.make;
        let (name, has_times) = (&options.negatives, self.edges.times.is_some());
        let of_edges = options.link_times == LinkTimes::Edges;
        match lists {
            Some(_) if has_times => Err(Error::usage(format!(
                "--negatives {name}: its lists hold non-edges of any time, and the {} have times; use \
                 --negatives {}",
                if of_edges { "edges" } else { "rows of the task" },
                one_of(&link::negatives_that(|kind| kind.lists.is_none() && !(of_edges && kind.is_of_batch)))
            ))),
            _ if is_of_batch && of_edges => Err(Error::usage(format!(
                "--negatives {name} with --link-times edges: other edges of a batch have other times; use \
                 --negatives {}",
                one_of(&link::negatives_that(|kind| kind.lists.is_none() && !kind.is_of_batch))
            ))),
            _ if needs_times && !has_times => Err(Error::usage(format!(
                "--negatives {name}: the rows of the task have no times, so that all nodes exist; use \
                 --negatives {}",
                one_of(&link::negatives_that(|kind| !kind.needs_times))
            ))),
            Some(ListSource::File) => {
                let candidates: Vec<_> =
                    self.edges.relations.iter().map(|relation| relation.candidates.clone()).collect();
                let learned = &self.edges.learned;
                let is_edge =
                    |[u, r, v]: [u32; 3]| learned.ends_of(r, End::Destination, u).binary_search(&v).is_ok();
                let path = Path::new(&options.negatives_file);
                let FileLists { lists, note } = lists::read(path, &candidates, &is_edge)?;
                self.notes.push(note);
                Ok(Some(Arc::new(lists)))
            }
            Some(ListSource::Ranking) => Ok(Some(Arc::default())),
            None => Ok(None),
        }
    }

    /// Lists of hard negatives, if the run draws them.
    pub(crate) fn hard(&self, options: &LinkOptions) -> Option<Arc<NegativeLists>> {
        self.lists.clone().filter(|_| options.draws_from(ListSource::Ranking))
    }

    /// Ranges of rows that negatives of the training edges are drawn from at this end: the
    /// candidates of each relation, by the buckets of the edges' ends.
    fn drawn_from(&self, end: End) -> Vec<Range<NodeId>> {
        let (count, relations) = (self.buckets.len(), self.edges.relations.len());
        if count == 1 {
            return (0..relations as u32).map(|relation| self.candidates(relation, end).clone()).collect();
        }
        let mut has = vec![false; count * relations];
        for &edge in &self.edges.parts[0] {
            has[edge[1] as usize * count + self.buckets.of(node(edge, end))] = true;
        }
        let pairs = (0..relations).flat_map(|relation| (0..count).map(move |bucket| (relation, bucket)));
        pairs
            .zip(has)
            .filter(|&(_, has)| has)
            .map(|((relation, bucket), _)| {
                let first = self.buckets.rows(bucket).start as NodeId;
                self.buckets.part(self.candidates(relation as u32, end), first)
            })
            .collect()
    }

    /// Rows that may replace an end of an edge of a relation.
    fn candidates(&self, relation: u32, end: End) -> &Range<NodeId> {
        match &self.any_row {
            Some(of) => &of.rows,
            None => &self.edges.relations[relation as usize].candidates[end as usize],
        }
    }

    /// `each` negatives of each edge at this end, those of an edge together. The edges of a
    /// relation whose ends are in the same bucket are drawn together. Negatives of an edge with a
    /// time exist then, and are no destination of a row of its source at that time; `times` has the
    /// time of each edge, or is empty.
    ///
    /// # Errors
    /// An edge has no negative.
    pub(crate) fn draw(
        &self,
        of: BatchKey,
        end: End,
        edges: (&[Triple], &[i64]),
        each: usize,
    ) -> Result<Vec<NodeId>> {
        self.draw_with_ratios(of, end, edges, each, None)
    }

    /// Draws as [`RelationNegatives::draw`] does, and adds to `ratios` the logarithm of how many
    /// times as likely each negative is as by a uniform draw.
    ///
    /// # Errors
    /// An edge has no negative.
    pub(crate) fn draw_with_ratios(
        &self,
        of: BatchKey,
        end: End,
        (edges, times): (&[Triple], &[i64]),
        each: usize,
        mut ratios: Option<&mut Vec<f32>>,
    ) -> Result<Vec<NodeId>> {
        let mut out: Vec<NodeId> = memory::demand_zeros(edges.len() * each);
        if each == 0 {
            return Ok(out);
        }
        let has_ratios = ratios.is_some();
        let mut order: Vec<usize> = memory::demand_collect(0..edges.len());
        let of_times = self.edges.times.as_ref().filter(|_| !times.is_empty());
        // the edges of one time are a relation
        let relation_of = |i: usize| of_times.map_or(edges[i][1], |of| of.number(times[i]));
        let group = |&i: &usize| (relation_of(i), self.buckets.of(node(edges[i], end)));
        // edges of a group in their order, without the memory of a stable sort
        order.sort_unstable_by_key(|i| (group(i), *i));
        let groups: Vec<&[usize]> = memory::demand_collect(order.chunk_by(|a, b| group(a) == group(b)));
        let draw = |group: &&[usize]| -> Result<(Vec<NodeId>, Vec<f32>)> {
            let (edge, relation) = (edges[group[0]], relation_of(group[0]));
            let candidates = &self.buckets.part(self.candidates(edge[1], end), node(edge, end));
            let positives: Vec<(NodeId, NodeId)> =
                memory::demand_collect(group.iter().map(|&i| (edges[i][0], edges[i][2])));
            let of_relation = self.edges.learned.of_relation(relation);
            let existing = of_times.and_then(|of| of.existing.as_ref());
            let at_time = existing.map(|nodes| KnownAt { known: &of_relation, nodes, time: times[group[0]] });
            let known: &dyn Known = match (&self.any_row, &at_time) {
                (Some(of), _) => &of.known,
                (None, Some(at_time)) => at_time,
                (None, None) => &of_relation,
            };
            let latest: Vec<i64> = match of_times {
                Some(_) => memory::demand_collect(group.iter().map(|&i| times[i])),
                None => Vec::new(),
            };
            let bucket = self.buckets.of(node(edge, end)) as u64;
            let parts = [of.seed, of.epoch, of.batch, NEGATIVES, end as u64, relation.into(), bucket];
            // runs with one bucket keep the draws that they had before there were buckets
            let parts = &parts[..parts.len() - usize::from(self.buckets.len() == 1)];
            let request = NegativeRequest {
                known,
                relation,
                end,
                candidates,
                positives: &positives,
                latest: &latest,
                key: key(parts),
            };
            let mut drawn: Vec<NodeId> = memory::demand_zeros(group.len() * each);
            let mut ratios: Vec<f32> = memory::demand_zeros(if has_ratios { drawn.len() } else { 0 });
            let fits = |(of, range, _): &&(End, Range<NodeId>, _)| *of == end && range == candidates;
            if let Some((.., sampler)) = self.samplers.iter().find(fits) {
                sampler.draw(&request, &mut drawn)?;
                if has_ratios {
                    sampler.log_ratios(&request, &drawn, &mut ratios);
                }
            }
            Ok((drawn, ratios))
        };
        let drawn = memory::demand_par_collect(groups.par_iter().map(draw));
        let first = ratios.as_ref().map_or(0, |ratios| ratios.len());
        if let Some(ratios) = &mut ratios {
            memory::demand_len(ratios, first + out.len(), 0.0);
        }
        for (group, drawn) in groups.iter().zip(drawn) {
            let (nodes, of_nodes) = drawn?;
            scatter(group, &nodes, each, &mut out);
            if let Some(ratios) = &mut ratios {
                scatter(group, &of_nodes, each, &mut ratios[first..]);
            }
        }
        Ok(out)
    }
}

/// Copies the `each` values of each edge of a group to the place of the edge.
fn scatter<T: Copy>(group: &[usize], values: &[T], each: usize, out: &mut [T]) {
    for (&i, row) in group.iter().zip(values.chunks(each)) {
        out[i * each..(i + 1) * each].copy_from_slice(row);
    }
}

/// Row at an end of an edge.
fn node([source, _, destination]: Triple, end: End) -> NodeId {
    match end {
        End::Source => source,
        End::Destination => destination,
    }
}
