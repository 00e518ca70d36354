//! NumPy's `.npz` format: a zip archive of `.npy` members, stored or deflated (`numpy.savez`,
//! `numpy.savez_compressed`, `scipy.sparse.save_npz`).
//!
//! A member is decoded in chunks directly into the requested type, so memory stays near the size of
//! the result. Its declared size is trusted only as far as the archive's bytes can back it: deflate
//! expands at most 1032 times, stored members not at all, and the array's header must agree with
//! the archive's directory.

use std::{
    fs::File,
    io::{BufReader, Read},
    path::{Path, PathBuf},
};

use graphmill_core::{Error, Result, location::Location, memory};
use zip::{CompressionMethod, ZipArchive, read::ZipFile};

use crate::npy::{Element, Header, Kind, Pieces, c_order, convert};

/// Largest expansion factor of deflate (zlib technical notes: 1032:1).
const MAX_EXPANSION: u64 = 1032;

/// Bytes unpacked at a time: enough for a parallel conversion.
const CHUNK_LEN: usize = 1 << 20;

/// An open `.npz` archive.
pub struct Npz {
    path: PathBuf,
    archive: ZipArchive<BufReader<File>>,
}

/// Array read from an archive, in C order.
#[derive(Clone, Debug, PartialEq)]
pub struct Array<T> {
    /// Length of each axis.
    pub shape: Vec<usize>,
    /// The values.
    pub data: Vec<T>,
}

type Member<'a> = ZipFile<'a, BufReader<File>>;

impl Npz {
    /// Opens the archive at `path` and reads its directory.
    ///
    /// # Errors
    /// The file cannot be opened or is not a zip archive.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|e| Error::io(path, "open", e))?;
        let archive = ZipArchive::new(BufReader::new(file))
            .map_err(|e| Error::format(path, "archive", format!("not a readable .npz (zip) archive: {e}")))?;
        Ok(Self { path: path.to_path_buf(), archive })
    }

    /// Path of the archive.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Names of the arrays, without `.npy`.
    pub fn names(&self) -> Vec<&str> {
        self.archive.file_names().map(|name| name.strip_suffix(".npy").unwrap_or(name)).collect()
    }

    /// Returns true if the archive holds an array of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.archive.index_for_name(&format!("{name}.npy")).is_some()
    }

    /// Reads the header of the array `name`.
    ///
    /// # Errors
    /// The archive has no such array, or its header is damaged.
    pub fn header(&mut self, name: &str) -> Result<Header> {
        self.with(name, |header, _, _| Ok(header))
    }

    /// Reads the array `name`, converted to `T`.
    ///
    /// # Errors
    /// The archive has no such array, the array is damaged, or a value does not fit `T`.
    pub fn read_as<T: Element>(&mut self, name: &str) -> Result<Array<T>> {
        self.with(name, |header, member, at| {
            let mut data = at.locate(memory::reserve(header.len()))?;
            let width = header.dtype.size.max(1);
            let mut piece = vec![0; ((CHUNK_LEN / width).max(1) * width).min(header.bytes())];
            let mut left = header.bytes();
            while left > 0 {
                let part = left.min(piece.len());
                fill(member, &mut piece[..part], at)?;
                convert(&piece[..part], header.dtype, data.len(), &mut data).map_err(|e| at.error(e))?;
                left -= part;
            }
            end(member, at)?;
            Ok(Array { data: c_order(data, &header.shape, header.fortran_order, at)?, shape: header.shape })
        })
    }

    /// Reads the array `name` in chunks, converted to `T`, in file order.
    ///
    /// # Errors
    /// The archive has no such array, or its header is damaged.
    pub(crate) fn pieces<T: Element>(&mut self, name: &str) -> Result<Pieces<'_, T>> {
        let (header, member, at) = self.find(name)?;
        Ok(Pieces::new(member, header, 0, at))
    }

    /// Passes whole rows (entries of the first axis) of the array `name` to `each` in order, in
    /// batches, converted to `T`. (A matrix in Fortran order is transposed in memory.)
    ///
    /// # Errors
    /// The archive has no such array, the array is damaged, a value does not fit `T`, or `each`
    /// fails.
    pub(crate) fn for_each_rows<T: Element>(
        &mut self,
        name: &str,
        mut each: impl FnMut(&[T]) -> Result<()>,
    ) -> Result<()> {
        let header = self.header(name)?;
        if header.fortran_order && header.shape.len() > 1 {
            return each(&self.read_as(name)?.data);
        }
        self.pieces(name)?.rows(each)
    }

    /// Reads the text of the single-valued array `name` (`|S` or `<U`).
    ///
    /// # Errors
    /// The archive has no such array, or it is damaged, not a single value, or longer than 4 KiB.
    pub fn text(&mut self, name: &str) -> Result<String> {
        self.with(name, |header, member, at| {
            if header.len() != 1 || header.bytes() > 4096 {
                return Err(at.error(format!("one short text expected, shape {:?} found", header.shape)));
            }
            let mut raw = vec![0; header.bytes()];
            fill(member, &mut raw, at)?;
            end(member, at)?;
            let text = match header.dtype.kind {
                Kind::Bytes => String::from_utf8(raw).ok(),
                Kind::Unicode => raw
                    .chunks_exact(4)
                    .map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]]))
                    .map(|c| char::from_u32(if header.dtype.big_endian { c.swap_bytes() } else { c }))
                    .collect(),
                _ => None,
            };
            let text = text.ok_or_else(|| at.error(format!("text expected, {} found", header.dtype)))?;
            Ok(text.trim_end_matches('\0').to_string())
        })
    }

    /// Finds a member and passes it to `read`, positioned behind its header.
    fn with<R>(
        &mut self,
        name: &str,
        read: impl FnOnce(Header, &mut Member, &Location) -> Result<R>,
    ) -> Result<R> {
        let (header, mut member, at) = self.find(name)?;
        read(header, &mut member, &at)
    }

    /// Finds a member, reads and checks its header, and returns it positioned behind the header.
    fn find(&mut self, name: &str) -> Result<(Header, Member<'_>, Location<'_>)> {
        let file_name = format!("{name}.npy");
        let at = Location::new(&self.path, format!("member {file_name}"));
        if self.archive.index_for_name(&file_name).is_none() {
            let known: Vec<&str> = self.archive.file_names().collect();
            return Err(at.error(format!("no such member; the archive holds: {}", known.join(", "))));
        }
        let mut member = self.archive.by_name(&file_name).map_err(|e| at.error(e.to_string()))?;
        let most = match member.compression() {
            CompressionMethod::Stored => member.compressed_size(),
            _ => member.compressed_size().saturating_mul(MAX_EXPANSION).saturating_add(MAX_EXPANSION),
        };
        if member.size() > most {
            let (size, packed) = (member.size(), member.compressed_size());
            return Err(at.error(format!("it claims {size} bytes, more than {packed} packed bytes can hold")));
        }
        let (header, length) = Header::read(&mut member, &at)?;
        let expected = length as u64 + header.bytes() as u64;
        if member.size() != expected {
            return Err(at.error(format!(
                "shape {:?} of {} takes {expected} bytes, the member has {}",
                header.shape,
                header.dtype,
                member.size()
            )));
        }
        Ok((header, member, at))
    }
}

