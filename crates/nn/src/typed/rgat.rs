//! Relational graph attention.
//!
//! # Algorithm
//!
//! For each relation `r`, with `z = x W_r` for both ends, and for each head:
//!
//! ```text
//! alpha[u, v] = softmax over in-neighbours u by r of leaky_relu(a_r . z[u] + b_r . z[v])
//! out[v] = x[v] W_type(v) + sum over r, u of dropout(alpha[u, v]) z[u] + bias_type(v)
//! ```
//!
//! Heads are concatenated, or averaged in a layer that computes scores.
//!
//! # Source
//!
//! Velickovic et al., *Graph attention networks*, ICLR 2018, for each relation, summed as in
//! MLPerf's R-GAT and Khatua et al., *IGB*, KDD 2023.
//!
//! # Cost
//!
//! As graph attention on each relation, transforming first. In a first layer over projected
//! features, training sums features first by relations with several sources for each destination
//! and head (`feature_attention.rs`).
//!
//! # Deviations
//!
//! A node attends to its neighbours alone; its own row has separate weights, which `--no-own-rows`
//! leaves out, as in MLPerf. Biases of the relations are one bias per type.

use graphmill_core::{block::Aggregation, keyed};

use super::{
    ProjectionGrad, RelationOptions, Scope, TypedInput, TypedLayer, TypedLayerConfig, TypedLayerSpec,
    feature_attention::{FeatureAttention, OfSource, fits},
    heads::{Heads, backward_linear},
    layer::{TypedGrads, resize_outputs},
    projected::FoldedWeight,
    stacked::{Attention, NEVER, Stacked, attention_epilogue},
};
use crate::{
    Epilogue, Matrix, Param, Pass, Result, Saved, View, ViewMut,
    backend::{
        Activation, Dropout,
        Side::{Plain, Transposed},
        ops::{Dense, EdgeSoftmax, EdgeSoftmaxBackward, Gemm, HeadDot, HeadDotBackward},
    },
    layer::{GatOptions, Linear},
};

/// Slope of the leaky ReLU for negative scores.
const SLOPE: f32 = 0.2;

/// Relational graph attention; the head of its source file has the formula.
///
/// # Shapes
/// - `weight` of a relation: `F x (H C)`; `source`, `target`: `1 x (H C)`
/// - `own.weight` of a type: `F x O`; `bias`: `1 x O`
#[derive(Clone, Debug)]
pub struct RGat {
    spec: TypedLayerSpec,
    heads: Heads,
    attention_dropout: f32,
    relations: Vec<OfRelation>,
    own: Vec<Linear>,
    /// Biases of the types if own rows are left out.
    biases: Vec<Param>,
}

#[derive(Clone, Debug)]
struct OfRelation {
    linear: Linear,
    source: Param,
    target: Param,
}

/// Makes a layer.
pub(super) fn make(config: &TypedLayerConfig) -> Result<Box<dyn TypedLayer>> {
    let &TypedLayerConfig { schema, in_dim, out_dim, key, .. } = config;
    let heads = Heads::new(config)?;
    let no_own_rows = config.own.get::<RelationOptions>().no_own_rows;
    let relations = (0..schema.num_relations()).map(|r| {
        let key = |part| keyed::key(&[key, 0, r as u64, part]);
        let vector = |name, part| Param::glorot(name, 1, heads.width(), heads.count, heads.dim, key(part));
        OfRelation {
            linear: Linear::new(in_dim, heads.width(), false, key(0)),
            source: vector("source", 1),
            target: vector("target", 2),
        }
    });
    let relations = relations.collect();
    let types = if no_own_rows { 0 } else { schema.num_types() };
    let own = (0..types).map(|t| {
        Linear::named(["own.weight", "bias"], in_dim, out_dim, true, keyed::key(&[key, 1, t as u64]))
    });
    Ok(Box::new(RGat {
        spec: TypedLayerSpec { in_dim, out_dim, aggregation: Aggregation::Other },
        heads,
        attention_dropout: config.own.get::<GatOptions>().attention_dropout as f32,
        relations,
        own: own.collect(),
        biases: (types..schema.num_types()).map(|_| Param::zeros("bias", 1, out_dim)).collect(),
    }))
}

