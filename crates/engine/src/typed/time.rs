//! Neighbours that existed at the times of a task's rows.
//!
//! Each row of the task is a node at a time, or a pair of nodes, and its neighbourhood holds what
//! existed then, in training, scores and predictions. Nodes without a row see everything.

use std::sync::Arc;

use graphmill_core::{
    NodeId, ObjectPool,
    typed::{Schema, TypedGraph},
};
use graphmill_data::typed::{Seeds, Task, TypedDataset};
use graphmill_loader::{
    time::{
        TimeBatch, TimeDraw, TimeOptions, TimeRequest, TimeSampler, TimeSeeds, TimeSource, TimeWorkspace,
        TimedGraph,
    },
    typed::{TypedFanout, TypedRequest, TypedSampled, TypedSampler, TypedSeeds, TypedWorkspace},
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

    /// The sampler of a configuration.
    ///
    /// # Errors
    /// The sampler ignores times, or an option is invalid.
    pub(super) fn sampler(&self, config: &TrainConfig, fanout: TypedFanout) -> Result<Box<dyn TypedSampler>> {
        let fanout = match &config.sampler[..] {
            "neighbor" => fanout,
            "full" => all_of(self.graph.schema(), &fanout).map_err(Error::usage)?,
            other => {
                let message =
                    "the rows of the task have times, which it ignores; use --sampler neighbor or full";
                return Err(Error::usage(format!("--sampler {other}: {message}")));
            }
        };
        self.make(config, fanout)
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
        self.make(config, fanout)
    }

    fn make(&self, config: &TrainConfig, fanout: TypedFanout) -> Result<Box<dyn TypedSampler>> {
        let schema = self.graph.schema();
        let options: TimeOptions = config.own.get();
        let numbers = fanout.of_relations(schema).map_err(Error::usage)?;
        Ok(Box::new(SeedTimes {
            times: self.clone(),
            sampler: TimeSampler::new(schema, &fanout, options).map_err(Error::usage)?,
            is_random: options.time_draw != TimeDraw::Last,
            fanout: numbers,
            spare: ObjectPool::default(),
        }))
    }
}

/// The fanout with all neighbours by every relation that it follows.
fn all_of(schema: &Schema, fanout: &TypedFanout) -> Result<TypedFanout, String> {
    let numbers = fanout.of_relations(schema)?;
    let of_relation = |all: TypedFanout, r: usize| {
        let number = |&number: &usize| if number == 0 { 0 } else { -1 };
        all.with(schema.relation_name(r), numbers[r].iter().map(number).collect::<Vec<i64>>())
    };
    let all = TypedFanout::new(vec![-1; fanout.all.len()]);
    Ok((0..schema.num_relations()).fold(all, of_relation))
}

/// Draws among the edges that existed at the times of the seeds.
struct SeedTimes {
    times: TaskTimes,
    sampler: TimeSampler,
    /// Numbers of neighbours by relation and hop.
    fanout: Vec<Vec<usize>>,
    is_random: bool,
    spare: ObjectPool<TimeWorkspace>,
}

impl TypedSampler for SeedTimes {
    fn num_hops(&self) -> usize {
        self.sampler.num_hops()
    }

    fn num_blocks(&self) -> usize {
        self.sampler.num_hops()
    }

    fn is_random(&self) -> bool {
        self.is_random
    }

    /// The draws of a node at a time have a key of their own.
    fn is_per_node(&self) -> bool {
        true
    }

    fn follows(&self, _: &Schema, hop: usize, r: usize) -> bool {
        self.fanout[r][hop] > 0
    }

    fn sample(
        &self,
        request: &TypedRequest,
        _: &mut TypedWorkspace,
        mut seeds: TypedSeeds,
    ) -> graphmill_core::Result<TypedSampled> {
        let TaskTimes { graph, of_seeds, rows } = &self.times;
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
        let of = TimeRequest { positions: request.positions, ..TimeRequest::new(graph, request.key) };
        let of = if request.transposed { of.transposed() } else { of };
        let mut workspace = self.spare.take().unwrap_or_else(|| TimeWorkspace::new(graph.schema()));
        let seeds = TimeSeeds::new(seeds.number, seeds.nodes, times);
        let drawn = match rows {
            None => self.sampler.sample(&of, &mut workspace, seeds),
            Some(rows) => self.sampler.sample_from(&**rows, &of, &mut workspace, seeds),
        };
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
    use graphmill_loader::{BatchKey, time::TimeBound};
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

    proptest! {
        #[test]
        fn no_sampled_edge_is_newer_than_its_seed(
            edges in prop::collection::vec((0u32..4, 0u32..6, 0i64..20), 1..40),
            rows in prop::collection::vec(0i64..22, 4),
            draw in prop::sample::select(vec![TimeDraw::Uniform, TimeDraw::Last, TimeDraw::Recency]),
            bound in prop::sample::select(vec![TimeBound::Strict, TimeBound::Inclusive]),
            full in any::<bool>(),
            seed in 0u32..4,
        ) {
            let data = data(&edges, &rows);
            let task = TypedTask::new(&data, "").unwrap();
            let fanout = graphmill_loader::Fanout(vec![3, 2]);
            let mut config = TrainConfig { fanout, ..TrainConfig::default() };
            if full {
                config.sampler = "full".into();
            }
            let config = config.with(|options: &mut TimeOptions| {
                (options.time_draw, options.time_bound) = (draw, bound);
            });
            let sampler = build::sampler(&config, &task).unwrap();
            let inference = task.times.as_ref().unwrap().full_sampler(&config, &*sampler).unwrap();
            for sampler in [sampler, inference] {
                let seeds = TypedSeeds::default().refill(0, &task.seeds(&[seed]));
                let request = TypedRequest::new(&task.graph, BatchKey { seed: 3, epoch: 1, batch: 0 });
                let mut workspace = TypedWorkspace::new(task.graph.schema());
                let batch = sampler.sample(&request, &mut workspace, seeds).unwrap();
                let exists = |u: u32, i: u32| edges.iter().any(|&(user, item, time)| {
                    (user, item) == (u, i) && bound.admits(time, rows[seed as usize])
                });
                for (block, r) in batch.blocks.iter().flat_map(|block| (0..2).map(move |r| (block, r))) {
                    let relation = task.graph.schema().relations()[r].clone();
                    let slice = &block.relations[r];
                    let [sources, ends] =
                        [relation.src, relation.dst].map(|t| &batch.input_nodes[t]);
                    for (v, &end) in ends.iter().enumerate().take(slice.num_dst) {
                        for e in slice.edges(v) {
                            let pair = (sources[slice.indices[e] as usize], end);
                            let (user, item) = if relation.src == 0 { pair } else { (pair.1, pair.0) };
                            prop_assert!(exists(user, item), "{user} {item}");
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
        let config = TrainConfig { sampler: "labor".into(), ..TrainConfig::default() };
        let message = build::sampler(&config, &task).map(drop).unwrap_err().to_string();
        assert!(message.contains("use --sampler neighbor or full"), "{message}");
        let mut late = data.clone();
        late.nodes[0].time = Some(vec![0, 0, 9, 0].into());
        let message = TypedTask::new(&late, "").map(drop).unwrap_err().to_string();
        assert!(message.contains("node 2 of task 'churn' has time 5, but the node exists from time 9"));
    }
}