fn fill(member: &mut Member, buffer: &mut [u8], at: &Location) -> Result<()> {
    member.read_exact(buffer).map_err(|e| at.error(format!("the data cannot be unpacked: {e}")))
}

/// Reads past the last byte, which makes the decoder verify the checksum.
fn end(member: &mut Member, at: &Location) -> Result<()> {
    match member.read(&mut [0]) {
        Ok(0) => Ok(()),
        Ok(_) => Err(at.error("there is data after the array")),
        Err(e) => Err(at.error(format!("the data is damaged: {e}"))),
    }
}

/// Test archives of members `(name, shape, data)`.
#[cfg(test)]
pub(crate) mod testing {
    use std::io::{Cursor, Write};

    use zip::{ZipWriter, write::SimpleFileOptions};

    use super::*;
    use crate::npy::Dtype;

    /// Name and bytes of one member.
    pub(crate) fn member<T: Element>(name: &str, shape: &[usize], data: &[T]) -> (String, Vec<u8>) {
        member_of(name, &T::DTYPE.to_string(), shape, bytemuck::cast_slice(data))
    }

    /// Name and bytes of one member of any type.
    pub(crate) fn member_of(name: &str, dtype: &str, shape: &[usize], data: &[u8]) -> (String, Vec<u8>) {
        let header =
            Header { dtype: Dtype::parse(dtype).unwrap(), shape: shape.to_vec(), fortran_order: false };
        (format!("{name}.npy"), [header.to_bytes(), data.to_vec()].concat())
    }

    /// Bytes of an archive.
    pub(crate) fn archive(members: &[(String, Vec<u8>)], deflate: bool) -> Vec<u8> {
        let method = if deflate { CompressionMethod::Deflated } else { CompressionMethod::Stored };
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, bytes) in members {
            zip.start_file(name, SimpleFileOptions::default().compression_method(method)).unwrap();
            zip.write_all(bytes).unwrap();
        }
        zip.finish().unwrap().into_inner()
    }
}

