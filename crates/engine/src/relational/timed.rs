//! Links that have times: a source at a time with one or several destinations. They are rows of a
//! task, or edges of the graph.
//!
//! # Algorithm
//!
//! The edges of a source at one time are its row. A destination is a non-edge of a row if it is in
//! no row of the same source and time; rows of other times say nothing about it, because a source
//! may choose a destination again. Metrics of lists make one query of each row; those of single
//! edges make one of each edge, without the other destinations of its row. Candidates are the
//! destinations that exist at the time.
//!
//! # Source
//!
//! Robinson et al., RelBench: a benchmark for deep learning on relational databases, NeurIPS 2024
//! (datasets and benchmarks): tasks that recommend nodes. Edges of the graph with their own times
//! are the `edge_label_time` of PyTorch Geometric's loaders of links.
//!
//! # Cost
//!
//! O(E log E) for `E` edges; 8 bytes for each, and 20 for each destination that has a time.

use std::{collections::BTreeMap, ops::Range};

use graphmill_core::{End, NodeId};
use graphmill_data::typed::{Task, TaskKind, TypedDataset};
use graphmill_loader::link::{ExistingNodes, KnownTriples};

use super::{
    edges::{Chosen, LinkEdges, Relation, Triple, choose},
    ranking::Query,
    times::RowTimes,
};
use crate::{
    Error, Result, TrainConfig,
    config::link::{LinkOptions, LinkTimes},
    inference::fixed_sample,
};

/// Most times of the rows that validate, and of those that test: embeddings of all candidates are
/// computed for each.
const MAX_SCORED_TIMES: usize = 64;

impl LinkEdges {
    /// Reads the links of a run as [`LinkEdges::new`] does, with their times: those of the rows of
    /// the task, if it has some, or those of the edges (`--link-times edges`). An edge with a time
    /// is known at its time only.
    ///
    /// # Errors
    /// As for [`LinkEdges::new`]; several relations are learned, and one has times; an end does not
    /// exist at the time; the edges that validate or test have too many times to rank all
    /// candidates; `--link-times edges` without edges that have times, or without a split by time.
    pub(crate) fn with_times(data: &TypedDataset, config: &TrainConfig) -> Result<Self> {
        let options: LinkOptions = config.own.get();
        let of_edges = options.link_times == LinkTimes::Edges;
        if of_edges && let Chosen::EdgesOf(types) = choose(data, &config.task)? {
            let &[r] = &types[..] else {
                return Err(Error::usage(format!(
                    "--link-times edges: {} edge types are learned together, and negatives of one time are \
                     drawn of one; choose one with --task",
                    types.len()
                )));
            };
            let (mut edges, times) = Self::of_stored(data, r, config)?;
            edges.set_times(data, times, &options)?;
            return Ok(edges);
        }
        let mut edges = Self::new(data, config)?;
        if let Some(times) = edges.times_of_rows(data, of_edges)? {
            edges.set_times(data, times, &options)?;
        } else if options.eval_negatives > 0 {
            return Err(Error::usage(
                "--eval-negatives: edges without times are ranked among all candidates; leave it out, or use \
                 --link-times edges",
            ));
        }
        Ok(edges)
    }

    /// Times of the rows that train, validate and test: those of the task, or those of the edges
    /// that the rows are if `of_edges`; `None` if they have none.
    ///
    /// # Errors
    /// Several tasks are learned, and rows of one have times, or the rows are not edges with times.
    fn times_of_rows(&self, data: &TypedDataset, of_edges: bool) -> Result<Option<[Vec<i64>; 3]>> {
        if !self.is_of_tasks {
            return Ok(None);
        }
        let is_link = |task: &&Task| task.kind() == Some(TaskKind::LinkPrediction);
        let of_relation = |of: &Relation| data.tasks.iter().filter(is_link).find(|task| task.name == of.name);
        let tasks: Vec<&Task> = self.relations.iter().filter_map(of_relation).collect();
        let has_times = |task: &&Task| task.time.is_some() || of_edges;
        let Some(task) = tasks.iter().copied().find(has_times) else { return Ok(None) };
        if tasks.len() > 1 {
            let message = format!(
                "the rows of task '{}' have times, and {} tasks are learned together; choose one with --task",
                task.name,
                tasks.len()
            );
            return Err(Error::dataset(&data.name, message));
        }
        let fault = |why: String| Error::dataset(&data.name, format!("--link-times edges: {why}"));
        let time = match (&task.time, of_edges) {
            (Some(_), true) => {
                let message = format!(
                    "the rows of task '{}' have times of their own; leave it out, or learn the edges by \
                     --task {}",
                    task.name, self.relations[0].on
                );
                return Err(fault(message));
            }
            (Some(time), false) => time,
            (None, _) => {
                let edges =
                    task.seeds.is_none().then(|| data.edge_type(&self.relations[0].on)).transpose()?;
                edges.and_then(|edges| edges.time.as_ref()).ok_or_else(|| {
                    let what =
                        if task.seeds.is_some() { "are pairs, and not edges" } else { "have no times" };
                    fault(format!("the rows of task '{}' {what}; leave it out", task.name))
                })?
            }
        };
        let parts = task.split.parts();
        Ok(Some(parts.map(|(_, rows)| rows.iter().map(|&row| time[row as usize]).collect())))
    }

