//! MLP-mixer over the last edges of a node.

use graphmill_core::{Block, keyed};
use rayon::prelude::*;

use super::{EdgeGrads, EdgeInput, EdgeLayer, EdgeLayerConfig, EdgeLayerSpec, mixer_block::MixerBlock};
use crate::{
    Epilogue, Error, Matrix, Param, Pass, Result, Saved, ViewMut,
    backend::{
        AggregationWeights,
        ops::{Add, Aggregate, AggregateTransposed},
    },
    layer::Linear,
};

/// Number of mixer blocks, as in the authors' experiments.
const BLOCKS: usize = 2;

/// GraphMixer (Cong et al., *Do we really need complicated model architectures for temporal
/// networks?*, ICLR 2023, section 3): an MLP-mixer (Tolstikhin et al., NeurIPS 2021) over the rows
/// of a node's edges, and a mean over its neighbours:
///
/// ```text
/// tokens[v] = the edges' rows in N slots, the last edge in the last slot, zeros before the first
/// z = tokens[v] W_edge + b_edge, then two mixer blocks
/// out[v] = [mean over slots of z | x[v] + mean over edges of x[u]] [W_mixed; W_node] + b
/// ```
///
/// # Shapes
/// - `edge.weight`: `K x O`; `mixed.weight`: `O x O`; `node.weight`: `F x O`; `bias`: `1 x O`
/// - `blocks.I.slots.0.weight`: `N x N/2`; `blocks.I.slots.1.weight`: `N/2 x N`;
///   `blocks.I.columns.0.weight`: `O x 4O`; `blocks.I.columns.1.weight`: `4O x O`; with norms and
///   biases
///
/// # Cost
/// O(D N O (N + O)) multiplications.
///
/// # Deviations
/// The mean over neighbours is over the same edges; the authors take those of a window of time.
#[derive(Clone, Debug)]
pub struct EdgeMixer {
    edge: Linear,
    blocks: Vec<MixerBlock>,
    mixed: Linear,
    node: Linear,
    /// Number of slots, `N`.
    slots: usize,
}

impl EdgeMixer {
    /// Creates a layer.
    ///
    /// # Errors
    /// The number of edges of a destination has no limit.
    pub fn make(config: &EdgeLayerConfig) -> Result<Box<dyn EdgeLayer>> {
        let EdgeLayerConfig { nodes, edge_dim, slots, dropout } = config;
        if *slots == 0 {
            let message = "the mixer has a slot for each neighbour, and this takes any number; use a number \
                           such as 20";
            return Err(Error::config("fanout", -1, message));
        }
        let key = |part| keyed::key(&[nodes.key, part]);
        let (from, to) = (nodes.in_dim, nodes.out_dim);
        let block = |i: usize| MixerBlock::new(i, *slots, to, *dropout, key(3 + i as u64));
        Ok(Box::new(Self {
            edge: Linear::named(["edge.weight", "edge.bias"], *edge_dim, to, true, key(0)),
            blocks: (0..BLOCKS).map(block).collect(),
            mixed: Linear::named(["mixed.weight", ""], to, to, false, key(1)),
            node: Linear::named(["node.weight", "bias"], from, to, nodes.bias, key(2)),
            slots: *slots,
        }))
    }

    /// Slot of the first edge of destination `v`, among those of all destinations.
    fn first(&self, block: &Block, v: usize) -> usize {
        let edges = block.edges(v).len();
        assert!(edges <= self.slots, "{edges} edges of a destination for {} slots", self.slots);
        (v + 1) * self.slots - edges
    }
}

/// Matrices of a pass.
#[derive(Clone, Debug, Default)]
struct State {
    /// Edges' rows in their slots, `D N x K`.
    tokens: Matrix,
    /// Rows of the slots before the first block, and after each, `D N x O`.
    rows: Vec<Matrix>,
    blocks: Vec<super::mixer_block::State>,
    mixed: Matrix,
    /// `x[v] +` the mean of the neighbours, `D x F`.
    nodes: Matrix,
    through: Matrix,
    grad: Matrix,
    tokens_grad: Matrix,
}

impl EdgeLayer for EdgeMixer {
    fn spec(&self) -> EdgeLayerSpec {
        let (in_dim, edge_dim, out_dim) = (self.node.in_dim(), self.edge.in_dim(), self.node.out_dim());
        EdgeLayerSpec { in_dim, edge_dim, out_dim }
    }

    fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param)) {
        self.edge.visit(see);
        self.blocks.iter().for_each(|block| block.visit(see));
        [&self.mixed, &self.node].into_iter().for_each(|linear| linear.visit(see));
    }

    fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        self.edge.visit_mut(see);
        self.blocks.iter_mut().for_each(|block| block.visit_mut(see));
        [&mut self.mixed, &mut self.node].into_iter().for_each(|linear| linear.visit_mut(see));
    }

    fn forward(
        &self,
        pass: &Pass,
        input: &EdgeInput,
        epilogue: Epilogue,
        saved: &mut Saved,
        mut out: ViewMut,
    ) {
        input.check(self.spec());
        let State { tokens, rows, blocks, mixed, nodes, .. } = saved.state();
        let (block, backend, slots) = (input.block, pass.backend, self.slots);
        let (dst, width, k) = (block.num_dst, self.edge.out_dim(), self.edge.in_dim());
        tokens.resize(dst * slots, k);
        backend.fill(0.0, tokens.view_mut());
        let (to, edges) = (tokens.view_mut().host(), input.edges.host());
        for v in 0..dst {
            let (of_v, first) = (block.edges(v), self.first(block, v));
            let values = &edges[of_v.start * k..of_v.end * k];
            to[first * k..][..values.len()].copy_from_slice(values);
        }
        rows.resize_with(BLOCKS + 1, Matrix::default);
        blocks.resize_with(BLOCKS, Default::default);
        rows[0].resize(dst * slots, width);
        self.edge.forward(pass, tokens.view(), 0.0, Epilogue::NONE, rows[0].view_mut());
        for (i, (of, state)) in self.blocks.iter().zip(blocks).enumerate() {
            let (below, above) = rows.split_at_mut(i + 1);
            of.forward(pass, &below[i], state, &mut above[0]);
        }
        mixed.resize(dst, width);
        let from = rows[BLOCKS].view().host().par_chunks((slots * width).max(1));
        let means = mixed.view_mut().host().par_chunks_mut(width.max(1)).zip(from);
        means.with_min_len(32).for_each(|(mean, rows)| {
            mean.fill(0.0);
            rows.chunks_exact(width).for_each(|row| mean.iter_mut().zip(row).for_each(|(m, x)| *m += x));
            mean.iter_mut().for_each(|m| *m /= slots as f32);
        });
        nodes.resize(dst, self.node.in_dim());
        backend.copy(input.own_rows(), nodes.view_mut());
        let (weights, sums) = (AggregationWeights::MEAN, nodes.view_mut());
        Aggregate { block, weights, src: input.x, beta: 1.0, dst: sums }.run(backend);
        self.mixed.forward_product(pass, mixed.view(), 0.0, out.reborrow());
        self.node.forward(pass, nodes.view(), 1.0, epilogue, out);
    }

    fn backward(
        &mut self,
        pass: &Pass,
        input: &EdgeInput,
        epilogue: Epilogue,
        saved: &mut Saved,
        EdgeGrads { y, grad, x_grad, edge_grad }: EdgeGrads,
    ) {
        let State { tokens, rows, blocks, mixed, nodes, through, grad: of_rows, tokens_grad } = saved.state();
        let (block, backend, slots) = (input.block, pass.backend, self.slots);
        epilogue.backward(backend, self.node.bias_mut(), y, grad.view_mut());
        let grad = grad.view();
        self.mixed.backward_product(pass, mixed.view(), grad);
        self.node.backward_product(pass, nodes.view(), grad);
        let width = self.mixed.in_dim();
        through.resize(block.num_dst, width);
        self.mixed.input_grad(pass, grad, 0.0, through.view_mut());
        of_rows.resize(block.num_dst * slots, width);
        let from = through.view().host().par_chunks(width.max(1));
        let to = of_rows.view_mut().host().par_chunks_mut((slots * width).max(1)).zip(from);
        to.with_min_len(32).for_each(|(to, grad)| {
            for row in to.chunks_exact_mut(width) {
                row.iter_mut().zip(grad).for_each(|(to, g)| *to = g / slots as f32);
            }
        });
        for (i, (of, state)) in self.blocks.iter_mut().zip(blocks).enumerate().rev() {
            of.backward(pass, &rows[i], state, of_rows);
        }
        let wanted = edge_grad.is_some().then_some(&mut *tokens_grad);
        self.edge.backward(pass, tokens.view(), rows[0].view(), Epilogue::NONE, of_rows, wanted);
        if let Some(edge_grad) = edge_grad {
            let (k, from) = (self.edge.in_dim(), tokens_grad.view().host());
            edge_grad.resize(input.edges.num_rows(), k);
            let to = edge_grad.view_mut().host();
            for v in 0..block.num_dst {
                let (of_v, first) = (block.edges(v), self.first(block, v));
                let values = &mut to[of_v.start * k..of_v.end * k];
                values.copy_from_slice(&from[first * k..][..values.len()]);
            }
        }
        if let Some(x_grad) = x_grad {
            let (from, dst) = (self.node.in_dim(), block.num_dst);
            through.resize(dst, from);
            self.node.input_grad(pass, grad, 0.0, through.view_mut());
            x_grad.resize(block.num_src, from);
            let (weights, src_grad) = (AggregationWeights::MEAN, x_grad.view_mut());
            AggregateTransposed { block, weights, dst_grad: through.view(), beta: 0.0, src_grad }
                .run(backend);
            Add { alpha: 1.0, x: through.view(), y: x_grad.rows_mut(0..dst) }.run(backend);
        }
    }
}
