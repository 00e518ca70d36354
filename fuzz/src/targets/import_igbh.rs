//! The importer `igbh`: arrays of IGBH.

use super::{Answer, import_typed_files};

pub(super) const TOKENS: &[&[u8]] = &[
    crate::input::FILE,
    b"(3, 2)",
    b"<f4",
    b"add-reverses ",
];

/// Files of the source.
const NAMES: &[&str] = &[
    "processed/paper/node_feat.npy",
    "processed/paper/node_label_19.npy",
    "processed/paper/node_label_2K.npy",
    "processed/fos/node_feat.npy",
    "processed/paper__topic__fos/edge_index.npy",
];

/// One input: options of an import, and its files.
pub fn run(data: &[u8]) -> Answer {
    import_typed_files("import_igbh", "igbh", NAMES, "", data)
}
