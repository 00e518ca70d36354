//! The importer `ogb-nodes`: tables of nodes, and of edges with their features.

use super::{Answer, import_typed_files};

pub(super) const TOKENS: &[&[u8]] =
    &[crate::input::FILE, b"0,1\n", b"0.5,0.25\n", b"undirected ", b"dense-features ", b"add-reverses "];

/// Files of the source.
const NAMES: &[&str] = &[
    "raw/edge.csv",
    "raw/edge-feat.csv",
    "raw/edge-feat.csv.gz",
    "raw/num-node-list.csv",
    "raw/num-edge-list.csv",
    "raw/node-feat.csv",
    "raw/node-label.csv",
    "split/s/train.csv",
    "split/s/valid.csv",
    "split/s/test.csv",
];

/// One input: options of an import, and its files.
pub fn run(data: &[u8]) -> Answer {
    import_typed_files("import_ogb_nodes", "ogb-nodes", NAMES, "", data)
}
