//! Reader of PyTorch's files (`torch.save`), in the zip form of version 1.6 and later and in the
//! older form of several pickles. No code of the file is executed (see [`pickle`]).
//!
//! ```text
//! zip    = NAME/data.pkl (a pickle), NAME/byteorder ("little"), NAME/data/KEY (stored, a storage)
//! legacy = pickles of a magic number, the version, the system, the value, and the keys of the storages,
//!          and then for each key its number of elements (u64) and their bytes
//! ```
//!
//! Source: PyTorch, `torch/serialization.py`.

use std::{collections::HashMap, io::Read, ops::Range, path::Path};

use flate2::read::MultiGzDecoder;
use graphmill_core::{Buffer, Error, Result, location::Location, memory};
use half::bf16;
use zip::{CompressionMethod, ZipArchive};

use super::{
    json,
    pickle::{self, Item, TensorRef},
};
use crate::npy::{Dtype, Element, Number, convert};

/// First pickle of a legacy file: the magic number in protocol 2.
const MAGIC: &[u8] = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.";

/// Maximum number of axes of a tensor, as in NumPy.
const MAX_AXES: usize = 64;

/// Storages of a file by their keys.
pub(crate) struct Storages<'a> {
    data: &'a [u8],
    ranges: HashMap<String, Range<usize>>,
}

/// Reads the file at `path`, gzipped or not, and passes its value and storages to `work`.
///
/// # Errors
/// The file cannot be read, is not of PyTorch, or holds more than plain containers, arrays and
/// tensors; or `work` fails.
pub(crate) fn read<R>(path: &Path, work: impl FnOnce(&Item, &Storages, &Location) -> Result<R>) -> Result<R> {
    let mapped = json::map(path)?;
    let data: Buffer<u8> = if mapped.starts_with(b"\x1f\x8b") {
        let mut plain = Vec::new();
        MultiGzDecoder::new(&mapped[..]).read_to_end(&mut plain).map_err(|e| Error::io(path, "unpack", e))?;
        plain.into()
    } else {
        mapped
    };
    read_bytes(&data, path, work)
}

/// Reads as [`read`] does, from bytes; `path` is for messages.
///
/// # Errors
/// As for [`read`].
pub(crate) fn read_bytes<R>(
    data: &[u8],
    path: &Path,
    work: impl FnOnce(&Item, &Storages, &Location) -> Result<R>,
) -> Result<R> {
    if data.starts_with(b"PK") {
        read_zip(data, path, work)
    } else if data.starts_with(MAGIC) {
        read_legacy(data, path, work)
    } else {
        Err(Location::new(path, "header").error(
            "not a file of PyTorch (a zip archive or the magic number of torch.save expected); write it with \
             torch.save, or as .npy or .npz",
        ))
    }
}

fn read_zip<R>(
    data: &[u8],
    path: &Path,
    work: impl FnOnce(&Item, &Storages, &Location) -> Result<R>,
) -> Result<R> {
    let at = Location::new(path, "archive");
    let fault = |e: zip::result::ZipError| at.error(format!("the archive cannot be read: {e}"));
    let mut archive = ZipArchive::new(std::io::Cursor::new(data)).map_err(fault)?;
    let (mut program, mut order, mut ranges) = (None, None, HashMap::new());
    for i in 0..archive.len() {
        let member = archive.by_index_raw(i).map_err(fault)?;
        let name = member.name().to_string();
        let inner = name.split_once('/').map_or("", |(_, inner)| inner);
        let start = member.data_start().unwrap_or(u64::MAX);
        let end = start.checked_add(member.size()).filter(|&end| end <= data.len() as u64);
        let (Some(end), CompressionMethod::Stored) = (end, member.compression()) else {
            let message = format!(
                "member {}: it is packed or truncated; PyTorch stores members plainly",
                name.escape_debug()
            );
            return Err(at.error(message));
        };
        let range = start as usize..end as usize;
        match inner {
            "data.pkl" => program = Some(range),
            "byteorder" => order = Some(range),
            _ => drop(inner.strip_prefix("data/").map(|key| ranges.insert(key.to_string(), range))),
        }
    }
    if order.is_some_and(|range| data[range].trim_ascii() != b"little") {
        return Err(at.error("it was written on a big-endian machine; save it again on a little-endian one"));
    }
    let Some(program) = program else {
        let message =
            "there is no data.pkl: this is not a file of torch.save (a TorchScript archive or an .npz?)";
        return Err(at.error(message));
    };
    let start = program.start;
    let at = Location::new(path, "data.pkl");
    let wrong = |(byte, message): (usize, String)| {
        Location::new(path, format!("byte {}", start + byte)).error(message)
    };
    let pickle = pickle::read(&data[program]).map_err(wrong)?;
    let root = pickle.item().map_err(|e| at.error(e))?;
    work(&root, &Storages { data, ranges }, &at)
}

