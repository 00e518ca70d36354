//! Attention to the neighbours of a node with the time since their events.

use graphmill_core::{Block, keyed};
use rayon::prelude::*;

use super::TimeEncoding;
use crate::{
    Epilogue, Matrix, Param, Pass, View,
    backend::{
        Activation, Dropout,
        ops::{Attend, AttendBackward, DotSoftmax, DotSoftmaxBackward},
    },
    layer::{Linear, edge::EdgeRows, site},
};

/// Number of rows of a task.
const MIN_TASK_LEN: usize = 32;
const RELU: Epilogue = Epilogue { activation: Activation::Relu, dropout: Dropout::NONE };

/// Configuration of a [`TemporalAttention`].
#[derive(Clone, Copy, Debug)]
pub struct TemporalAttentionConfig {
    /// Width of the nodes' rows, `F`.
    pub in_dim: usize,
    /// Width of the events' features, `K`; may be 0.
    pub edge_dim: usize,
    /// Width of the time encoding, `T`.
    pub time_dim: usize,
    /// Width of all heads together.
    pub width: usize,
    /// Number of heads; divides the width.
    pub heads: usize,
    /// Width of the output rows, `O`.
    pub out_dim: usize,
    /// Dropout of attention weights.
    pub dropout: f32,
    /// Root of the random streams for the initial weights.
    pub key: u64,
}

/// The attention of TGAT (Xu et al., *Inductive representation learning on temporal graphs*, ICLR
/// 2020, section 3.2) and of TGN's embedding (Rossi et al., 2020, equation 5). For a node `v` and
/// its events `e` with `u` at a time that lies `d[e]` before that of `v`:
///
/// ```text
/// query = [x[v] | phi(0)] Q,   key, value = [x[u] | edge[e] | phi(d[e])] K, V
/// h[v] = attention of the heads over the events; 0 without events
/// out[v] = relu(h[v] W_1 + x[v] W_own + b_1) W_2 + b_2
/// ```
///
/// The output projection of multi-head attention is left out: `W_1` follows it without a
/// non-linearity, so the functions are the same.
#[derive(Clone, Debug)]
pub struct TemporalAttention {
    config: TemporalAttentionConfig,
    encoding: TimeEncoding,
    query: Linear,
    key: Linear,
    value: Linear,
    first: Linear,
    own: Linear,
    second: Linear,
}

/// Rows that the attention reads.
#[derive(Clone, Copy, Debug)]
pub struct TemporalInput<'a> {
    /// Events: a local block, transposed for a backward pass.
    pub block: &'a Block,
    /// Rows of all sources, `S x F`.
    pub x: View<'a>,
    /// Features of the events, `E x K`.
    pub edges: View<'a>,
    /// Time since each event, `E`.
    pub differences: &'a [f64],
}

/// Matrices that a forward pass saves for its backward pass, and the output.
#[derive(Clone, Debug, Default)]
pub struct TemporalState {
    rows: EdgeRows,
    zeros: Vec<f64>,
    /// Joined rows of destinations (`D x (F + T)`) and of events (`E x (F + K + T)`).
    joined: [Matrix; 2],
    encoded: Matrix,
    query: Matrix,
    /// Keys and values; as many rows as events or destinations, if there are more.
    key: Matrix,
    value: Matrix,
    alpha: Matrix,
    dropped: Matrix,
    attended: Matrix,
    hidden: Matrix,
    hidden_grad: Matrix,
    attended_grad: Matrix,
    alpha_grad: Matrix,
    scratch: Matrix,
    grads: [Matrix; 3],
    joined_grad: [Matrix; 2],
    part: Matrix,
}

