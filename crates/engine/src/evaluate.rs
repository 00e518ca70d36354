//! Layer-wise full-neighbour inference: every layer for all the nodes it is needed for, in chunks.
//!
//! A sampled forward pass answers for a sample; evaluation wants the exact answer, and computing it
//! seed by seed would visit most of the graph again and again. Layer by layer every node's row is computed once per layer:
//! O(L (E + V)) row operations instead of O(B k^L).
//!
//! Memory: the rows of one layer going in and of one coming out (`V x H` each, twice where rows are transformed before they are aggregated),
//! plus one chunk. A chunk is bounded by edges as well as by nodes: hubs make it shorter. A layer is computed only
//! for nodes that the layers above it need.

use std::{
    ops::Range,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use graphmill_graph::{Block, Dataset, Graph, Labels, NodeId};
use graphmill_loader::{
    Sampler,
    sampler::{BatchKey, Scratch, full::Full},
    weights::SymmetricWeights,
};
use graphmill_nn::{
    Backend, Matrix, Order, Pass, View, ViewMut,
    layer::gather_rows,
    metric::{Input, Metric, Truth},
    model::{Activations, Model},
};
use rayon::prelude::*;

/// Edges of a chunk for each node that it may have: more than the mean degree of most graphs, so that only hubs
/// make chunks shorter.
const EDGES_PER_NODE: u64 = 256;

/// Rows that one task scatters.
const SCATTER_TASK: usize = 1 << 10;

/// What inference returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// The classes' scores before softmax or sigmoid.
    Logits,
    /// The last hidden rows: what the last linear map reads. With a classifier head those are the rows
    /// of the last graph layer, otherwise the rows that the last graph layer aggregates (the
    /// features, for one layer).
    Embeddings,
}

/// Full-neighbour inference over one graph; its tables are reused from call to call.
pub struct Inference<'a> {
    graph: &'a Graph,
    features: &'a Matrix,
    symmetric: Option<&'a SymmetricWeights>,
    backend: &'a dyn Backend,
    chunk: usize,
    full: Full,
    scratch: Scratch,
    block: Block,
    acts: Activations,
    input: Matrix,
    output: Matrix,
    transformed: Vec<Matrix>,
    room: Room,
}

/// Room for one chunk.
#[derive(Default)]
struct Room {
    rows: Matrix,
    gathered: Gathered,
    tables: Vec<Matrix>,
}

/// Rows of a table, dense or sparse as the table is.
#[derive(Default)]
struct Gathered {
    dense: Matrix,
    sparse: Matrix,
}

impl Gathered {
    /// `table[ids]`.
    fn fill(&mut self, backend: &dyn Backend, table: &Matrix, ids: &[NodeId]) -> View<'_> {
        let room = if table.is_sparse() { &mut self.sparse } else { &mut self.dense };
        gather_rows(backend, table.view(), ids, room);
        room.view()
    }
}

impl<'a> Inference<'a> {
    /// Over `graph` with a feature table of `V x F`, `chunk` nodes at a time.
    pub fn new(
        graph: &'a Graph,
        features: &'a Matrix,
        symmetric: Option<&'a SymmetricWeights>,
        backend: &'a dyn Backend,
        chunk: usize,
    ) -> Self {
        Self {
            graph,
            features,
            symmetric,
            backend,
            chunk: chunk.max(1),
            full: Full::new(1).expect("one hop is a valid number of hops"),
            scratch: Scratch::default(),
            block: Block::default(),
            acts: Activations::default(),
            input: Matrix::default(),
            output: Matrix::default(),
            transformed: Vec::new(),
            room: Room::default(),
        }
    }

