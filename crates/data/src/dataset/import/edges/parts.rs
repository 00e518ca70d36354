//! Split of an edge-list import: JSON lists, or a file per part.

use std::path::Path;

use graphmill_core::{Buffer, Error, NodeId, Result, Split, location::Location};
use serde::Deserialize;

use super::{
    super::{json, splits},
    files::{Files, is_npy},
    first_id::below,
    ids::Ids,
    text::{table, whole},
};
use crate::npy::{self, Kind};

/// Reads the splits in the files; empty without files. Ids begin at `first`.
pub(super) fn read(files: &Files, ids: &Ids, first: u64) -> Result<Vec<Split>> {
    if let Some(path) = &files.json {
        return read_json(path, ids, first);
    }
    if files.parts.iter().all(|path| path.is_none()) {
        return Ok(Vec::new());
    }
    let nth = |i: usize| match &files.parts[i] {
        Some(path) => read_part(path, ids, first),
        None => Ok(Buffer::default()),
    };
    Ok(vec![Split { train: nth(0)?, valid: nth(1)?, test: nth(2)? }])
}

/// Reads one part of the split: an id per line, an array of ids, or an array that is a mask.
fn read_part(path: &Path, ids: &Ids, first: u64) -> Result<Buffer<NodeId>> {
    let at = Location::new(path, "ids");
    if is_npy(path) {
        let array = npy::open(path)?;
        if array.shape.len() != 1 {
            return Err(at.error(format!("one axis expected, shape {:?} found", array.shape)));
        }
        if array.dtype.kind == Kind::Bool {
            return splits::from_mask(&array.read_as::<u8>()?, ids.len(), &at);
        }
        return part(array.read_as()?, ids, first, &at);
    }
    let table = table(path, "a node id (a whole number)", whole::<u64>)?;
    if table.columns != 1 {
        return Err(at.error(format!("one id per line expected, {} columns found", table.columns)));
    }
    part(table.data, ids, first, &at)
}

/// Converts the ids of one part to nodes.
fn part(mut list: Vec<u64>, ids: &Ids, first: u64, at: &Location) -> Result<Buffer<NodeId>> {
    below(&mut list, first, at)?;
    ids.part(list, at)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parts {
    train: Option<Vec<u64>>,
    #[serde(alias = "val")]
    valid: Option<Vec<u64>>,
    test: Option<Vec<u64>>,
}

fn read_json(path: &Path, ids: &Ids, first: u64) -> Result<Vec<Split>> {
    let text = std::fs::read(path).map_err(|e| Error::io(path, "read", e))?;
    let list = text.trim_ascii_start().first() == Some(&b'[');
    let parsed = if list {
        serde_json::from_slice::<Vec<Parts>>(&text)
    } else {
        serde_json::from_slice::<Parts>(&text).map(|parts| vec![parts])
    };
    let parsed = parsed.map_err(|e| json::error(path, &e))?;
    let split = |(k, parts): (usize, Parts)| {
        let named = |name: &str, list: Option<Vec<u64>>| match list {
            Some(list) => part(list, ids, first, &Location::new(path, format!("split {k}, '{name}'"))),
            None => Ok(Buffer::default()),
        };
        Ok(Split {
            train: named("train", parts.train)?,
            valid: named("valid", parts.valid)?,
            test: named("test", parts.test)?,
        })
    };
    parsed.into_iter().enumerate().map(split).collect()
}
