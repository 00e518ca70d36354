//! Encodings of columns as feature columns, with the statistics that other data is encoded by.

use serde::{Deserialize, Serialize};

use super::{
    column::Cell,
    date::{DAY, age_of, year_of},
    profile::{Shape, canonical, parsed},
    rule::{ColumnRule, Kind, Missing, Part, Scale},
    stats::Stats,
    value::is_missing_word,
};

/// Encoding of a column, as stored in `preprocessing.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Encoding {
    /// A number.
    Number {
        /// Scaling of the number.
        scaling: Scaling,
        /// Value in place of a missing one, before scaling.
        fill: f64,
        /// True to add a column that is 1 where the value is missing.
        indicator: bool,
    },
    /// A truth value as 0 or 1.
    Boolean {
        /// Value in place of a missing one.
        fill: f64,
        /// True to add a column that is 1 where the value is missing.
        indicator: bool,
    },
    /// Parts of a date.
    Date {
        /// Parts, in the order of the columns.
        parts: Vec<Part>,
        /// Microseconds since 1970 of the last date of the training rows.
        last: i64,
        /// Mean and deviation of the age in days.
        age: [f64; 2],
        /// Mean and deviation of the year.
        year: [f64; 2],
        /// True to add a column that is 1 where the date is missing.
        indicator: bool,
    },
    /// A column of zeros and ones per value; all zero for a missing or unknown value.
    Category {
        /// Values, in the order of the columns.
        values: Vec<String>,
        /// Type of the values.
        of: Shape,
        /// True to add a column that is 1 where the value is missing.
        indicator: bool,
    },
    /// Number of the value, from 0; -1 for a missing or unknown value.
    Code {
        /// Values, in order.
        values: Vec<String>,
        /// Type of the values.
        of: Shape,
        /// True to add a column that is 1 where the value is missing.
        indicator: bool,
    },
    /// A list of numbers, unchanged; zeros if it is missing.
    Embedding {
        /// Length of the lists.
        width: usize,
        /// True to add a column that is 1 where the list is missing.
        indicator: bool,
    },
}

/// Scaling of a number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "scale", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Scaling {
    /// Unchanged.
    Raw,
    /// `(x - mean) / deviation`.
    Standard {
        /// Mean of the training rows.
        mean: f64,
        /// Deviation of the training rows; 1 for a constant column.
        deviation: f64,
    },
    /// Share of the training rows with a smaller value.
    Quantile {
        /// Quantiles of the training rows, ascending, at equal distances.
        quantiles: Vec<f64>,
    },
}

/// Kind of encoding before its statistics are known.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Planned {
    Number { scale: Scale, missing: Missing },
    Boolean { missing: Missing },
    Date { parts: Vec<Part>, missing: Missing },
    Category { values: Vec<String>, of: Shape, one_hot: bool, missing: Missing },
    Embedding { width: usize, missing: Missing },
}

/// Encoding of the column of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct EncodedColumn {
    /// Name of the column.
    pub(super) column: String,
    /// Encoding.
    #[serde(flatten)]
    pub(super) encoding: Encoding,
}

impl Planned {
    /// Encoding by the statistics of the training rows.
    pub(super) fn fit(&self, stats: &Stats) -> Encoding {
        let is = |missing: &Missing| *missing == Missing::Indicator;
        let fill = |missing: &Missing| if *missing == Missing::Zero { 0.0 } else { stats.mean() };
        match self {
            Self::Number { scale, missing } => {
                let scaling = match scale {
                    Scale::Raw => Scaling::Raw,
                    Scale::Standard => Scaling::Standard { mean: stats.mean(), deviation: stats.deviation() },
                    Scale::Quantile => Scaling::Quantile { quantiles: stats.quantiles() },
                };
                Encoding::Number { scaling, fill: fill(missing), indicator: is(missing) }
            }
            Self::Boolean { missing } => Encoding::Boolean { fill: fill(missing), indicator: is(missing) },
            Self::Date { parts, missing } => Encoding::Date {
                parts: parts.clone(),
                last: stats.last_time(),
                age: stats.age(),
                year: stats.year(),
                indicator: is(missing),
            },
            Self::Category { values, of, one_hot: true, missing } => {
                Encoding::Category { values: values.clone(), of: *of, indicator: is(missing) }
            }
            Self::Category { values, of, one_hot: false, missing } => {
                Encoding::Code { values: values.clone(), of: *of, indicator: is(missing) }
            }
            Self::Embedding { width, missing } => {
                Encoding::Embedding { width: *width, indicator: is(missing) }
            }
        }
    }

