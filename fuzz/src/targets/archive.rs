//! Zip and tar archives as sources of importers, and every file in them.

use graphmill_data::typed::import::fuzz;

use super::Answer;
use crate::{alloc::limited, input::Input, scratch::with_files};

pub(super) const TOKENS: &[&[u8]] =
    &[crate::input::FILE, crate::input::MEMBER, b"ustar\x0000", b"__MACOSX/._a", b"A/", b"./", b"path=a\n"];

/// One input: the files `a.zip` and `a.tar`, of which one must be read.
pub fn run(data: &[u8]) -> Answer {
    let input = Input::read(data, &["a.zip", "a.tar", "a.tar.gz"]);
    with_files("archive", &input.files, |dir| {
        let (name, _) = input.files.first().ok_or("there is no archive")?;
        Ok(limited(input.unpacked, || fuzz::archive(&dir.join(name)))?)
    })
}
