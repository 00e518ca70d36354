//! Heterogeneous graph transformer (HGT).
//!
//! # Algorithm
//!
//! For each head of width `d`, with `k = x K_type + ..`, `q = x Q_type + ..`, `v = x V_type + ..`
//! and for each relation `r` two matrices `A_r`, `M_r` and a prior `mu_r`:
//!
//! ```text
//! score(u, w) = (k[u] A_r) . q[w] mu_r / sqrt(d)
//! alpha[., w] = softmax over all in-neighbours of w, by any relation
//! a[w] = gelu(sum over u of dropout(alpha[u, w]) v[u] M_r) O_type + c_type
//! out[w] = beta a[w] + (1 - beta) x[w],   beta = sigmoid(skip_type)
//! ```
//!
//! A layer whose widths differ has no skip: `out = a`.
//!
//! # Source
//!
//! Hu, Dong, Wang and Sun, *Heterogeneous graph transformer*, WWW 2020, section 3.2, equations 3 to
//! 5; the skip weights and initial values are those of the authors' code (`pyHGT`).
//!
//! # Cost
//!
//! `3 S F H d + 2 R S H d^2 + 2 E H d` multiplications.
//!
//! # Deviations
//!
//! Without the relative temporal encoding (section 3.3). Softmax over the edges of a block, so over
//! sampled neighbours.

use graphmill_core::{block::Aggregation, keyed};

use super::{
    Scope, TypedInput, TypedLayer, TypedLayerConfig, TypedLayerSpec,
    heads::{Heads, backward_linear},
    layer::{TypedGrads, resize_outputs},
    stacked::{Attention, Stacked, attention_epilogue},
};
use crate::{
    Epilogue, Error, Matrix, Param, Pass, Result, Saved, View, ViewMut,
    backend::{
        Side::{Plain, Transposed},
        ops::{
            DotSoftmax, DotSoftmaxBackward, GeluBackward, GeluForward, HeadGemm, ScaleHeads,
            ScaleHeadsBackward, Skip, SkipBackward,
        },
    },
    layer::{GatOptions, Linear},
};

/// A layer of the heterogeneous graph transformer; the head of its source file has the formula.
///
/// # Shapes
/// - `key.weight`, `query.weight`, `value.weight` of a type: `F x (H d)`, with biases;
///   `out.weight`: `(H d) x O`; `skip`: `1 x 1`
/// - `attention`, `message` of a relation: `d x (H d)`; `prior`: `1 x H`
#[derive(Clone, Debug)]
pub struct Hgt {
    spec: TypedLayerSpec,
    heads: Heads,
    attention_dropout: f32,
    types: Vec<OfType>,
    relations: Vec<OfRelation>,
}

#[derive(Clone, Debug)]
struct OfType {
    key: Linear,
    query: Linear,
    value: Linear,
    out: Linear,
    skip: Option<Param>,
}

#[derive(Clone, Debug)]
struct OfRelation {
    attention: Param,
    message: Param,
    prior: Param,
}

/// Makes a layer.
pub(super) fn make(config: &TypedLayerConfig) -> Result<Box<dyn TypedLayer>> {
    let &TypedLayerConfig { schema, in_dim, out_dim, key, .. } = config;
    if config.scores {
        let message = "a layer keeps the width of its rows, so it cannot compute scores; use --head-layers 1";
        return Err(Error::config("head_layers", 0, message));
    }
    let heads = Heads::new(config)?;
    let (width, dim) = (heads.width(), heads.dim);
    let of_type = |t: usize| {
        let linear = |names, [from, to]: [usize; 2], part| {
            Linear::named(names, from, to, true, keyed::key(&[key, 0, t as u64, part]))
        };
        OfType {
            key: linear(["key.weight", "key.bias"], [in_dim, width], 0),
            query: linear(["query.weight", "query.bias"], [in_dim, width], 1),
            value: linear(["value.weight", "value.bias"], [in_dim, width], 2),
            out: linear(["out.weight", "out.bias"], [width, out_dim], 3),
            skip: (in_dim == out_dim).then(|| Param::constant("skip", 1, 1, 1.0)),
        }
    };
    let of_relation = |r: usize| {
        let square =
            |name, part| Param::glorot(name, dim, width, dim, dim, keyed::key(&[key, 1, r as u64, part]));
        OfRelation {
            attention: square("attention", 0),
            message: square("message", 1),
            prior: Param::constant("prior", 1, heads.count, 1.0),
        }
    };
    Ok(Box::new(Hgt {
        spec: TypedLayerSpec { in_dim, out_dim, aggregation: Aggregation::Other },
        heads,
        attention_dropout: config.own.get::<GatOptions>().attention_dropout as f32,
        types: (0..schema.num_types()).map(of_type).collect(),
        relations: (0..schema.num_relations()).map(of_relation).collect(),
    }))
}

