//! The stream of events that a run learns: the rows of a link task with times, in their order.

use std::{ops::Range, path::Path, sync::Arc};

use graphmill_core::{Buffer, FileArray, NodeId, keyed::key, maps};
use graphmill_data::typed::{CandidateLists, EdgeData, Negatives, Seeds, Task, TaskOn, TypedDataset};
use graphmill_loader::time::Events;

use super::{
    choice::{MAX_EVENTS, of_run, times},
    features::{EventFeatures, NodeFeatures},
    files::{self, RowFiles, StreamSizes},
    history::{self, History},
    target::EventTargets,
};
use crate::{
    Error, Result, TrainConfig,
    config::events::{EventOptions, kind},
    record::{DatasetRecord, TypeCount},
};

/// Part of the key that chooses new nodes. The choice does not depend on the seed of a run.
const NEW_NODES: u64 = 0x6e65_775f_6e6f_6465;
/// Events that are read before their pages leave memory.
const RUN: usize = 1 << 18;
/// Names of the parts of a split.
pub(super) const PARTS: [&str; 3] = ["train", "valid", "test"];

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
    /// Customary metric, if known.
    pub(super) metric: Option<String>,
    /// Facts for the user.
    pub(super) notes: Vec<String>,
}

/// Rows of a task by part, with their ends and times.
struct Rows {
    /// Number of each row in the task, and in its part.
    row: Vec<[usize; 2]>,
    source: Vec<NodeId>,
    destination: Vec<NodeId>,
    time: Vec<i64>,
    parts: [Range<usize>; 3],
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
        let task = &*of_run(config, data)?;
        let TaskOn::Edges(on) = &task.on else { unreachable!("a link task is on edges") };
        let (edges, schema) = (data.edge_type(on)?, data.schema()?);
        let ends = [schema.node_type(&on.source)?, schema.node_type(&on.destination)?];
        let first = if ends[0] == ends[1] { 0 } else { data.nodes[ends[0]].count };
        let num_nodes = first + data.nodes[ends[1]].count;
        let mut notes = Vec::new();
        let Rows { row, source, destination, time, parts } = rows(data, task, edges, first)?;
        let features = EventFeatures::new(data, task, edges, &row, &mut notes)?;
        let given = given(task, &row, &parts, first, &mut notes);
        let events = Events::new(source.into(), destination.into(), time.into())?;
        let is_held_out = held_out(&events, &parts, num_nodes, new_nodes);
        let ends_of = |e: usize| [events.source()[e], events.destination()[e]];
        let is_learned = |e: &u32| ends_of(*e as usize).iter().all(|&v| !is_held_out[v as usize]);
        let learned: Vec<u32> = (0..parts[0].end as u32).filter(is_learned).collect();
        if learned.is_empty() {
            let message = "its task has no training events; add some to the split, or lower --new-nodes";
            return Err(Error::dataset(&data.name, message));
        }
        let targets = EventTargets::new(config, task, &row, &learned)?;
        let (is_partial, node_features) =
            (learned.len() < parts[0].len(), NodeFeatures::new(data, ends, &mut notes)?);
        let reads_neighbors = kind(config).is_none_or(|kind| kind.neighbors.is_some());
        let sizes = StreamSizes {
            nodes: num_nodes,
            events: events.len(),
            node_dim: node_features.as_ref().map_or(0, NodeFeatures::width),
            edge_dim: features.width(),
            histories: usize::from(reads_neighbors) * (1 + usize::from(is_partial)),
            batch: if config.batch_size == 0 { learned.len() } else { config.batch_size },
            negatives: if targets.is_some() { 0 } else { most_negatives(&given, &parts) },
        };
        let files = dir.map(|dir| RowFiles::new(config, &sizes, dir)).transpose()?.flatten();
        let mut is_new = vec![true; num_nodes];
        learned.iter().flat_map(|&e| ends_of(e as usize)).for_each(|v| is_new[v as usize] = false);
        if is_partial {
            let left = parts[0].len() - learned.len();
            notes.push(format!("{left} training events of new nodes are left out (--new-nodes)"));
        }
        drop(row);
        let place = files.as_ref();
        let events = placed(place, events)?;
        let all = 0..events.len() as u32;
        let destinations = [distinct(&events, learned.iter().copied()), distinct(&events, all.clone())];
        let [of_learned, of_all] = destinations.map(|nodes| files::place(place, nodes));
        let learned_history = || History::new(&events, learned.iter().copied(), num_nodes, place);
        let neighbors = if reads_neighbors { all } else { 0..0 };
        let stream = Self {
            task: task.name.clone(),
            destinations: [of_learned?, of_all?],
            learned_history: (is_partial && reads_neighbors)
                .then(|| learned_history().map(Arc::new))
                .transpose()?,
            all_history: History::new(&events, neighbors, num_nodes, place)?,
            learned: files::place(place, learned)?,
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
            is_new,
            given,
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

/// Rows of the parts of a task, each in the order of its times. Destinations begin at `first`.
fn rows(data: &TypedDataset, task: &Task, edges: &EdgeData, first: usize) -> Result<Rows> {
    let Some(time_of) = times(data, task) else {
        let message = format!("the rows of task '{}' have no times, which models of events need", task.name);
        return Err(Error::dataset(
            &data.name,
            format!("{message}; import them, or use --model sage --task link"),
        ));
    };
    let mut all = Rows {
        row: Vec::new(),
        source: Vec::new(),
        destination: Vec::new(),
        time: Vec::new(),
        parts: [const { 0..0 }; 3],
    };
    for (number, (_, ids)) in task.split.parts().into_iter().enumerate() {
        let mut sorted: Vec<[usize; 2]> =
            ids.iter().enumerate().map(|(at, &row)| [row as usize, at]).collect();
        sorted.sort_by_key(|&[row, _]| time_of[row]); // stable: equal times keep their order
        all.parts[number] = all.row.len()..all.row.len() + sorted.len();
        all.row.extend(sorted);
    }
    if all.row.len() > MAX_EVENTS {
        let message =
            format!("{} events: at most {MAX_EVENTS} can be numbered; split the task", all.row.len());
        return Err(Error::dataset(&data.name, message));
    }
    let destinations = if task.seeds.is_none() { edges.destinations() } else { Vec::new() };
    for &[row, _] in &all.row {
        let (source, destination) = match &task.seeds {
            Some(Seeds::Pairs(pairs)) => (pairs[2 * row], pairs[2 * row + 1]),
            _ => (edges.indices[row], destinations[row]),
        };
        all.source.push(source);
        all.destination.push(destination + first as NodeId);
        all.time.push(time_of[row]);
    }
    if let Some(i) = all.time.windows(2).position(|pair| pair[0] > pair[1]) {
        let part = |i: usize| PARTS[all.parts.iter().position(|part| part.contains(&i)).unwrap_or(0)];
        let message = format!(
            "task '{}' is not split by time: an event of '{}' has time {}, and one of '{}' time {}; put \
             earlier events into earlier parts",
            task.name,
            part(i),
            all.time[i],
            part(i + 1),
            all.time[i + 1]
        );
        return Err(Error::dataset(&data.name, message));
    }
    Ok(all)
}

/// `events` in files, if rows are in files.
fn placed(files: Option<&RowFiles>, events: Events) -> Result<Events> {
    let Some(files) = files else { return Ok(events) };
    let [source, destination] = [events.source(), events.destination()].map(|ends| files.store(ends));
    Ok(Events::new(source?, destination?, files.store(events.time())?)?)
}

/// Given destinations of the parts, in the order of the events.
fn given(
    task: &Task,
    rows: &[[usize; 2]],
    parts: &[Range<usize>; 3],
    first: usize,
    notes: &mut Vec<String>,
) -> [Option<CandidateLists>; 3] {
    let mut out = [const { None }; 3];
    for (number, (negatives, part)) in task.negatives.iter().zip(parts).enumerate() {
        let ordered = |lists: &CandidateLists| {
            let of_event = |&[_, at]: &[usize; 2]| lists.list(at).iter().map(|&v| v + first as NodeId);
            CandidateLists::new(rows[part.clone()].iter().map(of_event))
        };
        match negatives {
            Some(Negatives::Destinations { each, nodes }) if *each > 0 => {
                out[number] = Some(ordered(&CandidateLists::equal(part.len(), *each, nodes.clone())));
            }
            Some(Negatives::Lists(lists)) => out[number] = Some(ordered(lists)),
            Some(_) => notes.push(format!(
                "the negatives of '{}' are not read: they are no lists of destinations",
                PARTS[number]
            )),
            None => {}
        }
    }
    out
}

/// Largest number of destinations that an event is ranked against; 1 is drawn if none are given.
fn most_negatives(given: &[Option<CandidateLists>; 3], parts: &[Range<usize>; 3]) -> usize {
    let of_part = |(lists, part): (&Option<CandidateLists>, &Range<usize>)| {
        let lists = lists.as_ref()?;
        (0..part.len()).map(|at| lists.list(at).len()).max()
    };
    given.iter().zip(parts).filter_map(of_part).max().unwrap_or(1).max(1)
}

/// Nodes that are left out of training: a fraction of all, among those of validation and test
/// events.
fn held_out(events: &Events, parts: &[Range<usize>; 3], num_nodes: usize, fraction: f64) -> Vec<bool> {
    let mut out = vec![false; num_nodes];
    let count = (fraction * num_nodes as f64) as usize;
    if count == 0 {
        return out;
    }
    let late = parts[1].start..events.len();
    let mut nodes: Vec<NodeId> = [&events.source()[late.clone()], &events.destination()[late]].concat();
    nodes.sort_unstable();
    nodes.dedup();
    nodes.sort_by_key(|&v| key(&[NEW_NODES, v.into()]));
    nodes.iter().take(count).for_each(|&v| out[v as usize] = true);
    out
}

/// Distinct destinations of some events, ascending.
fn distinct(events: &Events, of: impl Iterator<Item = u32>) -> Vec<NodeId> {
    let mut nodes: Vec<NodeId> = of.map(|e| events.destination()[e as usize]).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}
