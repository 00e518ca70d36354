//! `.npy` array: mapped if possible, converted to every kind of number.

use graphmill_data::npy;

use super::{Answer, one_file};

pub(super) use super::ARRAY_TOKENS as TOKENS;

/// One input: the bytes of the file.
pub fn run(data: &[u8]) -> Answer {
    one_file("npy", "a.npy", data, data.len(), |path| {
        let array = npy::open(path)?;
        let _ = (array.map::<f32>(), array.map::<u8>(), array.read_as::<u8>(), array.read_as::<i64>());
        array.load::<f32>()?;
        Ok(())
    })
}
