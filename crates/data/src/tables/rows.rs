//! Encoding of the rows of a table.

use graphmill_core::{Buffer, Error, NodeId, Result, memory};

use super::{
    column::{Batch, Cell},
    encoding::{EncodedColumn, Encoding},
    faults::Faults,
    parts::FeaturePart,
    plan::FeatureColumn,
    profile::parsed,
    rule::Scale,
    source::Table,
    stats::Stats,
};
use crate::{
    external::{Rows, Scratch},
    typed::{FeatureTable, TableData, Values},
};

/// Rows that are copied at a time.
const CHUNK_ROWS: usize = 1 << 12;

/// Fits the encodings of columns to the rows of which `is_used` returns true, or to all rows if
/// there is none.
pub(super) fn fit(
    table: &Table,
    columns: &[FeatureColumn],
    is_used: impl Fn(u64) -> bool,
    faults: &mut Faults,
) -> Result<Vec<EncodedColumn>> {
    let needs = |column: &FeatureColumn| {
        matches!(&column.planned, super::encoding::Planned::Number { scale: Scale::Quantile, .. })
    };
    let mut stats: Vec<Stats> = columns.iter().map(|column| Stats::new(needs(column))).collect();
    let wanted = table.only(columns.iter().map(|column| column.position));
    table.scan(&wanted, faults, |batch, _| {
        let mut list = Vec::new();
        for (column, stats) in columns.iter().zip(&mut stats) {
            let values = &batch.columns[column.position];
            for row in (0..batch.rows).filter(|&row| is_used(batch.first + row as u64)) {
                list.clear();
                stats.add(batch.first + row as u64, parsed(values.get(row), &mut list));
            }
        }
        Ok(())
    })?;
    let name = |column: &FeatureColumn| table.columns[column.position].clone();
    let fitted = columns.iter().zip(&stats);
    Ok(fitted
        .map(|(column, stats)| EncodedColumn { column: name(column), encoding: column.planned.fit(stats) })
        .collect())
}

/// Encoder of rows, and the features that it has written.
pub(super) struct Encoder {
    columns: Vec<(usize, Encoding)>,
    names: Vec<String>,
    column_names: Vec<String>,
    rows: Option<Rows<f32>>,
    buffer: Vec<f32>,
    width: usize,
    /// Number of values of each column that its encoding does not know.
    pub(super) unknown: Vec<u64>,
}

impl Encoder {
    /// Creates an encoder of these columns, each with its position in the table; `name` is unique
    /// within the scratch.
    pub(super) fn new(scratch: &Scratch, name: &str, columns: &[(usize, EncodedColumn)]) -> Result<Self> {
        let names: Vec<String> = columns.iter().flat_map(|(_, column)| column.names()).collect();
        let width = names.len();
        Ok(Self {
            columns: columns.iter().map(|(position, column)| (*position, column.encoding.clone())).collect(),
            column_names: columns.iter().map(|(_, column)| column.column.clone()).collect(),
            names,
            rows: if width > 0 { Some(scratch.rows(name, width)?) } else { None },
            buffer: Vec::new(),
            width,
            unknown: vec![0; columns.len()],
        })
    }

    /// Appends rows that were encoded before, as an import writes them; `None` without columns. The
    /// rows of the nodes in `changed` are those of the features beside it, as of [`each_replaced`].
    ///
    /// # Errors
    /// They have other columns.
    pub(super) fn follow(
        &mut self,
        known: Option<&FeatureTable>,
        (changed, new): (&[(NodeId, usize)], Option<&FeaturePart>),
    ) -> Result<()> {
        let new = new.map_or(&[][..], |new| &new.values);
        match (&mut self.rows, known) {
            (None, None) => Ok(()),
            (
                Some(rows),
                Some(FeatureTable { width, data: TableData::Dense(Values::F32(values)), names }),
            ) if *width == self.width && *names == self.names => {
                let extend = |values: &[f32]| rows.extend(values);
                each_replaced((values, self.width, CHUNK_ROWS), (changed, new), extend)
            }
            _ => Err(Error::invalid("the feature columns are not those of the import")),
        }
    }

