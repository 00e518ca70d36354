//! Layer-wise full-neighbour inference: every layer for all the nodes it is needed for, in chunks.
//!
//! A sampled forward pass answers for a sample; evaluation wants the exact answer, and computing it
//! seed by seed would visit most of the graph again and again. Layer by layer every node's row is computed once per layer:
//! O(L (E + V)) row operations instead of O(B k^L).
//!
//! Memory: the rows of one layer going in and of one coming out (`V x H` each, twice where rows are transformed before they are aggregated),
//! plus one chunk. A layer is computed only for nodes that the layers above it need.

use graphmill_graph::{Block, Graph, NodeId};
use graphmill_loader::{
    Sampler,
    sampler::{BatchKey, Scratch, full::Full},
    weights::SymmetricWeights,
};
use graphmill_nn::{
    Backend, Matrix, Order, Pass, View, ViewMut,
    model::{Activations, Model},
};

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
    gathered: Matrix,
    tables: Vec<Matrix>,
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
        let orders = model.inference_orders(nodes, self.graph.num_edges());

        if model.has_input_layer() {
            self.input.resize(nodes, model.layer_in_dim(0));
            let Self { features, input, room, .. } = self;
            for ids in needed[0].chunks(self.chunk) {
                match dense(ids) {
                    Some(span) => model.input_rows(&pass, features.rows(span.clone()), input.rows_mut(span)),
                    None => {
                        let x = gather(self.backend, features, ids, &mut room.gathered);
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
                    match dense(ids) {
                        Some(span) => {
                            model.transform_rows(l, &pass, x.rows(span.clone()), span.start, transformed)
                        }
                        None => {
                            let rows = gather(self.backend, x, ids, &mut room.gathered);
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
            for ids in needed[l + 1].chunks(self.chunk) {
                let block = &mut self.block;
                let mut dst_ids = block.dst_ids.take().unwrap_or_default();
                block.clear();
                let key = BatchKey { seed: 0, epoch: 0, batch: 0 };
                let (indptr, indices) = (&mut block.indptr, &mut block.indices);
                self.full.sample_layer(self.graph, 0, ids, key, &mut self.scratch, indptr, indices);
                if let Some(symmetric) = self.symmetric {
                    symmetric.fill(self.graph, ids, block);
                }
                dst_ids.clear();
                dst_ids.extend_from_slice(ids);
                (block.num_dst, block.num_src, block.dst_ids) = (ids.len(), nodes, Some(dst_ids));
                let rows = &mut self.room.rows;
                rows.resize(ids.len(), model.layer_out_dim(l));
                model.infer(l, &pass, order, block, x.view(), t, &mut self.acts, rows.view_mut());
                scatter(rows.view(), ids, self.output.view_mut());
            }
            std::mem::swap(&mut self.input, &mut self.output);
            from_features = false;
        }

        let last = if from_features { self.features } else { &self.input };
        let rows = gather(self.backend, last, wanted, &mut self.room.rows);
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
        let mut marked = vec![false; self.graph.num_nodes()];
        wanted.iter().for_each(|&v| marked[v as usize] = true);
        let listed = |marked: &[bool]| -> Vec<NodeId> {
            marked.iter().enumerate().filter(|(_, m)| **m).map(|(v, _)| v as NodeId).collect()
        };
        let mut needed = vec![listed(&marked)];
        for _ in 0..layers {
            let above = needed.last().expect("starts with one list");
            if above.len() < marked.len() {
                for &v in above {
                    self.graph.in_neighbors(v).iter().for_each(|&u| marked[u as usize] = true);
                }
            }
            needed.push(listed(&marked));
        }
        needed.reverse();
        needed
    }
}

/// The span of ids that lie so close together that working on the few rows between them is cheaper
/// than gathering. Ascending ids, at least one.
fn dense(ids: &[NodeId]) -> Option<std::ops::Range<usize>> {
    let span = ids[0] as usize..ids[ids.len() - 1] as usize + 1;
    (span.len() <= ids.len() + ids.len() / 4).then_some(span)
}

/// One table per width, `rows` rows each.
fn fit(tables: &mut Vec<Matrix>, rows: usize, dims: &[usize]) {
    tables.resize_with(dims.len(), Matrix::default);
    for (table, &dim) in tables.iter_mut().zip(dims) {
        table.resize(rows, dim);
    }
}

/// `table[ids]` in `room`.
fn gather<'r>(backend: &dyn Backend, table: &Matrix, ids: &[NodeId], room: &'r mut Matrix) -> View<'r> {
    room.resize(ids.len(), table.num_cols());
    backend.gather(table.view(), ids, room.view_mut());
    room.view()
}

/// `table[ids[i]] = rows[i]`, ids ascending.
fn scatter(rows: View, ids: &[NodeId], table: ViewMut) {
    let (cols, from, to) = (rows.num_cols(), rows.host(), table.host());
    let Some(&first) = ids.first() else { return };
    let first = first as usize;
    if ids[ids.len() - 1] as usize + 1 - first == ids.len() {
        to[first * cols..(first + ids.len()) * cols].copy_from_slice(from);
        return;
    }
    for (&v, row) in ids.iter().zip(from.chunks_exact(cols)) {
        to[v as usize * cols..(v as usize + 1) * cols].copy_from_slice(row);
    }
}
