//! How many nodes hear from a node: the more do, the likelier it is drawn. (The in-degree says how
//! many it hears from, which no sampler that goes from seeds against the edges asks.)

use graphmill_core::rank::out_degrees;

use super::{Setting, no_argument};

/// See the module's text. O(V + E).
pub(super) fn score(setting: &Setting, argument: Option<&str>) -> Result<Vec<f64>, String> {
    no_argument("degree", argument)?;
    Ok(out_degrees(setting.graph).into_iter().map(f64::from).collect())
}
