//! Attention to the neighbours of a node with the time since their events.

use std::ops::Range;

use graphmill_core::{Block, keyed};

use super::TimeEncoding;
use crate::{
    Epilogue, Matrix, Param, Pass, View,
    backend::{
        Activation, Dropout,
        Side::{Plain, Transposed},
        cpu::add_rows,
        ops::{Add, Dense, EdgeAttention, EdgeAttentionBackward, Gather, Gemm, HeadGemm},
    },
    layer::{Linear, site},
};

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
///
/// # Cost
/// No event is projected. A score is the product of a query times the transposed `K` with the
/// event's row, and rows are summed before the product with `V` ([`EdgeAttention`]). That is
/// `O(H J)` for each event and `O(J O)` for each destination, in the place of `O(J O)` for each
/// event, with rows of `J = F + K + T + 1` columns. The time since now is 0 for all destinations,
/// so those with the same own row in a global block share their query and the product with `W_own`.
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
    /// Events: a block transposed for a backward pass. The own rows of the destinations of a global
    /// block are the leading ones of its sources.
    pub block: &'a Block,
    /// Rows of all sources, `S x F`.
    pub x: View<'a>,
    /// Features of the events, `E x K`.
    pub edges: View<'a>,
    /// Time since each event, `E`.
    pub differences: &'a [f64],
}

/// Matrices that a forward pass saves for its backward pass.
#[derive(Clone, Debug, Default)]
pub struct TemporalState {
    /// Encoding of the time 0, `1 x T`, and the part of every query that it makes, `1 x (H O)`.
    now: Matrix,
    of_now: Matrix,
    /// Features of the events, their encoded times, and a one, so that biases are rows of the
    /// weights: `E x (K + T + 1)`.
    rows: Matrix,
    /// Weights of keys and values with their biases: `O x (H J)`, transposed by head, and `J x (H
    /// O)`. A product with a transposed factor may sum a row otherwise if it is computed with few
    /// others.
    weights: [Matrix; 2],
    /// Queries of the own rows, and these times keys' weights, `Q x (H J)`.
    query: Matrix,
    score: Matrix,
    /// Sums of the events' rows, `D x (H J)`.
    sums: Matrix,
    alpha: Matrix,
    dropped: Matrix,
    attended: Matrix,
    /// Own rows times `W_own`, if destinations share them.
    own: Matrix,
    hidden: Matrix,
    grads: TemporalGrads,
}

/// Gradients of the matrices of a forward pass.
#[derive(Clone, Debug, Default)]
struct TemporalGrads {
    out: Matrix,
    hidden: Matrix,
    attended: Matrix,
    sums: Matrix,
    scores: Matrix,
    score: Matrix,
    query: Matrix,
    /// Sums over the destinations that share an own row.
    shared: [Matrix; 2],
    rows: Matrix,
    weight: Matrix,
    now: Matrix,
    encoded: Matrix,
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

    /// Number of the leading sources that destinations have as their own rows, `Q`.
    fn num_own(block: &Block) -> usize {
        let last = block.dst_ids.as_ref().map(|ids| ids.iter().max().map_or(0, |&id| id as usize + 1));
        last.unwrap_or(block.num_dst)
    }

    /// Width of the events' rows, `J`.
    fn event_width(&self) -> usize {
        self.key.in_dim() + 1
    }

