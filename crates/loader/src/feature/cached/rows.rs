//! Dense rows of a cache, in the type in which they are stored.

use bytemuck::Zeroable;
use graphmill_core::{Error, Result, matrix::TableType};
use half::{bf16, f16, slice::HalfFloatSliceExt};

use crate::feature::widen::widen_f16;

/// Form in which a cache stores rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowFormat {
    /// Dense rows of this type.
    Dense(TableType),
    /// Sparse rows of f32.
    Sparse,
}

impl From<TableType> for RowFormat {
    fn from(kind: TableType) -> Self {
        Self::Dense(kind)
    }
}

/// Rows by slot.
#[derive(Debug)]
pub(super) enum CachedRows {
    F32(Vec<f32>),
    F16(Vec<f16>),
    Bf16(Vec<bf16>),
}

impl CachedRows {
    /// Allocates `slots` rows of `dim` values.
    ///
    /// # Errors
    /// The memory cannot be allocated.
    pub(super) fn new(slots: usize, dim: usize, kind: TableType) -> Result<Self> {
        let len = slots * dim;
        Ok(match kind {
            TableType::F32 => Self::F32(zeros(len)?),
            TableType::F16 => Self::F16(zeros(len)?),
            TableType::Bf16 => Self::Bf16(zeros(len)?),
        })
    }

    /// Copies the row in `slot` to `out`.
    pub(super) fn get(&self, slot: u32, out: &mut [f32]) {
        let dim = out.len();
        let row = slot as usize * dim..(slot as usize + 1) * dim;
        match self {
            Self::F32(rows) => out.copy_from_slice(&rows[row]),
            Self::F16(rows) => widen_f16(&rows[row], out),
            Self::Bf16(rows) => rows[row].convert_to_f32_slice(out),
        }
    }

    /// Stores a row in `slot`, without loss because it was read from rows of this type.
    pub(super) fn put(&mut self, slot: u32, from: &[f32]) {
        let dim = from.len();
        let row = slot as usize * dim..(slot as usize + 1) * dim;
        match self {
            Self::F32(rows) => rows[row].copy_from_slice(from),
            Self::F16(rows) => rows[row].convert_from_f32_slice(from),
            Self::Bf16(rows) => rows[row].convert_from_f32_slice(from),
        }
    }
}

/// Allocates `len` zeros, which take no memory before they are written.
fn zeros<T: Zeroable + Clone>(len: usize) -> Result<Vec<T>> {
    let bytes = len.saturating_mul(size_of::<T>());
    let none = || Error::invalid(format!("cannot reserve {bytes} bytes for a cache; use a smaller cache"));
    std::alloc::Layout::array::<T>(len).map_err(|_| none())?;
    bytemuck::allocation::try_zeroed_vec(len).map_err(|()| none())
}
