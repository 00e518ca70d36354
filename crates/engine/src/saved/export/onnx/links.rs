//! Models of links: scores of pairs of rows.
//!
//! `ENDS` is the source type and the destination type of the pairs as `SOURCE:DESTINATION`; a model
//! of one type has no endings.
//!
//! | input | type | holds |
//! | --- | --- | --- |
//! | `pairs.ENDS` | int64, `2 x P` | source row and destination row of each pair |
//! | `relation.ENDS` | int64, `P` | relation of each pair, if several have parameters |
//!
//! A row is that of a destination of the last layer, and in a table of embeddings the id of a node
//! of the type. Relations are numbered as in `relations` of the model's options, which the metadata
//! hold.
//!
//! | output | type | holds |
//! | --- | --- | --- |
//! | `scores.ENDS` | float, `P` | score of each pair |
//! | `embeddings.TYPE` | float, `outputs x D` | embeddings of the last layer's destinations |
//!
//! A table has no second output: its embeddings are constants, those of LightGCN as they are after
//! the propagation over the run's training edges.

use serde_json::Value as Json;

use super::{
    layers::Builder,
    message::{Attribute, Dim, INT64},
};
use crate::{Result, embedding::SavedEmbedding, saved::SavedRun};

/// Least length of a row in a cosine.
const MIN_LENGTH: f32 = 1e-6;

/// Rows of the ends of pairs, `P x D`, and the parameters of their relations: a row for each pair,
/// or one for all.
struct Ends {
    source: String,
    destination: String,
    relation: Option<String>,
}

/// Formula of a decoder as operations: from ends and the decoder's options to scores, `P`.
type Formula = fn(&mut Builder, &Ends, &Json) -> Result<String>;

/// Decoders with their operations and the parameter that relations have, if they have one.
const TABLE: &[(&str, Formula, Option<&str>)] = &[
    ("dot", dot, None),
    ("cosine", cosine, None),
    ("bilinear", bilinear, Some("decoder.relation")),
    ("distmult", distmult, Some("decoder.relation")),
    ("complex", complex, Some("decoder.relation")),
    ("transe", transe, Some("decoder.relation")),
    ("rotate", rotate, Some("decoder.angles")),
    ("mlp", mlp, None),
];

/// Source type and destination type of each relation; empty names in a model of one type.
fn types_of(options: &Json) -> Vec<[String; 2]> {
    let relations = options["relations"].as_array().map_or(&[][..], Vec::as_slice);
    let end = |of: &Json, part: usize| of["edge_type"][part].as_str().unwrap_or_default().to_string();
    relations.iter().map(|of| [end(of, 0), end(of, 2)]).collect()
}

/// Node types that the relations join, each once.
pub(super) fn ends(options: &Json) -> Vec<String> {
    let mut ends = types_of(options).concat();
    ends.sort_unstable();
    ends.dedup();
    ends
}

/// Declares the rows of a type as its embeddings.
pub(super) fn add_embeddings(builder: &mut Builder, options: &Json, name: &str, rows: &str) {
    let width = options["decoder"]["width"].as_u64().unwrap_or_default() as usize;
    let dims = vec![Dim::named(with_ending("outputs", name)), Dim::known(width)];
    let doc = "embedding of each destination of the last layer";
    builder.graph.output(&with_ending("embeddings", name), rows, dims, doc);
}

/// Constants of the rows of a table, by node type.
///
/// # Errors
/// The dataset of a run of LightGCN, whose edges its rows are propagated over, cannot be read.
pub(super) fn add_table(
    builder: &mut Builder,
    run: &SavedRun,
    options: &Json,
) -> Result<Vec<(String, String)>> {
    let width = options["hidden"].as_u64().unwrap_or_default() as usize;
    let saved = SavedEmbedding::of(run).filter(|_| options["model"] == "lightgcn");
    let propagated = match saved {
        Some(saved) => Some(saved.load(&saved.dataset(None)?)?.rows),
        None => None,
    };
    let all = match &propagated {
        Some(rows) => rows.view().host(),
        None => &builder.params.get("embedding.rows")?.data[..],
    };
    let mut start = 0;
    let mut found = Vec::new();
    for of in options["tables"].as_array().into_iter().flatten() {
        let name = of["name"].as_str().unwrap_or_default();
        let nodes = of["nodes"].as_u64().unwrap_or_default() as usize;
        let rows = &all[start * width..(start + nodes) * width];
        found.push((name.to_string(), builder.graph.floats(&format!("rows.{name}"), &[nodes, width], rows)));
        start += nodes;
    }
    Ok(found)
}

