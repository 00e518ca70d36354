//! Export as ONNX: the model over explicit blocks, so that any runtime predicts from the rows and
//! edges that it is given.
//!
//! Layer 0 reads the feature rows, and layer `l` the rows of layer `l - 1`. In each block the
//! destinations are the first rows.
//!
//! | input | type | holds |
//! | --- | --- | --- |
//! | `x` | float, `nodes x F` | feature rows as Graphmill stores them |
//! | `edge_index.l` | int64, `2 x E` | source row and destination row of each edge of layer `l` |
//! | `num_dst.l` | int64, `1` | number of destinations |
//! | `edge_weight.l` | float, `E` | GCN, MixHop: `1 / sqrt((d_u + 1) (d_v + 1))`, by in-degrees of the graph |
//! | `self_weight.l` | float, number of destinations | GCN, MixHop: `1 / (d_v + 1)` |
//!
//! The output `scores` has a row for each destination of the last layer: scores before softmax or
//! sigmoid, or values at the scale of the targets. Attention adds the destinations' own rows
//! itself. A layer of several hops (MixHop) reads a block for each, so `l` counts blocks. Models of
//! several types have the inputs of `typed/mod.rs`, and models of links the inputs and outputs of
//! `links.rs`.

mod conv;
mod graph;
mod layers;
mod links;
mod message;
mod parts;
mod target;
mod typed;

use std::path::{Path, PathBuf};

use graphmill_data::atomic::{self, Real};
use prost::Message;
use serde_json::Value as Json;

use self::{
    conv::{Conv, Place},
    graph::Graph,
    layers::{Builder, Params},
    message::{Dim, FLOAT, INT64, Model, OperatorSet, Property},
    parts::Edges,
};
use super::{SavedRun, check_layers, kind::Kind};
use crate::{Error, Result};

/// Version of the operators: the first in which `ScatterElements` has maxima.
const OPSET: i64 = 18;
/// Version of the file format that belongs to the operators.
const IR_VERSION: i64 = 8;
/// A protobuf message has less than 2 GiB.
const MAX_VALUES: usize = (i32::MAX / 4) as usize - (1 << 20);

/// Writes the file `out`.
pub(super) fn write(run: &SavedRun, out: &Path) -> Result<Vec<PathBuf>> {
    let kind = Kind::of(run);
    match kind {
        Kind::Nodes | Kind::Links => {
            let models: Vec<&str> = conv::TABLE.iter().map(|conv| conv.model).collect();
            check_layers(run, "onnx", &models)?;
        }
        Kind::TypedNodes(of) => super::typed::check(of, "onnx")?,
        Kind::TypedLinks(of) => super::typed::check_edges(of, "onnx")?,
        Kind::Table => {}
    }
    if kind.has_decoder() {
        super::links::check(run, kind, "onnx")?;
    }
    if out.extension().is_none_or(|ending| ending != "onnx") {
        let message = format!("{}: --to onnx writes a file; use a name that ends in .onnx", out.display());
        return Err(Error::usage(message));
    }
    let options = run.model_options()?;
    let tensors = run.tensors()?;
    let values: usize = tensors.iter().map(|tensor| tensor.data.len()).sum();
    if values > MAX_VALUES {
        let message = format!(
            "--to onnx: {values} values do not fit into a file of 2 GiB; export them with --to safetensors"
        );
        return Err(Error::usage(message));
    }
    let params = Params::new(tensors);
    let mut builder = Builder { graph: Graph::default(), params: &params };
    add_model(&mut builder, run, kind, &options)?;
    let model = Model {
        ir_version: IR_VERSION,
        producer_name: "graphmill".into(),
        producer_version: env!("CARGO_PKG_VERSION").into(),
        graph: Some(builder.graph.finish()),
        opset_import: vec![OperatorSet { domain: String::new(), version: OPSET }],
        metadata_props: vec![Property { key: "model".into(), value: options.to_string() }],
    };
    atomic::replace(&mut Real, out, &model.encode_to_vec())?;
    Ok(vec![out.to_path_buf()])
}

/// Options that decide the shape of the model.
struct Shape<'a>(&'a Json);

impl Shape<'_> {
    fn word(&self, name: &str) -> &str {
        self.0[name].as_str().unwrap_or_default()
    }

    fn number(&self, name: &str) -> usize {
        self.0[name].as_u64().unwrap_or_default() as usize
    }
}

