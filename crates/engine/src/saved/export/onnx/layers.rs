//! Dense layers, activations and normalizations as ONNX operations, from the parameters in their
//! stored layout (`F x O`).

use std::collections::HashMap;

use super::{graph::Graph, message::Attribute};
use crate::{Error, Result, checkpoint::tensors::Tensor};

/// Added to variances by normalizations.
const EPSILON: f32 = 1e-5;
/// Slope of the activation `leaky-relu` below 0.
const LEAKY_SLOPE: f32 = 0.01;

/// Parameters of a model by name.
pub(super) struct Params(HashMap<String, Tensor>);

impl Params {
    pub(super) fn new(tensors: Vec<Tensor>) -> Self {
        Self(tensors.into_iter().map(|tensor| (tensor.name.clone(), tensor)).collect())
    }

    /// The parameter called `name`.
    ///
    /// # Errors
    /// The model has none.
    pub(super) fn get(&self, name: &str) -> Result<&Tensor> {
        self.0.get(name).ok_or_else(|| {
            let message = format!("--to onnx: the model has no parameter {name}; train it with this version");
            Error::usage(message)
        })
    }
}

/// Builds operations from parameters.
pub(super) struct Builder<'a> {
    pub(super) graph: Graph,
    pub(super) params: &'a Params,
}

impl Builder<'_> {
    /// A stored parameter as a constant.
    pub(super) fn constant(&mut self, name: &str) -> Result<String> {
        let tensor = self.params.get(name)?;
        Ok(self.graph.floats(name, &tensor.shape, &tensor.data))
    }

    /// `x W`.
    pub(super) fn product(&mut self, x: &str, name: &str) -> Result<String> {
        let weight = self.constant(&format!("{name}weight"))?;
        Ok(self.graph.op("MatMul", &[x, &weight]))
    }

    /// `x + b`.
    pub(super) fn bias(&mut self, x: &str, name: &str) -> Result<String> {
        let bias = self.constant(&format!("{name}bias"))?;
        Ok(self.graph.op("Add", &[x, &bias]))
    }

    /// `x W + b`.
    pub(super) fn linear(&mut self, x: &str, name: &str) -> Result<String> {
        let product = self.product(x, name)?;
        self.bias(&product, name)
    }

    /// `act(x)`.
    ///
    /// # Errors
    /// The activation is unknown.
    pub(super) fn activation(&mut self, x: &str, kind: &str) -> Result<String> {
        let slope = |value| vec![Attribute::float("alpha", value)];
        Ok(match kind {
            "identity" => x.into(),
            "relu" => self.graph.op("Relu", &[x]),
            "elu" => self.graph.op_with("Elu", &[x], slope(1.0)),
            "leaky-relu" => self.graph.op_with("LeakyRelu", &[x], slope(LEAKY_SLOPE)),
            other => {
                return Err(Error::usage(format!("--to onnx: --activation {other} has no operation")));
            }
        })
    }

    /// `x P(X < x)` for a normal `X`.
    pub(super) fn gelu(&mut self, x: &str) -> String {
        let [root, one, half] = [("gelu.root", 0.5f32.sqrt()), ("gelu.one", 1.0), ("gelu.half", 0.5)]
            .map(|(name, value)| self.graph.floats(name, &[], &[value]));
        let scaled = self.graph.op("Mul", &[x, &root]);
        let erf = self.graph.op("Erf", &[&scaled]);
        let sum = self.graph.op("Add", &[&erf, &one]);
        let share = self.graph.op("Mul", &[&sum, &half]);
        self.graph.op("Mul", &[x, &share])
    }

    /// Rows normalized by the norm called `kind`, whose parameters begin with `name`.
    ///
    /// # Errors
    /// The norm is unknown or has no parameters.
    pub(super) fn norm(&mut self, x: &str, kind: &str, name: &str) -> Result<String> {
        match kind {
            "none" => Ok(x.into()),
            "batch" => self.batch_norm(x, name),
            "layer" => {
                let width = self.params.get(&format!("{name}gamma"))?.data.len();
                let [gamma, beta] = [format!("{name}gamma"), format!("{name}beta")];
                let gamma = self.graph.floats(&gamma, &[width], &self.params.get(&gamma)?.data);
                let beta = self.graph.floats(&beta, &[width], &self.params.get(&beta)?.data);
                let attributes = vec![Attribute::int("axis", -1), Attribute::float("epsilon", EPSILON)];
                Ok(self.graph.op_with("LayerNormalization", &[x, &gamma, &beta], attributes))
            }
            "l2" => Ok(self.unit_length(x)),
            other => Err(Error::usage(format!("--to onnx: --norm {other} has no operation"))),
        }
    }

    /// Rows of length 1; zeros stay zeros.
    pub(super) fn unit_length(&mut self, x: &str) -> String {
        self.with_length_one(x, 1e-12)
    }

    /// Rows divided by their length, or by `least` if they are shorter.
    pub(super) fn with_length_one(&mut self, x: &str, least: f32) -> String {
        let axis = self.graph.ints(&[1], &[1]);
        let length = self.graph.op("ReduceL2", &[x, &axis]);
        let least = self.graph.floats(&format!("least_length.{least}"), &[], &[least]);
        let length = self.graph.op("Max", &[&length, &least]);
        self.graph.op("Div", &[x, &length])
    }

    /// Batch normalization by the running means and variances: one product and one sum a value.
    pub(super) fn batch_norm(&mut self, x: &str, name: &str) -> Result<String> {
        let [gamma, beta, running] =
            ["gamma", "beta", "running"].map(|part| self.params.get(&format!("{name}{part}")));
        let (gamma, beta, running) = (&gamma?.data, &beta?.data, &running?.data);
        let (mean, variance) = running.split_at(gamma.len());
        let scale: Vec<f32> = gamma.iter().zip(variance).map(|(g, v)| g / (v + EPSILON).sqrt()).collect();
        let shift: Vec<f32> =
            beta.iter().zip(mean).zip(&scale).map(|((b, mean), scale)| b - mean * scale).collect();
        let scale = self.graph.floats(&format!("{name}scale"), &[1, scale.len()], &scale);
        let shift = self.graph.floats(&format!("{name}shift"), &[1, shift.len()], &shift);
        let scaled = self.graph.op("Mul", &[x, &scale]);
        Ok(self.graph.op("Add", &[&scaled, &shift]))
    }
}
