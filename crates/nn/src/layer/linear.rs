//! The dense layer `y = epilogue(x W + b)`, row by row: a part of other layers and of models.

use crate::{
    Matrix, Param, Pass, View, ViewMut,
    backend::{
        Side::{Plain, Transposed},
        ops::{Dense, Gemm, WeightGradients},
    },
    layer::Epilogue,
};

/// `y = epilogue(x W + b)`.
///
/// # Shapes
/// - `weight`: `F x O`, uniform, as [`super::Init`] says
/// - `bias`: `1 x O`, zeros; may be left out
/// - in `R x F`, out `R x O`
#[derive(Clone, Debug)]
pub struct Linear {
    weight: Param,
    bias: Option<Param>,
}

impl Linear {
    /// With random weights from the stream of `key`.
    pub fn new(in_dim: usize, out_dim: usize, bias: bool, key: u64) -> Self {
        Self::named(["weight", "bias"], in_dim, out_dim, bias, key)
    }

    /// The same with other names for weight and bias: a layer with several parts needs them to
    /// differ.
    pub fn named(names: [&'static str; 2], in_dim: usize, out_dim: usize, bias: bool, key: u64) -> Self {
        Self {
            weight: Param::dense(names[0], in_dim, out_dim, out_dim, key),
            bias: bias.then(|| Param::zeros(names[1], 1, out_dim)),
        }
    }

    /// `parts` layers side by side, without bias: each part's random weights are as for itself.
    pub fn parts(name: &'static str, in_dim: usize, out_dim: usize, parts: usize, key: u64) -> Self {
        Self { weight: Param::dense(name, in_dim, out_dim, out_dim / parts.max(1), key), bias: None }
    }

    /// `F`.
    pub fn in_dim(&self) -> usize {
        self.weight.value.num_rows()
    }

    /// `O`.
    pub fn out_dim(&self) -> usize {
        self.weight.value.num_cols()
    }

    /// The weight.
    pub fn weight(&self) -> &Param {
        &self.weight
    }

    /// The weight, to be changed.
    pub fn weight_mut(&mut self) -> &mut Param {
        &mut self.weight
    }

    /// The bias.
    pub fn bias(&self) -> Option<&Param> {
        self.bias.as_ref()
    }

    /// The bias, to be changed.
    pub fn bias_mut(&mut self) -> Option<&mut Param> {
        self.bias.as_mut()
    }

    /// Shows weight and bias.
    pub fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param)) {
        see(&self.weight);
        self.bias.iter().for_each(see);
    }

    /// Shows weight and bias for change.
    pub fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        see(&mut self.weight);
        self.bias.iter_mut().for_each(see);
    }

    /// `out = epilogue(beta out + x W + b)`, `R x F` to `R x O`; with `beta == 0` the old `out` is
    /// not read.
    pub fn forward(&self, pass: &Pass, x: View, beta: f32, epilogue: Epilogue, out: ViewMut) {
        if self.bias.is_none() && epilogue == Epilogue::NONE {
            return self.forward_product(pass, x, beta, out);
        }
        let (w, bias) = (self.weight.value.view(), self.bias.as_ref().map(|bias| bias.value.view()));
        let Epilogue { activation, dropout } = epilogue;
        Dense { x, w, beta, bias, activation, dropout, out }.run(pass.backend);
    }

    /// `out = beta out + x W`: without bias.
    pub fn forward_product(&self, pass: &Pass, x: View, beta: f32, out: ViewMut) {
        Gemm { a: (x, Plain), b: (self.weight.value.view(), Plain), beta, c: out }.run(pass.backend);
    }

    /// Adds to the gradients of weight and bias, with `y` the output of [`Linear::forward`]. `grad`
    /// (`R x O`) becomes the gradient before the epilogue; `x_grad` (resized to `R x F`) is
    /// overwritten where it is wanted.
    pub fn backward(
        &mut self,
        pass: &Pass,
        x: View,
        y: View,
        epilogue: Epilogue,
        grad: &mut Matrix,
        x_grad: Option<&mut Matrix>,
    ) {
        epilogue.backward(pass.backend, self.bias.as_mut(), y, grad.view_mut());
        self.backward_product(pass, x, grad.view());
        if let Some(x_grad) = x_grad {
            x_grad.resize(grad.num_rows(), self.in_dim());
            self.input_grad(pass, grad.view(), 0.0, x_grad.view_mut());
        }
    }

    /// Adds the gradient of the weight, `x^T grad`.
    pub fn backward_product(&mut self, pass: &Pass, x: View, grad: View) {
        Gemm { a: (x, Transposed), b: (grad, Plain), beta: 1.0, c: self.weight.grad.view_mut() }
            .run(pass.backend);
    }

    /// [`Linear::backward_product`] for two layers whose outputs were added: `grad` is that of the
    /// sum.
    pub fn backward_products(pass: &Pass, of: [&mut Self; 2], x: [View; 2], grad: View) {
        let grads = of.map(|linear| linear.weight.grad.view_mut());
        WeightGradients { a: x, b: grad, beta: 1.0, c: grads }.run(pass.backend);
    }

    /// `x_grad = beta x_grad + grad W^T`.
    pub fn input_grad(&self, pass: &Pass, grad: View, beta: f32, x_grad: ViewMut) {
        Gemm { a: (grad, Plain), b: (self.weight.value.view(), Transposed), beta, c: x_grad }
            .run(pass.backend);
    }
}
