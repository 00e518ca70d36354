//! The edges that won the maxima of [`super::Backend::aggregate_max`].

use crate::{Matrix, View, ViewMut};

/// Positions of edges, one for every value of a matrix of maxima; `u32::MAX` where there was no
/// edge. Resizing keeps the memory.
///
/// They are kept as the bits of a [`Matrix`], so they stay on a device whose backend made them
/// until somebody asks on the host.
#[derive(Clone, Debug, Default)]
pub struct ArgMax(Matrix);

impl ArgMax {
    /// Takes the shape of the maxima. The positions are unspecified afterwards.
    pub fn resize(&mut self, rows: usize, cols: usize) {
        self.0.resize(rows, cols);
    }

    /// The positions, row by row, in host memory. For backends and tests.
    pub fn host(&self) -> &[u32] {
        bytemuck::cast_slice(self.0.view().host())
    }

    /// The positions, to be written in host memory.
    pub fn host_mut(&mut self) -> &mut [u32] {
        bytemuck::cast_slice_mut(self.0.view_mut().host())
    }

    /// The matrix whose bits they are, for backends of devices: only its place is of use, its
    /// values are no numbers.
    pub fn bits(&self) -> View<'_> {
        self.0.view()
    }

    /// The same, to be written.
    pub fn bits_mut(&mut self) -> ViewMut<'_> {
        self.0.view_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_is_kept() {
        let mut winners = ArgMax::default();
        winners.resize(2, 3);
        // among them bits of numbers that are none, and of ones too small to be normal
        let positions = [0, 1, u32::MAX, 0x7f80_0001, 0x8000_0000, 7];
        winners.host_mut().copy_from_slice(&positions);
        assert_eq!(winners.clone().host(), positions);
        assert_eq!((winners.bits().num_rows(), winners.bits().num_cols()), (2, 3));
    }
}
