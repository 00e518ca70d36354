//! Seeds of batches of links: both ends of supervision edges and of their negatives.

use std::sync::Arc;

use graphmill_core::{End, alias::Alias, keyed};
use graphmill_loader::{
    BatchKey,
    link::{
        ExcludedEdges, KnownEdges, NegativeLists, NegativeRequest, NegativeSampler, NegativeSource, TABLE,
        WeightedNegatives,
    },
};

use super::Seeds;

/// Part of the key of negatives.
const NEGATIVES: u64 = 0x6e65_6761_7469_7665;
/// Part of the key of the sources of negatives.
const SOURCES: u64 = 0x736f_7572_6365_7300;

/// Negatives of links, drawn by replacing destinations.
pub struct Negatives {
    known: KnownEdges,
    sampler: Box<dyn NegativeSampler>,
    /// Distribution of the sources; `None` for the sources of the positives.
    sources: Option<Alias>,
    /// Number of the first destination among the nodes of `known`.
    first: u32,
    candidates: std::ops::Range<u32>,
    /// Negatives of each positive.
    amount: f64,
    /// True to list the negatives of a positive together.
    together: bool,
}

/// Negatives of each positive, and true to list those of a positive together.
pub type Amount = (f64, bool);

/// Pairs and times that some rows of the table of negatives draw from.
#[derive(Debug, Default)]
pub struct Given<'g> {
    /// Pairs of the row `file`.
    pub listed: Option<(Vec<u32>, Vec<u32>)>,
    /// Weight of each source, by which every negative draws one in the place of its positive's.
    pub src_weight: Option<Vec<f64>>,
    /// Weight of each destination, which are drawn by it in the place of the row of the table.
    pub dst_weight: Option<Vec<f64>>,
    /// Time from which each destination exists, for rows that read it.
    pub times: Option<&'g [i64]>,
}

impl Negatives {
    /// Prepares negatives among `num_dst` destinations, which are not among the `known` edges:
    /// `amount` for each positive, drawn by the row `name` of the loader's table. With `same_type`
    /// sources and destinations share their ids, and no node is linked to itself.
    ///
    /// # Errors
    /// A number is out of range, the row is unknown, or there is nothing to draw from.
    pub fn new(
        name: &str,
        (num_src, num_dst, same_type): (usize, usize, bool),
        known: (&[u32], &[u32]),
        (amount, together): Amount,
        Given { listed, src_weight, dst_weight, times }: Given,
    ) -> Result<Self, String> {
        if !(amount > 0.0 && amount <= 1e6) {
            return Err(format!("amount {amount}: use a number above 0 and at most 1000000"));
        }
        let first = if same_type { 0 } else { num_src };
        let nodes = if same_type { num_src } else { num_src + num_dst };
        let first = u32::try_from(first).map_err(|_| "negatives need fewer than 2^32 nodes".to_string())?;
        let destinations: Vec<u32> = known.1.iter().map(|&v| v + first).collect();
        let known = KnownEdges::new(nodes, known.0, &destinations).map_err(|e| e.to_string())?;
        let candidates = first..first + num_dst as u32;
        let make = TABLE.find(name).map_err(|e| e.to_string())?.make.make;
        let lists = listed.map(|(src, dst)| {
            let triples: Vec<[u32; 3]> = src.into_iter().zip(dst).map(|(u, v)| [u, 0, v + first]).collect();
            Arc::new(NegativeLists::of_triples(&triples))
        });
        let times = times.map(|times| [vec![i64::MIN; first as usize], times.to_vec()].concat());
        let source = NegativeSource {
            known: &known,
            end: End::Destination,
            candidates: &candidates,
            node_time: times.as_deref(),
            lists: lists.as_ref(),
        };
        let sampler: Box<dyn NegativeSampler> = match complete("dst_weight", dst_weight, num_dst)? {
            Some(weights) => {
                Box::new(WeightedNegatives::new(weights, first).map_err(|e| format!("dst_weight: {e}"))?)
            }
            None => make(&source).map_err(|e| e.to_string())?,
        };
        let sources = complete("src_weight", src_weight, num_src)?.map(|weights| Alias::new(&weights));
        let sources = sources.transpose().map_err(|e| format!("src_weight: {e}"))?;
        Ok(Self { known, sampler, sources, first, candidates, amount, together })
    }