fn read_legacy<R>(
    data: &[u8],
    path: &Path,
    work: impl FnOnce(&Item, &Storages, &Location) -> Result<R>,
) -> Result<R> {
    let at = Location::new(path, "value");
    let mut position = MAGIC.len();
    let mut next = || {
        let start = position;
        let wrong = |(byte, message): (usize, String)| {
            Location::new(path, format!("byte {}", start + byte)).error(message)
        };
        let (pickle, length) = pickle::read_first(&data[start..]).map_err(wrong)?;
        position += length;
        Ok::<_, Error>(pickle)
    };
    let _version = next()?;
    let system = next()?;
    let system = system.item().map_err(|e| at.error(e))?;
    if system.get("little_endian") == Some(&Item::Bool(false)) {
        return Err(at.error("it was written on a big-endian machine; save it again on a little-endian one"));
    }
    let value = next()?;
    let root = value.item().map_err(|e| at.error(e))?;
    let keys = next()?;
    let keys = keys.item().map_err(|e| at.error(e))?;
    let mut sizes = HashMap::new();
    element_sizes(&root, &mut sizes);
    let mut ranges = HashMap::new();
    let Item::List(keys) = keys else {
        return Err(at.error("the list of storages is missing"));
    };
    for key in &keys {
        let key = key.text().ok_or_else(|| at.error("a storage whose key is not a text"))?;
        let size = sizes.get(key).copied().unwrap_or(1);
        let place = || Location::new(path, format!("storage {}", key.escape_debug()));
        let head = data.get(position..position + 8).and_then(|raw| raw.try_into().ok());
        let count = u64::from_le_bytes(head.ok_or_else(|| place().error("the file ends early"))?);
        position += 8;
        let end = usize::try_from(count).ok().and_then(|n| n.checked_mul(size)?.checked_add(position));
        let end = end.filter(|&end| end <= data.len());
        let end = end.ok_or_else(|| place().error(format!("{count} elements, but the file ends early")))?;
        ranges.insert(key.to_string(), position..end);
        position = end;
    }
    work(&root, &Storages { data, ranges }, &at)
}

/// Collects the element size of every storage.
fn element_sizes(item: &Item, sizes: &mut HashMap<String, usize>) {
    match item {
        Item::Tensor(tensor) => {
            sizes.insert(tensor.key.clone(), size_of_type(tensor.storage_type));
        }
        Item::List(items) => items.iter().for_each(|item| element_sizes(item, sizes)),
        Item::Dict(entries) => entries.iter().for_each(|(_, value)| element_sizes(value, sizes)),
        _ => {}
    }
}

/// Bytes of an element; `None` is bfloat16.
fn size_of_type(dtype: Option<Dtype>) -> usize {
    dtype.map_or(2, |dtype| dtype.size)
}

