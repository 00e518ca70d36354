//! Columns that determine the label: an encoder reads them at training, and a prediction knows
//! them as little as the label.
//!
//! # Algorithm
//! The labelled rows of a table are counted by column, in the pass that reads the labels:
//!
//! - values: the rows of each pair of a value and a class. A value of at least [`SUPPORT`] rows
//!   implies the class that most of them have. The column determines the label if that holds for
//!   [`NEARLY`] of the labelled rows, and [`OF_CLASS`] of the rows of every class, so that one
//!   frequent class is not enough. A missing value counts as a value, a key has too few rows of
//!   each. For numbers as labels, the variance within the values takes the place of the classes.
//! - presence: the same for whether there is a value, as of a date of what is to be predicted.
//! - ranges: numbers of different classes that do not overlap; for numbers as labels, those on one
//!   line with the label (r² of at least [`OF_VARIANCE`]).
//! - later dates: dates after the time of their row, in at least [`LATER`] of the rows with both.
//!
//! # Source
//! Own; the kinds of leaks are those of Kaufman, Rosset, Perlich, Stitelman: "Leakage in Data
//! Mining: Formulation, Detection, and Avoidance", TKDD 6(4), 2012.
//!
//! # Cost
//! A hash of each value of a labelled row.
//!
//! # Memory
//! At most [`ALL_PAIRS`] pairs of a value and a class of all columns and labels, divided evenly
//! among them, and at most [`MAX_PAIRS`] for each. A column with more, and one of lists, is not
//! compared by its values; its counts are exact otherwise. Values are compared by a hash of 64
//! bits.
#![forbid(unsafe_code)]

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use rayon::prelude::*;

use super::{
    column::{Batch, Cell},
    leak::{Leak, LeakKind},
    moments::Moments,
    plan::PlannedTarget,
    profile::parsed,
    source::Table,
    targets::{Label, RowInfo, TargetPlan},
    times::TimeUnit,
    value::is_missing_word,
};

/// Pairs of a value and a class that are counted for a column and a label.
const MAX_PAIRS: usize = 1 << 16;
/// Pairs that are counted for all columns and labels.
const ALL_PAIRS: usize = 1 << 22;
/// Rows that a value needs, and a class.
const SUPPORT: u64 = 10;
/// Share of the labelled rows that a column implies.
const NEARLY: f64 = 0.99;
/// Share of the rows of each class.
const OF_CLASS: f64 = 0.9;
/// Share of the variance of the label.
const OF_VARIANCE: f64 = 0.999;
/// Share of the rows whose date is later than their time.
const LATER: f64 = 0.05;
/// Labelled rows without which nothing is reported.
const FEW: u64 = 30;

/// Column that is examined.
struct Examined {
    /// Position in the table.
    position: usize,
    name: String,
    /// Option that leaves it out.
    remedy: String,
}

/// Search for leaks among columns of a table.
pub(super) struct LeakSearch {
    /// Columns, with counts for each label.
    columns: Vec<(Examined, Vec<Counts>)>,
    /// Name of each label.
    labels: Vec<String>,
    /// Column of the time of a row.
    time: Option<usize>,
}

impl LeakSearch {
    /// Creates the search for those of `columns` that determine a label of `targets`, or are later
    /// than the column `time` or that of the split. A column is its position in `table` and the
    /// option that leaves it out. `None` without columns or labels.
    pub(super) fn new(
        table: &Table,
        columns: impl IntoIterator<Item = (usize, String)>,
        targets: &TargetPlan,
        time: Option<(usize, TimeUnit)>,
    ) -> Option<Self> {
        let (_, planned) = targets.target.as_ref()?;
        let labels = &targets.names;
        let columns: Vec<(usize, String)> = columns.into_iter().collect();
        let limit = MAX_PAIRS.min(ALL_PAIRS / (columns.len() * labels.len()).max(1));
        let of_label = |k: usize| match planned {
            PlannedTarget::Classes(columns) => Counts::of_classes(columns[k].names.len(), limit),
            PlannedTarget::Values => Counts::of_values(limit),
        };
        let columns = columns.into_iter().map(|(position, remedy)| {
            let name = table.columns[position].clone();
            (Examined { position, name, remedy }, (0..labels.len()).map(of_label).collect())
        });
        let columns: Vec<(Examined, Vec<Counts>)> = columns.collect();
        let time = time.map(|(c, _)| c).or(targets.split_time());
        (!columns.is_empty()).then(|| Self { columns, labels: labels.clone(), time })
    }

