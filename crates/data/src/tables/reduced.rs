//! Dataset without the nodes and edges that end.
//!
//! A node that ends keeps its number, key and features, so that learned rows and predictions keep
//! theirs. It loses all edges, its rows of tasks, its label and its part of the split. The rest
//! keeps its order.

use graphmill_core::{Buffer, Error, Labels, NodeId, Result, Split, memory};

use super::{
    faults::Faults,
    parts::{FeaturePart, NodePart},
    preprocessing::Preprocessing,
    removals::{Removals, ends},
    write::each_chunk,
};
use crate::{
    external::{Rows, Scratch},
    npy::Element,
    typed::{EdgeData, EdgeType, Seeds, Targets, Task, TaskKind, TaskOn, TypedDataset},
};

/// Row starts that are written at a time.
const CHUNK_LEN: usize = 1 << 16;

/// Edges of a type that end.
#[derive(Default)]
struct RemovedEdges<'a> {
    /// For each source, true if all of its edges end; empty if none do.
    sources: Vec<bool>,
    /// For each destination, true if all of its edges end; empty if none do.
    destinations: Vec<bool>,
    /// Destination and source of pairs whose edges end, ascending.
    pairs: &'a [[NodeId; 2]],
    /// Source and destination of pairs whose edges of the reverse type end, ascending.
    opposite: &'a [[NodeId; 2]],
}

impl RemovedEdges<'_> {
    fn is_empty(&self) -> bool {
        self.sources.is_empty()
            && self.destinations.is_empty()
            && self.pairs.is_empty()
            && self.opposite.is_empty()
    }

    /// Returns true if the edges from `src` to `dst` end.
    fn has(&self, src: NodeId, dst: NodeId) -> bool {
        let is_set = |set: &[bool], v: NodeId| set.get(v as usize).is_some_and(|is_set| *is_set);
        is_set(&self.sources, src)
            || is_set(&self.destinations, dst)
            || self.pairs.binary_search(&[dst, src]).is_ok()
            || self.opposite.binary_search(&[src, dst]).is_ok()
    }
}

/// Set of nodes of one type, empty if `lists` are.
fn set(count: usize, lists: &[&[NodeId]]) -> Result<Vec<bool>> {
    if lists.iter().all(|list| list.is_empty()) {
        return Ok(Vec::new());
    }
    let mut set = memory::filled(false, count)?;
    lists.iter().flat_map(|list| list.iter()).for_each(|&v| set[v as usize] = true);
    Ok(set)
}

impl Removals {
    /// The dataset `data`, whose import the record `known` describes, without these rows.
    ///
    /// # Errors
    /// A scratch cannot be written.
    pub(super) fn reduce(
        &self,
        data: &TypedDataset,
        known: &Preprocessing,
        scratch: &Scratch,
    ) -> Result<TypedDataset> {
        let mut reduced = data.clone();
        for (e, edges) in reduced.edges.iter_mut().enumerate() {
            let removed = self.of_edges(data, known, e)?;
            if !removed.is_empty() {
                *edges = without(edges, &removed, scratch, &format!("reduced-{e}"))?;
            }
        }
        for (number, task) in reduced.tasks.iter_mut().enumerate() {
            self.reduce_task(task, data, known, (scratch, &format!("reduced-task-{number}")))?;
        }
        Ok(reduced)
    }

