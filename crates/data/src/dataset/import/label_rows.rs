//! Labels from rows of numbers: one column is a class per node, several columns of zeros and ones
//! are a set of classes per node. Empty values, `nan` and -1 are missing (see [`labels`] for their
//! meaning in a set).

use std::fmt;

use graphmill_core::{Labels, Result, location::Location};

use super::labels;
use crate::{
    npy::{Element, Kind, NpyFile, Number},
    npz::Npz,
};

/// Description of a label in messages.
pub(super) const EXPECTED: &str = "a class (a whole number), or nothing or nan if it is missing";

/// Marks an unknown label.
const UNKNOWN: i64 = i64::MIN;

/// Parses a label: a whole number (`3`, `3.0`), or nothing or `nan` if it is unknown.
pub(super) fn parse(field: &str) -> Option<i64> {
    if field.is_empty() || field.eq_ignore_ascii_case("nan") {
        return Some(UNKNOWN);
    }
    super::edges::text::whole::<i64>(field).filter(|&x| x != UNKNOWN)
}

/// Numeric type of a label array.
trait Cell: Element + fmt::Display {
    fn label(self) -> Option<i64>;
}

impl Cell for f64 {
    fn label(self) -> Option<i64> {
        if self.is_nan() { Some(UNKNOWN) } else { i64::from_number(Number::Float(self)) }
    }
}

impl Cell for i64 {
    fn label(self) -> Option<i64> {
        (self != UNKNOWN).then_some(self)
    }
}

/// Labels under construction, with one byte per node and class or four per node.
pub(super) struct LabelRows<'a> {
    nodes: usize,
    at: Location<'a>,
    columns: usize,
    rows: usize,
    class: Vec<i32>,
    member: Vec<u8>,
}

impl<'a> LabelRows<'a> {
    /// Creates empty labels of `nodes` nodes.
    pub(super) fn new(nodes: usize, at: Location<'a>) -> Self {
        Self { nodes, at, columns: 0, rows: 0, class: Vec::new(), member: Vec::new() }
    }

    /// Adds whole rows of `columns` labels.
    ///
    /// # Errors
    /// The rows exceed the nodes, a value is not a class, or a value of several columns is neither
    /// 0 nor 1.
    pub(super) fn extend(&mut self, columns: usize, values: &[i64]) -> Result<()> {
        let rows = values.len() / columns.max(1);
        if self.rows + rows > self.nodes {
            return Err(self.wrong_count(self.rows + rows, "or more "));
        }
        self.columns = columns;
        for row in values.chunks_exact(columns) {
            match row {
                [x] => self.add_class(*x)?,
                _ => self.add_set(row)?,
            }
            self.rows += 1;
        }
        Ok(())
    }

    fn add_class(&mut self, x: i64) -> Result<()> {
        let class = match i32::try_from(x) {
            _ if x == UNKNOWN => -1,
            Ok(x) if (-1..i32::MAX).contains(&x) => x,
            _ => {
                return Err(self.at.error(format!(
                    "the label of node {} is {x}: classes are numbered from 0, -1 or nan means unknown",
                    self.rows
                )));
            }
        };
        self.class.push(class);
        Ok(())
    }

    fn add_set(&mut self, row: &[i64]) -> Result<()> {
        let is_missing = |x: &i64| matches!(*x, UNKNOWN | -1);
        if row.iter().all(is_missing) {
            self.member.extend(row.iter().map(|_| labels::MISSING));
            return Ok(());
        }
        for (j, x) in row.iter().enumerate() {
            match x {
                0 | 1 => self.member.push(*x as u8),
                _ => {
                    let found = if is_missing(x) { "missing".into() } else { x.to_string() };
                    return Err(self.at.error(labels::wrong_entry(j, self.rows, &found)));
                }
            }
        }
        Ok(())
    }

    fn wrong_count(&self, rows: usize, more: &str) -> graphmill_core::Error {
        self.at.error(format!("{rows} {more}rows of labels, but there are {} nodes", self.nodes))
    }

    /// Returns the labels of all nodes.
    ///
    /// # Errors
    /// The rows are fewer than the nodes.
    pub(super) fn finish(self) -> Result<Labels> {
        if self.rows != self.nodes {
            return Err(self.wrong_count(self.rows, ""));
        }
        self.finish_any().map(|(labels, _)| labels)
    }

    /// Returns the labels with as many nodes as rows, and the number of rows.
    ///
    /// # Errors
    /// None beyond those of [`LabelRows::extend`].
    pub(super) fn finish_any(self) -> Result<(Labels, usize)> {
        let rows = self.rows;
        let labels = match self.columns {
            0 | 1 => labels::single(&self.class, &self.at),
            classes => labels::multi(self.member, classes, &self.at),
        };
        Ok((labels?, rows))
    }
}

