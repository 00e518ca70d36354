//! The dense layer `y = epilogue(x W + b)`, row by row, a building block of other layers and of
//! models.

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
/// - `weight`: `F x O`, uniform, with the bound of [`super::Init`]
/// - `bias`: `1 x O`, zeros; optional
/// - in `R x F`, out `R x O`
#[derive(Clone, Debug)]
pub struct Linear {
    weight: Param,
    bias: Option<Param>,
}

impl Linear {
    /// Creates a layer with random weights from the stream of `key`.
    pub fn new(in_dim: usize, out_dim: usize, bias: bool, key: u64) -> Self {
        Self::named(["weight", "bias"], in_dim, out_dim, bias, key)
    }

    /// Creates a layer with other names for weight and bias: in a layer with several parts they
    /// must differ.
    pub fn named(names: [&'static str; 2], in_dim: usize, out_dim: usize, bias: bool, key: u64) -> Self {
        Self {
            weight: Param::dense(names[0], in_dim, out_dim, out_dim, key),
            bias: bias.then(|| Param::zeros(names[1], 1, out_dim)),
        }
    }

    /// Creates `parts` adjacent layers without bias, with the random weights that each would have
    /// alone.
    pub fn parts(name: &'static str, in_dim: usize, out_dim: usize, parts: usize, key: u64) -> Self {
        Self { weight: Param::dense(name, in_dim, out_dim, out_dim / parts.max(1), key), bias: None }
    }

    /// Width of the input rows, `F`.
    pub fn in_dim(&self) -> usize {
        self.weight.value.num_rows()
    }

    /// Width of the output rows, `O`.
    pub fn out_dim(&self) -> usize {
        self.weight.value.num_cols()
    }

    /// The weight.
    pub fn weight(&self) -> &Param {
        &self.weight
    }

    /// The weight, mutably.
    pub fn weight_mut(&mut self) -> &mut Param {
        &mut self.weight
    }

    /// The bias.
    pub fn bias(&self) -> Option<&Param> {
        self.bias.as_ref()
    }

    /// The bias, mutably.
    pub fn bias_mut(&mut self) -> Option<&mut Param> {
        self.bias.as_mut()
    }

    /// Visits weight and bias.
    pub fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param)) {
        see(&self.weight);
        self.bias.iter().for_each(see);
    }

    /// Visits weight and bias mutably.
    pub fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        see(&mut self.weight);
        self.bias.iter_mut().for_each(see);
    }

    /// Computes `out = epilogue(beta out + x W + b)`, `R x F` to `R x O`. If `beta == 0`, the old
    /// `out` is not read.
    pub fn forward(&self, pass: &Pass, x: View, beta: f32, epilogue: Epilogue, out: ViewMut) {
        if self.bias.is_none() && epilogue == Epilogue::NONE {
            return self.forward_product(pass, x, beta, out);
        }
        let (w, bias) = (self.weight.value.view(), self.bias.as_ref().map(|bias| bias.value.view()));
        let Epilogue { activation, dropout } = epilogue;
        Dense { x, w, plus: None, beta, bias, activation, dropout, out }.run(pass.backend);
    }

    /// Computes `out = epilogue(x0 W0 + x1 W1 + b1)` of two layers; the first has no bias.
    pub fn forward_sum(pass: &Pass, of: [&Self; 2], x: [View; 2], epilogue: Epilogue, out: ViewMut) {
        let [first, second] = of;
        let plus = Some((x[1], second.weight.value.view()));
        let bias = second.bias.as_ref().map(|bias| bias.value.view());
        let Epilogue { activation, dropout } = epilogue;
        let (x, w) = (x[0], first.weight.value.view());
        Dense { x, w, plus, beta: 0.0, bias, activation, dropout, out }.run(pass.backend);
    }

    /// Computes `out = beta out + x W`, without bias.
    pub fn forward_product(&self, pass: &Pass, x: View, beta: f32, out: ViewMut) {
        Gemm { a: (x, Plain), b: (self.weight.value.view(), Plain), beta, c: out }.run(pass.backend);
    }

    /// Adds to the gradients of weight and bias. `y` is the output of [`Linear::forward`]; `grad`
    /// (`R x O`) becomes the gradient before the epilogue; `x_grad`, if requested, is resized to
    /// `R x F` and overwritten.
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

    /// Adds to the gradient of the weight, `x^T grad`.
    pub fn backward_product(&mut self, pass: &Pass, x: View, grad: View) {
        Gemm { a: (x, Transposed), b: (grad, Plain), beta: 1.0, c: self.weight.grad.view_mut() }
            .run(pass.backend);
    }

    /// [`Linear::backward_product`] for two layers whose outputs were added: `grad` is the gradient
    /// of the sum.
    pub fn backward_products(pass: &Pass, of: [&mut Self; 2], x: [View; 2], grad: View) {
        let grads = of.map(|linear| linear.weight.grad.view_mut());
        WeightGradients { a: x, b: grad, beta: 1.0, c: grads }.run(pass.backend);
    }

    /// Computes `x_grad = beta x_grad + grad W^T`.
    pub fn input_grad(&self, pass: &Pass, grad: View, beta: f32, x_grad: ViewMut) {
        Gemm { a: (grad, Plain), b: (self.weight.value.view(), Transposed), beta, c: x_grad }
            .run(pass.backend);
    }
}
