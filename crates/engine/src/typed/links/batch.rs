//! Seeds of batches of links on several types.
//!
//! ```text
//! numbers of edges ─► positives, negatives ─► ends by type, pairs of their numbers ─► sampler
//!                                                   excluded edges by relation ──────────┘
//! ```

use graphmill_core::{End, NodeId};
use graphmill_loader::{
    BatchKey,
    link::{Corrupt, Exclude, ExcludedEdges},
    typed::TypedSeeds,
};

use super::{
    super::stages::SeedSource,
    task::{TypedLinks, local},
};
use crate::{
    Result, TrainConfig,
    config::link::LinkOptions,
    link::split::Edge,
    relational::{Buckets, RelationNegatives, Triple, corrupt, ends},
};

/// Makes the seeds of the batches of a run.
pub(super) struct LinkSeeds<'a> {
    of: &'a TypedLinks,
    pub(super) negatives: RelationNegatives<'a>,
    /// Negatives of each edge by the end that they replace.
    each: [usize; 2],
    exclude: Exclude,
}

impl<'a> LinkSeeds<'a> {
    /// Prepares the seeds of a configuration.
    ///
    /// # Errors
    /// The sampler of negatives is unknown, or has nothing to draw.
    pub(super) fn new(config: &TrainConfig, of: &'a TypedLinks) -> Result<Self> {
        let options: LinkOptions = config.own.get();
        let k = options.num_negatives;
        let each = match corrupt(config, &of.edges) {
            Corrupt::Source => [k, 0],
            Corrupt::Destination => [0, k],
            Corrupt::Both => [k / 2, k.div_ceil(2)],
        };
        let whole = Buckets::new(of.edges.num_rows(), 1);
        let ends = ends(config, &of.edges);
        let negatives = RelationNegatives::new(&options, &of.edges, &ends, None, whole)?;
        Ok(Self { of, negatives, each, exclude: options.excluded() })
    }

    /// Edges of each relation that the hops of a batch of these positives leave out.
    fn excluded(&self, positives: &[Triple]) -> Vec<ExcludedEdges> {
        if self.exclude == Exclude::Nothing {
            return Vec::new();
        }
        let mut lists: Vec<Vec<Edge>> = vec![Vec::new(); self.of.inputs.graph.relations().len()];
        for &edge in positives {
            let held = self.of.held[edge[1] as usize];
            let (u, v) = local(&self.of.edges, edge);
            lists[held.forward].push((u, v));
            if let Some(reverse) = held.reverse.filter(|_| self.exclude == Exclude::WithReverses) {
                lists[reverse].push((v, u));
            }
        }
        let excluded = |list: Vec<Edge>| {
            let mut excluded = ExcludedEdges::default();
            excluded.refill(list);
            excluded
        };
        lists.into_iter().map(excluded).collect()
    }
}

impl SeedSource for LinkSeeds<'_> {
    /// Ends of the training edges with these numbers and of their negatives.
    fn fill(&self, key: BatchKey, part: &[NodeId], mut memory: TypedSeeds) -> Result<TypedSeeds> {
        let edges = &self.of.edges;
        let mut links = memory.links.take().unwrap_or_default();
        links.clear();
        let positives: Vec<Triple> = part.iter().map(|&number| edges.parts[0][number as usize]).collect();
        let [by_source, by_destination] = self.each;
        let sources = self.negatives.draw(key, End::Source, &positives, by_source)?;
        let destinations = self.negatives.draw(key, End::Destination, &positives, by_destination)?;
        // ends by first appearance
        let mut rows = Vec::new();
        links.positives = positives.len();
        positives.iter().for_each(|&[u, _, v]| links.push(u, v, &mut rows));
        for (i, &[u, _, v]) in positives.iter().enumerate() {
            for k in 0..by_source.max(by_destination) {
                if k < by_destination {
                    links.push(u, destinations[i * by_destination + k], &mut rows);
                }
                if k < by_source {
                    links.push(sources[i * by_source + k], v, &mut rows);
                }
            }
        }
        if edges.relations.len() > 1 {
            let each = by_source + by_destination;
            links.relation.extend(positives.iter().map(|edge| edge[1]));
            links.relation.extend(positives.iter().flat_map(|edge| std::iter::repeat_n(edge[1], each)));
        }
        // those of one type after those of another
        let mut lists: Vec<Vec<NodeId>> = vec![Vec::new(); self.of.inputs.graph.schema().num_types()];
        let mut placed = Vec::with_capacity(rows.len());
        for &row in &rows {
            let (t, v) = edges.node(row);
            placed.push((t, lists[t].len()));
            lists[t].push(v);
        }
        let mut starts = vec![0; lists.len()];
        for t in 1..lists.len() {
            starts[t] = starts[t - 1] + lists[t - 1].len();
        }
        let to: Vec<NodeId> = placed.into_iter().map(|(t, i)| (starts[t] + i) as NodeId).collect();
        links.renumber(&to);
        let lists: Vec<&[NodeId]> = lists.iter().map(Vec::as_slice).collect();
        let mut seeds = memory.refill(key.batch, &lists);
        seeds.excluded = self.excluded(&positives);
        seeds.links = Some(links);
        Ok(seeds)
    }
}
