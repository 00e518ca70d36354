//! The link task of a run: the edges that train, validate and test, and the graph that is read.

use std::{path::Path, sync::Arc};

use graphmill_core::{Buffer, End, Graph, Labels, NodeId, Split, symmetry::is_symmetric};
use graphmill_data::{
    Dataset,
    typed::{
        self, CandidateLists, EdgeData, Negatives, Seeds, Task, TaskKind, TypedDataset, Verify, is_typed,
    },
};
use graphmill_loader::link::{KnownEdges, LinkSource, ListSource, NegativeLists, Walks};
use graphmill_nn::typed::TABLE as TYPED_MODELS;

use super::{
    existing::Existence,
    lists::{self, FileLists},
    metric::LinkMetric,
    split::{self, Edge, TimedEdges},
};
use crate::{
    Error, Result, TrainConfig,
    config::link::{Candidates, LINK, LinkOptions},
};

/// Edges of a part of the split, with given negatives.
#[derive(Clone, Debug, Default)]
pub struct LinkPart {
    /// Source and destination of each edge.
    pub edges: Vec<Edge>,
    /// Negatives of the task, if it has some for this part.
    pub negatives: Option<GivenNegatives>,
}

/// Given negatives.
#[derive(Clone, Debug, PartialEq)]
pub enum GivenNegatives {
    /// Pairs that are compared with all edges of the part.
    Pairs(Vec<Edge>),
    /// Nodes for every edge of the part, which replace an end of it.
    Ends {
        /// End that they replace.
        end: End,
        /// Nodes of each edge.
        lists: CandidateLists,
    },
}

/// Edges that a run learns, and the data that it reads.
#[derive(Clone, Debug)]
pub struct LinkTask {
    /// The dataset with the graph that batches read, without edges that validate or test. Its
    /// training ids are the numbers of `train`, and its classes are the width of embeddings.
    pub data: Dataset,
    /// Edges to learn.
    pub train: Arc<[Edge]>,
    /// Edges that validate.
    pub valid: LinkPart,
    /// Edges that test.
    pub test: LinkPart,
    /// All edges of the dataset and of the task, which no evaluation takes as negatives.
    pub known: Arc<KnownEdges>,
    /// Edges of the graph and of training, which training takes as no negatives.
    pub known_to_training: Arc<KnownEdges>,
    /// True if every edge of the dataset has its reverse.
    pub undirected: bool,
    /// Metric of the run.
    pub metric: LinkMetric,
    /// Candidates of the run: pairs or all, unless the task has negatives.
    pub candidates: Candidates,
    /// Walks whose pairs are learned in the place of `train`, if any. The training ids are their
    /// numbers.
    pub walks: Option<Arc<Walks>>,
    /// Lists that negatives are drawn from, if any; those of hard negatives are empty before the
    /// first ranking.
    pub lists: Option<Arc<NegativeLists>>,
    /// Times at which negatives exist, if the run draws such ones.
    pub existence: Option<Existence>,
    /// Facts for the user.
    pub notes: Vec<String>,
}

/// Positions of edges in the dataset: its three parts.
struct Parts {
    train: Vec<Edge>,
    valid: LinkPart,
    test: LinkPart,
    metric: Option<String>,
    notes: Vec<String>,
}

