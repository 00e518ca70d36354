//! The graph layers as ONNX operations, from the parameters in their stored layout (`F x O`).

use std::collections::HashMap;

use super::{
    graph::{Graph, Target},
    message::Attribute,
};
use crate::{Error, Result, checkpoint::tensors::Tensor};

/// Added to variances by normalizations.
const EPSILON: f32 = 1e-5;
/// Slope of negative scores in graph attention.
const ATTENTION_SLOPE: f32 = 0.2;
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

/// Edges of a layer.
pub(super) struct Edges {
    /// Source row of each edge.
    pub(super) source: String,
    /// Destination row of each edge.
    pub(super) target: String,
    /// Number of destinations.
    pub(super) count: String,
    /// Weights of the edges and of the destinations' own rows, for graph convolution.
    pub(super) weights: Option<(String, String)>,
}

impl Edges {
    fn target(&self) -> Target<'_> {
        Target { to: &self.target, count: &self.count }
    }
}

/// Builds operations from parameters.
pub(super) struct Builder<'a> {
    pub(super) graph: Graph,
    pub(super) params: &'a Params,
}

impl Builder<'_> {
    /// A stored parameter as a constant.
    fn constant(&mut self, name: &str) -> Result<String> {
        let tensor = self.params.get(name)?;
        Ok(self.graph.floats(name, &tensor.shape, &tensor.data))
    }

    /// `x W`.
    pub(super) fn product(&mut self, x: &str, name: &str) -> Result<String> {
        let weight = self.constant(&format!("{name}weight"))?;
        Ok(self.graph.op("MatMul", &[x, &weight]))
    }

    /// `x + b`.
    fn bias(&mut self, x: &str, name: &str) -> Result<String> {
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
            "l2" => {
                let axis = self.graph.ints(&[1], &[1]);
                let length = self.graph.op("ReduceL2", &[x, &axis]);
                let least = self.graph.floats("least_length", &[], &[1e-12]);
                let length = self.graph.op("Max", &[&length, &least]);
                Ok(self.graph.op("Div", &[x, &length]))
            }
            other => Err(Error::usage(format!("--to onnx: --norm {other} has no operation"))),
        }
    }

    /// Batch normalization by the running means and variances: one product and one sum a value.
    fn batch_norm(&mut self, x: &str, name: &str) -> Result<String> {
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

    /// GraphSAGE with the mean: `mean(x[u]) W_neigh + x[v] W_self + b`.
    pub(super) fn sage(&mut self, x: &str, edges: &Edges, name: &str) -> Result<String> {
        let width = self.params.get(&format!("{name}neigh.weight"))?.shape[0];
        let rows = self.graph.gather(x, &edges.source);
        let sum = self.graph.sum(&rows, edges.target(), width);
        let degree = self.degrees(edges);
        let mean = self.graph.op("Div", &[&sum, &degree]);
        let neighbors = self.product(&mean, &format!("{name}neigh."))?;
        let own = self.graph.first(x, &edges.count);
        let own = self.product(&own, &format!("{name}self."))?;
        let both = self.graph.op("Add", &[&neighbors, &own]);
        self.bias(&both, name)
    }

    /// Number of edges of each destination, at least 1: a column.
    fn degrees(&mut self, edges: &Edges) -> String {
        let shape = self.graph.op("Shape", &[&edges.target]);
        let one = self.graph.ints(&[1], &[1]);
        let shape = self.graph.op_with("Concat", &[&shape, &one], vec![Attribute::int("axis", 0)]);
        let value = self.graph.floats("one", &[], &[1.0]);
        let ones = self.graph.op("Expand", &[&value, &shape]);
        let count = self.graph.sum(&ones, edges.target(), 1);
        self.graph.op("Max", &[&count, &value])
    }

    /// Graph convolution: `(sum of w[e] x[u] + w[v] x[v]) W + b`.
    pub(super) fn gcn(&mut self, x: &str, edges: &Edges, name: &str) -> Result<String> {
        let width = self.params.get(&format!("{name}weight"))?.shape[0];
        let (of_edges, of_own) = edges.weights.as_ref().expect("graph convolution declares its weights");
        let one = self.graph.ints(&[1], &[1]);
        let column = self.graph.op("Unsqueeze", &[of_edges, &one]);
        let rows = self.graph.gather(x, &edges.source);
        let rows = self.graph.op("Mul", &[&rows, &column]);
        let sum = self.graph.sum(&rows, edges.target(), width);
        let own = self.graph.first(x, &edges.count);
        let column = self.graph.op("Unsqueeze", &[of_own, &one]);
        let own = self.graph.op("Mul", &[&own, &column]);
        let sum = self.graph.op("Add", &[&sum, &own]);
        self.linear(&sum, name)
    }

    /// Graph isomorphism: an MLP of `(1 + eps) x[v] + sum(x[u])`.
    pub(super) fn gin(&mut self, x: &str, edges: &Edges, norm: &str, name: &str) -> Result<String> {
        let width = self.params.get(&format!("{name}mlp.0.weight"))?.shape[0];
        let rows = self.graph.gather(x, &edges.source);
        let sum = self.graph.sum(&rows, edges.target(), width);
        let factor = 1.0 + self.params.get(&format!("{name}eps"))?.data[0];
        let factor = self.graph.floats(&format!("{name}factor"), &[], &[factor]);
        let own = self.graph.first(x, &edges.count);
        let own = self.graph.op("Mul", &[&own, &factor]);
        let sum = self.graph.op("Add", &[&sum, &own]);
        let mut hidden = self.linear(&sum, &format!("{name}mlp.0."))?;
        if norm == "batch" {
            hidden = self.batch_norm(&hidden, &format!("{name}mlp."))?;
        }
        let hidden = self.graph.op("Relu", &[&hidden]);
        self.linear(&hidden, &format!("{name}mlp.1."))
    }

    /// Graph attention of `heads` heads over the neighbours and the own row. The last layer takes
    /// the mean of the heads, the others stand side by side.
    pub(super) fn gat(
        &mut self,
        x: &str,
        edges: &Edges,
        (heads, is_last): (usize, bool),
        name: &str,
    ) -> Result<String> {
        let width = self.params.get(&format!("{name}weight"))?.shape[1];
        let edges = self.with_own_rows(edges);
        let rows = self.product(x, name)?;
        let shape = self.graph.ints(&[3], &[-1, heads as i64, (width / heads) as i64]);
        let rows = self.graph.op("Reshape", &[&rows, &shape]);
        let own = self.graph.first(&rows, &edges.count);
        let from = self.score(&rows, heads, &format!("{name}source"))?;
        let to = self.score(&own, heads, &format!("{name}target"))?;
        let [from, to] =
            [(&from, &edges.source), (&to, &edges.target)].map(|(x, at)| self.graph.gather(x, at));
        let score = self.graph.op("Add", &[&from, &to]);
        let slope = vec![Attribute::float("alpha", ATTENTION_SLOPE)];
        let score = self.graph.op_with("LeakyRelu", &[&score], slope);
        // softmax over the edges of each destination
        let largest = self.graph.scatter(&score, edges.target(), heads, ("max", f32::NEG_INFINITY));
        let largest = self.graph.gather(&largest, &edges.target);
        let score = self.graph.op("Sub", &[&score, &largest]);
        let score = self.graph.op("Exp", &[&score]);
        let total = self.graph.sum(&score, edges.target(), heads);
        let total = self.graph.gather(&total, &edges.target);
        let share = self.graph.op("Div", &[&score, &total]);
        let two = self.graph.ints(&[1], &[2]);
        let share = self.graph.op("Unsqueeze", &[&share, &two]);
        let rows = self.graph.gather(&rows, &edges.source);
        let rows = self.graph.op("Mul", &[&rows, &share]);
        let flat = self.graph.ints(&[2], &[-1, width as i64]);
        let rows = self.graph.op("Reshape", &[&rows, &flat]);
        let mut sum = self.graph.sum(&rows, edges.target(), width);
        if is_last {
            sum = self.graph.op("Reshape", &[&sum, &shape]);
            let one = self.graph.ints(&[1], &[1]);
            sum = self.graph.op_with("ReduceMean", &[&sum, &one], vec![Attribute::int("keepdims", 0)]);
        }
        self.bias(&sum, name)
    }

    /// The edges and one from each destination to itself.
    fn with_own_rows(&mut self, edges: &Edges) -> Edges {
        let [zero, one] = [0, 1].map(|n| self.graph.ints(&[], &[n]));
        let count = self.graph.op("Squeeze", &[&edges.count]);
        let own = self.graph.op("Range", &[&zero, &count, &one]);
        let [source, target] = [&edges.source, &edges.target]
            .map(|ends| self.graph.op_with("Concat", &[ends, &own], vec![Attribute::int("axis", 0)]));
        Edges { source, target, count: edges.count.clone(), weights: None }
    }

    /// Score of each row and head: the sum of the products with the head's vector.
    fn score(&mut self, rows: &str, heads: usize, name: &str) -> Result<String> {
        let vector = self.params.get(name)?;
        let vector = self.graph.floats(name, &[heads, vector.data.len() / heads], &vector.data);
        let products = self.graph.op("Mul", &[rows, &vector]);
        let two = self.graph.ints(&[1], &[2]);
        Ok(self.graph.op_with("ReduceSum", &[&products, &two], vec![Attribute::int("keepdims", 0)]))
    }
}
