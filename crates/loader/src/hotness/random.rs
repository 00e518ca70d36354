//! Random scores, the baseline of the other metrics.

use graphmill_core::keyed;

use super::{Setting, no_argument};

/// A random score for each node.
pub(super) fn score(setting: &Setting, argument: Option<&str>) -> Result<Vec<f64>, String> {
    no_argument("random", argument)?;
    let key = keyed::key(&[setting.seed, 0x0068_6f74]);
    Ok((0..setting.graph.num_nodes() as u64).map(|v| (keyed::mix(key ^ v) >> 11) as f64).collect())
}
