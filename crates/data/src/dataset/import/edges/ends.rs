//! Ends of the edges, from text or an array, in chunks.

mod array;
mod id;
mod lines;

use std::path::Path;

use array::read_array;
use graphmill_core::{Result, location::Location, progress::Unit};
use id::Id;
use lines::{Parsed, before_data, plain, plain_weighted};
use rayon::prelude::*;

use super::{
    chunks::{self, Chunks},
    files::is_npy,
    weights::Weights,
};
use crate::{
    external::{Needs, Scratch},
    npy,
};

/// Consumer of the ends of a batch of edges, with their weights in a weighted import (otherwise
/// empty).
pub(in super::super) type Sink<'a, T> = dyn FnMut(&[T], &[T], &[f32]) -> Result<()> + 'a;

/// Passes the ends of every edge to `sink`, as written and in order, in batches, with weights from
/// `weights`; if `nodes` is given, all ends must be below it.
///
/// # Errors
/// A line is not an edge or has no weight, reported with its number, or `sink` fails.
pub(in super::super) fn read<T: Id>(
    path: &Path,
    nodes: Option<usize>,
    weights: &Weights,
    scratch: &Scratch,
    sink: &mut Sink<'_, T>,
) -> Result<()> {
    // Wider than an id: without a known limit, 2^64 - 1 is also an id.
    let limit = nodes.map_or(1 << 64, |nodes| nodes as u128);
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if is_npy(path) {
        return read_array(path, limit, weights, &name, scratch, sink);
    }
    let column = if let Weights::Column(column) = weights { Some(*column) } else { None };
    let mut chunks = Chunks::open(path)?;
    let (size, _) = chunks.progress();
    scratch.stage(&format!("reading {name}"), Some(size), Unit::Bytes);
    let failed = |lines: u64, e: std::io::Error| {
        Location::new(path, format!("line {}", lines + 1)).error(format!("cannot be read: {e}"))
    };
    let mut lines = 0;
    let mut first = true;
    loop {
        // As many chunks as threads are parsed in parallel.
        let mut group = Vec::new();
        while group.len() < rayon::current_num_threads() {
            match chunks.next() {
                Ok(Some(chunk)) => group.push(chunk),
                Ok(None) => break,
                Err(e) => return Err(failed(lines, e)),
            }
        }
        if group.is_empty() {
            return Ok(());
        }
        let mut start = 0;
        if first {
            start = before_data(&group[0]);
            first = group[0].len() == start;
        }
        let parsed: Vec<Parsed<T>> = group
            .par_iter()
            .enumerate()
            .map(|(i, chunk)| {
                let start = if i == 0 { start } else { 0 };
                match column {
                    None => Parsed::new(chunk, start, limit, None, plain),
                    Some(column) => {
                        Parsed::new(chunk, start, limit, column.into(), |bytes| plain_weighted(bytes, column))
                    }
                }
            })
            .collect();
        for parsed in parsed {
            sink(&parsed.from, &parsed.to, &parsed.weight)?;
            if let Some(message) = parsed.fault {
                let line = lines + parsed.lines;
                return Err(Location::new(path, format!("line {line}")).error(message));
            }
            lines += parsed.lines;
        }
        scratch.done(chunks.progress().1);
    }
}

/// Reads the first chunk of a text file and estimates the size of the whole.
pub(in super::super) fn estimate(path: &Path) -> Result<Needs> {
    if is_npy(path) {
        let edges = (npy::open(path)?.len() / 2) as u64;
        return Ok(Needs { edges, ..Needs::default() });
    }
    let (text, whole) = chunks::peek(path)?;
    let lines = text.iter().filter(|&&b| b == b'\n').count() as u64 + 1;
    let edges = (whole as f64 / text.len().max(1) as f64 * lines as f64) as u64;
    Ok(Needs { edges, estimated: true, ..Needs::default() })
}

#[cfg(test)]
mod tests;