/// Matrices of a pass.
#[derive(Clone, Debug, Default)]
struct State {
    /// Keys and values of each type, `S x H d`, and their gradients.
    rows: Vec<[Matrix; 2]>,
    grads: Vec<[Matrix; 2]>,
    targets: Vec<OfTarget>,
    /// `mu_r A_r` of each relation, `d x H d`.
    scaled: Vec<Matrix>,
    scaled_grad: Matrix,
    stacked_grads: [Matrix; 2],
    query_grad: Matrix,
    sum_grad: Matrix,
}

/// Matrices of a destination type in a pass.
#[derive(Clone, Debug, Default)]
struct OfTarget {
    stacked: Stacked,
    /// Stacked keys and values, with rows of 0 for the destinations themselves.
    rows: [Matrix; 2],
    query: Matrix,
    attention: Attention,
    /// After the unit, `D x H d`.
    activated: Matrix,
    /// `a` of the formula, `D x O`; only with a skip.
    mixed: Matrix,
}

impl Hgt {
    fn scale(&self) -> f32 {
        (self.heads.dim as f32).sqrt().recip()
    }

    /// Product of rows with a relation's matrices by heads, `R x H d` each.
    fn by_heads(&self, pass: &Pass, a: View, b: View, beta: f32, c: ViewMut) {
        HeadGemm { heads: self.heads.count, a: (a, Plain), b: (b, Plain), beta, c }.run(pass.backend);
    }

    /// Computes keys and values of all types that are sources, and the relations' scaled matrices.
    fn prepare(&self, pass: &Pass, input: &TypedInput, state: &mut State) {
        state.rows.resize_with(self.types.len(), Default::default);
        state.scaled.resize_with(self.relations.len(), Matrix::default);
        for (s, of) in self.types.iter().enumerate() {
            if !(0..self.relations.len()).any(|r| input.ends(r)[0] == s && input.has_edges(r)) {
                continue;
            }
            let x = input.x[s].view();
            for (linear, rows) in [&of.key, &of.value].into_iter().zip(&mut state.rows[s]) {
                rows.resize(x.num_rows(), self.heads.width());
                linear.forward(pass, x, 0.0, Epilogue::NONE, rows.view_mut());
            }
        }
        let (width, dim) = (self.heads.width(), self.heads.dim);
        for (of, scaled) in self.relations.iter().zip(&mut state.scaled) {
            scaled.resize(dim, width);
            let (factors, x) = (of.prior.value.view(), of.attention.value.view());
            ScaleHeads { factors, x, out: scaled.view_mut() }.run(pass.backend);
        }
    }

    /// Computes [`Attention::sum`] of type `t`; zeros if no relation into it has edges.
    fn attend(
        &self,
        pass: &Pass,
        input: &TypedInput,
        t: usize,
        sources: &[[Matrix; 2]],
        scaled: &[Matrix],
        of: &mut OfTarget,
    ) -> graphmill_core::Result<()> {
        let (heads, backend) = (self.heads, pass.backend);
        let OfTarget { stacked, rows, query, attention, .. } = of;
        stacked.join(pass, input, t, input.schema.into_type(t))?;
        if stacked.relations.is_empty() {
            attention.sum.resize(input.block.num_dst[t], heads.width());
            backend.fill(0.0, attention.sum.view_mut());
            return Ok(());
        }
        for rows in rows.iter_mut() {
            rows.resize(stacked.num_rows(), heads.width());
            backend.fill(0.0, rows.rows_mut(stacked.own()));
        }
        for (i, &r) in stacked.relations.iter().enumerate() {
            let of = &self.relations[r];
            let [keys, values] = &sources[input.ends(r)[0]];
            self.by_heads(pass, keys.view(), scaled[r].view(), 0.0, rows[0].rows_mut(stacked.rows(i)));
            let (message, out) = (of.message.value.view(), rows[1].rows_mut(stacked.rows(i)));
            self.by_heads(pass, values.view(), message, 0.0, out);
        }
        query.resize(input.block.num_dst[t], heads.width());
        self.types[t].query.forward(pass, input.own_rows(t), 0.0, Epilogue::NONE, query.view_mut());
        attention.alpha.resize(stacked.num_entries(), heads.count);
        let alpha = attention.alpha.view_mut();
        let (block, key) = (&stacked.block, rows[0].view());
        DotSoftmax { block, query: query.view(), key, scale: self.scale(), alpha }.run(backend);
        attention.attend(pass, attention_epilogue(pass, self.attention_dropout, t), block, rows[1].view());
        Ok(())
    }

