//! Rankings of rows with times, as of these times.
//!
//! # Algorithm
//!
//! A ranking computes the embeddings of the sources with rows and of all destinations that exist,
//! as of each time of a part, and ranks the destinations of each row among them. With
//! `--eval-negatives`, each row is ranked among candidates of its own instead (`drawn.rs`).
//!
//! # Source
//!
//! Robinson et al., RelBench: a benchmark for deep learning on relational databases, NeurIPS 2024
//! (datasets and benchmarks), section 3: rows of a task see earlier rows of the database.
//!
//! # Cost
//!
//! Per time of a part, the neighbourhoods of all destinations, and O(Q C F) to rank `Q` rows.

use std::collections::{BTreeMap, BTreeSet};

use graphmill_core::{NodeId, progress::Progress};
use graphmill_loader::typed::TypedSampler;
use graphmill_nn::Matrix;

use super::{
    super::{inference::TypedInference, tables::Tables, task::TypedTask},
    learner::LinkModel,
    task::TypedLinks,
};
use crate::{
    Result, TrainConfig,
    build::processor,
    config::link::LinkOptions,
    link::LinkMetric,
    relational::{Query, Ranking, values},
};

/// Rankings of rows with times by a model.
pub(super) struct TimedRanking<'a> {
    pub(super) config: &'a TrainConfig,
    pub(super) of: &'a TypedLinks,
    /// Sampler of training, whose relations inference follows.
    pub(super) sampler: &'a dyn TypedSampler,
    /// Feature table of each type.
    pub(super) tables: &'a Tables,
    pub(super) watch: &'a dyn Progress,
}

