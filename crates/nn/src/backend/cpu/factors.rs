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