/// Adds the labels of an array `[nodes]` or `[nodes, C]` whose rows `source` emits.
fn extend_from<T: Cell>(
    rows: &mut LabelRows,
    shape: &[usize],
    nodes: usize,
    at: &Location,
    source: impl FnOnce(&mut dyn FnMut(&[T]) -> Result<()>) -> Result<()>,
) -> Result<()> {
    let columns = labels::columns(shape, at)?;
    if shape[0] != nodes {
        return Err(at.error(format!("{} rows of labels, but there are {nodes} nodes", shape[0])));
    }
    if rows.rows > 0 && rows.columns != columns {
        return Err(at.error(format!("{columns} columns of labels, but {} before", rows.columns)));
    }
    let mut batch = Vec::new();
    source(&mut |piece| {
        batch.clear();
        for (i, &x) in piece.iter().enumerate() {
            batch.push(x.label().ok_or_else(|| {
                let v = rows.rows + i / columns;
                let entry = if columns > 1 { format!("entry {} ", i % columns) } else { String::new() };
                at.error(format!("label {entry}of node {v} is {x}, not a class (a whole number)"))
            })?);
        }
        rows.extend(columns, &batch)
    })
}

/// Adds the labels of `nodes` more nodes.
pub(super) fn extend_from_npy(rows: &mut LabelRows, array: &NpyFile, nodes: usize) -> Result<()> {
    let at = Location::new(array.path(), "labels");
    match array.dtype.kind {
        Kind::Float => extend_from::<f64>(rows, &array.shape, nodes, &at, |each| array.for_each_rows(each)),
        _ => extend_from::<i64>(rows, &array.shape, nodes, &at, |each| array.for_each_rows(each)),
    }
}

/// Reads the labels in the member `name` of an archive.
pub(super) fn from_npz(npz: &mut Npz, name: &str, nodes: usize) -> Result<Labels> {
    let (path, header) = (npz.path().to_path_buf(), npz.header(name)?);
    let shape = header.shape;
    let at = Location::new(&path, format!("member {name}.npy"));
    let mut rows = LabelRows::new(nodes, at.clone());
    match header.dtype.kind {
        Kind::Float => {
            extend_from::<f64>(&mut rows, &shape, nodes, &at, |each| npz.for_each_rows(name, each))?;
        }
        _ => extend_from::<i64>(&mut rows, &shape, nodes, &at, |each| npz.for_each_rows(name, each))?,
    }
    rows.finish()
}

/// Reads the labels in an `.npy` file.
pub(super) fn from_npy(array: &NpyFile, nodes: usize) -> Result<Labels> {
    let mut rows = LabelRows::new(nodes, Location::new(array.path(), "labels"));
    extend_from_npy(&mut rows, array, nodes)?;
    rows.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::npy;

    #[test]
    fn text_labels_parse() {
        assert_eq!([parse("3"), parse("3.0"), parse("-1")], [Some(3), Some(3), Some(-1)]);
        assert_eq!([parse("nan"), parse("NaN"), parse("")], [Some(UNKNOWN); 3]);
        assert_eq!([parse("0.5"), parse("x"), parse("-9223372036854775808")], [None; 3]);
    }

    #[test]
    fn array_labels_parse() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("labels.npy");
        let run = |data: &[f64], shape: &[usize]| {
            npy::write(&path, data, shape).unwrap();
            from_npy(&npy::open(&path).unwrap(), 3).map_err(|e| e.to_string())
        };
        for shape in [&[3][..], &[3, 1]] {
            let Labels::Single { class, classes: 3 } = run(&[2., f64::NAN, -1.], shape).unwrap() else {
                panic!()
            };
            assert_eq!(class[..], [2, -1, -1]);
        }
        let Labels::Multi { member, classes: 2 } = run(&[1., 0., 0., 1., 1., 1.], &[3, 2]).unwrap() else {
            panic!()
        };
        assert_eq!(member[..], [1, 0, 0, 1, 1, 1]);
        let fails = |data: &[f64], shape: &[usize], why: &str| {
            let error = run(data, shape).unwrap_err();
            assert!(error.contains(why) && error.contains("labels.npy: labels"), "{error}");
        };
        fails(&[0., 1.], &[2], "2 rows of labels, but there are 3 nodes");
        fails(&[0., 1., 1e10], &[3], "node 2 is 10000000000");
        fails(&[0., 1.5, 1.], &[3], "label of node 1 is 1.5, not a class");
        fails(&[0., 1., 1., 0.5, 0., 1.], &[3, 2], "label entry 1 of node 1 is 0.5");
        fails(&[0., 1., 1., f64::NAN, 0., 1.], &[3, 2], "label entry 1 of node 1 is missing");
        let row_missing = run(&[0., 1., f64::NAN, -1., 0., 1.], &[3, 2]).unwrap();
        let Labels::Multi { member, .. } = row_missing else { panic!() };
        assert_eq!(member[2..4], [labels::MISSING; 2]);
        fails(&[0., 1., 1.], &[3, 1, 1], "shape");
    }
}