    /// Passes the gradient of [`Attention::sum`] of type `t` on to its queries, and to the keys and
    /// values of its sources.
    fn backward_attention(
        &mut self,
        pass: &Pass,
        input: &TypedInput,
        t: usize,
        state: &mut State,
        x_grad: &mut Matrix,
    ) {
        let (heads, scale, backend) = (self.heads, self.scale(), pass.backend);
        let State { rows: sources, grads, targets, scaled, scaled_grad, stacked_grads, query_grad, .. } =
            state;
        let OfTarget { stacked, rows, query, attention, .. } = &mut targets[t];
        let dropout = attention_epilogue(pass, self.attention_dropout, t);
        let [keys_grad, values_grad] = stacked_grads;
        attention.backward(pass, dropout, &stacked.block, rows[1].view(), values_grad);
        query_grad.resize(query.num_rows(), query.num_cols());
        keys_grad.resize(stacked.num_rows(), heads.width());
        DotSoftmaxBackward {
            block: &stacked.block,
            query: query.view(),
            key: rows[0].view(),
            scale,
            alpha: attention.alpha.view(),
            alpha_grad: attention.alpha_grad.view(),
            scratch: attention.scratch.view_mut(),
            query_grad: query_grad.view_mut(),
            key_grad: keys_grad.view_mut(),
        }
        .run(backend);
        let own = x_grad.rows_mut(stacked.own());
        backward_linear(pass, &mut self.types[t].query, input.own_rows(t), query_grad.view(), own);
        for (i, &r) in stacked.relations.iter().enumerate() {
            let (src, range) = (input.ends(r)[0], stacked.rows(i));
            let OfRelation { attention, message, prior } = &mut self.relations[r];
            let heads = heads.count;
            let [of_keys, of_values] = &mut grads[src];
            // the keys, through mu_r A_r
            scaled_grad.resize(attention.value.num_rows(), attention.value.num_cols());
            let b = (keys_grad.rows(range.clone()), Plain);
            let a = (sources[src][0].view(), Transposed);
            HeadGemm { heads, a, b, beta: 0.0, c: scaled_grad.view_mut() }.run(backend);
            ScaleHeadsBackward {
                factors: prior.value.view(),
                x: attention.value.view(),
                grad: scaled_grad.view(),
                factors_grad: prior.grad.view_mut(),
                x_grad: attention.grad.view_mut(),
            }
            .run(backend);
            let (weight, c) = ((scaled[r].view(), Transposed), of_keys.view_mut());
            HeadGemm { heads, a: b, b: weight, beta: 1.0, c }.run(backend);
            // the values, through M_r
            let b = (values_grad.rows(range), Plain);
            let (a, c) = ((sources[src][1].view(), Transposed), message.grad.view_mut());
            HeadGemm { heads, a, b, beta: 1.0, c }.run(backend);
            let (weight, c) = ((message.value.view(), Transposed), of_values.view_mut());
            HeadGemm { heads, a: b, b: weight, beta: 1.0, c }.run(backend);
        }
    }
}

impl TypedLayer for Hgt {
    fn spec(&self) -> TypedLayerSpec {
        self.spec
    }

    fn visit<'a>(&'a self, see: &mut dyn FnMut(Scope, &'a Param)) {
        for (t, OfType { key, query, value, out, skip }) in self.types.iter().enumerate() {
            for linear in [key, query, value, out] {
                linear.visit(&mut |p| see(Scope::Type(t), p));
            }
            skip.iter().for_each(|p| see(Scope::Type(t), p));
        }
        for (r, OfRelation { attention, message, prior }) in self.relations.iter().enumerate() {
            [attention, message, prior].into_iter().for_each(|p| see(Scope::Relation(r), p));
        }
    }

