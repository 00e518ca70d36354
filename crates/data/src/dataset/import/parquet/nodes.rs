//! Node table of a Parquet import: ids, labels, split and features.

use graphmill_core::{Buffer, Features, Labels, NodeId, Result, Split, location::Location, memory};
use parquet::data_type::ByteArray;

use super::{
    super::{
        ImportReport, claims,
        labels::{self, MISSING},
        splits,
    },
    OTHER_COLUMNS,
    column::{Cells, Kind},
    table::{Place, Table},
};
use crate::{
    external::{Rows, Scratch},
    npy::{Element, Number},
};

/// Contents of the node table.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    pub(super) count: usize,
    /// Id of every row, if there is an id column.
    pub(super) ids: Option<Vec<u64>>,
    pub(super) features: Features,
    pub(super) labels: Labels,
    pub(super) splits: Vec<Split>,
}

/// Column names of the masks of the parts.
const MASKS: [&[&str]; 3] =
    [&["train_mask", "train"], &["valid_mask", "val_mask", "valid", "val"], &["test_mask", "test"]];

/// Roles of the columns.
struct Columns {
    id: Option<usize>,
    label: Option<usize>,
    split: Option<usize>,
    masks: [Option<usize>; 3],
    features: Vec<usize>,
}

impl Columns {
    fn of(table: &Table, report: &mut ImportReport) -> Result<Self> {
        let kind = |c: usize| table.columns()[c].1;
        let mut columns = Self {
            id: table.find(&["id", "node_id"]),
            label: table.find(&["label", "labels", "y"]),
            split: table.find(&["split"]),
            masks: MASKS.map(|names| table.find(names)),
            features: Vec::new(),
        };
        let of_kind = |c: Option<usize>, known: &[Kind], what: &str| match c {
            Some(c) if !known.contains(&kind(c)) => {
                let name = table.name(c);
                Err(table.at_schema().error(format!("the column '{name}' is not a {what}; {OTHER_COLUMNS}")))
            }
            _ => Ok(()),
        };
        of_kind(columns.id, &[Kind::Number], "column of whole numbers")?;
        of_kind(
            columns.label,
            &[Kind::Number, Kind::List],
            "column of classes or of lists of zeros and ones",
        )?;
        of_kind(columns.split, &[Kind::Number, Kind::Text], "column of texts or numbers")?;
        for mask in columns.masks {
            of_kind(mask, &[Kind::Number], "mask")?;
        }
        let named = [&[columns.id, columns.label, columns.split][..], &columns.masks].concat();
        let index = table.find(&["__index_level_0__"]); // added by pandas
        let others = (0..table.columns().len()).filter(|&c| !named.contains(&Some(c)) && index != Some(c));
        let (lists, rest): (Vec<usize>, Vec<usize>) = others.partition(|&c| kind(c) == Kind::List);
        let (numbers, rest): (Vec<usize>, Vec<usize>) =
            rest.into_iter().partition(|&c| kind(c) == Kind::Number);
        let left = match &lists[..] {
            [] => {
                columns.features = numbers;
                rest
            }
            [_] => {
                columns.features = lists;
                [rest, numbers].concat()
            }
            [first, second, ..] => {
                return Err(table.at_schema().error(format!(
                    "'{}' and '{}' are both lists: one list column holds the features",
                    table.name(*first),
                    table.name(*second)
                )));
            }
        };
        report.ignore_columns("nodes", left.iter().copied().chain(index).map(|c| table.name(c)));
        Ok(columns)
    }

    /// Indices of all required columns, and the position of each in that list.
    fn wanted(&self) -> (Vec<usize>, impl Fn(usize) -> usize) {
        let mut wanted: Vec<usize> = self.features.clone();
        wanted.extend([self.id, self.label, self.split].into_iter().flatten());
        wanted.extend(self.masks.into_iter().flatten());
        let order = wanted.clone();
        (wanted, move |c| {
            order.iter().position(|&other| other == c).expect("every required column is listed")
        })
    }
}