impl LinkTask {
    /// Finds the task of a run on `data`, a graph of one node type and one edge type.
    ///
    /// # Errors
    /// The dataset has no such task, its rows have times, no edge is left to learn, a metric is
    /// unknown or does not fit the candidates, or the negatives need times that the dataset lacks.
    pub fn new(config: &TrainConfig, data: &Dataset) -> Result<Self> {
        let options: LinkOptions = config.own.get();
        let task = stored_task(config, data)?;
        // rows of a stored edge type may have any order
        let is_declared = || task.as_ref().is_some_and(|(typed, _)| typed.edges[0].is_undirected());
        let undirected = is_symmetric(&data.graph, false) || is_declared();
        let Parts { mut train, valid, test, metric, mut notes } = match &task {
            Some((typed, task)) => of_task(config, (typed, task), &data.graph, undirected)?,
            None => of_shares(config, &options, data, undirected)?,
        };
        let held = split::set(valid.edges.iter().chain(&test.edges), undirected);
        let mut removed = held.clone();
        if options.disjoint > 0.0 {
            let shares = [options.disjoint, 1.0 - options.disjoint, 0.0];
            let [learned, read, _] = split::split(train, shares, config.seed ^ 1);
            notes.push(format!(
                "{} edges are learned, and {} others are read (--disjoint)",
                learned.len(),
                read.len()
            ));
            train = learned;
            removed = split::set(valid.edges.iter().chain(&test.edges).chain(&train), undirected);
        }
        if undirected {
            split::directed(&mut train, config.seed);
        }
        let without = |what| Error::dataset(&data.name, format!("it has no {what} to learn links from"));
        if train.is_empty() {
            return Err(without("edges"));
        }
        let existence = Existence::read(&options, data, (&train[..], undirected))?;
        let graph = split::without(&data.graph, &removed)?;
        check_batches(config, &options, train.len(), &graph)?;
        // edges of the dataset itself, in both directions, share its memory
        let shared = if task.is_none() && undirected {
            let read = (options.disjoint == 0.0).then_some(&graph);
            known_of_undirected(&data.graph, read, &held)?
        } else {
            None
        };
        let [known_to_training, known] = match shared {
            Some(known) => known,
            None => known(data, &held, &train, [&valid, &test], undirected)?,
        };
        let has_given = test.negatives.is_some() || valid.negatives.is_some();
        let (metric, candidates) = judge(config, &options, metric.as_deref(), has_given)?;
        let dim = if options.embedding_dim == 0 { config.hidden } else { options.embedding_dim };
        let walks = walks(&options, &graph, &mut notes)?;
        if walks.as_ref().is_some_and(|walks| walks.is_empty()) {
            return Err(without("edges for walks"));
        }
        let lists = lists(&options, &known_to_training, &mut notes)?;
        let seeds = walks.as_ref().map_or(train.len(), |walks| walks.len());
        let numbers: Vec<NodeId> = (0..seeds as NodeId).collect();
        Ok(Self {
            data: Dataset {
                graph,
                labels: Labels::Single { class: vec![-1; data.num_nodes()].into(), classes: dim },
                split: Split { train: numbers.into(), ..Split::default() },
                checksum: Some(data.identity()?),
                metric: None,
                ..data.clone()
            },
            train: train.into(),
            valid,
            test,
            known: Arc::new(known),
            known_to_training: Arc::new(known_to_training),
            undirected,
            metric,
            candidates,
            walks,
            lists,
            existence,
            notes,
        })
    }

    /// Source of the batches of training.
    ///
    /// # Errors
    /// No node can be a negative.
    pub fn source(&self, config: &TrainConfig) -> Result<LinkSource> {
        let options: LinkOptions = config.own.get();
        let known = self.known_to_training.clone();
        let (train, lists) = (self.train.clone(), self.lists.as_ref());
        let mut source = match &self.existence {
            None => LinkSource::with_lists(train, known, &options.negatives, lists)?,
            Some(Existence { nodes, .. }) => {
                let all = 0..known.num_nodes() as NodeId;
                LinkSource::with_times(train, known, &options.negatives, [all.clone(), all], Some(nodes))?
            }
        };
        if let Some(Existence { of_edges, .. }) = &self.existence {
            source.latest = of_edges.clone();
        }
        source.walks.clone_from(&self.walks);
        source.num_negatives = options.num_negatives;
        source.corrupt = options.ends(self.undirected);
        source.exclude = options.excluded();
        Ok(source)
    }

    /// Lists of hard negatives, if the run draws them.
    pub fn hard(&self, config: &TrainConfig) -> Option<Arc<NegativeLists>> {
        let is_hard = config.own.get::<LinkOptions>().draws_from(ListSource::Ranking);
        self.lists.clone().filter(|_| is_hard)
    }

