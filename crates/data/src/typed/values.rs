//! Arrays of any number type, and the feature tables made of them.

use graphmill_core::{
    Buffer, Error, FeatureData, Features, Result, SparseRows, memory, parallel::for_each_piece,
    search::position,
};
use half::f16;

use crate::{
    npy::{Dtype, Element},
    verification::ChunkVerifier,
};

/// Array of one of NumPy's number types, owned or mapped.
#[derive(Clone, Debug)]
pub enum Values {
    /// 16-bit floats.
    F16(Buffer<f16>),
    /// 32-bit floats.
    F32(Buffer<f32>),
    /// 64-bit floats.
    F64(Buffer<f64>),
    /// Signed bytes.
    I8(Buffer<i8>),
    /// 16-bit signed integers.
    I16(Buffer<i16>),
    /// 32-bit signed integers.
    I32(Buffer<i32>),
    /// 64-bit signed integers.
    I64(Buffer<i64>),
    /// Bytes.
    U8(Buffer<u8>),
    /// 16-bit unsigned integers.
    U16(Buffer<u16>),
    /// 32-bit unsigned integers.
    U32(Buffer<u32>),
    /// 64-bit unsigned integers.
    U64(Buffer<u64>),
}

/// Runs the same code for the buffer of every variant.
macro_rules! each_buffer {
    ($values:expr, $buffer:ident => $what:expr) => {
        match $values {
            $crate::typed::Values::F16($buffer) => $what,
            $crate::typed::Values::F32($buffer) => $what,
            $crate::typed::Values::F64($buffer) => $what,
            $crate::typed::Values::I8($buffer) => $what,
            $crate::typed::Values::I16($buffer) => $what,
            $crate::typed::Values::I32($buffer) => $what,
            $crate::typed::Values::I64($buffer) => $what,
            $crate::typed::Values::U8($buffer) => $what,
            $crate::typed::Values::U16($buffer) => $what,
            $crate::typed::Values::U32($buffer) => $what,
            $crate::typed::Values::U64($buffer) => $what,
        }
    };
}
pub(crate) use each_buffer;

macro_rules! variants {
    ($($variant:ident $type:ty),*) => {
        $(
            impl From<Buffer<$type>> for Values {
                fn from(buffer: Buffer<$type>) -> Self {
                    Self::$variant(buffer)
                }
            }

            impl From<Vec<$type>> for Values {
                fn from(values: Vec<$type>) -> Self {
                    Self::$variant(values.into())
                }
            }
        )*
    };
}

variants!(
    F16 f16, F32 f32, F64 f64, I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64
);

impl Default for Values {
    fn default() -> Self {
        Self::F32(Buffer::default())
    }
}

impl Values {
    /// Number of values.
    pub fn len(&self) -> usize {
        each_buffer!(self, buffer => buffer.len())
    }

    /// Returns true if the array has no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Type of the values.
    pub fn dtype(&self) -> Dtype {
        fn of<T: Element>(_: &Buffer<T>) -> Dtype {
            T::DTYPE
        }
        each_buffer!(self, buffer => of(buffer))
    }

    /// Bytes of the values.
    pub fn bytes(&self) -> &[u8] {
        each_buffer!(self, buffer => bytemuck::cast_slice(buffer))
    }

    /// Value `i` as a 64-bit float, rounded if it is a large integer.
    ///
    /// # Panics
    /// `i` is not below the length.
    pub fn get(&self, i: usize) -> f64 {
        match self {
            Self::F16(values) => values[i].to_f64(),
            Self::F32(values) => values[i].into(),
            Self::F64(values) => values[i],
            Self::I8(values) => values[i].into(),
            Self::I16(values) => values[i].into(),
            Self::I32(values) => values[i].into(),
            Self::I64(values) => values[i] as f64,
            Self::U8(values) => values[i].into(),
            Self::U16(values) => values[i].into(),
            Self::U32(values) => values[i].into(),
            Self::U64(values) => values[i] as f64,
        }
    }