impl Storages<'_> {
    /// Reads an array or a tensor, converted to `T`, in C order, with its shape. A number is an
    /// array without axes.
    ///
    /// # Errors
    /// The value is of another kind, a tensor exceeds its storage or repeats elements, or a value
    /// does not fit `T`.
    pub(crate) fn values<T: Element>(&self, item: &Item, at: &Location) -> Result<(Vec<T>, Vec<usize>)> {
        if let Some(array) = item.array() {
            return array.map_err(|e| at.error(e));
        }
        let single = |number| {
            let value =
                T::from_number(number).ok_or_else(|| at.error(format!("the number {number} does not fit")));
            value.map(|value| (vec![value], Vec::new()))
        };
        match item {
            Item::Tensor(tensor) => self
                .tensor(tensor)
                .map_err(|e| at.error(format!("tensor {}: {e}", tensor.key.escape_debug()))),
            Item::Int(x) => single(Number::Int(*x)),
            Item::Float(x) => single(Number::Float(*x)),
            Item::Bool(x) => single(Number::Uint((*x).into())),
            Item::List(items) => {
                let mut all = memory::reserve(items.len())?;
                for item in items {
                    match item {
                        Item::Int(_) | Item::Float(_) | Item::Bool(_) => {
                            all.extend(self.values::<T>(item, at)?.0)
                        }
                        _ => return Err(at.error(format!("{} in a list of numbers", item.kind()))),
                    }
                }
                let length = all.len();
                Ok((all, vec![length]))
            }
            _ => Err(at.error(format!("an array or a tensor expected, {} found", item.kind()))),
        }
    }

    fn tensor<T: Element>(&self, tensor: &TensorRef) -> Result<(Vec<T>, Vec<usize>), String> {
        let size = size_of_type(tensor.dtype);
        let range = self.ranges.get(&tensor.key).cloned().ok_or("its storage is not in the file")?;
        let storage = &self.data[range];
        let shape = || tensor.shape.iter().copied();
        if tensor.shape.len() > MAX_AXES {
            return Err(format!("{} axes; at most {MAX_AXES} are read", tensor.shape.len()));
        }
        let count = shape().try_fold(1usize, usize::checked_mul).ok_or("its shape is too large")?;
        let mut bytes = Vec::new();
        let raw: &[u8] = if count == 0 {
            &[]
        } else {
            let last = shape()
                .zip(&tensor.stride)
                .try_fold(tensor.offset, |last, (n, step)| last.checked_add((n - 1).checked_mul(*step)?));
            if last
                .and_then(|last| last.checked_add(1)?.checked_mul(size))
                .is_none_or(|end| end > storage.len())
            {
                return Err(format!(
                    "shape {:?} with steps {:?} from element {} exceeds its storage of {} bytes",
                    tensor.shape,
                    tensor.stride,
                    tensor.offset,
                    storage.len()
                ));
            }
            if count > storage.len() / size {
                return Err("its elements are repeated (expand); save tensor.clone() instead".into());
            }
            if is_contiguous(&tensor.shape, &tensor.stride) {
                &storage[tensor.offset * size..(tensor.offset + count) * size]
            } else {
                memory::grow(&mut bytes, count * size).map_err(|e| e.to_string())?;
                gather(&tensor.shape, &tensor.stride, tensor.offset, &mut |element| {
                    bytes.extend_from_slice(&storage[element * size..(element + 1) * size]);
                });
                &bytes
            }
        };
        let mut values = Vec::new();
        match tensor.dtype {
            Some(dtype) => convert(raw, dtype, 0, &mut values)?,
            None => {
                let wide: Vec<u8> = raw
                    .chunks_exact(2)
                    .flat_map(|x| bf16::from_le_bytes([x[0], x[1]]).to_f32().to_le_bytes())
                    .collect();
                convert(&wide, f32::DTYPE, 0, &mut values)?;
            }
        }
        Ok((values, tensor.shape.clone()))
    }
}

