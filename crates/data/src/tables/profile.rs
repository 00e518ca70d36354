//! Types of columns, found by reading all values once.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use serde::{Deserialize, Serialize};

use super::{
    column::{Batch, Cell, Column},
    format::Format,
    others::Others,
    readings::{Found, Readings, Sought},
    value,
};

/// Maximum number of distinct values that are counted.
pub(super) const MAX_DISTINCT: usize = 4096;
/// Values of another type that are kept as examples.
const EXAMPLES: usize = 5;
/// Share of the values that makes a type the type of the column, so that the others are faults.
const MOSTLY: f64 = 0.95;
/// Number of values below which a column of several types is a column of texts.
const FEW: u64 = 20;
/// Different values of other types than most, which are counted beyond [`MAX_DISTINCT`].
const MAX_OTHERS: usize = 20;

/// Type of the values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Shape {
    /// Truth values.
    Bool,
    /// Numbers.
    Number,
    /// Dates.
    Time,
    /// Lists of numbers.
    List,
    /// Texts.
    Text,
}

const SHAPES: [Shape; 5] = [Shape::Bool, Shape::Number, Shape::Time, Shape::List, Shape::Text];

impl Shape {
    /// Description of a value, for messages.
    pub(super) fn noun(self) -> &'static str {
        match self {
            Self::Bool => "a truth value",
            Self::Number => "a number",
            Self::Time => "a date",
            Self::List => "a list of numbers",
            Self::Text => "a text",
        }
    }

    /// Description of several values, for messages.
    pub(super) fn plural(self) -> &'static str {
        match self {
            Self::Bool => "truth values",
            Self::Number => "numbers",
            Self::Time => "dates",
            Self::List => "lists of numbers",
            Self::Text => "texts",
        }
    }
}

/// Value of a cell in its most specific type.
pub(super) fn parsed<'a>(cell: Cell<'a>, list: &'a mut Vec<f64>) -> Cell<'a> {
    match cell {
        Cell::Text(text) => value::parse(text, list),
        other => other,
    }
}

/// Text of a value of a category in a column of type `shape`, equal for all formats of tables:
/// numbers and dates have one form, and texts are trimmed. `None` if it is missing.
pub(super) fn canonical<'a>(cell: Cell<'a>, shape: Shape) -> Option<Cow<'a, str>> {
    let Cell::Text(text) = cell else {
        return (cell != Cell::Missing).then(|| cell.text());
    };
    let text = text.trim();
    if text.is_empty() || (shape != Shape::Text && value::is_missing_word(text)) {
        return None;
    }
    if shape == Shape::Text {
        return Some(Cow::Borrowed(text));
    }
    Some(Cow::Owned(value::parse(text, &mut Vec::new()).text().into_owned()))
}

/// Type of a value as a text; `None` if it is missing in columns of numbers.
fn shape_of(text: &str) -> Option<Shape> {
    if value::is_missing_word(text.trim()) {
        return None;
    }
    Some(match value::parse(text, &mut Vec::new()) {
        Cell::Missing => return None,
        Cell::Bool(_) => Shape::Bool,
        Cell::Int(_) | Cell::Float(_) => Shape::Number,
        Cell::Time(_) => Shape::Time,
        Cell::List(_) => Shape::List,
        Cell::Text(_) => Shape::Text,
    })
}

/// Counts of a column.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Profile {
    /// Number of rows.
    pub(super) rows: u64,
    /// Number of missing values.
    pub(super) missing: u64,
    /// Number of words for a missing value, such as NA: values of a column of texts, missing in
    /// other columns.
    words: u64,
    counts: [u64; 5],
    /// Position and text of the first values of each type.
    examples: [Vec<(String, String)>; 5],
    /// True if a number is not an integer, or was written as a float.
    pub(super) has_floats: bool,
    /// True if a number is not integral.
    pub(super) has_fractions: bool,
    /// Position and text of the first infinite numbers, and their number.
    pub(super) infinite: (Vec<String>, u64),
    /// True if a time has a part of a second.
    pub(super) has_part_seconds: bool,
    /// Lengths of lists: that of the first, and position of a list of another length.
    pub(super) width: Option<usize>,
    pub(super) other_width: Option<(String, usize)>,
    /// Distinct values as texts, with their numbers; `None` if they are too many.
    distinct: Option<BTreeMap<String, u64>>,
    /// The type of most of these, and the values of other types with their numbers, unless these
    /// are many.
    others: Option<(Shape, BTreeMap<String, u64>)>,
    /// Type that no encoder reads.
    pub(super) other: Option<String>,
    /// Formats that the texts agree with, while they are read.
    #[serde(skip)]
    readings: Readings,
    /// A value that several formats read differently, and these formats: the column has none.
    pub(super) ambiguous: Option<(String, Vec<Format>)>,
    /// Formats that read a few texts among plain numbers, which may be slips: none is taken.
    pub(super) doubtful: Vec<Format>,
}