impl TemporalAttention {
    /// Creates an attention.
    ///
    /// # Errors
    /// The heads do not divide the width.
    pub fn new(config: TemporalAttentionConfig) -> crate::Result<Self> {
        let TemporalAttentionConfig { in_dim, edge_dim, time_dim, width, heads, out_dim, key, .. } = config;
        if heads == 0 || width == 0 || !width.is_multiple_of(heads) {
            let message = format!("does not divide {width} columns; use a divisor");
            return Err(crate::Error::config("heads", heads, message));
        }
        let key = |part| keyed::key(&[key, part]);
        let event = in_dim + edge_dim + time_dim;
        Ok(Self {
            config,
            encoding: TimeEncoding::new(time_dim),
            query: Linear::named(["query.weight", "query.bias"], in_dim + time_dim, width, true, key(0)),
            key: Linear::named(["key.weight", "key.bias"], event, width, true, key(1)),
            value: Linear::named(["value.weight", "value.bias"], event, width, true, key(2)),
            first: Linear::named(["merge.0.weight", ""], width, in_dim, false, key(3)),
            own: Linear::named(["merge.own.weight", "merge.0.bias"], in_dim, in_dim, true, key(4)),
            second: Linear::named(["merge.1.weight", "merge.1.bias"], in_dim, out_dim, true, key(5)),
        })
    }

