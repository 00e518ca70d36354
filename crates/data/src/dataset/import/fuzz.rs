//! Entry points of the fuzzer (feature `fuzz`) to private parsers, from bytes. They return the
//! parsers' errors.

use std::path::Path;

use graphmill_core::{Result, location::Location};

use super::{pickle, torch};
use crate::{dataset::manifest::Manifest, npy::Header, signed::SignedManifest};

fn at() -> Location<'static> {
    Location::new(Path::new("fuzz"), "fuzz")
}

/// Parses the header of an `.npy` array.
pub fn npy_header(mut data: &[u8]) -> Result<()> {
    Header::read(&mut data, &at()).map(drop)
}

/// Parses a pickle, and extracts every kind of value from it.
pub fn pickle(data: &[u8]) -> Result<()> {
    let pickle = pickle::read(data).map_err(|(_, message)| at().error(message))?;
    let matrix = pickle.csr(&at()).and_then(|csr| csr.to_dense(&at()));
    let is_keyed = pickle.keyed_lists::<3>(|_, _| Ok(())).is_ok();
    if !is_keyed && pickle.array::<i32>().is_err() && pickle.adjacency().is_err() {
        matrix?;
    }
    Ok(())
}

/// Parses the text of a dataset's manifest.
pub fn manifest(text: &str) -> Result<()> {
    Manifest::parse(text, Path::new("fuzz")).map(drop)
}

/// Parses a file of PyTorch, and reads every array and tensor in it.
pub fn torch(data: &[u8], path: &Path) -> Result<()> {
    torch::read_bytes(data, path, each)
}

fn each(item: &pickle::Item, storages: &torch::Storages, at: &Location) -> Result<()> {
    match item {
        pickle::Item::Array(..) | pickle::Item::Tensor(_) => storages.values::<f64>(item, at).map(drop),
        pickle::Item::List(items) => items.iter().try_for_each(|item| each(item, storages, at)),
        pickle::Item::Dict(entries) => entries.iter().try_for_each(|(_, value)| each(value, storages, at)),
        _ => Ok(()),
    }
}