    /// Writes value `i` to `out`, exactly: floats in the fewest digits that give the value back.
    pub(crate) fn write(&self, i: usize, out: &mut String) {
        use std::fmt::Write;
        // Writing to a string does not fail.
        let _ = each_buffer!(self, buffer => write!(out, "{}", buffer[i]));
    }

    /// Position of the first value that is not finite. Parallel.
    pub(super) fn first_not_finite(&self) -> Option<usize> {
        match self {
            Self::F16(values) => position(values, |x| !x.is_finite()),
            Self::F32(values) => position(values, |x| !x.is_finite()),
            Self::F64(values) => position(values, |x| !x.is_finite()),
            _ => None,
        }
    }

    /// Rows `order` of a table of `width` columns, in that order. Parallel.
    ///
    /// # Errors
    /// The result exceeds the memory.
    pub(super) fn gather(&self, width: usize, order: &[u64]) -> Result<Self> {
        each_buffer!(self, buffer => Ok(gather(buffer, width, order)?.into()))
    }
}

/// Rows `order` of a row-major table, in that order. Parallel.
///
/// # Errors
/// The result exceeds the memory.
pub(super) fn gather<T: Element>(table: &[T], width: usize, order: &[u64]) -> Result<Vec<T>> {
    const CHUNK_LEN: usize = 1 << 12;
    let mut out: Vec<T> = memory::zeroed(order.len().saturating_mul(width))?;
    for_each_piece(&mut out, CHUNK_LEN * width, |chunk, out| {
        let order = &order[chunk * CHUNK_LEN..];
        if width == 1 {
            out.iter_mut().zip(order).for_each(|(out, &i)| *out = table[i as usize]);
        } else {
            for (out, &i) in out.chunks_mut(width).zip(order) {
                out.copy_from_slice(&table[i as usize * width..][..width]);
            }
        }
    });
    Ok(out)
}

/// Feature rows of a node type or an edge type, of any number type, dense or sparse.
#[derive(Clone, Debug, Default)]
pub struct FeatureTable {
    /// Number of columns, `F`.
    pub width: usize,
    /// Names of the columns: empty, or one each.
    pub names: Vec<String>,
    /// Values.
    pub data: TableData,
}

/// Storage of a [`FeatureTable`].
#[derive(Clone, Debug)]
pub enum TableData {
    /// All values, row by row.
    Dense(Values),
    /// Nonzero values with their columns.
    Sparse(SparseRows),
}

impl Default for TableData {
    fn default() -> Self {
        Self::Dense(Values::default())
    }
}

impl FeatureTable {
    /// Creates rows of `width` values of any number type.
    pub fn dense(width: usize, values: impl Into<Values>) -> Self {
        Self { width, names: Vec::new(), data: TableData::Dense(values.into()) }
    }

    /// Creates sparse rows.
    pub fn sparse(rows: SparseRows) -> Self {
        Self { width: rows.num_cols(), names: Vec::new(), data: TableData::Sparse(rows) }
    }

    /// Type of the values.
    pub fn dtype(&self) -> Dtype {
        match &self.data {
            TableData::Dense(values) => values.dtype(),
            TableData::Sparse(_) => f32::DTYPE,
        }
    }

    /// Returns true if only nonzero values are stored.
    pub fn is_sparse(&self) -> bool {
        matches!(self.data, TableData::Sparse(_))
    }

    /// Copies row `i` to `out` (`F`), as 64-bit floats.
    ///
    /// # Panics
    /// `i` is not a row, or `out` is shorter than a row.
    pub fn copy_row(&self, i: usize, out: &mut [f64]) {
        match &self.data {
            TableData::Dense(values) => {
                let row = out[..self.width].iter_mut().enumerate();
                row.for_each(|(j, out)| *out = values.get(i * self.width + j));
            }
            TableData::Sparse(rows) => {
                out[..self.width].fill(0.0);
                let (columns, values) = rows.row(i);
                columns.iter().zip(values).for_each(|(&j, &x)| out[j as usize] = x.into());
            }
        }
    }