    /// The rows of `wanted` (each below `V`), one per entry and in its order, written to `out`.
    pub fn run(&mut self, model: &Model, wanted: &[NodeId], output: Output, out: &mut Matrix) {
        let pass = Pass { backend: self.backend, training: false, key: 0 };
        let layers = model.num_layers();
        let layers = if output == Output::Embeddings && !model.has_head() { layers - 1 } else { layers };
        let needed = self.needed(wanted, layers);
        let nodes = self.graph.num_nodes();
        let mut orders = model.inference_orders(nodes, self.graph.num_edges());
        if self.features.is_sparse() {
            assert!(
                model.start_with_product(&mut orders),
                "a run with this model does not keep features sparse"
            );
        }

        if model.has_input_layer() {
            self.input.resize(nodes, model.layer_in_dim(0));
            let Self { features, input, room, .. } = self;
            for ids in needed[0].chunks(self.chunk) {
                match dense(features, ids) {
                    Some(span) => model.input_rows(&pass, features.rows(span.clone()), input.rows_mut(span)),
                    None => {
                        let x = room.gathered.fill(self.backend, features, ids);
                        room.rows.resize(ids.len(), input.num_cols());
                        model.input_rows(&pass, x, room.rows.view_mut());
                        scatter(room.rows.view(), ids, input.view_mut());
                    }
                }
            }
        }
        let mut from_features = !model.has_input_layer();
        for (l, &order) in orders[..layers].iter().enumerate() {
            let x = if from_features { self.features } else { &self.input };
            if order == Order::TransformFirst {
                let dims = model.transformed_dims(l);
                let Self { transformed, room, .. } = self;
                fit(transformed, nodes, dims);
                for ids in needed[l].chunks(self.chunk) {
                    match dense(x, ids) {
                        Some(span) => {
                            model.transform_rows(l, &pass, x.rows(span.clone()), span.start, transformed)
                        }
                        None => {
                            let rows = room.gathered.fill(self.backend, x, ids);
                            fit(&mut room.tables, ids.len(), dims);
                            model.transform_rows(l, &pass, rows, 0, &mut room.tables);
                            for (rows, table) in room.tables.iter().zip(transformed.iter_mut()) {
                                scatter(rows.view(), ids, table.view_mut());
                            }
                        }
                    }
                }
            }
            let t: &[Matrix] = if order == Order::TransformFirst { &self.transformed } else { &[] };
            self.output.resize(nodes, model.layer_out_dim(l));
            let mut rest = &needed[l + 1][..];
            while !rest.is_empty() {
                let (ids, after) = rest.split_at(chunk_len(self.graph, rest, self.chunk));
                rest = after;
                let block = &mut self.block;
                let mut dst_ids = block.dst_ids.take().unwrap_or_default();
                block.clear();
                let key = BatchKey { seed: 0, epoch: 0, batch: 0 };
                let (indptr, indices) = (&mut block.indptr, &mut block.indices);
                self.full
                    .sample_layer(self.graph, 0, ids, key, &mut self.scratch, indptr, indices)
                    .expect("a chunk's edges fit a block, but for a node with 2^32 in-neighbours");
                if let Some(symmetric) = self.symmetric {
                    symmetric.fill(self.graph, ids, block);
                }
                dst_ids.clear();
                dst_ids.extend_from_slice(ids);
                (block.num_dst, block.num_src, block.dst_ids) = (ids.len(), nodes, Some(dst_ids));
                let (x, acts) = (x.view(), &mut self.acts);
                if let Some(span) = contiguous(ids) {
                    model.infer(l, &pass, order, block, x, t, acts, self.output.rows_mut(span));
                } else {
                    let rows = &mut self.room.rows;
                    rows.resize(ids.len(), model.layer_out_dim(l));
                    model.infer(l, &pass, order, block, x, t, acts, rows.view_mut());
                    scatter(rows.view(), ids, self.output.view_mut());
                }
            }
            std::mem::swap(&mut self.input, &mut self.output);
            from_features = false;
        }

        let last = if from_features { self.features } else { &self.input };
        let rows = &mut self.room.rows;
        rows.resize(wanted.len(), last.num_cols());
        self.backend.gather(last.view(), wanted, rows.view_mut());
        let rows = rows.view();
        if output == Output::Logits && model.has_head() {
            out.resize(wanted.len(), model.classes());
            for start in (0..wanted.len()).step_by(self.chunk) {
                let run = start..(start + self.chunk).min(wanted.len());
                model.head_rows(&pass, rows.rows(run.clone()), &mut self.acts, out.rows_mut(run));
            }
        } else {
            out.resize(wanted.len(), rows.num_cols());
            self.backend.copy(rows, out.view_mut());
        }
    }

    /// `needed[l]`: the nodes, ascending, whose rows going into graph layer `l` (out of layer
    /// `l - 1`) matter.
    fn needed(&self, wanted: &[NodeId], layers: usize) -> Vec<Vec<NodeId>> {
        // Relaxed suffices: marks are only ever set, and the join of each parallel loop orders them before the next.
        let marked: Vec<AtomicBool> =
            (0..self.graph.num_nodes()).into_par_iter().map(|_| AtomicBool::new(false)).collect();
        let listed = || -> Vec<NodeId> {
            let ids = marked.par_iter().with_min_len(1 << 12).enumerate();
            ids.filter(|(_, mark)| mark.load(Relaxed)).map(|(v, _)| v as NodeId).collect()
        };
        let mark = |v: NodeId| marked[v as usize].store(true, Relaxed);
        wanted.par_iter().with_min_len(1 << 12).for_each(|&v| mark(v));
        let mut needed = vec![listed()];
        for _ in 0..layers {
            let above = needed.last().expect("starts with one list");
            if above.len() < marked.len() {
                let each = above.par_iter().with_min_len(1 << 8);
                each.for_each(|&v| self.graph.in_neighbors(v).iter().for_each(|&u| mark(u)));
            }
            needed.push(listed());
        }
        needed.reverse();
        needed
    }
}