    /// Adds rows of a batch, whose targets are the last of `info`.
    pub(super) fn add(&mut self, batch: &Batch, rows: &[usize], info: &RowInfo) {
        let width = self.labels.len();
        let first = info.targets(width) - rows.len();
        let time = self.time;
        self.columns.par_iter_mut().for_each(|(Examined { position, .. }, counts)| {
            let c = *position;
            let mut list = Vec::new();
            for (i, &row) in rows.iter().enumerate() {
                let of_row = |k: usize| info.label(first + i, (k, width));
                if (0..counts.len()).all(|k| of_row(k).is_none()) {
                    continue;
                }
                list.clear();
                let cell = match parsed(batch.columns[c].get(row), &mut list) {
                    Cell::Text(text) if is_missing_word(text.trim()) => Cell::Missing,
                    cell => cell,
                };
                let is_later = time.filter(|&time| time != c).and_then(|time| {
                    let time = parsed(batch.columns[time].get(row), &mut Vec::new()).time()?;
                    Some(cell.time()? > time)
                });
                let is_compared = counts.iter().any(Counts::compares_values);
                let is_list = matches!(cell, Cell::List(_));
                let key = (is_compared && !is_list).then(|| key_of(cell));
                for (k, counts) in counts.iter_mut().enumerate() {
                    if let Some(label) = of_row(k) {
                        counts.add((cell, key), label, is_later);
                    }
                }
            }
        });
    }

    /// Columns that determine a label, with the strongest reason for each.
    pub(super) fn finish(self) -> Vec<Leak> {
        let mut leaks = Vec::new();
        for (Examined { name, remedy, .. }, counts) in self.columns {
            let mut is_later = false;
            for (label, counts) in self.labels.iter().zip(counts) {
                // dates do not depend on the label, so that one leak says it
                let found = counts
                    .find()
                    .filter(|(by, ..)| *by != LeakKind::Later || !std::mem::replace(&mut is_later, true));
                leaks.extend(found.map(|(by, share, support)| Leak {
                    column: name.clone(),
                    label: label.clone(),
                    by,
                    share,
                    rows: counts.rows,
                    support,
                    remedy: remedy.clone(),
                }));
            }
        }
        leaks
    }
}

/// Counts of a column for one label.
#[derive(Clone, Debug, Default)]
struct Counts {
    /// Labelled rows, and those whose value is missing.
    rows: u64,
    missing: u64,
    /// Rows with a date and a time, and those with a later date.
    dated: u64,
    later: u64,
    /// Pairs of a value and a class that are counted.
    limit: usize,
    of: Labels,
}

/// Counts by the kind of the label.
#[derive(Clone, Debug)]
enum Labels {
    Classes {
        /// Rows of each pair of a value and a class; `None` if they are too many.
        pairs: Option<HashMap<(u64, i32), u64>>,
        /// Rows of each class without and with a value.
        presence: Vec<[u64; 2]>,
        /// Least and greatest number of each class; `None` if a value is not a number.
        ranges: Option<Vec<[f64; 2]>>,
    },
    Values {
        /// Moments of the label by value; `None` if they are too many.
        groups: Option<HashMap<u64, Moments>>,
        /// Moments of numbers and label; `None` if a value is not a number.
        line: Option<Line>,
    },
}

impl Default for Labels {
    fn default() -> Self {
        Self::Values { groups: None, line: None }
    }
}

/// Moments of pairs of numbers.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    x: Moments,
    y: Moments,
    products: f64,
    /// Rows of the least and the greatest first number, which the moments leave out.
    ends: [Option<(f64, f64)>; 2],
}

impl Line {
    /// Number of rows.
    fn rows(&self) -> u64 {
        self.x.count + self.ends.iter().flatten().count() as u64
    }

    fn add(&mut self, x: f64, y: f64) {
        let mut row = Some((x, y));
        let [least, most] = &mut self.ends;
        if least.is_none_or(|(least, _)| x < least) {
            std::mem::swap(least, &mut row);
        }
        if let Some((x, _)) = row
            && most.is_none_or(|(most, _)| x > most)
        {
            std::mem::swap(most, &mut row);
        }
        if let Some((x, y)) = row {
            self.push(x, y);
        }
    }

    /// Adds a row to the moments.
    fn push(&mut self, x: f64, y: f64) {
        let difference = x - self.x.mean;
        self.x.add(x);
        self.y.add(y);
        self.products += difference * (y - self.y.mean);
    }

    /// Share of the variance of the second number that the first one gives: the lesser one of that
    /// of all rows and that without the ends, since a single row far away gives nearly all.
    fn share(&self) -> f64 {
        let mut all = *self;
        self.ends.iter().flatten().for_each(|&(x, y)| all.push(x, y));
        self.of_moments().min(all.of_moments())
    }

