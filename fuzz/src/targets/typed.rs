//! Dataset directory of format 2. The sizes and checksums in the manifest are corrected to match
//! the files, and its own checksum too, unless an option is `raw`.

use graphmill_data::{
    Dataset,
    typed::{self, Verify},
};

use super::{Answer, manifest::sign_files};
use crate::{alloc::limited, input::Input, scratch::with_files};

pub(super) use super::ARRAY_TOKENS as TOKENS;

const MANIFEST: &str = "graphmill.json";

/// Files of the directory.
pub(super) const NAMES: &[&str] = &[
    MANIFEST,
    "preprocessing.json",
    "nodes/a/features.npy",
    "nodes/a/feature_mean.npy",
    "nodes/a/feature_deviation.npy",
    "nodes/a/keys_offsets.npy",
    "nodes/a/keys_bytes.npy",
    "nodes/a/original_ids.npy",
    "nodes/b/features_indptr.npy",
    "nodes/b/features_indices.npy",
    "nodes/b/features_values.npy",
    "nodes/b/keys.npy",
    "nodes/b/time.npy",
    "edges/a__to__b/indptr.npy",
    "edges/a__to__b/indices.npy",
    "edges/a__to__b/weights.npy",
    "edges/a__to__b/time.npy",
    "edges/a__to__b/features.npy",
    "edges/b__from__a/indptr.npy",
    "edges/b__from__a/indices.npy",
    "edges/a__e__a/indptr.npy",
    "edges/a__e__a/indices.npy",
    "tasks/t/seeds.npy",
    "tasks/t/time.npy",
    "tasks/t/targets.npy",
    "tasks/t/train.npy",
    "tasks/t/valid.npy",
    "tasks/t/test.npy",
    "tasks/t/train_negatives.npy",
    "tasks/t/valid_negative_destinations.npy",
    "tasks/t/test_negative_sources.npy",
    "tasks/lists/seeds.npy",
    "tasks/lists/train.npy",
    "tasks/lists/valid.npy",
    "tasks/lists/test.npy",
    "tasks/lists/valid_negative_lists.npy",
    "tasks/lists/valid_negative_starts.npy",
];

/// One input: options, and files of the directory.
pub fn run(data: &[u8]) -> Answer {
    let mut input = Input::read(data, NAMES);
    if !input.has("raw") {
        sign_files(&mut input, MANIFEST, |_| ());
    }
    with_files("typed", &input.files, |dir| {
        let dataset = limited(input.unpacked, || typed::open(dir, Verify::All))?;
        assert!(dataset.validate().is_ok(), "an opened dataset is sound");
        let _ = typed::info(&dataset).to_string();
        let again = typed::open(dir, Verify::Once)?;
        assert!(again.validate().is_ok(), "a verified dataset is sound");
        assert_eq!(Dataset::open(dir).is_ok(), again.is_one_type());
        Ok(())
    })
}
