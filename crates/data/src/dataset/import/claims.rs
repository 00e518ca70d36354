//! Plausibility limits for declared sizes that no data backs: large enough for small and sparse
//! data, and small enough that a damaged number cannot allocate all memory.

use graphmill_core::{Result, location::Location};

/// Number of nodes that is always accepted, and the additional number per edge.
const NODES: (u64, u64) = (1_000_000, 64);
/// Number of entries of a dense table that is always accepted, and the additional number per stored
/// value: the sparsest features in use have about a hundred.
const ENTRIES: (usize, usize) = (1 << 24, 1 << 12);

/// Returns true if `count` nodes are plausible for `edges` edges without a table of one row per
/// node.
pub(crate) fn are_plausible(count: u64, edges: u64) -> bool {
    count <= NODES.0.saturating_add(NODES.1.saturating_mul(edges))
}

/// Checks that `count` nodes are plausible (see [`are_plausible`]).
///
/// # Errors
/// The number is implausible.
pub(crate) fn nodes(count: usize, edges: u64, at: &Location) -> Result<()> {
    if are_plausible(count as u64, edges) {
        return Ok(());
    }
    Err(at.error(format!(
        "{count} nodes, but there are only {edges} edges, and no table has a row for each node: is the \
         number damaged?"
    )))
}

/// Returns true if a dense table of `rows x columns` is plausible for `values` values.
pub(crate) fn is_dense(rows: usize, columns: usize, values: usize) -> bool {
    let entries = rows.saturating_mul(columns);
    entries <= ENTRIES.0 || entries / ENTRIES.1 <= values
}

/// Checks that a dense table of `rows x columns` is plausible for `values` values.
///
/// # Errors
/// The table would be almost empty.
pub(crate) fn dense(rows: usize, columns: usize, values: usize, at: &Location) -> Result<()> {
    if is_dense(rows, columns, values) {
        return Ok(());
    }
    Err(at.error(format!(
        "a table of {rows} x {columns}, for which the file holds {values} values: a shape or an id is \
         damaged, or the table is too sparse to be stored dense"
    )))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn small_and_backed_claims_pass() {
        let at = Location::new(Path::new("a"), "claims");
        assert!(nodes(1_000_000, 0, &at).is_ok() && nodes(6_000_000, 100_000, &at).is_ok());
        assert!(
            nodes(usize::MAX, 100, &at)
                .unwrap_err()
                .to_string()
                .starts_with("a: claims: 18446744073709551615")
        );
        assert!(dense(2708, 1433, 49_216, &at).is_ok(), "Cora");
        assert!(dense(1 << 12, 1 << 12, 0, &at).is_ok());
        assert!(dense(1, 1 << 30, 1, &at).is_err() && dense(usize::MAX, 2, 9, &at).is_err());
    }
}
