//! The importer `temporal`: lists of timed links.

use super::{Answer, import_typed_files};

pub(super) const TOKENS: &[&[u8]] = &[
    crate::input::FILE,
    b"1 2 3\n",
    b"1,2,-5,3.25\n",
    b"1e9",
    b"# c\n",
    b".",
    b"add-reverses ",
    b"valid-fraction=0.5 ",
];

/// One input: options of an import, and its files.
pub fn run(data: &[u8]) -> Answer {
    import_typed_files("import_temporal", "temporal", &["x-a.txt", "x-b.csv", "x-c.txt.gz"], "", data)
}
