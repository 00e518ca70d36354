//! Steps shared by all imports of typed sources: self-loops, duplicates, undirected edges, order
//! by time, reverse edge types, construction and validation.

use std::path::Path;

use graphmill_core::{NodeId, Result, location::Location};
use rayon::prelude::*;

use super::{EdgeCounts, RawEdges, RawTyped, Reverse, TypedImported, TypedOptions, TypedReport, within};
use crate::{
    dataset::import::claims,
    external::Scratch,
    typed::{EdgeType, NodeData, SortedEdges, TypedBuilder, TypedDataset},
};

/// Maximum number of edges of a type whose reverse type is searched for.
const MAX_COMPARED: usize = 20_000_000;

/// Edges of a type after the shared steps.
struct Prepared {
    edge_type: EdgeType,
    reverse: Reverse,
    edges: Edges,
}

enum Edges {
    /// In memory, in the order of the source.
    Pairs(RawEdges),
    /// Sorted within the memory budget.
    Sorted(SortedEdges),
}

impl Prepared {
    fn len(&self) -> usize {
        match &self.edges {
            Edges::Pairs(edges) => edges.src.len(),
            Edges::Sorted(edges) => edges.indices.len(),
        }
    }

    fn is_plain(&self) -> bool {
        match &self.edges {
            Edges::Pairs(edges) => edges.is_plain(),
            Edges::Sorted(edges) => {
                edges.weights.is_none() && edges.time.is_none() && edges.features.is_none()
            }
        }
    }

    /// Pairs of all edges as numbers, ascending: by destination and source, or flipped.
    fn pairs(&self, flipped: bool) -> Vec<u64> {
        let mut pairs = match &self.edges {
            Edges::Pairs(edges) => {
                let [high, low] = if flipped { [&edges.src, &edges.dst] } else { [&edges.dst, &edges.src] };
                high.par_iter().zip(low).map(|(&v, &u)| u64::from(v) << 32 | u64::from(u)).collect()
            }
            Edges::Sorted(edges) => within::pairs(edges, flipped),
        };
        pairs.par_sort_unstable();
        pairs
    }
}

/// Processes the edges of all types.
fn prepare_all(
    edges: Vec<RawEdges>,
    nodes: &[NodeData],
    options: &TypedOptions,
    scratch: &Scratch,
    at: &Location,
    report: &mut TypedReport,
) -> Result<Vec<Prepared>> {
    let mut all = Vec::new();
    for (index, edges) in edges.into_iter().enumerate() {
        let edge_type = edges.edge_type.clone();
        let (edges, reverse, counts) = if scratch.has_directory() && within::is_sortable(&edges) {
            let ends = at.locate(within::ends(&edge_type, nodes))?;
            let (sorted, reverse, counts) = at.locate(within::sort(edges, ends, options, scratch, index))?;
            (Edges::Sorted(sorted), reverse, counts)
        } else {
            let (edges, counts) = at.locate(prepare(edges, options))?;
            let reverse = edges.reverse.clone();
            (Edges::Pairs(edges), reverse, counts)
        };
        report.edges.insert(edge_type.to_string(), counts);
        all.push(Prepared { edge_type, reverse, edges });
    }
    Ok(all)
}

