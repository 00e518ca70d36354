//! The importer `facebook100`: MATLAB files of one school or two, packed or not.

use super::{Answer, import_files};

pub(super) const TOKENS: &[&[u8]] = &[
    crate::input::FILE,
    b"a.mat\n",
    b"b.mat\n",
    b"MATLAB 5.0 MAT-file",
    b"\0\x01IM",
    b"\x01\0MI",
    b"\x0e\0\0\0",
    b"\x0f\0\0\0",
    b"\x01\0\x01\0A\0\0\0",
    b"\x01\0\0\0\x0a\0\0\0local_info",
    b"\x06\0\0\0\x08\0\0\0\x05\0\0\0",
    b"\x06\0\0\0\x08\0\0\0\x0b\0\0\0",
    b"\x05\0\0\0",
    b"\x04\0\0\0",
    b"\x09\0\0\0",
    b"\0\0\0\0\0\0\xf0?",
    b"\xff\xff\xff\x7f",
    b"split=graphs:a/b/ ",
    b"split=random:0.5,0.2,0.3 ",
    b"normalize=rows ",
    b"largest-component ",
];

/// One input: options of an import, and files of the directory.
pub fn run(data: &[u8]) -> Answer {
    import_files("import_facebook100", "facebook100", &["a.mat", "b.mat"], "", data)
}