    /// Gives the edges of each part these times.
    ///
    /// # Errors
    /// An end of an edge does not exist at its time; the edges that validate or test have too many
    /// times; no edge has a negative.
    fn set_times(
        &mut self,
        data: &TypedDataset,
        of_parts: [Vec<i64>; 3],
        options: &LinkOptions,
    ) -> Result<()> {
        let relation = &self.relations[0];
        let what = match self.is_of_tasks {
            true => format!("row of task '{}'", relation.name),
            false => format!("edge of type {}", relation.on),
        };
        for (edges, times) in self.parts.iter().zip(&of_parts) {
            check_existence(data, (relation, &what[..]), edges.iter().zip(times))?;
        }
        let destinations = relation.candidates[1].clone();
        let exists = data.nodes[relation.types[1]].time.as_ref();
        let existing = exists.map(|exists| ExistingNodes::new(destinations, exists));
        let of_edges = options.link_times == LinkTimes::Edges;
        let both = self.undirected && of_edges;
        let times = RowTimes { both, ..RowTimes::new(of_parts, existing) };
        if options.eval_negatives == 0 {
            check_counts(data, (relation, self.is_of_tasks), times.counts())?;
        }
        let learned = self.parts[0].iter().zip(&times.of_parts[0]);
        let mut learned: Vec<Triple> =
            learned.map(|(&[u, _, v], &time)| [u, times.number(time), v]).collect();
        if both {
            let reverses: Vec<Triple> = learned.iter().map(|&[u, time, v]| [v, time, u]).collect();
            learned.extend(reverses);
        }
        (self.learned, self.known) = (KnownTriples::new(&learned)?, KnownTriples::default());
        // a row leads from its source to its destinations
        (self.undirected, self.pairs) = (false, [None, None]);
        self.times = Some(times);
        if of_edges {
            self.leave_out_lonely(data)?;
        }
        Ok(())
    }

    /// Does not learn training edges whose source has an edge to every destination that exists at
    /// their time, so that they have no negative.
    ///
    /// # Errors
    /// No edge is left.
    fn leave_out_lonely(&mut self, data: &TypedDataset) -> Result<()> {
        let Some(times) = &mut self.times else { return Ok(()) };
        let candidates = &self.relations[0].candidates[1];
        let has_negative = |&[u, _, _]: &Triple, time: i64| {
            let existing = times.existing.as_ref().map_or(candidates.len(), |nodes| nodes.at(time).len());
            let own = self.learned.ends_of(times.number(time), End::Destination, u).len();
            // a node is no negative of itself
            existing > own + usize::from(candidates.contains(&u))
        };
        let (edges, at) = (&self.parts[0], &times.of_parts[0]);
        let kept: Vec<usize> = (0..edges.len()).filter(|&i| has_negative(&edges[i], at[i])).collect();
        times.left_out = edges.len() - kept.len();
        if kept.is_empty() {
            let message = "no edge has a destination that exists at its time and is no edge; add edges";
            return Err(Error::dataset(&data.name, message));
        }
        if times.left_out > 0 {
            self.parts[0] = kept.iter().map(|&i| self.parts[0][i]).collect();
            times.of_parts[0] = kept.iter().map(|&i| times.of_parts[0][i]).collect();
        }
        Ok(())
    }

