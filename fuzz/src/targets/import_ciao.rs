//! The importer `ciao`: MATLAB files with tables.

use super::{Answer, import_typed_files};

pub(super) const TOKENS: &[&[u8]] = &[
    crate::input::FILE,
    b"MATLAB 5.0 MAT-file",
    b"\0\x01IM",
    b"rating",
    b"trustnetwork",
    b"\x0e\0\0\0",
    b"\x0f\0\0\0",
    b"add-reverses ",
    b"valid-fraction=0.5 ",
];

/// One input: options of an import, and its files.
pub fn run(data: &[u8]) -> Answer {
    import_typed_files("import_ciao", "ciao", &["rating.mat", "trustnetwork.mat"], "", data)
}