    /// The share of the rows of the moments.
    fn of_moments(&self) -> f64 {
        let variances = self.x.squares * self.y.squares;
        if variances > 0.0 { self.products * self.products / variances } else { 0.0 }
    }
}

impl Counts {
    fn of_classes(count: usize, limit: usize) -> Self {
        let (pairs, presence) = (Some(HashMap::new()), vec![[0; 2]; count]);
        let ranges = Some(vec![[f64::INFINITY, f64::NEG_INFINITY]; count]);
        Self { limit, of: Labels::Classes { pairs, presence, ranges }, ..Self::default() }
    }

    fn of_values(limit: usize) -> Self {
        let (groups, line) = (Some(HashMap::new()), Some(Line::default()));
        Self { limit, of: Labels::Values { groups, line }, ..Self::default() }
    }

    /// Returns true if the values are compared: they are not too many so far.
    fn compares_values(&self) -> bool {
        match &self.of {
            Labels::Classes { pairs, .. } => pairs.is_some(),
            Labels::Values { groups, .. } => groups.is_some(),
        }
    }

    /// Adds a row of this value with its hash; without one the values are not compared.
    fn add(&mut self, (cell, key): (Cell, Option<u64>), label: Label, is_later: Option<bool>) {
        self.rows += 1;
        self.missing += u64::from(cell == Cell::Missing);
        self.dated += u64::from(is_later.is_some());
        self.later += u64::from(is_later == Some(true));
        let number = number_of(cell);
        match (&mut self.of, label) {
            (Labels::Classes { pairs, presence, ranges }, Label::Class(class)) => {
                let Some(of_class) = presence.get_mut(class as usize) else { return };
                of_class[usize::from(cell != Cell::Missing)] += 1;
                if let (Some(counts), Some(key)) = (pairs.as_mut(), key) {
                    *counts.entry((key, class)).or_default() += 1;
                }
                if key.is_none() || pairs.as_ref().is_some_and(|counts| counts.len() > self.limit) {
                    *pairs = None;
                }
                match (ranges.as_mut(), number) {
                    (Some(ranges), Some(x)) => {
                        let [least, most] = &mut ranges[class as usize];
                        (*least, *most) = (least.min(x), most.max(x));
                    }
                    _ if cell == Cell::Missing => {}
                    _ => *ranges = None,
                }
            }
            (Labels::Values { groups, line }, Label::Value(y)) => {
                if let (Some(of_values), Some(key)) = (groups.as_mut(), key) {
                    of_values.entry(key).or_default().add(y);
                }
                if key.is_none() || groups.as_ref().is_some_and(|groups| groups.len() > self.limit) {
                    *groups = None;
                }
                match (line.as_mut(), number) {
                    (Some(line), Some(x)) => line.add(x, y),
                    _ if cell == Cell::Missing => {}
                    _ => *line = None,
                }
            }
            _ => {}
        }
    }

    /// Reason for which the column determines the label, the share of the rows, and the support.
    fn find(&self) -> Option<(LeakKind, f64, u64)> {
        if self.rows < FEW {
            return None;
        }
        let found = match &self.of {
            Labels::Classes { pairs, presence, ranges } => {
                let rarest = presence.iter().map(|[a, b]| a + b).filter(|&rows| rows > 0).min().unwrap_or(0);
                let by_presence = presence.iter().enumerate().flat_map(|(class, rows)| {
                    rows.iter().enumerate().map(move |(has, &rows)| ((has as u64, class as i32), rows))
                });
                let share = |share: Option<(f64, u64)>| share.filter(|(share, _)| *share >= NEARLY);
                let of_values =
                    || share(self.implied(pairs.as_ref()?.iter().map(|(of, rows)| (*of, *rows)), presence));
                let of_presence = || share(self.implied(by_presence, presence));
                let of_ranges = || share(Some((self.apart(ranges.as_ref()?, presence)?, rarest)));
                // that a value is missing is a value, and the more telling reason
                of_presence()
                    .map(|(share, _)| (LeakKind::Presence, share, rarest))
                    .or_else(|| of_values().map(|(share, support)| (LeakKind::Values, share, support)))
                    .or_else(|| of_ranges().map(|(share, support)| (LeakKind::Ranges, share, support)))
            }
            Labels::Values { groups, line } => {
                let of_line = line.filter(|line| line.rows() as f64 >= NEARLY * self.rows as f64);
                let of_line = of_line.map(|line| line.share()).filter(|&share| share >= OF_VARIANCE);
                let of_values = || self.explained(groups.as_ref()?);
                of_line
                    .map(|share| (LeakKind::Line, share, self.rows))
                    .or_else(|| of_values().map(|(share, support)| (LeakKind::Values, share, support)))
            }
        };
        let later = || {
            let share = self.later as f64 / self.dated.max(1) as f64;
            (self.later >= SUPPORT && share >= LATER).then_some((LeakKind::Later, share, self.later))
        };
        found.or_else(later)
    }