    /// Computes the rows of the destinations; `out` is resized to `D x O`.
    ///
    /// # Panics
    /// The rows have other shapes, or the block is global: a bug in the caller.
    pub fn forward(&self, pass: &Pass, input: &TemporalInput, saved: &mut TemporalState, out: &mut Matrix) {
        let TemporalAttentionConfig { in_dim, edge_dim, width, heads, .. } = self.config;
        let (block, backend) = (input.block, pass.backend);
        let shape = |x: View| (x.num_rows(), x.num_cols());
        assert_eq!(shape(input.x), (block.num_src, in_dim), "rows of nodes");
        assert_eq!(shape(input.edges), (block.num_edges(), edge_dim), "features of events");
        assert_eq!(input.differences.len(), block.num_edges(), "times since events");
        let (dst, edges, all) = (block.num_dst, block.num_edges(), heads * self.event_width());
        self.join(input, saved);
        let own_rows = input.x.rows(0..Self::num_own(block));
        self.queries(pass, own_rows, saved);
        let TemporalState { rows, weights, query, score, sums, alpha, dropped, attended, .. } = saved;
        score.resize(own_rows.num_rows(), all);
        let (a, b) = ((query.view(), Plain), (weights[0].view(), Plain));
        HeadGemm { heads, a, b, beta: 0.0, c: score.view_mut() }.run(backend);
        let dropout = pass.dropout(self.config.dropout, site::ATTENTION);
        alpha.resize(edges + dst, heads);
        dropped.resize(if dropout == Dropout::NONE { 0 } else { edges + dst }, heads);
        sums.resize(dst, all);
        EdgeAttention {
            block,
            x: input.x,
            rows: rows.view(),
            query: score.view(),
            scale: self.scale(),
            dropout,
            alpha: alpha.view_mut(),
            used: dropped.view_mut(),
            out: sums.view_mut(),
        }
        .run(backend);
        attended.resize(dst, width);
        let (a, b) = ((sums.view(), Plain), (weights[1].view(), Plain));
        HeadGemm { heads, a, b, beta: 0.0, c: attended.view_mut() }.run(backend);
        self.merge(pass, block, own_rows, saved);
        out.resize(dst, self.config.out_dim);
        self.second.forward(pass, saved.hidden.view(), 0.0, Epilogue::NONE, out.view_mut());
    }

    /// Adds the attended and the own rows after their products, before the last layer.
    fn merge(&self, pass: &Pass, block: &Block, own_rows: View, saved: &mut TemporalState) {
        let TemporalState { attended, own, hidden, .. } = saved;
        hidden.resize(block.num_dst, self.config.in_dim);
        if let Some(ids) = &block.dst_ids {
            own.resize(own_rows.num_rows(), self.config.in_dim);
            self.own.forward(pass, own_rows, 0.0, Epilogue::NONE, own.view_mut());
            Gather { src: own.view(), ids, dst: hidden.view_mut() }.run(pass.backend);
        } else {
            self.own.forward(pass, own_rows, 0.0, Epilogue::NONE, hidden.view_mut());
        }
        self.first.forward(pass, attended.view(), 1.0, RELU, hidden.view_mut());
    }

    /// Joins the features of events with the encodings of their times, and weights with biases.
    fn join(&self, input: &TemporalInput, saved: &mut TemporalState) {
        let TemporalAttentionConfig { in_dim, edge_dim, .. } = self.config;
        let TemporalState { rows, weights, .. } = saved;
        let (width, edges) = (self.event_width() - in_dim, input.edges.host());
        rows.resize(input.block.num_edges(), width);
        for (e, row) in rows.view_mut().host().chunks_exact_mut(width).enumerate() {
            row[..edge_dim].copy_from_slice(&edges[e * edge_dim..(e + 1) * edge_dim]);
            row[width - 1] = 1.0;
        }
        self.encoding.forward_into(input.differences, edge_dim, rows);
        self.join_weights(weights);
    }

    /// Joins the weights of keys and values with their biases.
    fn join_weights(&self, [keys, values]: &mut [Matrix; 2]) {
        let (all, width, heads) = (self.event_width(), self.config.width, self.config.heads);
        let parts = |linear: &Linear| {
            let bias = linear.bias().expect("keys and values have biases").value.view().host();
            [linear.weight().value.view().host(), bias].concat()
        };
        let dim = width / heads;
        keys.resize(dim, heads * all);
        let to = keys.view_mut().host();
        for (j, row) in parts(&self.key).chunks_exact(width).enumerate() {
            row.iter().enumerate().for_each(|(at, x)| to[at % dim * heads * all + at / dim * all + j] = *x);
        }
        values.resize(all, width);
        values.view_mut().host().copy_from_slice(&parts(&self.value));
    }

    /// Rows of the query's weight for nodes, and for the time.
    fn query_parts(&self) -> [Range<usize>; 2] {
        let [nodes, all] = [self.config.in_dim, self.query.in_dim()];
        [0..nodes, nodes..all]
    }

