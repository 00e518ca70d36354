//! Neighbours that existed at the times of a task's rows.
//!
//! Each row of the task is a node at a time, or a pair of nodes, and its neighbourhood holds what
//! existed then, in training, scores and predictions. Nodes without a row see everything.

use std::sync::Arc;

use graphmill_core::{
    NodeId, ObjectPool,
    options::one_of,
    typed::{Schema, TypedGraph},
};
use graphmill_data::typed::{Seeds, Task, TypedDataset};
use graphmill_loader::{
    time::{TimeBatch, TimeRequest, TimeSeeds, TimeSource, TimeWorkspace, TimedGraph, TimedSampler},
    typed::{
        TABLE, TypedFanout, TypedOptions, TypedRequest, TypedSampled, TypedSampler, TypedSeeds,
        TypedWorkspace, names_at_times,
    },
};

use crate::{Error, Result, TrainConfig};

/// Times of a graph and of the seeds of a task.
#[derive(Clone)]
pub(super) struct TaskTimes {
    graph: Arc<TimedGraph>,
    of_seeds: SeedsAt,
    /// Rows of the graph, if it has those of some nodes alone.
    rows: Option<Arc<dyn TimeSource>>,
}

/// Times of seeds that name none.
#[derive(Clone)]
enum SeedsAt {
    /// Those of the rows of the nodes of a type, by its number; other nodes see everything.
    Rows(usize, Arc<Vec<i64>>),
    /// One time.
    Time(i64),
}

impl SeedsAt {
    /// Time of node `v` of the type `t`.
    fn of(&self, t: usize, v: NodeId) -> i64 {
        match self {
            Self::Rows(node_type, times) if t == *node_type => {
                times.get(v as usize).copied().unwrap_or(i64::MAX)
            }
            Self::Rows(..) => i64::MAX,
            Self::Time(time) => *time,
        }
    }
}

/// The graph of a dataset with its times, for rows of the task `name`, which have times.
///
/// # Errors
/// No edge and no node has a time, or columns of times do not fit the graph.
fn timed(data: &TypedDataset, name: &str, graph: &TypedGraph) -> Result<Arc<TimedGraph>> {
    let of_edges: Vec<_> = data.edges.iter().map(|edges| edges.time.clone()).collect();
    let of_nodes: Vec<_> = data.nodes.iter().map(|nodes| nodes.time.clone()).collect();
    if of_edges.iter().chain(&of_nodes).all(Option::is_none) {
        let message = format!(
            "the rows of task '{name}' have times, but no edge or node has one, so that predictions would \
             see later edges; add times to the edges, or leave out those of the task"
        );
        return Err(Error::dataset(&data.name, message));
    }
    Ok(Arc::new(TimedGraph::new(graph.clone(), &of_edges, of_nodes)?))
}

impl TaskTimes {
    /// Times of `task`, whose seeds are distinct nodes of the type `node_type`; `None` if its rows
    /// have no times.
    ///
    /// # Errors
    /// No edge and no node of the graph has a time, or a row is from before its node exists.
    pub(super) fn new(
        data: &TypedDataset,
        task: &Task,
        graph: &TypedGraph,
        node_type: usize,
    ) -> Result<Option<Self>> {
        let Some(time) = &task.time else { return Ok(None) };
        let graph = timed(data, &task.name, graph)?;
        let mut of_node = vec![i64::MAX; data.nodes[node_type].count];
        match &task.seeds {
            Some(Seeds::Nodes(nodes)) => {
                nodes.iter().zip(time.iter()).for_each(|(&v, &time)| of_node[v as usize] = time);
            }
            _ => of_node.copy_from_slice(time),
        }
        if let Some(exists) = graph.node_time(node_type)
            && let Some(v) = (0..of_node.len()).find(|&v| exists[v] > of_node[v])
        {
            let message = format!(
                "the row of node {v} of task '{}' has time {}, but the node exists from time {} on; use a \
                 later time or leave the row out",
                task.name, of_node[v], exists[v]
            );
            return Err(Error::dataset(&data.name, message));
        }
        let of_seeds = SeedsAt::Rows(node_type, Arc::new(of_node));
        Ok(Some(Self { graph, of_seeds, rows: None }))
    }

