//! Copies of named tensors to the matrices of a model or an optimiser.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use graphmill_core::maps;
use graphmill_nn::Matrix;

use super::tensors::{CHUNK, Tensor};
use crate::{Error, Result};

/// Tables with a row for each node, by the name of their tensor: for each type, the rows of the
/// tensor and of the matrix. More rows of the matrix follow those of the tensor.
pub(crate) type GrownRows = BTreeMap<String, Vec<[usize; 2]>>;

/// Copies the `tensors` of the file `path` by name to the matrices that `visit` passes.
///
/// # Errors
/// A name or a shape differs; the message names the first such tensor.
pub(crate) fn assign(
    path: &Path,
    tensors: &[Tensor],
    visit: impl FnOnce(&mut dyn FnMut(&str, &mut Matrix)),
) -> Result<()> {
    assign_grown(path, tensors, &GrownRows::new(), visit)
}

/// Copies tensors as [`assign`] does, also to tables that have `grown` since; their other rows stay
/// as they are.
///
/// # Errors
/// As for [`assign`].
pub(crate) fn assign_grown(
    path: &Path,
    tensors: &[Tensor],
    grown: &GrownRows,
    visit: impl FnOnce(&mut dyn FnMut(&str, &mut Matrix)),
) -> Result<()> {
    let mut assign = Assign::new(path.to_path_buf(), tensors, grown);
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
    grown: &'a GrownRows,
    wrong: Option<Error>,
}

impl<'a> Assign<'a> {
    fn new(path: PathBuf, tensors: &'a [Tensor], grown: &'a GrownRows) -> Self {
        Self { path, left: tensors.iter().map(|t| (&t.name[..], t)).collect(), grown, wrong: None }
    }

    /// Rows of a table that has grown, by type, if they are those of these shapes.
    fn grown(&self, name: &str, [before, now]: [[usize; 2]; 2]) -> Option<&'a [[usize; 2]]> {
        let types = self.grown.get(name)?;
        let rows = |i: usize| types.iter().map(|counts| counts[i]).sum::<usize>();
        let fits = before == [rows(0), now[1]] && now[0] == rows(1);
        (fits && types.iter().all(|[before, now]| before <= now)).then_some(types)
    }

    fn wrong(&mut self, name: &str, what: String) {
        let message = format!("{what}; use the configuration that wrote the file");
        self.wrong.get_or_insert(Error::format(&self.path, format!("tensor '{name}'"), message));
    }

    fn one(&mut self, name: &str, shape: [usize; 2], to: &mut [f32]) {
        match self.left.remove(name) {
            Some(tensor) if tensor.shape == shape => copy(&tensor.data, to),
            Some(tensor) => match self.grown(name, [tensor.shape, shape]) {
                Some(types) => {
                    let (mut from, mut at, width) = (0, 0, shape[1]);
                    for [before, now] in types {
                        let len = before * width;
                        copy(&tensor.data[from..from + len], &mut to[at..at + len]);
                        (from, at) = (from + len, at + now * width);
                    }
                }
                None => {
                    self.wrong(name, format!("shape {:?}, but the model has {shape:?} here", tensor.shape));
                }
            },
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

/// Copies values. Tables in files may be larger than memory.
fn copy(from: &[f32], to: &mut [f32]) {
    for (to, from) in to.chunks_mut(CHUNK).zip(from.chunks(CHUNK)) {
        to.copy_from_slice(from);
        maps::release(from);
        maps::release(to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_longer_table_keep_their_nodes() {
        let saved = |rows: usize| Tensor {
            name: "rows".into(),
            shape: [rows, 2],
            data: (0..2 * rows).map(|i| i as f32).collect::<Vec<_>>().into(),
        };
        let assigned = |rows: usize, types: Vec<[usize; 2]>| {
            let mut matrix = Matrix::zeros(6, 2);
            matrix.view_mut().host().fill(-1.0);
            let grown = GrownRows::from([("rows".to_string(), types)]);
            assign_grown(Path::new("f"), &[saved(rows)], &grown, |see| see("rows", &mut matrix))
                .map(|()| matrix.view().host().to_vec())
        };
        // two types, of which both have a new node
        let expected = [0.0, 1.0, 2.0, 3.0, -1.0, -1.0, 4.0, 5.0, 6.0, 7.0, -1.0, -1.0];
        assert_eq!(assigned(4, vec![[2, 3], [2, 3]]).unwrap(), expected);
        assert!(assigned(4, vec![[2, 3], [2, 2]]).unwrap_err().to_string().contains("shape [4, 2]"));
        assert!(assigned(5, vec![[2, 3], [2, 3]]).is_err());
        assert!(assigned(6, Vec::new()).is_ok(), "a table that has not grown");
    }
}