/// Matrices of a pass.
#[derive(Clone, Debug, Default)]
struct State {
    relations: Vec<OfPass>,
    scratch: Matrix,
    z_grad: Matrix,
    source_grad: Matrix,
    target_grad: Matrix,
    vector_grad: Matrix,
    /// Weights of the types' own rows, after the projection.
    own: Vec<FoldedWeight>,
}

/// Matrices of a relation in a pass.
#[derive(Clone, Debug, Default)]
struct OfPass {
    stacked: Stacked,
    /// Stacked rows, `(D + S) x H C`; those of the destinations are 0.
    z: Matrix,
    /// Parts of the scores, `(D + S) x H`.
    source: Matrix,
    target: Matrix,
    /// `W_r b_r`, `F x H`.
    vector: Matrix,
    attention: Attention,
    /// Weights of sources and destinations after their projections.
    of_source: FoldedWeight,
    of_target: FoldedWeight,
    features: FeatureAttention,
}

impl RGat {
    /// Computes the heads' rows of relation `r`.
    fn attend(
        &self,
        pass: &Pass,
        input: &TypedInput,
        r: usize,
        of: &mut OfPass,
    ) -> graphmill_core::Result<()> {
        let ([src, dst], heads, backend) = (input.ends(r), self.heads, pass.backend);
        let OfRelation { linear, source: a, .. } = &self.relations[r];
        let OfPass { stacked, z, source, target, vector, attention, of_source, of_target, features } = of;
        let projection = input.projection(src);
        let epilogue = attention_epilogue(pass, self.attention_dropout, r);
        if let Some(x) = projection.filter(|_| fits(pass, input, r, heads)) {
            target.resize(input.block.num_dst[dst], heads.count);
            self.targets(pass, input, r, (vector, of_target), target.view_mut());
            let of = OfSource { linear, vector: a, heads, slope: SLOPE };
            let results = [target, &mut attention.sum];
            features.forward(pass, (input, r, x), &of, epilogue.dropout, results);
            return Ok(());
        }
        stacked.join(pass, input, dst, [r].into_iter())?;
        let (own, rows) = (stacked.own(), stacked.rows(0));
        z.resize(stacked.num_rows(), heads.width());
        backend.fill(0.0, z.rows_mut(own.clone()));
        match projection {
            Some(x) => of_source.forward(pass, linear, x, z.rows_mut(rows.clone())),
            None => linear.forward_product(pass, input.x[src].view(), 0.0, z.rows_mut(rows.clone())),
        }
        source.resize(stacked.num_rows(), heads.count);
        backend.fill(NEVER, source.rows_mut(own.clone()));
        let out = source.rows_mut(rows.clone());
        HeadDot { z: z.rows(rows.clone()), a: a.value.view(), heads: heads.count, out }.run(backend);
        target.resize(stacked.num_rows(), heads.count);
        backend.fill(0.0, target.rows_mut(rows));
        self.targets(pass, input, r, (vector, of_target), target.rows_mut(own));
        attention.alpha.resize(stacked.num_entries(), heads.count);
        EdgeSoftmax {
            block: &stacked.block,
            source: source.view(),
            target: target.view(),
            slope: SLOPE,
            alpha: attention.alpha.view_mut(),
        }
        .run(backend);
        attention.attend(pass, epilogue, &stacked.block, z.view());
        Ok(())
    }

    /// Computes the destinations' part of the scores of relation `r`, `x[v] W_r b_r` by head.
    fn targets(
        &self,
        pass: &Pass,
        input: &TypedInput,
        r: usize,
        (vector, folded): (&mut Matrix, &mut FoldedWeight),
        out: ViewMut,
    ) {
        let (dst, backend, heads) = (input.ends(r)[1], pass.backend, self.heads.count);
        let OfRelation { linear, target, .. } = &self.relations[r];
        vector.resize(self.spec.in_dim, heads);
        let (z, a) = (linear.weight().value.view(), target.value.view());
        HeadDot { z, a, heads, out: vector.view_mut() }.run(backend);
        let times_vector = |x: View, beta, c: ViewMut| {
            Gemm { a: (x, Plain), b: (vector.view(), Plain), beta, c }.run(backend);
        };
        let Some(x) = input.projection(dst) else { return times_vector(input.own_rows(dst), 0.0, out) };
        folded.fill(x, heads, |x, to| times_vector(x, 0.0, to));
        let (x, w, bias) = (x.features.rows(0..out.num_rows()), folded.weight.view(), folded.bias.view());
        let (activation, dropout) = (Activation::Identity, Dropout::NONE);
        Dense { x, w, plus: None, beta: 0.0, bias: Some(bias), activation, dropout, out }.run(backend);
    }