/// Builds the dataset from the data that an importer read from `src`. If the scratch has a
/// directory, edges are sorted within its memory budget, with the same result.
pub(super) fn finish(
    raw: RawTyped,
    src: &Path,
    options: &TypedOptions,
    scratch: &Scratch,
) -> Result<TypedImported> {
    let at = Location::new(src, "import");
    let RawTyped { name, nodes, edges, tasks, mut report } = raw;
    check_claims(&nodes, &edges, &at)?;
    let mut builder = TypedBuilder::new(options.name.clone().unwrap_or(name));
    let all = prepare_all(edges, &nodes, options, scratch, &at, &mut report)?;
    let reverses = find_reverses(&all);
    let mut taken: Vec<EdgeType> = all.iter().map(|edges| edges.edge_type.clone()).collect();
    for (index, (prepared, reverse)) in all.into_iter().zip(reverses).enumerate() {
        let count = prepared.len() as u64;
        let Prepared { edge_type, reverse: wanted, edges } = prepared;
        let added = match wanted {
            Reverse::Add(name) => Some(name),
            Reverse::ByOption if options.add_reverses && reverse.is_none() => {
                Some(format!("rev_{}", edge_type.name))
            }
            _ => None,
        };
        let added = added.map(|name| free_name(name, &edge_type, &mut taken));
        let counts = report.edges.entry(edge_type.to_string()).or_default();
        counts.reverse_added += if added.is_some() { count } else { 0 };
        let back = match (&added, &edges) {
            (Some(_), Edges::Sorted(sorted)) => {
                let ends = at.locate(within::ends(&edge_type, &nodes))?;
                Some(at.locate(within::reversed(sorted, ends, scratch, index))?)
            }
            _ => None,
        };
        let target = builder.edge_type(&edge_type.source, &edge_type.name, &edge_type.destination);
        match (&added, reverse) {
            (Some(name), _) if back.is_none() => target.with_reverse(name),
            (Some(name), _) => target.reverse_of(name),
            (None, Some(name)) => target.reverse_of(name),
            (None, None) => target,
        };
        match edges {
            Edges::Sorted(sorted) => {
                target.sorted(sorted);
            }
            Edges::Pairs(RawEdges { src, dst, weights, time, features, .. }) => {
                target.edges(src, dst);
                if let Some(weights) = weights {
                    target.weights(weights);
                }
                if let Some(time) = time {
                    target.time(time);
                }
                if let Some(features) = features {
                    target.feature_table(features);
                }
            }
        }
        if let (Some(name), Some(back)) = (added, back) {
            let target = builder.edge_type(&edge_type.destination, name, &edge_type.source);
            target.sorted(back).reverse_of(&edge_type.name);
        }
    }
    for node_type in &nodes {
        builder.node_type(&node_type.name, node_type.count);
    }
    let mut dataset = at.locate(builder.build())?;
    dataset.nodes = nodes;
    dataset.tasks = tasks;
    at.locate(dataset.validate())?;
    count_unlabelled(&dataset, &mut report);
    Ok(TypedImported { dataset, report })
}

/// Name of a new type of the reverse edges of `of`: `name`, behind `rev_` as often as it is taken.
fn free_name(mut name: String, of: &EdgeType, taken: &mut Vec<EdgeType>) -> String {
    while taken.contains(&of.reversed(&name)) {
        name.insert_str(0, "rev_");
    }
    taken.push(of.reversed(&name));
    name
}

/// Checks that numbers of nodes that no table backs are plausible for the edges, because every edge
/// type stores a row start per destination.
fn check_claims(nodes: &[NodeData], edges: &[RawEdges], at: &Location) -> Result<()> {
    let total: usize = edges.iter().map(|edges| edges.src.len()).sum();
    for nodes in nodes.iter().filter(|nodes| nodes.keys.is_none() && nodes.features.is_none()) {
        claims::nodes(nodes.count, total as u64, at)?;
    }
    let count = |name: &str| nodes.iter().find(|nodes| nodes.name == name).map_or(0, |nodes| nodes.count);
    let starts: usize = edges.iter().map(|edges| count(&edges.edge_type.destination)).sum();
    claims::dense(starts, 1, total + nodes.iter().map(|nodes| nodes.count).sum::<usize>(), at)
}

/// Counts the nodes of labelled types without a label.
fn count_unlabelled(dataset: &TypedDataset, report: &mut super::TypedReport) {
    use crate::typed::{Targets, TaskOn};
    for task in &dataset.tasks {
        if let (Targets::Classes(graphmill_core::Labels::Single { class, .. }), TaskOn::Nodes(name), None) =
            (&task.targets, &task.on, &task.seeds)
        {
            let missing = class.par_iter().filter(|class| **class < 0).count() as u64;
            report.count(&format!("nodes of '{name}' without a label in the task '{}'", task.name), missing);
        }
    }
}

/// Selects the edges `kept` of all columns, in that order.
fn select(edges: RawEdges, kept: &[u64]) -> Result<RawEdges> {
    let ids = |ids: &[NodeId]| kept.iter().map(|&e| ids[e as usize]).collect::<Vec<_>>();
    Ok(RawEdges {
        src: ids(&edges.src),
        dst: ids(&edges.dst),
        weights: edges.weights.map(|weights| kept.iter().map(|&e| weights[e as usize]).collect()),
        time: edges.time.map(|time| kept.iter().map(|&e| time[e as usize]).collect()),
        features: edges.features.map(|table| table.gather(kept)).transpose()?,
        ..edges
    })
}

