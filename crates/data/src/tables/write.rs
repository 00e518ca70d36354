//! Dataset of format 2 from the columns of the tables.

use graphmill_core::{Buffer, EdgeOptions, Graph, Result};

use super::{
    parts::{EdgePart, FeaturePart, KeyPart, Parts, TargetPart},
    report::TableReport,
};
use crate::{
    external::Scratch,
    typed::{FeatureTable, Keys, Texts, TypedBuilder, TypedDataset},
};

/// Edges that are added at a time.
const CHUNK_LEN: usize = 1 << 16;

/// Builds the dataset. Edges without times and features are sorted within the memory budget.
pub(super) fn build(parts: Parts, scratch: &Scratch, report: &mut TableReport) -> Result<TypedDataset> {
    let mut builder = TypedBuilder::new(parts.name);
    let counts: Vec<(String, usize)> =
        parts.nodes.iter().map(|nodes| (nodes.name.clone(), nodes.count)).collect();
    for nodes in parts.nodes {
        let to = builder.node_type(nodes.name, nodes.count);
        to.keys(match nodes.keys {
            KeyPart::Integers(keys) => Keys::Integers(keys),
            KeyPart::Texts(offsets, bytes) => Keys::Texts(Texts { offsets, bytes }),
        });
        if let Some(features) = nodes.features {
            to.feature_table(table(features));
        }
    }
    for (edges, report) in parts.edges.into_iter().zip(&mut report.edges) {
        let count =
            |name: &String| counts.iter().find(|(known, _)| known == name).map_or(0, |(_, count)| *count);
        let (sources, destinations) = (count(&edges.edge_type[0]), count(&edges.edge_type[2]));
        let [source, name, destination] = edges.edge_type.clone();
        let to = builder.edge_type(source, name.clone(), destination);
        let before = edges.src.len() as u64;
        let (undirected, reverse) = (edges.undirected, edges.reverse.clone());
        if edges.time.is_none() && edges.features.is_none() {
            let graph = sorted(&edges, sources.max(destinations), scratch)?;
            let (edges_after, loops) = (graph.num_edges() as u64, self_loops(&edges));
            report.reversed = if edges.undirected { before - loops } else { 0 };
            report.merged = before + report.reversed - edges_after;
            report.edges = edges_after;
            let (indptr, indices) = graph.buffers();
            let indptr: Buffer<u64> = if indptr.len() == destinations + 1 {
                indptr.clone()
            } else {
                indptr[..=destinations].to_vec().into()
            };
            to.csc(indptr, indices.clone());
            if let Some(weights) = graph.weight_buffer() {
                to.weights(weights.clone());
            }
        } else {
            let edges = if edges.undirected { both_ways(edges, report) } else { edges };
            report.edges = edges.src.len() as u64;
            to.edges(edges.src, edges.dst);
            if let Some(time) = edges.time {
                to.time(time);
            }
            if let Some(weight) = edges.weight {
                to.weights(weight);
            }
            if let Some(features) = edges.features {
                to.feature_table(table(features));
            }
        }
        if undirected {
            to.reverse_of(name);
        } else if let Some(reverse) = reverse {
            to.with_reverse(reverse);
        }
    }
    for task in parts.tasks {
        let [train, valid, test] = task.split;
        let to = builder.task(task.name).on_nodes(task.on).split(train, valid, test);
        match task.targets {
            TargetPart::Classes(class, names) => to.classes(names.len(), class).names(names),
            TargetPart::Values(values) => to.values(1, values),
        };
    }
    builder.preprocessing(parts.preprocessing);
    builder.build()
}

fn table(features: FeaturePart) -> FeatureTable {
    FeatureTable {
        names: features.names.clone(),
        ..FeatureTable::dense(features.names.len(), features.values)
    }
}

fn self_loops(edges: &EdgePart) -> u64 {
    if edges.edge_type[0] != edges.edge_type[2] {
        return 0;
    }
    edges.src.iter().zip(edges.dst.iter()).filter(|(u, v)| u == v).count() as u64
}

/// Graph of edges without times and features: parallel edges are merged, and their weights summed,
/// unless they are kept.
fn sorted(edges: &EdgePart, nodes: usize, scratch: &Scratch) -> Result<Graph> {
    let options = EdgeOptions {
        undirected: edges.undirected,
        drop_self_loops: false,
        keep_duplicates: edges.keep_duplicates,
    };
    let mut all = scratch.maybe_weighted_edges(options, edges.weight.is_some());
    for (chunk, src) in edges.src.chunks(CHUNK_LEN).enumerate() {
        let start = chunk * CHUNK_LEN;
        let range = start..start + src.len();
        let weights = edges.weight.as_ref().map_or(&[][..], |weights| &weights[range.clone()]);
        all.extend_weighted(src, &edges.dst[range.clone()], weights)?;
    }
    all.build(nodes)
}

/// Edges in both directions, with the same columns; a self-loop stays one edge.
fn both_ways(edges: EdgePart, report: &mut super::report::EdgeReport) -> EdgePart {
    let again: Vec<usize> = (0..edges.src.len()).filter(|&e| edges.src[e] != edges.dst[e]).collect();
    report.reversed = again.len() as u64;
    fn twice<T: Copy + bytemuck::Pod>(values: &[T], width: usize, again: &[usize]) -> Buffer<T> {
        let more = again.iter().flat_map(|&e| &values[e * width..(e + 1) * width]);
        values.iter().chain(more).copied().collect::<Vec<_>>().into()
    }
    let ends = |first: &[u32], second: &[u32]| -> Buffer<u32> {
        first.iter().copied().chain(again.iter().map(|&e| second[e])).collect::<Vec<_>>().into()
    };
    EdgePart {
        src: ends(&edges.src, &edges.dst),
        dst: ends(&edges.dst, &edges.src),
        weight: edges.weight.map(|weight| twice(&weight, 1, &again)),
        time: edges.time.map(|time| twice(&time, 1, &again)),
        features: edges.features.map(|features| FeaturePart {
            values: twice(&features.values, features.names.len(), &again),
            names: features.names,
        }),
        ..edges
    }
}
