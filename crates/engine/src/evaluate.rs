//! Layer-wise full-neighbour inference: every layer for all the nodes it is needed for, in chunks.
//!
//! A sampled forward pass answers for a sample; evaluation wants the exact answer, and computing it
//! seed by seed would visit most of the graph again and again. Layer by layer every node's row is computed once per layer:
//! O(L (E + V)) row operations instead of O(B k^L).
//!
//! A layer is computed only for the nodes that the layers above it need, and has rows only for them. Memory: the rows of
//! one layer going in and of one coming out (`N x H` each for the N nodes needed, all V where most are wanted; twice where
//! rows are transformed before they are aggregated), plus one chunk. A chunk is bounded by edges as well as by nodes: hubs
//! make it shorter.
//!
//! Feature rows that are not in memory ([`Source::Feature`]) are never held but a chunk at a time: the first layer transforms each as
//! it is read, in the order of the nodes, so that a file is read from its beginning to its end and not once for every neighbour.

use std::ops::Range;

use graphmill_graph::{
    Block, Dataset, Graph, Labels, NodeId,
    block::Aggregation,
    external::{Quiet, Watch},
};
use graphmill_loader::{
    Feature, Relabel,
    sampler::{Scratch, exact::Exact},
    weights::SymmetricWeights,
};
use graphmill_nn::{
    Backend, Matrix, Order, Pass, View,
    layer::gather_rows,
    metric::{Input, Metric, Truth},
    model::{Activations, Model},
};
use rayon::prelude::*;

use crate::{
    Result,
    nodes::{Marks, NodeSet},
};

/// Edges of a chunk for each node that it may have: more than the mean degree of most graphs, so that only hubs
/// make chunks shorter.
const EDGES_PER_NODE: u64 = 256;

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

/// Where the rows of features come from (`V x F`).
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// All of them are in memory.
    Table(&'a Matrix),
    /// They are read, wherever they are, and only so many at a time.
    Feature(&'a dyn Feature),
}

impl<'a> From<&'a Matrix> for Source<'a> {
    fn from(table: &'a Matrix) -> Self {
        Self::Table(table)
    }
}

impl<'a> From<&'a dyn Feature> for Source<'a> {
    fn from(feature: &'a dyn Feature) -> Self {
        Self::Feature(feature)
    }
}

/// Full-neighbour inference over one graph; its tables are reused from call to call.
pub struct Inference<'a> {
    pub(crate) graph: &'a Graph,
    features: Source<'a>,
    symmetric: Option<&'a SymmetricWeights>,
    pub(crate) backend: &'a dyn Backend,
    chunk: usize,
    exact: Exact,
    watch: &'a dyn Watch,
    scratch: Scratch,
    block: Block,
    acts: Activations,
    input: Matrix,
    pub(crate) output: Matrix,
    transformed: Vec<Matrix>,
    /// Gathered rows.
    room: Gathered,
    /// Of rows that are read.
    read: Read,
}

/// A chunk of rows that are not in memory.
#[derive(Default)]
struct Read {
    rows: Matrix,
    transformed: Vec<Matrix>,
    nodes: Vec<NodeId>,
    others: Vec<NodeId>,
    relabel: Option<Relabel>,
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
    /// Over `graph` with features of `V x F`, `chunk` nodes at a time.
    pub fn new(
        graph: &'a Graph,
        features: impl Into<Source<'a>>,
        symmetric: Option<&'a SymmetricWeights>,
        backend: &'a dyn Backend,
        chunk: usize,
    ) -> Self {
        Self {
            graph,
            features: features.into(),
            symmetric,
            backend,
            chunk: chunk.max(1),
            exact: Exact::default(),
            watch: &Quiet,
            scratch: Scratch::default(),
            block: Block::default(),
            acts: Activations::default(),
            input: Matrix::default(),
            output: Matrix::default(),
            transformed: Vec::new(),
            room: Gathered::default(),
            read: Read::default(),
        }
    }

    /// Takes neighbours as `exact` says; otherwise all of them, each the same.
    #[must_use]
    pub fn taking(self, exact: Exact) -> Self {
        Self { exact, ..self }
    }

