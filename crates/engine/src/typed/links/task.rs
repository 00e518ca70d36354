//! Edges that a run learns on a dataset of several types, and the graph that its batches read.
//!
//! # Algorithm
//!
//! Edges that validate or test are removed from the graph, with their reverses, before a batch is
//! drawn. Training edges that repeat one of them, or are its reverse, are not learned.
//!
//! If rows have times, each seed of a batch is a node at the time of its row, and its neighbourhood
//! holds what existed then. The edges that a row predicts are those from its time on, which no seed
//! of that time reads, so no edge is removed: earlier edges, also between the same nodes and also
//! those that earlier rows predicted, are history. A stored edge between the ends of a row that the
//! row would read although it is not earlier is refused: one without a time, or one of the row's
//! own time with an inclusive bound.
//!
//! With `--link-times edges` the rows are the stored edges themselves, each at its own time and
//! with a strict bound, so no prediction reads its edge, or one of the same time.
//!
//! # Source
//!
//! Zhang and Chen, *Link prediction based on graph neural networks*, NeurIPS 2018, section 3.2
//! (removed edges); Schlichtkrull et al., ESWC 2018, section 4 (encoder and decoder of relations);
//! Robinson et al., RelBench, NeurIPS 2024 (datasets and benchmarks), section 3 (rows at times).
//!
//! # Cost
//!
//! O(E log R) for `R` removed edges; 4 bytes for each edge that is left, if the model reads edge
//! features.

use std::sync::Arc;

use graphmill_core::{NodeId, typed::TypedGraph};
use graphmill_data::{
    partition::TypedPartitionDir,
    typed::{EdgeData, EdgeType, TypedDataset},
};
use graphmill_loader::{
    link::Corrupt,
    time::{TimeBound, TimeOptions},
};
use graphmill_nn::link::structure::PairStructure;

use super::super::{edges::tables as tables_of, tables::Tables, task::TypedTask, time::TaskTimes};
use crate::{
    Error, Result, TrainConfig,
    config::{
        EvalEvery,
        link::{ExcludedFromMessages, LinkOptions, LinkTimes},
    },
    link::{
        split::{self, Edge},
        structure,
    },
    relational::{LinkEdges, Relation, RowTimes, Triple},
    tiers::Selected,
};

/// Numbers of the graph's relations that hold the edges of a relation of the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EdgeRelations {
    /// Relation of the edges.
    pub(super) forward: usize,
    /// Relation of their reverses, if there is one; an undirected relation is its own.
    pub(super) reverse: Option<usize>,
}

/// Links that a run learns.
pub(in crate::typed) struct TypedLinks {
    pub(in crate::typed) edges: LinkEdges,
    /// Features of nodes and edges, and the graph that batches read.
    pub(in crate::typed) inputs: TypedTask,
    /// Relations of the graph that hold the edges of each relation of the task; rows with times
    /// need no such edges.
    pub(super) held: Vec<EdgeRelations>,
    /// Structure of the graph that batches read, if the decoder reads it.
    pub(super) structure: Option<Arc<PairStructure>>,
    /// Facts for the user.
    pub(super) notes: Vec<String>,
}

impl TypedLinks {
    /// Finds the links that a run learns, and removes those that validate or test from the graph.
    ///
    /// # Errors
    /// The dataset has no such task, no edge is left to learn, or features exceed f32.
    pub(super) fn new(config: &TrainConfig, data: &TypedDataset) -> Result<Self> {
        Self::with_rows(config, data, tables_of(config, data)?)
    }

