//! Dataset of format 2 from the columns of the tables.

use std::{collections::BTreeMap, ops::Range};

use graphmill_core::{Buffer, EdgeOptions, Graph, NodeId, Result};

use super::{
    finished::{keep_sorted, load_sorted},
    kept::Kept,
    parts::{EdgePart, KeyPart, NamedClasses, Parts, TargetPart, TaskPart},
    report::{EdgeReport, TableReport},
};
use crate::{
    external::Scratch,
    npy::Element,
    typed::{
        EdgeColumns, EdgeData, EdgeSorter, EdgeType, Keys, Seeds, SortedEdges, TableData, TaskOn, Texts,
        TypedBuilder, TypedDataset, Values,
    },
};

/// Edges that are added at a time.
const CHUNK_LEN: usize = 1 << 16;

/// Builds the dataset. Edges are sorted within the memory budget. Those of `before` precede those
/// of the tables; the nodes do already.
pub(super) fn build(
    parts: Parts,
    before: Option<&TypedDataset>,
    scratch: &Scratch,
    kept: &Kept,
    report: &mut TableReport,
) -> Result<TypedDataset> {
    let mut builder = TypedBuilder::new(parts.name);
    let counts: BTreeMap<String, usize> =
        parts.nodes.iter().map(|nodes| (nodes.name.clone(), nodes.count)).collect();
    let count = |name: &str| counts.get(name).copied().unwrap_or(0);
    for nodes in parts.nodes {
        let to = builder.node_type(nodes.name, nodes.count);
        to.keys(match nodes.keys {
            KeyPart::Integers(keys) => Keys::Integers(keys),
            KeyPart::Texts(offsets, bytes) => Keys::Texts(Texts { offsets, bytes }),
        });
        if let Some(time) = nodes.time {
            to.time(time);
        }
        if let Some(features) = nodes.features {
            to.feature_table(features.into_table());
        }
    }
    let mut tables = Vec::new();
    for (index, (edges, report)) in parts.edges.into_iter().zip(&mut report.edges).enumerate() {
        let [source, name, destination] = &edges.edge_type;
        let edge_type = EdgeType::new(source, name, destination);
        let nodes = [count(source), count(destination)];
        let known = before.and_then(|data| data.edges.iter().find(|known| known.edge_type == edge_type));
        let (undirected, reverse) = (edges.undirected, edges.reverse.clone());
        let sorted = match load_sorted(kept, index) {
            Some((sorted, counts)) => {
                *report = counts;
                sorted
            }
            None => {
                let plain = edges.time.is_none() && edges.features.is_none();
                let sort = if plain { sorted } else { sorted_columns };
                let sorted = sort(index, (known, edges), nodes, scratch, report)?;
                keep_sorted(&sorted, report, kept, index)?;
                sorted
            }
        };
        tables.push(TableEdges { edge_type, reverse, undirected, sorted });
    }
    match before {
        None => tables.into_iter().for_each(|edges| edges.add_to(&mut builder)),
        Some(before) => {
            let reverses: Vec<EdgeType> = tables.iter().filter_map(TableEdges::reverse_type).collect();
            for (number, known) in before.edges.iter().enumerate() {
                match tables.iter().position(|edges| edges.edge_type == known.edge_type) {
                    Some(i) => tables.swap_remove(i).add_to(&mut builder),
                    None if reverses.contains(&known.edge_type) => {}
                    None => {
                        let nodes = count(&known.edge_type.destination);
                        let indptr = longer(&known.indptr, nodes, scratch, &format!("longer-{number}"))?;
                        add_known(&mut builder, known, indptr);
                    }
                }
            }
        }
    }
    parts.tasks.into_iter().for_each(|task| add_task(&mut builder, task));
    builder.preprocessing(parts.preprocessing.to_value()?);
    builder.build()
}

/// Sorted edges of a table.
struct TableEdges {
    edge_type: EdgeType,
    /// Name of the edge type of the reverse edges, which is to be added.
    reverse: Option<String>,
    undirected: bool,
    sorted: SortedEdges,
}

impl TableEdges {
    /// Edge type of the reverse edges, if it is to be added.
    fn reverse_type(&self) -> Option<EdgeType> {
        self.reverse.as_ref().filter(|_| !self.undirected).map(|name| self.edge_type.reversed(name))
    }

    fn add_to(self, builder: &mut TypedBuilder) {
        let EdgeType { source, name, destination } = self.edge_type;
        let to = builder.edge_type(source, name.clone(), destination);
        to.sorted(self.sorted);
        if self.undirected {
            to.reverse_of(name);
        } else if let Some(reverse) = self.reverse {
            to.with_reverse(reverse);
        }
    }
}