/// Returns true if the elements follow each other in C order.
fn is_contiguous(shape: &[usize], stride: &[usize]) -> bool {
    let mut expected = 1;
    shape.iter().zip(stride).rev().all(|(&n, &step)| {
        let fits = n == 1 || step == expected;
        expected *= n;
        fits
    })
}

/// Passes the positions of all elements to `each`, in C order.
fn gather(shape: &[usize], stride: &[usize], offset: usize, each: &mut impl FnMut(usize)) {
    match (shape, stride) {
        ([n, shape @ ..], [step, stride @ ..]) => {
            (0..*n).for_each(|i| gather(shape, stride, offset + i * step, &mut *each));
        }
        _ => each(offset),
    }
}

/// Files for tests.
#[cfg(test)]
pub(crate) mod testing {
    use std::io::{Cursor, Write};

    use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

    /// Text of a pickle.
    pub(crate) fn text(s: &str) -> Vec<u8> {
        [&b"X"[..], &(s.len() as u32).to_le_bytes(), s.as_bytes()].concat()
    }

    fn tuple(numbers: &[u8]) -> Vec<u8> {
        [b"(".to_vec(), numbers.iter().flat_map(|&n| [b'K', n]).collect(), b"t".to_vec()].concat()
    }

    /// Tensor over the storage `key` of `stored` elements.
    pub(crate) fn tensor(
        key: &str,
        storage: &str,
        stored: u8,
        offset: u8,
        shape: &[u8],
        stride: &[u8],
    ) -> Vec<u8> {
        [
            b"ctorch._utils\n_rebuild_tensor_v2\n((".to_vec(),
            text("storage"),
            format!("ctorch\n{storage}\n").into_bytes(),
            text(key),
            text("cpu"),
            vec![b'K', stored],
            b"tQ".to_vec(),
            vec![b'K', offset],
            tuple(shape),
            tuple(stride),
            b"\x89ccollections\nOrderedDict\n)RtR".to_vec(),
        ]
        .concat()
    }

    /// Dictionary of these entries.
    pub(crate) fn dict(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let entries: Vec<Vec<u8>> =
            entries.iter().flat_map(|(key, value)| [text(key), value.clone()]).collect();
        [b"}(".to_vec(), entries.concat(), b"u".to_vec()].concat()
    }

    /// File in the zip form.
    pub(crate) fn zipped(value: &[u8], storages: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
        let program = [b"\x80\x02", value, b"."].concat();
        let fixed = [("data.pkl", program), ("byteorder", b"little".to_vec())];
        let fixed = fixed.iter().map(|(name, bytes)| (name.to_string(), bytes));
        let storages = storages.iter().map(|(key, bytes)| (format!("data/{key}"), bytes));
        for (name, bytes) in fixed.chain(storages) {
            zip.start_file(format!("a/{name}"), options).unwrap();
            zip.write_all(bytes).unwrap();
        }
        zip.finish().unwrap().into_inner()
    }