    /// Adds a fault for rows of tasks of `data` from before the time that a changed node has in
    /// `nodes`.
    pub(super) fn refuse_early(&self, data: &TypedDataset, nodes: &[NodePart], faults: &mut Faults) {
        for task in &data.tasks {
            let Some(times) = &task.time else { continue };
            // nodes of the rows by their types: each `step`-th one from `first` on
            let (of_rows, step): (Vec<(&str, usize)>, usize) = match (&task.on, &task.seeds) {
                (TaskOn::Nodes(kind), Some(Seeds::Nodes(_))) => (vec![(kind, 0)], 1),
                // a label of an edge may be older than the edge's ends
                (TaskOn::Edges(of), Some(Seeds::Pairs(_)))
                    if task.kind() == Some(TaskKind::LinkPrediction) =>
                {
                    (vec![(&of.source, 0), (&of.destination, 1)], 2)
                }
                _ => continue,
            };
            let (Some(Seeds::Nodes(ids)) | Some(Seeds::Pairs(ids))) = &task.seeds else { continue };
            for (kind, first) in of_rows {
                let of_type = nodes.iter().zip(&self.changed).find(|(nodes, _)| nodes.name == *kind);
                let Some((NodePart { time: Some(exists), .. }, changed)) = of_type else { continue };
                let is_early = |(v, time): &(&NodeId, &i64)| {
                    changed.binary_search(v).is_ok() && exists[**v as usize] > **time
                };
                let own = ids.iter().skip(first).step_by(step);
                let count = own.zip(times.iter()).filter(is_early).count() as u64;
                if count > 0 {
                    let noun = if count == 1 { "row" } else { "rows" };
                    faults.add_many(&format!("nodes '{kind}'"), count, || {
                        format!(
                            "{count} {noun} of the task '{}' with a time before that from which a changed \
                             node exists; correct the times of the changed nodes",
                            task.name
                        )
                    });
                }
            }
        }
    }

    /// Edges of the type number `e` that end.
    fn of_edges(&self, data: &TypedDataset, known: &Preprocessing, e: usize) -> Result<RemovedEdges<'_>> {
        let edges = &data.edges[e];
        let [source, destination] = ends(data, edges)?;
        let reverse = edges.reverse.as_ref().map(|name| edges.edge_type.reversed(name));
        let reverse = reverse.and_then(|of| data.edges.iter().position(|edges| edges.edge_type == of));
        let is_foreign = |of: &EdgeType| known.foreign_key(&of.to_string()).is_some();
        let changed = |t: usize, is_replaced: bool| match self.changed.get(t) {
            Some(nodes) if is_replaced => &nodes[..],
            _ => &[],
        };
        let of_reverse = reverse.is_some_and(|r| is_foreign(&data.edges[r].edge_type));
        let of_sources = [&self.nodes[source][..], changed(source, is_foreign(&edges.edge_type))];
        let of_destinations = [&self.nodes[destination][..], changed(destination, of_reverse)];
        Ok(RemovedEdges {
            sources: set(data.nodes[source].count, &of_sources)?,
            destinations: set(data.nodes[destination].count, &of_destinations)?,
            pairs: &self.pairs[e],
            opposite: reverse.map_or(&[], |r| &self.pairs[r]),
        })
    }

    /// Removes the rows of nodes and edges that end from a task; `name` is unique within the
    /// scratch.
    fn reduce_task(
        &self,
        task: &mut Task,
        data: &TypedDataset,
        known: &Preprocessing,
        (scratch, name): (&Scratch, &str),
    ) -> Result<()> {
        let ended = |kind: &str| {
            let t = data.nodes.iter().position(|nodes| nodes.name == kind);
            t.map_or(&[][..], |t| &self.nodes[t][..])
        };
        let is_kept: Vec<bool> = match (&task.on, &task.seeds) {
            (TaskOn::Nodes(kind), None) if !ended(kind).is_empty() => {
                let nodes = ended(kind).to_vec();
                return clear(task, &nodes);
            }
            (TaskOn::Nodes(kind), Some(Seeds::Nodes(ids))) if !ended(kind).is_empty() => {
                ids.iter().map(|v| ended(kind).binary_search(v).is_err()).collect()
            }
            (TaskOn::Edges(edge_type), Some(Seeds::Pairs(ids))) => {
                let e = data.edges.iter().position(|edges| edges.edge_type == *edge_type);
                let removed = e.map_or(Ok(RemovedEdges::default()), |e| self.of_edges(data, known, e))?;
                // pairs need no edges
                let ends = [&edge_type.source, &edge_type.destination].map(|kind| ended(kind));
                if removed.is_empty() && ends.iter().all(|ended| ended.is_empty()) {
                    return Ok(());
                }
                let stays = |pair: &[NodeId]| {
                    let mut nodes = pair.iter().zip(ends);
                    nodes.all(|(v, ended)| ended.binary_search(v).is_err())
                };
                ids.chunks_exact(2).map(|pair| stays(pair) && !removed.has(pair[0], pair[1])).collect()
            }
            _ => return Ok(()),
        };
        if let Some(Seeds::Nodes(ids)) = &mut task.seeds {
            *ids = selected(ids, (&is_kept, 1), scratch, &format!("{name}-seeds"))?;
        }
        if let Some(Seeds::Pairs(ids)) = &mut task.seeds {
            *ids = selected(ids, (&is_kept, 2), scratch, &format!("{name}-seeds"))?;
        }
        if let Some(time) = &mut task.time {
            *time = selected(time, (&is_kept, 1), scratch, &format!("{name}-time"))?;
        }
        match &mut task.targets {
            Targets::None => {}
            Targets::Classes(Labels::Single { class, .. }) => *class = chosen(class, &is_kept, 1).into(),
            Targets::Classes(Labels::Columns { class, columns }) => {
                *class = chosen(class, &is_kept, columns.len()).into();
            }
            Targets::Values { width, values } => *values = chosen(values, &is_kept, *width).into(),
            Targets::Classes(_) => return Err(other_targets(task)),
        }
        let mut kept = 0;
        let numbers: Vec<Option<NodeId>> = is_kept
            .iter()
            .map(|&is_kept| {
                kept += NodeId::from(is_kept);
                is_kept.then(|| kept - 1)
            })
            .collect();
        retain(&mut task.split, |row| numbers.get(row as usize).copied().flatten());
        Ok(())
    }
}

