//! Edges that a run learns and ranks: the link tasks of a dataset, each a relation.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use graphmill_core::{End, NodeId};
use graphmill_data::typed::{EdgeData, EdgeType, Negatives, Seeds, Task, TaskKind, TaskOn, TypedDataset};
use graphmill_loader::link::KnownTriples;
use rayon::prelude::*;

use super::times::RowTimes;
use crate::{
    Error, Result, TrainConfig,
    config::{
        link::{LINK, LinkOptions, LinkTimes},
        link_task::edge_types_named,
    },
    link::{
        RandomPairs,
        split::{self, Edge},
    },
    record::{DatasetRecord, LinkRelation, TypeCount},
};

/// Source, relation and destination of an edge.
pub(crate) type Triple = [u32; 3];

/// A relation: a link task, or an edge type whose edges are divided.
#[derive(Clone, Debug)]
pub(crate) struct Relation {
    /// Name of the task or the edge type.
    pub(crate) name: String,
    /// Edge type that the edges belong to.
    pub(crate) on: EdgeType,
    /// Rows that may be sources, and those that may be destinations.
    pub(crate) candidates: [Range<NodeId>; 2],
    /// Numbers of the node types of both ends in the dataset.
    pub(crate) types: [usize; 2],
}

/// Edges of the tasks of a run. Nodes are numbered by the rows of the table: those of the types
/// that edges join, one type after the other.
#[derive(Clone, Debug)]
pub(crate) struct LinkEdges {
    /// Name of the task, `link` for all link tasks, or names of edge types.
    pub(crate) task: String,
    /// True if the parts are those of tasks, false if edge types are divided.
    pub(crate) is_of_tasks: bool,
    pub(crate) relations: Vec<Relation>,
    /// Node types of the rows, with the rows of each.
    pub(crate) types: Vec<(usize, Range<NodeId>)>,
    /// Edges that train, validate and test.
    pub(crate) parts: [Vec<Triple>; 3],
    /// Training edges, which training takes as no negatives. If rows have times, those of one time
    /// are a relation.
    pub(crate) learned: KnownTriples,
    /// Edges of all parts.
    pub(crate) known: KnownTriples,
    /// True if the only relation is undirected: each edge is known in both directions.
    pub(crate) undirected: bool,
    /// Pairs that the edges that validate and test are compared with, if the tasks have some.
    pub(crate) pairs: [Option<Vec<Edge>>; 2],
    /// Customary metric, if all tasks have the same.
    pub(crate) metric: Option<String>,
    /// Times of the edges, if the model reads them and the rows of the only task have times, or
    /// `--link-times` is `edges` ([`LinkEdges::with_times`]).
    pub(crate) times: Option<RowTimes>,
}