/// Adds edges of a dataset as they are; `indptr` has the row starts of all destinations.
fn add_known(builder: &mut TypedBuilder, known: &EdgeData, indptr: Buffer<u64>) {
    let EdgeType { source, name, destination } = known.edge_type.clone();
    let to = builder.edge_type(source, name, destination);
    to.csc(indptr, known.indices.clone());
    if let Some(weights) = &known.weights {
        to.weights(weights.clone());
    }
    if let Some(time) = &known.time {
        to.time(time.clone());
    }
    if let Some(features) = &known.features {
        to.feature_table(features.clone());
    }
    if let Some(reverse) = &known.reverse {
        to.reverse_of(reverse);
    }
}

/// Row starts of `destinations` nodes, of which those behind the known ones have no edges.
fn longer(known: &Buffer<u64>, destinations: usize, scratch: &Scratch, name: &str) -> Result<Buffer<u64>> {
    let added = (destinations + 1).saturating_sub(known.len());
    if added == 0 {
        return Ok(known.clone());
    }
    let mut indptr = scratch.column(name)?;
    known.chunks(CHUNK_LEN).try_for_each(|chunk| indptr.extend(chunk))?;
    let rest = vec![known.last().copied().unwrap_or(0); CHUNK_LEN.min(added)];
    (0..added).step_by(CHUNK_LEN).try_for_each(|i| indptr.extend(&rest[..CHUNK_LEN.min(added - i)]))?;
    indptr.finish()
}

/// Passes the positions and the destinations of edges of a dataset to `each`, some at a time.
pub(super) fn each_chunk(
    edges: &EdgeData,
    mut each: impl FnMut(Range<usize>, &[NodeId]) -> Result<()>,
) -> Result<()> {
    let (mut destinations, mut v) = (Vec::new(), 0);
    for start in (0..edges.num_edges()).step_by(CHUNK_LEN) {
        let range = start..edges.num_edges().min(start + CHUNK_LEN);
        destinations.clear();
        for e in range.clone() {
            while edges.indptr[v + 1] <= e as u64 {
                v += 1;
            }
            destinations.push(v as NodeId);
        }
        each(range, &destinations)?;
    }
    Ok(())
}

/// Adds a task.
fn add_task(builder: &mut TypedBuilder, task: TaskPart) {
    let [train, valid, test] = task.split;
    let to = builder.task(task.name).split(train, valid, test);
    match task.on {
        TaskOn::Nodes(name) => to.on_nodes(name),
        TaskOn::Edges(edge_type) => to.on_edges(edge_type),
    };
    match task.seeds {
        Some(Seeds::Nodes(nodes)) => _ = to.node_seeds(nodes),
        Some(Seeds::Pairs(pairs)) => _ = to.pair_seeds(pairs),
        None => {}
    }
    if let Some(time) = task.time {
        to.time(time);
    }
    match task.targets {
        TargetPart::Classes(class, columns) => {
            let names = columns.iter().flat_map(|of| of.classes.clone());
            match &columns[..] {
                [of] => to.classes(of.classes.len(), class),
                columns => to.class_columns(columns.iter().map(NamedClasses::sizes).collect(), class),
            }
            .names(names)
        }
        TargetPart::Values(values, names) if names.len() < 2 => to.values(1, values),
        TargetPart::Values(values, names) => to.values(names.len(), values).names(names),
        TargetPart::None { metric: Some(metric) } => to.metric(metric),
        TargetPart::None { metric: None } => to,
    };
}

fn self_loops(edges: &EdgePart) -> u64 {
    if edges.edge_type[0] != edges.edge_type[2] {
        return 0;
    }
    edges.src.iter().zip(edges.dst.iter()).filter(|(u, v)| u == v).count() as u64
}

/// Edges without times and features: parallel edges are merged, and their weights summed, unless
/// they are kept.
fn sorted(
    index: usize,
    (known, edges): (Option<&EdgeData>, EdgePart),
    [sources, destinations]: [usize; 2],
    scratch: &Scratch,
    report: &mut EdgeReport,
) -> Result<SortedEdges> {
    let before = (edges.src.len() + known.map_or(0, EdgeData::num_edges)) as u64;
    let graph = graph(known, &edges, sources.max(destinations), &scratch.nested(&format!("edges-{index}"))?)?;
    report.edges = graph.num_edges() as u64;
    report.reversed = if edges.undirected { edges.src.len() as u64 - self_loops(&edges) } else { 0 };
    report.merged = before + report.reversed - report.edges;
    let (indptr, indices) = graph.buffers();
    let indptr: Buffer<u64> = if indptr.len() == destinations + 1 {
        indptr.clone()
    } else {
        indptr[..=destinations].to_vec().into()
    };
    let weights = graph.weight_buffer().cloned();
    Ok(SortedEdges { indptr, indices: indices.clone(), weights, time: None, features: None })
}