    /// Finds the links as [`TypedLinks::new`] does, with the feature rows of the edges by their
    /// positions in `data`; `tables` is empty if the model reads none.
    ///
    /// # Errors
    /// As for [`TypedLinks::new`].
    pub(in crate::typed) fn with_rows(
        config: &TrainConfig,
        data: &TypedDataset,
        tables: Tables,
    ) -> Result<Self> {
        if config.own.get::<LinkOptions>().link_times == LinkTimes::Edges {
            check(config)?;
        }
        structure::check(config, Some(data))?;
        let mut edges = LinkEdges::with_times(data, config)?;
        if let Some(times) = edges.times.clone() {
            if structure::reads_structure(config) {
                let why = "the graph around a pair has no times, and links are learned at times; leave out \
                           the times of the task and --link-times";
                return Err(structure::refused(config, why));
            }
            return at_times(config, data, edges, &times);
        }
        let held = held(data, &edges)?;
        let [train, valid, test] = &edges.parts;
        let mut notes = vec![format!(
            "{} relations: {} edges train, {} validate, {} test",
            edges.relations.len(),
            train.len(),
            valid.len(),
            test.len()
        )];
        notes.extend(one_way(data, &held));
        let before = train.len();
        let mut removed = Removed::new(&held, &edges, &[valid, test]);
        let is_new = |edge: &Triple| !removed.has(held[edge[1] as usize].forward, local(&edges, *edge));
        let kept: Vec<Triple> = train.iter().copied().filter(is_new).collect();
        if kept.len() < before {
            notes.push(format!(
                "{} training edges are not learned: they repeat edges that validate or test, or are their \
                 reverses",
                before - kept.len()
            ));
        }
        edges.parts[0] = kept;
        let options: LinkOptions = config.own.get();
        if options.disjoint > 0.0 {
            let shares = [options.disjoint, 1.0 - options.disjoint, 0.0];
            let train = std::mem::take(&mut edges.parts[0]);
            let [learned, read, _] = split::split(train, shares, config.seed ^ 1);
            notes.push(format!(
                "{} edges are learned, and {} others are read (--disjoint)",
                learned.len(),
                read.len()
            ));
            edges.parts[0] = learned;
            let [train, valid, test] = &edges.parts;
            removed = Removed::new(&held, &edges, &[train, valid, test]);
        }
        if edges.parts[0].is_empty() {
            let message = "no edge is left to learn: all repeat edges that validate or test, or are their \
                           reverses; change the split of the task";
            return Err(Error::dataset(&data.name, message));
        }
        let (graph, tables) = removed.leave(&data.graph()?, tables)?;
        notes.extend(leaks(data, &held, &removed, &graph));
        let seeds: Vec<usize> = edges.types.iter().map(|(t, _)| *t).collect();
        let structure = structure::of_graph(config, graph.relation(0))?;
        let inputs = TypedTask { edges: tables, ..TypedTask::of_links(data, &edges.task, graph)? };
        let inputs = inputs.with_added(config, &seeds)?;
        Ok(Self { edges, inputs, held, structure, notes })
    }

    /// Numbers of the node types with embeddings, ascending.
    pub(super) fn types(&self) -> impl Iterator<Item = usize> {
        self.edges.types.iter().map(|(t, _)| *t)
    }
}

/// The links of rows with `times`, and the graph with all edges and their times.
///
/// # Errors
/// An option is for links without times; no edge and no node has a time; a row would read an edge
/// that it predicts; or features exceed f32.
fn at_times(
    config: &TrainConfig,
    data: &TypedDataset,
    edges: LinkEdges,
    times: &RowTimes,
) -> Result<TypedLinks> {
    check(config)?;
    let bound = config.own.get::<TimeOptions>().time_bound;
    let on = &edges.relations[0].on;
    let stored = data.edges.iter().find(|stored| stored.edge_type == *on);
    if let Some(stored) = stored {
        refuse_visible(data, (stored, false), &edges, times, bound)?;
    }
    let reverse = stored.and_then(|stored| stored.reverse.as_ref()).map(|name| on.reversed(name));
    if let Some(stored) = data.edges.iter().find(|stored| reverse.as_ref() == Some(&stored.edge_type)) {
        refuse_visible(data, (stored, true), &edges, times, bound)?;
    }
    let [train, valid, test] = edges.parts.each_ref().map(Vec::len);
    let counts = times.counts();
    let what = match config.own.get::<LinkOptions>().link_times {
        LinkTimes::Rows => "rows have times",
        LinkTimes::Edges => "edges are learned at their own times",
    };
    let mut notes = vec![format!(
        "{what}: {train} edges at {} times train, {valid} at {} validate, {test} at {} test; \
         batches and scores read what existed then",
        counts[0], counts[1], counts[2]
    )];
    if times.train_is_later() && config.own.get::<LinkOptions>().link_times == LinkTimes::Edges {
        notes.push(
            "some edges that train are later than some that validate or test: the task does not split them \
             by time, and scores may be too good"
                .into(),
        );
    }
    if times.left_out > 0 {
        notes.push(format!(
            "{} training edges are not learned: their sources have an edge to every destination that exists \
             at their times, so that they have no negative",
            times.left_out
        ));
    }
    let faces =
        |of: &&EdgeData| of.edge_type.source == on.destination && of.edge_type.destination == on.source;
    let is_known = |of: &EdgeType| of == on || reverse.as_ref() == Some(of);
    let others = data.edges.iter().filter(faces).filter(|of| of.time.is_none() && !is_known(&of.edge_type));
    notes.extend(others.map(|of| {
        format!(
            "edges of type {} have no times, so that every row reads them: if they are the reverses of edges \
             that are predicted, declare the reverse when you build the dataset, or add {}=0 to --fanout",
            of.edge_type, of.edge_type
        )
    }));
    let graph = data.graph()?;
    let times = TaskTimes::of_links(data, &edges.task, &graph)?;
    let tables = tables_of(config, data)?;
    let inputs =
        TypedTask { edges: tables, times: Some(times), ..TypedTask::of_links(data, &edges.task, graph)? };
    let seeds: Vec<usize> = edges.types.iter().map(|(t, _)| *t).collect();
    let inputs = inputs.with_added(config, &seeds)?;
    let held = data.edges.iter().position(|stored| stored.edge_type == *on);
    let held = held.map(|forward| EdgeRelations { forward, reverse: None });
    Ok(TypedLinks { edges, inputs, held: held.into_iter().collect(), structure: None, notes })
}

