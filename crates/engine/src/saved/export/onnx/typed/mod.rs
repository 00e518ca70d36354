//! Models of several types over explicit blocks, and those that read edge features.
//!
//! As for one type, with an input for each node type or edge type that the scores depend on. `TYPE`
//! is the name of a node type, and `RELATION` an edge type as `SOURCE:NAME:DESTINATION`.
//!
//! | input | type | holds |
//! | --- | --- | --- |
//! | `x.TYPE` | float, `nodes x F` | feature rows of a type with features |
//! | `nodes.TYPE` | int64, `nodes` | ids of the nodes of a type whose rows were learned |
//! | `edge_index.l.RELATION` | int64, `2 x E` | source row and destination row of each edge of layer `l` |
//! | `edge_attr.l.RELATION` | float, `E x K` | features of these edges, if the model reads them |
//! | `num_dst.l.TYPE` | int64, `1` | number of destinations of the type |
//!
//! A layer's rows are computed type by type, each from the edges into it.

mod edges;
mod layers;

use serde_json::Value as Json;

use super::{
    Shape,
    graph::Graph,
    layers::Builder,
    links,
    message::{Attribute, Dim, FLOAT, INT64},
    parts::{Edges, Heads},
};
use crate::{Error, Result};

/// Typed layer as operations.
struct TypedConv {
    /// Name of the model.
    model: &'static str,
    /// Adds the operations of the destinations of a type.
    add: fn(&mut Builder, &Place, usize, &Rows) -> Result<String>,
}

/// Layers that have operations.
const TABLE: &[TypedConv] = &[
    TypedConv { model: "rsage", add: layers::relation_sum },
    TypedConv { model: "rgcn", add: layers::relation_sum },
    TypedConv { model: "rgat", add: layers::rgat },
    TypedConv { model: "hgt", add: layers::hgt },
    TypedConv { model: "simple-hgn", add: layers::simple_hgn },
    TypedConv { model: "gine", add: edges::gine },
    TypedConv { model: "gatv2-edge", add: edges::gatv2 },
    TypedConv { model: "sage-edge", add: edges::sage },
    TypedConv { model: "edge-gated", add: edges::gated },
];

/// Rows of each node type; `None` for a type that the scores do not depend on.
type Rows = Vec<Option<String>>;

/// Node types and edge types of a model.
struct Types {
    names: Vec<String>,
    /// Name of each edge type, and its source type and destination type.
    relations: Vec<(String, [usize; 2])>,
    /// Edge types that each layer reads, from the bottom up.
    followed: Vec<Vec<bool>>,
    /// Number of features of the edges of each type; empty if they are not read.
    edge_widths: Vec<usize>,
}

impl Types {
    /// The types in the options of a model.
    ///
    /// # Errors
    /// The options are incomplete.
    fn new(options: &Json) -> Result<Self> {
        let list = |name: &str| options[name].as_array().map_or(&[][..], Vec::as_slice);
        let word = |value: &Json| value.as_str().unwrap_or_default().to_string();
        let names: Vec<String> = list("node_types").iter().map(|of| word(&of["name"])).collect();
        let find = |name: &Json| position(&names, name);
        let relation = |of: &Json| -> Result<(String, [usize; 2])> {
            let name = [0, 1, 2].map(|part| word(&of[part])).join(":");
            Ok((name, [find(&of[0])?, find(&of[2])?]))
        };
        let of_layer = |of: &Json| of.as_array().into_iter().flatten().map(|of| *of == true).collect();
        let number = |of: &Json| of.as_u64().unwrap_or_default() as usize;
        Ok(Self {
            relations: list("edge_types").iter().map(relation).collect::<Result<_>>()?,
            followed: list("followed").iter().map(of_layer).collect(),
            edge_widths: list("edge_widths").iter().map(number).collect(),
            names,
        })
    }

    /// Number of the type called `name`.
    fn find(&self, name: &Json) -> Result<usize> {
        position(&self.names, name)
    }

    /// Types whose rows the layers read, from the bottom up, and last those `wanted`.
    fn needed(&self, wanted: &[usize]) -> Vec<Vec<bool>> {
        let last = (0..self.names.len()).map(|t| wanted.contains(&t)).collect();
        let mut needed: Vec<Vec<bool>> = vec![last];
        for followed in self.followed.iter().rev() {
            let above = &needed[needed.len() - 1];
            let mut below = above.clone();
            let read =
                self.relations.iter().zip(followed).filter(|((_, [_, to]), is_read)| **is_read && above[*to]);
            read.for_each(|((_, [from, _]), _)| below[*from] = true);
            needed.push(below);
        }
        needed.reverse();
        needed
    }
}

/// Number of the type called `name`.
fn position(names: &[String], name: &Json) -> Result<usize> {
    names.iter().position(|of| Some(of.as_str()) == name.as_str()).ok_or_else(|| {
        Error::usage("--to onnx: the run does not record its types; train it with this version")
    })
}