    /// Computes the queries of the destinations with rows `x`. The time since now is 0 for all of
    /// them, so its part is one row.
    fn queries(&self, pass: &Pass, x: View, saved: &mut TemporalState) {
        let TemporalState { now, of_now, query, .. } = saved;
        let (width, [of_nodes, of_time]) = (self.config.width, self.query_parts());
        self.encoding.forward(&[0.0], now);
        of_now.resize(1, width);
        let (weight, bias) = (self.query.weight().value.view(), self.query.bias());
        pass.backend.copy(bias.expect("queries have a bias").value.view(), of_now.view_mut());
        let (a, b) = ((now.view(), Plain), (weight.rows(of_time), Plain));
        Gemm { a, b, beta: 1.0, c: of_now.view_mut() }.run(pass.backend);
        query.resize(x.num_rows(), width);
        Dense {
            x,
            w: weight.rows(of_nodes),
            plus: None,
            beta: 0.0,
            bias: Some(of_now.view()),
            activation: Activation::Identity,
            dropout: Dropout::NONE,
            out: query.view_mut(),
        }
        .run(pass.backend);
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
        let (backend, dst) = (pass.backend, input.block.num_dst);
        let TemporalState { hidden, attended, grads, .. } = saved;
        grads.out.resize(grad.num_rows(), grad.num_cols());
        backend.copy(grad, grads.out.view_mut());
        let to = Some(&mut grads.hidden);
        self.second.backward(pass, hidden.view(), out, Epilogue::NONE, &mut grads.out, to);
        RELU.backward(backend, self.own.bias_mut(), hidden.view(), grads.hidden.view_mut());
        let own_rows = input.x.rows(0..Self::num_own(input.block));
        let own_grad = of_own_rows(input.block, own_rows.num_rows(), &grads.hidden, &mut grads.shared[0]);
        self.own.backward_product(pass, own_rows, own_grad);
        self.first.backward_product(pass, attended.view(), grads.hidden.view());
        grads.attended.resize(dst, self.config.width);
        self.first.input_grad(pass, grads.hidden.view(), 0.0, grads.attended.view_mut());
        self.backward_attention(pass, input, saved, x_grad);
        self.backward_queries(pass, own_rows, saved);
        self.backward_rows(pass, input, saved, x_grad);
    }

    /// Gradients of keys' and values' weights, of queries, of the sources' rows as those of events,
    /// and of the events' rows.
    fn backward_attention(
        &mut self,
        pass: &Pass,
        input: &TemporalInput,
        saved: &mut TemporalState,
        x_grad: &mut Matrix,
    ) {
        let TemporalAttentionConfig { in_dim, width, heads, .. } = self.config;
        let (backend, scale, all) = (pass.backend, self.scale(), self.event_width());
        let TemporalState { rows, weights, query, score, sums, alpha, dropped, grads, .. } = saved;
        let (block, dst) = (input.block, input.block.num_dst);
        [&mut grads.sums, &mut grads.score].into_iter().for_each(|grad| grad.resize(dst, heads * all));
        grads.scores.resize(alpha.num_rows(), heads);
        x_grad.resize(block.num_src, in_dim);
        let needed = if self.encoding.is_learned() { rows.num_cols() } else { 0 };
        grads.rows.resize(rows.num_rows(), needed);
        let (a, b) = ((grads.attended.view(), Plain), (weights[1].view(), Transposed));
        HeadGemm { heads, a, b, beta: 0.0, c: grads.sums.view_mut() }.run(backend);
        let dropout = pass.dropout(self.config.dropout, site::ATTENTION);
        EdgeAttentionBackward {
            block,
            x: input.x,
            rows: rows.view(),
            query: score.view(),
            scale,
            dropout,
            alpha: alpha.view(),
            used: if dropout == Dropout::NONE { alpha.view() } else { dropped.view() },
            grad: grads.sums.view(),
            score_grad: grads.scores.view_mut(),
            query_grad: grads.score.view_mut(),
            x_grad: x_grad.view_mut(),
            rows_grad: grads.rows.view_mut(),
        }
        .run(backend);
        let own = query.num_rows();
        let score_grad = of_own_rows(block, own, &grads.score, &mut grads.shared[1]);
        grads.weight.resize(all, width);
        // scores are queries times transposed weights, so the weight's gradient has their sides
        let products = [
            (&mut self.key, score_grad, query.view()),
            (&mut self.value, sums.view(), grads.attended.view()),
        ];
        for (linear, a, b) in products {
            let c = grads.weight.view_mut();
            HeadGemm { heads, a: (a, Transposed), b: (b, Plain), beta: 0.0, c }.run(backend);
            let of = linear.weight_mut().grad.view_mut();
            Add { alpha: 1.0, x: grads.weight.rows(0..all - 1), y: of }.run(backend);
            if let Some(bias) = linear.bias_mut() {
                Add { alpha: 1.0, x: grads.weight.rows(all - 1..all), y: bias.grad.view_mut() }.run(backend);
            }
        }
        grads.query.resize(own, width);
        let (a, b) = ((score_grad, Plain), (weights[0].view(), Transposed));
        HeadGemm { heads, a, b, beta: 0.0, c: grads.query.view_mut() }.run(backend);
    }