impl Profile {
    /// Creates the profile of a column without rows, of which formats are `sought`.
    pub(super) fn new(sought: Sought) -> Self {
        Self { distinct: Some(BTreeMap::new()), readings: Readings::new(sought), ..Self::default() }
    }

    /// Adds the column `c` of a batch; `file` stands before the positions of its rows.
    pub(super) fn add(&mut self, batch: &Batch, c: usize, file: &str) {
        let column = &batch.columns[c];
        self.rows += batch.rows as u64;
        if let Column::Other(_, name) = column {
            self.other = Some(name.clone());
            return;
        }
        let mut list = Vec::new();
        for row in 0..batch.rows {
            let cell = column.get(row);
            if let Cell::Text(text) = cell
                && value::is_missing_word(text.trim())
            {
                self.words += 1;
                self.note_distinct(text);
                continue;
            }
            list.clear();
            let value = parsed(cell, &mut list);
            let place = || format!("{file}{}", batch.places.of(row));
            let shape = match value {
                Cell::Missing => {
                    self.missing += 1;
                    continue;
                }
                Cell::Bool(_) => Shape::Bool,
                Cell::Int(_) => Shape::Number,
                Cell::Float(x) => {
                    self.has_floats = true;
                    self.has_fractions |= x.fract() != 0.0;
                    if !x.is_finite() {
                        self.infinite.1 += 1;
                        if self.infinite.0.len() < EXAMPLES {
                            self.infinite.0.push(place());
                        }
                    }
                    Shape::Number
                }
                Cell::Time(micros) => {
                    self.has_part_seconds |= micros % 1_000_000 != 0;
                    Shape::Time
                }
                Cell::List(values) => {
                    let width = *self.width.get_or_insert(values.len());
                    if width != values.len() && self.other_width.is_none() {
                        self.other_width = Some((place(), values.len()));
                    }
                    Shape::List
                }
                Cell::Text(_) => Shape::Text,
            };
            self.counts[shape as usize] += 1;
            self.readings.add(cell, value, place);
            let examples = &mut self.examples[shape as usize];
            if examples.len() < EXAMPLES {
                examples.push((place(), cell.text().into_owned()));
            }
            if self.distinct.is_some() && shape != Shape::List {
                self.note_distinct(&cell.text());
            } else if let Some((most, others)) = &mut self.others
                && *most != shape
            {
                *others.entry(cell.text().into_owned()).or_default() += 1;
                self.others.take_if(|(_, others)| others.len() > MAX_OTHERS);
            }
        }
    }

    fn note_distinct(&mut self, text: &str) {
        let Some(distinct) = &mut self.distinct else { return };
        match distinct.get_mut(text) {
            Some(count) => *count += 1,
            None => _ = distinct.insert(text.into(), 1),
        }
        if let Some(distinct) = self.distinct.take_if(|distinct| distinct.len() > MAX_DISTINCT) {
            let most = self.most();
            let others = distinct.into_iter().filter(|(text, _)| shape_of(text).is_some_and(|of| of != most));
            let others: BTreeMap<String, u64> = others.take(MAX_OTHERS + 1).collect();
            self.others = (others.len() <= MAX_OTHERS).then_some((most, others));
        }
    }

    /// Type of most of the values.
    fn most(&self) -> Shape {
        SHAPES.into_iter().max_by_key(|&shape| (self.counts[shape as usize], shape)).unwrap_or(Shape::Text)
    }

    /// Type of more than half of the values, the number of these, and the others, if these are a
    /// few different texts.
    pub(super) fn others(&self) -> Option<(Shape, u64, Others)> {
        let most = self.most();
        let (count, present) = (self.counts[most as usize], self.counts.iter().sum::<u64>());
        let all = match (&self.distinct, &self.others) {
            (Some(distinct), _) => distinct,
            (None, Some((of, others))) if *of == most => others,
            _ => return None,
        };
        let texts = all.iter().filter(|(text, _)| shape_of(text) == Some(Shape::Text));
        let others = Others::new(texts.map(|(text, count)| (&text[..], *count)))?;
        let is_all = others.count() == present - count;
        (most != Shape::Text && is_all && count * 2 > present).then_some((most, count, others))
    }

    /// Remark about a column of texts of which more than half are numbers or dates: the share of
    /// these, and the other values, with what to do about these.
    pub(super) fn mixed(&self, column: &str) -> Option<(String, String)> {
        let (most, count, others) = self.others().filter(|_| self.shape() == Some((Shape::Text, 0)))?;
        let all = count + others.count();
        let what = format!("{count} of {all} values are {}, the others {}", most.plural(), others.list());
        Some((what, format!("if these are missing values, declare them so ({})", others.nulls(column))))
    }

