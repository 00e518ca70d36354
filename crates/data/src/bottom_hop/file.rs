//! Files of aggregates: a text header that says what they belong to, rows of values, and the
//! checksum of the rows.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::Path,
};

use graphmill_core::{Buffer, Error, Result, block::Aggregation, disk};
use half::f16;

use crate::{
    atomic,
    checksum::{Tree, checksum},
    npy::Element,
    verification::{Verify, verified},
};

/// Bytes of the header: a multiple of the values' alignment.
pub(crate) const HEAD: usize = 256;
/// Bytes of the trailer.
pub(super) const TAIL: usize = 32;
/// Aggregates that are computed before they are written, in bytes.
pub(crate) const CHUNK_BYTES: usize = 8 << 20;

/// Number type of feature values.
pub(crate) trait Value: Element + Send + Sync {
    const NAME: &'static str;
    fn widen(self) -> f64;
    fn round(value: f64) -> Self;
}

impl Value for f32 {
    const NAME: &'static str = "f32";

    fn widen(self) -> f64 {
        self.into()
    }

    fn round(value: f64) -> Self {
        value as Self
    }
}

impl Value for f16 {
    const NAME: &'static str = "f16";

    fn widen(self) -> f64 {
        self.into()
    }

    fn round(value: f64) -> Self {
        Self::from_f64(value)
    }
}

/// Word for an aggregation in names and headers.
pub(crate) fn word(aggregation: Aggregation) -> &'static str {
    match aggregation {
        Aggregation::Mean => "mean",
        Aggregation::Sum => "sum",
        Aggregation::Symmetric => "symmetric",
        Aggregation::Other => "other",
    }
}

/// Name of the file with the aggregates of that kind: of a whole dataset, or of a part.
pub(crate) fn file_name(aggregation: Aggregation, part: Option<u16>) -> String {
    format!("{}.bin", stem(aggregation, part))
}

fn stem(aggregation: Aggregation, part: Option<u16>) -> String {
    let word = word(aggregation);
    match part {
        None => format!("bottom_{word}"),
        Some(part) => format!("bottom_{word}_part-{part:04}"),
    }
}

/// Returns true if `name` is the name of such a file or of the record of its verification, finished
/// or temporary.
pub(crate) fn is_bottom_file(name: &str) -> bool {
    let is_temporary = |rest: &str| rest.ends_with(atomic::TEMPORARY_SUFFIX);
    [Aggregation::Mean, Aggregation::Sum, Aggregation::Symmetric].into_iter().any(|kind| {
        match name.strip_prefix('.') {
            Some(hidden) => behind_name(hidden, kind).is_some_and(is_temporary),
            None => behind_name(name, kind) == Some(""),
        }
    })
}

/// Characters of `name` behind the name of a finished file of that kind; `None` if it does not
/// begin with one.
fn behind_name(name: &str, aggregation: Aggregation) -> Option<&str> {
    let rest = name.strip_prefix("bottom_")?.strip_prefix(word(aggregation))?;
    let rest = match rest.strip_prefix("_part-") {
        Some(part) => {
            let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
            (rest.len() < part.len()).then_some(rest)?
        }
        None => rest,
    };
    rest.strip_prefix(".bin").or_else(|| rest.strip_prefix(".verified.json"))
}

/// Error of an aggregate that the number type cannot hold.
pub(crate) fn too_large<T: Value>(node: usize) -> io::Error {
    io::Error::other(format!(
        "the aggregate of node {node} exceeds the range of {}; store the features in f32, or normalize them",
        T::NAME
    ))
}

/// Checks that a file of this name with `values` bytes of values can be stored in `dir`, whose disk
/// must have free space for it, unless one of its length is there.
///
/// # Errors
/// The reason why not.
pub(crate) fn can_store(dir: &Path, name: &str, values: usize) -> std::result::Result<(), String> {
    let needed = (values + HEAD + TAIL) as u64;
    if dir.join(name).metadata().is_ok_and(|found| found.len() == needed) {
        return Ok(());
    }
    fits(needed, dir)?;
    let process = std::process::id();
    let probe = dir.join(format!(".{name}.probe-{process}{}", atomic::TEMPORARY_SUFFIX));
    let made = File::create_new(&probe).and_then(|_| fs::remove_file(&probe));
    made.map_err(|error| format!("the aggregates cannot be stored in {} ({error})", dir.display()))
}

