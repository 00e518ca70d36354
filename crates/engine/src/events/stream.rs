//! The stream of events that a run learns: the rows of a link task with times, in their order.

use std::{ops::Range, path::Path, sync::Arc};

use graphmill_core::{Buffer, FileArray, NodeId, keyed::key, maps};
use graphmill_data::{
    external::SortedArray,
    typed::{CandidateLists, Negatives, Targets, Task, TaskOn, TypedDataset},
};
use graphmill_loader::time::{Events, TimeDraw, TimeOptions};

use super::{
    choice::{PARTS, of_run},
    features::{EventFeatures, NodeFeatures},
    files::{RowFiles, StreamSizes, settle},
    history::{self, History, each},
    opening::{Column, Opening, RUN, share},
    rows::Rows,
    target::EventTargets,
};
use crate::{
    Error, Result, TrainConfig,
    config::events::{EventOptions, kind},
    record::{DatasetRecord, TypeCount},
};

/// Part of the key that chooses new nodes. The choice does not depend on the seed of a run.
const NEW_NODES: u64 = 0x6e65_775f_6e6f_6465;

/// Events of a task. Nodes are numbered by type: those of the sources, then those of the
/// destinations if their type is another one.
pub(super) struct EventStream {
    /// Name of the task.
    pub(super) task: String,
    /// Events of all parts in the order of their times.
    pub(super) events: Events,
    /// Events of each part.
    pub(super) parts: [Range<usize>; 3],
    /// Training events that are learned: all of them, or those without new nodes.
    pub(super) learned: Buffer<u32>,
    pub(super) num_nodes: usize,
    /// Node types of the sources and of the destinations, by number.
    pub(super) types: [usize; 2],
    /// Number of the first node of each of these types.
    pub(super) first: [usize; 2],
    /// Distinct destinations of the learned events, and of all events.
    pub(super) destinations: [Buffer<NodeId>; 2],
    /// Classes or values of the events, if the task is not one of links.
    pub(super) targets: Option<Arc<EventTargets>>,
    /// Features of each event, `E x K`.
    pub(super) features: EventFeatures,
    /// Place of the rows in files, if they exceed `--host-budget`.
    pub(super) files: Option<RowFiles>,
    /// Features of the nodes, `V x F`.
    pub(super) node_features: Option<Arc<NodeFeatures>>,
    /// Nodes that no learned event has.
    pub(super) is_new: Vec<bool>,
    /// Destinations to rank each event of a part against, if they are given.
    pub(super) given: [Option<CandidateLists>; 3],
    /// Neighbours by the learned events, if some training events are left out.
    pub(super) learned_history: Option<Arc<History>>,
    pub(super) all_history: History,
    /// Sizes of the rows.
    pub(super) sizes: StreamSizes,
    /// Customary metric, if known.
    pub(super) metric: Option<String>,
    /// Facts for the user.
    pub(super) notes: Vec<String>,
}