    /// Ends early where `watch` says so.
    #[must_use]
    pub fn watched(self, watch: &'a dyn Watch) -> Self {
        Self { watch, ..self }
    }

    /// The rows of `wanted` (each below `V`), one per entry and in its order, written to `out`: the same bits wherever equal features
    /// are, as long as the first layer multiplies before it aggregates. It always does where they are read.
    ///
    /// # Errors
    /// Features cannot be read; the watcher ends the work.
    pub fn run(&mut self, model: &Model, wanted: &[NodeId], output: Output, out: &mut Matrix) -> Result<()> {
        let pass = Pass { backend: self.backend, training: false, key: 0 };
        let layers = match output {
            Output::Embeddings => model.num_embedding_layers(),
            Output::Logits => model.num_layers(),
        };
        let nodes = self.graph.num_nodes();
        let mut orders = model.inference_orders(nodes, self.graph.num_edges());
        match self.features {
            Source::Table(table) if table.is_sparse() => {
                assert!(
                    model.start_with_product(&mut orders),
                    "no run with this model keeps features sparse"
                );
            }
            Source::Table(_) => {}
            // a layer that cannot has its neighbours' rows read chunk by chunk
            Source::Feature(_) => _ = model.start_with_product(&mut orders),
        }
        let (hops, aggregation) = (model.num_layers(), model.aggregation());
        let mut needed = self.needed(wanted, layers, hops, aggregation);
        // where the first layer aggregates rows of the feature table, it reads them in place
        let in_place = !model.has_input_layer() && orders[..layers].first() != Some(&Order::TransformFirst);
        if !in_place && 2 * needed[0].len() > nodes {
            needed[0] = NodeSet::all(nodes);
        }
        let mut from_features = self.first_rows(model, &pass, in_place, &needed[0])?;
        for (l, &order) in orders[..layers].iter().enumerate() {
            let (sources, destinations) = (&needed[l], &needed[l + 1]);
            let x = match self.features {
                Source::Feature(feature) if from_features => {
                    self.read_layer(feature, model, &pass, l, order, sources, destinations)?;
                    std::mem::swap(&mut self.input, &mut self.output);
                    from_features = false;
                    continue;
                }
                Source::Table(table) if from_features => table,
                _ => &self.input,
            };
            let places = (!from_features).then_some(sources);
            if order == Order::TransformFirst {
                let Self { transformed, room, .. } = self;
                fit(transformed, x.num_rows(), model.transformed_dims(l));
                for start in (0..x.num_rows()).step_by(self.chunk) {
                    self.watch.check()?;
                    let run = start..start.saturating_add(self.chunk).min(x.num_rows());
                    let rows = rows_of(self.backend, x, run, room);
                    model.transform_rows(l, &pass, rows, start, transformed);
                }
            }
            let t: &[Matrix] = if order == Order::TransformFirst { &self.transformed } else { &[] };
            self.output.resize(destinations.len(), model.layer_out_dim(l));
            let mut at = 0;
            while at < destinations.len() {
                self.watch.check()?;
                let rest = &destinations.ids()[at..];
                let ids = &rest[..chunk_len(self.graph, rest, self.chunk)];
                let block = &mut self.block;
                let mut dst_ids = block.dst_ids.take().unwrap_or_default();
                let neighbors =
                    Neighbors { graph: self.graph, symmetric: self.symmetric, exact: &self.exact };
                neighbors.fill(hops - 1 - l, ids, aggregation, &mut self.scratch, block);
                dst_ids.clear();
                dst_ids.extend_from_slice(ids);
                if let Some(places) = places {
                    places.number(&mut block.indices);
                    places.number(&mut dst_ids);
                }
                (block.num_dst, block.num_src, block.dst_ids) = (ids.len(), x.num_rows(), Some(dst_ids));
                let out = self.output.rows_mut(at..at + ids.len());
                model.infer(l, &pass, order, block, x.view(), t, &mut self.acts, out);
                at += ids.len();
            }
            std::mem::swap(&mut self.input, &mut self.output);
            from_features = false;
        }

        let mut rows = wanted.to_vec();
        if !from_features {
            needed[layers].number(&mut rows);
        }
        let room = &mut self.room.dense;
        match self.features {
            Source::Feature(feature) if from_features => {
                room.resize(rows.len(), feature.dim());
                feature.read(&rows, room.view_mut().host())?;
            }
            features => {
                let last = match features {
                    Source::Table(table) if from_features => table,
                    _ => &self.input,
                };
                room.resize(rows.len(), last.num_cols());
                self.backend.gather(last.view(), &rows, room.view_mut());
            }
        }
        let rows = room.view();
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
        Ok(self.backend.check()?)
    }