/// Adds the whole model with its outputs.
fn add_model(builder: &mut Builder, run: &SavedRun, kind: Kind, options: &Json) -> Result<()> {
    match kind {
        Kind::TypedNodes(_) => {
            let scores = typed::add_scores(builder, options)?;
            add_output(builder, options, &scores);
        }
        Kind::TypedLinks(_) => {
            let rows = typed::add_embeddings(builder, options, &links::ends(options))?;
            links::add_scores(builder, options, &rows)?;
        }
        Kind::Table => {
            let rows = links::add_table(builder, run, options)?;
            links::add_scores(builder, options, &rows)?;
        }
        Kind::Nodes | Kind::Links => {
            let config = run.config();
            let conv = conv::TABLE.iter().find(|conv| conv.model == config.model).expect("checked above");
            let hops = graphmill_nn::layer::hops(&config.model, &config.own);
            let rows = add_layers(builder, options, (conv, hops))?;
            match kind {
                Kind::Links => {
                    links::add_embeddings(builder, options, "", &rows);
                    links::add_scores(builder, options, &[(String::new(), rows)])?;
                }
                _ => add_output(builder, options, &rows),
            }
        }
    }
    Ok(())
}

/// Declares the rows `x` as scores, or as values at the scale of the targets.
fn add_output(builder: &mut Builder, options: &Json, x: &str) {
    let scores = target::values(&mut builder.graph, options, x.into());
    let dims = vec![Dim::named("outputs"), Dim::known(Shape(options).number("outputs"))];
    builder.graph.output("scores", &scores, dims, "a row for each destination of the last layer");
}

/// Adds the layers of a model of one type, and returns their rows.
fn add_layers(builder: &mut Builder, options: &Json, (conv, hops): (&Conv, usize)) -> Result<String> {
    let shape = Shape(options);
    let layers = shape.number("layers");
    let head_layers = shape.number("head_layers");
    let mut width = shape.number("inputs");
    let dims = vec![Dim::named("nodes"), Dim::known(width)];
    let mut x = builder.graph.input("x", FLOAT, dims, "feature rows of the input nodes");
    if options["input_layer"] == true {
        x = builder.linear(&x, "input.")?;
        x = builder.activation(&x, shape.word("activation"))?;
        width = shape.number("hidden");
    }
    for layer in 0..layers {
        let is_last = layer + 1 == layers && head_layers == 0;
        let to = if is_last { shape.number("outputs") } else { shape.number("hidden") };
        let (mut rows, mut count) = (x.clone(), String::new());
        for hop in 1..=hops {
            let block = layer * hops + hop - 1;
            let edges = inputs(&mut builder.graph, block, conv.is_weighted);
            let name = format!("conv.{block}.");
            let place = Place { shape: &shape, name, width: to, is_last, hop: (hop, hops) };
            rows = (conv.add)(builder, &place, &rows, &edges)?;
            count = edges.count;
        }
        let block = (layer + 1) * hops - 1;
        rows = residual(builder, &shape, (&x, &count), rows, (block, width == to))?;
        if !is_last {
            rows = builder.norm(&rows, shape.word("norm"), &format!("norm.{block}."))?;
            if !conv.is_activated {
                rows = builder.activation(&rows, shape.word("activation"))?;
            }
        }
        (x, width) = (rows, to);
    }
    for layer in 0..head_layers {
        x = builder.linear(&x, &format!("head.{layer}."))?;
        if layer + 1 < head_layers {
            x = builder.activation(&x, shape.word("activation"))?;
        }
    }
    Ok(x)
}

/// Declares a block.
fn inputs(graph: &mut Graph, layer: usize, is_weighted: bool) -> Edges {
    let edges = || Dim::named(format!("edges.{layer}"));
    let dims = vec![Dim::known(2), edges()];
    let doc = "source row and destination row of each edge";
    let index = graph.input(&format!("edge_index.{layer}"), INT64, dims, doc);
    let count = graph.input(
        &format!("num_dst.{layer}"),
        INT64,
        vec![Dim::known(1)],
        "number of destinations, which are the first rows",
    );
    let weights = is_weighted.then(|| {
        let name = format!("edge_weight.{layer}");
        let of_edges = graph.input(&name, FLOAT, vec![edges()], "1 / sqrt((d_u + 1) (d_v + 1))");
        let rows = vec![Dim::named(format!("destinations.{layer}"))];
        let of_own = graph.input(&format!("self_weight.{layer}"), FLOAT, rows, "1 / (d_v + 1)");
        (of_edges, of_own)
    });
    let [source, target] = [0, 1].map(|end| {
        let end = graph.ints(&[], &[end]);
        graph.gather(&index, &end)
    });
    Edges { source, target, count, weights }
}

/// Adds the residual of the destinations' rows of `x`, if the model has one here.
fn residual(
    builder: &mut Builder,
    shape: &Shape,
    (x, count): (&str, &str),
    rows: String,
    (block, same_width): (usize, bool),
) -> Result<String> {
    let own = match shape.word("residual") {
        "linear" => {
            let own = builder.graph.first(x, count);
            builder.product(&own, &format!("residual.{block}."))?
        }
        "identity" if same_width => builder.graph.first(x, count),
        _ => return Ok(rows),
    };
    Ok(builder.graph.op("Add", &[&rows, &own]))
}