    /// Rows `order`, in that order.
    ///
    /// # Errors
    /// The result exceeds the memory.
    pub(super) fn gather(&self, order: &[u64]) -> Result<Self> {
        let data = match &self.data {
            TableData::Dense(values) => TableData::Dense(values.gather(self.width, order)?),
            TableData::Sparse(rows) => TableData::Sparse(gather_sparse(rows, order)?),
        };
        Ok(Self { data, names: self.names.clone(), width: self.width })
    }

    /// Verifier of rows that were not verified when they were opened.
    pub fn verifier(&self) -> Option<&ChunkVerifier> {
        match &self.data {
            TableData::Dense(values) => each_buffer!(values, buffer => buffer.tag()),
            TableData::Sparse(_) => None,
        }
    }

    /// Verifies all rows that were not verified before, for readers of the whole table.
    ///
    /// # Errors
    /// As [`ChunkVerifier::verify_all`].
    pub fn verify(&self) -> Result<()> {
        self.verifier().map_or(Ok(()), ChunkVerifier::verify_all)
    }

    /// Describes the first inconsistency of the table of `rows` rows. Values of floats are read
    /// only if `read` is set.
    pub(super) fn fault(&self, rows: usize, read: bool) -> Option<String> {
        let width = self.width;
        if width == 0 {
            return Some("the rows have no columns; omit the features".into());
        }
        if !self.names.is_empty() && self.names.len() != width {
            return Some(format!("{} column names for {width} columns", self.names.len()));
        }
        match &self.data {
            TableData::Sparse(sparse) if (sparse.num_rows(), sparse.num_cols()) == (rows, width) => None,
            TableData::Sparse(sparse) => Some(format!(
                "sparse rows of shape {:?}, but {:?} is expected",
                [sparse.num_rows(), sparse.num_cols()],
                [rows, width]
            )),
            TableData::Dense(values) if Some(values.len()) != rows.checked_mul(width) => {
                Some(format!("{} values are not {rows} rows of {width} columns", values.len()))
            }
            TableData::Dense(values) if read => {
                let damage = self.verify().err().map(|error| error.to_string());
                damage.or_else(|| {
                    let i = values.first_not_finite()?;
                    Some(format!("column {} of row {} is not a finite number", i % width, i / width))
                })
            }
            TableData::Dense(_) => None,
        }
    }

    /// Converts to the features of a [`Dataset`](crate::Dataset), without a copy.
    ///
    /// # Errors
    /// The values are neither 16-bit nor 32-bit floats.
    pub(super) fn to_features(&self) -> Result<Features> {
        let data = match &self.data {
            TableData::Dense(Values::F32(values)) => FeatureData::F32(values.clone()),
            TableData::Dense(Values::F16(values)) => FeatureData::F16(values.clone()),
            TableData::Sparse(rows) => FeatureData::Csr(rows.clone()),
            TableData::Dense(values) => {
                return Err(Error::invalid(format!(
                    "its features have the type {}, and training reads 16-bit and 32-bit floats (<f2, <f4); \
                     convert them, for example by features.astype('f4') in NumPy, and build it again",
                    values.dtype()
                )));
            }
        };
        Ok(Features { dim: self.width, data })
    }

    /// Table of a [`Dataset`](crate::Dataset)'s features, without a copy; `None` if there are no
    /// columns.
    pub(crate) fn of_features(features: &Features) -> Option<Self> {
        let table = |values: Values| Self::dense(features.dim, values);
        (features.dim > 0).then(|| match &features.data {
            FeatureData::F32(values) => table(values.clone().into()),
            FeatureData::F16(values) => table(values.clone().into()),
            FeatureData::Csr(rows) => Self::sparse(rows.clone()),
        })
    }
}

/// Sparse rows `order`, in that order.
fn gather_sparse(rows: &SparseRows, order: &[u64]) -> Result<SparseRows> {
    let (mut indptr, mut indices, mut values) = (vec![0], Vec::new(), Vec::new());
    for &i in order {
        let (columns, row) = rows.row(i as usize);
        indices.extend_from_slice(columns);
        values.extend_from_slice(row);
        indptr.push(indices.len() as u64);
    }
    SparseRows::new(rows.num_cols(), indptr.into(), indices.into(), values.into())
}
