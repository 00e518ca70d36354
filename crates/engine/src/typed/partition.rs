//! `graphmill partition` of datasets of several types: as [`crate::partition`], by the union of all
//! relations over the ids that the types share, with figures by type.

use std::{fmt, path::Path, sync::Arc, time::Instant};

use graphmill_core::{
    NodeId,
    progress::{Progress, Unit},
    typed::TypedGraph,
};
use graphmill_data::{
    partition::{self as data_partition, Description, PartitionBook, write_types},
    typed::{TaskOn, TypedDataset},
};
use graphmill_loader::{
    BatchKey,
    typed::{TypedRequest, TypedSampled, TypedSampler, TypedSeeds, TypedWorkspace},
};
use rayon::prelude::*;
use serde::Serialize;
use serde_json::json;

use super::{batches::batch_size, build, counted_steps::CountedSteps, task::TypedTask};
use crate::{
    Error, Result, TrainConfig,
    partition::{
        Advice, CrossRequests, Hop, Options, Outcome, Report, Statistics, balance, chosen, of_graph, recorded,
    },
};

/// Nodes of a type in the parts.
#[derive(Clone, Debug, Serialize)]
pub struct NodeTypeParts {
    /// Name of the type.
    pub name: String,
    /// Number of nodes.
    pub nodes: usize,
    /// Largest number of nodes of a part, divided by the mean.
    pub balance: f64,
    /// Distinct input nodes in the drawn minibatches, summed over parts; `None` without training
    /// nodes.
    pub rows: Option<u64>,
    /// Input nodes among them that another part owns.
    pub remote_rows: Option<u64>,
}

/// Edges of a type over the parts.
#[derive(Clone, Debug, Serialize)]
pub struct EdgeTypeParts {
    /// Name of the type.
    pub name: String,
    /// Number of edges.
    pub edges: usize,
    /// Fraction of them between different parts.
    pub edge_cut: f64,
}

/// Result of one method.
#[derive(Clone, Debug, Serialize)]
pub struct TypedOutcome {
    /// Figures over all types.
    #[serde(flatten)]
    pub all: Outcome,
    /// Figures of each node type.
    pub node_types: Vec<NodeTypeParts>,
    /// Figures of each edge type.
    pub edge_types: Vec<EdgeTypeParts>,
}

/// Result of [`run`].
#[derive(Clone, Debug, Serialize)]
pub struct TypedReport {
    /// Name of the dataset.
    pub dataset: String,
    /// Number of nodes of all types.
    pub nodes: usize,
    /// Number of edges of all types.
    pub edges: usize,
    /// Results by method.
    pub results: Vec<TypedOutcome>,
    /// Method to choose, if several are compared.
    pub advice: Option<Advice>,
}

/// Partitions `data` by every method, and writes the parts to `dst` if given, which allows only one
/// method. Methods balance the training nodes of the task that `options` choose, or of the only
/// one; of several, those of all tasks on nodes.
///
/// # Errors
/// An unknown name, an impossible option, several methods with a `dst`, or `dst` cannot be written.
pub fn run(
    options: &Options,
    data: &TypedDataset,
    dst: Option<&Path>,
    watch: &dyn Progress,
) -> Result<TypedReport> {
    let methods = chosen(options, dst)?;
    let graph = data.graph()?;
    let (task, train) = balanced(data, &graph, &options.train.task)?;
    let union = graph.union()?;
    let mut results = Vec::new();
    for (method, partitioner) in methods {
        let began = Instant::now();
        let book = partitioner.partition(&union, &train, watch)?;
        let seconds = began.elapsed().as_secs_f64();
        let mut statistics = of_graph(&union, &train, &book, options.partition.seed);
        let mut rows = vec![None; graph.schema().num_types()];
        if let Some(task) = task.as_ref().filter(|task| !task.split.train.is_empty()) {
            let counted = requests(&options.train, options.batches, task, &book, watch)?;
            statistics.cross_requests = Some(counted.requests);
            rows = counted.rows.into_iter().map(Some).collect();
        }
        let parts = book.parts();
        let all = Outcome { method: method.into(), parts, statistics, seconds };
        let outcome = by_type(all, &graph, &book, &rows);
        if let Some(dst) = dst {
            let what = Description {
                method,
                seed: options.partition.seed,
                options: recorded(&options.partition),
                statistics: json!(Recorded {
                    all: &outcome.all.statistics,
                    node_types: &outcome.node_types,
                    edge_types: &outcome.edge_types,
                }),
                searches: &[],
            };
            write_types(data, &book, &what, dst, watch)?;
        }
        results.push(outcome);
    }
    let (nodes, edges) = (data.num_nodes(), data.num_edges());
    let mut report = TypedReport { dataset: data.name.clone(), nodes, edges, results, advice: None };
    report.advice = report.overall().advised().advice;
    Ok(report)
}

