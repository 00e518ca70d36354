//! Read-only tables of f32, f16 or bf16, shared without a copy.

use half::{bf16, f16};

use super::{Matrix, Storage};
use crate::Buffer;

/// A read-only table in host memory. Cloning shares the memory.
#[derive(Clone, Debug)]
pub enum TableData {
    /// 32-bit floats.
    F32(Buffer<f32>),
    /// 16-bit floats of IEEE 754: 11 significant bits.
    F16(Buffer<f16>),
    /// The upper halves of 32-bit floats: their range, 8 significant bits.
    Bf16(Buffer<bf16>),
}

/// A type of values that a table may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableType {
    /// See [`TableData::F32`].
    F32,
    /// See [`TableData::F16`].
    F16,
    /// See [`TableData::Bf16`].
    Bf16,
}

impl TableType {
    /// All types, with the names that users write.
    pub const ALL: [(&'static str, Self); 3] = [("f32", Self::F32), ("f16", Self::F16), ("bf16", Self::Bf16)];

    /// Name that users write.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        }
    }

    /// Bytes of a value.
    pub fn width(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }
}

impl TableData {
    /// The type of the values.
    pub fn kind(&self) -> TableType {
        match self {
            Self::F32(_) => TableType::F32,
            Self::F16(_) => TableType::F16,
            Self::Bf16(_) => TableType::Bf16,
        }
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(data) => data.len(),
            Self::F16(data) => data.len(),
            Self::Bf16(data) => data.len(),
        }
    }

    /// Reports whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Values of a [`View`](super::View), as they are stored.
#[derive(Clone, Copy, Debug)]
pub enum Table<'a> {
    /// See [`TableData::F32`].
    F32(&'a [f32]),
    /// See [`TableData::F16`].
    F16(&'a [f16]),
    /// See [`TableData::Bf16`].
    Bf16(&'a [bf16]),
}

impl Matrix {
    /// A read-only table around `data` without copying it; `data.len()` is a multiple of `cols`.
    pub fn shared(data: TableData, cols: usize) -> Self {
        let rows = data.len().checked_div(cols).unwrap_or(0);
        assert_eq!(rows * cols, data.len(), "{} values do not make rows of {cols}", data.len());
        Self { rows, cols, storage: Storage::Shared(data), ..Self::default() }
    }

    /// Reports whether runs of rows can be multiplied in place: the values are f32, and none is
    /// left out.
    pub fn is_wide(&self) -> bool {
        match &self.storage {
            Storage::Owned(_) | Storage::File(_) => true,
            Storage::Shared(data) => data.kind() == TableType::F32,
            Storage::SparseTable(_) | Storage::Sparse(_) | Storage::Slots(_) => false,
        }
    }
}