    /// Visits every parameter, always in the same order.
    pub fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param)) {
        self.encoding.visit(see);
        let Self { query, key, value, first, own, second, .. } = self;
        [query, key, value, first, own, second].into_iter().for_each(|linear| linear.visit(see));
    }

    /// Visits every parameter mutably, in the order of [`TemporalAttention::visit`].
    pub fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        self.encoding.visit_mut(see);
        let Self { query, key, value, first, own, second, .. } = self;
        [query, key, value, first, own, second].into_iter().for_each(|linear| linear.visit_mut(see));
    }

    fn scale(&self) -> f32 {
        ((self.config.width / self.config.heads) as f32).sqrt().recip()
    }

    fn attention_epilogue(&self, pass: &Pass) -> Epilogue {
        let dropout = pass.dropout(self.config.dropout, site::ATTENTION);
        Epilogue { activation: Activation::Identity, dropout }
    }

    /// Computes the rows of the destinations; `out` is resized to `D x O`.
    ///
    /// # Panics
    /// The rows have other shapes, or the block is global: a bug in the caller.
    pub fn forward(&self, pass: &Pass, input: &TemporalInput, saved: &mut TemporalState, out: &mut Matrix) {
        let TemporalAttentionConfig { in_dim, edge_dim, width, heads, .. } = self.config;
        let (block, backend) = (input.block, pass.backend);
        let shape = |x: View| (x.num_rows(), x.num_cols());
        assert!(block.dst_ids.is_none() && shape(input.x) == (block.num_src, in_dim), "rows of nodes");
        assert_eq!(shape(input.edges), (block.num_edges(), edge_dim), "features of events");
        assert_eq!(input.differences.len(), block.num_edges(), "times since events");
        let (dst, edges) = (block.num_dst, block.num_edges());
        let padded = edges.max(dst);
        self.join(input, saved);
        let TemporalState { rows, joined, query, key, value, alpha, dropped, attended, hidden, .. } = saved;
        rows.fill_at_least(block, dst);
        query.resize(dst, width);
        self.query.forward(pass, joined[0].view(), 0.0, Epilogue::NONE, query.view_mut());
        for (linear, to) in [(&self.key, &mut *key), (&self.value, &mut *value)] {
            to.resize(padded, width);
            linear.forward(pass, joined[1].view(), 0.0, Epilogue::NONE, to.rows_mut(0..edges));
            backend.fill(0.0, to.rows_mut(edges..padded));
        }
        alpha.resize(edges + dst, heads);
        let (of, scale, to) = (rows.block(), self.scale(), alpha.view_mut());
        DotSoftmax { block: of, query: query.view(), key: key.view(), scale, alpha: to }.run(backend);
        let attention = self.attention_epilogue(pass);
        let used = if attention.dropout == Dropout::NONE {
            alpha.view()
        } else {
            dropped.resize(alpha.num_rows(), heads);
            backend.copy(alpha.view(), dropped.view_mut());
            attention.apply(backend, None, dropped.view_mut());
            dropped.view()
        };
        attended.resize(dst, width);
        Attend { block: of, alpha: used, z: value.view(), out: attended.view_mut() }.run(backend);
        hidden.resize(dst, in_dim);
        self.first.forward_product(pass, attended.view(), 0.0, hidden.view_mut());
        self.own.forward(pass, input.x.rows(0..dst), 1.0, RELU, hidden.view_mut());
        out.resize(dst, self.config.out_dim);
        self.second.forward(pass, hidden.view(), 0.0, Epilogue::NONE, out.view_mut());
    }

    /// Joins the rows of destinations and of events with the encodings of their times.
    fn join(&self, input: &TemporalInput, saved: &mut TemporalState) {
        let TemporalAttentionConfig { in_dim, edge_dim, time_dim, .. } = self.config;
        let TemporalState { zeros, joined: [of_nodes, of_events], encoded, .. } = saved;
        let (x, edges) = (input.x.host(), input.edges.host());
        zeros.clear();
        zeros.push(0.0);
        self.encoding.forward(zeros, encoded);
        of_nodes.resize(input.block.num_dst, in_dim + time_dim);
        let now = encoded.view().host();
        let lines = of_nodes.view_mut().host().par_chunks_mut((in_dim + time_dim).max(1)).enumerate();
        lines.with_min_len(MIN_TASK_LEN).for_each(|(v, line)| {
            line[..in_dim].copy_from_slice(&x[v * in_dim..(v + 1) * in_dim]);
            line[in_dim..].copy_from_slice(now);
        });
        self.encoding.forward(input.differences, encoded);
        let (width, then) = (in_dim + edge_dim + time_dim, encoded.view().host());
        of_events.resize(input.block.num_edges(), width);
        let lines = of_events.view_mut().host().par_chunks_mut(width.max(1)).enumerate();
        lines.with_min_len(MIN_TASK_LEN).for_each(|(e, line)| {
            let u = input.block.indices[e] as usize;
            line[..in_dim].copy_from_slice(&x[u * in_dim..(u + 1) * in_dim]);
            line[in_dim..in_dim + edge_dim].copy_from_slice(&edges[e * edge_dim..(e + 1) * edge_dim]);
            line[in_dim + edge_dim..].copy_from_slice(&then[e * time_dim..(e + 1) * time_dim]);
        });
    }

    /// Adds to every parameter's gradient. `grad` is that of the output `out`; `x_grad` is resized
    /// to `S x F` and overwritten.
    pub fn backward(
        &mut self,
        pass: &Pass,
        input: &TemporalInput,
        saved: &mut TemporalState,
        [out, grad]: [View; 2],
        x_grad: &mut Matrix,
    ) {
        let backend = pass.backend;
        let TemporalState { hidden, hidden_grad, attended, attended_grad, .. } = saved;
        let mut grad_rows = std::mem::take(&mut saved.part);
        grad_rows.resize(grad.num_rows(), grad.num_cols());
        backend.copy(grad, grad_rows.view_mut());
        self.second.backward(pass, hidden.view(), out, Epilogue::NONE, &mut grad_rows, Some(hidden_grad));
        saved.part = grad_rows;
        RELU.backward(backend, self.own.bias_mut(), hidden.view(), hidden_grad.view_mut());
        let own_rows = input.x.rows(0..input.block.num_dst);
        self.own.backward_product(pass, own_rows, hidden_grad.view());
        self.first.backward_product(pass, attended.view(), hidden_grad.view());
        attended_grad.resize(input.block.num_dst, self.config.width);
        self.first.input_grad(pass, hidden_grad.view(), 0.0, attended_grad.view_mut());
        self.backward_attention(pass, input, saved);
        self.backward_rows(pass, input, saved, x_grad);
    }

    /// Gradients of queries, keys and values, and of the joined rows.
    fn backward_attention(&mut self, pass: &Pass, input: &TemporalInput, saved: &mut TemporalState) {
        let TemporalAttentionConfig { width, heads, .. } = self.config;
        let (scale, attention) = (self.scale(), self.attention_epilogue(pass));
        let (backend, edges) = (pass.backend, input.block.num_edges());
        let TemporalState { rows, joined, query, key, value, alpha, dropped, attended_grad, .. } = saved;
        let TemporalState { alpha_grad, scratch, grads, joined_grad, .. } = saved;
        let [query_grad, key_grad, value_grad] = grads;
        let block = rows.block();
        query_grad.resize(query.num_rows(), width);
        [&mut *key_grad, value_grad].into_iter().for_each(|grad| grad.resize(key.num_rows(), width));
        [&mut *alpha_grad, scratch].into_iter().for_each(|grad| grad.resize(alpha.num_rows(), heads));
        let used = if attention.dropout == Dropout::NONE { alpha.view() } else { dropped.view() };
        AttendBackward {
            block,
            alpha: used,
            z: value.view(),
            grad: attended_grad.view(),
            alpha_grad: alpha_grad.view_mut(),
            z_grad: value_grad.view_mut(),
        }
        .run(backend);
        attention.backward(backend, None, used, alpha_grad.view_mut());
        DotSoftmaxBackward {
            block,
            query: query.view(),
            key: key.view(),
            scale,
            alpha: alpha.view(),
            alpha_grad: alpha_grad.view(),
            scratch: scratch.view_mut(),
            query_grad: query_grad.view_mut(),
            key_grad: key_grad.view_mut(),
        }
        .run(backend);
        let [of_nodes, of_events] = joined_grad;
        of_nodes.resize(joined[0].num_rows(), joined[0].num_cols());
        of_events.resize(joined[1].num_rows(), joined[1].num_cols());
        let parts = [
            (&mut self.query, joined[0].view(), query_grad.view()),
            (&mut self.key, joined[1].view(), key_grad.rows(0..edges)),
            (&mut self.value, joined[1].view(), value_grad.rows(0..edges)),
        ];
        for (i, (linear, rows, grad)) in parts.into_iter().enumerate() {
            linear.backward_product(pass, rows, grad);
            if let Some(bias) = linear.bias_mut() {
                backend.add_column_sums(grad, bias.grad.view_mut());
            }
            let to = if i == 0 { of_nodes.view_mut() } else { of_events.view_mut() };
            linear.input_grad(pass, grad, if i == 2 { 1.0 } else { 0.0 }, to);
        }
    }

    /// Gradients of the encoding and of the nodes' rows.
    fn backward_rows(
        &mut self,
        pass: &Pass,
        input: &TemporalInput,
        saved: &mut TemporalState,
        x_grad: &mut Matrix,
    ) {
        let TemporalAttentionConfig { in_dim, edge_dim, time_dim, .. } = self.config;
        let (block, dst) = (input.block, input.block.num_dst);
        let TemporalState { joined_grad: [of_nodes, of_events], zeros, part, hidden_grad, .. } = saved;
        let mut encode = |from: &Matrix, first: usize, differences: &[f64]| {
            part.resize(from.num_rows(), time_dim);
            let lines = from.view().host().chunks_exact(from.num_cols().max(1));
            let to = part.view_mut().host().chunks_exact_mut(time_dim.max(1));
            to.zip(lines).for_each(|(to, line)| to.copy_from_slice(&line[first..]));
            self.encoding.backward(differences, part.view());
        };
        zeros.resize(dst, 0.0);
        encode(of_nodes, in_dim, zeros);
        encode(of_events, in_dim + edge_dim, input.differences);
        x_grad.resize(block.num_src, in_dim);
        pass.backend.fill(0.0, x_grad.view_mut());
        self.own.input_grad(pass, hidden_grad.view(), 0.0, x_grad.rows_mut(0..dst));
        let (node_width, event_width) = (in_dim + time_dim, in_dim + edge_dim + time_dim);
        let (of_nodes, of_events, t) = (of_nodes.view().host(), of_events.view().host(), &block.transposed);
        let lines = x_grad.view_mut().host().par_chunks_mut(in_dim.max(1)).enumerate();
        lines.with_min_len(MIN_TASK_LEN).for_each(|(u, to)| {
            let mut add = |from: &[f32]| to.iter_mut().zip(from).for_each(|(to, x)| *to += x);
            if u < dst {
                add(&of_nodes[u * node_width..][..in_dim]);
            }
            for &e in &t.edge[t.indptr[u] as usize..t.indptr[u + 1] as usize] {
                add(&of_events[e as usize * event_width..][..in_dim]);
            }
        });
    }
}