/// Edges of a type in a block, with their features if the model reads some.
struct TypedEdges {
    edges: Edges,
    attr: Option<String>,
}

/// Place of a layer's operations in the model.
struct Place<'a> {
    shape: &'a Shape<'a>,
    types: &'a Types,
    /// Number of the layer, from the bottom.
    layer: usize,
    /// Width of the input rows and of the output rows.
    widths: (usize, usize),
    /// True if the layer computes the scores.
    is_last: bool,
    /// Number of destinations of each type.
    counts: Rows,
    /// Edges that the layer reads, by edge type.
    edges: Vec<Option<TypedEdges>>,
}

impl Place<'_> {
    /// Start of the names of the parameters that all types share.
    fn shared(&self) -> String {
        format!("conv.{}.", self.layer)
    }

    /// Start of the names of the parameters of type `t`.
    fn of_type(&self, t: usize) -> String {
        format!("conv.{}.{}.", self.layer, self.types.names[t])
    }

    /// Start of the names of the parameters of edge type `r`.
    fn of_relation(&self, r: usize) -> String {
        format!("conv.{}.{}.", self.layer, self.types.relations[r].0)
    }

    /// Number of destinations of type `t`.
    fn count(&self, t: usize) -> &str {
        self.counts[t].as_deref().expect("a type with rows has destinations")
    }

    /// Edge types into type `t`, with their source types and their edges if the layer reads them.
    fn entering(&self, t: usize) -> impl Iterator<Item = (usize, usize, Option<&TypedEdges>)> {
        let relations = self.types.relations.iter().zip(&self.edges).enumerate();
        let into = relations.filter(move |(_, ((_, [_, to]), _))| *to == t);
        into.map(|(r, ((_, [from, _]), edges))| (r, *from, edges.as_ref()))
    }

    /// Edge types into type `t` that the layer reads.
    fn read_entering(&self, t: usize) -> impl Iterator<Item = (usize, usize, &TypedEdges)> {
        self.entering(t).filter_map(|(r, from, edges)| Some((r, from, edges?)))
    }

    /// Number of heads of an attention layer, and their width.
    fn heads(&self) -> Heads {
        let (_, width) = self.widths;
        match self.is_last {
            true => (self.shape.number("out_heads"), width),
            false => {
                let heads = self.shape.number("heads");
                (heads, width / heads)
            }
        }
    }
}

/// Rows of type `t`.
fn rows(x: &Rows, t: usize) -> &str {
    x[t].as_deref().expect("a layer reads needed types")
}

/// Adds the model of a run on nodes, and returns the scores of the predicted type.
///
/// # Errors
/// The options are incomplete, or a parameter is missing.
pub(super) fn add_scores(builder: &mut Builder, options: &Json) -> Result<String> {
    let (shape, types) = (Shape(options), Types::new(options)?);
    let predicts = types.find(&options["predicts"])?;
    let x = add_layers(builder, options, &types, (&[predicts], true))?;
    let mut scores = rows(&x, predicts).to_string();
    let head_layers = shape.number("head_layers");
    for layer in 0..head_layers {
        scores = builder.linear(&scores, &format!("head.{layer}."))?;
        if layer + 1 < head_layers {
            scores = builder.activation(&scores, shape.word("activation"))?;
        }
    }
    Ok(scores)
}

/// Adds the layers of a run on links, declares the embeddings of the types `ends` as outputs, and
/// returns the names of these types and of their rows.
///
/// # Errors
/// The options are incomplete, or a parameter is missing.
pub(super) fn add_embeddings(
    builder: &mut Builder,
    options: &Json,
    ends: &[String],
) -> Result<Vec<(String, String)>> {
    let types = Types::new(options)?;
    let wanted = ends.iter().map(|name| types.find(&name.as_str().into())).collect::<Result<Vec<_>>>()?;
    let x = add_layers(builder, options, &types, (&wanted, false))?;
    let embeddings: Vec<_> =
        ends.iter().zip(wanted).map(|(end, t)| (end.clone(), rows(&x, t).to_string())).collect();
    embeddings.iter().for_each(|(end, rows)| links::add_embeddings(builder, options, end, rows));
    Ok(embeddings)
}

