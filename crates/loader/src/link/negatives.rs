//! Negative edges: pairs without a known edge, each made of a positive edge by replacing one end.

mod by_degree;

use std::{ops::Range, sync::Arc};

use graphmill_core::{
    End, Error, NodeId, Result,
    keyed::{Stream, key},
    table::{Entry, Table},
};
use rayon::prelude::*;

use self::by_degree::ByDegree;
use super::{existing::ExistingNodes, known::Known, lists::NegativeLists};

/// Draws that hit a known edge before an end is drawn from all candidates without one.
pub(super) const MAX_TRIES: usize = 64;
/// Least number of negatives of a task.
const MIN_TASK_LEN: usize = 1 << 12;

/// Negatives to draw for the positives of a batch.
#[derive(Clone, Copy, Debug)]
pub struct NegativeRequest<'a> {
    /// Edges that are no negatives.
    pub known: &'a dyn Known,
    /// Relation of the positives; 0 if there is one.
    pub relation: u32,
    /// End that is replaced.
    pub end: End,
    /// Nodes that may replace it.
    pub candidates: &'a Range<NodeId>,
    /// Source and destination of each positive.
    pub positives: &'a [(NodeId, NodeId)],
    /// Latest time from which a negative of each positive may exist, or empty: any. Only samplers
    /// that know the times of nodes read it.
    pub latest: &'a [i64],
    /// Key of the draws, a function of seed, epoch and batch.
    pub key: u64,
}

impl NegativeRequest<'_> {
    /// Draws one end for each positive `out.len() / positives.len()` times: `draw` proposes a node
    /// for the positive of that number, and a known edge is drawn again, at last from all
    /// candidates without a known edge.
    ///
    /// # Errors
    /// A positive has no negative: its other end is linked to all candidates.
    fn fill(
        &self,
        out: &mut [NodeId],
        draw: impl Fn(usize, &mut Stream) -> NodeId + Sync,
        tries: usize,
    ) -> Result<()> {
        self.choose(out, |i, edge, stream| {
            let proposed = (0..tries).map(|_| draw(i, stream));
            let found = { proposed }.find(|&u| self.known.is_negative(self.end, edge, u));
            let found = found.or_else(|| self.known.draw(self.end, edge, self.candidates, stream));
            found.ok_or_else(|| self.no_negative(edge))
        })
    }

    /// Fills `out` by `choose`, which gets the number of the positive, its ends and the random
    /// numbers of that positive.
    ///
    /// # Errors
    /// Those of `choose`.
    pub(super) fn choose(
        &self,
        out: &mut [NodeId],
        choose: impl Fn(usize, (NodeId, NodeId), &mut Stream) -> Result<NodeId> + Sync,
    ) -> Result<()> {
        let each = out.len() / self.positives.len().max(1);
        let fill = |(i, row): (usize, &mut [NodeId])| {
            let mut stream = Stream::new(key(&[self.key, i as u64]));
            for node in row {
                *node = choose(i, self.positives[i], &mut stream)?;
            }
            Ok(())
        };
        let rows = out.par_chunks_exact_mut(each.max(1)).enumerate();
        rows.with_min_len(MIN_TASK_LEN.div_ceil(each.max(1))).try_for_each(fill)
    }

    fn no_negative(&self, (source, destination): (NodeId, NodeId)) -> Error {
        let (fixed, what) = match self.end {
            End::Source => (destination, "source"),
            End::Destination => (source, "destination"),
        };
        Error::invalid(format!(
            "no negative edge for {source} -> {destination}: node {fixed} has edges with all {} candidates \
             for its {what}; replace the other end, or leave the edge out",
            self.candidates.len()
        ))
    }
}

