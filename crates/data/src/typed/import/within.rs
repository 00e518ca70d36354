//! Edges of a type, sorted within the memory budget: the steps of [`super::finish`] outside of
//! memory, with the same result.

use graphmill_core::{Buffer, Error, NodeId, Result};

use super::{EdgeCounts, RawEdges, Reverse, TypedOptions};
use crate::{
    external::Scratch,
    npy::Element,
    typed::{
        EdgeColumns, EdgeSorter, EdgeType, FeatureTable, NodeData, RowRules, SortedEdges, TableData, Values,
        values::each_buffer,
    },
};

/// Maximum number of edges of a type in which duplicates are searched for: the search in memory
/// takes 16 bytes per edge.
pub(super) const MAX_TESTED: usize = 1 << 28;

/// Edges that are added at a time.
const CHUNK_LEN: usize = 1 << 16;

/// Returns true if edges can be sorted outside of memory: their features are not sparse.
pub(super) fn is_sortable(edges: &RawEdges) -> bool {
    edges.features.as_ref().is_none_or(|table| matches!(table.data, TableData::Dense(_)))
}

/// Numbers of sources and destinations of an edge type.
pub(super) fn ends(edge_type: &EdgeType, nodes: &[NodeData]) -> Result<[usize; 2]> {
    let count = |name: &str| {
        let found = nodes.iter().find(|nodes| nodes.name == name);
        found.map(|nodes| nodes.count).ok_or_else(|| {
            Error::invalid(format!("edge type {edge_type}: '{name}' is not a node type of the source"))
        })
    };
    Ok([count(&edge_type.source)?, count(&edge_type.destination)?])
}

/// Sorts the edges, processed as the options say, of type number `index` between `nodes`.
pub(super) fn sort(
    edges: RawEdges,
    nodes: [usize; 2],
    options: &TypedOptions,
    scratch: &Scratch,
    index: usize,
) -> Result<(SortedEdges, Reverse, EdgeCounts)> {
    match &edges.features {
        Some(FeatureTable { data: TableData::Dense(values), .. }) => {
            each_buffer!(values, values => sort_with(&edges, Some(values), nodes, options, scratch, index))
        }
        _ => sort_with::<f32>(&edges, None, nodes, options, scratch, index),
    }
}

fn sort_with<F: Element>(
    edges: &RawEdges,
    features: Option<&Buffer<F>>,
    nodes: [usize; 2],
    options: &TypedOptions,
    scratch: &Scratch,
    index: usize,
) -> Result<(SortedEdges, Reverse, EdgeCounts)>
where
    Values: From<Buffer<F>>,
{
    let mut counts = EdgeCounts { source: edges.src.len() as u64, ..EdgeCounts::default() };
    let is_homogeneous = edges.edge_type.source == edges.edge_type.destination;
    let is_undirected = is_homogeneous && (options.undirected || edges.reverse == Reverse::Undirected);
    let is_loop = |e: usize| edges.src[e] == edges.dst[e];
    let loops = if is_homogeneous { (0..edges.src.len()).filter(|&e| is_loop(e)).count() as u64 } else { 0 };
    let drops_loops = options.no_self_loops && loops > 0;
    (counts.self_loops_removed, counts.self_loops_kept) = if drops_loops { (loops, 0) } else { (0, loops) };
    let names = edges.features.as_ref().map(|table| table.names.clone()).unwrap_or_default();
    let width = edges.features.as_ref().map_or(0, |table| table.width);
    let columns =
        EdgeColumns { weights: edges.weights.is_some(), time: edges.time.is_some(), features: width };
    let mut sorter = EdgeSorter::<F>::new(scratch, &format!("edges-{index}"), nodes, columns)?;
    let rows = |chunk: &[usize]| Rows::of(edges, features.map(|values| &values[..]), width, chunk);
    let mut add = |first: usize, reversed: bool| -> Result<()> {
        let all = first..(first + CHUNK_LEN).min(edges.src.len());
        let chunk: Vec<usize> = all.filter(|&e| !(is_loop(e) && (drops_loops || reversed))).collect();
        let rows = rows(&chunk);
        let [from, to] = if reversed { [&rows.dst, &rows.src] } else { [&rows.src, &rows.dst] };
        sorter.extend(from, to, &rows.weights, &rows.time, &rows.features)
    };
    for first in (0..edges.src.len()).step_by(CHUNK_LEN) {
        add(first, false)?;
    }
    if is_undirected {
        // Behind all edges, as in memory.
        for first in (0..edges.src.len()).step_by(CHUNK_LEN) {
            add(first, true)?;
        }
        counts.reverse_added = edges.src.len() as u64 - loops;
    }
    let is_tested = sorter.len() <= MAX_TESTED as u64;
    let rules = RowRules {
        by_time: columns.time,
        counts_parallel: is_tested,
        drops_parallel: is_tested && edges.is_plain() && !options.keep_duplicates,
    };
    let (mut sorted, parallel) = sorter.finish_by(rules)?;
    if rules.drops_parallel {
        counts.duplicates_merged = parallel;
    } else {
        counts.duplicates_kept = parallel;
    }
    if let Some(table) = &mut sorted.features {
        table.names = names;
    }
    let reverse = if is_undirected { Reverse::Undirected } else { edges.reverse.clone() };
    Ok((sorted, reverse, counts))
}