    /// Share of the labelled rows whose class their value implies, and the rows of the rarest of
    /// these values. `None` if it implies few rows of a class.
    fn implied(
        &self,
        pairs: impl Iterator<Item = ((u64, i32), u64)>,
        presence: &[[u64; 2]],
    ) -> Option<(f64, u64)> {
        // rows of each value, and its class with most rows, the first of several
        let mut values: HashMap<u64, (u64, u64, i32)> = HashMap::new();
        for ((value, class), rows) in pairs.filter(|(_, rows)| *rows > 0) {
            let (all, most, of) = values.entry(value).or_insert((0, 0, class));
            *all += rows;
            if rows > *most || (rows == *most && class < *of) {
                (*most, *of) = (rows, class);
            }
        }
        let mut of_class = vec![0; presence.len()];
        let mut support = u64::MAX;
        for (all, most, class) in values.into_values().filter(|(all, ..)| *all >= SUPPORT) {
            of_class[class as usize] += most;
            support = support.min(all);
        }
        let classes = presence.iter().map(|[a, b]| a + b).zip(&of_class).filter(|(rows, _)| *rows > 0);
        let mut frequent = 0;
        for (rows, implied) in classes.filter(|(rows, _)| *rows >= SUPPORT) {
            if (*implied as f64) < OF_CLASS * rows as f64 {
                return None;
            }
            frequent += 1;
        }
        let share = of_class.iter().sum::<u64>() as f64 / self.rows as f64;
        (frequent >= 2).then_some((share, support))
    }

    /// Share of the labelled rows with a number, if the numbers of the classes do not overlap.
    fn apart(&self, ranges: &[[f64; 2]], presence: &[[u64; 2]]) -> Option<f64> {
        let mut found: Vec<[f64; 2]> = ranges.iter().copied().filter(|[least, most]| least <= most).collect();
        found.sort_by(|a, b| a[0].total_cmp(&b[0]));
        let is_apart = found.windows(2).all(|pair| pair[0][1] < pair[1][0]);
        // few rows of a class lie apart by chance
        let is_frequent = presence.iter().all(|[none, some]| none + some == 0 || *some >= SUPPORT);
        let share = (self.rows - self.missing) as f64 / self.rows as f64;
        (is_apart && is_frequent && found.len() >= 2).then_some(share)
    }

    /// Share of the rows whose value has enough rows, if the label hardly varies within the values,
    /// and the rows of the rarest of these values.
    fn explained(&self, groups: &HashMap<u64, Moments>) -> Option<(f64, u64)> {
        let mut frequent: Vec<&Moments> = groups.values().filter(|of| of.count >= SUPPORT).collect();
        // sums have one order
        frequent.sort_by_key(|of| (of.count, of.mean.to_bits(), of.squares.to_bits()));
        let rows: u64 = frequent.iter().map(|of| of.count).sum();
        let within: f64 = frequent.iter().map(|of| of.squares).sum();
        let mut all = Moments::default();
        frequent.iter().for_each(|of| all.merge(of));
        let share = rows as f64 / self.rows as f64;
        let is_explained = all.squares > 0.0 && within <= (1.0 - OF_VARIANCE) * all.squares;
        let support = frequent.first().map_or(0, |of| of.count);
        (is_explained && frequent.len() >= 2 && share >= NEARLY).then_some((share, support))
    }
}

/// Hash of a value; numbers by value.
fn key_of(cell: Cell) -> u64 {
    let mut hasher = DefaultHasher::new();
    match cell {
        Cell::Missing => 0u8.hash(&mut hasher),
        Cell::Text(text) => (1u8, text.trim()).hash(&mut hasher),
        Cell::Time(micros) => (2u8, micros).hash(&mut hasher),
        number => (3u8, number_of(number).unwrap_or_default().to_bits()).hash(&mut hasher),
    }
    hasher.finish()
}

/// Number of a value; `None` if it is not one.
fn number_of(cell: Cell) -> Option<f64> {
    match cell {
        Cell::Int(x) => Some(x as f64),
        Cell::Float(x) => Some(x).filter(|x| x.is_finite()),
        Cell::Bool(x) => Some(f64::from(u8::from(x))),
        _ => None,
    }
}
