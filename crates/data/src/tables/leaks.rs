//! Columns that determine the label: an encoder reads them at training, and a prediction knows
//! them as little as the label.
//!
//! # Algorithm
//! The labelled rows of a table are counted by column, in the pass that reads the labels:
//!
//! - values: the rows of each pair of a value and a class. A value of at least 10 rows implies the
//!   class that most of them have. The column determines the label if that holds for 99 % of the
//!   labelled rows, and 90 % of the rows of every class, so that one frequent class is not enough.
//!   A missing value counts as a value, a key has too few rows of each. For numbers as labels, the
//!   variance within the values takes the place of the classes.
//! - presence: the same for whether there is a value, as of a date of what is to be predicted.
//! - ranges: numbers of different classes that do not overlap; for numbers as labels, those on one
//!   line with the label (r² of at least 0.999).
//! - later dates: dates after the time of their row, in at least 5 % of the rows with both.
//!
//! [`super::node_leaks`] searches columns of nodes for the labels of tables of targets.
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

use rayon::prelude::*;

use super::{
    column::{Batch, Cell},
    leak::{Leak, LeakKind},
    leak_counts::{Counts, key_of},
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
    /// Creates the search for those of `columns` that determine one of `labels`, or are later than
    /// the column `time`. A column is its position in `table` and the option that leaves it out; a
    /// label is its name and number of classes, `None` for numbers. `None` without columns or
    /// labels. The memory is shared by searches for `all` labels.
    pub(super) fn new(
        table: &Table,
        columns: impl IntoIterator<Item = (usize, String)>,
        labels: Vec<(String, Option<usize>)>,
        time: Option<usize>,
        all: usize,
    ) -> Option<Self> {
        let columns: Vec<(usize, String)> = columns.into_iter().collect();
        let limit = MAX_PAIRS.min(ALL_PAIRS / (columns.len() * all).max(1));
        let columns = columns.into_iter().map(|(position, remedy)| {
            let name = table.columns[position].clone();
            let counts = labels.iter().map(|(_, classes)| Counts::new(*classes, limit)).collect();
            (Examined { position, name, remedy }, counts)
        });
        let columns: Vec<(Examined, Vec<Counts>)> = columns.collect();
        let labels: Vec<String> = labels.into_iter().map(|(name, _)| name).collect();
        (!columns.is_empty() && !labels.is_empty()).then_some(Self { columns, labels, time })
    }

    /// Creates the search for those of `columns` that determine a label of `targets`, or are later
    /// than the column `time` or that of the split.
    pub(super) fn of_table(
        table: &Table,
        columns: impl IntoIterator<Item = (usize, String)>,
        targets: &TargetPlan,
        time: Option<(usize, TimeUnit)>,
    ) -> Option<Self> {
        let time = time.map(|(c, _)| c).or(targets.split_time());
        Self::new(table, columns, targets.labels(), time, targets.width())
    }

    /// Adds rows of a batch, whose targets are the last of `info`.
    pub(super) fn add(&mut self, batch: &Batch, rows: &[usize], info: &RowInfo) {
        let width = self.labels.len();
        let first = info.targets(width) - rows.len();
        let column = self.time;
        let time = |c: usize, row: usize| {
            let cell = batch.columns[column.filter(|&time| time != c)?].get(rows[row - first]);
            parsed(cell, &mut Vec::new()).time()
        };
        let subjects: Vec<usize> = (0..rows.len()).collect();
        self.add_subjects(
            &subjects,
            |c, i| batch.columns[c].get(rows[i]),
            |i| std::iter::once(first + i),
            |row, k| info.label(row, (k, width)),
            time,
        );
    }

    /// Adds subjects, of which each has a value `cell` in each column and several `rows`. A row has
    /// a `label` of each number, and a `time` in microseconds since 1970 for each column.
    pub(super) fn add_subjects<'b, R: Iterator<Item = usize>>(
        &mut self,
        subjects: &[usize],
        cell: impl Fn(usize, usize) -> Cell<'b> + Sync,
        rows: impl Fn(usize) -> R + Sync,
        label: impl Fn(usize, usize) -> Option<Label> + Sync,
        time: impl Fn(usize, usize) -> Option<i64> + Sync,
    ) {
        let width = self.labels.len();
        let has_label = |row: usize| (0..width).any(|k| label(row, k).is_some());
        self.columns.par_iter_mut().for_each(|(Examined { position, .. }, counts)| {
            let c = *position;
            let mut list = Vec::new();
            for &subject in subjects.iter().filter(|&&subject| rows(subject).any(has_label)) {
                list.clear();
                let cell = match parsed(cell(c, subject), &mut list) {
                    Cell::Text(text) if is_missing_word(text.trim()) => Cell::Missing,
                    cell => cell,
                };
                let is_compared = counts.iter().any(Counts::compares_values);
                let is_list = matches!(cell, Cell::List(_));
                let key = (is_compared && !is_list).then(|| key_of(cell));
                let is_later = |row: usize| cell.time().and_then(|date| Some(date > time(c, row)?));
                for (k, counts) in counts.iter_mut().enumerate() {
                    counts.add(
                        (cell, key),
                        rows(subject).filter_map(|row| Some((label(row, k)?, is_later(row)))),
                    );
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
