//! Helpers for the tests of all flavours.

use std::path::Path;

use graphmill_core::NodeId;

use super::super::super::{ImportOptions, testing::import};
use crate::Dataset;

/// Dataset of the file, or the error message.
pub(super) fn run(path: &Path, options: &ImportOptions) -> Result<Dataset, String> {
    import("edges", path, options).map_err(|e| e.to_string())
}

/// Dataset of `text` in a file called `name`.
pub(super) fn text(name: &str, text: &str, options: &ImportOptions) -> Result<Dataset, String> {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join(name), text).unwrap();
    run(&dir.path().join(name), options)
}

/// All edges, ordered by destination.
pub(super) fn edges(dataset: &Dataset) -> Vec<(NodeId, NodeId)> {
    let graph = &dataset.graph;
    (0..graph.num_nodes() as NodeId)
        .flat_map(|v| graph.in_neighbors(v).iter().map(move |&u| (u, v)))
        .collect()
}

/// Truncates and flips the contents of `path` at every position; `import` may fail, and must not
/// panic. Truncations must fail.
pub(super) fn damage(path: &Path, import: &Path, may_be_short: bool) {
    let good = std::fs::read(path).unwrap();
    for length in 0..good.len() {
        std::fs::write(path, &good[..length]).unwrap();
        let result = run(import, &ImportOptions::default());
        assert!(may_be_short || result.is_err(), "{}: truncated to {length}", path.display());
    }
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(path, &bad).unwrap();
        let _ = run(import, &ImportOptions::default());
    }
    std::fs::write(path, &good).unwrap();
    assert!(run(import, &ImportOptions::default()).is_ok());
}
