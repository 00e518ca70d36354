//! Columns of a batch of rows, in the few types that encoders distinguish.

use std::borrow::Cow;

/// Value of a column in one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cell<'a> {
    /// No value: null, an empty text or NaN.
    Missing,
    /// Truth value.
    Bool(bool),
    /// Integer.
    Int(i64),
    /// Number other than an integer; never NaN.
    Float(f64),
    /// Text, not empty.
    Text(&'a str),
    /// Microseconds since 1970, UTC.
    Time(i64),
    /// List of numbers.
    List(&'a [f64]),
}

impl<'a> Cell<'a> {
    /// Microseconds of a time; `None` for other values.
    pub(super) fn time(self) -> Option<i64> {
        if let Self::Time(micros) = self { Some(micros) } else { None }
    }

    /// Text of the value in messages and keys; a float with an integral value is written as an
    /// integer.
    pub(super) fn text(self) -> Cow<'a, str> {
        match self {
            Self::Missing => Cow::Borrowed(""),
            Self::Bool(value) => Cow::Borrowed(if value { "true" } else { "false" }),
            Self::Int(value) => Cow::Owned(value.to_string()),
            Self::Float(value) => {
                Cow::Owned(integral(value).map_or_else(|| value.to_string(), |i| i.to_string()))
            }
            Self::Text(text) => Cow::Borrowed(text),
            Self::Time(micros) => Cow::Owned(super::date::format_time(micros)),
            Self::List(values) => Cow::Owned(format!("{values:?}")),
        }
    }
}

/// The integer of a float that holds one exactly.
pub(super) fn integral(value: f64) -> Option<i64> {
    (value.fract() == 0.0 && value.abs() < (1u64 << 53) as f64).then_some(value as i64)
}

/// Column of a batch.
#[derive(Clone, Debug)]
pub(super) enum Column {
    /// Column without values.
    Empty(usize),
    /// Truth values.
    Bool(Vec<Option<bool>>),
    /// Integers.
    Int(Vec<Option<i64>>),
    /// Numbers; NaN is a missing value.
    Float(Vec<Option<f64>>),
    /// Texts.
    Text(Texts),
    /// Microseconds since 1970, UTC.
    Time(Vec<Option<i64>>),
    /// Lists of numbers.
    List(Lists),
    /// Number of rows of a type that no encoder reads, with the type's name.
    Other(usize, String),
}

impl Column {
    /// Value in row `row`.
    pub(super) fn get(&self, row: usize) -> Cell<'_> {
        let value = match self {
            Self::Empty(_) | Self::Other(..) => None,
            Self::Bool(values) => values[row].map(Cell::Bool),
            Self::Int(values) => values[row].map(Cell::Int),
            Self::Float(values) => values[row].filter(|x| !x.is_nan()).map(Cell::Float),
            Self::Text(texts) => Some(texts.get(row)).filter(|text| !text.is_empty()).map(Cell::Text),
            Self::Time(values) => values[row].map(Cell::Time),
            Self::List(lists) => lists.get(row).map(Cell::List),
        };
        value.unwrap_or(Cell::Missing)
    }

    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Empty(rows) | Self::Other(rows, _) => *rows,
            Self::Bool(values) => values.len(),
            Self::Int(values) | Self::Time(values) => values.len(),
            Self::Float(values) => values.len(),
            Self::Text(texts) => texts.len(),
            Self::List(lists) => lists.starts.len() - 1,
        }
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Empty(_) | Self::Other(..) => 0,
            Self::Bool(values) => values.len(),
            Self::Int(values) | Self::Time(values) => 16 * values.len(),
            Self::Float(values) => 16 * values.len(),
            Self::Text(texts) => texts.bytes.len() + 4 * texts.ends.len(),
            Self::List(lists) => 8 * lists.values.len() + 9 * lists.starts.len(),
        }
    }
}

/// Texts, one after the other; a missing one is empty.
#[derive(Clone, Debug, Default)]
pub(super) struct Texts {
    bytes: String,
    /// End of each text.
    ends: Vec<u32>,
}

impl Texts {
    /// Appends a text.
    pub(super) fn push(&mut self, text: &str) {
        self.bytes.push_str(text);
        self.ends.push(self.bytes.len() as u32);
    }

    /// Number of texts.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Text `row`.
    pub(super) fn get(&self, row: usize) -> &str {
        let start = row.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        &self.bytes[start..self.ends[row] as usize]
    }
}

/// Lists of numbers, one after the other.
#[derive(Clone, Debug)]
pub(super) struct Lists {
    values: Vec<f64>,
    /// Start of each list, and the end of the last.
    starts: Vec<usize>,
    present: Vec<bool>,
}

impl Default for Lists {
    fn default() -> Self {
        Self { values: Vec::new(), starts: vec![0], present: Vec::new() }
    }
}

impl Lists {
    /// Appends a list, or a missing one.
    pub(super) fn push(&mut self, list: Option<&[f64]>) {
        self.values.extend_from_slice(list.unwrap_or_default());
        self.starts.push(self.values.len());
        self.present.push(list.is_some());
    }

    fn get(&self, row: usize) -> Option<&[f64]> {
        self.present[row].then(|| &self.values[self.starts[row]..self.starts[row + 1]])
    }
}

/// Rows of a table, read together.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    /// Number of the file that holds the rows, in the table's order.
    pub(super) file: usize,
    /// Number of the first row in the table, from 0.
    pub(super) first: u64,
    /// Number of rows.
    pub(super) rows: usize,
    /// Position of each row.
    pub(super) places: OutputRows,
    /// Columns in the table's order.
    pub(super) columns: Vec<Column>,
}

impl Batch {
    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        let places = if let OutputRows::Lines(lines) = &self.places { 8 * lines.len() } else { 0 };
        places + self.columns.iter().map(Column::bytes).sum::<usize>()
    }
}

/// Positions of rows in their file.
#[derive(Clone, Debug)]
pub(super) enum OutputRows {
    /// Line of each row of a text file, from 1.
    Lines(Vec<u64>),
    /// Number of the first row in a binary file, from 1.
    Rows(u64),
}

impl OutputRows {
    /// Position of row `row` of the batch, for a message.
    pub(super) fn of(&self, row: usize) -> String {
        match self {
            Self::Lines(lines) => format!("line {}", lines[row]),
            Self::Rows(first) => format!("row {}", first + row as u64),
        }
    }
}
