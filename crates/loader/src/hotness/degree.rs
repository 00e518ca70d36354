//! Out-degree: the more nodes have a node as in-neighbour, the likelier it is drawn. Samplers that
//! go from seeds against the edges never follow the out-edges of a node, so its in-degree is no
//! predictor.

use graphmill_core::rank::out_degrees;

use super::{Setting, no_argument};

/// Out-degree of each node. O(V + E).
pub(super) fn score(setting: &Setting, argument: Option<&str>) -> Result<Vec<f64>, String> {
    no_argument("degree", argument)?;
    Ok(out_degrees(setting.graph).into_iter().map(f64::from).collect())
}