/// Statistics as a partition records them.
#[derive(Serialize)]
struct Recorded<'r> {
    #[serde(flatten)]
    all: &'r Statistics,
    node_types: &'r [NodeTypeParts],
    edge_types: &'r [EdgeTypeParts],
}

/// Global ids of `nodes` of type `t`.
fn global(graph: &TypedGraph, t: usize, nodes: &[NodeId]) -> Vec<NodeId> {
    nodes.iter().map(|&v| graph.schema().global(t, v)).collect()
}

/// The task `name`, or the only one, and the training nodes that methods balance, by global ids.
fn balanced(data: &TypedDataset, graph: &TypedGraph, name: &str) -> Result<(Option<TypedTask>, Vec<NodeId>)> {
    let task = match TypedTask::new(data, name) {
        Ok(task) => Some(task),
        Err(error) if !name.is_empty() => return Err(error),
        Err(_) => None,
    };
    let train = match &task {
        Some(task) => global(graph, task.node_type, &task.split.train),
        None => training_nodes(data, graph)?,
    };
    Ok((task, train))
}

/// Part of each node of every type by the method `method`, with the names of the types. The
/// training nodes of `task` are balanced, as in [`run`].
///
/// # Errors
/// An unknown name, or an impossible option.
pub fn assign(
    method: &str,
    options: &data_partition::Options,
    data: &TypedDataset,
    task: &str,
    watch: &dyn Progress,
) -> Result<Vec<(String, Vec<u16>)>> {
    let entry = data_partition::TABLE.find(method).map_err(Error::name)?;
    let graph = data.graph()?;
    let (_, train) = balanced(data, &graph, task)?;
    let book = (entry.make.make)(options)?.partition(&graph.union()?, &train, watch)?;
    let schema = graph.schema();
    let of_type = |t: usize| {
        let range = schema.range(t);
        (schema.types()[t].name.clone(), book.of()[range.start as usize..range.end as usize].to_vec())
    };
    Ok((0..schema.num_types()).map(of_type).collect())
}

/// Training nodes of all tasks on nodes, by ascending global ids.
fn training_nodes(data: &TypedDataset, graph: &TypedGraph) -> Result<Vec<NodeId>> {
    let mut nodes = Vec::new();
    for task in data.tasks.iter().filter(|task| matches!(task.on, TaskOn::Nodes(_))) {
        // a task whose rows repeat nodes is not trained on, so it needs no balance
        if let Ok(task) = TypedTask::new(data, &task.name) {
            nodes.extend(global(graph, task.node_type, &task.split.train));
        }
    }
    nodes.sort_unstable();
    nodes.dedup();
    Ok(nodes)
}

/// Adds the figures by type; `rows` are the input nodes of each type, and the remote ones.
fn by_type(
    all: Outcome,
    graph: &TypedGraph,
    book: &PartitionBook,
    rows: &[Option<[u64; 2]>],
) -> TypedOutcome {
    let schema = graph.schema();
    let node_types = schema.types().iter().zip(rows).enumerate().map(|(t, (node, rows))| {
        let of_type: Vec<NodeId> = schema.range(t).collect();
        NodeTypeParts {
            name: node.name.clone(),
            nodes: node.count,
            balance: balance(&book.sizes_of(&of_type)),
            rows: rows.map(|[all, _]| all),
            remote_rows: rows.map(|[_, remote]| remote),
        }
    });
    let edge_types = schema.relations().iter().enumerate().map(|(r, relation)| {
        let edges = graph.relation(r);
        let cut = |v: NodeId| {
            let own = book.part_of(schema.global(relation.dst, v));
            let part = |&u: &NodeId| book.part_of(schema.global(relation.src, u));
            edges.in_neighbors(v).iter().filter(|u| part(u) != own).count()
        };
        let rows = (0..edges.num_nodes() as NodeId).into_par_iter().with_min_len(1 << 10);
        EdgeTypeParts {
            name: schema.relation_name(r),
            edges: edges.num_edges(),
            edge_cut: rows.map(cut).sum::<usize>() as f64 / edges.num_edges().max(1) as f64,
        }
    });
    let (node_types, edge_types) = (node_types.collect(), edge_types.collect());
    TypedOutcome { all, node_types, edge_types }
}