fn other_targets(task: &Task) -> Error {
    Error::invalid(format!(
        "task '{}': no import of tables writes its targets; import all tables again",
        task.name
    ))
}

/// Removes targets and parts of the split of ended nodes, which ascend, from a task on all nodes of
/// a type.
fn clear(task: &mut Task, ended: &[NodeId]) -> Result<()> {
    fn fill<T: Copy>(values: &[T], width: usize, ended: &[NodeId], missing: T) -> Vec<T> {
        let mut values = values.to_vec();
        ended.iter().for_each(|&v| values[v as usize * width..(v as usize + 1) * width].fill(missing));
        values
    }
    match &mut task.targets {
        Targets::None => {}
        Targets::Classes(Labels::Single { class, .. }) => *class = fill(class, 1, ended, -1).into(),
        Targets::Classes(Labels::Columns { class, columns }) => {
            *class = fill(class, columns.len(), ended, -1).into();
        }
        Targets::Values { width, values } => *values = fill(values, *width, ended, f32::NAN).into(),
        Targets::Classes(_) => return Err(other_targets(task)),
    }
    retain(&mut task.split, |row| ended.binary_search(&row).is_err().then_some(row));
    Ok(())
}

/// Gives each row of a split the number that `number` returns, and drops the rows without one.
fn retain(split: &mut Split, number: impl Fn(NodeId) -> Option<NodeId>) {
    for part in [&mut split.train, &mut split.valid, &mut split.test] {
        *part = part.iter().filter_map(|&row| number(row)).collect::<Vec<_>>().into();
    }
}

/// Values of the kept rows, each of which has `width`.
fn chosen<T: Copy>(values: &[T], is_kept: &[bool], width: usize) -> Vec<T> {
    let rows = values.chunks_exact(width.max(1)).zip(is_kept);
    rows.filter(|(_, is_kept)| **is_kept).flat_map(|(row, _)| row.iter().copied()).collect()
}

