//! Archives and texts of downloads.

use std::io::{Cursor, Write};

use flate2::{Compression, write::DeflateEncoder};

use super::Result;
use crate::input::{join, members};

pub(super) fn add(add: &mut impl FnMut(&'static str, &str, Vec<u8>)) -> Result<()> {
    let stored = members(&[("a", b"one"), ("b/c", b"two"), ("b/d/e.txt", b""), ("f/", b"")]);
    add("fetch_unpack", "stored", join("", &[("a.zip", &stored)]));
    add("fetch_unpack", "present", join("", &[("a.zip", &stored), ("out/a", b"one"), ("out/b/c", b"2")]));
    let packed = deflated("a/b.csv", &b"0,1\n".repeat(100))?;
    add("fetch_unpack", "deflated", join("", &[("a.zip", &packed)]));

    let sum = "0123456789abcdef".repeat(4);
    let note = br#"{"url":"http://h/a","version":{"etag":"\"x\"","modified":null,"total":12}}"#;
    let texts: [(&str, &[u8]); 3] = [
        ("SHA256SUMS", &format!("{sum}  a\n{sum}  b c\n").into_bytes()),
        ("note", note),
        ("range", b"bytes 3-11/12"),
    ];
    add("fetch_sums", "texts", join("", &texts));
    let catalogue = b"collection='c'\nformat='f'\nhome='h'\nlicence='l'\ncitation='c'\nbase='https://h/'\n\
        [[dataset]]\nname='n'\ntitle='t'\ntask='single'\nnodes=1\nedges=1\n\
        classes=2\noptions=['--undirected']\n\
        files=[{name='a.zip',about=3},{name='b',bytes=1}]\n[[dataset]]\nname='m'\ntitle='t'\ntask='none'\n\
        nodes=1\nedges=1\nmanual='ask'\n";
    add("fetch_sums", "catalogue", join("", &[("catalogue", catalogue)]));
    Ok(())
}

/// An archive of one deflated member, from one of a stored member whose fields are changed.
fn deflated(name: &str, bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = DeflateEncoder::new(Cursor::new(Vec::new()), Compression::default());
    encoder.write_all(bytes)?;
    let packed = encoder.finish()?.into_inner();
    let mut zip = crate::pack::zip(&[(name.as_bytes(), &packed)]);
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    let directory = zip.windows(4).position(|word| word == b"PK\x01\x02").ok_or("no directory")?;
    // the method, the checksum and the unpacked length, in the member's header and in the directory
    for start in [4, directory + 6] {
        zip[start + 4] = 8;
        zip[start + 10..start + 14].copy_from_slice(&crc.sum().to_le_bytes());
        zip[start + 18..start + 22].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
    }
    Ok(zip)
}
