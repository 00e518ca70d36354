//! Simple-HGN: graph attention whose scores know the relation.
//!
//! # Algorithm
//!
//! With `z = x W`, shared by all types, and a learned vector `e_r` of each relation and of a node's
//! attention to itself:
//!
//! ```text
//! score(u, v, r) = leaky_relu(a . z[u] + b . z[v] + c . (e_r E))
//! alpha[., v] = softmax over v itself and all in-neighbours of v, by any relation
//! out[v] = sum over u of dropout(alpha[u, v]) z[u] + x[v] P
//! ```
//!
//! for each head. `P` is left out in the first layer. Heads are concatenated; in the layer that
//! computes scores they are averaged and each row of scores is scaled to unit length.
//!
//! # Source
//!
//! Lv, Ding, Liu et al., *Are we really making much progress? Revisiting, benchmarking, and
//! refining heterogeneous graph neural networks*, KDD 2021, section 6; initial values of their code
//! (HGB).
//!
//! # Cost
//!
//! As graph attention, transforming first; the sources of each relation are copied once.
//!
//! # Deviations
//!
//! Without the residual of attention weights, which joins the edges of consecutive layers: sampled
//! blocks have other edges in each layer. The authors use `--activation elu`.

use clap::Args;
use graphmill_core::{
    block::Aggregation,
    keyed,
    options::{Fault, OptionSet, range},
};
use serde::{Deserialize, Serialize};

use super::{
    Scope, TypedInput, TypedLayer, TypedLayerConfig, TypedLayerSpec,
    heads::{Heads, backward_linear},
    layer::{TypedGrads, resize_outputs},
    stacked::{Attention, Stacked, attention_epilogue},
};
use crate::{
    Matrix, Param, Pass, Result, Saved,
    backend::{
        Activation, Dropout,
        ops::{
            Add, EdgeSoftmax, EdgeSoftmaxBackward, EpilogueForward, HeadDot, HeadDotBackward, L2NormBackward,
            L2NormForward,
        },
    },
    layer::{GatOptions, Linear},
};

/// Options of Simple-HGN.
#[derive(Args, Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SimpleHgnOptions {
    /// Width of the relations' vectors.
    #[arg(long, value_name = "N")]
    pub edge_dim: usize,
    /// Slope of the leaky ReLU below 0 in attention scores.
    #[arg(long, value_name = "X")]
    pub negative_slope: f64,
}

impl Default for SimpleHgnOptions {
    fn default() -> Self {
        Self { edge_dim: 64, negative_slope: 0.05 }
    }
}

impl OptionSet for SimpleHgnOptions {
    fn check(&self) -> Result<(), Fault> {
        range("edge_dim", self.edge_dim, 1..=1 << 16)?;
        range("negative_slope", self.negative_slope, 0.0..=1.0)
    }
}

/// A layer of Simple-HGN; the head of its source file has the formula.
///
/// # Shapes
/// - `weight`, `residual.weight`: `F x (H C)`; `source`, `target`: `1 x (H C)`
/// - `relation`: `(R + 1) x edge_dim`, the last row for a node itself; `relation.weight`:
///   `edge_dim x (H edge_dim)`; `edge`: `1 x (H edge_dim)`
#[derive(Clone, Debug)]
pub struct SimpleHgn {
    spec: TypedLayerSpec,
    heads: Heads,
    slope: f32,
    attention_dropout: f32,
    scores: bool,
    linear: Linear,
    source: Param,
    target: Param,
    relation: Param,
    edge_linear: Linear,
    edge: Param,
    residual: Option<Linear>,
}

