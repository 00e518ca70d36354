//! Export for PyTorch Geometric: `model.py` builds the module from `model.json` and
//! `weights.safetensors`. It joins the files of this directory that the kind of model needs.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use graphmill_data::atomic::{self, Real};

use super::{SavedRun, check_layers, kind::Kind, links, typed, write_weights};
use crate::{Error, Result};

/// Parts of all modules.
const COMMON: &str = include_str!("common.py");
/// Layers of one node type.
const ONE_TYPE: &str = include_str!("one_type.py");
/// Layers of several node types.
const TYPED: &str = include_str!("typed.py");
/// Layers that read edge features.
const EDGE_LAYERS: &str = include_str!("edge_layers.py");
/// Decoders of links.
const DECODERS: &str = include_str!("decoders.py");
/// Links of one node type.
const LINKS: &str = include_str!("links.py");
/// Links of several node types.
const TYPED_LINKS: &str = include_str!("typed_links.py");
/// Tables of embeddings.
const TABLES: &str = include_str!("tables.py");

/// Models that [`ONE_TYPE`] builds.
const MODELS: &[&str] = &["sage", "gcn", "gat", "gatv2", "gin", "mixhop", "pinsage"];

/// Refuses models that no module builds.
pub(super) fn check(run: &SavedRun) -> Result<()> {
    let kind = Kind::of(run);
    match kind {
        Kind::Nodes | Kind::Links => check_layers(run, "pyg", MODELS)?,
        Kind::TypedNodes(of) => typed::check(of, "pyg")?,
        Kind::TypedLinks(of) => typed::check_edges(of, "pyg")?,
        Kind::Table => {}
    }
    if kind.has_decoder() { links::check(run, kind, "pyg") } else { Ok(()) }
}

/// Parts of the module of a model.
fn parts(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Nodes => &[COMMON, ONE_TYPE],
        Kind::Links => &[COMMON, ONE_TYPE, DECODERS, LINKS],
        Kind::TypedNodes(of) if of.edge_widths().is_some() => &[COMMON, TYPED, EDGE_LAYERS],
        Kind::TypedNodes(_) => &[COMMON, TYPED],
        Kind::TypedLinks(of) if of.edge_widths().is_some() => {
            &[COMMON, TYPED, EDGE_LAYERS, DECODERS, TYPED_LINKS]
        }
        Kind::TypedLinks(_) => &[COMMON, TYPED, DECODERS, TYPED_LINKS],
        Kind::Table => &[COMMON, DECODERS, TABLES],
    }
}

/// Writes the directory `out` in one step if it is missing or empty, and otherwise file by file: it
/// may hold other files.
pub(super) fn write(run: &SavedRun, out: &Path) -> Result<Vec<PathBuf>> {
    check(run)?;
    match fs::read_dir(out).map(|mut entries| entries.next().is_some()) {
        Ok(true) => write_files(run, out)?,
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(Error::io(out, "look into", error)),
        _ => {
            // the error of a part passes through the writer of directories, which has another type
            let mut failed = None;
            let written = atomic::write_dir(out, false, |fresh| {
                write_files(run, fresh).map_err(|error| {
                    let text = error.to_string();
                    failed = Some(error);
                    graphmill_core::Error::invalid(text)
                })
            });
            failed.map_or(Ok(()), Err)?;
            written?;
        }
    }
    Ok(FILES.map(|name| out.join(name)).to_vec())
}

/// Names of the module, its options and its weights.
const FILES: [&str; 3] = ["model.py", "model.json", "weights.safetensors"];

/// Writes the files in the directory `dir`, each in one step.
fn write_files(run: &SavedRun, dir: &Path) -> Result<()> {
    let [module, options, weights] = FILES.map(|name| dir.join(name));
    write_weights(run, &weights)?;
    let text = format!("{:#}\n", run.model_options()?);
    atomic::replace(&mut Real, &options, text.as_bytes())?;
    let text = parts(Kind::of(run)).join("\n\n");
    Ok(atomic::replace(&mut Real, &module, text.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use graphmill_nn::{layer, typed as layers_of_types};

    use super::*;

    #[test]
    fn every_layer_has_a_module() {
        let layers: BTreeSet<&str> = layer::TABLE.iter().map(|entry| entry.name).collect();
        assert_eq!(MODELS.iter().copied().collect::<BTreeSet<_>>(), layers);
    }

    #[test]
    fn every_typed_layer_and_decoder_is_named_in_its_part() {
        let names = |part: &str, name: &str| part.contains(&format!("\"{name}\""));
        for entry in layers_of_types::TABLE.iter() {
            let part = if entry.make.reads_edges { EDGE_LAYERS } else { TYPED };
            assert!(names(part, entry.name) && typed::MODELS.contains(&entry.name), "{}", entry.name);
        }
        for name in links::decoders() {
            assert!(names(DECODERS, name), "{name}");
        }
    }
}