/// Checks the free space on the disk of `dir`, if the system reports it.
pub(super) fn fits(needed: u64, dir: &Path) -> std::result::Result<(), String> {
    match disk::free(dir) {
        Ok(free) if free < needed => {
            let there = dir.display();
            Err(format!("the aggregates take {needed} bytes, but {there} has {free} bytes free"))
        }
        _ => Ok(()),
    }
}

/// A file of aggregates: its name, header, and number of values.
#[derive(PartialEq, Eq)]
pub(crate) struct AggregateFile {
    name: String,
    record: String,
    head: [u8; HEAD],
    values: usize,
}

impl AggregateFile {
    /// The file of `values` values of a whole dataset, or of a part, which belongs to what `about`
    /// describes in fewer than [`HEAD`] bytes.
    pub(crate) fn new(aggregation: Aggregation, part: Option<u16>, about: &str, values: usize) -> Self {
        let mut head = [b' '; HEAD];
        head[..about.len()].copy_from_slice(about.as_bytes());
        head[HEAD - 1] = b'\n';
        let record = format!("{}.verified.json", stem(aggregation, part));
        Self { name: file_name(aggregation, part), record, head, values }
    }

    /// Maps the values of the file in `dir` if it has this header, is complete and undamaged.
    pub(crate) fn map<T: Value>(&self, dir: &Path, verify: Verify) -> Option<Buffer<T>> {
        let Self { name, record, head, values: count } = self;
        let path = &dir.join(name);
        let mut file = File::open(path).ok()?;
        let bytes = count.checked_mul(size_of::<T>())?.checked_add(HEAD + TAIL)?;
        if file.metadata().ok()?.len() != bytes as u64 {
            return None;
        }
        let mut found = [0; HEAD];
        file.read_exact(&mut found).ok()?;
        if found != *head {
            return None;
        }
        let tail: Buffer<u8> = Buffer::map(&file, path, bytes - TAIL, TAIL).ok()?;
        let values: Buffer<T> = Buffer::map(&file, path, HEAD, *count).ok()?;
        let is_sound = || tail[..] == *checksum(bytemuck::cast_slice(&values)).as_bytes();
        let of = String::from_utf8_lossy(head);
        verified::once(dir, (name, record), of.trim_end(), verify, is_sound).then_some(values)
    }

    /// Writes the file in `dir`, whose values `fill` passes on in order, and maps it.
    ///
    /// # Errors
    /// Those of `fill`, or the file cannot be written.
    pub(crate) fn store<T: Value>(
        &self,
        dir: &Path,
        verify: Verify,
        fill: impl FnOnce(&mut dyn FnMut(&[T]) -> io::Result<()>) -> io::Result<()>,
    ) -> Result<Buffer<T>> {
        let path = dir.join(&self.name);
        atomic::write(&path, |file| self.write(file, fill))?;
        self.map(dir, verify).ok_or_else(|| {
            Error::format(&path, "aggregates", "it changed while it was written; run the command again")
        })
    }

    /// Writes header, values and trailer.
    fn write<T: Value>(
        &self,
        file: &mut dyn Write,
        fill: impl FnOnce(&mut dyn FnMut(&[T]) -> io::Result<()>) -> io::Result<()>,
    ) -> io::Result<()> {
        file.write_all(&self.head)?;
        let (mut tree, mut pending) = (Tree::default(), Vec::new());
        fill(&mut |part| {
            pending.extend_from_slice(bytemuck::cast_slice(part));
            let whole = pending.len() / Tree::CHUNK * Tree::CHUNK;
            pending[..whole].chunks(Tree::CHUNK).for_each(|chunk| tree.add(chunk));
            file.write_all(&pending[..whole])?;
            pending.drain(..whole);
            Ok(())
        })?;
        if !pending.is_empty() {
            tree.add(&pending);
            file.write_all(&pending)?;
        }
        file.write_all(tree.finish().as_bytes())
    }
}
