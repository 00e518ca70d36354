//! Edges that attain the maxima of [`super::Backend::aggregate_max`].

use crate::{Matrix, View, ViewMut};

/// Position of an edge for every value of a matrix of maxima; `u32::MAX` for a destination without
/// edges. Resizing reuses the memory.
///
/// The positions are stored as the bits of a [`Matrix`], so they stay on the device of the backend
/// that wrote them until the host reads them.
#[derive(Clone, Debug, Default)]
pub struct ArgMax(Matrix);

impl ArgMax {
    /// Resizes to the shape of the maxima. The positions are unspecified afterwards.
    pub fn resize(&mut self, rows: usize, cols: usize) {
        self.0.resize(rows, cols);
    }

    /// Positions, row by row, in host memory. For backends and tests.
    pub fn host(&self) -> &[u32] {
        bytemuck::cast_slice(self.0.view().host())
    }

    /// Mutable positions in host memory.
    pub fn host_mut(&mut self) -> &mut [u32] {
        bytemuck::cast_slice_mut(self.0.view_mut().host())
    }

    /// Matrix that holds the positions as bits, for device backends. Only its address is useful:
    /// its values are not meaningful floats.
    pub fn bits(&self) -> View<'_> {
        self.0.view()
    }

    /// Mutable matrix that holds the positions as bits.
    pub fn bits_mut(&mut self) -> ViewMut<'_> {
        self.0.view_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_pattern_is_preserved() {
        let mut winners = ArgMax::default();
        winners.resize(2, 3);
        // including bits of NaN and of subnormal numbers
        let positions = [0, 1, u32::MAX, 0x7f80_0001, 0x8000_0000, 7];
        winners.host_mut().copy_from_slice(&positions);
        assert_eq!(winners.clone().host(), positions);
        assert_eq!((winners.bits().num_rows(), winners.bits().num_cols()), (2, 3));
    }
}
