//! Seeds of batches of links on several types. An end of a row with a time is a seed at that time,
//! so a node may be several seeds.
//!
//! ```text
//! numbers of edges ─► positives, negatives ─► ends by type, pairs of their numbers ─► sampler
//!                                                   excluded edges by relation ──────────┘
//! ```

use std::collections::HashMap;

use graphmill_core::{End, NodeId, memory};
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
        // rows with times read no edge from their time on
        if self.exclude == Exclude::Nothing || self.of.edges.times.is_some() {
            return Vec::new();
        }
        let mut lists: Vec<Vec<Edge>> = vec![Vec::new(); self.of.inputs.graph.relations().len()];
        for &edge in positives {
            let held = self.of.held[edge[1] as usize];
            let (u, v) = local(&self.of.edges, edge);
            memory::demand_push(&mut lists[held.forward], (u, v));
            if let Some(reverse) = held.reverse.filter(|_| self.exclude == Exclude::WithReverses) {
                memory::demand_push(&mut lists[reverse], (v, u));
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

/// Numbers of ends that have times. Ends without times are their own numbers.
#[derive(Default)]
struct TimedEnds {
    /// Row and time of each number.
    ends: Vec<(NodeId, i64)>,
    numbers: HashMap<(NodeId, i64), NodeId>,
}

impl TimedEnds {
    /// Number of `row` at `time`.
    fn number(&mut self, row: NodeId, time: i64) -> NodeId {
        let Self { ends, numbers } = self;
        memory::demand_in_map(numbers, 1);
        memory::demand(ends, 1);
        *numbers.entry((row, time)).or_insert_with(|| {
            ends.push((row, time));
            (ends.len() - 1) as NodeId
        })
    }

    /// Row and time of an end.
    fn of(&self, number: NodeId) -> (NodeId, Option<i64>) {
        match self.ends.get(number as usize) {
            Some(&(row, time)) => (row, Some(time)),
            None => (number, None),
        }
    }
}

impl SeedSource for LinkSeeds<'_> {
    /// Ends of the training edges with these numbers and of their negatives.
    fn fill(&self, key: BatchKey, part: &[NodeId], mut recycled: TypedSeeds) -> Result<TypedSeeds> {
        let edges = &self.of.edges;
        let mut links = recycled.links.take().unwrap_or_default();
        links.clear();
        let positives: Vec<Triple> =
            memory::demand_collect(part.iter().map(|&number| edges.parts[0][number as usize]));
        let of_rows = edges.times.as_ref().map(|times| &times.of_parts[0]);
        let times: Vec<i64> = match of_rows {
            Some(times) => memory::demand_collect(part.iter().map(|&number| times[number as usize])),
            None => Vec::new(),
        };
        let [by_source, by_destination] = self.each;
        let drawn = (&positives[..], &times[..]);
        let sources = self.negatives.draw(key, End::Source, drawn, by_source)?;
        let destinations = self.negatives.draw(key, End::Destination, drawn, by_destination)?;
        // ends by first appearance
        let (mut rows, mut ends) = (Vec::new(), TimedEnds::default());
        links.positives = positives.len();
        let mut push = |i: usize, [u, v]: [NodeId; 2]| {
            let [u, v] = match times.get(i) {
                Some(&time) => [u, v].map(|row| ends.number(row, time)),
                None => [u, v],
            };
            links.push(u, v, &mut rows);
        };
        positives.iter().enumerate().for_each(|(i, &[u, _, v])| push(i, [u, v]));
        for (i, &[u, _, v]) in positives.iter().enumerate() {
            for k in 0..by_source.max(by_destination) {
                if k < by_destination {
                    push(i, [u, destinations[i * by_destination + k]]);
                }
                if k < by_source {
                    push(i, [sources[i * by_source + k], v]);
                }
            }
        }
        if edges.relations.len() > 1 {
            let each = by_source + by_destination;
            memory::demand(&mut links.relation, positives.len() * (1 + each));
            links.relation.extend(positives.iter().map(|edge| edge[1]));
            links.relation.extend(positives.iter().flat_map(|edge| std::iter::repeat_n(edge[1], each)));
        }
        // those of one type after those of another
        let mut lists: Vec<Vec<NodeId>> = vec![Vec::new(); self.of.inputs.graph.schema().num_types()];
        let mut at_times: Vec<Vec<i64>> = vec![Vec::new(); lists.len()];
        let mut placed = Vec::new();
        memory::demand(&mut placed, rows.len());
        for &row in &rows {
            let (row, time) = ends.of(row);
            let (t, v) = edges.node(row);
            placed.push((t, lists[t].len()));
            memory::demand_push(&mut lists[t], v);
            memory::demand_extend(&mut at_times[t], time);
        }
        let mut starts = vec![0; lists.len()];
        for t in 1..lists.len() {
            starts[t] = starts[t - 1] + lists[t - 1].len();
        }
        let to: Vec<NodeId> = memory::demand_collect(placed.iter().map(|&(t, i)| (starts[t] + i) as NodeId));
        links.renumber(&to);
        let lists: Vec<&[NodeId]> = lists.iter().map(Vec::as_slice).collect();
        let mut seeds = recycled.refill(key.batch, &lists);
        if of_rows.is_some() {
            seeds.times = at_times;
        }
        seeds.excluded = self.excluded(&positives);
        seeds.links = Some(links);
        Ok(seeds)
    }

    fn types(&self) -> Vec<usize> {
        self.of.types().collect()
    }

    fn train(&self) -> Vec<NodeId> {
        let (edges, schema) = (&self.of.edges, self.of.inputs.graph.schema());
        let mut ends: Vec<NodeId> = edges.learned_ends().concat();
        ends.sort_unstable();
        ends.dedup();
        let global = |row: NodeId| {
            let (t, v) = edges.node(row);
            schema.global(t, v)
        };
        ends.into_iter().map(global).collect()
    }
}