/// Makes a layer.
pub(super) fn make(config: &TypedLayerConfig) -> Result<Box<dyn TypedLayer>> {
    let &TypedLayerConfig { schema, in_dim, out_dim, .. } = config;
    let heads = Heads::new(config)?;
    let SimpleHgnOptions { edge_dim, negative_slope } = config.own.get();
    let key = |part| keyed::key(&[config.key, part]);
    let vector = |name, dim, part| Param::glorot(name, 1, heads.count * dim, heads.count, dim, key(part));
    let mut relation = Param::zeros("relation", schema.num_relations() + 1, edge_dim);
    let mut stream = keyed::Stream::new(key(3));
    relation.value.view_mut().host().iter_mut().for_each(|x| *x = stream.normal() as f32);
    let linear = |names, [from, to]: [usize; 2], part| Linear::named(names, from, to, false, key(part));
    Ok(Box::new(SimpleHgn {
        spec: TypedLayerSpec { in_dim, out_dim, aggregation: Aggregation::Other },
        heads,
        slope: negative_slope as f32,
        attention_dropout: config.own.get::<GatOptions>().attention_dropout as f32,
        scores: config.scores,
        linear: linear(["weight", ""], [in_dim, heads.width()], 0),
        source: vector("source", heads.dim, 1),
        target: vector("target", heads.dim, 2),
        relation,
        edge_linear: linear(["relation.weight", ""], [edge_dim, heads.count * edge_dim], 4),
        edge: vector("edge", edge_dim, 5),
        residual: (config.number > 0).then(|| linear(["residual.weight", ""], [in_dim, heads.width()], 6)),
    }))
}

/// Matrices of a pass.
#[derive(Clone, Debug, Default)]
struct State {
    /// Transformed rows of each type, `S x H C`, and their gradients.
    z: Vec<Matrix>,
    z_grads: Vec<Matrix>,
    targets: Vec<OfTarget>,
    /// `e E`, `(R + 1) x (H edge_dim)`, and the relations' terms of the scores, `(R + 1) x H`.
    vectors: Matrix,
    terms: Matrix,
    vectors_grad: Matrix,
    terms_grad: Matrix,
    z_grad: Matrix,
    source_grad: Matrix,
    target_grad: Matrix,
    scratch: Matrix,
}

/// Matrices of a destination type in a pass.
#[derive(Clone, Debug, Default)]
struct OfTarget {
    stacked: Stacked,
    z: Matrix,
    source: Matrix,
    target: Matrix,
    attention: Attention,
    /// Lengths of the rows before they are scaled, `D x 1`; only for scores.
    norms: Matrix,
}

impl SimpleHgn {
    /// Computes the transformed rows of all types, and the relations' terms of the scores.
    fn prepare(&self, pass: &Pass, input: &TypedInput, state: &mut State) {
        state.z.resize_with(input.x.len(), Matrix::default);
        for (x, z) in input.x.iter().zip(&mut state.z) {
            z.resize(x.num_rows(), self.heads.width());
            self.linear.forward_product(pass, x.view(), 0.0, z.view_mut());
        }
        let (rows, heads) = (self.relation.value.num_rows(), self.heads.count);
        state.vectors.resize(rows, self.edge_linear.out_dim());
        self.edge_linear.forward_product(pass, self.relation.value.view(), 0.0, state.vectors.view_mut());
        state.terms.resize(rows, heads);
        let (z, a) = (state.vectors.view(), self.edge.value.view());
        HeadDot { z, a, heads, out: state.terms.view_mut() }.run(pass.backend);
    }

    /// Computes [`Attention::sum`] of type `t`.
    fn attend(
        &self,
        pass: &Pass,
        input: &TypedInput,
        t: usize,
        (all, terms): (&[Matrix], &Matrix),
        of: &mut OfTarget,
    ) -> graphmill_core::Result<()> {
        let (heads, backend) = (self.heads.count, pass.backend);
        let OfTarget { stacked, z, source, target, attention, .. } = of;
        stacked.join(pass, input, t, input.schema.into_type(t))?;
        z.resize(stacked.num_rows(), self.heads.width());
        source.resize(stacked.num_rows(), heads);
        target.resize(stacked.num_rows(), heads);
        backend.copy(all[t].rows(stacked.own()), z.rows_mut(stacked.own()));
        for (i, &r) in stacked.relations.iter().enumerate() {
            backend.copy(all[input.ends(r)[0]].view(), z.rows_mut(stacked.rows(i)));
        }
        let a = self.source.value.view();
        HeadDot { z: z.view(), a, heads, out: source.view_mut() }.run(backend);
        let own = (input.schema.num_relations(), stacked.own());
        let relations = stacked.relations.iter().enumerate().map(|(i, &r)| (r, stacked.rows(i)));
        for (r, rows) in relations.chain([own]) {
            EpilogueForward {
                bias: Some(terms.rows(r..r + 1)),
                activation: Activation::Identity,
                dropout: Dropout::NONE,
                x: source.rows_mut(rows),
            }
            .run(backend);
        }
        backend.fill(0.0, target.view_mut());
        let (z_own, out) = (z.rows(stacked.own()), target.rows_mut(stacked.own()));
        HeadDot { z: z_own, a: self.target.value.view(), heads, out }.run(backend);
        attention.alpha.resize(stacked.num_entries(), heads);
        EdgeSoftmax {
            block: &stacked.block,
            source: source.view(),
            target: target.view(),
            slope: self.slope,
            alpha: attention.alpha.view_mut(),
        }
        .run(backend);
        let dropout = attention_epilogue(pass, self.attention_dropout, t);
        attention.attend(pass, dropout, &stacked.block, z.view());
        Ok(())
    }