/// The span of ids that lie so close together that working on the few rows between them is cheaper
/// than gathering. Rows of 16-bit floats are always gathered, which widens them, and so are sparse ones. Ascending ids, at
/// least one.
fn dense(table: &Matrix, ids: &[NodeId]) -> Option<Range<usize>> {
    let span = ids[0] as usize..ids[ids.len() - 1] as usize + 1;
    (table.is_wide() && span.len() <= ids.len() + ids.len() / 4).then_some(span)
}

/// The ids as a span, where there are no others between them. Ascending ids, at least one.
fn contiguous(ids: &[NodeId]) -> Option<Range<usize>> {
    let span = ids[0] as usize..ids[ids.len() - 1] as usize + 1;
    (span.len() == ids.len()).then_some(span)
}

/// How many of `ids` (at least one) make the next chunk: at most `chunk`, and no more than their edges allow; at least
/// one.
fn chunk_len(graph: &Graph, ids: &[NodeId], chunk: usize) -> usize {
    let most = (chunk as u64).saturating_mul(EDGES_PER_NODE).min(u64::from(u32::MAX));
    let mut edges = 0;
    let fits = |v: &&NodeId| {
        edges += graph.in_degree(**v) as u64;
        edges <= most
    };
    ids.iter().take(chunk).take_while(fits).count().max(1)
}

/// One table per width, `rows` rows each.
fn fit(tables: &mut Vec<Matrix>, rows: usize, dims: &[usize]) {
    tables.resize_with(dims.len(), Matrix::default);
    for (table, &dim) in tables.iter_mut().zip(dims) {
        table.resize(rows, dim);
    }
}

/// `table[ids[i]] = rows[i]`, ids strictly ascending. Parallel.
fn scatter(rows: View, ids: &[NodeId], table: ViewMut) {
    scatter_from(rows.num_cols(), rows.host(), ids, 0, table.host());
}

/// [`scatter`] into the part of a table that starts with row `first`: halves of the ids write to separate parts.
fn scatter_from(cols: usize, rows: &[f32], ids: &[NodeId], first: usize, table: &mut [f32]) {
    if ids.len() > SCATTER_TASK {
        let middle = ids.len() / 2;
        let start = ids[middle] as usize;
        let (rows, ids) = (rows.split_at(middle * cols), ids.split_at(middle));
        let (low, high) = table.split_at_mut((start - first) * cols);
        rayon::join(
            || scatter_from(cols, rows.0, ids.0, first, low),
            || scatter_from(cols, rows.1, ids.1, start, high),
        );
        return;
    }
    for (&v, row) in ids.iter().zip(rows.chunks_exact(cols)) {
        let at = (v as usize - first) * cols;
        table[at..at + cols].copy_from_slice(row);
    }
}

/// The score of `nodes`' logits; none where it is not defined.
pub(crate) fn score(metric: Metric, logits: &Matrix, data: &Dataset, nodes: &[NodeId]) -> Option<f64> {
    let truth = match &data.labels {
        Labels::Single { class, .. } => Truth::Single(class),
        Labels::Multi { member, .. } => Truth::Multi(member),
    };
    metric(&Input::new(logits.view().host(), data.labels.classes(), truth).against(nodes))
}

#[cfg(test)]
mod tests {
    use graphmill_graph::{EdgeOptions, SparseRows, build};
    use graphmill_nn::{backend::Cpu, model::ModelConfig};

    use super::*;

    #[test]
    fn many_rows_are_scattered_as_few_are() {
        let ids: Vec<NodeId> = (0..5 * SCATTER_TASK as u32).filter(|v| v % 7 < 3).collect();
        let cols = 3;
        let rows: Vec<f32> = ids.iter().flat_map(|&v| [v as f32, 0.5, -(v as f32)]).collect();
        let mut expected = vec![9.0; 5 * SCATTER_TASK * cols];
        for (&v, row) in ids.iter().zip(rows.chunks(cols)) {
            expected[v as usize * cols..][..cols].copy_from_slice(row);
        }
        let mut table = Matrix::from_slice(5 * SCATTER_TASK, cols, &vec![9.0; 5 * SCATTER_TASK * cols]);
        scatter(Matrix::from_slice(ids.len(), cols, &rows).view(), &ids, table.view_mut());
        assert_eq!(table.view().host(), expected);
    }

