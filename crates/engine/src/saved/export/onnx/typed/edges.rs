//! Layers that read edge features: the sum over the edge types into a type, of which each computes
//! the own rows, too.

use super::{Place, Rows, TypedEdges, layers::attended, rows};
use crate::{
    Result,
    saved::export::onnx::{
        layers::Builder,
        parts::{ATTENTION_SLOPE, Edges},
    },
};

/// Edge type into a type, with the rows of both ends.
struct Entering<'a> {
    /// Number of the type.
    t: usize,
    /// Start of the names of the parameters.
    name: String,
    /// Rows of the destinations.
    own: &'a str,
    /// Rows of the sources, and the edges, if the layer reads them.
    read: Option<(&'a str, &'a TypedEdges)>,
}

/// Rows of an edge type's layer.
type OfRelation = fn(&mut Builder, &Place, &Entering) -> Result<String>;

/// Sum over the edge types into type `t`, or a dense layer if there is none.
fn sum(builder: &mut Builder, place: &Place, t: usize, x: &Rows, layer: OfRelation) -> Result<String> {
    let own = builder.graph.first(rows(x, t), place.count(t));
    let mut sum: Option<String> = None;
    for (r, from, edges) in place.entering(t) {
        let read = edges.map(|edges| (rows(x, from), edges));
        let part = layer(builder, place, &Entering { t, name: place.of_relation(r), own: &own, read })?;
        sum = Some(match sum {
            Some(sum) => builder.add(&sum, &part),
            None => part,
        });
    }
    match sum {
        Some(sum) => Ok(sum),
        None => {
            let own = builder.product(&own, &format!("{}own.", place.of_type(t)))?;
            builder.bias(&own, &place.of_type(t))
        }
    }
}

/// GINE: an MLP of `(1 + eps) x[v] + sum of relu(x[u] + edge W + b)`.
pub(super) fn gine(builder: &mut Builder, place: &Place, t: usize, x: &Rows) -> Result<String> {
    sum(builder, place, t, x, |builder, place, Entering { name, own, read, .. }| {
        let factor = 1.0 + builder.params.get(&format!("{name}eps"))?.data[0];
        let factor = builder.graph.floats(&format!("{name}factor"), &[], &[factor]);
        let mut hidden = builder.graph.op("Mul", &[own, &factor]);
        if let Some((x, TypedEdges { edges, attr })) = read {
            let rows = builder.graph.gather(x, &edges.source);
            let rows = builder.with_edges(&rows, attr, &format!("{name}edge."))?;
            let rows = builder.bias(&rows, &format!("{name}edge."))?;
            let rows = builder.graph.op("Relu", &[&rows]);
            let sum = builder.graph.sum(&rows, edges.target(), place.widths.0);
            hidden = builder.add(&hidden, &sum);
        }
        let hidden = builder.linear(&hidden, &format!("{name}mlp.0."))?;
        let hidden = builder.graph.op("Relu", &[&hidden]);
        builder.linear(&hidden, &format!("{name}mlp.1."))
    })
}

/// GraphSAGE over the neighbours' rows joined with those of the edges.
pub(super) fn sage(builder: &mut Builder, place: &Place, t: usize, x: &Rows) -> Result<String> {
    sum(builder, place, t, x, |builder, place, Entering { name, own, read, .. }| {
        let mut rows = builder.product(own, &format!("{name}self."))?;
        if let Some((x, TypedEdges { edges, attr })) = read {
            let mean = builder.mean(x, edges, place.widths.0);
            let part = builder.product(&mean, &format!("{name}neigh."))?;
            rows = builder.add(&rows, &part);
            if let Some(attr) = attr {
                let mean = builder.mean_of_edges(attr, edges, &format!("{name}edge."))?;
                rows = builder.add(&rows, &mean);
            }
        }
        builder.bias(&rows, name)
    })
}