impl LinkEdges {
    /// Reads the link task that the configuration names, or all of them if it names none or `link`.
    /// The edges of the edge types that it names, and those of a dataset of one edge type without a
    /// link task, are split by `--split-edges`.
    ///
    /// # Errors
    /// The dataset has no such task, two tasks are on the same edge type, or no edge trains;
    /// `--valid-fraction` does not fit the task.
    pub(crate) fn new(data: &TypedDataset, config: &TrainConfig) -> Result<Self> {
        let tasks = match choose(data, &config.task)? {
            Chosen::Tasks(tasks) => tasks,
            Chosen::EdgesOf(types) => return Self::of_shares(data, &types, config),
        };
        let options: LinkOptions = config.own.get();
        let schema = data.schema()?;
        let mut ends = Vec::new();
        for task in &tasks {
            let TaskOn::Edges(on) = &task.on else { continue };
            ends.extend([schema.node_type(&on.source)?, schema.node_type(&on.destination)?]);
        }
        let types = rows_of(data, &ends)?;
        let (mut relations, mut parts) = (Vec::new(), [const { Vec::new() }; 3]);
        for (r, task) in (0..).zip(&tasks) {
            let TaskOn::Edges(on) = &task.on else { continue };
            if let Some(other) = tasks[..r as usize].iter().find(|other| other.on == task.on) {
                return Err(Error::usage(format!(
                    "dataset {}: the tasks {} and {} are on the same edges; choose one with --task",
                    data.name, other.name, task.name
                )));
            }
            let ends = [schema.node_type(&on.source)?, schema.node_type(&on.destination)?];
            let candidates = ends.map(|t| types[&t].clone());
            read(data, task, r, &candidates, &mut parts)?;
            relations.push(Relation { name: task.name.clone(), on: on.clone(), candidates, types: ends });
        }
        if parts[0].is_empty() {
            return Err(Error::dataset(
                &data.name,
                "its link task has no training edges; add some to the split",
            ));
        }
        let undirected = match &tasks[..] {
            // pairs need no edges
            [Task { on: TaskOn::Edges(on), .. }] => data.edge_type(on).is_ok_and(EdgeData::is_undirected),
            _ => false,
        };
        hold_out(&tasks, &options, (undirected, config.seed), &mut parts)?;
        let pairs = match &tasks[..] {
            [task] => [1, 2].map(|part| given_pairs(task, part, &relations[0].candidates)),
            _ => [None, None],
        };
        let [learned, known] = known(&parts, &|_| undirected)?;
        let metric = tasks[0].metric.clone().filter(|_| tasks.iter().all(|t| t.metric == tasks[0].metric));
        let task = if let [task] = &tasks[..] { task.name.clone() } else { LINK.into() };
        let types = types.into_iter().collect();
        Ok(Self {
            task,
            is_of_tasks: true,
            relations,
            types,
            parts,
            learned,
            known,
            undirected,
            pairs,
            metric,
            times: None,
        })
    }

    /// Draws pairs for the parts that have none, to compare as many edges with them as there are:
    /// functions of `--seed`.
    ///
    /// # Errors
    /// Almost all pairs have an edge.
    pub(crate) fn draw_pairs(&mut self, data: &TypedDataset, config: &TrainConfig) -> Result<()> {
        let known = &self.known;
        let random = RandomPairs {
            name: &data.name,
            candidates: self.relations[0].candidates.clone(),
            undirected: self.undirected,
            is_known: &|(u, v)| known.ends_of(0, End::Destination, u).binary_search(&v).is_ok(),
        };
        for ((pairs, edges), name) in self.pairs.iter_mut().zip(&self.parts[1..]).zip(["valid", "test"]) {
            let count = match config.eval_nodes {
                0 => edges.len(),
                most => edges.len().min(most),
            };
            if pairs.is_none() && count > 0 {
                *pairs = Some(random.draw(count, (name, config.seed))?);
            }
        }
        Ok(())
    }

    /// Node type and id in it of row `row` of the table.
    pub(crate) fn node(&self, row: NodeId) -> (usize, NodeId) {
        let (t, range) = &self.types[self.types.partition_point(|(_, range)| range.end <= row)];
        (*t, row - range.start)
    }

    /// Sources and destinations of the training edges.
    pub(crate) fn learned_ends(&self) -> [Vec<NodeId>; 2] {
        [0, 2].map(|end| self.parts[0].iter().map(|edge| edge[end]).collect())
    }

    /// Relations with the rows that are fixed if candidates replace this end of the training edges:
    /// ascending.
    pub(crate) fn fixed(&self, end: End) -> Vec<(u32, Vec<NodeId>)> {
        let of = |&[u, r, v]: &Triple| (r, if end == End::Source { v } else { u });
        let mut fixed: Vec<(u32, NodeId)> = self.parts[0].iter().map(of).collect();
        fixed.par_sort_unstable();
        fixed.dedup();
        let of_relations = fixed.chunk_by(|a, b| a.0 == b.0);
        of_relations.map(|of| (of[0].0, of.iter().map(|query| query.1).collect())).collect()
    }

    /// Number of rows of the table.
    pub(crate) fn num_rows(&self) -> usize {
        self.types.last().map_or(0, |(_, range)| range.end as usize)
    }

    /// Records of the relations.
    pub(crate) fn recorded(&self) -> Vec<LinkRelation> {
        let record = |of: &Relation| LinkRelation { name: of.name.clone(), on: of.on.to_string() };
        self.relations.iter().map(record).collect()
    }

