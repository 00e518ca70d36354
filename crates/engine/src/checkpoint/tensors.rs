//! Named matrices in a safetensors file (<https://github.com/huggingface/safetensors>) with a
//! checksum in its metadata. PyTorch and NumPy can read the file.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

use graphmill_core::{Buffer, maps};
use graphmill_nn::Matrix;
use safetensors::{
    Dtype, SafeTensors,
    tensor::{Metadata, TensorInfo},
};
use xxhash_rust::xxh3::Xxh3;

use crate::{Error, Result};

/// A named matrix to write: name, rows and columns, values in row-major order.
pub type TensorRef<'a> = (String, [usize; 2], &'a [f32]);

/// Bytes from which on a file is mapped, and not read into memory.
const MAPPED_BYTES: u64 = 256 << 20;

/// Values that are hashed or written at once.
pub(super) const CHUNK: usize = 1 << 20;

/// Metadata key of the checksum: XXH3 of every tensor's name, shape and bytes, sorted by name.
const CHECKSUM: &str = "xxh3";

/// Remedy for a damaged file.
const REMEDY: &str = "restore the file from a copy, or train again";

/// A named matrix from a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Name, unique in its file.
    pub name: String,
    /// Rows and columns.
    pub shape: [usize; 2],
    /// Values in row-major order.
    pub data: Values,
}

impl Tensor {
    /// Copy of a matrix, for matrices that live only during the call of a visitor.
    pub(crate) fn copy(name: &str, matrix: &Matrix) -> Self {
        let shape = [matrix.num_rows(), matrix.num_cols()];
        Self { name: name.into(), shape, data: matrix.view().host().to_vec().into() }
    }

    /// Tensor of words, each in two values of 16 bits, which 32-bit floats hold exactly.
    pub(crate) fn of_words(name: &str, words: &[u32]) -> Self {
        let halves = words.iter().flat_map(|word| [word >> 16, word & 0xffff].map(|half| half as f32));
        Self { name: name.into(), shape: [words.len(), 2], data: halves.collect::<Vec<f32>>().into() }
    }

    /// The words of [`Tensor::of_words`].
    pub(crate) fn words(&self) -> Vec<u32> {
        let word = |halves: &[f32]| (halves[0] as u32) << 16 | halves[1] as u32;
        self.data.chunks_exact(2).map(word).collect()
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

/// Divides tensors into those whose names begin with `prefix`, and the others.
pub(crate) fn divide(tensors: Vec<Tensor>, prefix: &str) -> [Vec<Tensor>; 2] {
    let (own, others) = tensors.into_iter().partition(|tensor| tensor.name.starts_with(prefix));
    [own, others]
}

/// Values of a tensor: in memory, or in a mapped file if they may be larger than memory.
#[derive(Clone, Debug)]
pub enum Values {
    /// In memory.
    Memory(Vec<f32>),
    /// In a mapped file.
    File(Buffer<f32>),
}

impl Values {
    /// The values in memory, copied if they are in a file.
    pub(crate) fn into_vec(self) -> Vec<f32> {
        match self {
            Self::Memory(values) => values,
            Self::File(values) => values.to_vec(),
        }
    }
}

impl std::ops::Deref for Values {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match self {
            Self::Memory(values) => values,
            Self::File(values) => values,
        }
    }
}

impl From<Vec<f32>> for Values {
    fn from(values: Vec<f32>) -> Self {
        Self::Memory(values)
    }
}

impl<'v> IntoIterator for &'v Values {
    type Item = &'v f32;
    type IntoIter = std::slice::Iter<'v, f32>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl PartialEq for Values {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

/// Calls `see` with consecutive chunks of `values`. Chunks of a mapped file leave the memory of
/// this process afterwards.
pub(super) fn for_each_chunk<T: bytemuck::NoUninit>(values: &[T], mut see: impl FnMut(&[T])) {
    for chunk in values.chunks(CHUNK) {
        maps::expect(chunk);
        see(chunk);
        maps::release(chunk);
    }
}

/// Adds a tensor's name, shape and bytes to the checksum.
fn hash<T: bytemuck::NoUninit>(hasher: &mut Xxh3, name: &str, shape: [usize; 2], values: &[T]) {
    hasher.update(&(name.len() as u64).to_le_bytes());
    hasher.update(name.as_bytes());
    for dim in shape {
        hasher.update(&(dim as u64).to_le_bytes());
    }
    for_each_chunk(values, |chunk| hasher.update(bytemuck::cast_slice(chunk)));
}

/// A safetensors file to write: its header, and references to the values behind it.
pub(super) struct Encoded<'t> {
    header: Vec<u8>,
    values: Vec<&'t [f32]>,
}

impl Encoded<'_> {
    /// Number of bytes.
    pub(super) fn len(&self) -> u64 {
        self.header.len() as u64 + self.values.iter().map(|values| size_of_val(*values) as u64).sum::<u64>()
    }