    /// Draws the negatives of these positives, which have the times `latest` unless it is empty:
    /// source and destination of each.
    ///
    /// # Errors
    /// A source is linked to all destinations.
    pub fn draw(
        &self,
        key: BatchKey,
        positives: &[(u32, u32)],
        latest: &[i64],
    ) -> Result<Vec<(u32, u32)>, String> {
        let each = self.amount.ceil() as usize;
        let of_batch = keyed::key(&[key.seed, key.epoch, key.batch, NEGATIVES]);
        let mut shifted: Vec<(u32, u32)> = positives.iter().map(|&(u, v)| (u, v + self.first)).collect();
        if let Some(sources) = &self.sources {
            let all = shifted.iter().flat_map(|pair| std::iter::repeat_n(pair.1, each));
            let source = |i: u64| sources.draw(&mut keyed::Stream::new(keyed::key(&[of_batch, SOURCES, i])));
            shifted = (0..).zip(all).map(|(i, v)| (source(i), v)).collect();
        }
        let each_latest: Vec<i64>;
        let latest = if self.sources.is_some() {
            each_latest = latest.iter().flat_map(|time| std::iter::repeat_n(*time, each)).collect();
            &each_latest[..]
        } else {
            latest
        };
        let mut drawn = vec![0; positives.len() * each];
        let request = NegativeRequest {
            known: &self.known,
            relation: 0,
            end: End::Destination,
            candidates: &self.candidates,
            positives: &shifted,
            latest,
            key: of_batch,
        };
        self.sampler.draw(&request, &mut drawn).map_err(|e| e.to_string())?;
        let of = |i: usize, k: usize| {
            let source = if self.sources.is_some() { shifted[i * each + k].0 } else { positives[i].0 };
            (source, drawn[i * each + k] - self.first)
        };
        if self.together {
            let all = (0..positives.len()).flat_map(|i| (0..each).map(move |k| (i, k)));
            return Ok(all.map(|(i, k)| of(i, k)).collect());
        }
        let count = (positives.len() as f64 * self.amount).ceil() as usize;
        let all = (0..each).flat_map(|k| (0..positives.len()).map(move |i| (i, k)));
        Ok(all.take(count).map(|(i, k)| of(i, k)).collect())
    }

    /// Positive of negative number `i` of a batch of `positives`.
    fn positive(&self, i: usize, positives: usize) -> usize {
        if self.together { i / (self.amount.ceil() as usize).max(1) } else { i % positives.max(1) }
    }
}

/// Checks that there is a weight for each of `count` nodes, if there are weights.
fn complete(name: &str, weights: Option<Vec<f64>>, count: usize) -> Result<Option<Vec<f64>>, String> {
    match &weights {
        Some(given) if given.len() != count => {
            Err(format!("{name}: {} weights for {count} nodes; pass one for each", given.len()))
        }
        _ => Ok(weights),
    }
}

/// Supervision edges of a relation.
pub struct Links {
    /// Types of the sources and the destinations.
    pub types: (usize, usize),
    /// Source and destination of each edge.
    pub edges: Vec<(u32, u32)>,
    /// Time of each edge, which bounds the hops around its ends and those of its negatives; empty
    /// without times.
    pub latest: Vec<i64>,
    /// Negatives, if any.
    pub negatives: Option<Negatives>,
    /// Relations whose copies of a batch's edges no hop follows; true for reverse edges.
    pub exclude: Vec<(usize, bool)>,
    /// True to draw a separate neighbourhood for each end.
    pub disjoint: bool,
}

