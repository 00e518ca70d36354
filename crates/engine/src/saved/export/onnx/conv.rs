//! The graph layers as ONNX operations. To add a layer, write its operations here and add a row to
//! [`TABLE`].

use super::{Shape, graph::Target, layers::Builder, message::Attribute};
use crate::Result;

/// Slope of negative scores in graph attention.
const ATTENTION_SLOPE: f32 = 0.2;

/// Graph layer as operations.
pub(super) struct Conv {
    /// Name of the model.
    pub(super) model: &'static str,
    /// True if the layer reads the weights of the normalized adjacency matrix.
    pub(super) is_weighted: bool,
    /// True if the layer applies the activation itself, except where it computes the scores.
    pub(super) is_activated: bool,
    /// Adds the operations of a block.
    pub(super) add: fn(&mut Builder, &Place, &str, &Edges) -> Result<String>,
}

/// Layers that have operations.
pub(super) const TABLE: &[Conv] = &[
    Conv { model: "sage", is_weighted: false, is_activated: false, add: sage },
    Conv { model: "gcn", is_weighted: true, is_activated: false, add: gcn },
    Conv { model: "gat", is_weighted: false, is_activated: false, add: gat },
    Conv { model: "gatv2", is_weighted: false, is_activated: false, add: gatv2 },
    Conv { model: "gin", is_weighted: false, is_activated: false, add: gin },
    Conv { model: "mixhop", is_weighted: true, is_activated: false, add: mixhop },
    Conv { model: "pinsage", is_weighted: false, is_activated: true, add: pinsage },
];

/// Place of a block's operations in the model.
pub(super) struct Place<'a> {
    /// Options of the model.
    pub(super) shape: &'a Shape<'a>,
    /// Start of the names of the parameters.
    pub(super) name: String,
    /// Width of the layer's output rows.
    pub(super) width: usize,
    /// True if the layer computes the scores.
    pub(super) is_last: bool,
    /// Number of the block in the layer, from 1, and number of blocks of the layer.
    pub(super) hop: (usize, usize),
}

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
    fn target(&self) -> Target<'_> {
        Target { to: &self.target, count: &self.count }
    }
}

/// GraphSAGE by its aggregator and combination:
/// `aggregate(x[u]) W_neigh + x[v] W_self + b`, or the mean's concatenation.
fn sage(builder: &mut Builder, place: &Place, x: &str, edges: &Edges) -> Result<String> {
    let name = &place.name;
    match (place.shape.word("aggregator"), place.shape.word("sage_combine")) {
        ("max-pool", _) => {
            let pooled = builder.linear(x, &format!("{name}pool."))?;
            let pooled = builder.graph.op("Relu", &[&pooled]);
            let width = builder.params.get(&format!("{name}pool.weight"))?.shape[1];
            let rows = builder.graph.gather(&pooled, &edges.source);
            // 0 is the least value of a row, and that of no neighbours
            let max = builder.graph.scatter(&rows, edges.target(), width, ("max", 0.0));
            builder.neighbors_and_own(&max, x, edges, name)
        }
        (_, "concat") => hop(builder, place, x, edges, Builder::mean),
        _ => {
            let width = builder.params.get(&format!("{name}neigh.weight"))?.shape[0];
            let mean = builder.mean(x, edges, width);
            builder.neighbors_and_own(&mean, x, edges, name)
        }
    }
}

/// Graph convolution: `(sum of w[e] x[u] + w[v] x[v]) W + b`.
fn gcn(builder: &mut Builder, place: &Place, x: &str, edges: &Edges) -> Result<String> {
    let width = builder.params.get(&format!("{}weight", place.name))?.shape[0];
    let sum = builder.normalized_sum(x, edges, width);
    builder.linear(&sum, &place.name)
}

/// Graph isomorphism: an MLP of `(1 + eps) x[v] + sum(x[u])`.
fn gin(builder: &mut Builder, place: &Place, x: &str, edges: &Edges) -> Result<String> {
    let name = &place.name;
    let width = builder.params.get(&format!("{name}mlp.0.weight"))?.shape[0];
    let rows = builder.graph.gather(x, &edges.source);
    let sum = builder.graph.sum(&rows, edges.target(), width);
    let factor = 1.0 + builder.params.get(&format!("{name}eps"))?.data[0];
    let factor = builder.graph.floats(&format!("{name}factor"), &[], &[factor]);
    let own = builder.graph.first(x, &edges.count);
    let own = builder.graph.op("Mul", &[&own, &factor]);
    let sum = builder.graph.op("Add", &[&sum, &own]);
    let mut hidden = builder.linear(&sum, &format!("{name}mlp.0."))?;
    if place.shape.word("norm") == "batch" {
        hidden = builder.batch_norm(&hidden, &format!("{name}mlp."))?;
    }
    let hidden = builder.graph.op("Relu", &[&hidden]);
    builder.linear(&hidden, &format!("{name}mlp.1."))
}