    /// File in the older form; a storage has its number of elements.
    pub(crate) fn legacy(value: &[u8], storages: &[(&str, u64, Vec<u8>)]) -> Vec<u8> {
        let keys: Vec<Vec<u8>> = storages.iter().map(|(key, ..)| text(key)).collect();
        let mut out = [
            super::MAGIC,
            b"\x80\x02M\xe9\x03.",
            &[&b"\x80\x02"[..], &dict(&[("little_endian", b"\x88".to_vec())]), b"."].concat(),
            &[&b"\x80\x02"[..], value, b"."].concat(),
            &[&b"\x80\x02]("[..], &keys.concat(), b"e."].concat(),
        ]
        .concat();
        for (_, count, bytes) in storages {
            out.extend(count.to_le_bytes());
            out.extend(bytes);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::{testing::*, *};

    fn values(data: &[u8], name: &str) -> Result<(Vec<f64>, Vec<usize>), String> {
        let read = read_bytes(data, Path::new("a.pt"), |root, storages, at| {
            storages.values::<f64>(root.get(name).ok_or_else(|| at.error("no such entry"))?, at)
        });
        read.map_err(|e| e.to_string())
    }

    fn longs(values: &[i64]) -> Vec<u8> {
        values.iter().flat_map(|x| x.to_le_bytes()).collect()
    }

    #[test]
    fn both_forms_hold_the_same_values() {
        let value = dict(&[
            ("rows", tensor("0", "LongStorage", 6, 0, &[2, 3], &[3, 1])),
            ("turned", tensor("0", "LongStorage", 6, 0, &[3, 2], &[1, 3])),
            ("part", tensor("0", "LongStorage", 6, 4, &[2], &[1])),
            ("half", tensor("1", "BFloat16Storage", 2, 0, &[2], &[1])),
            ("none", tensor("1", "BFloat16Storage", 2, 0, &[0, 7], &[7, 1])),
            ("list", b"](K\x01K\x02G?\xe0\0\0\0\0\0\0e".to_vec()),
        ]);
        let (first, second) = (longs(&[0, 1, 2, 3, 4, 5]), vec![0x80, 0x3f, 0, 0xc0]);
        let zip = zipped(&value, &[("0", first.clone()), ("1", second.clone())]);
        let old = legacy(&value, &[("0", 6, first), ("1", 2, second)]);
        for data in [zip, old] {
            assert_eq!(values(&data, "rows").unwrap(), (vec![0., 1., 2., 3., 4., 5.], vec![2, 3]));
            assert_eq!(values(&data, "turned").unwrap(), (vec![0., 3., 1., 4., 2., 5.], vec![3, 2]));
            assert_eq!(values(&data, "part").unwrap(), (vec![4., 5.], vec![2]));
            assert_eq!(values(&data, "half").unwrap(), (vec![1., -2.], vec![2]));
            assert_eq!(values(&data, "none").unwrap(), (vec![], vec![0, 7]));
            assert_eq!(values(&data, "list").unwrap(), (vec![1., 2., 0.5], vec![3]));
        }
    }

    #[test]
    fn code_and_damage_are_refused() {
        let file = |value: &[u8]| zipped(value, &[("0", longs(&[1, 2]))]);
        let error = values(&file(b"cos\nsystem\n(X\x02\0\0\0lstR"), "x").unwrap_err();
        assert!(error.contains("'os.system'") && error.contains("nothing was run"), "{error}");
        let error = values(&file(b"ctorch_geometric.data.data\nData\n)\x81"), "x").unwrap_err();
        assert!(error.contains("torch_geometric.data.data.Data"), "{error}");
        let part = |offset, shape: &[u8], stride: &[u8]| {
            let value = dict(&[("x", tensor("0", "LongStorage", 2, offset, shape, stride))]);
            values(&file(&value), "x").unwrap_err()
        };
        assert!(part(1, &[2], &[1]).contains("exceeds its storage of 16 bytes"));
        assert!(part(0, &[200, 200], &[0, 0]).contains("repeated (expand)"));
        let missing = dict(&[("x", tensor("7", "LongStorage", 2, 0, &[2], &[1]))]);
        assert!(
            values(&file(&missing), "x").unwrap_err().contains("tensor 7: its storage is not in the file")
        );
        assert!(values(b"\x93NUMPY", "x").unwrap_err().contains("not a file of PyTorch"));
        let good = file(&dict(&[("x", tensor("0", "LongStorage", 2, 0, &[2], &[1]))]));
        assert!(values(&good, "x").is_ok());
        for length in (0..good.len()).step_by(3) {
            assert!(values(&good[..length], "x").is_err(), "truncated to {length}");
        }
        for bit in (0..good.len() * 8).step_by(7) {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let _ = values(&bad, "x"); // no panic
        }
    }
}
