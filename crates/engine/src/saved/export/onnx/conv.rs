//! The graph layers as ONNX operations. To add a layer, write its operations here and add a row to
//! [`TABLE`].

use super::{
    Shape,
    layers::Builder,
    message::Attribute,
    parts::{ATTENTION_SLOPE, Edges, Heads},
};
use crate::Result;

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
    let heads = place.heads();
    let rows = builder.product(x, name)?;
    let rows = builder.split_heads(&rows, heads);
    let own = builder.graph.first(&rows, &edges.count);
    let from = builder.score(&rows, heads, &format!("{name}source"))?;
    let to = builder.score(&own, heads, &format!("{name}target"))?;
    let [from, to] =
        [(&from, &edges.source), (&to, &edges.target)].map(|(x, at)| builder.graph.gather(x, at));
    let score = builder.graph.op("Add", &[&from, &to]);
    let score = builder.leaky(&score, ATTENTION_SLOPE);
    attend(builder, &rows, &score, &edges, place)
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
    let both = builder.split_heads(&both, place.heads());
    let score = builder.score(&both, place.heads(), &format!("{name}attention"))?;
    let left = builder.split_heads(&left, place.heads());
    attend(builder, &left, &score, &edges, place)
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

/// Attention over the `rows` (`S x H x C`) of the edges' sources, with the bias.
fn attend(builder: &mut Builder, rows: &str, score: &str, edges: &Edges, place: &Place) -> Result<String> {
    let rows = builder.graph.gather(rows, &edges.source);
    let sum = builder.softmax_sum(&rows, score, edges.target(), (place.heads(), place.is_last));
    builder.bias(&sum, &place.name)
}

impl Place<'_> {
    /// Number of heads of an attention layer, and their width.
    fn heads(&self) -> Heads {
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
