//! Named matrices in a safetensors file (<https://github.com/huggingface/safetensors>) with a
//! checksum in its metadata. PyTorch and NumPy can read the file.

use std::{
    collections::{BTreeSet, HashMap},
    path::Path,
};

use graphmill_nn::Matrix;
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use xxhash_rust::xxh3::Xxh3;

use crate::{Error, Result};

/// A named matrix to write: name, rows and columns, values in row-major order.
pub type TensorRef<'a> = (String, [usize; 2], &'a [f32]);

/// A named matrix from a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Name, unique in its file.
    pub name: String,
    /// Rows and columns.
    pub shape: [usize; 2],
    /// Values in row-major order.
    pub data: Vec<f32>,
}

impl Tensor {
    /// Copy of a matrix, for matrices that live only during the call of a visitor.
    pub(crate) fn copy(name: &str, matrix: &Matrix) -> Self {
        let shape = [matrix.num_rows(), matrix.num_cols()];
        Self { name: name.into(), shape, data: matrix.view().host().to_vec() }
    }

    /// References to tensors for writing.
    pub(crate) fn borrow_all(tensors: &[Self]) -> Vec<TensorRef<'_>> {
        tensors.iter().map(Self::borrow).collect()
    }

    /// Reference to this tensor for writing.
    pub fn borrow(&self) -> TensorRef<'_> {
        (self.name.clone(), self.shape, &self.data)
    }
}

/// Metadata key of the checksum: XXH3 of every tensor's name, shape and bytes, sorted by name.
const CHECKSUM: &str = "xxh3";

/// Remedy for a damaged file.
pub(super) const REMEDY: &str = "restore the file from a copy, or train again";

fn hash(hasher: &mut Xxh3, name: &str, shape: [usize; 2], bytes: &[u8]) {
    hasher.update(&(name.len() as u64).to_le_bytes());
    hasher.update(name.as_bytes());
    for dim in shape {
        hasher.update(&(dim as u64).to_le_bytes());
    }
    hasher.update(bytes);
}

/// Encodes `tensors` as a safetensors file; error messages name `path`.
///
/// # Errors
/// A duplicate name, or a shape that does not match the number of values.
pub(super) fn encode(path: &Path, tensors: &[TensorRef]) -> Result<Vec<u8>> {
    let wrong = |name: &str, message: String| Error::format(path, format!("tensor '{name}'"), message);
    let mut order: Vec<&TensorRef> = tensors.iter().collect();
    order.sort_by(|a, b| a.0.cmp(&b.0));
    let mut names = BTreeSet::new();
    let mut hasher = Xxh3::new();
    let mut views = Vec::with_capacity(order.len());
    for (name, shape, data) in order {
        if !names.insert(name) {
            return Err(wrong(name, "cannot be written twice".into()));
        }
        let bytes: &[u8] = bytemuck::cast_slice(data);
        let view = TensorView::new(Dtype::F32, shape.to_vec(), bytes)
            .map_err(|e| wrong(name, format!("{} values cannot be written as {shape:?}: {e}", data.len())))?;
        hash(&mut hasher, name, *shape, bytes);
        views.push((name, view));
    }
    let metadata = HashMap::from([(CHECKSUM.to_string(), format!("{:016x}", hasher.digest()))]);
    safetensors::serialize(views, Some(metadata)).map_err(|e| Error::format(path, "header", e.to_string()))
}

/// Decodes the tensors of a safetensors file, sorted by name. Verifies the checksum if the metadata
/// holds one.
///
/// # Errors
/// The file is damaged, or a tensor, which the message names, is not an f32 matrix.
pub(super) fn decode(path: &Path, bytes: &[u8]) -> Result<Vec<Tensor>> {
    let damaged =
        |what: String| Error::format(path, "header", format!("{what}: the file is damaged; {REMEDY}"));
    let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(|e| damaged(e.to_string()))?;
    let file = SafeTensors::deserialize(bytes).map_err(|e| damaged(e.to_string()))?;
    let mut views = file.tensors();
    views.sort_by(|a, b| a.0.cmp(&b.0));
    let mut hasher = Xxh3::new();
    let mut tensors = Vec::with_capacity(views.len());
    for (name, view) in views {
        let (&[rows, cols], Dtype::F32) = (view.shape(), view.dtype()) else {
            let found = format!("{:?} of shape {:?}; expected a matrix of F32", view.dtype(), view.shape());
            return Err(Error::format(path, format!("tensor '{name}'"), found));
        };
        hash(&mut hasher, &name, [rows, cols], view.data());
        let data = bytemuck::pod_collect_to_vec(view.data());
        tensors.push(Tensor { name, shape: [rows, cols], data });
    }
    if let Some(expected) = metadata.metadata().as_ref().and_then(|map| map.get(CHECKSUM)) {
        let got = format!("{:016x}", hasher.digest());
        if *expected != got {
            return Err(damaged(format!("checksum {got}, but the file records {expected}")));
        }
    }
    Ok(tensors)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Vec<u8> {
        let tensors =
            [("w".into(), [2, 2], &[1.0, f32::MIN_POSITIVE, -0.0, 4.0][..]), ("b".into(), [1, 1], &[0.5])];
        encode(Path::new("f"), &tensors).unwrap()
    }

    #[test]
    fn written_tensors_read_back_with_their_bits() {
        let tensors = decode(Path::new("f"), &file()).unwrap();
        assert_eq!(tensors[0], Tensor { name: "b".into(), shape: [1, 1], data: vec![0.5] });
        let bits = |data: &[f32]| data.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&tensors[1].data), bits(&[1.0, f32::MIN_POSITIVE, -0.0, 4.0]));
        assert_eq!(decode(Path::new("f"), &encode(Path::new("f"), &[]).unwrap()).unwrap(), []);
    }

    #[test]
    fn every_flipped_bit_and_truncation_is_detected() {
        let good = decode(Path::new("f"), &file()).unwrap();
        for at in 0..file().len() {
            for bit in 0..8 {
                let mut bytes = file();
                bytes[at] ^= 1 << bit;
                // a flip in the header's white space or in the checksum's key may leave all tensors
                // unchanged
                if let Ok(tensors) = decode(Path::new("f"), &bytes) {
                    assert_eq!(tensors, good, "bit {bit} of byte {at}");
                }
            }
        }
        for len in 0..file().len() {
            let message = decode(Path::new("f"), &file()[..len]).unwrap_err().to_string();
            assert!(message.starts_with("f: header: ") && message.contains("damaged"), "{message}");
        }
    }

    #[test]
    fn duplicate_names_and_wrong_shapes_are_refused() {
        let twice = [("w".into(), [1, 1], &[1.0][..]), ("w".into(), [1, 1], &[1.0])];
        let message = encode(Path::new("f"), &twice).unwrap_err().to_string();
        assert_eq!(message, "f: tensor 'w': cannot be written twice");
        let message = encode(Path::new("f"), &[("w".into(), [2, 1], &[1.0])]).unwrap_err().to_string();
        assert!(message.starts_with("f: tensor 'w': 1 values cannot be written as [2, 1]"), "{message}");
    }
}