    /// Record of the dataset. The split is that of the tasks.
    pub(crate) fn record(&self, data: &TypedDataset) -> DatasetRecord {
        let count = |name: String, count: usize| TypeCount { name, count: count as u64 };
        DatasetRecord {
            name: data.name.clone(),
            nodes: data.num_nodes(),
            edges: data.num_edges(),
            train: self.parts[0].len(),
            valid: self.parts[1].len(),
            test: self.parts[2].len(),
            checksum: data.checksum.clone(),
            node_types: data.nodes.iter().map(|node| count(node.name.clone(), node.count)).collect(),
            edge_types: data.edges.iter().map(|e| count(e.edge_type.to_string(), e.num_edges())).collect(),
            ..DatasetRecord::default()
        }
    }
}

/// Lets a random part of the training edges validate, if `--valid-fraction` says so.
///
/// # Errors
/// Edges of a task validate already, or rows have times.
fn hold_out(
    tasks: &[&Task],
    options: &LinkOptions,
    (undirected, seed): (bool, u64),
    parts: &mut [Vec<Triple>; 3],
) -> Result<()> {
    let fraction = options.valid_fraction;
    if !parts[1].is_empty() {
        split::refuse_hold_out(fraction, "the task has edges that validate")?;
    }
    if options.link_times == LinkTimes::Edges || tasks.iter().any(|task| task.time.is_some()) {
        let why = "edges have times, and some that train would be later than those that validate";
        split::refuse_hold_out(fraction, why)?;
    }
    if fraction > 0.0 {
        let same = |[u, r, v]: Triple| if undirected { [u.min(v), r, u.max(v)] } else { [u, r, v] };
        parts[1] = split::hold_out(&mut parts[0], fraction, seed, same);
    }
    Ok(())
}

/// Training edges and edges of all parts; in both directions if their relation is undirected.
pub(super) fn known(
    parts: &[Vec<Triple>; 3],
    is_undirected: &dyn Fn(u32) -> bool,
) -> Result<[KnownTriples; 2]> {
    let of = |mut edges: Vec<Triple>| -> Result<KnownTriples> {
        let undirected = edges.iter().filter(|edge| is_undirected(edge[1]));
        let reverses: Vec<Triple> = undirected.map(|&[u, r, v]| [v, r, u]).collect();
        edges.extend(reverses);
        Ok(KnownTriples::new(&edges)?)
    };
    Ok([of(parts[0].clone())?, of(parts.concat())?])
}

/// Pairs that a task compares all edges of a part with.
fn given_pairs(task: &Task, part: usize, candidates: &[Range<NodeId>; 2]) -> Option<Vec<Edge>> {
    let Some(Negatives::Pairs(pairs)) = &task.negatives[part] else { return None };
    let [sources, destinations] = candidates;
    Some(pairs.chunks_exact(2).map(|pair| (pair[0] + sources.start, pair[1] + destinations.start)).collect())
}

/// Rows of the table by node type: those of the types `ends`, one type after the other.
pub(super) fn rows_of(data: &TypedDataset, ends: &[usize]) -> Result<BTreeMap<usize, Range<NodeId>>> {
    let (mut types, mut rows) = (BTreeMap::new(), 0);
    for &t in ends.iter().collect::<BTreeSet<_>>() {
        let end = u32::try_from(rows as usize + data.nodes[t].count).map_err(|_| {
            Error::dataset(&data.name, "its link tasks join 2^32 nodes or more; choose one with --task")
        })?;
        types.insert(t, rows..end);
        rows = end;
    }
    Ok(types)
}

/// Edges that a run learns.
pub(super) enum Chosen<'d> {
    /// Those of link tasks.
    Tasks(Vec<&'d Task>),
    /// Those of edge types, by their numbers.
    EdgesOf(Vec<usize>),
}