impl EventStream {
    /// Reads the events that the configuration chooses ([`of_run`]). The fraction `--new-nodes` of
    /// the nodes does not train. Rows that exceed `--host-budget` are in files, with those that
    /// change in the directory `dir`; without it, all are in memory.
    ///
    /// # Errors
    /// There is no such task, it has no times, its parts are not in the order of their times, no
    /// event trains, an event with features is not an edge of the graph, or the budget is less than
    /// a batch needs.
    pub(super) fn new(config: &TrainConfig, data: &TypedDataset, dir: Option<&Path>) -> Result<Self> {
        let new_nodes = config.own.get::<EventOptions>().new_nodes;
        let chosen = of_run(config, data)?;
        let task = &*chosen.task;
        let TaskOn::Edges(on) = &task.on else { unreachable!("a link task is on edges") };
        let (edges, schema) = (data.edge_type(on)?, data.schema()?);
        let ends = [schema.node_type(&on.source)?, schema.node_type(&on.destination)?];
        let first = if ends[0] == ends[1] { 0 } else { data.nodes[ends[0]].count };
        let num_nodes = first + data.nodes[ends[1]].count;
        let mut notes = Vec::new();
        let counts = (chosen.count(data, edges)?, EventFeatures::sought(task, edges));
        let opening = &Opening::new(config, dir, counts);
        let rows = Rows::new(data, &chosen, edges, first, opening.as_ref())?;
        let of_rows = (&rows, first as NodeId);
        let features = EventFeatures::new(data, task, edges, of_rows, opening.as_ref(), &mut notes)?;
        let Rows { row, at, source, destination, time, parts } = rows;
        let events = Events::new(source, destination, time)?;
        let learned = learned(&events, &parts, (num_nodes, new_nodes), opening.as_ref())?;
        if learned.is_empty() {
            let message = "its task has no training events; add some to the split, or lower --new-nodes";
            return Err(Error::dataset(&data.name, message));
        }
        let (is_partial, node_features) =
            (learned.len() < parts[0].len(), NodeFeatures::new(data, ends, &mut notes)?);
        let reads_neighbors = kind(config).is_none_or(|kind| kind.neighbors.is_some());
        let sizes = StreamSizes {
            nodes: num_nodes,
            events: events.len(),
            node_dim: node_features.as_ref().map_or(0, NodeFeatures::width),
            edge_dim: features.width(),
            by_recency: reads_neighbors && draws_by_recency(config),
            histories: usize::from(reads_neighbors) * (1 + usize::from(is_partial)),
            batch: if config.batch_size == 0 { learned.len() } else { config.batch_size },
            negatives: if matches!(task.targets, Targets::None) { most_negatives(task, &parts) } else { 0 },
            sorted: if opening.is_some() { counts.0.max(counts.1) } else { 0 },
        };
        let files = dir.map(|dir| RowFiles::new(config, &sizes, dir)).transpose()?.flatten();
        let place = files.as_ref();
        let events = settled(place, events)?;
        let learned = settle(learned, place)?;
        let targets = EventTargets::new(config, task, &row, &learned, place)?;
        let given = given(task, (&at, &parts), first, place, &mut notes)?;
        let of_learned = || learned.iter().copied();
        if is_partial {
            let left = parts[0].len() - learned.len();
            notes.push(format!("{left} training events of new nodes are left out (--new-nodes)"));
        }
        drop((row, at));
        let all = 0..events.len() as u32;
        let of_known = distinct(&events, all.clone(), num_nodes, place)?;
        let learned_history = || History::new(&events, of_learned(), num_nodes, place).map(Arc::new);
        let stream = Self {
            task: task.name.clone(),
            destinations: [distinct(&events, of_learned(), num_nodes, place)?, of_known],
            learned_history: (is_partial && reads_neighbors).then(learned_history).transpose()?,
            all_history: History::new(&events, if reads_neighbors { all } else { 0..0 }, num_nodes, place)?,
            is_new: without_events(&events, of_learned(), num_nodes),
            learned: learned.clone(),
            events,
            parts,
            num_nodes,
            types: ends,
            first: [0, first],
            targets: targets.map(Arc::new),
            features: match place {
                Some(files) => features.in_file(files)?,
                None => features.in_memory(),
            },
            node_features: node_features.map(|features| {
                Arc::new(if place.is_some() { features } else { features.in_memory(num_nodes) })
            }),
            files,
            given,
            sizes,
            metric: task.metric.clone(),
            notes,
        };
        stream.release();
        Ok(stream)
    }

    /// Takes rows in files out of the memory of the process, until they are used again; without
    /// those of the memory of the nodes.
    pub(super) fn release(&self) {
        if self.files.is_none() {
            return;
        }
        history::release(&self.events);
        self.features.release();
        self.node_features.iter().for_each(|features| features.release());
        self.learned_history.iter().for_each(|history| history.release());
        self.all_history.release();
        maps::release(&self.learned);
        self.destinations.iter().for_each(|nodes| maps::release(nodes));
        self.targets.iter().for_each(|targets| targets.release());
        for lists in self.given.iter().flatten() {
            maps::release(&lists.starts);
            maps::release(&lists.nodes);
        }
    }

    /// Neighbours in training, or in evaluation. Draws see earlier events only, so the two differ
    /// if training events are left out.
    pub(super) fn history(&self, is_training: bool) -> &History {
        self.learned_history.as_deref().filter(|_| is_training).unwrap_or(&self.all_history)
    }

    /// Returns true if an end of the event is a new node.
    pub(super) fn has_new_node(&self, event: usize) -> bool {
        [self.events.source()[event], self.events.destination()[event]]
            .iter()
            .any(|&v| self.is_new[v as usize])
    }

    /// Number of destinations that an event of a part is ranked against.
    pub(super) fn num_negatives(&self, part: usize, event: u32) -> usize {
        let of = |lists: &CandidateLists| lists.list(event as usize - self.parts[part].start).len();
        self.given[part].as_ref().map_or(1, of)
    }