    fn visit_mut(&mut self, see: &mut dyn FnMut(Scope, &mut Param)) {
        for (t, OfType { key, query, value, out, skip }) in self.types.iter_mut().enumerate() {
            for linear in [key, query, value, out] {
                linear.visit_mut(&mut |p| see(Scope::Type(t), p));
            }
            skip.iter_mut().for_each(|p| see(Scope::Type(t), p));
        }
        for (r, OfRelation { attention, message, prior }) in self.relations.iter_mut().enumerate() {
            [attention, message, prior].into_iter().for_each(|p| see(Scope::Relation(r), p));
        }
    }

    fn forward(
        &self,
        pass: &Pass,
        input: &TypedInput,
        saved: &mut Saved,
        out: &mut [Matrix],
    ) -> graphmill_core::Result<()> {
        let (state, backend) = (saved.state::<State>(), pass.backend);
        self.prepare(pass, input, state);
        resize_outputs(pass, input, self.spec.out_dim, false, out);
        state.targets.resize_with(self.types.len(), OfTarget::default);
        for (t, out) in out.iter_mut().enumerate().filter(|(t, _)| input.block.num_dst[*t] > 0) {
            let target = &mut state.targets[t];
            self.attend(pass, input, t, &state.rows, &state.scaled, target)?;
            let OfTarget { attention, activated, mixed, .. } = target;
            let of = &self.types[t];
            activated.resize(attention.sum.num_rows(), attention.sum.num_cols());
            GeluForward { x: attention.sum.view(), out: activated.view_mut() }.run(backend);
            of.out.forward(pass, activated.view(), 0.0, Epilogue::NONE, out.view_mut());
            if let Some(skip) = &of.skip {
                mixed.resize(out.num_rows(), out.num_cols());
                backend.copy(out.view(), mixed.view_mut());
                let (skip, x, y) = (skip.value.view(), input.own_rows(t), out.view_mut());
                Skip { skip, x, y }.run(backend);
            }
        }
        Ok(())
    }

    fn backward(&mut self, pass: &Pass, input: &TypedInput, saved: &mut Saved, mut grads: TypedGrads) {
        grads.clear_input(pass, input);
        let TypedGrads { grad, x_grad, .. } = grads;
        let (state, backend) = (saved.state::<State>(), pass.backend);
        state.grads.resize_with(self.types.len(), Default::default);
        for (rows, grads) in state.rows.iter().zip(&mut state.grads) {
            for (rows, grad) in rows.iter().zip(grads) {
                grad.resize(rows.num_rows(), rows.num_cols());
                backend.fill(0.0, grad.view_mut());
            }
        }
        for (t, grad) in grad.iter_mut().enumerate().filter(|(t, _)| input.block.num_dst[*t] > 0) {
            let (of, own) = (&mut self.types[t], 0..input.block.num_dst[t]);
            let OfTarget { attention, activated, mixed, stacked, .. } = &mut state.targets[t];
            if let Some(skip) = &mut of.skip {
                SkipBackward {
                    skip: skip.value.view(),
                    x: input.own_rows(t),
                    y: mixed.view(),
                    grad: grad.view_mut(),
                    x_grad: x_grad[t].rows_mut(own),
                    skip_grad: skip.grad.view_mut(),
                }
                .run(backend);
            }
            let sum_grad = &mut state.sum_grad;
            sum_grad.resize(activated.num_rows(), activated.num_cols());
            backend.fill(0.0, sum_grad.view_mut());
            backward_linear(pass, &mut of.out, activated.view(), grad.view(), sum_grad.view_mut());
            GeluBackward { x: attention.sum.view(), grad: sum_grad.view_mut() }.run(backend);
            if stacked.relations.is_empty() {
                continue;
            }
            attention.sum_grad.resize(sum_grad.num_rows(), sum_grad.num_cols());
            backend.copy(sum_grad.view(), attention.sum_grad.view_mut());
            self.backward_attention(pass, input, t, state, &mut x_grad[t]);
        }
        for (s, of) in self.types.iter_mut().enumerate() {
            if !(0..self.relations.len()).any(|r| input.ends(r)[0] == s && input.has_edges(r)) {
                continue;
            }
            for (linear, grad) in [&mut of.key, &mut of.value].into_iter().zip(&state.grads[s]) {
                backward_linear(pass, linear, input.x[s].view(), grad.view(), x_grad[s].view_mut());
            }
        }
    }
}