/// Drops self-loops and merges duplicates as the options say, adds the reverse of undirected
/// edges, and orders edges by their time.
fn prepare(mut edges: RawEdges, options: &TypedOptions) -> Result<(RawEdges, EdgeCounts)> {
    let mut counts = EdgeCounts { source: edges.src.len() as u64, ..EdgeCounts::default() };
    let is_homogeneous = edges.edge_type.source == edges.edge_type.destination;
    if is_homogeneous && (options.undirected || edges.reverse == Reverse::Undirected) {
        edges = undirected(edges, &mut counts)?;
        edges.reverse = Reverse::Undirected;
    }
    if is_homogeneous {
        let loops = edges.src.iter().zip(&edges.dst).filter(|(u, v)| u == v).count() as u64;
        if options.no_self_loops && loops > 0 {
            let kept: Vec<u64> = (0..edges.src.len() as u64)
                .filter(|&e| edges.src[e as usize] != edges.dst[e as usize])
                .collect();
            edges = select(edges, &kept)?;
            counts.self_loops_removed = loops;
        } else {
            counts.self_loops_kept = loops;
        }
    }
    let first = if edges.src.len() > within::MAX_TESTED { None } else { Some(first_of_pairs(&edges)) };
    let duplicates = first.as_ref().map_or(0, |first| (edges.src.len() - first.len()) as u64);
    if let Some(first) = first
        && duplicates > 0
        && edges.is_plain()
        && !options.keep_duplicates
    {
        edges = select(edges, &first)?;
        counts.duplicates_merged = duplicates;
    } else {
        counts.duplicates_kept = duplicates;
    }
    if let Some(time) = edges.time.as_ref().filter(|time| !time.is_sorted()) {
        let mut order: Vec<u64> = (0..time.len() as u64).collect();
        order.par_sort_by_key(|&e| time[e as usize]); // stable: equal times keep their order
        edges = select(edges, &order)?;
    }
    Ok((edges, counts))
}

/// Positions of the first edge between each two nodes, ascending.
fn first_of_pairs(edges: &RawEdges) -> Vec<u64> {
    let pair = |e: usize| u64::from(edges.dst[e]) << 32 | u64::from(edges.src[e]);
    let mut pairs: Vec<(u64, u32)> =
        (0..edges.src.len()).into_par_iter().map(|e| (pair(e), e as u32)).collect();
    pairs.par_sort_unstable();
    pairs.dedup_by_key(|(pair, _)| *pair);
    let mut first: Vec<u64> = pairs.into_iter().map(|(_, e)| e.into()).collect();
    first.par_sort_unstable();
    first
}

/// Adds the reverse of every edge but self-loops behind all edges.
fn undirected(edges: RawEdges, counts: &mut EdgeCounts) -> Result<RawEdges> {
    let back: Vec<u64> =
        (0..edges.src.len() as u64).filter(|&e| edges.src[e as usize] != edges.dst[e as usize]).collect();
    counts.reverse_added = back.len() as u64;
    let all: Vec<u64> = (0..edges.src.len() as u64).chain(back.iter().copied()).collect();
    let first = edges.src.len();
    let mut both = select(edges, &all)?;
    let (src, dst) = (&mut both.src[first..], &mut both.dst[first..]);
    src.swap_with_slice(dst);
    Ok(both)
}

/// Names of the edge types that hold exactly the reverse of every edge of each type, if they are
/// without columns or have the same ones.
fn find_reverses(all: &[Prepared]) -> Vec<Option<String>> {
    let mut reverses: Vec<Option<String>> = vec![None; all.len()];
    for i in 0..all.len() {
        let a = &all[i];
        if a.reverse == Reverse::Undirected {
            reverses[i] = Some(a.edge_type.name.clone());
        }
        let is_open = reverses[i].is_none() && a.reverse == Reverse::ByOption;
        if !is_open || a.len() == 0 || a.len() > MAX_COMPARED {
            continue;
        }
        let fits = |b: &Prepared| {
            b.edge_type.source == a.edge_type.destination
                && b.edge_type.destination == a.edge_type.source
                && b.len() == a.len()
                && a.is_plain()
                && b.is_plain()
        };
        let partners: Vec<usize> = (i..all.len())
            .filter(|&j| reverses[j].is_none() && all[j].reverse == Reverse::ByOption && fits(&all[j]))
            .collect();
        if partners.is_empty() {
            continue;
        }
        let wanted = a.pairs(true);
        if let Some(j) = partners.into_iter().find(|&j| all[j].pairs(false) == wanted) {
            reverses[i] = Some(all[j].edge_type.name.clone());
            reverses[j] = Some(a.edge_type.name.clone());
        }
    }
    reverses
}
