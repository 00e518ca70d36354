//! The importer `heco`: edge lists, arrays and sparse matrices.

use super::{Answer, import_typed_files};

pub(super) const TOKENS: &[&[u8]] = &[
    crate::input::FILE,
    b"0\t1\n",
    b"row.npy\n",
    b"col.npy\n",
    b"data.npy\n",
    b"shape.npy\n",
    b"indptr.npy\n",
    b"indices.npy\n",
    b"add-reverses ",
    b"valid-fraction=0.5 ",
];

/// One input: options of an import, and its files.
pub fn run(data: &[u8]) -> Answer {
    import_typed_files("import_heco", "heco", &["pa.txt", "ps.txt", "p_feat.npz", "a_feat.npz", "labels.npy", "train_20.npy", "val_20.npy", "test_20.npy"], "", data)
}
