//! The importer `parquet`: tables of edges and nodes.

use std::{panic, sync::Once};

use super::{Answer, import_files};

pub(super) const TOKENS: &[&[u8]] = &[
    crate::input::FILE,
    b"edges.parquet\n",
    b"edges-1.parquet\n",
    b"nodes.parquet\n",
    b"PAR1",
    b"src",
    b"dst",
    b"id",
    b"label",
    b"split",
    b"train_mask",
    b"compact-ids ",
    b"weight",
    b"weights=none ",
    b"first-id=1 ",
    b"num-nodes=9 ",
    b"\xff\xff\xff\xff\x0f", // the largest number of 32 bits
    b"\xfe\xff\xff\xff\x0f", // the largest that is not negative, zigzag
    b"\x15\x00\x15",
    b"\x15\x04\x15",
    b"\x15\x06\x15",
    b"\x19\x1c",
    b"\x2c\x15",
];

/// One input: options of an import, and files of the directory.
pub fn run(data: &[u8]) -> Answer {
    hide_decoder_panics();
    let names = ["edges.parquet", "edges-1.parquet", "nodes.parquet"];
    import_files("import_parquet", "parquet", &names, "", data)
}

/// Hides panics of the decoders of Parquet and Arrow, which the importers turn into errors, from
/// the fuzzer's panic hook: it would end the process.
pub(super) fn hide_decoder_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let decoders = ["/parquet-", "/arrow-"];
            let is_decoder = info
                .location()
                .is_some_and(|place| decoders.iter().any(|decoder| place.file().contains(decoder)));
            if !is_decoder {
                hook(info);
            }
        }));
    });
}
