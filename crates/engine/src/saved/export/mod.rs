//! Exports of a run's model for other libraries. Each target is a row of [`TABLE`].
//!
//! # Layout of the weights
//!
//! A safetensors file of 32-bit floats, with the names of `best.safetensors`:
//!
//! | parameter | shape |
//! | --- | --- |
//! | `*.weight` of a linear map from `F` to `O` columns | `O x F`, as in PyTorch |
//! | a single row: biases, `gamma`, `beta`, `source`, `target` | `O` |
//! | `running` of batch normalization | `2 x O`: means, variances |
//! | rows of a table, `decoder.relation`, `decoder.angles`, `basis`, `blocks` | as stored |
//!
//! Names begin with the part of the model, and parameters of a type or relation have its name in
//! the middle: `conv.0.author:writes:paper.edge.weight`. A weight of edges without features has no
//! columns. A row of `decoder.relation` or `decoder.angles` belongs to a relation; that of
//! `bilinear` is a matrix, row by row.
//!
//! The metadata holds the version of Graphmill and the options of the model as JSON.

mod import;
mod kind;
mod links;
mod onnx;
mod pyg;
mod typed;

use std::{
    collections::HashMap,
    fmt::Display,
    path::{Path, PathBuf},
};

use graphmill_core::{
    options::one_of,
    table::{Entry, Table},
};
use graphmill_data::atomic::{self, Real};
use graphmill_loader::sampler;
use safetensors::{Dtype, tensor::TensorView};
use serde::Serialize;
use serde_json::json;

use self::kind::Kind;
use super::SavedRun;
use crate::{
    Error, Result, build,
    checkpoint::{self, tensors::Tensor},
    label_inputs,
};

/// Writer of a model: the run and the path of the output.
pub type Export = fn(&SavedRun, &Path) -> Result<Vec<PathBuf>>;

/// Table of the targets.
pub static TABLE: Table<Export> = Table::new(
    "export target",
    &[
        Entry {
            name: "safetensors",
            summary: "a file of the weights, oriented as in PyTorch",
            source: "https://github.com/huggingface/safetensors",
            options: &[],
            make: write_safetensors,
        },
        Entry {
            name: "pyg",
            summary: "a directory with a torch.nn.Module of PyTorch Geometric's layers and the weights",
            source: "https://pyg.org",
            options: &[],
            make: pyg::write,
        },
        Entry {
            name: "onnx",
            summary: "a file of the model over explicit blocks, for runtimes without graph libraries",
            source: "https://onnx.ai",
            options: &[],
            make: onnx::write,
        },
    ],
);

/// Summary of an export.
#[derive(Clone, Debug, Serialize)]
pub struct ExportedModel {
    /// Run directory.
    pub run: PathBuf,
    /// Name of the target.
    pub to: &'static str,
    /// Files that were written.
    pub files: Vec<PathBuf>,
    /// Number of values of all parameters.
    pub values: usize,
}

impl SavedRun {
    /// Writes the model for the target called `to` to `out`.
    ///
    /// # Errors
    /// The target is unknown or cannot represent the model, the weights cannot be read, or `out`
    /// cannot be written.
    pub fn export_model(&self, to: &str, out: &Path) -> Result<ExportedModel> {
        let entry = TABLE.find(to).map_err(|error| Error::usage(format!("--to {to}: {error}")))?;
        let values = self.tensors()?.iter().map(|tensor| tensor.data.len()).sum();
        let files = (entry.make)(self, out)?;
        Ok(ExportedModel { run: self.dir.clone(), to: entry.name, files, values })
    }

    /// Parameters as the run stores them.
    fn tensors(&self) -> Result<Vec<Tensor>> {
        let file = self.model_file()?;
        checkpoint::load_params(&file)
    }

