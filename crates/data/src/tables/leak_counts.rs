//! Counts of a column for one label, by which the column determines it.
//!
//! # Algorithm
//! The labelled rows are counted by value and class. They belong to subjects: a row of its own, or
//! the node whose targets the rows are. A value counts if it has [`SUPPORT`] subjects, so that many
//! targets of a few nodes prove nothing.
//!
//! # Source
//! Own, as the search of [`super::leaks`].
//!
//! # Cost
//! A look-up for each labelled row.
//!
//! # Memory
//! At most `limit` pairs of a value and a class.
#![forbid(unsafe_code)]

use std::hash::{DefaultHasher, Hash, Hasher};

use rustc_hash::FxHashMap;

use super::{column::Cell, leak::LeakKind, moments::Moments, targets::Label};

/// Rows that a value needs, and a class; if nodes have several rows, nodes.
const SUPPORT: u64 = 10;
/// Share of the labelled rows that a column implies.
const NEARLY: f64 = 0.99;
/// Share of the rows of each class.
const OF_CLASS: f64 = 0.9;
/// Share of the variance of the label.
const OF_VARIANCE: f64 = 0.999;
/// Share of the rows whose date is later than their time.
const LATER: f64 = 0.05;
/// Labelled rows, or nodes with some, without which nothing is reported.
const FEW: u64 = 30;

/// Counts of a column for one label.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// Labelled rows, and those whose value is missing.
    pub(super) rows: u64,
    missing: u64,
    /// Subjects with a labelled row.
    subjects: u64,
    /// Rows with a date and a time, and those with a later date.
    dated: u64,
    later: Tally,
    /// Pairs of a value and a class that are counted.
    limit: usize,
    of: Labels,
}

/// Number of rows, and of their subjects.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    rows: u32,
    subjects: u32,
}

impl Tally {
    /// Adds a row, which is the first of its subject if `is_first`. Tables of more rows than 32
    /// bits count are refused.
    fn add(&mut self, is_first: bool) {
        self.rows = self.rows.saturating_add(1);
        self.subjects = self.subjects.saturating_add(is_first.into());
    }

    fn rows(self) -> u64 {
        self.rows.into()
    }

    /// Returns true if there are enough subjects.
    fn is_frequent(self) -> bool {
        u64::from(self.subjects) >= SUPPORT
    }
}

/// Counts by the kind of the label.
#[derive(Clone, Debug)]
enum Labels {
    Classes {
        /// Rows of each pair of a value and a class; `None` if they are too many.
        pairs: Option<FxHashMap<(u64, i32), Tally>>,
        /// Rows of each class without and with a value.
        presence: Vec<[Tally; 2]>,
        /// Least and greatest number of each class; `None` if a value is not a number.
        ranges: Option<Vec<[f64; 2]>>,
    },
    Values {
        /// Moments of the label by value, and their subjects; `None` if they are too many.
        groups: Option<FxHashMap<u64, (Moments, u64)>>,
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
    /// Rows of the subjects with the least and the greatest first number, which the moments leave
    /// out.
    ends: [Option<(f64, Moments)>; 2],
}

impl Line {
    /// Number of rows.
    fn rows(&self) -> u64 {
        self.x.count + self.ends.iter().flatten().map(|(_, y)| y.count).sum::<u64>()
    }

    /// Adds the rows of a subject, whose first number is `x`.
    fn add(&mut self, x: f64, y: Moments) {
        let mut rows = Some((x, y));
        let [least, most] = &mut self.ends;
        if least.is_none_or(|(least, _)| x < least) {
            std::mem::swap(least, &mut rows);
        }
        if let Some((x, _)) = rows
            && most.is_none_or(|(most, _)| x > most)
        {
            std::mem::swap(most, &mut rows);
        }
        if let Some((x, y)) = rows {
            self.push(x, &y);
        }
    }

    /// Adds rows to the moments.
    fn push(&mut self, x: f64, y: &Moments) {
        let (a, b) = (self.x.count as f64, y.count as f64);
        self.products += (x - self.x.mean) * (y.mean - self.y.mean) * a * b / (a + b);
        self.x.merge(&Moments { count: y.count, mean: x, squares: 0.0 });
        self.y.merge(y);
    }

