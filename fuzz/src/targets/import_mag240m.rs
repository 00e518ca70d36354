//! The importer `mag240m`: arrays of MAG240M.

use super::{Answer, import_typed_files};

pub(super) const TOKENS: &[&[u8]] = &[
    crate::input::FILE,
    b"(2, 3)",
    b"<f2",
    b"add-reverses ",
];

/// Files of the source.
const NAMES: &[&str] = &[
    "meta.pt",
    "split_dict.pt",
    "processed/paper/node_feat.npy",
    "processed/paper/node_label.npy",
    "processed/paper/node_year.npy",
    "processed/author___writes___paper/edge_index.npy",
];

/// One input: options of an import, and its files.
pub fn run(data: &[u8]) -> Answer {
    import_typed_files("import_mag240m", "mag240m", NAMES, "", data)
}
