//! Dataset directory. The sizes and checksums in the manifest are corrected to match the files, and
//! its own checksum too, unless an option is `raw`.

use graphmill_data::Dataset;

use super::{Answer, manifest::sign_files};
use crate::{alloc::limited, input::Input, scratch::with_files};

pub(super) use super::ARRAY_TOKENS as TOKENS;

/// Files of the directory.
pub(super) const NAMES: &[&str] = &[
    MANIFEST,
    "indptr.npy",
    "indices.npy",
    "edge_weight.npy",
    "features.npy",
    "features_indptr.npy",
    "features_indices.npy",
    "features_values.npy",
    "feature_mean.npy",
    "feature_deviation.npy",
    "labels.npy",
    "train.npy",
    "valid.npy",
    "test.npy",
];

const MANIFEST: &str = "graphmill.json";

/// One input: options, and files of the directory.
pub fn run(data: &[u8]) -> Answer {
    let mut input = Input::read(data, NAMES);
    if !input.has("raw") {
        sign_files(&mut input, MANIFEST, |_| ());
    }
    with_files("native", &input.files, |dir| {
        let dataset = limited(input.unpacked, || Dataset::open(dir))?;
        assert!(dataset.validate().is_ok(), "an opened dataset is sound");
        Ok(())
    })
}