    /// Passes the gradient of [`Attention::sum`] of type `t` on to the transformed rows of all
    /// types, and to the terms of the relations.
    fn backward_attention(&mut self, pass: &Pass, input: &TypedInput, t: usize, state: &mut State) {
        let (heads, backend) = (self.heads.count, pass.backend);
        let dropout = attention_epilogue(pass, self.attention_dropout, t);
        let State { z_grads, targets, terms_grad, z_grad, source_grad, target_grad, .. } = state;
        let OfTarget { stacked, z, source, target, attention, .. } = &mut targets[t];
        attention.backward(pass, dropout, &stacked.block, z.view(), z_grad);
        source_grad.resize(stacked.num_rows(), heads);
        target_grad.resize(stacked.num_rows(), heads);
        EdgeSoftmaxBackward {
            block: &stacked.block,
            source: source.view(),
            target: target.view(),
            slope: self.slope,
            alpha: attention.alpha.view(),
            alpha_grad: attention.alpha_grad.view(),
            scratch: attention.scratch.view_mut(),
            source_grad: source_grad.view_mut(),
            target_grad: target_grad.view_mut(),
        }
        .run(backend);
        let (source, grad) = (&mut self.source, source_grad.view());
        let (value, a_grad) = (source.value.view(), source.grad.view_mut());
        HeadDotBackward { z: z.view(), a: value, heads, grad, z_grad: z_grad.view_mut(), a_grad }
            .run(backend);
        let (target, own) = (&mut self.target, stacked.own());
        HeadDotBackward {
            z: z.rows(own.clone()),
            a: target.value.view(),
            heads,
            grad: target_grad.rows(own.clone()),
            z_grad: z_grad.rows_mut(own.clone()),
            a_grad: target.grad.view_mut(),
        }
        .run(backend);
        let of_own = (input.schema.num_relations(), t, own);
        let relations = stacked.relations.iter().enumerate();
        let relations = relations.map(|(i, &r)| (r, input.ends(r)[0], stacked.rows(i)));
        for (r, src, rows) in relations.chain([of_own]) {
            backend.add_column_sums(source_grad.rows(rows.clone()), terms_grad.rows_mut(r..r + 1));
            let y = z_grads[src].rows_mut(0..rows.len());
            Add { alpha: 1.0, x: z_grad.rows(rows), y }.run(backend);
        }
    }

    /// Gradients of the parameters behind the transformed rows and the relations' terms.
    fn backward_prepared(
        &mut self,
        pass: &Pass,
        input: &TypedInput,
        state: &mut State,
        x_grad: &mut [Matrix],
    ) {
        for ((x, grad), x_grad) in input.x.iter().zip(&state.z_grads).zip(x_grad) {
            backward_linear(pass, &mut self.linear, x.view(), grad.view(), x_grad.view_mut());
        }
        let State { vectors, vectors_grad, terms_grad, .. } = state;
        vectors_grad.resize(vectors.num_rows(), vectors.num_cols());
        pass.backend.fill(0.0, vectors_grad.view_mut());
        HeadDotBackward {
            z: vectors.view(),
            a: self.edge.value.view(),
            heads: self.heads.count,
            grad: terms_grad.view(),
            z_grad: vectors_grad.view_mut(),
            a_grad: self.edge.grad.view_mut(),
        }
        .run(pass.backend);
        let (x, x_grad) = (self.relation.value.view(), self.relation.grad.view_mut());
        backward_linear(pass, &mut self.edge_linear, x, vectors_grad.view(), x_grad);
    }
}