/// Reads the table.
pub(super) fn read(table: &Table, scratch: &Scratch, report: &mut ImportReport) -> Result<Nodes> {
    let columns = Columns::of(table, report)?;
    let (wanted, place_of) = columns.wanted();
    if wanted.is_empty() {
        return Err(table.at_schema().error(format!(
            "the table has no column about nodes (id, label, split, features); {OTHER_COLUMNS}"
        )));
    }
    let mut nodes = Nodes { ids: columns.id.map(|_| Vec::new()), ..Nodes::default() };
    let mut features: Option<Rows<f32>> = None;
    let mut found = LabelColumn::default();
    let mut parts = [Vec::<u64>::new(), Vec::new(), Vec::new()];
    let mut block = Vec::new();
    table.read(&wanted, scratch, |cells, rows, at| {
        let of = |c: usize| &cells[place_of(c)];
        if let (Some(c), Some(ids)) = (columns.id, &mut nodes.ids) {
            for (i, id) in of(c).numbers.iter().enumerate() {
                ids.push(key(*id).ok_or_else(|| wrong(at, i, table.name(c), *id, "a whole number"))?);
            }
        }
        if let Some(c) = columns.label {
            found.add(of(c), table.name(c), at)?;
        }
        if let Some(c) = columns.split {
            read_split(of(c), nodes.count, at, &mut parts)?;
        }
        for (part, c) in columns.masks.iter().enumerate().filter_map(|(part, c)| Some((part, (*c)?))) {
            for (i, mask) in of(c).numbers.iter().enumerate() {
                match mask.map_or(Some(0), u8::from_number) {
                    Some(0) => {}
                    Some(1) => parts[part].push((nodes.count + i) as u64),
                    _ => return Err(wrong(at, i, table.name(c), *mask, "0 or 1")),
                }
            }
        }
        if !columns.features.is_empty() {
            let all: Vec<(&Cells, &str)> = columns.features.iter().map(|&c| (of(c), table.name(c))).collect();
            let dim = interleave(&all, rows, at, features.as_ref().map(Rows::columns), &mut block)?;
            if features.is_none() {
                features = Some(scratch.rows("features", dim)?);
            }
            features.as_mut().expect("just made").extend(&block)?;
        }
        nodes.count += rows;
        Ok(())
    })?;
    if let Some(rows) = features {
        nodes.features = Features::f32(rows.columns(), rows.finish()?);
    }
    let at = Location::new(&table.files[0], "labels");
    nodes.labels = match columns.label {
        Some(_) => found.finish(nodes.count, &at)?,
        None => labels::unknown(nodes.count)?,
    };
    if parts.iter().any(|part| !part.is_empty()) {
        let part = |ids: &Vec<u64>, name: &'static str| -> Result<Buffer<NodeId>> {
            match ids.is_empty() {
                true => Ok(Buffer::default()),
                false => splits::from_ids(ids.clone(), nodes.count, &Location::new(&table.files[0], name)),
            }
        };
        nodes.splits = vec![Split {
            train: part(&parts[0], "train")?,
            valid: part(&parts[1], "valid")?,
            test: part(&parts[2], "test")?,
        }];
    }
    Ok(nodes)
}

/// Id as a key: any whole number of 64 bits, negative ones in two's complement.
pub(super) fn key(number: Option<Number>) -> Option<u64> {
    match number? {
        Number::Int(x) => Some(x as u64),
        Number::Uint(x) => Some(x),
        float @ Number::Float(_) => i64::from_number(float).map(|x| x as u64),
    }
}

fn wrong(
    at: &Place,
    row: usize,
    column: &str,
    found: Option<Number>,
    expected: &str,
) -> graphmill_core::Error {
    let is_missing = found.is_none_or(|x| matches!(x, Number::Float(x) if x.is_nan()));
    let hint = if is_missing { format!("; {OTHER_COLUMNS}") } else { String::new() };
    let found = found.map_or("nothing".into(), |x| x.to_string());
    at.error(row, format!("column '{column}': {found} found, {expected} expected{hint}"))
}

/// Interleaves the rows of all feature columns, or copies those of the single list column.
fn interleave(
    columns: &[(&Cells, &str)],
    rows: usize,
    at: &Place,
    expected: Option<usize>,
    block: &mut Vec<f32>,
) -> Result<usize> {
    block.clear();
    let value = |number: Option<Number>, row: usize, name: &str| {
        let x = number.and_then(f32::from_number).filter(|x| x.is_finite());
        x.ok_or_else(|| wrong(at, row, name, number, "a finite number"))
    };
    if let [(cells, name)] = columns
        && let Some(&first) = cells.lengths.first()
    {
        let dim = expected.unwrap_or(first);
        if let Some(row) = cells.lengths.iter().position(|&length| length != dim) {
            let message = format!("column '{name}': a list of {}, the first has {dim}", cells.lengths[row]);
            return Err(at.error(row, message));
        }
        for (i, &number) in cells.numbers.iter().enumerate() {
            block.push(value(number, i / dim, name)?);
        }
        return Ok(dim);
    }
    memory::grow(block, rows * columns.len())?;
    for row in 0..rows {
        for (cells, name) in columns {
            block.push(value(cells.numbers[row], row, name)?);
        }
    }
    Ok(columns.len())
}

