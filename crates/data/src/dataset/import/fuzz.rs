//! Ways in for the fuzzer (feature `fuzz`): readers that have no public one, from bytes. Their errors
//! are the readers'.

use std::path::Path;

use graphmill_core::{Result, place::At};

use super::pickle;
use crate::{dataset::manifest::Manifest, npy::Header, signed::SignedManifest};

fn at() -> At<'static> {
    At::new(Path::new("fuzz"), "fuzz")
}

/// The header of an `.npy` array.
pub fn npy_header(mut data: &[u8]) -> Result<()> {
    Header::read(&mut data, &at()).map(drop)
}

/// A pickle, and everything that is taken out of one.
pub fn pickle(data: &[u8]) -> Result<()> {
    let pickle = pickle::read(data).map_err(|(_, message)| at().error(message))?;
    let matrix = pickle.csr(&at()).and_then(|csr| csr.to_dense(&at()));
    if pickle.array::<i32>().is_err() && pickle.adjacency().is_err() {
        matrix?;
    }
    Ok(())
}

/// The text of a dataset's manifest.
pub fn manifest(text: &str) -> Result<()> {
    Manifest::parse(text, Path::new("fuzz")).map(drop)
}