    /// Times of the link task `name`, whose seeds bring the times of their rows; without them they
    /// see everything.
    ///
    /// # Errors
    /// No edge and no node of the graph has a time.
    pub(super) fn of_links(data: &TypedDataset, name: &str, graph: &TypedGraph) -> Result<Self> {
        let graph = timed(data, name, graph)?;
        Ok(Self { graph, of_seeds: SeedsAt::Time(i64::MAX), rows: None })
    }

    /// The graph with its times.
    pub(super) fn graph(&self) -> &Arc<TimedGraph> {
        &self.graph
    }

    /// The same times, of a graph whose rows are those of `rows`.
    pub(super) fn with_rows(self, rows: Arc<dyn TimeSource>) -> Self {
        Self { rows: Some(rows), ..self }
    }

    /// The same times, but `at` for every seed that names none.
    pub(super) fn at_time(self, at: i64) -> Self {
        Self { of_seeds: SeedsAt::Time(at), ..self }
    }

    /// The same times on `graph`, which has further relations without edges.
    ///
    /// # Errors
    /// None in practice, because a sampler's relations have no edges.
    pub(super) fn with_relations(self, graph: &TypedGraph) -> Result<Self> {
        if graph.relations().len() == self.graph.graph().relations().len() {
            return Ok(self);
        }
        let timed = Arc::unwrap_or_clone(self.graph).with_relations(graph.clone())?;
        Ok(Self { graph: Arc::new(timed), ..self })
    }

    /// The sampler of a configuration.
    ///
    /// # Errors
    /// The sampler ignores times, reads rows that are not in memory, or an option is invalid.
    pub(super) fn sampler(&self, config: &TrainConfig, fanout: TypedFanout) -> Result<Box<dyn TypedSampler>> {
        self.make(&config.sampler, config, fanout)
    }

    /// The sampler of inference: all neighbours that existed, by the relations of the fanout.
    ///
    /// # Errors
    /// None in practice, because [`TaskTimes::sampler`] was made by the same configuration.
    pub(super) fn full_sampler(
        &self,
        config: &TrainConfig,
        sampler: &dyn TypedSampler,
    ) -> Result<Box<dyn TypedSampler>> {
        let schema = self.graph.schema();
        let hops = sampler.num_hops();
        let of_relation = |fanout: TypedFanout, r: usize| {
            let number = |hop| if sampler.follows(schema, hop, r) { -1 } else { 0 };
            fanout.with(schema.relation_name(r), (0..hops).map(number).collect::<Vec<i64>>())
        };
        let fanout = (0..schema.num_relations()).fold(TypedFanout::new(vec![-1; hops]), of_relation);
        self.make("full", config, fanout)
    }

    /// Makes the sampler `name`.
    fn make(&self, name: &str, config: &TrainConfig, fanout: TypedFanout) -> Result<Box<dyn TypedSampler>> {
        let row = TABLE.find(name).map_err(Error::name)?;
        let fault = |message: String| Error::usage(format!("--sampler {name}: {message}"));
        let Some(at_times) = row.make.at_times else {
            let usable = one_of(&names_at_times(|_| true));
            let message = "the rows of the task have times, which it ignores";
            return Err(fault(format!("{message}; use --sampler {usable}")));
        };
        let own = config.own.clone();
        let with = TypedOptions { fanout, seed: config.seed, own, ..TypedOptions::default() };
        let made = (at_times.make)(&with, &self.graph).map_err(fault)?;
        let sampler = match &self.rows {
            None => made,
            Some(rows) => made.over_rows(rows.clone()).ok_or_else(|| {
                let usable = one_of(&names_at_times(|of| of.reads_draw));
                fault(format!(
                    "over ranks it cannot draw at the times of the task's rows, because a rank has the edges \
                     of its own nodes alone; use --sampler {usable}, or train in one process"
                ))
            })?,
        };
        Ok(Box::new(SeedTimes { times: self.clone(), sampler, spare: ObjectPool::default() }))
    }
}