    /// Gradients of [`RGat::targets`].
    fn backward_targets(
        of: &mut OfRelation,
        pass: &Pass,
        (input, r): (&TypedInput, usize),
        (vector, vector_grad, folded): (&Matrix, &mut Matrix, &mut FoldedWeight),
        grad: View,
        (x_grad, projections): (&mut [Matrix], &mut [ProjectionGrad]),
    ) {
        let (dst, backend) = (input.ends(r)[1], pass.backend);
        vector_grad.resize(vector.num_rows(), vector.num_cols());
        let through = |a: View, b: View, beta, c: ViewMut| {
            Gemm { a: (a, Transposed), b: (b, Plain), beta, c }.run(backend);
        };
        let times_vector = |grad: View, c: ViewMut| {
            Gemm { a: (grad, Plain), b: (vector.view(), Transposed), beta: 1.0, c }.run(backend);
        };
        if let Some(x) = input.projection(dst) {
            folded.fit_grads();
            let features = x.features.rows(0..grad.num_rows());
            through(features, grad, 0.0, folded.weight_grad.view_mut());
            backend.fill(0.0, folded.bias_grad.view_mut());
            backend.add_column_sums(grad, folded.bias_grad.view_mut());
            for (i, (x, grad)) in folded.pairs(x).into_iter().enumerate() {
                through(x, grad, i as f32, vector_grad.view_mut());
            }
            folded.add_to(&mut projections[dst], times_vector);
        } else {
            through(input.own_rows(dst), grad, 0.0, vector_grad.view_mut());
            times_vector(grad, x_grad[dst].rows_mut(0..grad.num_rows()));
        }
        let weight = of.linear.weight_mut();
        HeadDotBackward {
            z: weight.value.view(),
            a: of.target.value.view(),
            heads: vector.num_cols(),
            grad: vector_grad.view(),
            z_grad: weight.grad.view_mut(),
            a_grad: of.target.grad.view_mut(),
        }
        .run(backend);
    }

    /// Gradients of relation `r` from that of its heads' rows.
    fn backward_relation(
        &mut self,
        pass: &Pass,
        input: &TypedInput,
        r: usize,
        state: &mut State,
        (x_grad, projections): (&mut [Matrix], &mut [ProjectionGrad]),
    ) {
        let ([src, _], heads, backend) = (input.ends(r), self.heads, pass.backend);
        let dropout = attention_epilogue(pass, self.attention_dropout, r);
        let of = &mut self.relations[r];
        let State { relations, z_grad, source_grad, target_grad, vector_grad, .. } = state;
        let OfPass { stacked, z, source, target, vector, attention, of_source, of_target, features } =
            &mut relations[r];
        let projection = input.projection(src);
        if let Some(x) = projection.filter(|_| fits(pass, input, r, heads)) {
            let to = (attention.sum_grad.view(), &mut *target_grad, &mut projections[src]);
            let layer = (&mut of.linear, &mut of.source, (heads, SLOPE));
            features.backward(pass, (input, r, x), layer, dropout.dropout, to);
            let of_targets = (&*vector, vector_grad, of_target);
            let to = (x_grad, projections);
            return Self::backward_targets(of, pass, (input, r), of_targets, target_grad.view(), to);
        }
        let (own, rows) = (stacked.own(), stacked.rows(0));
        attention.backward(pass, dropout, &stacked.block, z.view(), z_grad);
        source_grad.resize(stacked.num_rows(), heads.count);
        target_grad.resize(stacked.num_rows(), heads.count);
        EdgeSoftmaxBackward {
            block: &stacked.block,
            source: source.view(),
            target: target.view(),
            slope: SLOPE,
            alpha: attention.alpha.view(),
            alpha_grad: attention.alpha_grad.view(),
            scratch: attention.scratch.view_mut(),
            source_grad: source_grad.view_mut(),
            target_grad: target_grad.view_mut(),
        }
        .run(backend);
        HeadDotBackward {
            z: z.rows(rows.clone()),
            a: of.source.value.view(),
            heads: heads.count,
            grad: source_grad.rows(rows.clone()),
            z_grad: z_grad.rows_mut(rows.clone()),
            a_grad: of.source.grad.view_mut(),
        }
        .run(backend);
        let z_grad = z_grad.rows(rows);
        match projection {
            Some(x) => of_source.backward(pass, &mut of.linear, x, z_grad, &mut projections[src]),
            None => {
                backward_linear(pass, &mut of.linear, input.x[src].view(), z_grad, x_grad[src].view_mut());
            }
        }
        let of_targets = (&*vector, vector_grad, of_target);
        let to = (x_grad, projections);
        Self::backward_targets(of, pass, (input, r), of_targets, target_grad.rows(own), to);
    }
}