/// Counts of drawn minibatches.
pub(super) struct Counted {
    /// Requests between the parts.
    pub(super) requests: CrossRequests,
    /// Input nodes of each type, and the remote ones.
    pub(super) rows: Vec<[u64; 2]>,
    /// Edges of each type into remote nodes.
    pub(super) edges: Vec<u64>,
}

/// Draws at most `batches` minibatches of the first epoch (0: all), and counts requests between the
/// parts, input nodes and edges. Parallel.
///
/// A node is requested once for each relation whose neighbours are drawn. Walks along metapaths
/// are requested step by step.
///
/// # Errors
/// An impossible option.
pub(super) fn requests(
    config: &TrainConfig,
    batches: u64,
    task: &TypedTask,
    book: &PartitionBook,
    watch: &dyn Progress,
) -> Result<Counted> {
    if build::draws_subgraphs(config) {
        return Err(Error::usage(format!(
            "--sampler {} draws whole subgraphs, which have no requests between parts; use a sampler from \
             seeds, such as neighbor",
            config.sampler
        )));
    }
    let (sampler, order) = (build::sampler(config, task)?, build::order(config, task)?);
    let mut seeds = Vec::new();
    order.order(0, &mut seeds);
    let size = batch_size(config, task).max(1);
    let all = seeds.len().div_ceil(size) as u64;
    let drawn = if batches == 0 { all } else { all.min(batches) };
    watch.stage("drawing minibatches", Some(drawn), Unit::Rows);
    let parts = u64::from(book.parts());
    let parallel = (rayon::current_num_threads() as u64).clamp(1, (drawn * parts).max(1)) as usize;
    let owners = Arc::new(book.clone());
    let slot = |_| Slot::new(task, &*sampler, &owners);
    let mut slots: Vec<Slot> = (0..parallel).map(slot).collect();
    let mut next = 0;
    // flows of the current minibatch, and the sum of the largest flows of earlier minibatches
    let (mut flows, mut largest) = (vec![[0u64; 2]; parts as usize], 0);
    while next < drawn * parts {
        let group = parallel.min((drawn * parts - next) as usize);
        slots[..group].par_iter_mut().enumerate().try_for_each(|(i, slot)| {
            let (number, part) = ((next + i as u64) / parts, ((next + i as u64) % parts) as u16);
            let from = number as usize * size;
            let key = BatchKey { seed: config.seed, epoch: 0, batch: number };
            slot.draw(task, &*sampler, key, &seeds[from..seeds.len().min(from + size)], (part, book))
        })?;
        for (at, slot) in (next..).zip(&slots[..group]) {
            let added = slot.flows.as_flattened();
            flows.as_flattened_mut().iter_mut().zip(added).for_each(|(sum, rows)| *sum += rows);
            if (at + 1) % parts == 0 {
                largest += flows.as_flattened().iter().copied().max().unwrap_or(0);
                flows.fill([0; 2]);
            }
        }
        next += group as u64;
        watch.check()?;
        watch.done(next / parts);
    }
    let mut sum = CrossRequests { batches: drawn, batches_per_epoch: all, ..CrossRequests::default() };
    let schema = task.graph.schema();
    let (mut rows, mut edges) = (vec![[0; 2]; schema.num_types()], vec![0; schema.num_relations()]);
    for slot in &slots {
        edges.iter_mut().zip(&slot.edges).for_each(|(sum, of)| *sum += of);
        let hops = slot.steps.as_ref().map_or_else(|| slot.hops.clone(), |(steps, _)| steps.steps());
        if sum.hops.len() < hops.len() {
            let is_step = slot.steps.is_some();
            sum.hops.resize(hops.len(), Hop { is_step, ..Hop::default() });
        }
        for (sum, hop) in sum.hops.iter_mut().zip(&hops) {
            sum.nodes += hop.nodes;
            sum.requests += hop.requests;
            sum.edges += hop.edges;
        }
        for (sum, of) in rows.iter_mut().zip(&slot.rows) {
            *sum = [sum[0] + of[0], sum[1] + of[1]];
        }
    }
    let of_features = rows.iter().zip(&task.features).filter(|(_, features)| features.is_some());
    for ([all, remote], _) in of_features {
        (sum.rows, sum.remote_rows) = (sum.rows + all, sum.remote_rows + remote);
    }
    Ok(Counted { requests: sum.completed(largest, parts), rows, edges })
}