/// Draws among the edges that existed at the times of the seeds.
struct SeedTimes {
    times: TaskTimes,
    sampler: Box<dyn TimedSampler>,
    spare: ObjectPool<TimeWorkspace>,
}

impl TypedSampler for SeedTimes {
    fn num_hops(&self) -> usize {
        self.sampler.num_hops()
    }

    fn num_blocks(&self) -> usize {
        self.sampler.num_blocks()
    }

    fn is_random(&self) -> bool {
        self.sampler.is_random()
    }

    fn is_per_node(&self) -> bool {
        self.sampler.is_per_node()
    }

    fn bytes(&self) -> u64 {
        self.times.graph.index_bytes()
    }

    fn follows(&self, schema: &Schema, hop: usize, r: usize) -> bool {
        self.sampler.follows(schema, hop, r)
    }

    fn sample(
        &self,
        request: &TypedRequest,
        _: &mut TypedWorkspace,
        mut seeds: TypedSeeds,
    ) -> graphmill_core::Result<TypedSampled> {
        let TaskTimes { graph, of_seeds, .. } = &self.times;
        let times = match seeds.times.is_empty() {
            false => std::mem::take(&mut seeds.times),
            true => {
                let of_type = |(t, nodes): (usize, &Vec<NodeId>)| -> Vec<i64> {
                    nodes.iter().map(|&v| of_seeds.of(t, v)).collect()
                };
                seeds.nodes.iter().enumerate().map(of_type).collect()
            }
        };
        let links = seeds.links.take();
        let &TypedRequest { key, positions, aggregation, .. } = request;
        let of = TimeRequest { positions, aggregation, ..TimeRequest::new(graph, key) };
        let of = if request.transposed { of.transposed() } else { of };
        let mut workspace = self.spare.take().unwrap_or_else(|| TimeWorkspace::new(graph.schema()));
        let seeds = TimeSeeds::new(seeds.number, seeds.nodes, times);
        let drawn = self.sampler.sample(&of, &mut workspace, seeds);
        self.spare.put(workspace);
        let TimeBatch { mut sampled, edges, .. } = drawn?;
        sampled.seeds.links = links;
        if request.positions {
            sampled.blocks.iter_mut().zip(edges).for_each(|(block, edges)| block.positions = edges);
        }
        Ok(sampled)
    }
}

#[cfg(test)]
mod tests {
    use graphmill_data::typed::TypedBuilder;
    use graphmill_loader::{
        BatchKey,
        sampler::WeightedOptions,
        time::{TimeBound, TimeDraw, TimeOptions},
    };
    use proptest::prelude::*;

    use super::*;
    use crate::typed::{build, task::TypedTask};

    /// Users and items with timed edges in both directions, and a task on users at times.
    fn data(edges: &[(u32, u32, i64)], rows: &[i64]) -> TypedDataset {
        let mut builder = TypedBuilder::new("shop");
        builder.node_type("user", rows.len()).features(1, vec![0.5f32; rows.len()]);
        builder.node_type("item", 6).features(1, vec![0.5f32; 6]);
        let (users, items): (Vec<u32>, Vec<u32>) = edges.iter().map(|(u, i, _)| (*u, *i)).unzip();
        let times: Vec<i64> = edges.iter().map(|(.., time)| *time).collect();
        builder.edge_type("user", "buys", "item").edges(users, items).time(times).with_reverse("bought-by");
        let classes: Vec<i32> = (0..rows.len() as i32).map(|v| v % 2).collect();
        let task = builder.task("churn").on_nodes("user").classes(2, classes).time(rows.to_vec());
        task.split([0], [1], [2]);
        builder.build().unwrap()
    }

    /// Returns true if a walk of up to three traversals over users that meet leads from one of a
    /// pair to the other.
    fn meets(meet: &impl Fn(u32, u32) -> bool, (from, to): (u32, u32)) -> bool {
        let next = |at: u32| (0..4).filter(move |&u| meet(at, u));
        next(to).any(|a| a == from || next(a).any(|b| b == from || next(b).any(|c| c == from)))
    }

