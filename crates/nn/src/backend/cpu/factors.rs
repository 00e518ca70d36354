//! Factors of a dense product in memory.

use crate::backend::Side;

/// Factors of a product with inner dimension `k` and `n` columns.
#[derive(Clone, Copy)]
pub(super) struct Factors<'a> {
    pub(super) a: &'a [f32],
    pub(super) side_a: Side,
    pub(super) b: &'a [f32],
    pub(super) side_b: Side,
    pub(super) k: usize,
    pub(super) n: usize,
}

/// A factor: `data[i * rs + j * cs]`.
#[derive(Clone, Copy)]
pub(super) struct Factor<'a> {
    pub(super) data: &'a [f32],
    pub(super) rs: usize,
    pub(super) cs: usize,
}

impl<'a> Factor<'a> {
    /// Creates a factor from rows of `stride` values, as stored or transposed.
    pub(super) fn new(data: &'a [f32], side: Side, stride: usize) -> Self {
        match side {
            Side::Plain => Self { data, rs: stride, cs: 1 },
            Side::Transposed => Self { data, rs: 1, cs: stride },
        }
    }

    /// The factor with rows and columns exchanged.
    pub(super) fn transposed(self) -> Self {
        Self { rs: self.cs, cs: self.rs, ..self }
    }

    /// Copies values of row `i` from column `j` on.
    pub(super) fn copy_row(self, i: usize, j: usize, out: &mut [f32]) {
        let first = &self.data[i * self.rs + j * self.cs..];
        if self.cs == 1 {
            out.copy_from_slice(&first[..out.len()]);
        } else {
            out.iter_mut().enumerate().for_each(|(j, x)| *x = first[j * self.cs]);
        }
    }

    /// The factor from element (`i`, `j`) on.
    pub(super) fn from(self, i: usize, j: usize) -> Self {
        Self { data: &self.data[i * self.rs + j * self.cs..], ..self }
    }
}