/// Chooses the ends of negative edges.
///
/// ```
/// use graphmill_core::Result;
/// use graphmill_loader::link::{NegativeRequest, NegativeSampler};
///
/// /// The first candidate without an edge.
/// struct First;
///
/// impl NegativeSampler for First {
///     fn draw(&self, request: &NegativeRequest, out: &mut [u32]) -> Result<()> {
///         let each = out.len() / request.positives.len().max(1);
///         for (row, &edge) in out.chunks_mut(each.max(1)).zip(request.positives) {
///             let fits = |&u: &u32| request.known.is_negative(request.end, edge, u);
///             row.fill(request.candidates.clone().find(fits).unwrap_or(edge.0));
///         }
///         Ok(())
///     }
/// }
/// ```
pub trait NegativeSampler: Send + Sync {
    /// Overwrites `out` (`P x K`, the `K` negatives of a positive together) with nodes that replace
    /// the request's end. A pure function of the request, independent of the number of threads.
    ///
    /// # Errors
    /// A positive has no negative.
    fn draw(&self, request: &NegativeRequest, out: &mut [NodeId]) -> Result<()>;

    /// Overwrites `out` (`P x K`) with the logarithm of how many times as likely each of the nodes
    /// `drawn` for the request is as if all candidates without a known edge were equally likely.
    /// Zeros unless the sampler's row in [`TABLE`] has [`NegativeKind::has_ratios`].
    fn log_ratios(&self, request: &NegativeRequest, drawn: &[NodeId], out: &mut [f32]) {
        let _ = (request, drawn);
        out.fill(0.0);
    }
}

/// Data for which negatives are chosen.
#[derive(Clone, Copy, Debug)]
pub struct NegativeSource<'a> {
    /// Edges that are no negatives.
    pub known: &'a dyn Known,
    /// End that is replaced.
    pub end: End,
    /// Nodes that may replace it.
    pub candidates: &'a Range<NodeId>,
    /// Time from which each node exists (`V`), if they have times.
    pub node_time: Option<&'a [i64]>,
    /// Negatives of each node, for samplers that draw from lists.
    pub lists: Option<&'a Arc<NegativeLists>>,
}

/// Constructor of a sampler of negatives.
pub type Make = fn(&NegativeSource) -> Result<Box<dyn NegativeSampler>>;

/// Source of the lists that negatives are drawn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListSource {
    /// Pairs of a file, `--negatives-file`.
    File,
    /// Best non-edges by the model of the last epoch, which a run ranks.
    Ranking,
}

/// A kind of sampler of negatives.
#[derive(Clone, Copy)]
pub struct NegativeKind {
    /// Constructor of the sampler.
    pub make: Make,
    /// Source of its lists, if it draws from lists. They hold nodes of any time, among all
    /// candidates.
    pub lists: Option<ListSource>,
    /// True if it draws nodes that exist at the times of edges, so that nodes need times.
    pub needs_times: bool,
    /// True if all candidates without a known edge are equally likely, so that losses can correct
    /// scores for the probabilities of negatives.
    pub is_uniform: bool,
    /// True if other draws state how likely they are ([`NegativeSampler::log_ratios`]).
    pub has_ratios: bool,
    /// True if the nodes are ends of other edges of the batch, which may have other times.
    pub is_of_batch: bool,
}

impl NegativeKind {
    /// Creates a sampler of nodes of any time, without lists.
    pub const fn new(make: Make) -> Self {
        let (needs_times, is_uniform, has_ratios, is_of_batch) = (false, false, false, false);
        Self { make, lists: None, needs_times, is_uniform, has_ratios, is_of_batch }
    }

    const fn with_lists(self, lists: ListSource) -> Self {
        Self { lists: Some(lists), ..self }
    }
}

