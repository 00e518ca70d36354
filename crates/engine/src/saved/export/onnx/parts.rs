//! Parts of several graph layers as ONNX operations.

use super::{graph::Target, layers::Builder, message::Attribute};
use crate::Result;

/// Slope of negative scores in graph attention.
pub(super) const ATTENTION_SLOPE: f32 = 0.2;

/// Number of heads of an attention layer, and their width.
pub(super) type Heads = (usize, usize);

/// Edges of a block.
pub(super) struct Edges {
    /// Source row of each edge.
    pub(super) source: String,
    /// Destination row of each edge.
    pub(super) target: String,
    /// Number of destinations.
    pub(super) count: String,
    /// Weights of the edges and of the destinations' own rows, if the layer reads them.
    pub(super) weights: Option<(String, String)>,
}

impl Edges {
    /// Destinations.
    pub(super) fn target(&self) -> Target<'_> {
        Target { to: &self.target, count: &self.count }
    }
}

impl Builder<'_> {
    /// `n W_neigh + x[v] W_self + b` of the aggregated neighbours `n`.
    pub(super) fn neighbors_and_own(
        &mut self,
        neighbors: &str,
        x: &str,
        edges: &Edges,
        name: &str,
    ) -> Result<String> {
        let neighbors = self.product(neighbors, &format!("{name}neigh."))?;
        let own = self.graph.first(x, &edges.count);
        let own = self.product(&own, &format!("{name}self."))?;
        let both = self.graph.op("Add", &[&neighbors, &own]);
        self.bias(&both, name)
    }

    /// Mean of the neighbours' rows; zeros without neighbours.
    pub(super) fn mean(&mut self, x: &str, edges: &Edges, width: usize) -> String {
        let rows = self.graph.gather(x, &edges.source);
        self.mean_of_rows(&rows, edges, width)
    }

    /// Mean of the edges' rows by destination; zeros without edges.
    pub(super) fn mean_of_rows(&mut self, rows: &str, edges: &Edges, width: usize) -> String {
        let sum = self.graph.sum(rows, edges.target(), width);
        let degree = self.degrees(edges);
        self.graph.op("Div", &[&sum, &degree])
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

    /// `sum of w[e] x[u] + w[v] x[v]`: a product with the normalized adjacency matrix.
    pub(super) fn normalized_sum(&mut self, x: &str, edges: &Edges, width: usize) -> String {
        let (of_edges, of_own) = edges.weights.as_ref().expect("the layer's row declares its weights");
        let one = self.graph.ints(&[1], &[1]);
        let column = self.graph.op("Unsqueeze", &[of_edges, &one]);
        let rows = self.graph.gather(x, &edges.source);
        let rows = self.graph.op("Mul", &[&rows, &column]);
        let sum = self.graph.sum(&rows, edges.target(), width);
        let own = self.graph.first(x, &edges.count);
        let column = self.graph.op("Unsqueeze", &[of_own, &one]);
        let own = self.graph.op("Mul", &[&own, &column]);
        self.graph.op("Add", &[&sum, &own])
    }

    /// The edges and one from each destination to itself.
    pub(super) fn with_own_rows(&mut self, edges: &Edges) -> Edges {
        let own = self.numbers(&edges.count);
        let [source, target] = [&edges.source, &edges.target]
            .map(|ends| self.graph.op_with("Concat", &[ends, &own], vec![Attribute::int("axis", 0)]));
        Edges { source, target, count: edges.count.clone(), weights: None }
    }

    /// Numbers of the rows of `count` destinations.
    pub(super) fn numbers(&mut self, count: &str) -> String {
        let [zero, one] = [0, 1].map(|n| self.graph.ints(&[], &[n]));
        let count = self.graph.op("Squeeze", &[count]);
        self.graph.op("Range", &[&zero, &count, &one])
    }

    /// `max(x, slope x)`.
    pub(super) fn leaky(&mut self, x: &str, slope: f32) -> String {
        self.graph.op_with("LeakyRelu", &[x], vec![Attribute::float("alpha", slope)])
    }

    /// Rows split into heads, `R x H x C`.
    pub(super) fn split_heads(&mut self, x: &str, (heads, width): Heads) -> String {
        let shape = self.graph.ints(&[3], &[-1, heads as i64, width as i64]);
        self.graph.op("Reshape", &[x, &shape])
    }

    /// Score of each row and head: the sum of the products with the head's vector.
    pub(super) fn score(&mut self, rows: &str, (heads, width): Heads, name: &str) -> Result<String> {
        let vector = self.graph.floats(name, &[heads, width], &self.params.get(name)?.data);
        Ok(self.dot(rows, &vector))
    }

    /// Sums of the products of the heads' rows, `R x H x C` to `R x H`.
    pub(super) fn dot(&mut self, x: &str, y: &str) -> String {
        let products = self.graph.op("Mul", &[x, y]);
        let two = self.graph.ints(&[1], &[2]);
        self.graph.op_with("ReduceSum", &[&products, &two], vec![Attribute::int("keepdims", 0)])
    }

    /// Sums of the edges' `rows` (`E x H x C`), weighted by the softmax of the scores (`E x H`)
    /// over the edges of each destination. The heads stand side by side, or `is_mean` takes their
    /// mean.
    pub(super) fn softmax_sum(
        &mut self,
        rows: &str,
        score: &str,
        target: Target,
        ((heads, width), is_mean): (Heads, bool),
    ) -> String {
        let largest = self.graph.scatter(score, target, heads, ("max", f32::NEG_INFINITY));
        let largest = self.graph.gather(&largest, target.to);
        let score = self.graph.op("Sub", &[score, &largest]);
        let score = self.graph.op("Exp", &[&score]);
        let total = self.graph.sum(&score, target, heads);
        let total = self.graph.gather(&total, target.to);
        let share = self.graph.op("Div", &[&score, &total]);
        let two = self.graph.ints(&[1], &[2]);
        let share = self.graph.op("Unsqueeze", &[&share, &two]);
        let rows = self.graph.op("Mul", &[rows, &share]);
        let flat = self.graph.ints(&[2], &[-1, (heads * width) as i64]);
        let rows = self.graph.op("Reshape", &[&rows, &flat]);
        let sum = self.graph.sum(&rows, target, heads * width);
        if is_mean { self.graph.mean_of_parts(&sum, heads, width) } else { sum }
    }
}