/// Values of the kept rows, as a column of the scratch.
fn selected<T: Element>(
    values: &[T],
    (is_kept, width): (&[bool], usize),
    scratch: &Scratch,
    name: &str,
) -> Result<Buffer<T>> {
    let mut column = scratch.column(name)?;
    for (values, is_kept) in values.chunks(CHUNK_LEN * width).zip(is_kept.chunks(CHUNK_LEN)) {
        column.extend(&chosen(values, is_kept, width))?;
    }
    column.finish()
}

/// The edges without those that end; `name` is unique within the scratch.
fn without(edges: &EdgeData, removed: &RemovedEdges, scratch: &Scratch, name: &str) -> Result<EdgeData> {
    let features = edges.features.as_ref().and_then(FeaturePart::of_table);
    let width = features.as_ref().map_or(0, |features| features.names.len());
    let mut indices: Rows<NodeId> = scratch.column(&format!("{name}-indices"))?;
    let mut weights: Option<Rows<f32>> =
        edges.weights.as_ref().map(|_| scratch.column(&format!("{name}-weights"))).transpose()?;
    let mut times: Option<Rows<i64>> =
        edges.time.as_ref().map(|_| scratch.column(&format!("{name}-time"))).transpose()?;
    let mut rows: Option<Rows<f32>> =
        features.as_ref().map(|_| scratch.rows(&format!("{name}-features"), width)).transpose()?;
    let mut starts = Starts { rows: scratch.column(&format!("{name}-indptr"))?, buffer: Vec::new(), next: 0 };
    let mut kept = 0u64;
    each_chunk(edges, |range, destinations| {
        let sources = &edges.indices[range.clone()];
        let ends = sources.iter().zip(destinations);
        let is_kept: Vec<bool> = ends.map(|(&src, &dst)| !removed.has(src, dst)).collect();
        for (&v, &is_kept) in destinations.iter().zip(&is_kept) {
            starts.fill(v as usize, kept)?;
            kept += u64::from(is_kept);
        }
        indices.extend(&chosen(sources, &is_kept, 1))?;
        if let (Some(rows), Some(of)) = (&mut weights, &edges.weights) {
            rows.extend(&chosen(&of[range.clone()], &is_kept, 1))?;
        }
        if let (Some(rows), Some(of)) = (&mut times, &edges.time) {
            rows.extend(&chosen(&of[range.clone()], &is_kept, 1))?;
        }
        if let (Some(rows), Some(of)) = (&mut rows, &features) {
            let of = &of.values[range.start * width..range.end * width];
            rows.extend(&chosen(of, &is_kept, width))?;
        }
        Ok(())
    })?;
    starts.fill(edges.indptr.len() - 1, kept)?;
    let features = match (features, rows) {
        (Some(features), Some(rows)) => Some(FeaturePart { values: rows.finish()?, ..features }),
        _ => None,
    };
    Ok(EdgeData {
        edge_type: edges.edge_type.clone(),
        reverse: edges.reverse.clone(),
        indptr: starts.finish()?,
        indices: indices.finish()?,
        weights: weights.map(Rows::finish).transpose()?,
        time: times.map(Rows::finish).transpose()?,
        features: features.map(FeaturePart::into_table),
    })
}

/// Writer of the row starts of destinations.
struct Starts {
    rows: Rows<u64>,
    buffer: Vec<u64>,
    /// Destination whose start is the next one.
    next: usize,
}

impl Starts {
    /// Writes the start of all destinations up to `v` that have none yet.
    fn fill(&mut self, v: usize, start: u64) -> Result<()> {
        while self.next <= v {
            self.buffer.push(start);
            self.next += 1;
            if self.buffer.len() == CHUNK_LEN {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.rows.extend(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<Buffer<u64>> {
        self.flush()?;
        self.rows.finish()
    }
}
