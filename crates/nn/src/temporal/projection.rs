//! Rows of nodes, projected from the times of their last events to later ones.

use graphmill_core::keyed::{Stream, key};

use crate::{
    Matrix, Param, Pass, View,
    backend::{Dropout, dropped},
    layer::site,
};

/// Projection of JODIE (Kumar, Zhang and Leskovec, *Predicting dynamic embedding trajectory in
/// temporal interaction networks*, KDD 2019, section 3.2), in the form of TGN's authors (Rossi et
/// al., 2020). For a row `s` whose node had its last event a time `d` earlier:
///
/// ```text
/// out = dropout(s * (1 + d weight + bias))
/// ```
///
/// Weight and bias, `1 x M`, are drawn from the standard normal distribution, so differences should
/// have a deviation of about 1.
#[derive(Clone, Debug)]
pub struct TimeProjection {
    weight: Param,
    bias: Param,
    dropout: f32,
}

impl TimeProjection {
    /// Creates a projection of rows of `width` columns.
    pub fn new(width: usize, dropout: f32, of: u64) -> Self {
        let normal = |name, part| {
            let (mut param, mut stream) = (Param::zeros(name, 1, width), Stream::new(key(&[of, part])));
            param.value.view_mut().host().iter_mut().for_each(|x| *x = stream.normal() as f32);
            param
        };
        Self { weight: normal("projection.weight", 0), bias: normal("projection.bias", 1), dropout }
    }

    /// Visits both parameters.
    pub fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param)) {
        see(&self.weight);
        see(&self.bias);
    }

    /// Visits both parameters mutably.
    pub fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        see(&mut self.weight);
        see(&mut self.bias);
    }

    fn mask(&self, pass: &Pass) -> impl Fn(usize, usize) -> f32 + use<> {
        let dropout = pass.dropout(self.dropout, site::OUTPUT);
        let scale = dropout.scale();
        move |r, c| if dropout != Dropout::NONE && dropped(dropout, r, c) { 0.0 } else { scale }
    }

    /// Projects `rows`, `R x M`, by `R` differences; `out` is resized to `R x M`.
    pub fn forward(&self, pass: &Pass, rows: View, differences: &[f32], out: &mut Matrix) {
        let (width, mask) = (rows.num_cols(), self.mask(pass));
        out.resize(rows.num_rows(), width);
        let (weight, bias) = (self.weight.value.view().host(), self.bias.value.view().host());
        let lines = out.view_mut().host().chunks_exact_mut(width.max(1));
        let lines = lines.zip(rows.host().chunks_exact(width.max(1))).zip(differences).enumerate();
        for (r, ((to, row), d)) in lines {
            for (c, (to, x)) in to.iter_mut().zip(row).enumerate() {
                *to = mask(r, c) * x * (1.0 + d * weight[c] + bias[c]);
            }
        }
    }

    /// Adds to the gradients of both parameters, from that of the output, `R x M`; `rows_grad` is
    /// resized to `R x M` and overwritten.
    pub fn backward(
        &mut self,
        pass: &Pass,
        rows: View,
        differences: &[f32],
        grad: View,
        rows_grad: &mut Matrix,
    ) {
        let (width, mask) = (rows.num_cols(), self.mask(pass));
        rows_grad.resize(rows.num_rows(), width);
        let (weight, bias) = (self.weight.value.view().host(), self.bias.value.view().host());
        let mut sums = vec![[0.0f64; 2]; width];
        let lines = rows_grad.view_mut().host().chunks_exact_mut(width.max(1));
        let lines = lines.zip(rows.host().chunks_exact(width.max(1)));
        let lines = lines.zip(grad.host().chunks_exact(width.max(1))).zip(differences).enumerate();
        for (r, (((to, row), grad), d)) in lines {
            for (c, ((to, x), g)) in to.iter_mut().zip(row).zip(grad).enumerate() {
                let g = mask(r, c) * g;
                *to = g * (1.0 + d * weight[c] + bias[c]);
                sums[c][0] += f64::from(g * x * d);
                sums[c][1] += f64::from(g * x);
            }
        }
        for (part, param) in [&mut self.weight, &mut self.bias].into_iter().enumerate() {
            let grads = param.grad.view_mut().host().iter_mut().zip(&sums);
            grads.for_each(|(x, sum)| *x = (f64::from(*x) + sum[part]) as f32);
        }
    }
}