/// Refuses options that rows with times do not follow.
fn check(config: &TrainConfig) -> Result<()> {
    let options: LinkOptions = config.own.get();
    if TypedPartitionDir::is_in(&config.dataset) {
        return Err(Error::usage(
            "links have times, and ranks learn links without; train on the dataset before graphmill \
             partition",
        ));
    }
    let what = match options.link_times {
        LinkTimes::Rows => "rows",
        LinkTimes::Edges => "edges",
    };
    let refuse =
        |option: &str, why: &str| Err(Error::usage(format!("--{option} with {what} that have times: {why}")));
    if options.ends(false) != Corrupt::Destination {
        let why = "a row has one source, and its destinations are ranked; use --corrupt destination";
        return refuse("corrupt", why);
    }
    if config.eval_every == EvalEvery::Auto {
        let why = "the work of scores at many times is not counted; give a number of epochs";
        return refuse("eval-every auto", why);
    }
    if options.disjoint > 0.0 {
        return refuse("disjoint", "no row reads the edges that it predicts; leave it out");
    }
    if options.exclude != ExcludedFromMessages::WithReverses {
        return refuse("exclude", "no row reads an edge from its time on; leave it out");
    }
    let bound = config.own.get::<TimeOptions>().time_bound;
    if options.link_times == LinkTimes::Edges && bound == TimeBound::Inclusive {
        return Err(Error::usage(
            "--time-bound inclusive with --link-times edges: an edge would be read by its own prediction; \
             use --time-bound strict",
        ));
    }
    Ok(())
}

/// Refuses edges of the task's type, or of its reverse, that a row reads although it predicts them.
fn refuse_visible(
    data: &TypedDataset,
    (stored, is_reverse): (&EdgeData, bool),
    edges: &LinkEdges,
    times: &RowTimes,
    bound: TimeBound,
) -> Result<()> {
    let rows = edges.parts.iter().flatten().zip(times.of_parts.iter().flatten());
    for (&edge, &time) in rows {
        let (u, v) = local(edges, edge);
        let (u, v) = if is_reverse { (v, u) } else { (u, v) };
        let row = stored.row(v);
        let sources = &stored.indices[row.clone()];
        let first = row.start + sources.partition_point(|&other| other < u);
        let last = row.start + sources.partition_point(|&other| other <= u);
        let (why, fix) = match &stored.time {
            None if first < last => ("has no time", "add times to the edges"),
            Some(of) if bound.admits(time, time) && of[first..last].contains(&time) => {
                ("has the time of the row", "use --time-bound strict")
            }
            _ => continue,
        };
        return Err(Error::dataset(
            &data.name,
            format!(
                "the edge {u} -> {v} of type {} {why}, so a row of task '{}' at time {time} would read the \
                 edge that it predicts; {fix}",
                stored.edge_type, edges.task
            ),
        ));
    }
    Ok(())
}

/// Relations of the graph that hold the edges of each relation of a task.
fn held(data: &TypedDataset, edges: &LinkEdges) -> Result<Vec<EdgeRelations>> {
    let of = |on: &EdgeType| -> Result<usize> {
        let found = data.edges.iter().position(|edges| edges.edge_type == *on);
        found.ok_or_else(|| {
            let message = format!(
                "its link task is on {on}, but it has no such edges, so that nothing is known before a row; \
                 give the rows of the task times, or store the edges"
            );
            Error::dataset(&data.name, message)
        })
    };
    let held = |relation: &Relation| {
        let forward = of(&relation.on)?;
        let reverse = data.edges[forward].reverse.as_ref();
        let reverse = reverse.map(|name| of(&relation.on.reversed(name))).transpose()?;
        Ok(EdgeRelations { forward, reverse })
    };
    edges.relations.iter().map(held).collect()
}