impl TimedRanking<'_> {
    /// Metrics of a part of the split by name, and the number of ranked edges.
    ///
    /// # Errors
    /// The model does not fit the dataset, or the work is stopped.
    pub(super) fn scores(
        &self,
        model: &LinkModel,
        part: usize,
        metrics: &[LinkMetric],
    ) -> Result<(BTreeMap<String, f64>, usize)> {
        let drawn = self.config.own.get::<LinkOptions>().eval_negatives;
        if drawn > 0 {
            return self.drawn_scores(model, part, metrics, drawn);
        }
        let of_kind = |of_lists: bool| {
            let own = metrics.iter().filter(move |m| !m.is_pooled() && m.is_of_lists() == of_lists);
            own.collect::<Vec<&LinkMetric>>()
        };
        let kinds = [false, true].map(of_kind);
        let mut queries = [false, true].map(|of_lists| match kinds[usize::from(of_lists)].is_empty() {
            true => BTreeMap::new(),
            false => self.of.edges.queries_by_time(part, of_lists, self.config.eval_nodes),
        });
        let times: BTreeSet<i64> = queries.iter().flat_map(|by_time| by_time.keys().copied()).collect();
        let mut ranks: [Vec<Vec<f64>>; 2] = Default::default();
        for time in times {
            self.watch.check()?;
            let at_time = queries.each_mut().map(|by_time| by_time.remove(&time).unwrap_or_default());
            self.rank(model, time, at_time, &mut ranks)?;
        }
        let (mut scores, mut count) = (BTreeMap::new(), 0);
        for (ranks, metrics) in ranks.iter().zip(kinds).filter(|(_, metrics)| !metrics.is_empty()) {
            count = ranks.iter().map(Vec::len).sum();
            scores.extend(values(ranks, metrics));
        }
        Ok((scores, count))
    }

    /// Appends the ranks of the targets of `queries`, of single edges and of lists, as of `time`.
    fn rank(
        &self,
        model: &LinkModel,
        time: i64,
        queries: [Vec<Query>; 2],
        ranks: &mut [Vec<Vec<f64>>; 2],
    ) -> Result<()> {
        let edges = &self.of.edges;
        let relation = &edges.relations[0];
        let [sources, destinations] = &relation.candidates;
        let mut nodes = vec![Vec::new(); self.of.inputs.graph.schema().num_types()];
        nodes[relation.types[0]].extend(queries.iter().flatten().map(|query| query.fixed - sources.start));
        let existing = edges.times.as_ref().and_then(|times| times.existing.as_ref());
        match existing {
            Some(existing) => {
                let existing = existing.at(time).iter().map(|&row| row - destinations.start);
                nodes[relation.types[1]].extend(existing);
            }
            None => nodes[relation.types[1]].extend(0..destinations.len() as NodeId),
        }
        for nodes in &mut nodes {
            nodes.sort_unstable();
            nodes.dedup();
        }
        let inputs = &self.of.inputs;
        let times = inputs.times.clone().map(|times| times.at_time(time));
        let task = TypedTask { times, ..inputs.clone() };
        let inference = TypedInference::new(self.config, &task, self.sampler, self.tables.clone())?;
        let mut rows = Matrix::default();
        inference.watched(self.watch).embed_nodes(&model.encoder, &nodes, &mut rows)?;
        // a table of these rows alone: those of one type after those of another
        let first = |t: usize| nodes[..t].iter().map(Vec::len).sum::<usize>() as NodeId;
        let candidates = relation.types.map(|t| first(t)..first(t) + nodes[t].len() as NodeId);
        let number = |end: usize, row: NodeId| {
            let list: &[NodeId] = &nodes[relation.types[end]];
            let v = row - relation.candidates[end].start;
            first(relation.types[end]) + list.partition_point(|&other| other < v) as NodeId
        };
        let edges = edges.on_rows(candidates);
        let (processor, decoder) = (processor(self.config), &*model.decoder);
        let ranking = Ranking { processor, edges: &edges, decoder, embeddings: &rows, ends: &[], max: 0 };
        for (queries, ranks) in queries.into_iter().zip(ranks) {
            let renumbered = |query: Query| Query {
                fixed: number(0, query.fixed),
                targets: query.targets.into_iter().map(|row| number(1, row)).collect(),
                excluded: query.excluded.into_iter().map(|row| number(1, row)).collect(),
                ..query
            };
            let queries: Vec<Query> = queries.into_iter().map(renumbered).collect();
            ranks.extend(rayon::scope(|_| ranking.ranks(&queries)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use graphmill_data::{TypedBuilder, TypedDataset, typed::EdgeType};
    use graphmill_loader::{
        BatchKey,
        time::{TimeBound, TimeDraw, TimeOptions},
        typed::{TypedSeeds, TypedWorkspace},
    };
    use proptest::prelude::*;

    use super::{
        super::{
            super::{build, stages::SeedSource},
            batch::LinkSeeds,
        },
        *,
    };

    const ITEMS: u32 = 6;
    const USERS: u32 = 4;

    /// Users, items that exist from a time on, purchases, and rows of a user, a time and an item.
    fn data(edges: &[(u32, u32, i64)], rows: &[(u32, i64, u32)], exists: &[i64]) -> TypedDataset {
        let mut builder = TypedBuilder::new("shop");
        builder.node_type("user", USERS as usize).features(1, vec![0.5f32; USERS as usize]);
        let items = builder.node_type("item", ITEMS as usize);
        items.features(1, vec![0.5f32; ITEMS as usize]).time(exists.to_vec());
        let (users, items): (Vec<u32>, Vec<u32>) = edges.iter().map(|edge| (edge.0, edge.1)).unzip();
        let times: Vec<i64> = edges.iter().map(|edge| edge.2).collect();
        builder.edge_type("user", "buys", "item").edges(users, items).time(times).with_reverse("bought-by");
        let pairs: Vec<u32> = rows.iter().flat_map(|row| [row.0, row.2]).collect();
        let task = builder.task("next").on_edges(EdgeType::new("user", "next", "item")).pair_seeds(pairs);
        task.time(rows.iter().map(|row| row.1).collect::<Vec<_>>());
        task.split((0..rows.len() as u32).collect::<Vec<_>>(), [], []);
        builder.build().unwrap()
    }

    proptest! {
        #[test]
        fn no_sampled_edge_is_newer_than_its_row_and_negatives_exist(
            edges in prop::collection::vec((0u32..USERS, 0u32..ITEMS, 0i64..20), 1..40),
            rows in prop::collection::vec((0u32..USERS, 0i64..22, 0u32..ITEMS), 1..14),
            exists in prop::collection::vec(0i64..8, ITEMS as usize),
            draw in prop::sample::select(vec![TimeDraw::Uniform, TimeDraw::Last, TimeDraw::Recency]),
            bound in prop::sample::select(vec![TimeBound::Strict, TimeBound::Inclusive]),
            batch_size in 1usize..4,
        ) {
            let is_there = |item: u32, time: i64| exists[item as usize] <= time;
            let edges: Vec<_> = edges.into_iter().filter(|edge| is_there(edge.1, edge.2)).collect();
            let rows: Vec<_> = rows.into_iter().filter(|row| is_there(row.2, row.1)).collect();
            if edges.is_empty() || rows.is_empty() {
                return Ok(());
            }
            let data = data(&edges, &rows, &exists);
            let fanout = graphmill_loader::Fanout(vec![3, 2]);
            let mut config = TrainConfig { task: "next".into(), hidden: 4, fanout, ..TrainConfig::default() };
            config.own.set(LinkOptions { num_negatives: 2, ..LinkOptions::default() });
            config.own.set(TimeOptions { time_draw: draw, time_bound: bound, ..TimeOptions::default() });
            for sampler in ["neighbor", "full"] {
                config.sampler = sampler.into();
                let of = TypedLinks::new(&config, &data).unwrap();
                let sampler = build::sampler(&config, &of.inputs).unwrap();
                let whole = of.inputs.times.as_ref().unwrap().full_sampler(&config, &*sampler).unwrap();
                let source = LinkSeeds::new(&config, &of).unwrap();
                let numbers: Vec<NodeId> = (0..rows.len() as NodeId).collect();
                for (number, part) in (0..).zip(numbers.chunks(batch_size)) {
                    let key = BatchKey { seed: 3, epoch: 1, batch: number };
                    // a row may have no negative
                    let Ok(seeds) = source.fill(key, part, TypedSeeds::default()) else { continue };
                    check_pairs(&seeds, part, (&rows, &exists))?;
                    check_edges(&of, &*sampler, key, seeds, (&edges, bound))?;
                    let seeds = source.fill(key, part, TypedSeeds::default()).unwrap();
                    check_edges(&of, &*whole, key, seeds, (&edges, bound))?;
                }
            }
        }
    }

    /// Checks the pairs of a batch of the rows `part`.
    fn check_pairs(
        seeds: &TypedSeeds,
        part: &[NodeId],
        (rows, exists): (&[(u32, i64, u32)], &[i64]),
    ) -> Result<(), TestCaseError> {
        let links = seeds.links.as_deref().unwrap();
        let all = || (0..2).flat_map(|t| seeds.nodes[t].iter().zip(&seeds.times[t]).map(move |at| (t, at)));
        let seed = |at: NodeId| {
            let (t, (&v, &time)) = all().nth(at as usize).unwrap();
            (t, v, time)
        };
        let each = links.num_negatives();
        for (i, &number) in part.iter().enumerate() {
            let (user, time, item) = rows[number as usize];
            let first = part.len() + i * each;
            for pair in [i].into_iter().chain(first..first + each) {
                prop_assert_eq!(seed(links.source[pair]), (0, user, time));
                let (t, other, at) = seed(links.destination[pair]);
                prop_assert_eq!((t, at), (1, time));
                if pair == i {
                    prop_assert_eq!(other, item);
                } else {
                    prop_assert!(exists[other as usize] <= time, "{other} exists later than {time}");
                    prop_assert!(!rows.contains(&(user, time, other)), "{other} is no negative");
                }
            }
        }
        Ok(())
    }

    /// Checks that the edges of a batch existed at the times of the seeds that read them.
    fn check_edges(
        of: &TypedLinks,
        sampler: &dyn TypedSampler,
        key: BatchKey,
        seeds: TypedSeeds,
        (edges, bound): (&[(u32, u32, i64)], TimeBound),
    ) -> Result<(), TestCaseError> {
        let times = seeds.times.clone();
        let latest = times.iter().flatten().copied().max().unwrap();
        let mut workspace = TypedWorkspace::new(of.inputs.graph.schema());
        let request = of.inputs.request(key).transposed();
        let batch = sampler.sample(&request, &mut workspace, seeds).unwrap();
        prop_assert!(batch.seeds.links.is_some(), "pairs are kept");
        let top = batch.blocks.len() - 1;
        for (l, block) in batch.blocks.iter().enumerate() {
            for (slice, relation) in block.relations.iter().zip(of.inputs.graph.schema().relations()) {
                let [sources, ends] = [relation.src, relation.dst].map(|t| &batch.input_nodes[t]);
                for (v, &end) in ends.iter().enumerate().take(slice.num_dst) {
                    let time = if l == top { times[relation.dst][v] } else { latest };
                    for e in slice.edges(v) {
                        let pair = (sources[slice.indices[e] as usize], end);
                        let (user, item) = if relation.src == 0 { pair } else { (pair.1, pair.0) };
                        let exists =
                            edges.iter().any(|&(u, i, at)| (u, i) == (user, item) && bound.admits(at, time));
                        prop_assert!(exists, "{user} {item} at {time}");
                    }
                }
            }
        }
        Ok(())
    }
}
