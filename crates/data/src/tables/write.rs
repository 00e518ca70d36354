//! Dataset of format 2 from the columns of the tables.

use graphmill_core::{Buffer, EdgeOptions, Graph, Result};

use super::{
    finished::{keep_sorted, load_sorted},
    kept::Kept,
    parts::{EdgePart, KeyPart, NamedClasses, Parts, TargetPart, TaskPart},
    report::{EdgeReport, TableReport},
};
use crate::{
    external::Scratch,
    typed::{EdgeColumns, EdgeSorter, Keys, Seeds, SortedEdges, TaskOn, Texts, TypedBuilder, TypedDataset},
};

/// Edges that are added at a time.
const CHUNK_LEN: usize = 1 << 16;

/// Builds the dataset. Edges are sorted within the memory budget.
pub(super) fn build(
    parts: Parts,
    scratch: &Scratch,
    kept: &Kept,
    report: &mut TableReport,
) -> Result<TypedDataset> {
    let mut builder = TypedBuilder::new(parts.name);
    let counts: Vec<(String, usize)> =
        parts.nodes.iter().map(|nodes| (nodes.name.clone(), nodes.count)).collect();
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
    for (index, (edges, report)) in parts.edges.into_iter().zip(&mut report.edges).enumerate() {
        let count =
            |name: &String| counts.iter().find(|(known, _)| known == name).map_or(0, |(_, count)| *count);
        let (sources, destinations) = (count(&edges.edge_type[0]), count(&edges.edge_type[2]));
        let [source, name, destination] = edges.edge_type.clone();
        let (undirected, reverse) = (edges.undirected, edges.reverse.clone());
        let sorted = match load_sorted(kept, index) {
            Some((sorted, counts)) => {
                *report = counts;
                sorted
            }
            None => {
                let plain = edges.time.is_none() && edges.features.is_none();
                let sort = if plain { sorted } else { sorted_columns };
                let sorted = sort(index, edges, [sources, destinations], scratch, report)?;
                keep_sorted(&sorted, report, kept, index)?;
                sorted
            }
        };
        let to = builder.edge_type(source, name.clone(), destination);
        to.sorted(sorted);
        if undirected {
            to.reverse_of(name);
        } else if let Some(reverse) = reverse {
            to.with_reverse(reverse);
        }
    }
    parts.tasks.into_iter().for_each(|task| add_task(&mut builder, task));
    builder.preprocessing(parts.preprocessing);
    builder.build()
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
    edges: EdgePart,
    [sources, destinations]: [usize; 2],
    scratch: &Scratch,
    report: &mut EdgeReport,
) -> Result<SortedEdges> {
    let before = edges.src.len() as u64;
    let graph = graph(&edges, sources.max(destinations), &scratch.nested(&format!("edges-{index}"))?)?;
    report.edges = graph.num_edges() as u64;
    report.reversed = if edges.undirected { before - self_loops(&edges) } else { 0 };
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

/// Graph of edges, processed as their options say.
fn graph(edges: &EdgePart, nodes: usize, scratch: &Scratch) -> Result<Graph> {
    let options = EdgeOptions {
        undirected: edges.undirected,
        drop_self_loops: false,
        keep_duplicates: edges.keep_duplicates,
    };
    let mut all = scratch.maybe_weighted_edges(options, edges.weight.is_some());
    // A resumed import may hold all of them.
    if !all.take_up_all() {
        for (chunk, src) in edges.src.chunks(CHUNK_LEN).enumerate() {
            let start = chunk * CHUNK_LEN;
            let range = start..start + src.len();
            let weights = edges.weight.as_ref().map_or(&[][..], |weights| &weights[range.clone()]);
            all.extend_weighted(src, &edges.dst[range.clone()], weights)?;
        }
    }
    all.build(nodes)
}

/// Edges with times or features: by destination, in the order of the table within a row. Parallel
/// edges are kept.
fn sorted_columns(
    index: usize,
    edges: EdgePart,
    nodes: [usize; 2],
    scratch: &Scratch,
    report: &mut EdgeReport,
) -> Result<SortedEdges> {
    let width = edges.features.as_ref().map_or(0, |features| features.names.len());
    let columns =
        EdgeColumns { weights: edges.weight.is_some(), time: edges.time.is_some(), features: width };
    let mut sorter = EdgeSorter::<f32>::new(scratch, &format!("sorted-{index}"), nodes, columns)?;
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
                fn one<T>(values: &[T], i: usize) -> &[T] {
                    if values.is_empty() { values } else { &values[i..=i] }
                }
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
