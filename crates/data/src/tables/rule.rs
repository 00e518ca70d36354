//! Treatment of a column, in words: `number, quantile, indicator`.

use std::{fmt, str::FromStr};

use graphmill_core::{Error, Result};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Kinds of columns.
const KINDS: &[(&str, Kind)] = &[
    ("number", Kind::Number),
    ("boolean", Kind::Boolean),
    ("date", Kind::Date),
    ("category", Kind::Category),
    ("code", Kind::Code),
    ("embedding", Kind::Embedding),
    ("ignore", Kind::Ignore),
];
const SCALES: &[(&str, Scale)] =
    &[("standard", Scale::Standard), ("quantile", Scale::Quantile), ("raw", Scale::Raw)];
const MISSING: &[(&str, Missing)] =
    &[("mean", Missing::Mean), ("zero", Missing::Zero), ("indicator", Missing::Indicator)];
const PARTS: &[(&str, Part)] = &[
    ("age", Part::Age),
    ("year", Part::Year),
    ("month", Part::Month),
    ("weekday", Part::Weekday),
    ("hour", Part::Hour),
];

/// Kind of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number, scaled.
    Number,
    /// 0 or 1.
    Boolean,
    /// Parts of a date.
    Date,
    /// A column of zeros and ones per value.
    Category,
    /// The number of the value in the order of the values.
    Code,
    /// A list of numbers, unchanged.
    Embedding,
    /// Not read.
    Ignore,
}

/// Scaling of numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Mean 0 and deviation 1 over the training rows.
    #[default]
    Standard,
    /// Share of the training rows with a smaller value, from 0 to 1.
    Quantile,
    /// No scaling.
    Raw,
}

/// Treatment of missing values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Missing {
    /// The mean of the training rows.
    #[default]
    Mean,
    /// Zero, before scaling.
    Zero,
    /// The mean, and a column that is 1 where the value is missing.
    Indicator,
}

/// Part of a date.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// Days before the last date of the training rows, standardized.
    Age,
    /// Year, standardized.
    Year,
    /// Month, as sine and cosine.
    Month,
    /// Day of the week, as sine and cosine.
    Weekday,
    /// Time of the day, as sine and cosine.
    Hour,
}

/// Treatment of a column; parts that are missing are inferred or have their default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnRule {
    /// Kind of the column.
    pub kind: Option<Kind>,
    /// Scaling of numbers.
    pub scale: Option<Scale>,
    /// Treatment of missing values.
    pub missing: Option<Missing>,
    /// Parts of a date.
    pub parts: Vec<Part>,
}

fn word<T: Copy>(table: &[(&str, T)], word: &str) -> Option<T> {
    table.iter().find(|(name, _)| *name == word).map(|(_, value)| *value)
}

fn name<T: Copy + PartialEq>(table: &[(&'static str, T)], value: T) -> &'static str {
    table.iter().find(|(_, known)| *known == value).map_or("", |(name, _)| name)
}

impl FromStr for ColumnRule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut rule = Self::default();
        let wrong = |why: String| Error::invalid(format!("'{text}': {why}"));
        for given in text.split([',', ' ']).filter(|word| !word.is_empty()) {
            let fresh = if let Some(kind) = word(KINDS, given) {
                rule.kind.replace(kind).is_none()
            } else if let Some(scale) = word(SCALES, given) {
                rule.scale.replace(scale).is_none()
            } else if let Some(missing) = word(MISSING, given) {
                rule.missing.replace(missing).is_none()
            } else if let Some(part) = word(PARTS, given) {
                rule.parts.push(part);
                !rule.parts[..rule.parts.len() - 1].contains(&part)
            } else {
                let words = |names: Vec<&str>| names.join(", ");
                return Err(wrong(format!(
                    "unknown word '{given}'; write a kind ({}), a scale of numbers ({}), a treatment of \
                     missing values ({}) or parts of dates ({})",
                    words(KINDS.iter().map(|(name, _)| *name).collect()),
                    words(SCALES.iter().map(|(name, _)| *name).collect()),
                    words(MISSING.iter().map(|(name, _)| *name).collect()),
                    words(PARTS.iter().map(|(name, _)| *name).collect()),
                )));
            };
            if !fresh {
                return Err(wrong(format!("'{given}' is a second word of its kind; leave out one")));
            }
        }
        let is = |kinds: &[Kind]| rule.kind.is_none_or(|kind| kinds.contains(&kind));
        if rule.scale.is_some() && !is(&[Kind::Number]) {
            return Err(wrong("only numbers are scaled; leave out the scale".into()));
        }
        if !rule.parts.is_empty() && !is(&[Kind::Date]) {
            return Err(wrong("only dates have parts; leave them out".into()));
        }
        Ok(rule)
    }
}

impl fmt::Display for ColumnRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        words.extend(self.kind.map(|kind| name(KINDS, kind)));
        words.extend(self.scale.map(|scale| name(SCALES, scale)));
        words.extend(self.parts.iter().map(|&part| name(PARTS, part)));
        words.extend(self.missing.map(|missing| name(MISSING, missing)));
        f.write_str(&words.join(", "))
    }
}

impl FromStr for Missing {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        word(MISSING, text).ok_or_else(|| Error::Unknown {
            axis: "treatment of missing values",
            name: text.into(),
            known: MISSING.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
        })
    }
}

impl Part {
    /// Name of the part.
    pub(super) fn name(self) -> &'static str {
        name(PARTS, self)
    }
}

impl Serialize for ColumnRule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ColumnRule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|e: Error| serde::de::Error::custom(e.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_parse_and_format() {
        for text in
            ["number, quantile, indicator", "date, age, month", "category, zero", "ignore", "quantile", ""]
        {
            let rule: ColumnRule = text.parse().unwrap();
            assert_eq!(rule.to_string(), text);
        }
        for (text, why) in [
            ("numbers", "unknown word 'numbers'"),
            ("number category", "'category' is a second word"),
            ("category quantile", "only numbers are scaled"),
            ("number, month", "only dates have parts"),
            ("age, age", "'age' is a second word"),
        ] {
            let error = text.parse::<ColumnRule>().unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
