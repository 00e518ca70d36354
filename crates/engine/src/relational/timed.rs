//! Links whose rows have times: a source at a time with one or several destinations.
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
//! (datasets and benchmarks): tasks that recommend nodes.
//!
//! # Cost
//!
//! O(E log E) for `E` edges; 8 bytes for each, and 20 for each destination that has a time.

use std::{collections::BTreeMap, ops::Range};

use graphmill_core::{End, NodeId};
use graphmill_data::typed::{Task, TaskKind, TypedDataset};
use graphmill_loader::link::{ExistingNodes, KnownTriples};

use super::{
    edges::{LinkEdges, Relation, Triple},
    ranking::Query,
    times::RowTimes,
};
use crate::{Error, Result, inference::fixed_sample};

/// Most times of the rows that validate, and of those that test: embeddings of all candidates are
/// computed for each.
const MAX_SCORED_TIMES: usize = 64;

impl LinkEdges {
    /// Reads the times of the rows, if the task has some. Then an edge is known at its time only.
    ///
    /// # Errors
    /// Several tasks are learned, and rows of one have times; an end of a row does not exist at its
    /// time; the rows that validate or test have too many times.
    pub(crate) fn read_times(&mut self, data: &TypedDataset) -> Result<()> {
        if !self.is_of_tasks {
            return Ok(());
        }
        let is_link = |task: &&Task| task.kind() == Some(TaskKind::LinkPrediction);
        let of_relation = |of: &Relation| data.tasks.iter().filter(is_link).find(|task| task.name == of.name);
        let tasks: Vec<&Task> = self.relations.iter().filter_map(of_relation).collect();
        let Some((task, time)) = tasks.iter().find_map(|task| Some((*task, task.time.as_ref()?))) else {
            return Ok(());
        };
        if tasks.len() > 1 {
            let message = format!(
                "the rows of task '{}' have times, and {} tasks are learned together; choose one with --task",
                task.name,
                tasks.len()
            );
            return Err(Error::dataset(&data.name, message));
        }
        let parts = task.split.parts();
        let of_parts = parts.map(|(_, rows)| rows.iter().map(|&row| time[row as usize]).collect::<Vec<_>>());
        let relation = &self.relations[0];
        for (edges, times) in self.parts.iter().zip(&of_parts) {
            check_existence(data, relation, edges.iter().zip(times))?;
        }
        let destinations = relation.candidates[1].clone();
        let exists = data.nodes[relation.types[1]].time.as_ref();
        let existing = exists.map(|exists| ExistingNodes::new(destinations, exists));
        let times = RowTimes::new(of_parts, existing);
        check_counts(data, relation, times.counts())?;
        let learned = self.parts[0].iter().zip(&times.of_parts[0]);
        let learned: Vec<Triple> = learned.map(|(&[u, _, v], &time)| [u, times.number(time), v]).collect();
        (self.learned, self.known) = (KnownTriples::new(&learned)?, KnownTriples::default());
        // a row leads from its source to its destinations
        (self.undirected, self.pairs) = (false, [None, None]);
        self.times = Some(times);
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
        let edges = || self.parts[part].iter().zip(times);
        let mut rows: BTreeMap<(i64, NodeId), Vec<NodeId>> = BTreeMap::new();
        edges().for_each(|(&[u, _, v], &time)| rows.entry((time, u)).or_default().push(v));
        for row in rows.values_mut() {
            row.sort_unstable();
            row.dedup();
        }
        let query = |((time, fixed), targets, excluded): ((i64, NodeId), Vec<NodeId>, Vec<NodeId>)| {
            (time, Query { end: End::Destination, relation: 0, fixed, targets, excluded })
        };
        let all: Vec<_> = match of_lists {
            true => rows.into_iter().map(|(row, targets)| query((row, targets, Vec::new()))).collect(),
            false => {
                let single = |(&[u, _, v], &time): (&Triple, &i64)| {
                    query(((time, u), vec![v], rows.get(&(time, u)).cloned().unwrap_or_default()))
                };
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

/// Refuses rows whose source or destination does not exist at their time.
fn check_existence<'e>(
    data: &TypedDataset,
    relation: &Relation,
    edges: impl Iterator<Item = (&'e Triple, &'e i64)> + Clone,
) -> Result<()> {
    for (end, what) in [(0, "source"), (1, "destination")] {
        let Some(exists) = &data.nodes[relation.types[end]].time else { continue };
        let first = relation.candidates[end].start;
        let node = |edge: &Triple| edge[2 * end] - first;
        let is_early = |&(edge, &time): &(&Triple, &i64)| exists[node(edge) as usize] > time;
        if let Some((edge, time)) = edges.clone().find(is_early) {
            let v = node(edge);
            let message = format!(
                "a row of task '{}' has time {time}, but its {what} {v} exists from time {} on; use a later \
                 time or leave the row out",
                relation.name, exists[v as usize]
            );
            return Err(Error::dataset(&data.name, message));
        }
    }
    Ok(())
}

/// Refuses rows that validate or test at too many times.
fn check_counts(data: &TypedDataset, relation: &Relation, counts: [usize; 3]) -> Result<()> {
    for (count, what) in counts[1..].iter().zip(["validate", "test"]) {
        if *count > MAX_SCORED_TIMES {
            let other = match data.edge_type(&relation.on) {
                Ok(_) => format!(
                    ", or learn the edges without the times of the rows by --task {} --split-edges \
                     time:70,15,15",
                    relation.on
                ),
                Err(_) => String::new(),
            };
            let message = format!(
                "the rows of task '{}' that {what} have {count} times, and all candidates are embedded for \
                 each: at most {MAX_SCORED_TIMES}; round the times{other}",
                relation.name
            );
            return Err(Error::dataset(&data.name, message));
        }
    }
    Ok(())
}