    /// Width of the features of events.
    pub(super) fn edge_dim(&self) -> usize {
        self.features.width()
    }

    /// Time of the first event.
    pub(super) fn start(&self) -> i64 {
        self.events.time().first().copied().unwrap_or(0)
    }

    /// Time after all events.
    pub(super) fn end(&self) -> i64 {
        self.events.time().last().map_or(0, |last| last.saturating_add(1))
    }

    /// Mean and deviation of the times between the training events of a node, and from the start to
    /// its first one.
    ///
    /// # Errors
    /// The disk has too little space for the times of nodes in files.
    pub(super) fn intervals(&self) -> Result<[f64; 2]> {
        // times of the last events since the start, so that a new file has those of no events
        match &self.files {
            Some(files) => Ok(self.intervals_by(&mut FileArray::zeros(self.num_nodes, &files.dir)?)),
            None => Ok(self.intervals_by(&mut vec![0; self.num_nodes])),
        }
    }

    /// [`EventStream::intervals`] by the times of the last events, zeros.
    fn intervals_by(&self, last: &mut [i64]) -> [f64; 2] {
        let (start, events) = (self.start(), &self.events);
        let [mut count, mut sum, mut squares] = [0.0; 3];
        for run in self.learned.chunks(RUN) {
            for &e in run {
                let e = e as usize;
                let time = events.time()[e];
                for v in [events.source()[e], events.destination()[e]] {
                    let before = &mut last[v as usize];
                    let interval = time as f64 - start.wrapping_add(*before) as f64;
                    *before = time.wrapping_sub(start);
                    count += 1.0;
                    sum += interval;
                    squares += interval * interval;
                }
            }
            self.release();
            maps::release(last);
        }
        let mean = sum / f64::max(count, 1.0);
        let variance = squares / f64::max(count, 1.0) - mean * mean;
        [mean, if variance > 0.0 { variance.sqrt() } else { 1.0 }]
    }

    /// Record of the dataset. The split is that of the task.
    pub(super) fn record(&self, data: &TypedDataset) -> DatasetRecord {
        let count = |name: String, count: usize| TypeCount { name, count: count as u64 };
        let [train, valid, test] = self.parts.clone().map(|part| part.len());
        let record = DatasetRecord {
            name: data.name.clone(),
            nodes: data.num_nodes(),
            edges: data.num_edges(),
            feature_dim: self.node_features.as_ref().map_or(0, |features| features.width()),
            train,
            valid,
            test,
            checksum: data.checksum.clone(),
            node_types: data.nodes.iter().map(|node| count(node.name.clone(), node.count)).collect(),
            edge_types: data.edges.iter().map(|e| count(e.edge_type.to_string(), e.num_edges())).collect(),
            ..DatasetRecord::default()
        };
        match &self.targets {
            Some(targets) => targets.complete(record),
            None => record,
        }
    }
}

/// Returns true if the run draws neighbours by recency.
fn draws_by_recency(config: &TrainConfig) -> bool {
    config.own.get::<TimeOptions>().time_draw == TimeDraw::Recency
}

/// `events` where the rows of a run are.
fn settled(files: Option<&RowFiles>, events: Events) -> Result<Events> {
    let (source, destination, time) = events.into_columns();
    Ok(Events::new(settle(source, files)?, settle(destination, files)?, settle(time, files)?)?)
}

/// Given destinations of the parts, in the order of the events, whose numbers in their parts are
/// `at`.
fn given(
    task: &Task,
    (at, parts): (&[u32], &[Range<usize>; 3]),
    first: usize,
    files: Option<&RowFiles>,
    notes: &mut Vec<String>,
) -> Result<[Option<CandidateLists>; 3]> {
    let mut out = [const { None }; 3];
    for (number, (negatives, part)) in task.negatives.iter().zip(parts).enumerate() {
        let at = &at[part.clone()];
        match negatives {
            Some(Negatives::Destinations { each, nodes }) if *each > 0 => {
                let list = |at: u32| &nodes[at as usize * each..][..*each];
                out[number] = Some(ordered(list, (at, part.len() * each), first, files)?);
                maps::release(nodes);
            }
            Some(Negatives::Lists(lists)) => {
                let list = |at: u32| lists.list(at as usize);
                out[number] = Some(ordered(list, (at, lists.nodes.len()), first, files)?);
                maps::release(&lists.starts);
                maps::release(&lists.nodes);
            }
            Some(_) => notes.push(format!(
                "the negatives of '{}' are not read: they are no lists of destinations",
                PARTS[number]
            )),
            None => {}
        }
    }
    Ok(out)
}