/// Graph of edges behind the `known` ones, processed as their options say.
fn graph(known: Option<&EdgeData>, edges: &EdgePart, nodes: usize, scratch: &Scratch) -> Result<Graph> {
    // Known edges of an undirected type are stored in both directions.
    let undirected = edges.undirected && known.is_none();
    let options = EdgeOptions { undirected, drop_self_loops: false, keep_duplicates: edges.keep_duplicates };
    let mut all = scratch.maybe_weighted_edges(options, edges.weight.is_some());
    // A resumed import may hold all of them.
    if all.take_up_all() {
        return all.build(nodes);
    }
    if let Some(known) = known {
        each_chunk(known, |range, destinations| {
            let weights = known.weights.as_ref().map_or(&[][..], |weights| &weights[range.clone()]);
            all.extend_weighted(&known.indices[range], destinations, weights)
        })?;
    }
    for (chunk, src) in edges.src.chunks(CHUNK_LEN).enumerate() {
        let start = chunk * CHUNK_LEN;
        let range = start..start + src.len();
        let weights = edges.weight.as_ref().map_or(&[][..], |weights| &weights[range.clone()]);
        let dst = &edges.dst[range];
        all.extend_weighted(src, dst, weights)?;
        if edges.undirected && !undirected {
            for i in (0..src.len()).filter(|&i| src[i] != dst[i]) {
                all.extend_weighted(&dst[i..=i], &src[i..=i], one(weights, i))?;
            }
        }
    }
    all.build(nodes)
}

/// Value `i` of a column that may be missing.
fn one<T>(values: &[T], i: usize) -> &[T] {
    if values.is_empty() { values } else { &values[i..=i] }
}

/// Edges with times or features: by destination, within a row the `known` ones and then those of
/// the table in its order. Parallel edges are kept.
fn sorted_columns(
    index: usize,
    (known, edges): (Option<&EdgeData>, EdgePart),
    nodes: [usize; 2],
    scratch: &Scratch,
    report: &mut EdgeReport,
) -> Result<SortedEdges> {
    let width = edges.features.as_ref().map_or(0, |features| features.names.len());
    let columns =
        EdgeColumns { weights: edges.weight.is_some(), time: edges.time.is_some(), features: width };
    let mut sorter = EdgeSorter::<f32>::new(scratch, &format!("sorted-{index}"), nodes, columns)?;
    if let Some(known) = known {
        let rows = match known.features.as_ref().map(|table| &table.data) {
            Some(TableData::Dense(Values::F32(values))) => &values[..],
            _ => &[],
        };
        each_chunk(known, |range, destinations| {
            fn part<T: Element>(values: Option<&Buffer<T>>, range: Range<usize>) -> &[T] {
                values.map_or(&[][..], |values| &values[range])
            }
            let (weights, times) =
                (part(known.weights.as_ref(), range.clone()), part(known.time.as_ref(), range.clone()));
            let rows = &rows[range.start * width..range.end * width];
            sorter.extend(&known.indices[range], destinations, weights, times, rows)
        })?;
    }
    for (chunk, src) in edges.src.chunks(CHUNK_LEN).enumerate() {
        let range = chunk * CHUNK_LEN..chunk * CHUNK_LEN + src.len();
        let dst = &edges.dst[range.clone()];
        let weights = edges.weight.as_ref().map_or(&[][..], |weights| &weights[range.clone()]);
        let times = edges.time.as_ref().map_or(&[][..], |times| &times[range.clone()]);
        let rows = range.start * width..range.end * width;
        let features = edges.features.as_ref().map_or(&[][..], |features| &features.values[rows]);
        sorter.extend(src, dst, weights, times, features)?;
        if edges.undirected {
            for i in (0..src.len()).filter(|&i| src[i] != dst[i]) {
                report.reversed += 1;
                let row = if width == 0 { features } else { &features[i * width..(i + 1) * width] };
                sorter.extend(&dst[i..=i], &src[i..=i], one(weights, i), one(times, i), row)?;
            }
        }
    }
    report.edges = sorter.len();
    let mut sorted = sorter.finish()?;
    if let (Some(table), Some(features)) = (&mut sorted.features, edges.features) {
        table.names = features.names;
    }
    Ok(sorted)
}
