//! Arrays of NumPy in the files of a source, gzipped or not.

use graphmill_core::{Buffer, Result, location::Location};

use super::files::Files;
use crate::npy::{self, Element, Header, c_order, convert};

/// Maximum length of an array that is unpacked in memory.
const MAX_UNPACKED: u64 = 1 << 36;

/// Reads the array `name`, converted to `T`, in C order, with its shape. A plain file of that type
/// is mapped.
///
/// # Errors
/// The file cannot be read, is not an array, or a value does not fit `T`.
pub(super) fn read<T: Element>(files: &Files, name: &str) -> Result<(Buffer<T>, Vec<usize>)> {
    if let Some(path) = files.on_disk(name).filter(|_| !name.ends_with(".gz")) {
        let array = npy::open(path)?;
        return Ok((array.load()?, array.shape.clone()));
    }
    let bytes = files.bytes(name, MAX_UNPACKED)?;
    let place = files.on_disk(name).unwrap_or_else(|| files.path().join(name));
    let at = Location::new(&place, "array");
    let mut rest = &bytes[..];
    let (header, _) = Header::read(&mut rest, &at)?;
    if header.bytes() != rest.len() {
        let message = format!(
            "shape {:?} of {} takes {} bytes, but there are {}",
            header.shape,
            header.dtype,
            header.bytes(),
            rest.len()
        );
        return Err(at.error(message));
    }
    let mut values = Vec::new();
    convert(rest, header.dtype, 0, &mut values).map_err(|e| at.error(e))?;
    Ok((c_order(values, &header.shape, header.fortran_order, &at)?.into(), header.shape))
}

/// Selects the rows `kept` of a row-major table of `width` columns.
pub(super) fn select_rows<T: Copy>(table: &[T], width: usize, kept: impl Iterator<Item = usize>) -> Vec<T> {
    kept.flat_map(|i| &table[i * width..(i + 1) * width]).copied().collect()
}