    /// Options from which another library builds the model.
    fn model_options(&self) -> Result<serde_json::Value> {
        let all = self.config.to_json();
        let names = [
            "model",
            "layers",
            "hidden",
            "activation",
            "norm",
            "residual",
            "input_layer",
            "head_layers",
            "dropout",
            "input_dropout",
            "aggregator",
            "sage_combine",
            "hops",
            "heads",
            "out_heads",
            "attention_dropout",
            "no_own_rows",
            "bases",
            "blocks",
            "edge_dim",
            "negative_slope",
        ];
        let mut options: serde_json::Map<String, serde_json::Value> =
            names.iter().filter_map(|&name| Some((name.to_string(), all.get(name)?.clone()))).collect();
        options.insert("norm".into(), json!(build::norm(&self.config)));
        let origin = self.origin.as_ref();
        if let Some(origin) = origin {
            let labels = label_inputs::width(&self.config, origin.dataset.classes);
            options.insert("inputs".into(), json!(origin.dataset.feature_dim + labels));
            options.insert("outputs".into(), json!(origin.dataset.classes));
            options.insert("multilabel".into(), json!(origin.dataset.multilabel));
            if !origin.dataset.columns.is_empty() {
                options.insert("columns".into(), json!(origin.dataset.columns));
            }
            let scale = origin.features.as_ref().and_then(|features| features.normalization.as_ref());
            options.insert("normalization".into(), json!(scale));
        }
        let path = origin.and_then(|origin| origin.path.as_deref());
        let kind = Kind::of(self);
        match kind {
            Kind::TypedNodes(of) | Kind::TypedLinks(of) => typed::add_options(of, &mut options)?,
            Kind::Nodes => {
                options.insert("classes".into(), json!(build::class_names(path).unwrap_or_default()));
            }
            Kind::Links | Kind::Table => {}
        }
        if kind.has_decoder() {
            links::add_options(self, kind, &mut options);
        }
        options.insert("target_scale".into(), json!(self.target_scale()));
        options.insert("graphmill".into(), json!(env!("CARGO_PKG_VERSION")));
        Ok(options.into())
    }
}

/// Error of a model that the target called `to` cannot represent.
fn refused(to: &str, why: impl Display) -> Error {
    Error::usage(format!("--to {to}: {why}; export the weights with --to safetensors"))
}

/// Refuses models other than `models`, and runs whose outputs a model over blocks does not give.
fn check_layers(run: &SavedRun, to: &str, models: &[&str]) -> Result<()> {
    let config = run.config();
    let refuse = |why: String| Err(refused(to, why));
    if run.learns_events() {
        return refuse("the run learned a stream of events".into());
    }
    if !models.contains(&config.model.as_str()) {
        return refuse(format!("--model {} is not one of {}", config.model, one_of(models)));
    }
    // other libraries read all neighbours alike
    if sampler::TABLE.get(&config.sampler).is_some_and(|row| row.make.weights_inference) {
        return refuse(format!("--sampler {} weights the neighbours", config.sampler));
    }
    Ok(())
}

/// Writes the weights as a safetensors file.
fn write_safetensors(run: &SavedRun, out: &Path) -> Result<Vec<PathBuf>> {
    if out.extension().is_none_or(|ending| ending != "safetensors") {
        return Err(Error::usage(format!(
            "{}: --to safetensors writes a file; use a name that ends in .safetensors",
            out.display()
        )));
    }
    write_weights(run, out)?;
    Ok(vec![out.to_path_buf()])
}