    /// Rule that gives this encoding.
    pub(super) fn rule(&self) -> ColumnRule {
        let mut rule = ColumnRule::default();
        let missing = match self {
            Self::Number { scale, missing } => {
                (rule.kind, rule.scale) = (Some(Kind::Number), Some(*scale));
                missing
            }
            Self::Boolean { missing } => {
                rule.kind = Some(Kind::Boolean);
                missing
            }
            Self::Date { parts, missing } => {
                (rule.kind, rule.parts) = (Some(Kind::Date), parts.clone());
                missing
            }
            Self::Category { one_hot, missing, .. } => {
                rule.kind = Some(if *one_hot { Kind::Category } else { Kind::Code });
                missing
            }
            Self::Embedding { missing, .. } => {
                rule.kind = Some(Kind::Embedding);
                missing
            }
        };
        rule.missing = (*missing != Missing::Mean).then_some(*missing);
        rule
    }

    /// Description for a person.
    pub(super) fn describe(&self) -> String {
        let missing = |missing: &Missing| match missing {
            Missing::Mean => "",
            Missing::Zero => ", missing as zero",
            Missing::Indicator => ", missing as a column",
        };
        match self {
            Self::Number { scale, missing: how } => {
                let scale = match scale {
                    Scale::Raw => "unscaled",
                    Scale::Standard => "standardized",
                    Scale::Quantile => "as quantile",
                };
                format!("number, {scale}{}", missing(how))
            }
            Self::Boolean { missing: how } => format!("truth value{}", missing(how)),
            Self::Date { parts, missing: how } => {
                let parts: Vec<&str> = parts.iter().map(|part| part.name()).collect();
                format!("date: {}{}", parts.join(", "), missing(how))
            }
            Self::Category { values, one_hot, missing: how, .. } => {
                let form = if *one_hot { "a column per value" } else { "as integer code" };
                format!("category of {} values, {form}{}", values.len(), missing(how))
            }
            Self::Embedding { width, missing: how } => {
                format!("list of {width} numbers, unchanged{}", missing(how))
            }
        }
    }
}

/// Number of columns of a date's part.
fn part_width(part: Part) -> usize {
    if matches!(part, Part::Age | Part::Year) { 1 } else { 2 }
}

impl EncodedColumn {
    /// Names of the feature columns.
    pub(super) fn names(&self) -> Vec<String> {
        let column = &self.column;
        let mut names = match &self.encoding {
            Encoding::Number { .. } | Encoding::Boolean { .. } | Encoding::Code { .. } => {
                vec![column.clone()]
            }
            Encoding::Date { parts, .. } => {
                let of = |part: &Part| match part_width(*part) {
                    1 => vec![format!("{column}.{}", part.name())],
                    _ => ["sin", "cos"].map(|f| format!("{column}.{}.{f}", part.name())).into(),
                };
                parts.iter().flat_map(of).collect()
            }
            Encoding::Category { values, .. } => {
                values.iter().map(|value| format!("{column}={value}")).collect()
            }
            Encoding::Embedding { width, .. } => (0..*width).map(|i| format!("{column}[{i}]")).collect(),
        };
        if self.encoding.indicator() {
            names.push(format!("{column}.missing"));
        }
        names
    }
}

impl Encoding {
    /// True if a column marks missing values.
    fn indicator(&self) -> bool {
        match self {
            Self::Number { indicator, .. }
            | Self::Boolean { indicator, .. }
            | Self::Date { indicator, .. }
            | Self::Category { indicator, .. }
            | Self::Code { indicator, .. }
            | Self::Embedding { indicator, .. } => *indicator,
        }
    }

    /// Marks a missing value, if the encoding has a column for it.
    fn mark(&self, missing: bool, out: &mut [f32]) {
        if self.indicator()
            && let Some(last) = out.last_mut()
        {
            *last = f32::from(u8::from(missing));
        }
    }

