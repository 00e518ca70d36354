//! Dataset directory. The sizes and checksums in the manifest are corrected to match the files, and
//! its own checksum too, unless an option is `raw`.

use graphmill_data::{Dataset, checksum::checksum};
use serde_json::{Value, json};

use super::{
    Answer,
    manifest::{self, UNSIGNED},
};
use crate::{alloc::limited, input::Input, scratch::with_files};

pub(super) use super::ARRAY_TOKENS as TOKENS;

const NAMES: &[&str] = &[
    MANIFEST,
    "indptr.npy",
    "indices.npy",
    "edge_weight.npy",
    "features.npy",
    "features_indptr.npy",
    "features_indices.npy",
    "features_values.npy",
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
        sign(&mut input);
    }
    with_files("native", &input.files, |dir| {
        let dataset = limited(input.unpacked, || Dataset::open(dir))?;
        assert!(dataset.validate().is_ok(), "an opened dataset is sound");
        Ok(())
    })
}

fn sign(input: &mut Input) {
    let parsed = input.file(MANIFEST).and_then(|text| serde_json::from_slice::<Value>(text).ok());
    let Some(Value::Object(mut manifest)) = parsed else { return };
    if let Some(Value::Object(files)) = manifest.get_mut("files") {
        for (name, entry) in files {
            if let (Some(bytes), Value::Object(entry)) = (input.file(name), entry) {
                entry.insert("bytes".into(), json!(bytes.len()));
                entry.insert("checksum".into(), json!(checksum(bytes)));
            }
        }
    }
    manifest.remove("checksum");
    manifest.insert("checksum".into(), json!(UNSIGNED)); // the last: there is none like it behind
    let signed = manifest::sign(&Value::Object(manifest).to_string());
    if let Some((_, bytes)) = input.files.iter_mut().find(|(name, _)| *name == MANIFEST) {
        *bytes = signed.into_bytes().into();
    }
}
