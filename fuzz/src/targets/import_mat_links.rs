//! The importer `mat-links`: a MATLAB file with a matrix.

use super::{Answer, import_typed_files};

pub(super) const TOKENS: &[&[u8]] = &[
    crate::input::FILE,
    b"MATLAB 5.0 MAT-file",
    b"\0\x01IM",
    b"\x01\0MI",
    b"net",
    b"\x0e\0\0\0",
    b"\x0f\0\0\0",
    b"add-reverses ",
    b"valid-fraction=0.5 ",
];

/// One input: options of an import, and its files.
pub fn run(data: &[u8]) -> Answer {
    import_typed_files("import_mat_links", "mat-links", &["a.mat"], "a.mat", data)
}
