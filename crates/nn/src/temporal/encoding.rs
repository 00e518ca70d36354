//! Time differences as rows of cosines.

use rayon::prelude::*;

use crate::{
    Matrix, Param, View,
    backend::cpu::{Waves, cosines},
};

/// Number of rows of a task.
const MIN_TASK_LEN: usize = 64;

/// Functional time encoding (Xu et al., *Inductive representation learning on temporal graphs*
/// (TGAT), ICLR 2020, section 3.1):
///
/// ```text
/// phi(t)[i] = cos(weight[i] t + bias[i])
/// ```
///
/// Weights start at `10^(-9 i / (d - 1))`, so that periods reach from seconds to decades, and
/// biases at 0; both are learned. Angles are computed in f64: a difference of seconds needs more
/// digits than f32 has.
#[derive(Clone, Debug)]
pub struct TimeEncoding {
    weight: Param,
    bias: Param,
}

impl TimeEncoding {
    /// Creates an encoding of `dim` columns.
    pub fn new(dim: usize) -> Self {
        let mut weight = Param::zeros("time.weight", 1, dim);
        let last = dim.saturating_sub(1).max(1) as f64;
        let weights = weight.value.view_mut().host().iter_mut().enumerate();
        weights.for_each(|(i, x)| *x = 10f64.powf(-9.0 * i as f64 / last) as f32);
        Self { weight, bias: Param::zeros("time.bias", 1, dim) }
    }

    /// Number of columns, `d`.
    pub fn dim(&self) -> usize {
        self.weight.value.num_cols()
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

    /// Returns true if weights or biases are learned, so that the encoding needs a gradient.
    pub(super) fn is_learned(&self) -> bool {
        self.weight.trainable || self.bias.trainable
    }

    /// Encodes differences; `out` is resized to `R x d`.
    pub fn forward(&self, differences: &[f64], out: &mut Matrix) {
        out.resize(differences.len(), self.dim());
        self.forward_into(differences, 0, out);
    }

    /// Encodes differences into the columns of `out` from `first` on.
    ///
    /// # Panics
    /// `out` has another number of rows, or too few columns: a bug in the caller.
    pub(super) fn forward_into(&self, differences: &[f64], first: usize, out: &mut Matrix) {
        let width = out.num_cols();
        assert!(out.num_rows() == differences.len() && first + self.dim() <= width, "encoded times");
        let wide = |param: &Param| param.value.view().host().iter().map(|&x| x.into()).collect::<Vec<f64>>();
        let waves = Waves::new(&wide(&self.weight), &wide(&self.bias));
        let tasks = out.view_mut().host().par_chunks_mut((MIN_TASK_LEN * width).max(1));
        let tasks = tasks.zip(differences.par_chunks(MIN_TASK_LEN));
        tasks.for_each(|(rows, times)| cosines(&waves, times, (rows, width, first)));
    }

    /// Adds to the gradients of both parameters, if they are trainable; `grad` (`R x d`) is that of
    /// the encoding.
    pub fn backward(&mut self, differences: &[f64], grad: View) {
        if !self.is_learned() {
            return;
        }
        let dim = self.dim();
        let (weight, bias) = (self.weight.value.view().host(), self.bias.value.view().host());
        let grad = grad.host();
        // a column's sum runs over the rows in order
        let sum = |i: usize| {
            let (w, b) = (f64::from(weight[i]), f64::from(bias[i]));
            let term = |(r, &t): (usize, &f64)| {
                let g = -f64::from(grad[r * dim + i]) * (w * t + b).sin();
                [g * t, g]
            };
            differences.iter().enumerate().map(term).fold([0.0; 2], |a, x| [a[0] + x[0], a[1] + x[1]])
        };
        let sums: Vec<[f64; 2]> = (0..dim).into_par_iter().map(sum).collect();
        for (part, param) in [&mut self.weight, &mut self.bias].into_iter().enumerate() {
            let grads = param.grad.view_mut().host().iter_mut().zip(&sums);
            grads.for_each(|(x, sum)| *x = (f64::from(*x) + sum[part]) as f32);
        }
    }
}