    /// Way out of a few texts among values of another type, for a message: `, declare these missing
    /// (null age=unknown)`; empty if there are other faults.
    pub(super) fn declare(&self, column: &str) -> String {
        let others = self.others().filter(|_| self.doubtful.is_empty());
        let declare = |(_, _, others): (Shape, u64, Others)| {
            format!(" declare these missing ({}),", others.nulls(column))
        };
        others.map(declare).unwrap_or_default()
    }

    /// Distinct values as texts, ascending: numbers by value. `None` if there are more than
    /// [`MAX_DISTINCT`].
    pub(super) fn distinct(&self, shape: Shape) -> Option<Vec<String>> {
        let texts = self.distinct.as_ref()?.keys();
        let values: BTreeSet<String> =
            texts.filter_map(|text| Some(canonical(Cell::Text(text), shape)?.into_owned())).collect();
        let mut values: Vec<String> = values.into_iter().collect();
        if shape == Shape::Number {
            let number = |text: &String| text.parse::<f64>().unwrap_or(f64::NAN);
            values.sort_by(|a, b| number(a).total_cmp(&number(b)));
        }
        Some(values)
    }

    /// Returns true if each truth value of a column without missing words has one spelling.
    pub(super) fn spells_once(&self) -> bool {
        let spellings = self.distinct.iter().flat_map(BTreeMap::keys).map(|text| text.trim());
        let spellings: BTreeSet<&str> = spellings.collect();
        let values = self.distinct(Shape::Bool).map_or(0, |values| values.len());
        self.words == 0 && spellings.len() == values
    }

    /// Type of the column, and the number of values of another type; `None` without values.
    pub(super) fn shape(&self) -> Option<(Shape, u64)> {
        let present: u64 = self.counts.iter().sum();
        if present == 0 {
            return (self.words > 0).then_some((Shape::Text, 0));
        }
        let most = self.most();
        let odd = present - self.counts[most as usize];
        if odd == 0 {
            return Some((most, 0));
        }
        let mostly = self.counts[most as usize] as f64 >= MOSTLY * present as f64 && present >= FEW;
        if mostly && most != Shape::Text { Some((most, odd)) } else { Some((Shape::Text, 0)) }
    }

    /// Positions and texts of the first values that do not have the type `shape`, and their number.
    pub(super) fn odd(&self, shape: Shape) -> (Vec<(String, String)>, u64) {
        let others = SHAPES.into_iter().filter(|&other| other != shape);
        let count = others.clone().map(|other| self.counts[other as usize]).sum();
        let mut examples: Vec<_> = others.flat_map(|other| self.examples[other as usize].clone()).collect();
        examples.truncate(EXAMPLES);
        (examples, count)
    }

    /// First value of the type `shape`.
    pub(super) fn first(&self, shape: Shape) -> Option<(String, String)> {
        self.examples[shape as usize].first().cloned()
    }

    /// Format of the texts of the column, once all of them are read. Several formats are noted.
    pub(super) fn find_format(&mut self) -> Found {
        if self.counts[Shape::Text as usize] == 0 {
            return Found::None;
        }
        let readings = std::mem::take(&mut self.readings);
        let found = readings.find(FEW);
        let is_doubtful = !readings.is_proven() && matches!(self.shape(), Some((Shape::Number, 1..)));
        match found {
            Found::One(format) if is_doubtful => {
                self.doubtful = vec![format];
                Found::None
            }
            Found::Several(_, formats) if is_doubtful => {
                self.doubtful = formats;
                Found::None
            }
            Found::Several(example, formats) => {
                self.ambiguous = Some((example, formats));
                Found::None
            }
            // The values that are not numbers are reported as such.
            Found::Nearly(..) if self.shape().is_none_or(|(shape, _)| shape != Shape::Text) => Found::None,
            found => found,
        }
    }

    /// Reason for which the column `column` has no format, and the way out; `None` if several
    /// formats do not read it.
    pub(super) fn ask(&self, column: &str) -> Option<String> {
        let (example, formats) = self.ambiguous.as_ref()?;
        let named: Vec<String> = formats.iter().map(ToString::to_string).collect();
        Some(format!(
            "'{example}' and all other values fit several formats, {}; state the right one (format \
             {column}={})",
            named.join(" and "),
            named[0]
        ))
    }

    /// Message about the column `column` whose values do not all have a type.
    pub(super) fn not_all(&self, column: &str, what: &str) -> String {
        if let Some(ask) = self.ask(column) {
            return format!("column '{column}': {ask}");
        }
        let example = self.first(Shape::Text).or_else(|| self.first(Shape::Bool));
        let example = example.map_or("no value is there".into(), |(place, text)| format!("{place} '{text}'"));
        let declare = self.declare(column);
        let declare = declare.strip_suffix(',').map(|declare| format!(";{declare}")).unwrap_or_default();
        format!("column '{column}': not every value is one of {what}: {example}{declare}")
    }

    /// Number of rows without a value, if the column has the type `shape`.
    pub(super) fn missing_as(&self, shape: Shape) -> u64 {
        self.missing + if shape == Shape::Text { 0 } else { self.words }
    }
}