/// Positions of the ends of a batch's pairs among the nodes of their types: positives, then
/// negatives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs {
    /// Position of each source.
    pub src: Vec<u32>,
    /// Position of each destination.
    pub dst: Vec<u32>,
    /// Positive of each tree, if trees are disjoint.
    pub of_tree: Vec<u32>,
}

impl Links {
    /// Makes the seeds of a batch of these `positives` of a graph with `types` node types. `latest`
    /// has their times, or is empty.
    ///
    /// # Errors
    /// An edge has no negative.
    pub fn seeds(
        &self,
        key: BatchKey,
        (positives, latest): (&[(u32, u32)], &[i64]),
        types: usize,
    ) -> Result<(Seeds, Pairs), String> {
        let mut all = positives.to_vec();
        if let Some(negatives) = &self.negatives {
            all.extend(negatives.draw(key, positives, latest)?);
        }
        let mut seeds = Seeds { nodes: vec![Vec::new(); types], ..Seeds::default() };
        let pairs = if self.disjoint {
            self.trees(&all, (positives.len(), latest), &mut seeds)
        } else {
            self.shared(&all, &mut seeds)
        };
        for &(r, _) in &self.exclude {
            if seeds.excluded.iter().all(|(of, _)| *of != r) {
                let rules = self.exclude.iter().filter(|(of, _)| *of == r);
                let ends = |&(u, v): &(u32, u32), reverse| if reverse { (v, u) } else { (u, v) };
                let mut edges = ExcludedEdges::default();
                edges.refill(rules.flat_map(|rule| positives.iter().map(move |pair| ends(pair, rule.1))));
                seeds.excluded.push((r, edges));
            }
        }
        Ok((seeds, pairs))
    }

    /// Adds each end once, ascending.
    fn shared(&self, all: &[(u32, u32)], seeds: &mut Seeds) -> Pairs {
        let (src, dst) = self.types;
        seeds.nodes[src].extend(all.iter().map(|pair| pair.0));
        seeds.nodes[dst].extend(all.iter().map(|pair| pair.1));
        for nodes in &mut seeds.nodes {
            nodes.sort_unstable();
            nodes.dedup();
        }
        let place = |t: usize, v: u32| seeds.nodes[t].partition_point(|&u| u < v) as u32;
        Pairs {
            src: all.iter().map(|pair| place(src, pair.0)).collect(),
            dst: all.iter().map(|pair| place(dst, pair.1)).collect(),
            of_tree: Vec::new(),
        }
    }

    /// Adds each end with a tree of its own: the sources, then the destinations. The negatives of a
    /// triplet have the source of their positive.
    fn trees(&self, all: &[(u32, u32)], (positives, latest): (usize, &[i64]), seeds: &mut Seeds) -> Pairs {
        let (src, dst) = self.types;
        let positive = |i: usize| match &self.negatives {
            Some(negatives) if i >= positives => negatives.positive(i - positives, positives),
            _ => i,
        };
        let is_triplet = self.negatives.as_ref().is_some_and(|negatives| negatives.together);
        let sources = if is_triplet { positives } else { all.len() };
        let (from, to) = (sources as u32, all.len() as u32);
        let mut tree = vec![Vec::new(); seeds.nodes.len()];
        seeds.nodes[src].extend(all[..sources].iter().map(|pair| pair.0));
        tree[src].extend(0..from);
        let first = if src == dst { from } else { 0 };
        seeds.nodes[dst].extend(all.iter().map(|pair| pair.1));
        tree[dst].extend(from..from + to);
        seeds.tree = Some(tree);
        let of_tree: Vec<usize> = (0..sources).chain(0..all.len()).map(positive).collect();
        seeds.latest = (!latest.is_empty()).then(|| of_tree.iter().map(|&p| latest[p]).collect());
        let source = |i: usize| if is_triplet { positive(i) } else { i };
        Pairs {
            src: (0..all.len()).map(|i| source(i) as u32).collect(),
            dst: (first..first + to).collect(),
            of_tree: of_tree.into_iter().map(|p| p as u32).collect(),
        }
    }
}