    /// Edges of the part of this name.
    pub fn part(&self, name: &str) -> LinkPart {
        match name {
            "valid" => self.valid.clone(),
            "test" => self.test.clone(),
            _ => LinkPart { edges: self.train.to_vec(), negatives: None },
        }
    }
}

/// Walks over the edges that batches read, if they are the positives.
fn walks(options: &LinkOptions, graph: &Graph, notes: &mut Vec<String>) -> Result<Option<Arc<Walks>>> {
    let Some(rule) = options.walk_rule() else { return Ok(None) };
    let rows = (0..graph.num_nodes() as NodeId).map(|v| graph.in_neighbors(v));
    let sources: Vec<NodeId> = rows.clone().flatten().copied().collect();
    let destinations: Vec<NodeId> =
        (0..).zip(rows).flat_map(|(v, row)| std::iter::repeat_n(v, row.len())).collect();
    let walks = Walks::new(graph.num_nodes(), &sources, &destinations, rule)?;
    let weights = if graph.edge_weight().is_some() { "; they do not read the weights of edges" } else { "" };
    notes.push(format!(
        "seeds are {} walks of {} nodes, and positives pairs of their nodes{weights}",
        walks.len(),
        rule.length
    ));
    Ok(Some(Arc::new(walks)))
}

/// Lists that negatives are drawn from.
fn lists(
    options: &LinkOptions,
    known: &KnownEdges,
    notes: &mut Vec<String>,
) -> Result<Option<Arc<NegativeLists>>> {
    match options.negative_kind().and_then(|kind| kind.lists) {
        Some(ListSource::File) => {
            let (nodes, path) = (0..known.num_nodes() as NodeId, Path::new(&options.negatives_file));
            let is_edge = |[u, _, v]: [u32; 3]| known.contains(u, v);
            let FileLists { lists, note } = lists::read(path, &[[nodes.clone(), nodes]], &is_edge)?;
            notes.push(note);
            Ok(Some(Arc::new(lists)))
        }
        Some(ListSource::Ranking) => Ok(Some(Arc::default())),
        None => Ok(None),
    }
}

/// The task that the dataset stores, if the run learns one.
fn stored_task(config: &TrainConfig, data: &Dataset) -> Result<Option<(TypedDataset, Task)>> {
    let Some(dir) = data.directory.as_deref().filter(|dir| is_typed(dir)) else { return Ok(None) };
    let typed = typed::open(dir, Verify::Once)?;
    let links: Vec<&Task> =
        typed.tasks.iter().filter(|task| task.kind() == Some(TaskKind::LinkPrediction)).collect();
    let names = || links.iter().map(|task| task.name.as_str()).collect::<Vec<_>>().join(", ");
    let found = match (&links[..], config.task.as_str()) {
        ([], LINK) => return Ok(None),
        (&[task], LINK) => task,
        (_, LINK) => {
            let message =
                format!("--task link: {} has several link tasks; name one of {}", data.name, names());
            return Err(Error::usage(message));
        }
        (links, name) => {
            let unknown =
                || format!("--task {name}: {} has no such link task; known: {}", data.name, names());
            links.iter().copied().find(|task| task.name == name).ok_or_else(|| Error::usage(unknown()))?
        }
    };
    if found.time.is_some() {
        return Err(Error::usage(format!(
            "--model {}: the rows of task '{}' have times, which models of one type do not read; use a model \
             of several types: {}",
            config.model,
            found.name,
            TYPED_MODELS.names()
        )));
    }
    let found = found.clone();
    Ok(Some((typed, found)))
}