/// Columns of some edges.
struct Rows<F> {
    src: Vec<NodeId>,
    dst: Vec<NodeId>,
    weights: Vec<f32>,
    time: Vec<i64>,
    features: Vec<F>,
}

impl<F: Element> Rows<F> {
    fn of(edges: &RawEdges, features: Option<&[F]>, width: usize, rows: &[usize]) -> Self {
        fn some<T: Copy>(values: &[T], rows: &[usize]) -> Vec<T> {
            rows.iter().map(|&e| values[e]).collect()
        }
        let table = |values: &[F]| {
            let mut table = Vec::with_capacity(rows.len() * width);
            rows.iter().for_each(|&e| table.extend_from_slice(&values[e * width..(e + 1) * width]));
            table
        };
        Self {
            src: some(&edges.src, rows),
            dst: some(&edges.dst, rows),
            weights: edges.weights.as_ref().map(|weights| some(weights, rows)).unwrap_or_default(),
            time: edges.time.as_ref().map(|time| some(time, rows)).unwrap_or_default(),
            features: features.map(table).unwrap_or_default(),
        }
    }
}

/// Sorts the reverse of sorted edges, of type number `index` between `nodes`.
pub(super) fn reversed(
    edges: &SortedEdges,
    [sources, destinations]: [usize; 2],
    scratch: &Scratch,
    index: usize,
) -> Result<SortedEdges> {
    let nodes = [destinations, sources];
    match &edges.features {
        Some(FeatureTable { data: TableData::Dense(values), .. }) => {
            each_buffer!(values, values => reversed_with(edges, Some(values), nodes, scratch, index))
        }
        _ => reversed_with::<f32>(edges, None, nodes, scratch, index),
    }
}

fn reversed_with<F: Element>(
    edges: &SortedEdges,
    features: Option<&Buffer<F>>,
    nodes: [usize; 2],
    scratch: &Scratch,
    index: usize,
) -> Result<SortedEdges>
where
    Values: From<Buffer<F>>,
{
    let width = edges.features.as_ref().map_or(0, |table| table.width);
    let columns =
        EdgeColumns { weights: edges.weights.is_some(), time: edges.time.is_some(), features: width };
    let mut sorter = EdgeSorter::<F>::new(scratch, &format!("reverse-{index}"), nodes, columns)?;
    let mut row = 0;
    let mut owners: Vec<NodeId> = Vec::with_capacity(CHUNK_LEN);
    for first in (0..edges.indices.len()).step_by(CHUNK_LEN) {
        let chunk = first..(first + CHUNK_LEN).min(edges.indices.len());
        owners.clear();
        for e in chunk.clone() {
            while edges.indptr[row + 1] <= e as u64 {
                row += 1;
            }
            owners.push(row as NodeId);
        }
        let weights = edges.weights.as_ref().map_or(&[][..], |weights| &weights[chunk.clone()]);
        let time = edges.time.as_ref().map_or(&[][..], |time| &time[chunk.clone()]);
        let rows = chunk.start * width..chunk.end * width;
        let features = features.map_or(&[][..], |features| &features[rows]);
        sorter.extend(&owners, &edges.indices[chunk], weights, time, features)?;
    }
    let mut sorted = sorter.finish()?;
    if let (Some(table), Some(features)) = (&mut sorted.features, &edges.features) {
        table.names.clone_from(&features.names);
    }
    Ok(sorted)
}

