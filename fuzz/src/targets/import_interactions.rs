//! The importer `interactions`: lists of users and items, and a sparse matrix.

use super::{Answer, import_typed_files};

pub(super) const TOKENS: &[&[u8]] = &[
    crate::input::FILE,
    b"0 1 2\n",
    b"indptr.npy\n",
    b"indices.npy\n",
    b"shape.npy\n",
    b"data.npy\n",
    b"add-reverses ",
    b"valid-fraction=0.5 ",
];

/// One input: options of an import, and its files.
pub fn run(data: &[u8]) -> Answer {
    import_typed_files("import_interactions", "interactions", &["train.txt", "valid.txt", "test.txt", "s_adj_mat.npz"], "", data)
}
