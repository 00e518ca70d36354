//! Times of nodes and edges as integers.

use serde::{Deserialize, Serialize};

use super::{
    column::Cell,
    profile::{Profile, Shape, parsed},
    value::is_missing_word,
};

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