impl TypedLayer for RGat {
    fn spec(&self) -> TypedLayerSpec {
        self.spec
    }

    fn reads_projections(&self) -> bool {
        true
    }

    fn visit<'a>(&'a self, see: &mut dyn FnMut(Scope, &'a Param)) {
        for (t, own) in self.own.iter().enumerate() {
            own.visit(&mut |p| see(Scope::Type(t), p));
        }
        self.biases.iter().enumerate().for_each(|(t, p)| see(Scope::Type(t), p));
        for (r, OfRelation { linear, source, target }) in self.relations.iter().enumerate() {
            [linear.weight(), source, target].into_iter().for_each(|p| see(Scope::Relation(r), p));
        }
    }

    fn visit_mut(&mut self, see: &mut dyn FnMut(Scope, &mut Param)) {
        for (t, own) in self.own.iter_mut().enumerate() {
            own.visit_mut(&mut |p| see(Scope::Type(t), p));
        }
        self.biases.iter_mut().enumerate().for_each(|(t, p)| see(Scope::Type(t), p));
        for (r, OfRelation { linear, source, target }) in self.relations.iter_mut().enumerate() {
            [linear.weight_mut(), source, target].into_iter().for_each(|p| see(Scope::Relation(r), p));
        }
    }

    fn forward(
        &self,
        pass: &Pass,
        input: &TypedInput,
        saved: &mut Saved,
        out: &mut [Matrix],
    ) -> graphmill_core::Result<()> {
        let State { relations, scratch, own: folded, .. } = saved.state();
        folded.resize_with(input.schema.num_types(), FoldedWeight::default);
        relations.resize_with(self.relations.len(), OfPass::default);
        resize_outputs(pass, input, self.spec.out_dim, self.own.is_empty(), out);
        for (t, out) in out.iter_mut().enumerate() {
            match (self.own.get(t), input.projection(t)) {
                (Some(own), Some(x)) => folded[t].forward(pass, own, x, out.view_mut()),
                (Some(own), None) => {
                    own.forward(pass, input.own_rows(t), 0.0, Epilogue::NONE, out.view_mut());
                }
                (None, _) => Epilogue::NONE.apply(pass.backend, self.biases.get(t), out.view_mut()),
            }
        }
        for (r, of) in relations.iter_mut().enumerate().filter(|(r, _)| input.has_edges(*r)) {
            self.attend(pass, input, r, of)?;
            let out = out[input.ends(r)[1]].view_mut();
            self.heads.add(pass, of.attention.sum.view(), scratch, out);
        }
        Ok(())
    }

    fn backward(&mut self, pass: &Pass, input: &TypedInput, saved: &mut Saved, mut grads: TypedGrads) {
        grads.clear_input(pass, input);
        let TypedGrads { grad, x_grad, projections, .. } = grads;
        let state = saved.state::<State>();
        for (t, grad) in grad.iter().enumerate() {
            match (self.own.get_mut(t), input.projection(t)) {
                (Some(own), Some(x)) => {
                    state.own[t].backward(pass, own, x, grad.view(), &mut projections[t]);
                }
                (Some(own), None) => {
                    let x_grad = x_grad[t].rows_mut(0..grad.num_rows());
                    backward_linear(pass, own, input.own_rows(t), grad.view(), x_grad);
                }
                (None, _) => pass.backend.add_column_sums(grad.view(), self.biases[t].grad.view_mut()),
            }
        }
        for r in (0..self.relations.len()).filter(|&r| input.has_edges(r)) {
            let grad = grad[input.ends(r)[1]].view();
            self.heads.backward(pass, grad, &mut state.relations[r].attention.sum_grad);
            self.backward_relation(pass, input, r, state, (x_grad, projections));
        }
    }
}