/// The lists of destinations `at`, which have `total` nodes together, in this order.
fn ordered<'n>(
    list: impl Fn(u32) -> &'n [NodeId],
    (at, total): (&[u32], usize),
    first: usize,
    files: Option<&RowFiles>,
) -> Result<CandidateLists> {
    let dir = files.map(|files| &*files.dir);
    let (mut starts, mut nodes) = (Column::new(dir, at.len() + 1)?, Column::new(dir, total)?);
    let mut end = 0;
    starts.push(0);
    for &at in at {
        let list = list(at);
        list.iter().for_each(|&v| nodes.push(v + first as NodeId));
        end += list.len() as u64;
        starts.push(end);
    }
    Ok(CandidateLists { starts: starts.finish()?, nodes: nodes.finish()? })
}

/// Largest number of destinations that an event is ranked against; 1 is drawn if none are given.
fn most_negatives(task: &Task, parts: &[Range<usize>; 3]) -> usize {
    let of_part = |(negatives, part): (&Option<Negatives>, &Range<usize>)| match negatives {
        Some(Negatives::Destinations { each, .. }) if !part.is_empty() => Some(*each),
        Some(Negatives::Lists(lists)) => (0..part.len()).map(|at| lists.list(at).len()).max(),
        _ => None,
    };
    task.negatives.iter().zip(parts).filter_map(of_part).max().unwrap_or(1).max(1)
}

/// Training events without nodes that are left out of training.
fn learned(
    events: &Events,
    parts: &[Range<usize>; 3],
    (num_nodes, new_nodes): (usize, f64),
    opening: Option<&Opening>,
) -> Result<Buffer<u32>> {
    let is_held_out = held_out(events, parts, (num_nodes, new_nodes), opening)?;
    let all = 0..parts[0].end as u32;
    let is_learned = |ends: [NodeId; 2]| !ends.iter().any(|&v| is_held_out.get(v as usize) == Some(&true));
    let mut count = 0;
    each(events, all.clone(), |_, ends| count += usize::from(is_learned(ends)));
    let mut out = Column::new(opening.map(|opening| &*opening.dir), count)?;
    each(events, all, |e, ends| {
        if is_learned(ends) {
            out.push(e);
        }
    });
    out.finish()
}

/// Nodes that are left out of training: a fraction of all, among those of validation and test
/// events; empty if there are none.
fn held_out(
    events: &Events,
    parts: &[Range<usize>; 3],
    (num_nodes, fraction): (usize, f64),
    opening: Option<&Opening>,
) -> Result<Vec<bool>> {
    let count = (fraction * num_nodes as f64) as usize;
    if count == 0 {
        return Ok(Vec::new());
    }
    let [mut is_late, mut out] = [(); 2].map(|()| vec![false; num_nodes]);
    let late = parts[1].start as u32..events.len() as u32;
    each(events, late, |_, ends| ends.into_iter().for_each(|v| is_late[v as usize] = true));
    let nodes = (0..num_nodes as u64).filter(|&v| is_late[v as usize]);
    let len = nodes.clone().count();
    let mut sorted = SortedArray::new(nodes.map(|v| [key(&[NEW_NODES, v]), v]), len, share(opening, 1))?;
    for _ in 0..count {
        let Some([_, v]) = sorted.take_next()? else { break };
        out[v as usize] = true;
    }
    Ok(out)
}

/// Nodes that none of the learned events has.
fn without_events(events: &Events, learned: impl Iterator<Item = u32>, num_nodes: usize) -> Vec<bool> {
    let mut is_new = vec![true; num_nodes];
    each(events, learned, |_, ends| ends.into_iter().for_each(|v| is_new[v as usize] = false));
    is_new
}

/// Distinct destinations of some events, ascending.
fn distinct(
    events: &Events,
    of: impl Iterator<Item = u32>,
    num_nodes: usize,
    files: Option<&RowFiles>,
) -> Result<Buffer<NodeId>> {
    let mut is_found = vec![false; num_nodes];
    each(events, of, |_, [_, destination]| is_found[destination as usize] = true);
    let count = is_found.iter().filter(|&&found| found).count();
    let mut nodes = Column::new(files.map(|files| &*files.dir), count)?;
    (0..).zip(&is_found).filter(|(_, found)| **found).for_each(|(v, _)| nodes.push(v));
    nodes.finish()
}
