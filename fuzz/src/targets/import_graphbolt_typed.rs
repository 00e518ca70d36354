//! The importer `graphbolt-typed`: YAML and arrays of several types.

use super::{Answer, import_typed_files};

pub(super) const TOKENS: &[&[u8]] = &[
    crate::input::FILE,
    b"graph: {nodes: [{type: a, num: 3}], edges: [{type: a:r:a, format: numpy, path: b.npy}]}",
    b"feature_data: []",
    b"tasks: [{name: t, train_set: [{type: a, data: [{name: seeds, format: numpy, path: c.npy}]}]}]",
    b"indexes",
    b"labels",
    b"torch",
    b"add-reverses ",
];

/// Files of the source.
const NAMES: &[&str] = &[
    "metadata.yaml",
    "a.npy",
    "b.npy",
    "c.npy",
    "d.csv",
    "e.pt",
];

/// One input: options of an import, and its files.
pub fn run(data: &[u8]) -> Answer {
    import_typed_files("import_graphbolt_typed", "graphbolt-typed", NAMES, "", data)
}