    /// Layer `l` of rows that are read, from `sources` to `self.output`. Each row is read once and transformed; where
    /// the layer reads the destinations' own rows too, those are read once more; where it can only aggregate first, rows are read once
    /// for every chunk that needs them.
    #[allow(clippy::too_many_arguments, reason = "one operation, its inputs and its outputs")]
    pub(crate) fn read_layer(
        &mut self,
        feature: &dyn Feature,
        model: &Model,
        pass: &Pass,
        l: usize,
        order: Order,
        sources: &NodeSet,
        destinations: &NodeSet,
    ) -> Result<()> {
        let Self { graph, symmetric, backend, chunk, exact, watch, transformed, read, output, .. } = self;
        let Read { rows, transformed: of_chunk, nodes, others, relabel } = read;
        let transforms = order == Order::TransformFirst;
        if transforms {
            fit(transformed, sources.len(), model.transformed_dims(l));
            for (i, ids) in sources.ids().chunks(*chunk).enumerate() {
                watch.check()?;
                feature.gather(ids, rows)?;
                model.transform_rows(l, pass, rows.view(), i * *chunk, transformed);
            }
            of_chunk.resize_with(transformed.len(), Matrix::default);
        }
        let relabel = relabel.get_or_insert_with(|| Relabel::new(graph.num_nodes()));
        let neighbors = Neighbors { graph, symmetric: *symmetric, exact };
        output.resize(destinations.len(), model.layer_out_dim(l));
        let mut at = 0;
        while at < destinations.len() {
            watch.check()?;
            let rest = &destinations.ids()[at..];
            let ids = &rest[..chunk_len(graph, rest, *chunk)];
            let block = &mut self.block;
            neighbors.fill(model.num_layers() - 1 - l, ids, model.aggregation(), &mut self.scratch, block);
            relabel.start(ids);
            others.clear();
            relabel.relabel(&mut block.indices, ids, others);
            nodes.clear();
            nodes.extend_from_slice(ids);
            nodes.extend_from_slice(others);
            (block.num_dst, block.num_src, block.dst_ids) = (ids.len(), nodes.len(), None);
            if !transforms {
                feature.gather(nodes, rows)?;
            } else if model.combines_own_rows(l) {
                feature.gather(ids, rows)?;
            }
            if transforms {
                sources.number(nodes);
                for (table, rows) in transformed.iter().zip(&mut *of_chunk) {
                    gather_rows(*backend, table.view(), nodes, rows);
                }
            }
            let t: &[Matrix] = if transforms { of_chunk } else { &[] };
            let out = output.rows_mut(at..at + ids.len());
            model.infer(l, pass, order, block, rows.view(), t, &mut self.acts, out);
            at += ids.len();
        }
        Ok(())
    }

    /// The input layer's rows of `nodes`, whose features are read, written to `out`.
    ///
    /// # Errors
    /// Features cannot be read.
    pub(crate) fn input_rows(
        &mut self,
        feature: &dyn Feature,
        model: &Model,
        pass: &Pass,
        nodes: &NodeSet,
        out: &mut Matrix,
    ) -> Result<()> {
        out.resize(nodes.len(), model.layer_in_dim(0));
        for (i, ids) in nodes.ids().chunks(self.chunk).enumerate() {
            self.watch.check()?;
            let at = i * self.chunk;
            feature.gather(ids, &mut self.read.rows)?;
            model.input_rows(pass, self.read.rows.view(), out.rows_mut(at..at + ids.len()));
        }
        Ok(())
    }