    /// Share of the variance of the second number that the first one gives: the lesser one of that
    /// of all rows and that without the ends, since a single row far away gives nearly all.
    fn share(&self) -> f64 {
        let mut all = *self;
        self.ends.iter().flatten().for_each(|(x, y)| all.push(*x, y));
        self.of_moments().min(all.of_moments())
    }

    /// The share of the rows of the moments.
    fn of_moments(&self) -> f64 {
        let variances = self.x.squares * self.y.squares;
        if variances > 0.0 { self.products * self.products / variances } else { 0.0 }
    }
}

impl Counts {
    /// Creates the counts for a label of `classes` classes, or of numbers, which count at most
    /// `limit` pairs.
    pub(super) fn new(classes: Option<usize>, limit: usize) -> Self {
        let of = match classes {
            Some(count) => Labels::Classes {
                pairs: Some(FxHashMap::default()),
                presence: vec![[Tally::default(); 2]; count],
                ranges: Some(vec![[f64::INFINITY, f64::NEG_INFINITY]; count]),
            },
            None => Labels::Values { groups: Some(FxHashMap::default()), line: Some(Line::default()) },
        };
        Self { limit, of, ..Self::default() }
    }

    /// Returns true if the values are compared: they are not too many so far.
    pub(super) fn compares_values(&self) -> bool {
        match &self.of {
            Labels::Classes { pairs, .. } => pairs.is_some(),
            Labels::Values { groups, .. } => groups.is_some(),
        }
    }

    /// Adds the rows of a subject with this value and its hash, without which the values are not
    /// compared: labels, and true if the value is later than the time of the row.
    pub(super) fn add(
        &mut self,
        (cell, key): (Cell, Option<u64>),
        rows: impl Iterator<Item = (Label, Option<bool>)>,
    ) {
        let (before, dated_later) = (self.rows, self.later.rows);
        let (mut seen, mut values) = (Vec::new(), Moments::default());
        for (label, is_later) in rows {
            self.rows += 1;
            self.missing += u64::from(cell == Cell::Missing);
            self.dated += u64::from(is_later.is_some());
            if is_later == Some(true) {
                self.later.add(self.later.rows == dated_later);
            }
            match label {
                Label::Class(class) => {
                    let is_first = !seen.contains(&class);
                    if is_first {
                        seen.push(class);
                    }
                    self.add_class((cell, key), class, is_first);
                }
                Label::Value(y) => values.add(y),
            }
        }
        self.subjects += u64::from(self.rows > before);
        if values.count > 0 {
            self.add_values((cell, key), &values);
        }
    }

    /// Adds a row of this class.
    fn add_class(&mut self, (cell, key): (Cell, Option<u64>), class: i32, is_first: bool) {
        let Labels::Classes { pairs, presence, ranges } = &mut self.of else { return };
        let Some(of_class) = presence.get_mut(class as usize) else { return };
        of_class[usize::from(cell != Cell::Missing)].add(is_first);
        if let (Some(counts), Some(key)) = (pairs.as_mut(), key) {
            counts.entry((key, class)).or_default().add(is_first);
        }
        if key.is_none() || pairs.as_ref().is_some_and(|counts| counts.len() > self.limit) {
            *pairs = None;
        }
        match (ranges.as_mut(), number_of(cell)) {
            (Some(ranges), Some(x)) => {
                let [least, most] = &mut ranges[class as usize];
                (*least, *most) = (least.min(x), most.max(x));
            }
            _ if cell == Cell::Missing => {}
            _ => *ranges = None,
        }
    }

    /// Adds the rows of a subject whose labels are numbers.
    fn add_values(&mut self, (cell, key): (Cell, Option<u64>), values: &Moments) {
        let Labels::Values { groups, line } = &mut self.of else { return };
        if let (Some(of_values), Some(key)) = (groups.as_mut(), key) {
            let (moments, subjects) = of_values.entry(key).or_default();
            moments.merge(values);
            *subjects += 1;
        }
        if key.is_none() || groups.as_ref().is_some_and(|groups| groups.len() > self.limit) {
            *groups = None;
        }
        match (line.as_mut(), number_of(cell)) {
            (Some(line), Some(x)) => line.add(x, *values),
            _ if cell == Cell::Missing => {}
            _ => *line = None,
        }
    }

