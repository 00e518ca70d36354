//! Feature rows of nodes, as they are stored.

use half::f16;

use crate::{Buffer, SparseRows, matrix::TableType};

/// Node features, `V x dim`, row-major.
#[derive(Clone, Debug, Default)]
pub struct Features {
    /// `F`.
    pub dim: usize,
    /// The rows.
    pub data: FeatureData,
}

/// How feature rows are stored.
#[derive(Clone, Debug)]
pub enum FeatureData {
    /// 32-bit floats.
    F32(Buffer<f32>),
    /// 16-bit floats, widened when read.
    F16(Buffer<f16>),
    /// The values that are not zero, with their columns.
    Csr(SparseRows),
}

impl FeatureData {
    /// The type of the values of a dense table; none where rows are sparse.
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
    /// Rows of 32-bit floats, `V x dim`.
    pub fn f32(dim: usize, data: impl Into<Buffer<f32>>) -> Self {
        Self { dim, data: FeatureData::F32(data.into()) }
    }

    /// Sparse rows.
    pub fn csr(rows: SparseRows) -> Self {
        Self { dim: rows.num_cols(), data: FeatureData::Csr(rows) }
    }

    /// How many values are stored: all, or of sparse rows those that are not zero.
    pub fn stored(&self) -> usize {
        match &self.data {
            FeatureData::F32(data) => data.len(),
            FeatureData::F16(data) => data.len(),
            FeatureData::Csr(rows) => rows.stored(),
        }
    }

    /// How many values a dense table of them has: `V x dim`.
    pub fn len(&self) -> usize {
        match &self.data {
            FeatureData::F32(data) => data.len(),
            FeatureData::F16(data) => data.len(),
            FeatureData::Csr(rows) => rows.num_rows().saturating_mul(self.dim),
        }
    }

    /// Whether there are no features.
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