/// Pairs of sorted edges, ascending: `destination << 32 | source`, or the other way round.
pub(super) fn pairs(edges: &SortedEdges, flipped: bool) -> Vec<u64> {
    let mut pairs = Vec::with_capacity(edges.indices.len());
    for (v, ends) in edges.indptr.windows(2).enumerate() {
        let sources = &edges.indices[ends[0] as usize..ends[1] as usize];
        pairs.extend(sources.iter().map(|&u| {
            let (high, low) = if flipped { (u64::from(u), v as u64) } else { (v as u64, u64::from(u)) };
            high << 32 | low
        }));
    }
    pairs
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::{
        super::{RawTyped, TypedImported, finish::finish},
        *,
    };

    /// Two edge types between nodes of one type, and one to another type.
    type Pairs = Vec<(u32, u32, i64)>;

    fn raw(lists: &[Pairs; 3], columns: [bool; 3], reverse: &Reverse) -> RawTyped {
        let mut raw = RawTyped { name: "test".into(), ..RawTyped::default() };
        raw.add_nodes("a", 9, None);
        raw.add_nodes("b", 7, None);
        for (i, (list, to)) in lists.iter().zip(["a", "a", "b"]).enumerate() {
            let [weighted, timed, featured] = columns.map(|column| column && i != 1);
            let numbers = || list.iter().map(|edge| edge.2);
            let mut table = FeatureTable::dense(2, numbers().flat_map(|x| [x as i16, 3]).collect::<Vec<_>>());
            table.names = vec!["x".into(), "three".into()];
            raw.edges.push(RawEdges {
                src: list.iter().map(|edge| edge.0).collect(),
                dst: list.iter().map(|edge| edge.1 % 7).collect(),
                weights: weighted.then(|| numbers().map(|x| x as f32).collect()),
                time: timed.then(|| numbers().collect()),
                features: featured.then_some(table),
                reverse: if i == 0 { reverse.clone() } else { Reverse::ByOption },
                ..RawEdges::new(EdgeType::new("a", format!("r{i}"), to))
            });
        }
        raw
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn datasets_do_not_depend_on_the_memory(
            lists in prop::array::uniform3(prop::collection::vec((0u32..9, 0u32..9, 0i64..5), 0..40)),
            columns in any::<[bool; 3]>(), flags in any::<[bool; 4]>(), reverse in 0usize..3,
            memory in 0u64..4000,
        ) {
            let all = [Reverse::ByOption, Reverse::Undirected, Reverse::Add("back".into())];
            let reverse = all[reverse].clone();
            let [undirected, no_self_loops, keep_duplicates, add_reverses] = flags;
            let options = TypedOptions {
                undirected, no_self_loops, keep_duplicates, add_reverses, ..TypedOptions::default()
            };
            let run = |scratch: &Scratch| {
                let TypedImported { dataset, report } =
                    finish(raw(&lists, columns, &reverse), Path::new("source"), &options, scratch).unwrap();
                (dataset.identity().unwrap(), report)
            };
            let expected = run(&Scratch::in_memory());
            let dir = tempfile::tempdir().unwrap();
            let found = run(&Scratch::open_within(&dir.path().join("s"), memory));
            prop_assert_eq!(found, expected);
        }
    }
}
