//! Candidates that edges with times are ranked among, drawn for each.
//!
//! # Algorithm
//!
//! Each query has destinations of its own, distinct and equally likely among those that exist at
//! its time and are in no row of its source at that time. They are functions of the seed, the part
//! and the number of the query, so every epoch and every number of threads ranks among the same.
//!
//! # Source
//!
//! Huang et al., *Temporal graph benchmark*, NeurIPS 2023 (datasets and benchmarks), section 4: one
//! edge against many drawn ones. Its candidates may be earlier edges of the source, too.
//!
//! # Cost
//!
//! O(K) draws for `K` candidates, or one pass over the existing destinations if few are left.

use std::collections::HashSet;

use graphmill_core::{
    NodeId,
    keyed::{Stream, key},
};

use super::{edges::LinkEdges, ranking::Query};

/// Part of the key of the draws.
const CANDIDATES: u64 = 0x6472_6177_6e63_616e;

/// Query at a time with the candidates that its targets are ranked among.
pub(crate) struct DrawnQuery {
    pub(crate) time: i64,
    pub(crate) source: NodeId,
    /// Destinations that are relevant: ascending.
    pub(crate) targets: Vec<NodeId>,
    /// Other destinations, in the order of their draws.
    pub(crate) others: Vec<NodeId>,
}

impl LinkEdges {
    /// Queries of the rows of a part, of at most `max` lists or edges (0 for all), each with `k`
    /// drawn candidates, or fewer if fewer exist.
    pub(crate) fn drawn_queries(
        &self,
        (part, of_lists): (usize, bool),
        max: usize,
        (k, seed): (usize, u64),
    ) -> Vec<DrawnQuery> {
        let by_time = self.queries_by_time(part, of_lists, max);
        let queries =
            by_time.into_iter().flat_map(|(time, of)| of.into_iter().map(move |query| (time, query)));
        let drawn = |(i, (time, query)): (u64, (i64, Query))| {
            let mut stream = Stream::new(key(&[seed, CANDIDATES, part as u64, of_lists.into(), i]));
            let others = self.draw_candidates(time, &query, k, &mut stream);
            DrawnQuery { time, source: query.fixed, targets: query.targets, others }
        };
        (0..).zip(queries).map(drawn).collect()
    }

    /// Draws at most `k` distinct destinations that exist at `time`, and are neither known at the
    /// time nor the source.
    fn draw_candidates(&self, time: i64, query: &Query, k: usize, stream: &mut Stream) -> Vec<NodeId> {
        let all = &self.relations[0].candidates[1];
        let existing = self.times.as_ref().and_then(|times| times.existing.as_ref());
        let existing = existing.map(|nodes| nodes.at(time));
        let count = existing.map_or(all.len(), <[NodeId]>::len);
        let at = |i: usize| existing.map_or(all.start + i as NodeId, |nodes| nodes[i]);
        let has = |list: &[NodeId], node: NodeId| list.binary_search(&node).is_ok();
        let fits =
            |node: NodeId| node != query.fixed && !has(&query.targets, node) && !has(&query.excluded, node);
        let wanted = k + query.targets.len() + query.excluded.len() + 1;
        if count <= 2 * wanted {
            let mut left: Vec<NodeId> = (0..count).map(at).filter(|&node| fits(node)).collect();
            stream.shuffle(&mut left);
            left.truncate(k);
            return left;
        }
        // at least half of the nodes fit, so the draws end
        let (mut drawn, mut seen) = (Vec::with_capacity(k), HashSet::with_capacity(k));
        while drawn.len() < k {
            let node = at(stream.below(count as u64) as usize);
            if fits(node) && seen.insert(node) {
                drawn.push(node);
            }
        }
        drawn
    }
}
