//! Invalid files for the tests, and small valid ones to start from.

use std::{
    fs,
    io::{Cursor, Write},
    path::Path,
};

use graphmill_data::{
    checksum::checksum,
    npy::{self, Element},
};
use serde_json::{Value, json};
use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

use crate::common::Sandbox;

/// Changes a file of a dataset and its manifest, and updates the checksums, as a faulty writer of
/// the format would.
pub(crate) fn forge(
    dir: &Path,
    file: &str,
    change: impl FnOnce(&mut Vec<u8>),
    describe: impl FnOnce(&mut Value),
) {
    let path = dir.join(file);
    let mut bytes = fs::read(&path).unwrap();
    change(&mut bytes);
    fs::write(&path, &bytes).unwrap();
    let manifest = dir.join("graphmill.json");
    let mut described: Value = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
    described["files"][file]["checksum"] = json!(checksum(&bytes));
    described["files"][file]["bytes"] = json!(bytes.len());
    describe(&mut described);
    described["checksum"] = json!("0".repeat(32));
    let text = format!("{}\n", serde_json::to_string_pretty(&described).unwrap());
    let (before, after) = text.rsplit_once(&"0".repeat(32)).unwrap();
    fs::write(&manifest, format!("{before}{}{after}", checksum(text.as_bytes()))).unwrap();
}

/// Overwrites the last four bytes.
pub(crate) fn last(value: [u8; 4]) -> impl Fn(&mut Vec<u8>) {
    move |bytes| {
        let end = bytes.len() - 4;
        bytes[end..].copy_from_slice(&value);
    }
}

/// Replaces the shape in the header of a `.npy` file by a longer one, which uses up the padding.
pub(crate) fn declare(bytes: &mut Vec<u8>, old: &str, new: &str) {
    let at = bytes.windows(old.len()).position(|text| text == old.as_bytes()).expect("the old shape");
    bytes.splice(at..at + old.len(), new.bytes());
    let newline = bytes.iter().position(|&b| b == b'\n').unwrap();
    bytes.drain(newline - (new.len() - old.len())..newline);
}

/// Writes three nodes as an edge list with features, labels and a split.
pub(crate) fn edge_list(sandbox: &Sandbox) {
    sandbox.write("edges/edges.csv", "0,1\n1,2\n2,0\n");
    sandbox.write("edges/features.csv", "1,0\n0,1\n1,1\n");
    sandbox.write("edges/labels.csv", "0\n1\n1\n");
    sandbox.write("edges/train.txt", "0\n");
    sandbox.write("edges/valid.txt", "1\n");
    sandbox.write("edges/test.txt", "2\n");
}

/// An array as a member of a `.npz` archive.
pub(crate) fn member<T: Element>(
    sandbox: &Sandbox,
    name: &str,
    shape: &[usize],
    data: &[T],
) -> (String, Vec<u8>) {
    npy::write(sandbox.path("member.npy"), data, shape).unwrap();
    (format!("{name}.npy"), sandbox.read("member.npy"))
}

/// A `.npz` archive of the members.
pub(crate) fn archive(members: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in members {
        let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
        zip.start_file(name, stored).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// A cycle of three nodes as the arrays of a CSR matrix, their names prefixed.
pub(crate) fn cycle(
    sandbox: &Sandbox,
    prefix: &str,
    indices: [i32; 3],
    indptr: [i32; 4],
    shape: [i64; 2],
) -> Vec<(String, Vec<u8>)> {
    let name = |part: &str| format!("{prefix}{part}");
    vec![
        member(sandbox, &name("data"), &[3], &[1f32, 1.0, 1.0]),
        member(sandbox, &name("indices"), &[3], &indices),
        member(sandbox, &name("indptr"), &[4], &indptr),
        member(sandbox, &name("shape"), &[2], &shape),
    ]
}