/// Adds the layers, and returns their rows of the types `wanted`. `scored` says that the last layer
/// computes scores if no dense layers follow it.
fn add_layers(
    builder: &mut Builder,
    options: &Json,
    types: &Types,
    (wanted, scored): (&[usize], bool),
) -> Result<Rows> {
    let shape = Shape(options);
    let (layers, head_layers) = (shape.number("layers"), shape.number("head_layers"));
    let (hidden, outputs) = (shape.number("hidden"), shape.number("outputs"));
    let conv = TABLE.iter().find(|conv| conv.model == shape.word("model")).expect("checked by the caller");
    let needed = types.needed(wanted);
    let mut x = inputs(builder, options, types, &needed[0])?;
    for layer in 0..layers {
        let is_top = layer + 1 == layers && head_layers == 0;
        let is_last = is_top && scored;
        let above = &needed[layer + 1];
        let (counts, edges) = block(&mut builder.graph, types, layer, above);
        let widths = (hidden, if is_last { outputs } else { hidden });
        let place = Place { shape: &shape, types, layer, widths, is_last, counts, edges };
        let mut next: Rows = vec![None; above.len()];
        for t in (0..above.len()).filter(|&t| above[t]) {
            let mut rows = (conv.add)(builder, &place, t, &x)?;
            if !is_top {
                let name = format!("norm.{layer}.{}.", types.names[t]);
                rows = builder.norm(&rows, shape.word("norm"), &name)?;
                rows = builder.activation(&rows, shape.word("activation"))?;
            }
            next[t] = Some(rows);
        }
        x = next;
    }
    Ok(x)
}

/// Declares the inputs of the needed types, and computes their rows.
fn inputs(builder: &mut Builder, options: &Json, types: &Types, needed: &[bool]) -> Result<Rows> {
    let mut x = vec![None; needed.len()];
    for (t, name) in types.names.iter().enumerate().filter(|(t, _)| needed[*t]) {
        let width = options["node_types"][t]["width"].as_u64().unwrap_or_default() as usize;
        let nodes = Dim::named(format!("nodes.{name}"));
        x[t] = Some(if width > 0 {
            let dims = vec![nodes, Dim::known(width)];
            let x = builder.graph.input(&format!("x.{name}"), FLOAT, dims, "feature rows of the input nodes");
            builder.linear(&x, &format!("input.{name}."))?
        } else {
            let doc = "ids of the input nodes";
            let ids = builder.graph.input(&format!("nodes.{name}"), INT64, vec![nodes], doc);
            let table = builder.constant(&format!("input.{name}.rows"))?;
            builder.graph.gather(&table, &ids)
        });
    }
    Ok(x)
}

/// Declares the block of a layer that computes rows of the types `above`.
fn block(graph: &mut Graph, types: &Types, layer: usize, above: &[bool]) -> (Rows, Vec<Option<TypedEdges>>) {
    let count = |(name, is_above): (&String, &bool)| {
        is_above.then(|| {
            let doc = "number of destinations, which are the first rows";
            graph.input(&format!("num_dst.{layer}.{name}"), INT64, vec![Dim::known(1)], doc)
        })
    };
    let counts: Rows = types.names.iter().zip(above).map(count).collect();
    let mut edges = Vec::with_capacity(types.relations.len());
    for (r, ((name, [_, to]), &is_read)) in types.relations.iter().zip(&types.followed[layer]).enumerate() {
        let Some(count) = counts[*to].clone().filter(|_| is_read) else {
            edges.push(None);
            continue;
        };
        let number = || Dim::named(format!("edges.{layer}.{name}"));
        let (dims, doc) = (vec![Dim::known(2), number()], "source row and destination row of each edge");
        let index = graph.input(&format!("edge_index.{layer}.{name}"), INT64, dims, doc);
        let [source, target] = [0, 1].map(|end| {
            let end = graph.ints(&[], &[end]);
            graph.gather(&index, &end)
        });
        let width = types.edge_widths.get(r).copied().unwrap_or(0);
        let attr = (width > 0).then(|| {
            let dims = vec![number(), Dim::known(width)];
            graph.input(&format!("edge_attr.{layer}.{name}"), FLOAT, dims, "features of the edges")
        });
        edges.push(Some(TypedEdges { edges: Edges { source, target, count, weights: None }, attr }));
    }
    (counts, edges)
}

/// Parts of several typed layers.
impl Builder<'_> {
    /// Rows of several lists under each other.
    fn stack(&mut self, lists: &[String]) -> String {
        match lists {
            [only] => only.clone(),
            _ => {
                let lists: Vec<&str> = lists.iter().map(String::as_str).collect();
                self.graph.op_with("Concat", &lists, vec![Attribute::int("axis", 0)])
            }
        }
    }

    /// `count` copies of a row.
    fn copies(&mut self, row: &str, count: &str, width: usize) -> String {
        let width = self.graph.ints(&[1], &[width as i64]);
        let shape = self.graph.op_with("Concat", &[count, &width], vec![Attribute::int("axis", 0)]);
        self.graph.op("Expand", &[row, &shape])
    }

    /// `x + y`.
    fn add(&mut self, x: &str, y: &str) -> String {
        self.graph.op("Add", &[x, y])
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_typed_layer_has_operations() {
        let mut layers: Vec<&str> = graphmill_nn::typed::TABLE.iter().map(|entry| entry.name).collect();
        let mut exported: Vec<&str> = super::TABLE.iter().map(|conv| conv.model).collect();
        layers.sort_unstable();
        exported.sort_unstable();
        assert_eq!(exported, layers);
    }
}
