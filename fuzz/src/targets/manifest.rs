//! Text of `graphmill.json`. A checksum of 32 zeros is filled in first, because otherwise the
//! parser would stop there.

use graphmill_data::{checksum::checksum, dataset::import::fuzz};
use serde_json::{Map, Value, json};

use super::Answer;
use crate::{alloc::limited, input::Input};

/// Placeholder of a checksum to be filled in.
pub const UNSIGNED: &str = "00000000000000000000000000000000";

pub(super) const TOKENS: &[&[u8]] = &[
    b"\"format\": \"graphmill-dataset\"",
    b"\"version\": 1",
    b"\"version\": 2",
    b"\"name\": ",
    b"\"nodes\": ",
    b"\"edges\": ",
    b"\"feature_dim\": ",
    b"\"classes\": ",
    b"\"multilabel\": true",
    b"\"metric\": \"accuracy\"",
    b"\"files\": {}",
    b"\"indptr.npy\": {}",
    b"\"dtype\": \"<u8\"",
    b"\"shape\": [3]",
    b"\"bytes\": ",
    b"\"checksum\": \"00000000000000000000000000000000\"",
    b"18446744073709551615",
    b"1e999",
    b"null",
    b"\\ud800",
    crate::input::FILE,
];

/// One input: the text.
pub fn run(data: &[u8]) -> Answer {
    let text = std::str::from_utf8(data)?;
    let signed = sign(text);
    Ok(limited(text.len(), || fuzz::manifest(&signed))?)
}

/// Fills in the checksum of the whole text for its last [`UNSIGNED`].
pub(super) fn sign(text: &str) -> String {
    match text.rfind(UNSIGNED) {
        Some(at) => {
            [&text[..at], &checksum(text.as_bytes()), &text[at + UNSIGNED.len()..]].concat()
        }
        None => text.to_string(),
    }
}

/// Enters the sizes and checksums of the files that the manifest `name` lists, by their paths
/// beside it, then what `change` adds, and its own checksum, which is returned. Without a manifest
/// that is a JSON object nothing changes.
pub(super) fn sign_files(
    input: &mut Input,
    name: &str,
    change: impl FnOnce(&mut Map<String, Value>),
) -> Option<String> {
    let Ok(Value::Object(mut manifest)) = serde_json::from_slice(input.file(name)?) else { return None };
    let directory = name.rfind('/').map_or("", |end| &name[..=end]);
    for list in ["files", "documents"] {
        let Some(Value::Object(files)) = manifest.get_mut(list) else { continue };
        for (file, entry) in files {
            let bytes = input.file(&format!("{directory}{file}"));
            if let (Some(bytes), Value::Object(entry)) = (bytes, entry) {
                entry.insert("bytes".into(), json!(bytes.len()));
                entry.insert("checksum".into(), json!(checksum(bytes)));
            }
        }
    }
    change(&mut manifest);
    manifest.remove("checksum");
    manifest.insert("checksum".into(), json!(UNSIGNED)); // the last: there is none like it behind
    let unsigned = Value::Object(manifest).to_string();
    let bytes = input.files.iter_mut().find(|(there, _)| *there == name).map(|(_, bytes)| bytes)?;
    *bytes = sign(&unsigned).into_bytes().into();
    Some(checksum(unsigned.as_bytes()))
}