impl TypedLayer for SimpleHgn {
    fn spec(&self) -> TypedLayerSpec {
        self.spec
    }

    fn visit<'a>(&'a self, see: &mut dyn FnMut(Scope, &'a Param)) {
        let Self { linear, source, target, relation, edge_linear, edge, residual, .. } = self;
        let all = [linear.weight(), source, target, relation, edge_linear.weight(), edge];
        all.into_iter().chain(residual.as_ref().map(Linear::weight)).for_each(|p| see(Scope::Shared, p));
    }

    fn visit_mut(&mut self, see: &mut dyn FnMut(Scope, &mut Param)) {
        let Self { linear, source, target, relation, edge_linear, edge, residual, .. } = self;
        let all = [linear.weight_mut(), source, target, relation, edge_linear.weight_mut(), edge];
        all.into_iter().chain(residual.as_mut().map(Linear::weight_mut)).for_each(|p| see(Scope::Shared, p));
    }

    fn forward(
        &self,
        pass: &Pass,
        input: &TypedInput,
        saved: &mut Saved,
        out: &mut [Matrix],
    ) -> graphmill_core::Result<()> {
        let state = saved.state::<State>();
        self.prepare(pass, input, state);
        resize_outputs(pass, input, self.spec.out_dim, true, out);
        let State { z, terms, targets, scratch, .. } = state;
        targets.resize_with(input.x.len(), OfTarget::default);
        for (t, out) in out.iter_mut().enumerate().filter(|(t, _)| input.block.num_dst[*t] > 0) {
            let of = &mut targets[t];
            self.attend(pass, input, t, (z, terms), of)?;
            if let Some(residual) = &self.residual {
                residual.forward_product(pass, input.own_rows(t), 1.0, of.attention.sum.view_mut());
            }
            self.heads.add(pass, of.attention.sum.view(), scratch, out.view_mut());
            if self.scores {
                scratch.resize(out.num_rows(), out.num_cols());
                pass.backend.copy(out.view(), scratch.view_mut());
                of.norms.resize(out.num_rows(), 1);
                let norms = of.norms.view_mut();
                L2NormForward { x: scratch.view(), norms, out: out.view_mut() }.run(pass.backend);
            }
        }
        Ok(())
    }

    fn backward(&mut self, pass: &Pass, input: &TypedInput, saved: &mut Saved, mut grads: TypedGrads) {
        grads.clear_input(pass, input);
        let TypedGrads { y, grad, x_grad, .. } = grads;
        let (state, backend) = (saved.state::<State>(), pass.backend);
        state.z_grads.resize_with(input.x.len(), Matrix::default);
        for (z, grad) in state.z.iter().zip(&mut state.z_grads) {
            grad.resize(z.num_rows(), z.num_cols());
            backend.fill(0.0, grad.view_mut());
        }
        state.terms_grad.resize(state.terms.num_rows(), state.terms.num_cols());
        backend.fill(0.0, state.terms_grad.view_mut());
        for (t, grad) in grad.iter_mut().enumerate().filter(|(t, _)| input.block.num_dst[*t] > 0) {
            let OfTarget { attention, norms, .. } = &mut state.targets[t];
            if self.scores {
                let (y, norms) = (y[t].view(), norms.view());
                L2NormBackward { y, norms, grad: grad.view_mut() }.run(backend);
            }
            self.heads.backward(pass, grad.view(), &mut attention.sum_grad);
            if let Some(residual) = &mut self.residual {
                let own = x_grad[t].rows_mut(0..grad.num_rows());
                backward_linear(pass, residual, input.own_rows(t), attention.sum_grad.view(), own);
            }
            self.backward_attention(pass, input, t, state);
        }
        self.backward_prepared(pass, input, state, x_grad);
    }
}