/// Graph attention over the neighbours and the own row, with scores `leaky(a_s z[u] + a_t z[v])` of
/// `z = x W`.
fn gat(builder: &mut Builder, place: &Place, x: &str, edges: &Edges) -> Result<String> {
    let name = &place.name;
    let edges = builder.with_own_rows(edges);
    let rows = builder.product(x, name)?;
    let rows = builder.split_heads(&rows, place);
    let own = builder.graph.first(&rows, &edges.count);
    let from = builder.score(&rows, place, &format!("{name}source"))?;
    let to = builder.score(&own, place, &format!("{name}target"))?;
    let [from, to] =
        [(&from, &edges.source), (&to, &edges.target)].map(|(x, at)| builder.graph.gather(x, at));
    let score = builder.graph.op("Add", &[&from, &to]);
    let score = builder.leaky(&score, ATTENTION_SLOPE);
    builder.attend(&rows, &score, &edges, place)
}

/// Graph attention over the neighbours and the own row, with scores `a leaky(l[u] + r[v])` of
/// `l = x W_left` and `r = x W_right + b_right`.
fn gatv2(builder: &mut Builder, place: &Place, x: &str, edges: &Edges) -> Result<String> {
    let name = &place.name;
    let left = builder.product(x, &format!("{name}left."))?;
    let own = builder.graph.first(x, &edges.count);
    let right = builder.linear(&own, &format!("{name}right."))?;
    let edges = builder.with_own_rows(edges);
    let [from, to] =
        [(&left, &edges.source), (&right, &edges.target)].map(|(x, at)| builder.graph.gather(x, at));
    let both = builder.graph.op("Add", &[&from, &to]);
    let both = builder.leaky(&both, ATTENTION_SLOPE);
    let both = builder.split_heads(&both, place);
    let score = builder.score(&both, place, &format!("{name}attention"))?;
    let left = builder.split_heads(&left, place);
    builder.attend(&left, &score, &edges, place)
}

/// One hop of MixHop over the normalized adjacency matrix.
fn mixhop(builder: &mut Builder, place: &Place, x: &str, edges: &Edges) -> Result<String> {
    hop(builder, place, x, edges, Builder::normalized_sum)
}

/// One hop of the concatenated powers of `A`: the parts of low powers are the destinations' own
/// rows, the others are aggregated once more by `aggregate`. The first hop multiplies by the
/// weights, and the last one adds the bias, after the mean of the parts if they are scores.
fn hop<'p>(
    builder: &mut Builder<'p>,
    place: &Place,
    x: &str,
    edges: &Edges,
    aggregate: fn(&mut Builder<'p>, &str, &Edges, usize) -> String,
) -> Result<String> {
    let (hop, hops) = place.hop;
    let powers = hops + 1;
    let width = if place.is_last { powers * place.width } else { place.width };
    let stays = powers - hop;
    let stay = stays * (width / powers) + stays.min(width % powers);
    let rows = if hop == 1 { builder.product(x, &place.name)? } else { x.to_string() };
    let own = builder.graph.first(&rows, &edges.count);
    let own = builder.graph.columns(&own, 0..stay);
    let moved = builder.graph.columns(&rows, stay..width);
    let moved = aggregate(builder, &moved, edges, width - stay);
    let rows = builder.graph.op_with("Concat", &[&own, &moved], vec![Attribute::int("axis", 1)]);
    match (hop == hops, place.is_last) {
        (false, _) => Ok(rows),
        (true, false) => builder.bias(&rows, &place.name),
        (true, true) => {
            let mean = builder.graph.mean_of_parts(&rows, powers, place.width);
            builder.bias(&mean, &place.name)
        }
    }
}

/// PinSAGE: `act(n W_neigh + x[v] W_self + b)` at unit length, with `n` the mean of
/// `act(x[u] Q + q)`; the scores are the sum alone.
fn pinsage(builder: &mut Builder, place: &Place, x: &str, edges: &Edges) -> Result<String> {
    let (name, activation) = (&place.name, place.shape.word("activation"));
    let pooled = builder.linear(x, &format!("{name}pool."))?;
    let pooled = builder.activation(&pooled, activation)?;
    let width = builder.params.get(&format!("{name}pool.weight"))?.shape[1];
    let mean = builder.mean(&pooled, edges, width);
    let rows = builder.neighbors_and_own(&mean, x, edges, name)?;
    if place.is_last {
        return Ok(rows);
    }
    let rows = builder.activation(&rows, activation)?;
    Ok(builder.unit_length(&rows))
}