    /// The scores of rows of `self.output`, through the head where there is one.
    pub(crate) fn head(&mut self, model: &Model, pass: &Pass, rows: &[u32]) -> Matrix {
        let (mut gathered, mut out) = (Matrix::default(), Matrix::default());
        gather_rows(self.backend, self.output.view(), rows, &mut gathered);
        if !model.has_head() {
            return gathered;
        }
        out.resize(rows.len(), model.classes());
        for start in (0..rows.len()).step_by(self.chunk) {
            let run = start..(start + self.chunk).min(rows.len());
            let rows = gathered.view().rows(run.clone());
            model.head_rows(pass, rows, &mut self.acts, out.rows_mut(run));
        }
        out
    }

    /// Marks the nodes that those of `destinations` hear from in hop `hop`.
    pub(crate) fn mark_neighbors(
        &mut self,
        destinations: &NodeSet,
        hop: usize,
        aggregation: Aggregation,
        marks: &Marks,
    ) {
        if self.exact.reaches_further() {
            for ids in destinations.ids().chunks(self.chunk) {
                self.exact
                    .rows(self.graph, hop, ids, aggregation, &mut self.scratch, &mut self.block)
                    .expect("a chunk's draws fit a block");
                self.block.indices.iter().for_each(|&u| marks.mark(u));
            }
        } else {
            let each = destinations.ids().par_iter().with_min_len(1 << 8);
            each.for_each(|&v| self.graph.in_neighbors(v).iter().for_each(|&u| marks.mark(u)));
        }
    }

    /// Makes the rows that the first layer reads: of the input layer, or of the feature table where few are needed and
    /// not in place. False where they are in `self.input`, a row for each of `needed`; true where the layer is to read
    /// the features itself.
    fn first_rows(&mut self, model: &Model, pass: &Pass, in_place: bool, needed: &NodeSet) -> Result<bool> {
        let Self { features, input, watch, room, backend, read, .. } = self;
        if model.has_input_layer() {
            input.resize(needed.len(), model.layer_in_dim(0));
            for (i, ids) in needed.ids().chunks(self.chunk).enumerate() {
                watch.check()?;
                let at = i * self.chunk;
                let x = match *features {
                    Source::Feature(feature) => {
                        feature.gather(ids, &mut read.rows)?;
                        read.rows.view()
                    }
                    Source::Table(table) => match contiguous(ids).filter(|_| table.is_wide()) {
                        Some(span) => table.rows(span),
                        None => room.fill(*backend, table, ids),
                    },
                };
                model.input_rows(pass, x, input.rows_mut(at..at + ids.len()));
            }
            return Ok(false);
        }
        match *features {
            Source::Table(table) if !in_place && !needed.is_all() => {
                gather_rows(*backend, table.view(), needed.ids(), input);
                Ok(false)
            }
            _ => Ok(true),
        }
    }

    /// `needed[l]`: the nodes whose rows going into graph layer `l` (out of layer `l - 1`) matter.
    /// `hops`: how many layers the whole model has.
    fn needed(
        &mut self,
        wanted: &[NodeId],
        layers: usize,
        hops: usize,
        aggregation: Aggregation,
    ) -> Vec<NodeSet> {
        let marks = Marks::new(self.graph.num_nodes());
        wanted.par_iter().with_min_len(1 << 12).for_each(|&v| marks.mark(v));
        let mut needed = vec![marks.set()];
        for l in (0..layers).rev() {
            let above = needed.last().expect("starts with one set");
            if !above.is_all() {
                self.mark_neighbors(above, hops - 1 - l, aggregation, &marks);
            }
            needed.push(marks.set());
        }
        needed.reverse();
        needed
    }
}

/// Whose rows a node's are made of.
struct Neighbors<'n> {
    graph: &'n Graph,
    symmetric: Option<&'n SymmetricWeights>,
    exact: &'n Exact,
}