/// Declares the pairs, and as outputs their scores from the `rows` of node types by name.
///
/// # Errors
/// A parameter of the decoder is missing.
pub(super) fn add_scores(builder: &mut Builder, options: &Json, rows: &[(String, String)]) -> Result<()> {
    let of = &options["decoder"];
    let (_, formula, parameter) =
        *TABLE.iter().find(|(name, ..)| of["name"] == *name).expect("checked by the caller");
    let relations = types_of(options);
    let parameters = parameter.map(|name| builder.constant(name)).transpose()?;
    for (_, ends) in relations.iter().enumerate().filter(|(r, ends)| !relations[..*r].contains(ends)) {
        let name = if ends[0].is_empty() { String::new() } else { ends.join(":") };
        let number = || Dim::named(with_ending("pairs", &name));
        let doc = "source row and destination row of each pair";
        let pairs =
            builder.graph.input(&with_ending("pairs", &name), INT64, vec![Dim::known(2), number()], doc);
        let relation = parameters.as_ref().map(|parameters| {
            let numbers = if relations.len() > 1 {
                let doc = "number of each pair's relation";
                builder.graph.input(&with_ending("relation", &name), INT64, vec![number()], doc)
            } else {
                builder.graph.ints(&[1], &[0])
            };
            builder.graph.gather(parameters, &numbers)
        });
        let [source, destination] = [0, 1].map(|end| {
            let (_, all) = rows.iter().find(|(of, _)| *of == ends[end]).expect("ends have rows");
            let part = builder.graph.ints(&[], &[end as i64]);
            let chosen = builder.graph.gather(&pairs, &part);
            builder.graph.gather(all, &chosen)
        });
        let scores = formula(builder, &Ends { source, destination, relation }, of)?;
        builder.graph.output(&with_ending("scores", &name), &scores, vec![number()], "score of each pair");
    }
    Ok(())
}

/// `name.ending`, or `name` without an ending.
fn with_ending(name: &str, ending: &str) -> String {
    if ending.is_empty() { name.into() } else { format!("{name}.{ending}") }
}

/// Parameters of the relations.
fn relation(ends: &Ends) -> &str {
    ends.relation.as_deref().expect("the decoder's row names the parameter")
}

/// Reductions and parts of rows.
impl Builder<'_> {
    /// Reduction of each row, `P x D` to `P`.
    fn reduced(&mut self, reduction: &str, x: &str) -> String {
        let axis = self.graph.ints(&[1], &[1]);
        self.graph.op_with(reduction, &[x, &axis], vec![Attribute::int("keepdims", 0)])
    }

    /// Real and imaginary parts of rows of `width` numbers.
    fn halves(&mut self, x: &str, width: usize) -> [String; 2] {
        [0..width / 2, width / 2..width].map(|range| self.graph.columns(x, range))
    }

    /// `x y` by elements.
    fn times(&mut self, x: &str, y: &str) -> String {
        self.graph.op("Mul", &[x, y])
    }

    /// `gamma - x`.
    fn gamma_minus(&mut self, x: &str, of: &Json) -> String {
        let gamma = of["gamma"].as_f64().unwrap_or_default() as f32;
        let gamma = self.graph.floats("decoder.gamma", &[], &[gamma]);
        self.graph.op("Sub", &[&gamma, x])
    }
}

/// Width of the rows.
fn width(of: &Json) -> usize {
    of["width"].as_u64().unwrap_or_default() as usize
}

/// `h . t`.
fn dot(b: &mut Builder, ends: &Ends, _: &Json) -> Result<String> {
    let products = b.times(&ends.source, &ends.destination);
    Ok(b.reduced("ReduceSum", &products))
}

/// `h . t / (|h| |t|)`.
fn cosine(b: &mut Builder, ends: &Ends, of: &Json) -> Result<String> {
    let [source, destination] = [&ends.source, &ends.destination].map(|x| b.with_length_one(x, MIN_LENGTH));
    dot(b, &Ends { source, destination, relation: None }, of)
}