    /// Writes all bytes to `file`, and returns their XXH3.
    ///
    /// # Errors
    /// Those of `file`.
    pub(super) fn write_to(&self, file: &mut dyn Write) -> io::Result<String> {
        let mut hasher = Xxh3::new();
        hasher.update(&self.header);
        let mut written = file.write_all(&self.header);
        for values in &self.values {
            for_each_chunk(values, |chunk| {
                if written.is_ok() {
                    let bytes = bytemuck::cast_slice(chunk);
                    hasher.update(bytes);
                    written = file.write_all(bytes);
                }
            });
        }
        written.map(|()| format!("{:016x}", hasher.digest()))
    }
}

/// Encodes `tensors` as a safetensors file; error messages name `path`.
///
/// # Errors
/// A duplicate name, or a shape that does not match the number of values.
pub(super) fn encode<'t>(path: &Path, tensors: &[TensorRef<'t>]) -> Result<Encoded<'t>> {
    let wrong = |name: &str, message: String| Error::format(path, format!("tensor '{name}'"), message);
    let mut order: Vec<&TensorRef> = tensors.iter().collect();
    order.sort_by(|a, b| a.0.cmp(&b.0));
    let mut hasher = Xxh3::new();
    let (mut all, mut values, mut end) = (Vec::with_capacity(order.len()), Vec::new(), 0);
    for (name, shape, data) in order {
        if all.last().is_some_and(|(last, _)| last == name) {
            return Err(wrong(name, "cannot be written twice".into()));
        }
        if shape[0].checked_mul(shape[1]) != Some(data.len()) {
            return Err(wrong(name, format!("{} values cannot be written as {shape:?}", data.len())));
        }
        hash(&mut hasher, name, *shape, data);
        let start = end;
        end += size_of_val(*data);
        let info = TensorInfo { dtype: Dtype::F32, shape: shape.to_vec(), data_offsets: (start, end) };
        all.push((name.clone(), info));
        values.push(*data);
    }
    let metadata = HashMap::from([(CHECKSUM.to_string(), format!("{:016x}", hasher.digest()))]);
    let header = Metadata::new(Some(metadata), all).map_err(|e| e.to_string());
    let header = header.and_then(|header| serde_json::to_string(&header).map_err(|e| e.to_string()));
    let mut text = header.map_err(|e| Error::format(path, "header", e))?.into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut header = (text.len() as u64).to_le_bytes().to_vec();
    header.extend(text);
    Ok(Encoded { header, values })
}

/// Bytes of a file: in memory, or mapped if they are many.
pub(super) enum Bytes {
    /// In memory.
    Memory(Vec<u8>),
    /// Mapped, with the file.
    Mapped(File, Buffer<u8>),
}

impl Bytes {
    /// Reads the file `path`.
    ///
    /// # Errors
    /// It is missing or cannot be read.
    pub(super) fn read(path: &Path) -> Result<Self> {
        Self::read_or_map(path, MAPPED_BYTES).map_err(|e| unreadable(path, e))
    }

    /// Reads the file `path`, or maps it if it has `mapped` bytes or more.
    fn read_or_map(path: &Path, mapped: u64) -> io::Result<Self> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        match usize::try_from(len) {
            Ok(count) if len >= mapped => {
                let map = Buffer::map(&file, path, 0, count).map_err(io::Error::other)?;
                Ok(Self::Mapped(file, map))
            }
            _ => fs::read(path).map(Self::Memory),
        }
    }

    /// The `bytes` of a tensor, which lie in these bytes, as values.
    fn values(&self, path: &Path, bytes: &[u8]) -> Result<Values> {
        match self {
            Self::Memory(_) => Ok(Values::Memory(bytemuck::pod_collect_to_vec(bytes))),
            Self::Mapped(file, all) => {
                let at = bytes.as_ptr() as usize - all.as_ptr() as usize;
                Ok(Values::File(Buffer::map(file, path, at, bytes.len() / size_of::<f32>())?))
            }
        }
    }
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Memory(bytes) => bytes,
            Self::Mapped(_, bytes) => bytes,
        }
    }
}