    proptest! {
        #[test]
        fn no_sampled_edge_is_newer_than_its_seed(
            edges in prop::collection::vec((0u32..4, 0u32..6, 0i64..20), 1..40),
            rows in prop::collection::vec(0i64..22, 4),
            draw in prop::sample::select(vec![TimeDraw::Uniform, TimeDraw::Last, TimeDraw::Recency]),
            bound in prop::sample::select(vec![TimeBound::Strict, TimeBound::Inclusive]),
            name in prop::sample::select(names_at_times(|_| true)),
            seed in 0u32..4,
        ) {
            let data = data(&edges, &rows);
            let task = TypedTask::new(&data, "").unwrap();
            let fanout = graphmill_loader::Fanout(vec![3, 2]);
            let row = TABLE.find(name).unwrap();
            let reads_draw = row.make.at_times.unwrap().reads_draw;
            let config = TrainConfig { sampler: name.into(), fanout, ..TrainConfig::default() }
                .with(|options: &mut TimeOptions| {
                    options.time_draw = if reads_draw { draw } else { TimeDraw::Uniform };
                    options.time_bound = bound;
                })
                .with(|options: &mut WeightedOptions| options.replace = true);
            let task = task.with_added(&config, &[0]).unwrap();
            let sampler = build::sampler(&config, &task).unwrap();
            let inference = match row.make.added {
                // walks have no stored edges, which inference could read whole
                Some(_) => build::sampler(&config, &task).unwrap(),
                None => task.times.as_ref().unwrap().full_sampler(&config, &*sampler).unwrap(),
            };
            for sampler in [sampler, inference] {
                let seeds = TypedSeeds::default().refill(0, &task.seeds(&[seed]));
                let request = TypedRequest::new(&task.graph, BatchKey { seed: 3, epoch: 1, batch: 0 });
                let mut workspace = TypedWorkspace::new(task.graph.schema());
                let batch = sampler.sample(&request, &mut workspace, seeds).unwrap();
                let exists = |u: u32, i: u32| edges.iter().any(|&(user, item, time)| {
                    (user, item) == (u, i) && bound.admits(time, rows[seed as usize])
                });
                let meet = |u: u32, v: u32| (0..6).any(|item| exists(u, item) && exists(v, item));
                let relations = task.graph.schema().num_relations();
                let of_blocks = batch.blocks.iter();
                for (block, r) in of_blocks.flat_map(|block| (0..relations).map(move |r| (block, r))) {
                    let relation = task.graph.schema().relations()[r].clone();
                    let slice = &block.relations[r];
                    let [sources, ends] =
                        [relation.src, relation.dst].map(|t| &batch.input_nodes[t]);
                    for (v, &end) in ends.iter().enumerate().take(slice.num_dst) {
                        for e in slice.edges(v) {
                            let pair = (sources[slice.indices[e] as usize], end);
                            if relation.src == relation.dst {
                                prop_assert!(meets(&meet, pair), "{name}: {pair:?}");
                                continue;
                            }
                            let (user, item) = if relation.src == 0 { pair } else { (pair.1, pair.0) };
                            prop_assert!(exists(user, item), "{name}: {user} {item}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn unusable_times_are_refused_with_a_remedy() {
        let data = data(&[(0, 1, 5)], &[3, 4, 5, 6]);
        let task = TypedTask::new(&data, "").unwrap();
        let config = TrainConfig { sampler: "saint-rw".into(), ..TrainConfig::default() };
        let message = build::sampler(&config, &task).map(drop).unwrap_err().to_string();
        assert!(message.contains("use --sampler neighbor, full, weighted, labor, hgt"), "{message}");
        let config = TrainConfig { sampler: "labor".into(), ..TrainConfig::default() };
        let last = config.clone().with(|options: &mut TimeOptions| options.time_draw = TimeDraw::Last);
        let message = build::sampler(&last, &task).map(drop).unwrap_err().to_string();
        assert!(message.contains("leave it out, or use --sampler neighbor"), "{message}");
        let mut late = data.clone();
        late.nodes[0].time = Some(vec![0, 0, 9, 0].into());
        let message = TypedTask::new(&late, "").map(drop).unwrap_err().to_string();
        assert!(message.contains("node 2 of task 'churn' has time 5, but the node exists from time 9"));
    }
}