/// GATv2 with edge features: attention to the neighbours and to the own row, which has the mean of
/// the edges' rows.
pub(super) fn gatv2(builder: &mut Builder, place: &Place, t: usize, x: &Rows) -> Result<String> {
    sum(builder, place, t, x, |builder, place, Entering { t, name, own, read }| {
        let heads = place.heads();
        let own_left = builder.product(own, &format!("{name}left."))?;
        let right = builder.linear(own, &format!("{name}right."))?;
        let mut sums = vec![builder.add(&own_left, &right)];
        let mut messages = vec![own_left];
        let mut targets = vec![builder.numbers(place.count(*t))];
        if let Some((x, TypedEdges { edges, attr })) = read {
            let of_edges = format!("{name}edge.");
            if let Some(attr) = attr {
                let mean = builder.mean_of_edges(attr, edges, &of_edges)?;
                sums[0] = builder.add(&sums[0], &mean);
            }
            let left = builder.product(x, &format!("{name}left."))?;
            let [left, right] =
                [(&left, &edges.source), (&right, &edges.target)].map(|(x, at)| builder.graph.gather(x, at));
            let both = builder.add(&left, &right);
            sums.push(builder.with_edges(&both, attr, &of_edges)?);
            messages.push(left);
            targets.push(edges.target.clone());
        }
        let mut scores = Vec::with_capacity(sums.len());
        for sum in &sums {
            let sum = builder.leaky(sum, ATTENTION_SLOPE);
            let sum = builder.split_heads(&sum, heads);
            scores.push(builder.score(&sum, heads, &format!("{name}attention"))?);
        }
        let messages = messages.iter().map(|rows| builder.split_heads(rows, heads)).collect();
        let mut mixed = attended(builder, place, *t, [scores, messages, targets]);
        if place.is_last {
            mixed = builder.graph.mean_of_parts(&mixed, heads.0, heads.1);
        }
        builder.bias(&mixed, name)
    })
}

/// Residual gated convolution: the own row and the sum of the neighbours' and edges' rows behind
/// gates.
pub(super) fn gated(builder: &mut Builder, place: &Place, t: usize, x: &Rows) -> Result<String> {
    sum(builder, place, t, x, |builder, place, Entering { name, own, read, .. }| {
        let mut rows = builder.linear_named(own, &format!("{name}self.weight"), &format!("{name}bias"))?;
        if let Some((x, TypedEdges { edges, attr })) = read {
            let [weight, bias] = ["target.weight", "gate.bias"].map(|part| format!("{name}{part}"));
            let target = builder.linear_named(own, &weight, &bias)?;
            let source = builder.product(x, &format!("{name}source."))?;
            let value = builder.product(x, &format!("{name}value."))?;
            let [target, source, value] =
                [(&target, &edges.target), (&source, &edges.source), (&value, &edges.source)]
                    .map(|(x, at)| builder.graph.gather(x, at));
            let gate = builder.add(&target, &source);
            let gate = builder.with_edges(&gate, attr, &format!("{name}edge."))?;
            let gate = builder.graph.op("Sigmoid", &[&gate]);
            let value = builder.with_edges(&value, attr, &format!("{name}edge.value."))?;
            let value = builder.graph.op("Mul", &[&gate, &value]);
            let sum = builder.graph.sum(&value, edges.target(), place.widths.1);
            rows = builder.add(&rows, &sum);
        }
        Ok(rows)
    })
}

/// Parts of several of these layers.
impl Builder<'_> {
    /// Rows of edges plus the products of their features, if they have some.
    fn with_edges(&mut self, rows: &str, attr: &Option<String>, name: &str) -> Result<String> {
        let Some(attr) = attr else { return Ok(rows.into()) };
        let product = self.product(attr, name)?;
        Ok(self.add(rows, &product))
    }

    /// Product of the mean of the edges' features by destination.
    fn mean_of_edges(&mut self, attr: &str, edges: &Edges, name: &str) -> Result<String> {
        let width = self.params.get(&format!("{name}weight"))?.shape[0];
        let mean = self.mean_of_rows(attr, edges, width);
        self.product(&mean, name)
    }

    /// `x W + b` of parameters of these names.
    fn linear_named(&mut self, x: &str, weight: &str, bias: &str) -> Result<String> {
        let [weight, bias] = [weight, bias].map(|name| self.constant(name));
        let product = self.graph.op("MatMul", &[x, &weight?]);
        Ok(self.graph.op("Add", &[&product, &bias?]))
    }
}
