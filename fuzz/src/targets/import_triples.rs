//! The importer `triples`: lines of head, relation and tail, and JSON.

use super::{Answer, import_typed_files};

pub(super) const TOKENS: &[&[u8]] = &[
    crate::input::FILE,
    b"a\tr\tb\n",
    b"\t",
    b"{\"a\": [\"t\"]}",
    b"add-reverses ",
    b"valid-fraction=0.5 ",
];

/// One input: options of an import, and its files.
pub fn run(data: &[u8]) -> Answer {
    import_typed_files("import_triples", "triples", &["train.txt", "valid.txt", "dev.txt", "test.txt", "valid_negatives.txt", "test_negatives.txt", "entity2types.json"], "", data)
}