/// Table of the samplers of negatives.
pub static TABLE: Table<NegativeKind> = Table::new(
    "negatives",
    &[
        Entry {
            name: "uniform",
            summary: "all candidates without a known edge are equally likely",
            source: "",
            options: &[],
            make: NegativeKind { is_uniform: true, ..NegativeKind::new(|_| Ok(Box::new(Uniform))) },
        },
        Entry {
            name: "degree",
            summary: "candidates in proportion to their number of edges to the power of 0.75",
            source: "Mikolov et al., NeurIPS 2013, section 2.2",
            options: &[],
            make: NegativeKind {
                has_ratios: true,
                ..NegativeKind::new(|source| Ok(Box::new(ByDegree::new(source)?)))
            },
        },
        Entry {
            name: "in-batch",
            summary: "ends of the other edges of the batch, whose embeddings are computed anyway",
            source: "Chen et al., KDD 2017",
            options: &[],
            make: NegativeKind { is_of_batch: true, ..NegativeKind::new(|_| Ok(Box::new(InBatch))) },
        },
        Entry {
            name: "existing",
            summary: "candidates that exist at the time of the edge, without a known edge, equally likely",
            source: "",
            options: &[],
            make: NegativeKind {
                needs_times: true,
                ..NegativeKind::new(|source| Ok(Box::new(Existing::new(source)?)))
            },
        },
        Entry {
            name: "file",
            summary: "nodes that --negatives-file lists for the other end, else uniform",
            source: "",
            options: &[],
            make: NegativeKind::new(|source| Listed::make(source, "a file; pass --negatives-file PATH"))
                .with_lists(ListSource::File),
        },
        Entry {
            name: "hard",
            summary: "the --hard-candidates best non-edges by the model of the last epoch",
            source: "Ying et al., KDD 2018, section 3.4",
            options: &[],
            make: NegativeKind::new(|source| Listed::make(source, "the rankings of a run; choose uniform"))
                .with_lists(ListSource::Ranking),
        },
    ],
);

/// Names of the samplers of negatives for which `has` is true.
pub fn negatives_that(has: impl Fn(&NegativeKind) -> bool) -> Vec<&'static str> {
    TABLE.iter().filter(|row| has(&row.make)).map(|row| row.name).collect()
}

/// Uniform draws.
struct Uniform;

impl NegativeSampler for Uniform {
    fn draw(&self, request: &NegativeRequest, out: &mut [NodeId]) -> Result<()> {
        request.fill(out, |_, _| 0, 0)
    }
}

/// Ends of other edges of the batch.
struct InBatch;

impl NegativeSampler for InBatch {
    fn draw(&self, request: &NegativeRequest, out: &mut [NodeId]) -> Result<()> {
        let draw = |_: usize, stream: &mut Stream| {
            let (source, destination) =
                request.positives[stream.below(request.positives.len() as u64) as usize];
            if request.end == End::Source { source } else { destination }
        };
        request.fill(out, draw, MAX_TRIES)
    }
}

/// Uniform draws among the candidates that exist at the time of the edge. Edges of any time are
/// known edges.
struct Existing {
    nodes: ExistingNodes,
}

impl Existing {
    fn new(source: &NegativeSource) -> Result<Self> {
        let candidates = source.candidates;
        let Some(time) = source.node_time else {
            return Err(Error::invalid(
                "negatives that exist at the time of an edge: the nodes have no times; draw them uniformly, \
                 or store the nodes with times",
            ));
        };
        let Some(time) = time.get(candidates.start as usize..candidates.end as usize) else {
            return Err(Error::invalid(format!(
                "negatives that exist at the time of an edge: {} times of nodes for the candidates {} to {}; \
                 pass a time for each node",
                time.len(),
                candidates.start,
                candidates.end.saturating_sub(1)
            )));
        };
        Ok(Self { nodes: ExistingNodes::new(candidates.clone(), time) })
    }
}

impl NegativeSampler for Existing {
    fn draw(&self, request: &NegativeRequest, out: &mut [NodeId]) -> Result<()> {
        request.choose(out, |i, edge, stream| {
            let latest = request.latest.get(i).copied().unwrap_or(i64::MAX);
            let fits = |&u: &NodeId| request.known.is_negative(request.end, edge, u);
            self.nodes.draw(latest, fits, stream).ok_or_else(|| {
                Error::invalid(format!(
                    "no negative edge for {} -> {}: it has edges with all {} candidates that exist at time \
                     {latest}; replace the other end, or leave the edge out",
                    edge.0,
                    edge.1,
                    self.nodes.at(latest).len()
                ))
            })
        })
    }
}

/// Draws from the lists.
struct Listed {
    lists: Arc<NegativeLists>,
}