/// Parts of the edges by their shares.
///
/// # Errors
/// The edges cannot be split by time.
fn of_shares(config: &TrainConfig, options: &LinkOptions, data: &Dataset, undirected: bool) -> Result<Parts> {
    let why = "the dataset has no link task, so --split-edges divides its edges";
    split::refuse_hold_out(options.valid_fraction, why)?;
    let graph = &data.graph;
    let edges = split::distinct(graph, undirected);
    let kind = if undirected { "undirected" } else { "directed" };
    let count = edges.len();
    let typed = match data.directory.as_deref().filter(|dir| options.split_edges.by_time && is_typed(dir)) {
        Some(dir) => Some(typed::open(dir, Verify::Once)?),
        None => None,
    };
    let timed = typed.as_ref().and_then(|typed| {
        let EdgeData { indptr, indices, time, .. } = typed.edges.first()?;
        Some(TimedEdges { indptr, indices, time: time.as_deref()? })
    });
    let divided = split::split_of(options.split_edges, (edges, undirected), timed, config.seed);
    let ([train, valid, test], how) = divided.map_err(|why| Error::dataset(&data.name, why))?;
    let part = |edges| LinkPart { edges, negatives: None };
    let notes = vec![format!(
        "{count} {kind} edges: {} train, {} validate, {} test, {how} (--split-edges)",
        train.len(),
        valid.len(),
        test.len()
    )];
    Ok(Parts { train, valid: part(valid), test: part(test), metric: None, notes })
}

/// Parts of a stored task.
///
/// # Errors
/// `--valid-fraction` is given, and edges validate already.
fn of_task(
    config: &TrainConfig,
    (typed, task): (&TypedDataset, &Task),
    graph: &Graph,
    undirected: bool,
) -> Result<Parts> {
    let edges = &typed.edges[0];
    // edge number e ends in the last row that starts at it or before
    let row_of = |e: u64| edges.indptr.partition_point(|&start| start <= e) as NodeId - 1;
    let edge = |row: NodeId| match &task.seeds {
        Some(Seeds::Pairs(pairs)) => (pairs[2 * row as usize], pairs[2 * row as usize + 1]),
        _ => (graph.indices()[row as usize], row_of(u64::from(row))),
    };
    let part = |rows: &[NodeId], given: &Option<Negatives>| LinkPart {
        edges: rows.iter().map(|&row| edge(row)).collect(),
        negatives: given.as_ref().map(|given| of_stored(given, rows.len())),
    };
    let [_, of_valid, of_test] = &task.negatives;
    let (mut valid, test) = (part(&task.split.valid, of_valid), part(&task.split.test, of_test));
    let mut train = part(&task.split.train, &None).edges;
    let fraction = config.own.get::<LinkOptions>().valid_fraction;
    if !valid.edges.is_empty() {
        split::refuse_hold_out(fraction, "the task has edges that validate")?;
    }
    if fraction > 0.0 {
        train.retain(|edge| edge.0 != edge.1);
        let same = |(u, v): Edge| if undirected { (u.min(v), u.max(v)) } else { (u, v) };
        valid.edges = split::hold_out(&mut train, fraction, config.seed, same);
    }
    let held = split::set(valid.edges.iter().chain(&test.edges), undirected);
    let before = train.len();
    train.retain(|&edge| edge.0 != edge.1 && !split::contains(&held, edge));
    let mut notes = vec![format!(
        "task {}: {} edges train, {} validate, {} test",
        task.name,
        train.len(),
        valid.edges.len(),
        test.edges.len()
    )];
    if before > train.len() {
        notes.push(format!(
            "{} training edges are not learned: they are reverses of edges that validate or test, or lead \
             from a node to itself",
            before - train.len()
        ));
    }
    Ok(Parts { train, valid, test, metric: task.metric.clone(), notes })
}