/// The link tasks or the edge types of a run.
pub(super) fn choose<'d>(data: &'d TypedDataset, name: &str) -> Result<Chosen<'d>> {
    let is_link = |task: &&Task| task.kind() == Some(TaskKind::LinkPrediction);
    let types: Vec<String> = data.edges.iter().map(|edges| edges.edge_type.to_string()).collect();
    if name.is_empty() || name == LINK {
        let all: Vec<&Task> = data.tasks.iter().filter(is_link).collect();
        if !all.is_empty() {
            return Ok(Chosen::Tasks(all));
        }
        if data.nodes.len() == 1 && data.edges.len() == 1 {
            return Ok(Chosen::EdgesOf(vec![0]));
        }
        let message = format!(
            "it has no link prediction task; import it with one, or learn the edges of one type by --task \
             {}, or of several with commas between them",
            types.join(" or ")
        );
        return Err(Error::dataset(&data.name, message));
    }
    if data.tasks.iter().all(|task| task.name != name)
        && let Some(named) = edge_types_named(name, &types)
    {
        let mut repeated = named.iter().enumerate().filter(|&(i, r)| named[..i].contains(r));
        return match repeated.next() {
            None => Ok(Chosen::EdgesOf(named)),
            Some((_, &r)) => {
                Err(Error::usage(format!("--task {name}: {} is named twice; name it once", types[r])))
            }
        };
    }
    let task = data.task(name).map_err(|error| Error::usage(format!("--task {name}: {error}")))?;
    if is_link(&task) {
        return Ok(Chosen::Tasks(vec![task]));
    }
    let kind = task.kind().map_or("of an unknown kind", TaskKind::name);
    let message = format!("task '{name}' is {kind}, and links are learned by link-prediction");
    Err(Error::dataset(&data.name, format!("{message}; choose another task, or leave --task out")))
}

