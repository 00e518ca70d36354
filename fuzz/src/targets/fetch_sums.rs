//! Texts that a download reads: `SHA256SUMS`, the record of a partial download, a server's range,
//! the catalogue.

use graphmill_data::download::fuzz;

use super::Answer;
use crate::{alloc::limited, input::Input, scratch::with_fresh_files};

pub(super) const TOKENS: &[&[u8]] = &[
    crate::input::FILE,
    b"SHA256SUMS\n",
    b"note\n",
    b"range\n",
    b"catalogue\n",
    b"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef  a\n",
    b"{\"url\":\"\",\"version\":{\"etag\":null,\"modified\":null,\"total\":1}}",
    b"bytes 0-1/2",
    b"bytes */3",
    b"18446744073709551615",
    b"collection='c'\nformat='f'\nhome='h'\nlicence='l'\ncitation='c'\nbase='https://h/'\n",
    b"[[dataset]]\nname='n'\ntitle='t'\ntask='none'\nnodes=1\nedges=1\n",
    b"files=[{name='a.zip'}]\n",
    b"manual='m'\n",
    b"sha256='",
    b"task='multi'",
];

const NAMES: &[&str] = &["SHA256SUMS", "note", "range", "catalogue"];

/// One input: the texts.
pub fn run(data: &[u8]) -> Answer {
    let input = Input::read(data, NAMES);
    let text = |name: &str| std::str::from_utf8(input.file(name).unwrap_or_default());
    with_fresh_files("fetch_sums", &input.files, |dir| {
        limited(input.unpacked, || {
            let transfer = input.file("note").is_none_or(|note| {
                let range = text("range").unwrap_or_default();
                fuzz::transfer(note, range)
            });
            let catalogue = input.file("catalogue").map_or(Ok(()), |_| match text("catalogue") {
                Ok(text) => fuzz::catalogue(text),
                Err(_) => Ok(()),
            });
            assert!(fuzz::sums(dir, "a name")?, "the recorded checksum is read back");
            catalogue?;
            if transfer { Ok(()) } else { Err("an invalid record or range".into()) }
        })
    })
}
