//! Feature rows of nodes.

#![forbid(unsafe_code)]

use half::f16;

use crate::{Buffer, SparseRows, matrix::TableType};

/// Node features, `V x dim`, row-major.
#[derive(Clone, Debug, Default)]
pub struct Features {
    /// Number of features, `F`.
    pub dim: usize,
    /// Rows.
    pub data: FeatureData,
}

/// Storage of feature rows.
#[derive(Clone, Debug)]
pub enum FeatureData {
    /// 32-bit floats.
    F32(Buffer<f32>),
    /// 16-bit floats, widened when read.
    F16(Buffer<f16>),
    /// Nonzero values with their columns.
    Csr(SparseRows),
}

impl FeatureData {
    /// Type of the values of a dense table; `None` for sparse rows.
    pub fn kind(&self) -> Option<TableType> {
        match self {
            Self::F32(_) => Some(TableType::F32),
            Self::F16(_) => Some(TableType::F16),
            Self::Csr(_) => None,
        }
    }
}

impl Default for FeatureData {
    fn default() -> Self {
        Self::F32(Buffer::default())
    }
}

impl Features {
    /// Creates rows of 32-bit floats, `V x dim`.
    pub fn f32(dim: usize, data: impl Into<Buffer<f32>>) -> Self {
        Self { dim, data: FeatureData::F32(data.into()) }
    }

    /// Creates sparse rows.
    pub fn csr(rows: SparseRows) -> Self {
        Self { dim: rows.num_cols(), data: FeatureData::Csr(rows) }
    }

    /// Number of stored values: all, or only the nonzero ones of sparse rows.
    pub fn stored(&self) -> usize {
        match &self.data {
            FeatureData::F32(data) => data.len(),
            FeatureData::F16(data) => data.len(),
            FeatureData::Csr(rows) => rows.stored(),
        }
    }

    /// Number of values of an equivalent dense table: `V x dim`.
    pub fn len(&self) -> usize {
        match &self.data {
            FeatureData::F32(data) => data.len(),
            FeatureData::F16(data) => data.len(),
            FeatureData::Csr(rows) => rows.num_rows().saturating_mul(self.dim),
        }
    }

    /// Returns true if there are no features.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes at rest.
    pub fn bytes(&self) -> usize {
        match &self.data {
            FeatureData::F32(data) => data.len() * 4,
            FeatureData::F16(data) => data.len() * 2,
            FeatureData::Csr(rows) => rows.bytes(),
        }
    }
}
