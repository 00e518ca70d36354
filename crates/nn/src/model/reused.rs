//! Table rows that follow the computed rows of the bottom layer.

use crate::{Matrix, View};

/// Output rows of the bottom layer that are read from a table instead of computed.
#[derive(Clone, Copy, Debug)]
pub struct Reused<'a> {
    /// Table of rows from [`super::Model::bottom_rows`], `K x O`.
    pub rows: View<'a>,
    /// Table rows that follow the computed ones, `H`.
    pub slots: &'a [u32],
    /// Aggregates of the table's rows, if the layer's weights receive their gradient: tables of `K`
    /// rows and of widths [`super::Model::aggregate_dims`]. If empty, the rows are constants.
    pub aggregates: &'a [Matrix],
    /// Part of the rows that is computed from the current weights.
    pub projected: Option<Projected<'a>>,
}

/// Low-rank part of reused rows that every step recomputes: the product of the current weights with
/// the projection of the aggregated input rows onto a few directions. `rows` of [`Reused`] then
/// lack that part and the bias ([`super::Model::project_rows`]).
///
/// A row is linear in its aggregated inputs `a`: with an orthonormal basis `B` of `k` directions,
/// `a W = (a - a Bᵀ B) W + (a Bᵀ)(B W)`. The first term is stored; the second costs `k` rows
/// of the product and `O(H k O)` to add.
#[derive(Clone, Copy, Debug)]
pub struct Projected<'a> {
    /// Projection of every row, `K x k`.
    pub coordinates: View<'a>,
    /// Basis: `k` rows of each table of widths [`super::Model::aggregate_dims`], orthonormal if
    /// concatenated.
    pub basis: &'a [Matrix],
    /// If true, the weights and the bias receive the gradient of that part.
    pub learns: bool,
}