/// Buffers of a minibatch, and the counts of its minibatches.
struct Slot {
    workspace: TypedWorkspace,
    memory: TypedSeeds,
    hops: Vec<Hop>,
    /// Counted steps, and the sampler that takes them, if the sampler draws walks.
    steps: Option<(Arc<CountedSteps>, Box<dyn TypedSampler>)>,
    /// Feature rows that each part receives and sends in the last minibatch.
    flows: Vec<[u64; 2]>,
    /// Input nodes of each type, and the remote ones.
    rows: Vec<[u64; 2]>,
    /// Edges of each type into remote nodes.
    edges: Vec<u64>,
}

impl Slot {
    fn new(task: &TypedTask, sampler: &dyn TypedSampler, owners: &Arc<PartitionBook>) -> Self {
        let schema = task.graph.schema();
        let mut workspace = TypedWorkspace::new(schema);
        workspace.set_parallel(false);
        let steps = CountedSteps::new(&task.graph, owners.clone());
        let by_steps = steps.sampler(sampler);
        Self {
            workspace,
            memory: TypedSeeds::default(),
            hops: vec![Hop::default(); sampler.num_hops()],
            steps: by_steps.map(|by_steps| (steps, by_steps)),
            flows: vec![[0; 2]; usize::from(owners.parts())],
            rows: vec![[0; 2]; schema.num_types()],
            edges: vec![0; schema.num_relations()],
        }
    }

    /// Draws the share of a part in a minibatch of `seeds`, and counts its requests.
    fn draw(
        &mut self,
        task: &TypedTask,
        sampler: &dyn TypedSampler,
        key: BatchKey,
        seeds: &[NodeId],
        (part, book): (u16, &PartitionBook),
    ) -> Result<()> {
        self.flows.fill([0; 2]);
        let schema = task.graph.schema();
        let own = |&v: &NodeId| book.part_of(schema.global(task.node_type, v)) == part;
        let own: Vec<NodeId> = seeds.iter().copied().filter(own).collect();
        if own.is_empty() {
            return Ok(());
        }
        let seeds = std::mem::take(&mut self.memory).refill(key.batch, &task.seeds(&own));
        let request = TypedRequest::new(&task.graph, key);
        let batch = match &self.steps {
            Some((steps, by_steps)) => {
                steps.begin(part);
                by_steps.sample(&request, &mut self.workspace, seeds)?
            }
            None => {
                let batch = sampler.sample(&request, &mut self.workspace, seeds)?;
                self.count_hops(task, sampler, &batch, (part, book));
                batch
            }
        };
        self.count_rows(task, &batch, (part, book));
        self.memory = batch.recycle();
        Ok(())
    }

    /// Counts the requests of a part for neighbours in one minibatch.
    fn count_hops(
        &mut self,
        task: &TypedTask,
        sampler: &dyn TypedSampler,
        batch: &TypedSampled,
        (part, book): (u16, &PartitionBook),
    ) {
        let schema = task.graph.schema();
        let owner = |t: usize, v: NodeId| book.part_of(schema.global(t, v));
        // the destinations of every hop are a prefix of the input nodes
        for (number, (hop, block)) in self.hops.iter_mut().zip(batch.blocks.iter().rev()).enumerate() {
            for (r, relation) in schema.relations().iter().enumerate() {
                if !sampler.follows(schema, number, r) {
                    continue;
                }
                let (t, slice) = (relation.dst, &block.relations[r]);
                let nodes = &batch.input_nodes[t][..block.num_dst[t]];
                hop.nodes += nodes.len() as u64;
                for (i, _) in nodes.iter().enumerate().filter(|&(_, &v)| owner(t, v) != part) {
                    let edges = slice.edges(i).len() as u64;
                    hop.requests += 1;
                    hop.edges += edges;
                    self.edges[r] += edges;
                }
            }
        }
    }