/// Label column under construction.
#[derive(Default)]
struct LabelColumn {
    class: Vec<i64>,
    member: Vec<u8>,
    /// Number of classes in lists, once a list was read.
    width: Option<usize>,
    /// Rows before the first list: all of them are missing.
    before: usize,
    /// Number of list values read.
    values: usize,
}

impl LabelColumn {
    /// Adds a batch of rows.
    fn add(&mut self, cells: &Cells, name: &str, at: &Place) -> Result<()> {
        if !cells.lengths.is_empty() {
            return self.add_lists(cells, name, at);
        }
        for (i, label) in cells.numbers.iter().enumerate() {
            let label = match label {
                None => Some(-1),
                Some(Number::Float(x)) if x.is_nan() => Some(-1), // a missing value in pandas
                Some(number) => i64::from_number(*number),
            };
            let wrong = || wrong(at, i, name, cells.numbers[i], "a class (a whole number)");
            self.class.push(label.ok_or_else(wrong)?);
        }
        Ok(())
    }

    fn add_lists(&mut self, cells: &Cells, name: &str, at: &Place) -> Result<()> {
        let mut rest = &cells.numbers[..];
        for (row, &length) in cells.lengths.iter().enumerate() {
            // A row with a missing or empty list has one missing entry.
            let (list, after) = rest.split_at(length);
            rest = after;
            if list.iter().all(Option::is_none) && self.width.is_none_or(|width| [1, width].contains(&length))
            {
                match self.width {
                    Some(width) => self.add_missing(1, width, row, at)?,
                    None => self.before += 1,
                }
                continue;
            }
            let width = *self.width.get_or_insert(length);
            if length != width {
                return Err(
                    at.error(row, format!("column '{name}': a list of {length}, the first has {width}"))
                );
            }
            self.values += width;
            let before = std::mem::take(&mut self.before);
            self.add_missing(before, width, row, at)?;
            for &bit in list {
                let bit_of = bit.and_then(u8::from_number).filter(|&bit| bit <= 1);
                self.member.push(bit_of.ok_or_else(|| wrong(at, row, name, bit, "0 or 1"))?);
            }
        }
        Ok(())
    }

    /// Adds `rows` rows without a list. They take no bytes in the file, so their number is limited.
    fn add_missing(&mut self, rows: usize, width: usize, row: usize, at: &Place) -> Result<()> {
        let all = rows + self.member.len() / width.max(1);
        if !claims::is_dense(all, width, self.values) {
            let message = format!(
                "{all} rows of {width} classes, but the lists hold {} in all: is the file damaged?",
                self.values
            );
            return Err(at.error(row, message));
        }
        self.member.extend(std::iter::repeat_n(MISSING, rows * width));
        Ok(())
    }

    /// Labels of `nodes` nodes.
    fn finish(self, nodes: usize, at: &Location) -> Result<Labels> {
        match self.width {
            Some(width) => labels::multi(self.member, width, at),
            None if self.before > 0 => labels::unknown(nodes),
            None => labels::single(&self.class, at),
        }
    }
}

/// Reads the parts: `train`, `valid` (`val`, `validation`), `test`, or 0, 1, 2; empty, `none` or a
/// negative number for none.
fn read_split(cells: &Cells, first: usize, at: &Place, parts: &mut [Vec<u64>; 3]) -> Result<()> {
    let mut put = |row: usize, part: Option<usize>| {
        if let Some(part) = part {
            parts[part].push((first + row) as u64);
        }
    };
    for (row, text) in cells.texts.iter().enumerate() {
        put(
            row,
            match text.as_ref().map(ByteArray::data) {
                None | Some(b"" | b"none") => None,
                Some(b"train") => Some(0),
                Some(b"valid" | b"val" | b"validation") => Some(1),
                Some(b"test") => Some(2),
                Some(other) => {
                    let word = other[..other.len().min(40)].escape_ascii();
                    let message = format!("column 'split': '{word}' found, train, valid or test expected");
                    return Err(at.error(row, message));
                }
            },
        );
    }
    for (row, number) in cells.numbers.iter().enumerate() {
        match number.map_or(Some(-1), i64::from_number) {
            Some(part @ 0..=2) => put(row, Some(part as usize)),
            Some(..0) => {}
            _ => return Err(wrong(at, row, "split", *number, "0 (train), 1 (valid) or 2 (test)")),
        }
    }
    Ok(())
}
