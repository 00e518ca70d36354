//! Archives of a download: unpacked into their directory and nowhere else, and a second time
//! without a difference.

use std::{fs, path::Path};

use graphmill_data::download::fuzz;

use super::Answer;
use crate::{alloc::limited, input::Input, scratch::with_fresh_files};

pub(super) const TOKENS: &[&[u8]] = &[
    crate::input::FILE,
    crate::input::MEMBER,
    b"a.zip\n",
    b"out/a\n",
    b"../x",
    b"/tmp/x",
    b"a/./b",
    b"a//b",
    b"a\\b",
    b"SHA256SUMS",
    b"PK\x01\x02",
    b"PK\x03\x04",
    b"PK\x05\x06",
    b"PK\x06\x06",
    b"PK\x06\x07",
    b"\x01\0\x10\0\xff\xff\xff\xff\xff\xff\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x7f", // 64-bit sizes
    b"\0\0\xff\xa1", // a link
];

const NAMES: &[&str] = &["a.zip", "out/a", "out/b/c", "out/SHA256SUMS"];

/// One input: an archive, and the existing contents of the directory.
pub fn run(data: &[u8]) -> Answer {
    let input = Input::read(data, NAMES);
    with_fresh_files("fetch_unpack", &input.files, |dir| {
        let (archive, out) = (dir.join("a.zip"), dir.join("out"));
        fs::create_dir_all(&out)?;
        let unpacked = limited(input.unpacked, || fuzz::unpack(&archive, &out));
        let beside = fs::read_dir(dir)?.count();
        assert!(beside <= 2, "something is beside the archive and its directory");
        let found = bytes_of(&out);
        let unpacked = unpacked?;
        assert!(unpacked <= found, "all that was unpacked is in its directory");
        let again = limited(input.unpacked, || fuzz::unpack(&archive, &out));
        assert_eq!((again.ok(), bytes_of(&out)), (Some(unpacked), found), "a second time");
        Ok(())
    })
}

/// Bytes of all files in a directory, which may contain only files and directories.
fn bytes_of(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).expect("the directory is there").map(|entry| entry.expect("it can be \
        read"));
    entries
        .map(|entry| {
            let kind = entry.file_type().expect("it has a type");
            assert!(kind.is_dir() || kind.is_file(), "a link, or worse");
            if kind.is_dir() { bytes_of(&entry.path()) } else { entry.metadata().expect("it has a \
                size").len() }
        })
        .sum()
}