    /// Number of feature columns.
    pub(super) fn width(&self) -> usize {
        let width = match self {
            Self::Number { .. } | Self::Boolean { .. } | Self::Code { .. } => 1,
            Self::Date { parts, .. } => parts.iter().map(|&part| part_width(part)).sum(),
            Self::Category { values, .. } => values.len(),
            Self::Embedding { width, .. } => *width,
        };
        width + usize::from(self.indicator())
    }

    /// Writes the features of a value to `out` (`width`). Returns true if the value is unknown to
    /// the encoding. `list` is scratch.
    ///
    /// # Errors
    /// The value has another type.
    pub(super) fn encode(&self, given: Cell, list: &mut Vec<f64>, out: &mut [f32]) -> Result<bool, String> {
        if let Self::Category { values, of, .. } | Self::Code { values, of, .. } = self {
            let value = canonical(given, *of);
            let at = value.as_ref().and_then(|value| values.iter().position(|known| known == value));
            if matches!(self, Self::Code { .. }) {
                out[0] = at.map_or(-1.0, |at| at as f32);
            } else {
                out[..values.len()].fill(0.0);
                at.into_iter().for_each(|at| out[at] = 1.0);
            }
            self.mark(value.is_none(), out);
            return Ok(at.is_none() && value.is_some());
        }
        let missing = match given {
            Cell::Missing => true,
            Cell::Text(text) => text.trim().is_empty() || is_missing_word(text.trim()),
            _ => false,
        };
        self.mark(missing, out);
        let cell = parsed(given, list);
        let wrong = |noun: &str| Err(format!("'{}' is not {noun}", given.text()));
        match self {
            Self::Number { scaling, fill, .. } => {
                let x = match cell {
                    _ if missing => *fill,
                    Cell::Int(x) => x as f64,
                    Cell::Float(x) if x.is_finite() => x,
                    Cell::Bool(x) => f64::from(u8::from(x)),
                    _ => return wrong("a finite number"),
                };
                out[0] = scaling.apply(x) as f32;
                if !out[0].is_finite() {
                    return Err(format!("'{}' exceeds a 32-bit float", given.text()));
                }
            }
            Self::Boolean { fill, .. } => {
                out[0] = match cell {
                    _ if missing => *fill as f32,
                    Cell::Bool(x) => f32::from(u8::from(x)),
                    Cell::Int(x @ (0 | 1)) => x as f32,
                    Cell::Float(x) if x == 0.0 || x == 1.0 => x as f32,
                    _ => return wrong("a truth value"),
                }
            }
            Self::Date { parts, last, age, year, .. } => {
                let micros = match cell {
                    _ if missing => None,
                    Cell::Time(micros) => Some(micros),
                    _ => return wrong("a date"),
                };
                write_date(parts, micros, *last, *age, *year, out);
            }
            Self::Category { .. } | Self::Code { .. } => {}
            Self::Embedding { width, .. } => match cell {
                _ if missing => out[..*width].fill(0.0),
                Cell::List(values) if values.len() == *width => {
                    out.iter_mut().zip(values).for_each(|(out, &x)| *out = x as f32);
                    if let Some(i) = out[..*width].iter().position(|x| !x.is_finite()) {
                        return Err(format!("number {i} of the list is not a finite 32-bit float"));
                    }
                }
                Cell::List(values) => {
                    return Err(format!("a list of {} numbers, but the lists have {width}", values.len()));
                }
                _ => return wrong("a list of numbers"),
            },
        }
        Ok(false)
    }
}

impl Scaling {
    fn apply(&self, x: f64) -> f64 {
        match self {
            Self::Raw => x,
            Self::Standard { mean, deviation } => (x - mean) / deviation,
            Self::Quantile { quantiles } => {
                let last = quantiles.len().saturating_sub(1);
                let at = quantiles.partition_point(|&q| q < x);
                if at == 0 || last == 0 {
                    return 0.0;
                }
                if at > last {
                    return 1.0;
                }
                let (low, high) = (quantiles[at - 1], quantiles[at]);
                let share = if high > low { (x - low) / (high - low) } else { 0.0 };
                ((at - 1) as f64 + share) / last as f64
            }
        }
    }
}

