//! Times of nodes and edges as integers.

use serde::{Deserialize, Serialize};

use super::{
    column::{Batch, Cell},
    faults::Faults,
    plan::ColumnLine,
    profile::{Profile, Shape, parsed},
    source::Table,
    value::is_missing_word,
};

/// Position and unit of the time column `column` of `table`, whose unit is `known` from another
/// dataset or found from its values. A fault is added if it does not hold times.
pub(super) fn column(
    column: &str,
    table: &Table,
    profiles: &[Profile],
    known: Option<TimeUnit>,
    faults: &mut Faults,
) -> Option<(usize, TimeUnit)> {
    let c = faults.take(&table.name(), table.position(column))?;
    match known.or_else(|| TimeUnit::of(&profiles[c])) {
        Some(unit) => Some((c, unit)),
        None => {
            faults.add(&table.name(), profiles[c].not_all(column, "dates or numbers"));
            None
        }
    }
}

/// Time of a row in a column with a unit; `None` if it is missing or a fault, which is added.
pub(super) fn read(
    (c, unit): (usize, TimeUnit),
    table: &Table,
    batch: &Batch,
    row: usize,
    faults: &mut Faults,
) -> Option<i64> {
    match unit.read(batch.columns[c].get(row), &mut Vec::new()) {
        Ok(time) => time,
        Err(why) => {
            let column = &table.columns[c];
            faults.add(&table.file(batch), format!("{}: column '{column}': {why}", batch.places.of(row)));
            None
        }
    }
}

/// Column of times.
pub(super) struct TimeColumn<'a> {
    /// Name, and that of the table.
    place: String,
    unit: &'a mut TimeUnit,
    /// True for dates, false for numbers.
    is_date: bool,
    /// Its line in reports, if the line has the unit.
    line: Option<&'a mut ColumnLine>,
}

impl<'a> TimeColumn<'a> {
    /// Creates the column `time` of `table`, whose roles are `lines`; `None` without profiles.
    pub(super) fn new(
        table: &Table,
        profiles: &[Profile],
        (c, unit): &'a mut (usize, TimeUnit),
        lines: &'a mut [ColumnLine],
    ) -> Option<Self> {
        let place = format!("column '{}' of {}", table.columns[*c], table.name());
        let is_date = profiles.get(*c)?.shape()?.0 == Shape::Time;
        let line = lines.get_mut(*c).filter(|line| line.becomes == unit.describe());
        Some(Self { place, unit, is_date, line })
    }
}

/// Gives all columns of times the finest of their units, because times are compared. Adds a fault
/// if some hold dates and others numbers.
pub(super) fn agree(columns: Vec<TimeColumn>, faults: &mut Faults) {
    let first = |is_date| columns.iter().find(|column| column.is_date == is_date);
    if let (Some(dates), Some(numbers)) = (first(true), first(false)) {
        faults.add(
            &dates.place,
            format!(
                "it holds dates, but {} holds numbers, and times are compared; write both as dates, or both \
                 as numbers of one unit",
                numbers.place
            ),
        );
        return;
    }
    if columns.iter().any(|column| *column.unit == TimeUnit::Microseconds) {
        for column in columns {
            *column.unit = TimeUnit::Microseconds;
            if let Some(line) = column.line {
                line.becomes = column.unit.describe().into();
            }
        }
    }
}

/// Unit of the times of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum TimeUnit {
    /// Integers, as the table has them.
    Integer,
    /// Seconds since 1970, UTC.
    Seconds,
    /// Microseconds since 1970, UTC: if a time has a part of a second.
    Microseconds,
}

impl TimeUnit {
    /// Unit of a column; `None` if it does not hold times.
    pub(super) fn of(profile: &Profile) -> Option<Self> {
        Some(match profile.shape()? {
            (Shape::Time, 0) if profile.has_part_seconds => Self::Microseconds,
            (Shape::Time, 0) => Self::Seconds,
            (Shape::Number, 0) if profile.has_fractions => Self::Microseconds,
            (Shape::Number, 0) => Self::Integer,
            _ => return None,
        })
    }

    /// Name in reports.
    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::Integer => "time, integers as they are",
            Self::Seconds => "time, seconds since 1970",
            Self::Microseconds => "time, microseconds since 1970",
        }
    }

    /// Time of a cell; `None` if it is missing.
    ///
    /// # Errors
    /// The cell is not a time.
    pub(super) fn read(self, cell: Cell, list: &mut Vec<f64>) -> Result<Option<i64>, String> {
        if let Cell::Text(text) = cell
            && (text.trim().is_empty() || is_missing_word(text.trim()))
        {
            return Ok(None);
        }
        let time = match (parsed(cell, list), self) {
            (Cell::Missing, _) => return Ok(None),
            (Cell::Int(time), Self::Integer | Self::Seconds) => Some(time),
            (Cell::Int(time), Self::Microseconds) => time.checked_mul(1_000_000),
            (Cell::Float(time), Self::Integer | Self::Seconds) => super::column::integral(time),
            (Cell::Float(time), Self::Microseconds) => super::column::integral((time * 1e6).round()),
            (Cell::Time(micros), Self::Microseconds) => Some(micros),
            (Cell::Time(micros), _) if micros % 1_000_000 == 0 => Some(micros / 1_000_000),
            _ => None,
        };
        let time = time.ok_or_else(|| format!("'{}' is not a time in {}", cell.text(), self.describe()))?;
        Ok(Some(time))
    }
}
