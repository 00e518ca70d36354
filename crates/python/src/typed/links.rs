//! Seeds of batches of links: both ends of supervision edges and of their negatives.

use std::sync::Arc;

use graphmill_core::{End, keyed};
use graphmill_loader::{
    BatchKey,
    link::{
        ExcludedEdges, KnownEdges, NegativeLists, NegativeRequest, NegativeSampler, NegativeSource, TABLE,
    },
};

use super::Seeds;

/// Part of the key of negatives.
const NEGATIVES: u64 = 0x6e65_6761_7469_7665;

/// Negatives of links, drawn by replacing destinations.
pub struct Negatives {
    known: KnownEdges,
    sampler: Box<dyn NegativeSampler>,
    /// Number of the first destination among the nodes of `known`.
    first: u32,
    candidates: std::ops::Range<u32>,
    /// Negatives of each positive.
    amount: f64,
    /// True to list the negatives of a positive together.
    together: bool,
}

impl Negatives {
    /// Prepares negatives among `num_dst` destinations, which are not among the `known` edges:
    /// `amount` for each positive, drawn by the row `name` of the loader's table. With `same_type`
    /// sources and destinations share their ids, and no node is linked to itself. The row `file`
    /// draws from the pairs `listed`.
    ///
    /// # Errors
    /// A number is out of range, the row is unknown, or there is nothing to draw from.
    pub fn new(
        name: &str,
        (num_src, num_dst, same_type): (usize, usize, bool),
        known: (&[u32], &[u32]),
        listed: Option<(Vec<u32>, Vec<u32>)>,
        (amount, together): (f64, bool),
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
        let make = TABLE.find(name).map_err(|e| e.to_string())?.make;
        let lists = listed.map(|(src, dst)| {
            let triples: Vec<[u32; 3]> = src.into_iter().zip(dst).map(|(u, v)| [u, 0, v + first]).collect();
            Arc::new(NegativeLists::of_triples(&triples))
        });
        let source = NegativeSource {
            known: &known,
            end: End::Destination,
            candidates: &candidates,
            node_time: None,
            lists: lists.as_ref(),
        };
        let sampler = make(&source).map_err(|e| e.to_string())?;
        Ok(Self { known, sampler, first, candidates, amount, together })
    }

    /// Draws the negatives of these positives: source and destination of each.
    ///
    /// # Errors
    /// A source is linked to all destinations.
    pub fn draw(&self, key: BatchKey, positives: &[(u32, u32)]) -> Result<Vec<(u32, u32)>, String> {
        let each = self.amount.ceil() as usize;
        let shifted: Vec<(u32, u32)> = positives.iter().map(|&(u, v)| (u, v + self.first)).collect();
        let mut drawn = vec![0; positives.len() * each];
        let request = NegativeRequest {
            known: &self.known,
            relation: 0,
            end: End::Destination,
            candidates: &self.candidates,
            positives: &shifted,
            latest: &[],
            key: keyed::key(&[key.seed, key.epoch, key.batch, NEGATIVES]),
        };
        self.sampler.draw(&request, &mut drawn).map_err(|e| e.to_string())?;
        let of = |i: usize, k: usize| (positives[i].0, drawn[i * each + k] - self.first);
        if self.together {
            let all = (0..positives.len()).flat_map(|i| (0..each).map(move |k| (i, k)));
            return Ok(all.map(|(i, k)| of(i, k)).collect());
        }
        let count = (positives.len() as f64 * self.amount).ceil() as usize;
        let all = (0..each).flat_map(|k| (0..positives.len()).map(move |i| (i, k)));
        Ok(all.take(count).map(|(i, k)| of(i, k)).collect())
    }
}

/// Supervision edges of a relation.
pub struct Links {
    /// Types of the sources and the destinations.
    pub types: (usize, usize),
    /// Source and destination of each edge.
    pub edges: Vec<(u32, u32)>,
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
    /// Pair of each tree, if trees are disjoint.
    pub of_tree: Vec<u32>,
}

impl Links {
    /// Makes the seeds of a batch of these `positives` of a graph with `types` node types.
    ///
    /// # Errors
    /// An edge has no negative.
    pub fn seeds(
        &self,
        key: BatchKey,
        positives: &[(u32, u32)],
        types: usize,
    ) -> Result<(Seeds, Pairs), String> {
        let mut all = positives.to_vec();
        if let Some(negatives) = &self.negatives {
            all.extend(negatives.draw(key, positives)?);
        }
        let mut seeds = Seeds { nodes: vec![Vec::new(); types], ..Seeds::default() };
        let pairs = if self.disjoint { self.trees(&all, &mut seeds) } else { self.shared(&all, &mut seeds) };
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

    /// Adds each end with a tree of its own: the sources of all pairs, then the destinations.
    fn trees(&self, all: &[(u32, u32)], seeds: &mut Seeds) -> Pairs {
        let (src, dst) = self.types;
        let count = all.len() as u32;
        let mut tree = vec![Vec::new(); seeds.nodes.len()];
        seeds.nodes[src].extend(all.iter().map(|pair| pair.0));
        tree[src].extend(0..count);
        let first = if src == dst { count } else { 0 };
        seeds.nodes[dst].extend(all.iter().map(|pair| pair.1));
        tree[dst].extend(count..2 * count);
        seeds.tree = Some(tree);
        let of_tree = (0..count).chain(0..count).collect();
        Pairs { src: (0..count).collect(), dst: (first..first + count).collect(), of_tree }
    }
}
