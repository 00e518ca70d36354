//! Datasets as they were at a time: the nodes and edges that existed then.
//!
//! # Cost
//!
//! O(E) and the rows of the edges that remain. Parallel.
//!
//! # Memory
//!
//! 8 bytes and the columns of each edge that remains. Columns of nodes are shared.

use graphmill_core::{Buffer, Error, NodeId, Result, memory};
use rayon::prelude::*;

use crate::{
    external::Scratch,
    reorder::RowOrder,
    typed::{EdgeData, NodeData, TaskOn, TypedDataset},
};

/// Destinations of a task of threads.
const CHUNK_LEN: usize = 1 << 12;

/// Dataset `data` at time `at`. It keeps all nodes, and the edges of a time up to `latest` between
/// a source that exists from `latest` or before and a destination that exists from `at` or before.
/// Tasks on edges are left out, because their rows are positions of edges. The checksum and the
/// directory are those of `data`.
///
/// # Errors
/// No node and no edge has a time, or feature rows of edges are damaged.
pub fn as_of(data: &TypedDataset, at: i64, latest: i64) -> Result<TypedDataset> {
    let has_times = data.nodes.iter().any(|nodes| nodes.time.is_some())
        || data.edges.iter().any(|edges| edges.time.is_some());
    if !has_times {
        return Err(Error::invalid(format!("dataset {}: no node and no edge has a time", data.name)));
    }
    let schema = data.schema()?;
    let edges = data.edges.iter().enumerate().map(|(e, edges)| {
        let (source, destination) = schema.ends(e);
        let bound = Bound {
            latest,
            at,
            sources: of_nodes(&data.nodes[source]),
            destinations: of_nodes(&data.nodes[destination]),
        };
        bound.edges(edges)
    });
    Ok(TypedDataset {
        edges: edges.collect::<Result<_>>()?,
        tasks: data.tasks.iter().filter(|task| matches!(task.on, TaskOn::Nodes(_))).cloned().collect(),
        ..data.clone()
    })
}

fn of_nodes(nodes: &NodeData) -> Option<&Buffer<i64>> {
    nodes.time.as_ref()
}

/// Times that the edges of a type may have.
struct Bound<'d> {
    /// Latest time of edges and of their sources.
    latest: i64,
    /// Latest time of destinations.
    at: i64,
    /// Times of the nodes of the type of the sources.
    sources: Option<&'d Buffer<i64>>,
    /// Times of the nodes of the type of the destinations.
    destinations: Option<&'d Buffer<i64>>,
}