/// Negatives of a part with this number of positives.
fn of_stored(given: &Negatives, count: usize) -> GivenNegatives {
    let equal = |each, nodes: &Buffer<NodeId>| CandidateLists::equal(count, each, nodes.clone());
    match given {
        Negatives::Pairs(pairs) => {
            GivenNegatives::Pairs(pairs.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
        }
        Negatives::Destinations { each, nodes } => {
            GivenNegatives::Ends { end: End::Destination, lists: equal(*each, nodes) }
        }
        Negatives::Sources { each, nodes } => {
            GivenNegatives::Ends { end: End::Source, lists: equal(*each, nodes) }
        }
        Negatives::Lists(lists) => GivenNegatives::Ends { end: End::Destination, lists: lists.clone() },
    }
}

/// Refuses runs whose single batch would leave out every edge that it could read.
fn check_batches(config: &TrainConfig, options: &LinkOptions, train: usize, graph: &Graph) -> Result<()> {
    use graphmill_loader::link::Exclude;
    let is_one_batch = config.batch_size == 0 || train <= config.batch_size;
    let edges = graph.num_edges();
    if !is_one_batch || options.excluded() == Exclude::Nothing || edges > 2 * train {
        return Ok(());
    }
    Err(Error::usage(format!(
        "--batch-size {}: one batch learns all {train} training edges and leaves them out of its messages, \
         so no edge is left to read; use --batch-size {}, --disjoint 0.5 or --exclude none",
        config.batch_size,
        train.div_ceil(8).max(1)
    )))
}

/// [`known`] for parts of the edges of an undirected graph, some of which are `held` out; `read` is
/// the graph without these, if it is at hand. `None` if a list of neighbours repeats an edge.
///
/// # Errors
/// None in practice: the rest of a sound graph is sound.
fn known_of_undirected(
    graph: &Graph,
    read: Option<&Graph>,
    held: &[Edge],
) -> Result<Option<[KnownEdges; 2]>> {
    let rest = match read {
        Some(read) => read.clone(),
        None => split::without(graph, held)?,
    };
    let of_training = KnownEdges::of_undirected(&rest);
    Ok(of_training.zip(KnownEdges::of_undirected(graph)).map(<[KnownEdges; 2]>::from))
}

/// Edges that are known to training, and all known edges.
fn known(
    data: &Dataset,
    held: &[Edge],
    train: &[Edge],
    parts: [&LinkPart; 2],
    undirected: bool,
) -> Result<[KnownEdges; 2]> {
    let mut all: Vec<Edge> = Vec::new();
    let both = |(u, v): Edge| [Some((u, v)), undirected.then_some((v, u))].into_iter().flatten();
    for v in 0..data.num_nodes() as NodeId {
        let sources = data.graph.in_neighbors(v).iter().filter(|&&u| u <= v || !undirected);
        let sources = sources.filter(|&&u| !split::contains(held, (u, v)));
        all.extend(sources.flat_map(|&u| both((u, v))));
    }
    all.extend(train.iter().flat_map(|&edge| both(edge)));
    let to_training = all.len();
    all.extend(parts.into_iter().flat_map(|part| &part.edges).flat_map(|&edge| both(edge)));
    let (from, to): (Vec<NodeId>, Vec<NodeId>) = all.into_iter().unzip();
    let nodes = data.num_nodes();
    Ok([
        KnownEdges::new(nodes, &from[..to_training], &to[..to_training])?,
        KnownEdges::new(nodes, &from, &to)?,
    ])
}

/// Metric and candidates of a run.
fn judge(
    config: &TrainConfig,
    options: &LinkOptions,
    own: Option<&str>,
    has_given: bool,
) -> Result<(LinkMetric, Candidates)> {
    let by_candidates = match options.candidates {
        Candidates::Pairs => "auc",
        Candidates::All => "mrr",
        Candidates::Auto if has_given => "mrr",
        Candidates::Auto => "auc",
    };
    let own = own.filter(|name| LinkMetric::find(name).is_ok());
    let name = match config.metric.as_str() {
        "auto" => own.unwrap_or(by_candidates),
        given => given,
    };
    let metric = LinkMetric::find(name)?;
    let candidates = match options.candidates {
        Candidates::Auto if has_given && !metric.is_of_lists() => Candidates::Auto,
        Candidates::Auto if metric.is_pooled() => Candidates::Pairs,
        Candidates::Auto => Candidates::All,
        given => given,
    };
    let refuse = |why: &str| Err(Error::usage(format!("--metric {name}: {why}")));
    if candidates == Candidates::All && metric.is_pooled() {
        return refuse(
            "it compares edges with pairs without an edge; use --candidates pairs, or --metric mrr",
        );
    }
    if candidates != Candidates::All && metric.is_of_lists() {
        return refuse("it judges lists of all candidates; use --candidates all, or --metric hits@10");
    }
    Ok((metric, candidates))
}