    /// Counts the input nodes of a part in one minibatch.
    fn count_rows(&mut self, task: &TypedTask, batch: &TypedSampled, (part, book): (u16, &PartitionBook)) {
        let schema = task.graph.schema();
        let owner = |t: usize, v: NodeId| book.part_of(schema.global(t, v));
        for (t, nodes) in batch.input_nodes.iter().enumerate() {
            self.rows[t][0] += nodes.len() as u64;
            for &v in nodes.iter().filter(|&&v| owner(t, v) != part) {
                self.rows[t][1] += 1;
                if task.features[t].is_some() {
                    self.flows[usize::from(owner(t, v))][1] += 1;
                    self.flows[usize::from(part)][0] += 1;
                }
            }
        }
    }
}

impl TypedReport {
    /// The figures over all types, without those of each type.
    pub fn overall(&self) -> Report {
        Report {
            dataset: self.dataset.clone(),
            nodes: self.nodes,
            edges: self.edges,
            results: self.results.iter().map(|outcome| outcome.all.clone()).collect(),
            advice: None,
        }
    }
}

impl fmt::Display for TypedReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.overall())?;
        for outcome in &self.results {
            let names = outcome.node_types.iter().map(|of| &of.name);
            let names = names.chain(outcome.edge_types.iter().map(|of| &of.name));
            let widest = names.map(String::len).chain(["node type".len()]).max().unwrap_or(0);
            writeln!(
                f,
                "\n{}\n{:widest$} {:>12} {:>9} {:>13}",
                outcome.all.method, "node type", "nodes", "balance", "remote rows"
            )?;
            for of in &outcome.node_types {
                let remote = of
                    .remote_rows
                    .zip(of.rows)
                    .map(|(remote, all)| format!("{:.1} %", 100.0 * remote as f64 / all.max(1) as f64));
                let remote = remote.unwrap_or_default();
                writeln!(f, "{:widest$} {:>12} {:>9.3} {remote:>13}", of.name, of.nodes, of.balance)?;
            }
            writeln!(f, "{:widest$} {:>12} {:>9}", "edge type", "edges", "edge cut")?;
            for of in &outcome.edge_types {
                writeln!(f, "{:widest$} {:>12} {:>7.2} %", of.name, of.edges, 100.0 * of.edge_cut)?;
            }
        }
        match &self.advice {
            Some(advice) => writeln!(f, "\nadvice: {}", advice.text),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use graphmill_core::progress::Quiet;
    use graphmill_data::{
        generate::{GenerateOptions, generate_typed},
        partition,
    };

    use graphmill_loader::sampler::WalkOptions;

    use super::*;
    use crate::config::Fanout;

    fn data() -> TypedDataset {
        let options = GenerateOptions { nodes: 300, classes: 3, dim: 3, ..GenerateOptions::default() };
        generate_typed("typed", &options).unwrap()
    }

    #[test]
    fn requests_equal_counts_of_reached_node_sets() {
        let data = data();
        let task = TypedTask::new(&data, "").unwrap();
        let schema = task.graph.schema();
        let of: Vec<u16> = (0..300).map(|v| (v % 7 % 3) as u16).collect();
        let book = PartitionBook::new(3, of).unwrap();
        // one batch with all neighbours, so that draws are not random
        let config = TrainConfig {
            model: "rsage".into(),
            sampler: "full".into(),
            fanout: Fanout(vec![-1, -1]),
            batch_size: 0,
            ..TrainConfig::default()
        };
        let Counted { requests: found, rows, edges } = requests(&config, 0, &task, &book, &Quiet).unwrap();
        let (mut hops, mut expected) = (vec![Hop::default(); 2], vec![[0; 2]; schema.num_types()]);
        let part = |t: usize, v: NodeId| book.part_of(schema.global(t, v));
        for own in 0..3 {
            let mut reached = vec![BTreeSet::new(); schema.num_types()];
            let of_part = |v: &&NodeId| part(task.node_type, **v) == own;
            reached[task.node_type].extend(task.split.train.iter().filter(of_part).copied());
            for hop in &mut hops {
                let before = reached.clone();
                for (r, relation) in schema.relations().iter().enumerate() {
                    for &v in &before[relation.dst] {
                        let neighbors = task.graph.relation(r).in_neighbors(v);
                        hop.nodes += 1;
                        if part(relation.dst, v) != own {
                            hop.requests += 1;
                            hop.edges += neighbors.len() as u64;
                        }
                        reached[relation.src].extend(neighbors);
                    }
                }
            }
            for (t, nodes) in reached.iter().enumerate() {
                expected[t][0] += nodes.len() as u64;
                expected[t][1] += nodes.iter().filter(|&&v| part(t, v) != own).count() as u64;
            }
        }
        assert_eq!(edges.iter().sum::<u64>(), hops.iter().map(|hop| hop.edges).sum::<u64>());
        assert_eq!((found.hops, &rows), (hops, &expected));
        let remote: u64 = expected
            .iter()
            .zip(&task.features)
            .map(|(of, rows)| if rows.is_some() { of[1] } else { 0 })
            .sum();
        assert_eq!((found.remote_rows, found.batches), (remote, 1));
    }

    #[test]
    fn every_step_of_walks_is_an_exchange() {
        let data = data();
        let mut config = TrainConfig {
            model: "rsage".into(),
            sampler: "metapath-walk".into(),
            fanout: Fanout(vec![3, 2]),
            batch_size: 0,
            ..TrainConfig::default()
        };
        *config.own.get_mut::<WalkOptions>() = WalkOptions { num_walks: 4, restart_prob: 0.0 };
        let task = TypedTask::new(&data, "").unwrap().with_edges(&config, &data).unwrap();
        let book = |parts: u16| {
            let part = |v: u32| (v % 7 % u32::from(parts)) as u16;
            PartitionBook::new(parts, (0..300).map(part).collect::<Vec<_>>()).unwrap()
        };
        let of = |parts| requests(&config, 0, &task, &book(parts), &Quiet).unwrap();
        let found = of(3).requests;
        // two hops of three traversals of a path of two edge types
        assert_eq!(found.hops.len(), 2 * 3 * 2);
        assert!(found.hops.iter().all(|step| step.is_step && step.requests <= step.nodes));
        let [first, second] = [found.hops[0], found.hops[1]];
        assert_eq!((first.nodes, first.requests), (4 * task.split.train.len() as u64, 0), "seeds are own");
        assert!(second.requests > 0 && second.requests >= second.edges, "{second:?}");
        assert!(found.remote_rows > 0);
        // one part requests nothing, and reads the rows of the whole batch
        let alone = of(1);
        assert!(alone.requests.hops.iter().all(|step| step.requests == 0));
        let sampler = build::sampler(&config, &task).unwrap();
        let seeds = TypedSeeds::default().refill(0, &task.seeds(&task.split.train));
        let key = BatchKey { seed: config.seed, epoch: 0, batch: 0 };
        let mut workspace = TypedWorkspace::new(task.graph.schema());
        let batch = sampler.sample(&TypedRequest::new(&task.graph, key), &mut workspace, seeds).unwrap();
        let rows: Vec<u64> = batch.input_nodes.iter().map(|nodes| nodes.len() as u64).collect();
        assert_eq!(alone.rows.iter().map(|of| of[0]).collect::<Vec<_>>(), rows);
    }

    #[test]
    fn figures_by_type_add_up_and_methods_balance_the_training_nodes() {
        let mut data = data();
        let methods = ["random", "bgl", "metis"].map(String::from).to_vec();
        let partition = partition::Options { parts: 3, ..partition::Options::default() };
        let train =
            TrainConfig { model: "rsage".into(), fanout: Fanout(vec![3, 2]), ..TrainConfig::default() };
        let options = Options { methods, like: None, partition, train, batches: 2 };
        let report = run(&options, &data, None, &Quiet).unwrap();
        for outcome in &report.results {
            let cut: f64 = outcome.edge_types.iter().map(|of| of.edge_cut * of.edges as f64).sum();
            let all = &outcome.all.statistics;
            assert!((cut / data.num_edges() as f64 - all.edge_cut).abs() < 1e-9, "{}", outcome.all.method);
            assert_eq!(outcome.node_types.iter().map(|of| of.nodes).sum::<usize>(), 300);
            if outcome.all.method != "random" {
                assert!(all.balance.train < 1.11, "{}: {:?}", outcome.all.method, all.balance);
            }
        }
        assert!(report.advice.is_some());
        let text = report.to_string();
        assert!(text.contains("author:writes:paper") && text.contains("topic"), "{text}");
        // without a task on nodes, a partition has no requests
        data.tasks.clear();
        let report = run(&Options { methods: vec!["hash".into()], ..options }, &data, None, &Quiet).unwrap();
        let statistics = &report.results[0].all.statistics;
        assert!(statistics.cross_requests.is_none() && statistics.locality.is_none());
        assert!(report.results[0].node_types.iter().all(|of| of.rows.is_none()));
    }
}