/// Fact about the relations of a task over which messages pass in one direction alone.
fn one_way(data: &TypedDataset, held: &[EdgeRelations]) -> Option<String> {
    let count = held.iter().filter(|of| of.reverse.is_none()).count();
    let fix = match &data.edges[..] {
        [of] if of.edge_type.source == of.edge_type.destination => "--undirected",
        _ => "--add-reverses, or tables with a name of the reverse,",
    };
    (count > 0).then(|| {
        format!(
            "{count} of {} learned edge types have no reverse type, so that messages pass from sources to \
             destinations alone: import with {fix} to pass them both ways",
            held.len()
        )
    })
}

/// Ends of an edge of a task by local ids.
pub(super) fn local(edges: &LinkEdges, [u, r, v]: Triple) -> Edge {
    let [sources, destinations] = &edges.relations[r as usize].candidates;
    (u - sources.start, v - destinations.start)
}

/// Facts about edge types that hold the reverses of removed edges without being declared so.
fn leaks<'n>(
    data: &'n TypedDataset,
    held: &'n [EdgeRelations],
    removed: &'n Removed,
    graph: &'n TypedGraph,
) -> impl Iterator<Item = String> + 'n {
    let relations = graph.schema().relations();
    let of_pair = held.iter().flat_map(|of| (0..relations.len()).map(move |r| (of, r)));
    of_pair.filter_map(move |(of, r)| {
        let own = &relations[of.forward];
        let faces = relations[r].src == own.dst && relations[r].dst == own.src;
        if !faces || r == of.forward || of.reverse == Some(r) {
            return None;
        }
        let set = removed.0.get(of.forward)?;
        let is_reverse = |&&(v, u): &&Edge| graph.relation(r).in_neighbors(u).binary_search(&v).is_ok();
        let count = set.iter().filter(is_reverse).count();
        (count > 0 && 2 * count >= set.len()).then(|| {
            format!(
                "edges of type {} are the reverses of {count} of {} edges of type {} that validate or test, \
                 and batches read them: declare the reverse when you build the dataset, or add {}=0 to \
                 --fanout",
                data.edges[r].edge_type,
                set.len(),
                data.edges[of.forward].edge_type,
                data.edges[r].edge_type
            )
        })
    })
}

/// Edges of each relation of the graph that batches do not read, by local ids: [`split::set`]s.
struct Removed(Vec<Vec<Edge>>);

impl Removed {
    /// The edges of these parts with their reverses.
    fn new(held: &[EdgeRelations], edges: &LinkEdges, parts: &[&Vec<Triple>]) -> Self {
        let relations = held.iter().flat_map(|of| [Some(of.forward), of.reverse]).flatten();
        let mut lists = vec![Vec::new(); relations.max().map_or(0, |last| last + 1)];
        for &edge in parts.iter().copied().flatten() {
            let of = held[edge[1] as usize];
            let (u, v) = local(edges, edge);
            lists[of.forward].push((u, v));
            if let Some(reverse) = of.reverse {
                lists[reverse].push((v, u));
            }
        }
        Self(lists.iter().map(|list| split::set(list, false)).collect())
    }

    /// Returns true if an edge of relation `r` of the graph is removed.
    fn has(&self, r: usize, edge: Edge) -> bool {
        self.0.get(r).is_some_and(|set| split::contains(set, edge))
    }

    /// The graph without these edges, and the feature rows of the edges that are left. `tables` is
    /// empty if the model reads none.
    fn leave(&self, graph: &TypedGraph, mut tables: Tables) -> Result<(TypedGraph, Tables)> {
        let mut rest = Vec::with_capacity(graph.relations().len());
        for (r, relation) in graph.relations().iter().enumerate() {
            let Some(set) = self.0.get(r).filter(|set| !set.is_empty()) else {
                rest.push(relation.clone());
                continue;
            };
            let Some(table) = tables.get_mut(r).and_then(Option::as_mut) else {
                rest.push(split::without(relation, set)?);
                continue;
            };
            let edges = relation.num_edges();
            if edges > NodeId::MAX as usize {
                return Err(Error::usage(format!(
                    "{edges} edges of a type have features, and at most {} of a link task can be numbered; \
                     use a model without edge features",
                    NodeId::MAX
                )));
            }
            let mut kept = Vec::with_capacity(edges);
            rest.push(split::without_listed(relation, set, &mut |edge| kept.push(edge as NodeId))?);
            *table = Arc::new(Selected::new(table.clone(), kept));
        }
        Ok((TypedGraph::new(graph.schema().clone(), rest)?, tables))
    }
}
