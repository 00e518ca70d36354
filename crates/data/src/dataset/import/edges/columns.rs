//! Features and labels, from text or arrays, one row per node.

use std::path::Path;

use graphmill_core::{Features, Labels, Result, location::Location, progress::Unit};

use super::{
    super::{
        feature_rows,
        label_rows::{self, LabelRows},
    },
    files::is_npy,
    text::{finite, for_each_batch},
};
use crate::{
    external::{Rows, Scratch},
    npy,
};

/// Reads the features and the number of rows.
pub(super) fn read_features(path: &Path, scratch: &Scratch) -> Result<(Features, usize)> {
    if is_npy(path) {
        let array = npy::open(path)?;
        let rows = array.shape.first().copied().unwrap_or(0);
        return Ok((feature_rows::from_npy(&array, rows, scratch)?, rows));
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    scratch.stage(&format!("features of {name}"), None, Unit::Rows);
    let mut rows: Option<Rows<f32>> = None;
    let mut count = 0;
    for_each_batch(path, "a finite number", finite, |columns, batch| {
        let rows = match &mut rows {
            Some(rows) => rows,
            none => none.insert(scratch.rows("features", columns)?),
        };
        count += batch.len() / columns;
        scratch.done(count as u64);
        rows.extend(batch)
    })?;
    let Some(rows) = rows else { return Ok(Default::default()) };
    Ok((Features::f32(rows.columns(), rows.finish()?), count))
}

/// Reads the labels and the number of rows.
pub(super) fn read_labels(path: &Path) -> Result<(Labels, usize)> {
    let at = Location::new(path, "labels");
    if is_npy(path) {
        let array = npy::open(path)?;
        let rows = array.shape.first().copied().unwrap_or(0);
        return Ok((label_rows::from_npy(&array, rows)?, rows));
    }
    let mut rows = LabelRows::new(usize::MAX, at);
    for_each_batch(path, label_rows::EXPECTED, label_rows::parse, |columns, batch| {
        rows.extend(columns, batch)
    })?;
    rows.finish_any()
}