impl Listed {
    fn make(source: &NegativeSource, need: &str) -> Result<Box<dyn NegativeSampler>> {
        match source.lists {
            Some(lists) => Ok(Box::new(Self { lists: lists.clone() })),
            None => Err(Error::invalid(format!("negatives from lists: they need {need}"))),
        }
    }
}

impl NegativeSampler for Listed {
    fn draw(&self, request: &NegativeRequest, out: &mut [NodeId]) -> Result<()> {
        let end = request.end;
        let each = out.len() / request.positives.len().max(1);
        let fill = |(i, row): (usize, &mut [NodeId])| {
            let edge = request.positives[i];
            let fixed = if end == End::Source { edge.1 } else { edge.0 };
            let fits =
                |u: &NodeId| request.candidates.contains(u) && request.known.is_negative(end, edge, *u);
            let own = |listed: &[NodeId]| listed.iter().copied().filter(fits).collect();
            let listed: Vec<NodeId> = self.lists.with(request.relation, end, fixed, own);
            let mut stream = Stream::new(key(&[request.key, i as u64]));
            for node in row {
                let found = match listed.len() {
                    0 => request.known.draw(end, edge, request.candidates, &mut stream),
                    len => Some(listed[stream.below(len as u64) as usize]),
                };
                *node = found.ok_or_else(|| request.no_negative(edge))?;
            }
            Ok(())
        };
        let rows = out.par_chunks_exact_mut(each.max(1)).enumerate();
        rows.with_min_len(MIN_TASK_LEN.div_ceil(each.max(1))).try_for_each(fill)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::link::KnownEdges;

    fn drawn(name: &str, known: &KnownEdges, end: End, positives: &[(u32, u32)], threads: usize) -> Vec<u32> {
        let candidates = 0..known.num_nodes() as NodeId;
        let source = NegativeSource { known, end, candidates: &candidates, node_time: None, lists: None };
        let sampler = (TABLE.find(name).unwrap().make.make)(&source).unwrap();
        let candidates = &candidates;
        let request = NegativeRequest { known, relation: 0, end, candidates, positives, latest: &[], key: 5 };
        let mut out = vec![0; positives.len() * 3];
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| sampler.draw(&request, &mut out)).unwrap();
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn negatives_are_never_edges(
            edges in prop::collection::vec((0u32..20, 0u32..20), 1..80),
            end in prop::sample::select(vec![End::Source, End::Destination]),
        ) {
            let (source, destination): (Vec<_>, Vec<_>) = edges.iter().copied().unzip();
            // 20 more nodes without edges: there is always a negative
            let known = KnownEdges::new(40, &source, &destination).unwrap();
            for entry in negatives_that(|kind| kind.lists.is_none() && !kind.needs_times) {
                let found = drawn(entry, &known, end, &edges, 1);
                for (row, &(u, v)) in found.chunks(3).zip(&edges) {
                    for &other in row {
                        let (u, v) = if end == End::Source { (other, v) } else { (u, other) };
                        prop_assert!(u != v && !edges.contains(&(u, v)), "{entry}: {u} -> {v}");
                    }
                }
                prop_assert_eq!(found, drawn(entry, &known, end, &edges, 3));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn negatives_exist_at_the_time_of_their_edge(
            edges in prop::collection::vec((0u32..9, 0u32..9, 0i64..20), 1..60),
            node_time in prop::collection::vec(-2i64..20, 20),
            end in prop::sample::select(vec![End::Source, End::Destination]),
        ) {
            let (source, destination): (Vec<_>, Vec<_>) = edges.iter().map(|e| (e.0, e.1)).unzip();
            let known = KnownEdges::new(20, &source, &destination).unwrap();
            let candidates = 0..20;
            let made = NegativeSource {
                known: &known,
                end,
                candidates: &candidates,
                node_time: Some(&node_time[..]),
                lists: None,
            };
            let sampler = (TABLE.find("existing").unwrap().make.make)(&made).unwrap();
            let fits = |&(u, v, time): &(u32, u32, i64)| -> Vec<u32> {
                let exists = |&w: &u32| node_time[w as usize] <= time;
                candidates.clone().filter(exists).filter(|&w| known.is_negative(end, (u, v), w)).collect()
            };
            let (with, without): (Vec<_>, Vec<_>) = edges.iter().partition(|edge| !fits(edge).is_empty());
            let draw = |edges: &[(u32, u32, i64)], threads: usize| {
                let positives: Vec<(u32, u32)> = edges.iter().map(|e| (e.0, e.1)).collect();
                let latest: Vec<i64> = edges.iter().map(|e| e.2).collect();
                let (known, candidates, key) = (&known, &candidates, 5);
                let (positives, latest) = (&positives[..], &latest[..]);
                let request =
                    NegativeRequest { known, relation: 0, end, candidates, positives, latest, key };
                let mut out = vec![0; edges.len() * 40];
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| sampler.draw(&request, &mut out)).map(|()| out)
            };
            let found = draw(&with, 1).unwrap();
            for (row, edge) in found.chunks(40).zip(&with) {
                let fits = fits(edge);
                prop_assert!(row.iter().all(|w| fits.contains(w)));
                // a draw of few candidates finds all of them (each is missed with 2^-40 or less)
                prop_assert!(fits.len() > 2 || fits.iter().all(|w| row.contains(w)));
            }
            prop_assert_eq!(&found, &draw(&with, 3).unwrap());
            for edge in without {
                let error = draw(&[edge], 1).unwrap_err().to_string();
                prop_assert!(error.contains(&format!("that exist at time {}", edge.2)), "{}", error);
            }
        }
    }

    #[test]
    fn existing_negatives_need_times() {
        let known = KnownEdges::new(3, &[0], &[1]).unwrap();
        let make = |node_time: Option<&[i64]>| {
            let source = NegativeSource {
                known: &known,
                end: End::Source,
                candidates: &(0..3),
                node_time,
                lists: None,
            };
            Existing::new(&source).err().unwrap().to_string()
        };
        assert!(make(None).contains("the nodes have no times"));
        assert!(make(Some(&[1])).contains("1 times of nodes for the candidates 0 to 2"));
    }

    #[test]
    fn a_node_with_all_edges_has_no_negative() {
        let known = KnownEdges::new(3, &[0, 0], &[1, 2]).unwrap();
        let request = NegativeRequest {
            known: &known,
            relation: 0,
            end: End::Destination,
            candidates: &(0..3),
            positives: &[(0, 1)],
            latest: &[],
            key: 0,
        };
        let error = Uniform.draw(&request, &mut [0]).unwrap_err().to_string();
        assert_eq!(
            error,
            "no negative edge for 0 -> 1: node 0 has edges with all 3 candidates for its destination; \
             replace the other end, or leave the edge out"
        );
    }

    #[test]
    fn rows_state_the_lists_and_times_that_they_need() {
        assert_eq!(negatives_that(|kind| kind.lists == Some(ListSource::File)), ["file"]);
        assert_eq!(negatives_that(|kind| kind.lists == Some(ListSource::Ranking)), ["hard"]);
        assert_eq!(negatives_that(|kind| kind.is_uniform), ["uniform"]);
        assert_eq!(negatives_that(|kind| kind.has_ratios), ["degree"]);
        let known = KnownEdges::new(3, &[0], &[1]).unwrap();
        let (end, candidates, lists) = (End::Source, &(0..3), Arc::new(NegativeLists::default()));
        for row in &TABLE {
            let kind = row.make;
            let make = |node_time, lists| {
                (kind.make)(&NegativeSource { known: &known, end, candidates, node_time, lists })
            };
            let (times, lists) = (Some(&[1, 2, 3][..]), Some(&lists));
            assert!(make(times, lists).is_ok(), "{}", row.name);
            assert_eq!(make(None, lists).is_err(), kind.needs_times, "{}", row.name);
            assert_eq!(make(times, None).is_err(), kind.lists.is_some(), "{}", row.name);
        }
    }
}