/// Adds the edges of a task to the parts.
fn read(
    data: &TypedDataset,
    task: &Task,
    relation: u32,
    candidates: &[Range<NodeId>; 2],
    parts: &mut [Vec<Triple>; 3],
) -> Result<()> {
    let TaskOn::Edges(on) = &task.on else { return Ok(()) };
    let edges_as_pairs: Vec<NodeId>;
    let pairs = match &task.seeds {
        Some(Seeds::Pairs(pairs)) => &pairs[..],
        _ => {
            let edges = data.edge_type(on)?;
            let ends = edges.indices.iter().zip(edges.destinations());
            edges_as_pairs = ends.flat_map(|(&source, destination)| [source, destination]).collect();
            &edges_as_pairs
        }
    };
    let pair = |row: NodeId| (pairs[2 * row as usize], pairs[2 * row as usize + 1]);
    let [sources, targets] = candidates;
    for ((_, rows), part) in task.split.parts().into_iter().zip(parts) {
        part.extend(rows.iter().map(|&row| {
            let (source, destination) = pair(row);
            [sources.start + source, relation, targets.start + destination]
        }));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use graphmill_data::typed::{EdgeType, TypedBuilder};

    use super::*;
    use crate::config::link::LinkOptions;

    fn builder() -> TypedBuilder {
        let mut builder = TypedBuilder::new("shop");
        builder.node_type("place", 5);
        builder.node_type("user", 3);
        builder.node_type("item", 4);
        builder.edge_type("user", "buys", "item").edges(vec![0, 1, 2], vec![1, 0, 3]);
        builder.edge_type("user", "sees", "item").edges(vec![0], vec![2]);
        builder
    }

    #[test]
    fn rows_are_the_nodes_of_the_ends() {
        let mut builder = builder();
        let buys = EdgeType::new("user", "buys", "item");
        builder.task("buys").on_edges(buys).pair_seeds(vec![0, 1, 2, 3, 1, 0]).split([0, 1], [], [2]);
        let edges = LinkEdges::new(&builder.build().unwrap(), &TrainConfig::default()).unwrap();
        assert_eq!((edges.num_rows(), &edges.task[..]), (7, "buys"));
        assert_eq!(edges.parts, [vec![[0, 0, 4], [2, 0, 6]], vec![], vec![[1, 0, 3]]]);
        assert_eq!(edges.relations[0].candidates, [0..3, 3..7]);
        assert_eq!((edges.learned.len(), edges.known.len()), (2, 3));
    }

    #[test]
    fn a_part_of_the_training_edges_validates_if_the_task_has_none_that_do() {
        let learned: Vec<u32> = (0..9).flat_map(|u| [u, (u + 1) % 9, (u + 1) % 9, u]).collect();
        let data = |valid: Vec<u32>| {
            let mut builder = TypedBuilder::new("people");
            builder.node_type("person", 9);
            let ends = |end: usize| learned.iter().copied().skip(end).step_by(2).collect::<Vec<u32>>();
            builder.edge_type("person", "knows", "person").edges(ends(0), ends(1)).reverse_of("knows");
            let knows = EdgeType::new("person", "knows", "person");
            builder.task("knows").on_edges(knows).positives([learned.clone(), valid, vec![0, 4]]);
            builder.build().unwrap()
        };
        let edges = |data: &TypedDataset, fraction: f64, seed: u64, task: &str| {
            let mut config = TrainConfig { seed, task: task.into(), ..TrainConfig::default() };
            config.own.get_mut::<LinkOptions>().valid_fraction = fraction;
            LinkEdges::new(data, &config)
        };
        let without = data(Vec::new());
        let whole = edges(&without, 0.0, 1, "link").unwrap();
        assert_eq!(whole.parts.each_ref().map(Vec::len), [18, 0, 1]);
        let [one, again, other] = [1, 1, 2].map(|seed| edges(&without, 0.2, seed, "link").unwrap());
        assert!(one.parts == again.parts && one.parts[1] != other.parts[1]);
        assert_eq!((one.parts[1].len(), &one.parts[2]), (4, &whole.parts[2]));
        // both directions of an edge are out of training
        let is_held = |[u, r, v]: Triple| [[u, r, v], [v, r, u]].iter().any(|e| one.parts[1].contains(e));
        let rest: BTreeSet<Triple> = whole.parts[0].iter().copied().filter(|&edge| !is_held(edge)).collect();
        assert_eq!(one.parts[0].iter().copied().collect::<BTreeSet<_>>(), rest);
        assert_eq!((one.learned.len(), one.known.len()), (rest.len(), whole.known.len()));
        for (data, task, why) in [
            (&data(vec![1, 4]), "link", "the task has edges that validate; leave it out"),
            (&without, "person:knows:person", "so --split-edges divides them; leave it out"),
        ] {
            let error = edges(data, 0.2, 1, task).map(drop).unwrap_err().to_string();
            assert!(error.contains("--valid-fraction 0.2: ") && error.contains(why), "{error}");
        }
        let mut timed = without.clone();
        timed.tasks[0].time = Some(vec![0; 19].into());
        let error = edges(&timed, 0.2, 1, "link").map(drop).unwrap_err().to_string();
        assert!(error.contains("edges have times"), "{error}");
    }

    #[test]
    fn edges_of_a_type_are_split_by_time() {
        let mut builder = TypedBuilder::new("shop");
        builder.node_type("user", 3);
        builder.node_type("item", 4);
        builder
            .edge_type("user", "buys", "item")
            .edges(vec![0, 1, 2, 0, 1], vec![1, 0, 3, 2, 2])
            .time(vec![50, 10, 30, 20, 40]);
        let data = builder.build().unwrap();
        let split = |option: &str| {
            let mut config = TrainConfig { task: "user:buys:item".into(), ..TrainConfig::default() };
            config.own.get_mut::<LinkOptions>().split_edges = option.parse().unwrap();
            LinkEdges::new(&data, &config)
        };
        let mut parts = split("time:60,20,20").unwrap().parts;
        parts[0].sort_unstable();
        assert_eq!(parts, [vec![[0, 0, 5], [1, 0, 3], [2, 0, 6]], vec![[1, 0, 5]], vec![[0, 0, 4]]]);
        let mut untimed = data.clone();
        untimed.edges[0].time = None;
        let mut config = TrainConfig { task: "user:buys:item".into(), ..TrainConfig::default() };
        config.own.get_mut::<LinkOptions>().split_edges = "time:60,20,20".parse().unwrap();
        let error = LinkEdges::new(&untimed, &config).map(drop).unwrap_err().to_string();
        assert!(error.contains("no times") && error.contains("use --split-edges 60,20,20"), "{error}");
    }

    /// Purchases and visits with times.
    fn timed() -> TypedDataset {
        let mut builder = TypedBuilder::new("shop");
        builder.node_type("user", 3);
        builder.node_type("item", 4);
        let buys = builder.edge_type("user", "buys", "item");
        buys.edges(vec![0, 1, 2, 0, 1], vec![1, 0, 3, 2, 2]).time(vec![50, 10, 30, 20, 40]);
        let sees = builder.edge_type("user", "sees", "item");
        sees.edges(vec![0, 1, 2, 0, 0], vec![1, 0, 3, 2, 2]).time(vec![5, 15, 25, 35, 45]);
        builder.build().unwrap()
    }

    fn of_types(data: &TypedDataset, task: &str, split: &str) -> Result<LinkEdges> {
        let mut config = TrainConfig { task: task.into(), ..TrainConfig::default() };
        config.own.get_mut::<LinkOptions>().split_edges = split.parse().unwrap();
        LinkEdges::new(data, &config)
    }

    #[test]
    fn edges_of_several_types_are_relations_that_share_the_times_of_the_split() {
        let (data, both) = (timed(), "user:buys:item,user:sees:item");
        let edges = of_types(&data, both, "time:60,20,20").unwrap();
        let names: Vec<&str> = edges.relations.iter().map(|of| &of.name[..]).collect();
        assert_eq!((&edges.task[..], names), (both, vec!["user:buys:item", "user:sees:item"]));
        let mut parts = edges.parts;
        parts.iter_mut().for_each(|part| part.sort_unstable());
        // nine pairs: five up to time 25, two up to 40, and two later ones
        assert_eq!(parts[0], [[0, 0, 5], [0, 1, 4], [1, 0, 3], [1, 1, 3], [2, 1, 6]]);
        assert_eq!(parts[1], [[1, 0, 5], [2, 0, 6]]);
        assert_eq!(parts[2], [[0, 0, 4], [0, 1, 5]]);
        // at random, each type has its shares
        let edges = of_types(&data, both, "60,20,20").unwrap();
        for relation in 0..2 {
            let count = |part: &Vec<Triple>| part.iter().filter(|edge| edge[1] == relation).count();
            let expected = if relation == 0 { [3, 1, 1] } else { [2, 1, 1] };
            assert_eq!(edges.parts.each_ref().map(count), expected);
        }
        for (task, why) in [
            ("user:buys:item,user:buys:item", "user:buys:item is named twice"),
            ("user:buys:item,user:likes:item", "user:likes:item"),
        ] {
            let message = of_types(&data, task, "60,20,20").map(drop).unwrap_err().to_string();
            assert!(message.contains(why), "{message}");
        }
    }

    #[test]
    fn unusable_tasks_are_refused_with_a_remedy() {
        let message = |builder: TypedBuilder, name: &str| {
            let config = TrainConfig { task: name.into(), ..TrainConfig::default() };
            LinkEdges::new(&builder.build().unwrap(), &config).map(drop).unwrap_err().to_string()
        };
        assert!(message(builder(), "").contains("it has no link prediction task"));
        let buys = || EdgeType::new("user", "buys", "item");
        let mut empty = builder();
        empty.task("buys").on_edges(buys()).pair_seeds(vec![0, 1]).split([], [], [0]);
        assert!(message(empty, "link").contains("no training edges"));
        let mut twice = builder();
        for name in ["early", "late"] {
            twice.task(name).on_edges(buys()).pair_seeds(vec![0, 1]).split([0], [], []);
        }
        assert!(message(twice, "").contains("the tasks early and late are on the same edges"));
        let mut other = builder();
        other.task("kind").on_nodes("item").classes(2, vec![0, 1, 0, 1]).split([0], [1], []);
        assert!(message(other, "kind").contains("task 'kind' is node-classification"));
    }
}