/// Writes the weights to `path` in the documented layout.
fn write_weights(run: &SavedRun, path: &Path) -> Result<()> {
    let tensors: Vec<(String, Vec<usize>, Vec<f32>)> = run.tensors()?.into_iter().map(oriented).collect();
    let wrong = |error: safetensors::SafeTensorError| Error::format(path, "header", error.to_string());
    let mut views = Vec::with_capacity(tensors.len());
    for (name, shape, data) in &tensors {
        let bytes = bytemuck::cast_slice(data);
        views.push((name, TensorView::new(Dtype::F32, shape.clone(), bytes).map_err(wrong)?));
    }
    let metadata = HashMap::from([
        ("format".to_string(), "pt".to_string()),
        ("graphmill".to_string(), env!("CARGO_PKG_VERSION").to_string()),
        ("model".to_string(), run.model_options()?.to_string()),
    ]);
    let mut bytes = safetensors::serialize(views, Some(metadata)).map_err(wrong)?;
    sort_metadata(&mut bytes).map_err(|e| Error::format(path, "header", e.to_string()))?;
    Ok(atomic::replace(&mut Real, path, &bytes)?)
}

/// Sorts the metadata of a safetensors file by name. The library writes them in the order of a hash
/// table, which differs from call to call; the same model gives the same bytes.
fn sort_metadata(bytes: &mut [u8]) -> serde_json::Result<()> {
    let Some((length, rest)) = bytes.split_first_chunk_mut() else { return Ok(()) };
    let header = &mut rest[..u64::from_le_bytes(*length) as usize];
    let mut tree: serde_json::Value = serde_json::from_slice(header)?;
    if let Some(metadata) = tree["__metadata__"].as_object_mut() {
        metadata.sort_keys();
    }
    let mut text = serde_json::to_vec(&tree)?;
    // the same members without their order, so the same length before the padding
    text.resize(header.len(), b' ');
    header.copy_from_slice(&text);
    Ok(())
}

/// Name, shape and values of a parameter in the layout of exports.
fn oriented(tensor: Tensor) -> (String, Vec<usize>, Vec<f32>) {
    let Tensor { name, shape: [rows, cols], data } = tensor;
    if name == "weight" || name.ends_with(".weight") {
        let transposed = (0..cols).flat_map(|c| (0..rows).map(move |r| r * cols + c));
        let data = transposed.map(|i| data[i]).collect();
        return (name, vec![cols, rows], data);
    }
    let shape = if rows == 1 { vec![cols] } else { vec![rows, cols] };
    (name, shape, data.into_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_are_sorted_so_that_equal_models_have_equal_bytes() {
        let values: Vec<u8> = (0..48).collect();
        let names = ["c", "a", "b", "e", "d", "\"f\u{e9}\n"];
        let mut first = None;
        for _ in 0..20 {
            let view = |name| (name, TensorView::new(Dtype::F32, vec![3, 4], &values).unwrap());
            let metadata = names.iter().map(|name| ((*name).to_string(), format!("of {name}"))).collect();
            let mut bytes = safetensors::serialize(["y", "x"].map(view), Some(metadata)).unwrap();
            sort_metadata(&mut bytes).unwrap();
            let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
            assert_eq!((file.names().len(), file.tensor("x").unwrap().data()), (2, &values[..]));
            let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
            let found = header.metadata().as_ref().unwrap();
            assert!(names.iter().all(|name| found[*name] == format!("of {name}")));
            assert_eq!(*first.get_or_insert_with(|| bytes.clone()), bytes);
        }
    }

    #[test]
    fn weights_are_transposed_and_single_rows_are_vectors() {
        let of = |name: &str, shape: [usize; 2]| {
            let data = (0..shape[0] * shape[1]).map(|x| x as f32).collect::<Vec<_>>().into();
            oriented(Tensor { name: name.into(), shape, data })
        };
        let (_, shape, data) = of("conv.0.self.weight", [2, 3]);
        assert_eq!((shape, data), (vec![3, 2], vec![0.0, 3.0, 1.0, 4.0, 2.0, 5.0]));
        assert_eq!(of("conv.0.bias", [1, 3]).1, [3]);
        let (_, shape, data) = of("norm.0.running", [2, 2]);
        assert_eq!((shape, data), (vec![2, 2], vec![0.0, 1.0, 2.0, 3.0]));
        assert_eq!(of("conv.0.weight", [1, 3]).1, [3, 1], "a map from one column");
    }
}