/// Parts of several layers.
impl Builder<'_> {
    /// `n W_neigh + x[v] W_self + b` of the aggregated neighbours `n`.
    fn neighbors_and_own(&mut self, neighbors: &str, x: &str, edges: &Edges, name: &str) -> Result<String> {
        let neighbors = self.product(neighbors, &format!("{name}neigh."))?;
        let own = self.graph.first(x, &edges.count);
        let own = self.product(&own, &format!("{name}self."))?;
        let both = self.graph.op("Add", &[&neighbors, &own]);
        self.bias(&both, name)
    }

    /// Mean of the neighbours' rows; zeros without neighbours.
    fn mean(&mut self, x: &str, edges: &Edges, width: usize) -> String {
        let rows = self.graph.gather(x, &edges.source);
        let sum = self.graph.sum(&rows, edges.target(), width);
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
    fn normalized_sum(&mut self, x: &str, edges: &Edges, width: usize) -> String {
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
    fn with_own_rows(&mut self, edges: &Edges) -> Edges {
        let [zero, one] = [0, 1].map(|n| self.graph.ints(&[], &[n]));
        let count = self.graph.op("Squeeze", &[&edges.count]);
        let own = self.graph.op("Range", &[&zero, &count, &one]);
        let [source, target] = [&edges.source, &edges.target]
            .map(|ends| self.graph.op_with("Concat", &[ends, &own], vec![Attribute::int("axis", 0)]));
        Edges { source, target, count: edges.count.clone(), weights: None }
    }

    /// `max(x, slope x)`.
    fn leaky(&mut self, x: &str, slope: f32) -> String {
        self.graph.op_with("LeakyRelu", &[x], vec![Attribute::float("alpha", slope)])
    }

    /// Rows split into heads, `R x H x C`.
    fn split_heads(&mut self, x: &str, place: &Place) -> String {
        let (heads, width) = place.heads();
        let shape = self.graph.ints(&[3], &[-1, heads as i64, width as i64]);
        self.graph.op("Reshape", &[x, &shape])
    }

    /// Score of each row and head: the sum of the products with the head's vector.
    fn score(&mut self, rows: &str, place: &Place, name: &str) -> Result<String> {
        let (heads, width) = place.heads();
        let vector = self.graph.floats(name, &[heads, width], &self.params.get(name)?.data);
        let products = self.graph.op("Mul", &[rows, &vector]);
        let two = self.graph.ints(&[1], &[2]);
        Ok(self.graph.op_with("ReduceSum", &[&products, &two], vec![Attribute::int("keepdims", 0)]))
    }

    /// Sums of the neighbours' `rows` (`S x H x C`), weighted by the softmax of the scores (`E x H`)
    /// over the edges of each destination, with the bias. The last layer takes the mean of the
    /// heads, the others stand side by side.
    fn attend(&mut self, rows: &str, score: &str, edges: &Edges, place: &Place) -> Result<String> {
        let (heads, width) = place.heads();
        let largest = self.graph.scatter(score, edges.target(), heads, ("max", f32::NEG_INFINITY));
        let largest = self.graph.gather(&largest, &edges.target);
        let score = self.graph.op("Sub", &[score, &largest]);
        let score = self.graph.op("Exp", &[&score]);
        let total = self.graph.sum(&score, edges.target(), heads);
        let total = self.graph.gather(&total, &edges.target);
        let share = self.graph.op("Div", &[&score, &total]);
        let two = self.graph.ints(&[1], &[2]);
        let share = self.graph.op("Unsqueeze", &[&share, &two]);
        let rows = self.graph.gather(rows, &edges.source);
        let rows = self.graph.op("Mul", &[&rows, &share]);
        let flat = self.graph.ints(&[2], &[-1, (heads * width) as i64]);
        let rows = self.graph.op("Reshape", &[&rows, &flat]);
        let mut sum = self.graph.sum(&rows, edges.target(), heads * width);
        if place.is_last {
            sum = self.graph.mean_of_parts(&sum, heads, width);
        }
        self.bias(&sum, &place.name)
    }
}

impl Place<'_> {
    /// Number of heads of an attention layer, and their width.
    fn heads(&self) -> (usize, usize) {
        match self.is_last {
            true => (self.shape.number("out_heads"), self.width),
            false => {
                let heads = self.shape.number("heads");
                (heads, self.width / heads)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn every_layer_has_operations() {
        let layers: BTreeSet<&str> = graphmill_nn::layer::TABLE.iter().map(|entry| entry.name).collect();
        let exported: BTreeSet<&str> = super::TABLE.iter().map(|conv| conv.model).collect();
        assert_eq!(exported, layers);
    }
}