impl Bound<'_> {
    /// The edges that existed, in their order.
    fn edges(&self, edges: &EdgeData) -> Result<EdgeData> {
        let all = [&edges.time, &self.sources.cloned(), &self.destinations.cloned()];
        if all.iter().all(|time| time.is_none()) {
            return Ok(edges.clone());
        }
        let (indptr, positions) = self.positions(edges)?;
        let scratch = Scratch::in_memory();
        let rows = RowOrder { len: positions.len(), at: &|i| positions[i] as usize };
        Ok(EdgeData {
            edge_type: edges.edge_type.clone(),
            reverse: edges.reverse.clone(),
            indptr: indptr.into(),
            indices: rows.column(&edges.indices, scratch.column("indices")?)?,
            weights: rows.optional(edges.weights.as_ref(), "weights", &scratch)?,
            time: rows.optional(edges.time.as_ref(), "time", &scratch)?,
            features: rows.features(edges.features.as_ref(), "features", &scratch)?,
        })
    }

    /// Row starts of the destinations, and the positions of the edges that existed.
    fn positions(&self, edges: &EdgeData) -> Result<(Vec<u64>, Vec<u64>)> {
        let by = |times: Option<&Buffer<i64>>, i: usize, bound: i64| times.is_none_or(|of| of[i] <= bound);
        let chunks: Vec<(Vec<u64>, Vec<u64>)> = (0..edges.indptr.len().saturating_sub(1))
            .into_par_iter()
            .chunks(CHUNK_LEN)
            .map(|chunk| {
                let (mut lens, mut positions) = (Vec::with_capacity(chunk.len()), Vec::new());
                for v in chunk {
                    let before = positions.len();
                    if by(self.destinations, v, self.at) {
                        let exists = |&e: &usize| {
                            by(edges.time.as_ref(), e, self.latest)
                                && by(self.sources, edges.indices[e] as usize, self.latest)
                        };
                        positions.extend(edges.row(v as NodeId).filter(exists).map(|e| e as u64));
                    }
                    lens.push((positions.len() - before) as u64);
                }
                (lens, positions)
            })
            .collect();
        let mut indptr = memory::reserve(edges.indptr.len().max(1))?;
        indptr.push(0);
        for len in chunks.iter().flat_map(|(lens, _)| lens) {
            indptr.push(indptr[indptr.len() - 1] + len);
        }
        let mut positions = memory::reserve(indptr[indptr.len() - 1] as usize)?;
        chunks.iter().for_each(|(_, some)| positions.extend_from_slice(some));
        Ok((indptr, positions))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::TypedBuilder;

    proptest! {
        #[test]
        fn the_edges_are_those_that_existed(
            edges in prop::collection::vec((0u32..5, 0u32..4, -3i64..6), 0..40),
            users in prop::collection::vec(-3i64..6, 5),
            items in prop::collection::vec(-3i64..6, 4),
            at in -4i64..7,
            lag in 0i64..2,
        ) {
            let mut builder = TypedBuilder::new("shop");
            builder.node_type("user", 5).time(users.clone());
            builder.node_type("item", 4).time(items.clone());
            let column = |of: fn(&(u32, u32, i64)) -> i64| edges.iter().map(of).collect::<Vec<i64>>();
            let ids = |of: Vec<i64>| of.into_iter().map(|x| x as u32).collect::<Vec<u32>>();
            builder
                .edge_type("user", "buys", "item")
                .edges(ids(column(|e| e.0.into())), ids(column(|e| e.1.into())))
                .time(column(|e| e.2))
                .features(1, column(|e| 7 * i64::from(e.0) + i64::from(e.1) + 100 * e.2));
            let data = builder.build().unwrap();
            let past = as_of(&data, at, at - lag).unwrap();
            past.validate().unwrap();
            let mut expected: Vec<(u32, u32, i64)> = edges.iter().copied().filter(|&(u, i, time)| {
                time <= at - lag && users[u as usize] <= at - lag && items[i as usize] <= at
            }).collect();
            let bought = &past.edges[0];
            let ends = bought.destinations();
            let time = bought.time.as_ref().unwrap();
            let mut found: Vec<(u32, u32, i64)> =
                (0..ends.len()).map(|e| (bought.indices[e], ends[e], time[e])).collect();
            for (e, &(u, i, time)) in found.iter().enumerate() {
                let mut row = [0.0];
                bought.features.as_ref().unwrap().copy_row(e, &mut row);
                prop_assert_eq!(row[0] as i64, 7 * i64::from(u) + i64::from(i) + 100 * time);
            }
            expected.sort_unstable();
            found.sort_unstable();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_dataset_without_times_is_refused_and_tasks_on_edges_are_left_out() {
        let build = |timed: bool| {
            let mut builder = TypedBuilder::new("shop");
            builder.node_type("user", 2);
            let edges = builder.edge_type("user", "knows", "user").edges(vec![0, 1], vec![1, 0]);
            if timed {
                edges.time(vec![1, 5]);
            }
            builder.task("next").on_edges(crate::typed::EdgeType::new("user", "knows", "user"));
            builder.build().unwrap()
        };
        let message = as_of(&build(false), 3, 2).map(drop).unwrap_err().to_string();
        assert_eq!(message, "dataset shop: no node and no edge has a time");
        let past = as_of(&build(true), 3, 2).unwrap();
        assert_eq!((past.num_edges(), past.tasks.len()), (1, 0));
    }
}