/// `h R t`.
fn bilinear(b: &mut Builder, ends: &Ends, of: &Json) -> Result<String> {
    let width = width(of) as i64;
    let shape = b.graph.ints(&[3], &[-1, width, width]);
    let matrices = b.graph.op("Reshape", &[relation(ends), &shape]);
    let one = b.graph.ints(&[1], &[1]);
    let rows = b.graph.op("Unsqueeze", &[&ends.source, &one]);
    let product = b.graph.op("MatMul", &[&rows, &matrices]);
    let source = b.graph.op("Squeeze", &[&product, &one]);
    dot(b, &Ends { source, destination: ends.destination.clone(), relation: None }, of)
}

/// `sum of h r t`.
fn distmult(b: &mut Builder, ends: &Ends, of: &Json) -> Result<String> {
    let source = b.times(&ends.source, relation(ends));
    dot(b, &Ends { source, destination: ends.destination.clone(), relation: None }, of)
}

/// `x y` of complex numbers.
fn complex_product(b: &mut Builder, [a, c]: [&str; 2], [d, e]: [&str; 2]) -> [String; 2] {
    let [ad, ce, ae, cd] = [(a, d), (c, e), (a, e), (c, d)].map(|(x, y)| b.times(x, y));
    [b.graph.op("Sub", &[&ad, &ce]), b.graph.op("Add", &[&ae, &cd])]
}

/// `Re(sum of h r conj(t))`.
fn complex(b: &mut Builder, ends: &Ends, of: &Json) -> Result<String> {
    let [h, r, t] = [&ends.source, relation(ends), &ends.destination].map(|x| b.halves(x, width(of)));
    let moved = complex_product(b, [&h[0], &h[1]], [&r[0], &r[1]]);
    let [real, imaginary] = [0, 1].map(|part| b.times(&moved[part], &t[part]));
    let sum = b.graph.op("Add", &[&real, &imaginary]);
    Ok(b.reduced("ReduceSum", &sum))
}

/// `gamma - |h + r - t|`.
fn transe(b: &mut Builder, ends: &Ends, of: &Json) -> Result<String> {
    let moved = b.graph.op("Add", &[&ends.source, relation(ends)]);
    let difference = b.graph.op("Sub", &[&moved, &ends.destination]);
    let norm = if of["norm"] == 1 { "ReduceL1" } else { "ReduceL2" };
    let distance = b.reduced(norm, &difference);
    Ok(b.gamma_minus(&distance, of))
}

/// `gamma - sum of |h e^(i r) - t|`.
fn rotate(b: &mut Builder, ends: &Ends, of: &Json) -> Result<String> {
    let [h, t] = [&ends.source, &ends.destination].map(|x| b.halves(x, width(of)));
    let [cos, sin] = ["Cos", "Sin"].map(|function| b.graph.op(function, &[relation(ends)]));
    let rotated = complex_product(b, [&h[0], &h[1]], [&cos, &sin]);
    let squares = [0, 1].map(|part| {
        let difference = b.graph.op("Sub", &[&rotated[part], &t[part]]);
        b.times(&difference, &difference)
    });
    let sum = b.graph.op("Add", &[&squares[0], &squares[1]]);
    let distances = b.graph.op("Sqrt", &[&sum]);
    let distance = b.reduced("ReduceSum", &distances);
    Ok(b.gamma_minus(&distance, of))
}

/// Two dense layers over the products of both rows.
fn mlp(b: &mut Builder, ends: &Ends, _: &Json) -> Result<String> {
    let products = b.times(&ends.source, &ends.destination);
    let hidden = b.linear(&products, "decoder.hidden.")?;
    let hidden = b.activation(&hidden, "relu")?;
    let scores = b.linear(&hidden, "decoder.out.")?;
    let one = b.graph.ints(&[1], &[1]);
    Ok(b.graph.op("Squeeze", &[&scores, &one]))
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_decoder_has_operations() {
        let mut decoders = crate::saved::export::links::decoders();
        let mut exported: Vec<&str> = super::TABLE.iter().map(|(name, ..)| *name).collect();
        decoders.sort_unstable();
        exported.sort_unstable();
        assert_eq!(exported, decoders);
    }
}
