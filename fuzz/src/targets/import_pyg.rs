//! The importer `pyg`: a dictionary in a file of PyTorch.

use super::{Answer, import_typed_files};

pub(super) const TOKENS: &[&[u8]] = &[
    crate::input::FILE,
    b"X\x0a\0\0\0edge_index",
    b"X\x01\0\0\0x",
    b"X\x01\0\0\0y",
    b"X\x0a\0\0\0train_mask",
    b"ctorch._utils\n_rebuild_tensor_v2\n",
    b"ctorch\nLongStorage\n",
    b"ctorch\nFloatStorage\n",
    b"add-reverses ",
];

/// One input: options of an import, and its files.
pub fn run(data: &[u8]) -> Answer {
    import_typed_files("import_pyg", "pyg", &["a.pt"], "a.pt", data)
}
