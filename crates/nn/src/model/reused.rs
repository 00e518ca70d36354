//! Rows of a table that stand behind the computed rows of the bottom layer.

use crate::{Matrix, View};

/// Rows of the bottom layer's output that are read from a table instead of computed.
#[derive(Clone, Copy, Debug)]
pub struct Reused<'a> {
    /// A table of rows from [`super::Model::bottom_rows`], `K x O`.
    pub rows: View<'a>,
    /// Rows of the table that stand behind the computed ones, `H`.
    pub slots: &'a [u32],
    /// The aggregates they were made from, if the layer's weights get their gradient: tables of as
    /// many rows, of the widths [`super::Model::aggregate_dims`]. Empty: the rows are constants.
    pub aggregates: &'a [Matrix],
    /// The part of them that is computed from today's weights.
    pub projected: Option<Projected<'a>>,
}

/// The low-rank part of reused rows that is computed anew: the product of today's weights with the
/// projection of the aggregated input rows on a few directions. `rows` of [`Reused`] then lack that
/// part and the bias ([`super::Model::project_rows`]).
///
/// A row is linear in its aggregated inputs `a`: with an orthonormal basis `B` of `k` directions,
/// `a W = (a - a Bᵀ B) W + (a Bᵀ)(B W)`. The first term is stored; the second costs `k` rows
/// of the product and `O(H k O)` to add.
#[derive(Clone, Copy, Debug)]
pub struct Projected<'a> {
    /// The projection of every row, `K x k`.
    pub coordinates: View<'a>,
    /// The basis: `k` rows of each table of widths [`super::Model::aggregate_dims`], orthonormal
    /// side by side.
    pub basis: &'a [Matrix],
    /// Whether the weights and the bias get the gradient of that part.
    pub learns: bool,
}