impl Neighbors<'_> {
    /// Makes `block` the neighbours of `ids` in hop `hop`, by their global numbers.
    fn fill(&self, hop: usize, ids: &[NodeId], by: Aggregation, scratch: &mut Scratch, block: &mut Block) {
        block.clear();
        self.exact
            .rows(self.graph, hop, ids, by, scratch, block)
            .expect("a chunk's edges fit a block, but for a node with 2^32 in-neighbours");
        if let Some(symmetric) = self.symmetric {
            symmetric.fill(self.graph, ids, block);
        }
    }
}

/// The ids as a span, where there are no others between them. Ascending ids, at least one.
fn contiguous(ids: &[NodeId]) -> Option<Range<usize>> {
    let span = ids[0] as usize..ids[ids.len() - 1] as usize + 1;
    (span.len() == ids.len()).then_some(span)
}

/// A run of the table's rows, to be multiplied: where they are, or widened or gathered in `room`.
fn rows_of<'r>(
    backend: &dyn Backend,
    table: &'r Matrix,
    run: Range<usize>,
    room: &'r mut Gathered,
) -> View<'r> {
    if table.is_wide() || table.view().sparse().is_some() {
        return table.rows(run);
    }
    let ids: Vec<NodeId> = run.map(|v| v as NodeId).collect();
    room.fill(backend, table, &ids)
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
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use graphmill_graph::{EdgeOptions, Features, SparseRows, build};
    use graphmill_loader::{
        Traffic,
        feature::{Host, Places},
    };
    use graphmill_nn::{backend::Cpu, model::ModelConfig};

    use super::*;

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
        let stored = Features::f32(2, data.to_vec());
        let host = Host::new(&stored);
        for source in [Source::Table(&features), Source::Feature(&host)] {
            let backend = Cpu::default();
            let mut inference = Inference::new(&graph, source, None, &backend, 10);
            inference.run(&model, &[2, 0], Output::Embeddings, &mut out).unwrap();
            assert_eq!(out.view().host(), [0.0, 0.0, 0.0, 1.5]);
        }
    }

    #[test]
    fn any_chunk_and_any_nodes_give_the_same_rows() {
        let graph = hub(700);
        let data: Vec<f32> = (0..700 * 6).map(|i| ((i * 37) % 101) as f32 / 50.0 - 1.0).collect();
        let data: Vec<f32> = data.iter().map(|&x| if x < 0.0 { 0.0 } else { x }).collect();
        let features = Matrix::from_slice(700, 6, &data);
        let sparse = Matrix::sparse_table(SparseRows::from_dense(6, &data).unwrap());
        let symmetric = SymmetricWeights::new(&graph);
        let variants = [("sage", 8, false), ("sage", 3, false), ("sage", 8, true)];
        for (model, hidden, input_layer) in
            [("gcn", 8, false), ("gat", 8, false), ("gin", 8, false)].into_iter().chain(variants)
        {
            let config = ModelConfig { model: model.into(), hidden, input_layer, ..ModelConfig::default() };
            let model = Model::new(&config, 6, 3, 1).unwrap();
            let symmetric = model.wants_symmetric_weights().then_some(&symmetric);
            let from = |features: Source, chunk: usize, wanted: &[NodeId]| {
                let mut out = Matrix::default();
                let backend = Cpu::default();
                let mut inference = Inference::new(&graph, features, symmetric, &backend, chunk);
                inference.run(&model, wanted, Output::Logits, &mut out).unwrap();
                out.view().host().to_vec()
            };
            let run = |chunk, wanted: &[NodeId]| from((&features).into(), chunk, wanted);
            let all: Vec<NodeId> = (0..700).collect();
            let whole = run(usize::MAX, &all);
            for chunk in [100, 1000] {
                assert!(
                    close(&from((&sparse).into(), chunk, &all), &whole),
                    "{} of sparse rows",
                    config.model
                );
                let few = from((&sparse).into(), chunk, &[3, 1]);
                assert!(close(&few, &[&whole[9..12], &whole[3..6]].concat()));
            }
            for chunk in [1, 2, 100] {
                assert!(close(&run(chunk, &all), &whole), "{} by {chunk}", config.model);
            }
            // node 0 needs everything, node 699 the few before it, 5 and 0 most of the rest
            for wanted in [&[699, 650, 699][..], &[699, 5], &[0]] {
                let rows: Vec<f32> =
                    wanted.iter().flat_map(|&v| whole[v as usize * 3..][..3].to_vec()).collect();
                assert!(close(&run(100, wanted), &rows), "{} of {wanted:?}", config.model);
            }
        }
    }

    /// Rows in memory that count how often they are read, and fail once they have been read too often.
    struct Counted {
        rows: Host,
        reads: Vec<AtomicUsize>,
        most: usize,
    }

    impl Feature for Counted {
        fn dim(&self) -> usize {
            self.rows.dim()
        }

        fn num_rows(&self) -> usize {
            self.rows.num_rows()
        }

        fn read_to(
            &self,
            ids: &[NodeId],
            places: Places,
            out: &mut [f32],
        ) -> graphmill_graph::Result<Traffic> {
            for &v in ids {
                if self.reads[v as usize].fetch_add(1, Relaxed) >= self.most {
                    return Err(graphmill_graph::Error::invalid(format!("row {v} is worn out")));
                }
            }
            self.rows.read_to(ids, places, out)
        }

        fn row_bytes(&self) -> u64 {
            self.rows.row_bytes()
        }
    }

    #[test]
    fn rows_that_are_read_give_the_bits_of_those_in_memory_and_are_read_once_or_twice() {
        let graph = hub(700);
        let data: Vec<f32> = (0..700 * 6).map(|i| ((i * 37) % 101) as f32 / 50.0 - 1.0).collect();
        let table = Matrix::from_slice(700, 6, &data);
        let rows = Host::new(&Features::f32(6, data));
        let symmetric = SymmetricWeights::new(&graph);
        let backend = Cpu::default();
        let all: Vec<NodeId> = (0..700).collect();
        // hidden widths for which rows in memory are transformed first, and for which they are aggregated first
        for (model, hidden, input_layer, residual) in [
            ("sage", 2, false, "none"),
            ("sage", 16, false, "none"),
            ("sage", 16, true, "none"),
            ("gcn", 2, false, "none"),
            ("gcn", 2, false, "linear"),
            ("gcn", 16, false, "none"),
            ("gat", 8, false, "none"),
            ("gin", 2, false, "none"),
        ] {
            let name = format!("{model} of {hidden}");
            let config = ModelConfig {
                model: model.into(),
                hidden,
                input_layer,
                residual: residual.into(),
                ..ModelConfig::default()
            };
            let model = Model::new(&config, 6, 3, 1).unwrap();
            let symmetric = model.wants_symmetric_weights().then_some(&symmetric);
            let orders = model.inference_orders(700, graph.num_edges());
            let run = |source: Source, wanted: &[NodeId], chunk: usize| -> Result<Vec<f32>> {
                let mut out = Matrix::default();
                let mut inference = Inference::new(&graph, source, symmetric, &backend, chunk);
                inference.run(&model, wanted, Output::Logits, &mut out)?;
                Ok(out.view().host().to_vec())
            };
            for chunk in [1, 100, 1000] {
                for wanted in [&all[..], &[699, 650, 699], &[3, 0]] {
                    let reads = all.iter().map(|_| AtomicUsize::new(0)).collect();
                    let counted = Counted { rows: rows.clone(), reads, most: 2 };
                    let out = run(Source::Feature(&counted), wanted, chunk).unwrap();
                    let expected = run(Source::Table(&table), wanted, chunk).unwrap();
                    if input_layer || orders[0] == Order::TransformFirst {
                        assert_eq!(out, expected, "{name} by {chunk}");
                    }
                    assert!(close(&out, &expected), "{name} by {chunk}");
                    let most = counted.reads.iter().map(|reads| reads.load(Relaxed)).max().unwrap();
                    let own = !input_layer && model.combines_own_rows(0);
                    assert_eq!(most, if own { 2 } else { 1 }, "{name} by {chunk}");
                    let worn = Counted { most: 0, ..counted };
                    assert!(
                        run(Source::Feature(&worn), wanted, chunk)
                            .unwrap_err()
                            .to_string()
                            .contains("is worn out")
                    );
                }
            }
        }
    }
}
