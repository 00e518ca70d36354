//! Ends of edges as ids of nodes.

use graphmill_core::{Buffer, NodeId, Result};

use super::{
    column::Batch,
    faults::Faults,
    keys::{Ends, KeyColumns, NONE, NodeKeys, Unknown},
    source::Table,
};
use crate::{
    external::{Rows, Scratch},
    npy::Element,
};

/// Number of rows without a key that are kept as examples.
const EXAMPLES: usize = 5;

/// End of an edge.
#[derive(Clone, Debug)]
pub(super) enum End {
    /// Node of the row itself: an edge of a foreign key.
    Row,
    /// Node with this key.
    Key(KeyColumns),
}

/// Ends of all rows of a table.
pub(super) struct EndIds {
    /// Ids of the sources and the destinations, [`NONE`] if there is no node.
    pub(super) ids: [Buffer<NodeId>; 2],
    /// Keys of each end that no node has.
    pub(super) unknown: [Unknown; 2],
    /// Number of rows.
    pub(super) rows: u64,
    /// Number of rows without a key.
    pub(super) missing: u64,
    /// Positions of the first of them.
    pub(super) examples: Vec<String>,
}

/// Reads the ends `at` of all rows, by the keys of the source type and the destination type. The
/// keys that no node has are collected if `collect` is set; `name` is unique within the scratch.
pub(super) fn read(
    table: &Table,
    at: &[End; 2],
    keys: [&NodeKeys; 2],
    name: &str,
    collect: bool,
    faults: &mut Faults,
) -> Result<EndIds> {
    let [source, destination] = keys;
    let mut columns = [
        Ends::new(source, &format!("{name}-src"), collect)?,
        Ends::new(destination, &format!("{name}-dst"), collect)?,
    ];
    let mut own: Option<Rows<NodeId>> =
        matches!(at[0], End::Row).then(|| source.column(&format!("{name}-own"))).transpose()?;
    let (mut rows, mut missing, mut examples) = (0u64, 0u64, Vec::new());
    table.scan(&vec![true; table.columns.len()], faults, |batch, _| {
        if let Some(own) = &mut own {
            let ids = (0..batch.rows as u64).map(|row| source.rows.node(batch.first + row).unwrap_or(NONE));
            own.extend(&ids.collect::<Vec<_>>())?;
        }
        // Each end looks up its keys on its own.
        let [src, dst] = &mut columns;
        // a row of a node table that is no node, or changes none, has no edge
        let is_used =
            |row: usize| !matches!(at[0], End::Row) || source.rows.node(batch.first + row as u64).is_some();
        let (src, dst) =
            rayon::join(|| add(&at[0], src, batch, &is_used), || add(&at[1], dst, batch, &is_used));
        let (mut no_end, others) = (src?, dst?);
        no_end.extend(others);
        no_end.sort_unstable();
        no_end.dedup();
        missing += no_end.len() as u64;
        let places = no_end.iter().map(|&row| format!("{}: {}", table.file(batch), batch.places.of(row)));
        examples.extend(places.take(EXAMPLES.saturating_sub(examples.len())));
        rows += batch.rows as u64;
        Ok(())
    })?;
    let [src, dst] = columns;
    let (mut src, src_unknown) = src.finish(if own.is_some() { 0 } else { rows })?;
    if let Some(own) = own {
        src = own.finish()?;
    }
    let (dst, dst_unknown) = dst.finish(rows)?;
    Ok(EndIds { ids: [src, dst], unknown: [src_unknown, dst_unknown], rows, missing, examples })
}

/// Adds the ends of a batch to their column, and returns the used rows without a key.
fn add(
    end: &End,
    column: &mut Ends<'_>,
    batch: &Batch,
    is_used: &(impl Fn(usize) -> bool + Sync),
) -> Result<Vec<usize>> {
    let End::Key(columns) = end else { return Ok(Vec::new()) };
    let mut missing = Vec::new();
    let mut key = String::new();
    for row in 0..batch.rows {
        let is_used = is_used(row);
        let is_there = is_used && columns.read(batch, row, &mut key);
        if is_used && !is_there {
            missing.push(row);
        }
        column.push(batch.first + row as u64, is_there.then_some(&key))?;
    }
    Ok(missing)
}

/// Values of the kept rows.
pub(super) fn keep<T: Element>(
    scratch: &Scratch,
    name: &str,
    values: &[T],
    is_kept: impl Fn(u64) -> bool,
) -> Result<Buffer<T>> {
    let mut rows = scratch.column(name)?;
    for (chunk, values) in values.chunks(1 << 16).enumerate() {
        let first = (chunk << 16) as u64;
        let kept = values.iter().enumerate().filter(|(i, _)| is_kept(first + *i as u64));
        rows.extend(&kept.map(|(_, &value)| value).collect::<Vec<_>>())?;
    }
    rows.finish()
}

/// Positions of rows of a table, which ascend, with their files if there are several.
pub(super) fn places(table: &Table, rows: &[u64]) -> Result<Vec<String>> {
    let mut places = Vec::new();
    let mut faults = Faults::default();
    table.scan(&table.only([]), &mut faults, |batch, _| {
        let end = batch.first + batch.rows as u64;
        while let Some(&row) = rows.get(places.len()).filter(|&&row| row < end) {
            places.push(table.place(batch, (row - batch.first) as usize));
        }
        Ok(())
    })?;
    Ok(places)
}
