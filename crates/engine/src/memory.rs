//! Refuses a run that would only end in the system killing the process.

use graphmill_graph::Dataset;

use crate::{Error, Result, TrainConfig};

/// Refuses widths that need more memory than there is, with a lower bound on the need: parameters and gradients,
/// and one layer's hidden rows of all nodes (what full-neighbour inference keeps).
///
/// # Errors
/// Wrong usage, naming `--hidden`.
pub(crate) fn check(config: &TrainConfig, data: &Dataset) -> Result<()> {
    // where the system does not say, refuse at least what no machine has
    let available = available().unwrap_or(1 << 46) as f64;
    let needed = needed(config, data.num_nodes(), data.features.dim, data.labels.classes());
    if needed <= available {
        return Ok(());
    }
    Err(Error::usage(format!(
        "--hidden {}: with {} layers and {} nodes this needs at least {:.1} GB of memory, and {:.1} GB are available; \
         choose a smaller width",
        config.hidden,
        config.layers,
        data.num_nodes(),
        needed / 1e9,
        available / 1e9
    )))
}

/// The lower bound, in bytes.
fn needed(config: &TrainConfig, nodes: usize, dim: usize, classes: usize) -> f64 {
    let (v, f, h, c) = (nodes as f64, dim as f64, config.hidden as f64, classes as f64);
    let wide = config.layers + config.head_layers + usize::from(config.input_layer);
    if wide < 2 {
        return 0.0;
    }
    let params = f * h + (wide - 2) as f64 * h * h + h * c;
    8.0 * params + 4.0 * v * h
}

/// Bytes that a new process may take without pushing others out.
fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_counts_weights_and_rows() {
        let config = TrainConfig { hidden: 100, layers: 3, ..TrainConfig::default() };
        let weights = 10 * 100 + 100 * 100 + 100 * 4;
        assert_eq!(needed(&config, 1000, 10, 4), (8 * weights + 4 * 1000 * 100) as f64);
        let linear = TrainConfig { layers: 1, ..config };
        assert_eq!(needed(&linear, 1000, 10, 4), 0.0);
    }
}
