//! Copies of named tensors to the matrices of a model or an optimiser.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use graphmill_core::maps;
use graphmill_nn::Matrix;

use super::tensors::{CHUNK, Tensor};
use crate::{Error, Result};

/// Copies the `tensors` of the file `path` by name to the matrices that `visit` passes.
///
/// # Errors
/// A name or a shape differs; the message names the first such tensor.
pub(crate) fn assign(
    path: &Path,
    tensors: &[Tensor],
    visit: impl FnOnce(&mut dyn FnMut(&str, &mut Matrix)),
) -> Result<()> {
    let mut assign = Assign::new(path.to_path_buf(), tensors);
    visit(&mut |name, matrix| {
        let shape = [matrix.num_rows(), matrix.num_cols()];
        assign.one(name, shape, matrix.view_mut().host());
    });
    assign.finish()
}

/// Copies tensors by name, and records the first mismatch.
struct Assign<'a> {
    path: PathBuf,
    left: BTreeMap<&'a str, &'a Tensor>,
    wrong: Option<Error>,
}

impl<'a> Assign<'a> {
    fn new(path: PathBuf, tensors: &'a [Tensor]) -> Self {
        Self { path, left: tensors.iter().map(|t| (&t.name[..], t)).collect(), wrong: None }
    }

    fn wrong(&mut self, name: &str, what: String) {
        let message = format!("{what}; use the configuration that wrote the file");
        self.wrong.get_or_insert(Error::format(&self.path, format!("tensor '{name}'"), message));
    }

    fn one(&mut self, name: &str, shape: [usize; 2], to: &mut [f32]) {
        match self.left.remove(name) {
            Some(tensor) if tensor.shape == shape => {
                for (to, from) in to.chunks_mut(CHUNK).zip(tensor.data.chunks(CHUNK)) {
                    to.copy_from_slice(from);
                    // tables in files may be larger than memory
                    maps::release(from);
                    maps::release(to);
                }
            }
            Some(tensor) => {
                self.wrong(name, format!("shape {:?}, but the model has {shape:?} here", tensor.shape));
            }
            None => self.wrong(name, "missing".to_string()),
        }
    }

    fn finish(mut self) -> Result<()> {
        if let Some(name) = self.left.keys().next().copied() {
            self.wrong(name, "the model has no such tensor".to_string());
        }
        self.wrong.map_or(Ok(()), Err)
    }
}
