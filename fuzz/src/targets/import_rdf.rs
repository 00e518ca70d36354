//! The importer `rdf`: N-Triples and tables.

use super::{Answer, import_typed_files};

pub(super) const TOKENS: &[&[u8]] = &[
    crate::input::FILE,
    b"<http://x/a> <http://x/p> <http://x/b> .\n",
    b"\"text\"@en",
    b"\"1\"^^<http://x/int>",
    b"_:b0",
    b"person\tid\tlabel_x\n",
    b"http://x/a\t1\thttp://x/c\n",
    b"\\u0041",
    b"add-reverses ",
    b"valid-fraction=0.5 ",
];

/// One input: options of an import, and its files.
pub fn run(data: &[u8]) -> Answer {
    import_typed_files("import_rdf", "rdf", &["a.nt", "b.nt.gz", "trainingSet.tsv", "testSet.tsv"], "", data)
}