    /// Node 0 hears from 1..nodes, the others from the two before them.
    fn hub(nodes: u32) -> Graph {
        let mut edges: Vec<(u32, u32)> = (1..nodes).map(|u| (u, 0)).collect();
        edges.extend((2..nodes).flat_map(|v| [(v - 1, v), (v - 2, v)]));
        let (src, dst): (Vec<u32>, Vec<u32>) = edges.into_iter().unzip();
        build(nodes as usize, &src, &dst, EdgeOptions::DIRECTED).unwrap()
    }

    #[test]
    fn hubs_make_chunks_shorter_and_every_chunk_has_a_node() {
        let graph = hub(1000);
        let ids: Vec<u32> = (0..1000).collect();
        // the hub has 999 in-neighbours: a chunk of two may have 512 edges
        assert_eq!(chunk_len(&graph, &ids, 2), 1);
        assert_eq!(chunk_len(&graph, &ids[1..], 2), 2);
        assert_eq!(chunk_len(&graph, &ids, 4), 4);
        assert_eq!(chunk_len(&graph, &ids[998..], 100), 2);
        assert_eq!(chunk_len(&graph, &ids, usize::MAX), 1000);
    }

    /// Products of few rows and of many round differently.
    fn close(a: &[f32], b: &[f32]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-4 * (1.0 + b.abs()))
    }

    #[test]
    fn the_embeddings_of_one_layer_are_the_features() {
        let data = [0.0, 1.5, 0.0, 2.0, 0.0, 0.0];
        let features = Matrix::sparse_table(SparseRows::from_dense(2, &data).unwrap());
        let config = ModelConfig { layers: 1, ..ModelConfig::default() };
        let (model, graph, mut out) = (Model::new(&config, 2, 3, 1).unwrap(), hub(3), Matrix::default());
        Inference::new(&graph, &features, None, &Cpu::default(), 10).run(
            &model,
            &[2, 0],
            Output::Embeddings,
            &mut out,
        );
        assert_eq!(out.view().host(), [0.0, 0.0, 0.0, 1.5]);
    }

    #[test]
    fn any_chunk_and_any_nodes_give_the_same_rows() {
        let graph = hub(700);
        let data: Vec<f32> = (0..700 * 6).map(|i| ((i * 37) % 101) as f32 / 50.0 - 1.0).collect();
        let data: Vec<f32> = data.iter().map(|&x| if x < 0.0 { 0.0 } else { x }).collect();
        let features = Matrix::from_slice(700, 6, &data);
        let sparse = Matrix::sparse_table(SparseRows::from_dense(6, &data).unwrap());
        let symmetric = SymmetricWeights::new(&graph);
        for model in ["sage", "gcn", "gat", "gin"] {
            let config = ModelConfig { model: model.into(), hidden: 8, ..ModelConfig::default() };
            let model = Model::new(&config, 6, 3, 1).unwrap();
            let symmetric = model.wants_symmetric_weights().then_some(&symmetric);
            let from = |features: &Matrix, chunk: usize, wanted: &[NodeId]| {
                let mut out = Matrix::default();
                Inference::new(&graph, features, symmetric, &Cpu::default(), chunk).run(
                    &model,
                    wanted,
                    Output::Logits,
                    &mut out,
                );
                out.view().host().to_vec()
            };
            let run = |chunk, wanted: &[NodeId]| from(&features, chunk, wanted);
            let all: Vec<NodeId> = (0..700).collect();
            let whole = run(usize::MAX, &all);
            for chunk in [100, 1000] {
                assert!(close(&from(&sparse, chunk, &all), &whole), "{} of sparse rows", config.model);
                assert!(close(&from(&sparse, chunk, &[3, 1]), &[&whole[9..12], &whole[3..6]].concat()));
            }
            for chunk in [1, 2, 100] {
                assert!(close(&run(chunk, &all), &whole), "{} by {chunk}", config.model);
            }
            // node 0 needs everything, node 699 the few before it
            for wanted in [&[699, 5][..], &[0]] {
                let rows: Vec<f32> =
                    wanted.iter().flat_map(|&v| whole[v as usize * 3..][..3].to_vec()).collect();
                assert!(close(&run(100, wanted), &rows), "{} of {wanted:?}", config.model);
            }
        }
    }
}