#[cfg(test)]
mod tests {
    use super::{testing::*, *};

    fn open(bytes: &[u8]) -> (tempfile::TempDir, Result<Npz>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npz");
        std::fs::write(&path, bytes).unwrap();
        let npz = Npz::open(&path);
        (dir, npz)
    }

    fn members() -> Vec<(String, Vec<u8>)> {
        let many: Vec<i32> = (0..400_000).collect();
        vec![
            member("small", &[2, 2], &[1i64, 2, 3, 4]),
            member("many", &[many.len()], &many),
            member_of("format", "|S3", &[], b"csr"),
            member_of("wide", "<U3", &[], b"c\0\0\0s\0\0\0r\0\0\0"),
        ]
    }

    #[test]
    fn stored_and_deflated_members_are_read() {
        for deflate in [false, true] {
            let (_dir, npz) = open(&archive(&members(), deflate));
            let mut npz = npz.unwrap();
            assert_eq!(npz.names(), ["small", "many", "format", "wide"]);
            assert_eq!(npz.header("many").unwrap().shape, [400_000]);
            assert_eq!(
                npz.read_as::<u32>("small").unwrap(),
                Array { shape: vec![2, 2], data: vec![1, 2, 3, 4] }
            );
            let many = npz.read_as::<u32>("many").unwrap();
            assert!(many.data.iter().copied().eq(0..400_000));
            let mut rows = Vec::new();
            npz.for_each_rows::<u64>("many", |piece| {
                rows.extend_from_slice(piece);
                Ok(())
            })
            .unwrap();
            assert!(rows.into_iter().eq(0..400_000));
            let mut pieces = npz.pieces::<i64>("small").unwrap();
            pieces.skip(1).unwrap();
            assert_eq!(pieces.next(2).unwrap(), [2, 3]);
            drop(pieces);
            assert!(npz.pieces::<i64>("absent").is_err());
            assert_eq!(npz.text("format").unwrap(), "csr");
            assert_eq!(npz.text("wide").unwrap(), "csr");
            assert!(npz.text("small").is_err());
            assert!(npz.read_as::<f32>("format").is_err());
            let error = npz.read_as::<f32>("absent").unwrap_err().to_string();
            assert!(error.contains("member absent.npy") && error.contains("small.npy"), "{error}");
        }
    }

    #[test]
    fn declared_sizes_are_verified_before_allocation() {
        // 2^40 floats in a member of a few bytes, declared by the header and by the archive's
        // directory.
        let (_dir, npz) = open(&archive(&[member_of("a", "<f4", &[1 << 40], b"")], false));
        assert!(npz.unwrap().read_as::<f32>("a").unwrap_err().to_string().contains("takes 43980"));
        let mut bytes = archive(&[member("a", &[4], &[1u8, 2, 3, 4])], false);
        let size = (132u32).to_le_bytes();
        let places: Vec<usize> = (0..bytes.len() - 8)
            .filter(|&i| bytes[i..i + 4] == size && bytes[i + 4..i + 8] == size)
            .collect();
        assert_eq!(places.len(), 2, "the local header and the directory");
        for i in places {
            bytes[i + 4..i + 8].copy_from_slice(&(u32::MAX - 9).to_le_bytes());
        }
        let (_dir, npz) = open(&bytes);
        assert!(npz.and_then(|mut npz| npz.read_as::<u8>("a")).is_err());
    }

    #[test]
    fn damaged_archives_fail_or_read_identically() {
        for deflate in [false, true] {
            let good = archive(
                &[member("a", &[3], &[1i32, 2, 3]), member_of("format", "|S3", &[], b"csr")],
                deflate,
            );
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("a.npz");
            let read = |bytes: &[u8]| {
                std::fs::write(&path, bytes).unwrap();
                Npz::open(&path)
                    .and_then(|mut npz| npz.read_as::<i32>("a").and_then(|a| npz.text("format").map(|_| a)))
            };
            assert!(read(&good).is_ok());
            for length in (0..good.len()).step_by(3) {
                assert!(read(&good[..length]).is_err(), "truncated to {length}");
            }
            for bit in (0..good.len() * 8).step_by(11) {
                let mut bad = good.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                if let Ok(array) = read(&bad) {
                    assert_eq!(array.data, [1, 2, 3], "the checksum lets nothing else pass");
                }
            }
        }
    }
}
