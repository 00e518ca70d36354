//! Zip archives and gzip files that store their bytes uncompressed: fast to write, with the
//! checksums that a mutation of the contents would break.

use flate2::Crc;

fn crc(bytes: &[u8]) -> [u8; 4] {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum().to_le_bytes()
}

/// Zip archive of stored members `(name, bytes)` (PKWARE's APPNOTE, sections 4.3.7, 4.3.12 and
/// 4.3.16).
pub fn zip(members: &[(&[u8], &[u8])]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, bytes) in members {
        let name = &name[..name.len().min(usize::from(u16::MAX))];
        let offset = (out.len() as u32).to_le_bytes();
        let length = (bytes.len() as u32).to_le_bytes();
        // version, flags, method, time, date, checksum, packed and unpacked length, lengths of name
        // and extra field
        let common = [
            &[20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0][..],
            &crc(bytes),
            &length,
            &length,
            &(name.len() as u16).to_le_bytes(),
            &[0, 0],
        ]
        .concat();
        out.extend([b"PK\x03\x04", &common[..], name, bytes].concat());
        directory.extend([b"PK\x01\x02\x14\0", &common[..], &[0; 10], &offset, name].concat());
    }
    let (start, size) = (out.len() as u32, directory.len() as u32);
    let count = (members.len() as u16).to_le_bytes();
    out.extend(directory);
    out.extend([b"PK\x05\x06\0\0\0\0", &count[..], &count].concat());
    out.extend([size.to_le_bytes(), start.to_le_bytes()].concat());
    out.extend([0, 0]);
    out
}

/// Gzip file of stored blocks (RFC 1952; RFC 1951, section 3.2.4).
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    const BLOCK: usize = 0xffff;
    let mut out = b"\x1f\x8b\x08\0\0\0\0\0\0\xff".to_vec();
    let blocks = bytes.len().div_ceil(BLOCK).max(1);
    for i in 0..blocks {
        let block = &bytes[i * BLOCK..bytes.len().min((i + 1) * BLOCK)];
        out.push(u8::from(i + 1 == blocks));
        out.extend((block.len() as u16).to_le_bytes());
        out.extend((!(block.len() as u16)).to_le_bytes());
        out.extend(block);
    }
    out.extend(crc(bytes));
    out.extend((bytes.len() as u32).to_le_bytes());
    out
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn gzip_unpacks() {
        for bytes in [vec![], b"one".to_vec(), vec![7; 200_000]] {
            let mut out = Vec::new();
            flate2::read::GzDecoder::new(&gzip(&bytes)[..]).read_to_end(&mut out).unwrap();
            assert_eq!(out, bytes);
        }
    }
}
