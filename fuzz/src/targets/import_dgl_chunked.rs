//! The importer `dgl-chunked`: JSON, arrays and tables.

use super::{Answer, import_typed_files};

pub(super) const TOKENS: &[&[u8]] = &[
    crate::input::FILE,
    b"{\"node_type\": [\"a\"], \"num_nodes_per_chunk\": [[2, 1]]}",
    b"\"edge_type\": [\"a:r:a\"]",
    b"\"format\": {\"name\": \"numpy\"}",
    b"\"data\": [\"a.npy\"]",
    b"train_mask",
    b"add-reverses ",
];

/// Files of the source.
const NAMES: &[&str] = &[
    "metadata.json",
    "a.npy",
    "b.npy",
    "c.npy",
    "d.csv",
];

/// One input: options of an import, and its files.
pub fn run(data: &[u8]) -> Answer {
    import_typed_files("import_dgl_chunked", "dgl-chunked", NAMES, "", data)
}