    /// Appends the features of the rows of a batch for which `is_used` returns true.
    pub(super) fn push(
        &mut self,
        table: &Table,
        batch: &Batch,
        faults: &mut Faults,
        is_used: impl Fn(u64) -> bool,
    ) -> Result<()> {
        let Some(rows) = &mut self.rows else { return Ok(()) };
        let used: Vec<usize> = (0..batch.rows).filter(|&row| is_used(batch.first + row as u64)).collect();
        self.buffer.clear();
        memory::resize(&mut self.buffer, used.len() * self.width, 0.0)?;
        let mut start = 0;
        let mut list = Vec::new();
        for (c, (position, encoding)) in self.columns.iter().enumerate() {
            let width = encoding.width();
            let values = &batch.columns[*position];
            for (&row, out) in used.iter().zip(self.buffer.chunks_exact_mut(self.width)) {
                list.clear();
                match encoding.encode(values.get(row), &mut list, &mut out[start..start + width]) {
                    Ok(unknown) => self.unknown[c] += u64::from(unknown),
                    Err(why) => faults.add(
                        &table.file(batch),
                        format!("{}: column '{}': {why}", batch.places.of(row), self.column_names[c]),
                    ),
                }
            }
            start += width;
        }
        if faults.any() {
            // The import ends with the faults; the rows are counted on.
            self.buffer.iter_mut().filter(|x| !x.is_finite()).for_each(|x| *x = 0.0);
        }
        rows.extend(&self.buffer)
    }

    /// Counts values that the encodings do not know of rows that another encoder has read.
    pub(super) fn add_unknown(&mut self, counts: &[u64]) {
        self.unknown.iter_mut().zip(counts).for_each(|(count, more)| *count += more);
    }

    /// Appends a row in which all values are missing.
    pub(super) fn push_missing(&mut self) -> Result<()> {
        let Some(rows) = &mut self.rows else { return Ok(()) };
        let mut row = vec![0.0; self.width];
        let mut start = 0;
        for (_, encoding) in &self.columns {
            let width = encoding.width();
            // A missing value has every type.
            let _ = encoding.encode(Cell::Missing, &mut Vec::new(), &mut row[start..start + width]);
            start += width;
        }
        rows.extend(&row)
    }

    /// Columns of the table with values that the encoding does not know, with their numbers.
    pub(super) fn unknown_values(&self) -> impl Iterator<Item = (&str, u64)> {
        let counts = self.column_names.iter().map(String::as_str).zip(self.unknown.iter().copied());
        counts.filter(|(_, count)| *count > 0)
    }

    /// The features; `None` without columns.
    pub(super) fn finish(self) -> Result<Option<FeaturePart>> {
        let Some(rows) = self.rows else { return Ok(None) };
        let values: Buffer<f32> = rows.finish()?;
        Ok(Some(FeaturePart { names: self.names, values }))
    }
}

/// Passes `values`, a row of `width` per node, to `each` in chunks of `rows` rows. The rows of the
/// `changed` nodes, in ascending order with their positions in `new`, are those of `new`.
pub(super) fn each_replaced<T: Copy>(
    (values, width, rows): (&[T], usize, usize),
    (changed, new): (&[(NodeId, usize)], &[T]),
    mut each: impl FnMut(&[T]) -> Result<()>,
) -> Result<()> {
    let mut changed = changed.iter().peekable();
    let mut buffer = Vec::new();
    for (chunk, values) in values.chunks(rows * width).enumerate() {
        let first = chunk * rows;
        let end = first + values.len() / width;
        if changed.peek().is_none_or(|(v, _)| *v as usize >= end) {
            each(values)?;
            continue;
        }
        buffer.clear();
        buffer.extend_from_slice(values);
        while let Some(&(v, i)) = changed.next_if(|(v, _)| (*v as usize) < end) {
            let at = (v as usize - first) * width;
            buffer[at..at + width].copy_from_slice(&new[i * width..(i + 1) * width]);
        }
        each(&buffer)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_changed_nodes_are_replaced_in_any_chunks() {
        let values: Vec<i32> = (0..14).collect();
        for rows in 1..9 {
            let mut found = Vec::new();
            let changed = ([(0, 1), (3, 2), (6, 0)].as_slice(), [-1, -2, -3, -4, -5, -6].as_slice());
            let extend = |chunk: &[i32]| {
                found.extend_from_slice(chunk);
                Ok(())
            };
            each_replaced((&values, 2, rows), changed, extend).unwrap();
            assert_eq!(found, [-3, -4, 2, 3, 4, 5, -5, -6, 8, 9, 10, 11, -1, -2]);
        }
    }
}
