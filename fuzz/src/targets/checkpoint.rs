//! Checkpoint directory. The sizes and checksums of the files in `state.json` are corrected, and
//! its own checksum too, unless an option is `raw`.

use graphmill_engine::checkpoint::Checkpoint;
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64;

use super::Answer;
use crate::{alloc::limited, input::Input, scratch::with_files};

pub(super) const TOKENS: &[&[u8]] = &[
    crate::input::FILE,
    b"state.json\n",
    b"model.safetensors\n",
    b"best.safetensors\n",
    b"optimizer.safetensors\n",
    b"\"graphmill_checkpoint\": 2",
    b"\"xxh3\": \"0000000000000000\"",
    b"\"files\": {}",
    b"\"bytes\": 8",
    b"\"optimizer_steps\": ",
    b"\"state\": {}",
    b"\"dtype\":\"F32\"",
    b"\"shape\":[2,2]",
    b"\"data_offsets\":[0,16]",
    b"18446744073709551615",
];

const STATE: &str = "checkpoint/state.json";
const NAMES: &[&str] =
    &[STATE, "checkpoint/model.safetensors", "checkpoint/best.safetensors",
    "checkpoint/optimizer.safetensors"];

/// One input: options, and files of the directory.
pub fn run(data: &[u8]) -> Answer {
    let mut input = Input::read(data, NAMES);
    if !input.has("raw") {
        sign(&mut input);
    }
    with_files("checkpoint", &input.files, |dir| {
        let loaded = limited(input.unpacked, || Checkpoint::<Value>::load(&dir.join("checkpoint")))?;
        loaded.map(drop).ok_or_else(|| "there is none".into())
    })
}

fn checksum(bytes: &[u8]) -> String {
    format!("{:016x}", xxh3_64(bytes))
}

fn sign(input: &mut Input) {
    const UNSIGNED: &str = "0000000000000000";
    let parsed = input.file(STATE).and_then(|text| serde_json::from_slice::<Value>(text).ok());
    let Some(Value::Object(mut state)) = parsed else { return };
    if let Some(Value::Object(files)) = state.get_mut("files") {
        for (name, entry) in files {
            if let (Some(bytes), Value::Object(entry)) = (input.file(&format!("checkpoint/{name}")), entry) {
                entry.insert("bytes".into(), json!(bytes.len()));
                entry.insert("xxh3".into(), json!(checksum(bytes)));
            }
        }
    }
    // The reader takes the first "xxh3" of the text for the file's own, with a space before the
    // value.
    state.remove("xxh3");
    let rest = Value::Object(state).to_string();
    let text = format!("{{\"xxh3\": \"{UNSIGNED}\",{}", &rest[1..]);
    let signed = text.replacen(UNSIGNED, &checksum(text.as_bytes()), 1);
    if let Some((_, bytes)) = input.files.iter_mut().find(|(name, _)| *name == STATE) {
        *bytes = signed.into_bytes().into();
    }
}