/// Writes the parts of a date; a missing one has mean age and year, and no month, weekday or hour.
fn write_date(
    parts: &[Part],
    micros: Option<i64>,
    last: i64,
    age: [f64; 2],
    year: [f64; 2],
    out: &mut [f32],
) {
    let mut at = 0;
    for &part in parts {
        if part_width(part) == 1 {
            out[at] = micros.map_or(0.0, |micros| match part {
                Part::Age => (age_of(micros, last) - age[0]) / age[1],
                _ => (f64::from(year_of(micros)) - year[0]) / year[1],
            }) as f32;
            at += 1;
            continue;
        }
        let turn = micros.map(|micros| match part {
            Part::Month => f64::from(month_of(micros)) / 12.0,
            // Day 0 of 1970 was a Thursday.
            Part::Weekday => (micros.div_euclid(DAY) + 3).rem_euclid(7) as f64 / 7.0,
            _ => micros.rem_euclid(DAY) as f64 / DAY as f64,
        });
        let angle = turn.map(|turn| turn * std::f64::consts::TAU);
        out[at] = angle.map_or(0.0, f64::sin) as f32;
        out[at + 1] = angle.map_or(0.0, f64::cos) as f32;
        at += 2;
    }
}

/// Month of a time, from 0.
fn month_of(micros: i64) -> u32 {
    use chrono::Datelike;
    chrono::DateTime::from_timestamp_micros(micros).map_or(0, |time| time.month0())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features(encoding: &Encoding, cell: Cell) -> Vec<f32> {
        let mut out = vec![f32::NAN; encoding.width()];
        encoding.encode(cell, &mut Vec::new(), &mut out).unwrap();
        out
    }

    #[test]
    fn missing_numbers_are_filled_and_marked() {
        let scaling = Scaling::Standard { mean: 10.0, deviation: 2.0 };
        let number = Encoding::Number { scaling, fill: 10.0, indicator: true };
        assert_eq!(features(&number, Cell::Int(14)), [2.0, 0.0]);
        assert_eq!(features(&number, Cell::Missing), [0.0, 1.0]);
        assert_eq!(features(&number, Cell::Text("NA")), [0.0, 1.0]);
        let error = number.encode(Cell::Text("x"), &mut Vec::new(), &mut [0.0; 2]).unwrap_err();
        assert_eq!(error, "'x' is not a finite number");
        assert!(number.encode(Cell::Float(1e300), &mut Vec::new(), &mut [0.0; 2]).is_err());
    }

    #[test]
    fn quantiles_are_shares_of_the_training_rows() {
        let scaling = Scaling::Quantile { quantiles: vec![0.0, 1.0, 1.0, 5.0, 9.0] };
        for (x, share) in
            [(-1.0, 0.0), (0.0, 0.0), (0.5, 0.125), (1.0, 0.25), (3.0, 0.625), (9.0, 1.0), (10.0, 1.0)]
        {
            assert_eq!(scaling.apply(x), share, "{x}");
        }
    }

    #[test]
    fn categories_mark_unknown_values() {
        let values = vec!["a".to_string(), "b".to_string()];
        let category = Encoding::Category { values: values.clone(), of: Shape::Text, indicator: false };
        assert_eq!(features(&category, Cell::Text("b")), [0.0, 1.0]);
        let mut out = [9.0; 2];
        assert!(category.encode(Cell::Text("c"), &mut Vec::new(), &mut out).unwrap() && out == [0.0; 2]);
        let code = Encoding::Code { values, of: Shape::Text, indicator: true };
        assert_eq!(features(&code, Cell::Missing), [-1.0, 1.0]);
    }

    #[test]
    fn dates_have_ages_and_cycles() {
        let parts = vec![Part::Age, Part::Weekday, Part::Month];
        let date =
            Encoding::Date { parts, last: 10 * DAY, age: [4.0, 2.0], year: [0.0, 1.0], indicator: false };
        // Monday, 5 January 1970.
        let row = features(&date, Cell::Time(4 * DAY));
        assert_eq!(row, [1.0, 0.0, 1.0, 0.0, 1.0]);
        assert_eq!(features(&date, Cell::Missing), [0.0; 5]);
        let column = EncodedColumn { column: "d".into(), encoding: date };
        assert_eq!(column.names(), ["d.age", "d.weekday.sin", "d.weekday.cos", "d.month.sin", "d.month.cos"]);
    }
}