/// Error of a file that cannot be read.
pub(super) fn unreadable(path: &Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => damaged(path, "file", "missing"),
        _ => Error::io(path, "read", error),
    }
}

/// Error of a file that is not as it was written.
pub(super) fn damaged(path: &Path, place: &str, what: &str) -> Error {
    Error::format(path, place, format!("{what}: the file is damaged; {REMEDY}"))
}

/// Decodes the contents of the safetensors file `path`, as [`decode`] does.
///
/// # Errors
/// As for [`decode`].
pub(crate) fn of_contents(path: &Path, contents: Vec<u8>) -> Result<Vec<Tensor>> {
    decode(path, &Bytes::Memory(contents))
}

/// Decodes the tensors of a safetensors file, sorted by name. Verifies the checksum if the metadata
/// holds one. Tensors of a mapped file stay in it.
///
/// # Errors
/// The file is damaged, or a tensor, which the message names, is not an f32 matrix.
pub(super) fn decode(path: &Path, bytes: &Bytes) -> Result<Vec<Tensor>> {
    let damaged = |what: String| damaged(path, "header", &what);
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
        let data = bytes.values(path, view.data())?;
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
        bytes_of(&tensors)
    }

    fn bytes_of(tensors: &[TensorRef]) -> Vec<u8> {
        let (encoded, mut bytes) = (encode(Path::new("f"), tensors).unwrap(), Vec::new());
        let checksum = encoded.write_to(&mut bytes).unwrap();
        assert_eq!(encoded.len(), bytes.len() as u64);
        assert_eq!(checksum, format!("{:016x}", xxhash_rust::xxh3::xxh3_64(&bytes)));
        bytes
    }

    fn decode(path: &Path, bytes: &[u8]) -> Result<Vec<Tensor>> {
        super::decode(path, &Bytes::Memory(bytes.to_vec()))
    }

    #[test]
    fn files_are_those_of_the_library() {
        let values = [1.0, 2.0, 3.0];
        let tensors = [("b".to_string(), [1, 3], &values[..]), ("a.w".to_string(), [3, 1], &values[..])];
        let bytes = bytes_of(&tensors);
        let (_, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
        let views = tensors.iter().map(|(name, shape, data)| {
            let view =
                safetensors::tensor::TensorView::new(Dtype::F32, shape.to_vec(), bytemuck::cast_slice(data));
            (name.clone(), view.unwrap())
        });
        assert_eq!(bytes, safetensors::serialize(views, metadata.metadata().clone()).unwrap());
    }

    #[test]
    fn tensors_of_a_mapped_file_stay_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, file()).unwrap();
        let [read, mapped] = [u64::MAX, 1]
            .map(|from| super::decode(&path, &Bytes::read_or_map(&path, from).unwrap()).unwrap());
        assert_eq!(read, mapped);
        assert!(mapped.iter().all(|tensor| matches!(tensor.data, Values::File(_))));
        std::fs::write(&path, []).unwrap();
        let empty = Bytes::read_or_map(&path, 0).unwrap();
        assert!(super::decode(&path, &empty).unwrap_err().to_string().contains("damaged"));
    }

    #[test]
    fn written_tensors_read_back_with_their_bits() {
        let tensors = decode(Path::new("f"), &file()).unwrap();
        assert_eq!(tensors[0], Tensor { name: "b".into(), shape: [1, 1], data: vec![0.5].into() });
        let bits = |data: &[f32]| data.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&tensors[1].data), bits(&[1.0, f32::MIN_POSITIVE, -0.0, 4.0]));
        assert_eq!(decode(Path::new("f"), &bytes_of(&[])).unwrap(), []);
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
        let message = encode(Path::new("f"), &twice).err().unwrap().to_string();
        assert_eq!(message, "f: tensor 'w': cannot be written twice");
        let message = encode(Path::new("f"), &[("w".into(), [2, 1], &[1.0])]).err().unwrap().to_string();
        assert!(message.starts_with("f: tensor 'w': 1 values cannot be written as [2, 1]"), "{message}");
    }
}
