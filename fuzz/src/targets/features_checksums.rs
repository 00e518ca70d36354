//! Checksums of the chunks of a feature file, `features_checksums.npy`, beside features of two
//! chunks.

use std::{cell::RefCell, fs, path::Path};

use graphmill_core::{EdgeOptions, Features, Labels, build};
use graphmill_data::{Dataset, typed::Verify};

use super::Answer;
use crate::{alloc::limited, scratch::with_files};

pub(super) use super::ARRAY_TOKENS as TOKENS;

/// Name of the file.
pub const FILE: &str = "features_checksums.npy";
/// Bytes of a chunk.
const CHUNK: usize = 1 << 20;

/// Names and bytes of files.
type Files = Vec<(String, Vec<u8>)>;

thread_local! {
    /// Files of the dataset.
    static DATASET: RefCell<Files> = const { RefCell::new(Vec::new()) };
}

/// One input: the bytes of the file.
pub fn run(data: &[u8]) -> Answer {
    DATASET.with_borrow_mut(|files| {
        if files.is_empty() {
            *files = made()?;
        }
        let others = files.iter().filter(|(name, _)| name != FILE);
        let others = others.map(|(name, bytes)| (&name[..], &bytes[..]));
        let files: Vec<(&str, &[u8])> = others.chain([(FILE, data)]).collect();
        with_files("features_checksums", &files, |dir| {
            let dataset = limited(data.len(), || Dataset::open_with(dir, Verify::FirstRead))?;
            assert!(dataset.features.verify().is_ok(), "accepted checksums are those of the features");
            Ok(())
        })
    })
}

/// Files of a dataset of two nodes whose features have two chunks.
fn made() -> Result<Files, Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let place = dir.path().join("dataset");
    write(&place)?;
    let entries = fs::read_dir(&place)?.collect::<Result<Vec<_>, _>>()?;
    let files = entries.iter().map(|entry| {
        Ok((entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path())?))
    });
    files.collect()
}

/// Writes the dataset to the missing directory `dir`.
///
/// # Errors
/// The directory cannot be written.
pub fn write(dir: &Path) -> graphmill_core::Result<()> {
    let values = CHUNK / size_of::<f32>() + 2;
    let data = Dataset {
        name: "chunks".into(),
        graph: build(2, &[0], &[1], EdgeOptions::DIRECTED)?,
        features: Features::f32(values / 2, (0..values).map(|i| (i % 97) as f32 + 1.0).collect::<Vec<_>>()),
        labels: Labels::Single { class: vec![0, 0].into(), classes: 1 },
        ..Dataset::default()
    };
    data.save(dir)
}