    /// Queries of the rows of a part by time, of at most `max` lists or edges; 0 for all.
    pub(crate) fn queries_by_time(
        &self,
        part: usize,
        of_lists: bool,
        max: usize,
    ) -> BTreeMap<i64, Vec<Query>> {
        let times = self.times.as_ref().map_or(&[][..], |times| &times.of_parts[part]);
        let both = self.times.as_ref().is_some_and(|times| times.both);
        let edges = || self.parts[part].iter().zip(times);
        // destinations of the edges, and all nodes that an edge of the time joins to the source
        let [mut rows, mut known]: [BTreeMap<(i64, NodeId), Vec<NodeId>>; 2] = Default::default();
        for (&[u, _, v], &time) in edges() {
            rows.entry((time, u)).or_default().push(v);
            known.entry((time, u)).or_default().push(v);
            if both {
                known.entry((time, v)).or_default().push(u);
            }
        }
        for row in rows.values_mut().chain(known.values_mut()) {
            row.sort_unstable();
            row.dedup();
        }
        let known = |row: (i64, NodeId)| known.get(&row).cloned().unwrap_or_default();
        let query = |((time, fixed), targets, excluded): ((i64, NodeId), Vec<NodeId>, Vec<NodeId>)| {
            (time, Query { end: End::Destination, relation: 0, fixed, targets, excluded })
        };
        let all: Vec<_> = match of_lists {
            true => {
                let list = |(row, targets): ((i64, NodeId), Vec<NodeId>)| {
                    let mut excluded = known(row);
                    excluded.retain(|node| targets.binary_search(node).is_err());
                    query((row, targets, excluded))
                };
                rows.into_iter().map(list).collect()
            }
            false => {
                let single =
                    |(&[u, _, v], &time): (&Triple, &i64)| query(((time, u), vec![v], known((time, u))));
                edges().map(single).collect()
            }
        };
        let numbers: Vec<NodeId> = (0..all.len() as NodeId).collect();
        let mut chosen = fixed_sample(&numbers, max).into_iter().peekable();
        let mut by_time: BTreeMap<i64, Vec<Query>> = BTreeMap::new();
        for (i, (time, query)) in (0..).zip(all) {
            if chosen.next_if_eq(&i).is_some() {
                by_time.entry(time).or_default().push(query);
            }
        }
        by_time
    }

    /// The only relation without edges, on a table whose sources and destinations are these rows.
    pub(crate) fn on_rows(&self, candidates: [Range<NodeId>; 2]) -> Self {
        let relations = vec![Relation { candidates, ..self.relations[0].clone() }];
        Self {
            task: self.task.clone(),
            is_of_tasks: true,
            relations,
            types: Vec::new(),
            parts: Default::default(),
            learned: KnownTriples::default(),
            known: KnownTriples::default(),
            undirected: false,
            pairs: [None, None],
            metric: None,
            times: None,
        }
    }
}

/// Refuses edges whose source or destination does not exist at their time. Messages call an edge
/// `what`.
fn check_existence<'e>(
    data: &TypedDataset,
    (relation, what): (&Relation, &str),
    edges: impl Iterator<Item = (&'e Triple, &'e i64)> + Clone,
) -> Result<()> {
    for (end, name) in [(0, "source"), (1, "destination")] {
        let Some(exists) = &data.nodes[relation.types[end]].time else { continue };
        let first = relation.candidates[end].start;
        let node = |edge: &Triple| edge[2 * end] - first;
        let is_early = |&(edge, &time): &(&Triple, &i64)| exists[node(edge) as usize] > time;
        if let Some((edge, time)) = edges.clone().find(is_early) {
            let v = node(edge);
            let article = if what.starts_with('e') { "an" } else { "a" };
            let message = format!(
                "{article} {what} has time {time}, but its {name} {v} exists from time {} on; use a later \
                 time or leave the row out",
                exists[v as usize]
            );
            return Err(Error::dataset(&data.name, message));
        }
    }
    Ok(())
}

/// Refuses rows of a task, or edges, that validate or test at too many times.
fn check_counts(
    data: &TypedDataset,
    (relation, is_task): (&Relation, bool),
    counts: [usize; 3],
) -> Result<()> {
    let Relation { name, on, .. } = relation;
    for (count, what) in counts[1..].iter().zip(["validate", "test"]) {
        if *count > MAX_SCORED_TIMES {
            let rows = if is_task { format!("rows of task '{name}'") } else { format!("edges of type {on}") };
            let other = match data.edge_type(on) {
                Ok(_) if is_task => format!(
                    ", or learn the edges without the times of the rows by --task {on} --split-edges \
                     time:70,15,15"
                ),
                _ => String::new(),
            };
            let message = format!(
                "the {rows} that {what} have {count} times, and all candidates are embedded for each: at \
                 most {MAX_SCORED_TIMES}; rank each among drawn candidates by --eval-negatives 100, round \
                 the times{other}"
            );
            return Err(Error::dataset(&data.name, message));
        }
    }
    Ok(())
}
