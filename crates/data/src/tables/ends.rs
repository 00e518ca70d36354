//! Ends of edges as ids of nodes.

use graphmill_core::{Buffer, NodeId, Result};

use super::{
    faults::Faults,
    keys::{Ends, KeyColumns, NONE, NodeKeys, Unknown},
    source::Table,
};
use crate::{
    external::{Rows, Scratch},
    npy::Element,
};

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
    let mut key = String::new();
    table.scan(&vec![true; table.columns.len()], faults, |batch, _| {
        for row in 0..batch.rows {
            let number = batch.first + row as u64;
            let mut is_missing = false;
            for (end, column) in at.iter().zip(&mut columns) {
                match end {
                    End::Row => {
                        let id = source.rows.id(number).unwrap_or(NONE);
                        own.as_mut().map_or(Ok(()), |own| own.extend(&[id]))?;
                    }
                    End::Key(columns) => {
                        let is_there = columns.read(batch, row, &mut key);
                        is_missing |= !is_there;
                        column.push(number, is_there.then_some(&key))?;
                    }
                }
            }
            if is_missing {
                missing += 1;
                if examples.len() < 5 {
                    examples.push(format!("{}: {}", table.file(batch), batch.places.of(row)));
                }
            }
        }
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

/// Files and positions of rows of a table, which ascend.
pub(super) fn places(table: &Table, rows: &[u64]) -> Result<Vec<String>> {
    let mut places = Vec::new();
    let mut faults = Faults::default();
    table.scan(&table.only([]), &mut faults, |batch, _| {
        let end = batch.first + batch.rows as u64;
        while let Some(&row) = rows.get(places.len()).filter(|&&row| row < end) {
            places.push(batch.places.of((row - batch.first) as usize));
        }
        Ok(())
    })?;
    Ok(places)
}