    /// Reason for which the column determines the label, the share of the rows, and the support.
    pub(super) fn find(&self) -> Option<(LeakKind, f64, u64)> {
        if self.subjects < FEW {
            return None;
        }
        let found = match &self.of {
            Labels::Classes { pairs, presence, ranges } => {
                let of_class = presence.iter().map(|[a, b]| a.rows() + b.rows());
                let rarest = of_class.filter(|&rows| rows > 0).min().unwrap_or(0);
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
            let later = self.later.rows();
            let share = later as f64 / self.dated.max(1) as f64;
            (self.later.is_frequent() && share >= LATER).then_some((LeakKind::Later, share, later))
        };
        found.or_else(later)
    }

    /// Share of the labelled rows whose class their value implies, and the rows of the rarest of
    /// these values. `None` if it implies few rows of a class.
    fn implied(
        &self,
        pairs: impl Iterator<Item = ((u64, i32), Tally)>,
        presence: &[[Tally; 2]],
    ) -> Option<(f64, u64)> {
        // rows of each value, the most subjects of a class, and the class with most rows, the first
        // of several
        let mut values: FxHashMap<u64, (u64, u32, u64, i32)> = FxHashMap::default();
        for ((value, class), tally) in pairs.filter(|(_, tally)| tally.rows > 0) {
            let rows = tally.rows();
            let (all, subjects, most, of) = values.entry(value).or_insert((0, 0, 0, class));
            *all += rows;
            *subjects = tally.subjects.max(*subjects);
            if rows > *most || (rows == *most && class < *of) {
                (*most, *of) = (rows, class);
            }
        }
        let mut of_class = vec![0; presence.len()];
        let mut support = u64::MAX;
        let frequent = values.into_values().filter(|(_, subjects, ..)| u64::from(*subjects) >= SUPPORT);
        for (all, _, most, class) in frequent {
            of_class[class as usize] += most;
            support = support.min(all);
        }
        let mut frequent = 0;
        for ([a, b], implied) in presence.iter().zip(&of_class) {
            if u64::from(a.subjects) + u64::from(b.subjects) < SUPPORT {
                continue;
            }
            if (*implied as f64) < OF_CLASS * (a.rows() + b.rows()) as f64 {
                return None;
            }
            frequent += 1;
        }
        let share = of_class.iter().sum::<u64>() as f64 / self.rows as f64;
        (frequent >= 2).then_some((share, support))
    }

    /// Share of the labelled rows with a number, if the numbers of the classes do not overlap.
    fn apart(&self, ranges: &[[f64; 2]], presence: &[[Tally; 2]]) -> Option<f64> {
        let mut found: Vec<[f64; 2]> = ranges.iter().copied().filter(|[least, most]| least <= most).collect();
        found.sort_by(|a, b| a[0].total_cmp(&b[0]));
        let is_apart = found.windows(2).all(|pair| pair[0][1] < pair[1][0]);
        // few rows of a class lie apart by chance
        let is_frequent =
            presence.iter().all(|[none, some]| none.rows == 0 && some.rows == 0 || some.is_frequent());
        let share = (self.rows - self.missing) as f64 / self.rows as f64;
        (is_apart && is_frequent && found.len() >= 2).then_some(share)
    }

    /// Share of the rows whose value has enough rows, if the label hardly varies within the values,
    /// and the rows of the rarest of these values.
    fn explained(&self, groups: &FxHashMap<u64, (Moments, u64)>) -> Option<(f64, u64)> {
        let frequent = groups.values().filter(|(_, subjects)| *subjects >= SUPPORT);
        let mut frequent: Vec<&Moments> = frequent.map(|(moments, _)| moments).collect();
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
pub(super) fn key_of(cell: Cell) -> u64 {
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