    /// Gradients of the query's weight and bias, and of the encoding of now.
    fn backward_queries(&mut self, pass: &Pass, x: View, saved: &mut TemporalState) {
        let TemporalState { now, grads, .. } = saved;
        let (backend, [of_nodes, of_time]) = (pass.backend, self.query_parts());
        grads.now.resize(1, self.config.width);
        backend.fill(0.0, grads.now.view_mut());
        backend.add_column_sums(grads.query.view(), grads.now.view_mut());
        if let Some(bias) = self.query.bias_mut() {
            Add { alpha: 1.0, x: grads.now.view(), y: bias.grad.view_mut() }.run(backend);
        }
        let weight = self.query.weight_mut();
        let (a, b) = ((x, Transposed), (grads.query.view(), Plain));
        Gemm { a, b, beta: 1.0, c: weight.grad.rows_mut(of_nodes) }.run(backend);
        let (a, b) = ((now.view(), Transposed), (grads.now.view(), Plain));
        Gemm { a, b, beta: 1.0, c: weight.grad.rows_mut(of_time.clone()) }.run(backend);
        if self.encoding.is_learned() {
            grads.encoded.resize(1, self.config.time_dim);
            let (a, b) = ((grads.now.view(), Plain), (weight.value.rows(of_time), Transposed));
            Gemm { a, b, beta: 0.0, c: grads.encoded.view_mut() }.run(backend);
            self.encoding.backward(&[0.0], grads.encoded.view());
        }
    }

    /// Gradients of the encodings of events' times, and of the own rows.
    fn backward_rows(
        &mut self,
        pass: &Pass,
        input: &TemporalInput,
        saved: &mut TemporalState,
        x_grad: &mut Matrix,
    ) {
        let TemporalAttentionConfig { edge_dim, time_dim, .. } = self.config;
        let TemporalGrads { rows, query, hidden, shared, encoded, .. } = &mut saved.grads;
        if self.encoding.is_learned() {
            encoded.resize(rows.num_rows(), time_dim);
            let lines = rows.view().host().chunks_exact(rows.num_cols());
            let to = encoded.view_mut().host().chunks_exact_mut(time_dim.max(1));
            to.zip(lines).for_each(|(to, line)| to.copy_from_slice(&line[edge_dim..][..time_dim]));
            self.encoding.backward(input.differences, encoded.view());
        }
        let own = query.num_rows();
        let own_grad = if input.block.dst_ids.is_some() { shared[0].view() } else { hidden.view() };
        self.own.input_grad(pass, own_grad, 1.0, x_grad.rows_mut(0..own));
        let [of_nodes, _] = self.query_parts();
        let (a, b) = ((query.view(), Plain), (self.query.weight().value.rows(of_nodes), Transposed));
        Gemm { a, b, beta: 1.0, c: x_grad.rows_mut(0..own) }.run(pass.backend);
    }
}

/// Sums of the destinations' rows of `x` by their own row, in the order of the destinations.
fn of_own_rows<'m>(block: &Block, own: usize, x: &'m Matrix, sums: &'m mut Matrix) -> View<'m> {
    let Some(ids) = &block.dst_ids else { return x.view() };
    sums.resize(own, x.num_cols());
    sums.view_mut().host().fill(0.0);
    add_rows(ids, x.view(), sums.view_mut());
    sums.view()
}
