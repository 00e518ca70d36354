//! Statistics of a column over the training rows, in the order of the rows.

use std::collections::BinaryHeap;

use graphmill_core::keyed;

use super::{
    column::Cell,
    date::{age_of, year_of},
    moments::Moments,
};

/// Number of rows from which quantiles are computed: those with the smallest hashes of their
/// number.
const MAX_SAMPLE: usize = 100_000;
/// Number of quantiles.
const QUANTILES: usize = 1001;

/// Statistics of a column.
#[derive(Clone, Debug, Default)]
pub(super) struct Stats {
    numbers: Moments,
    years: Moments,
    last: Option<i64>,
    /// Sums of days since 1970, for the mean and deviation of the age.
    days: Moments,
    /// Sample of (hash, bits of the value), if quantiles are needed.
    sample: Option<BinaryHeap<(u64, u64)>>,
}

impl Stats {
    /// Creates statistics; `quantiles` keeps a sample of the values.
    pub(super) fn new(quantiles: bool) -> Self {
        Self { sample: quantiles.then(BinaryHeap::new), ..Self::default() }
    }

    /// Adds the value of row `row`.
    pub(super) fn add(&mut self, row: u64, cell: Cell) {
        let x = match cell {
            Cell::Int(x) => x as f64,
            Cell::Float(x) if x.is_finite() => x,
            Cell::Bool(x) => f64::from(u8::from(x)),
            Cell::Time(micros) => {
                self.last = self.last.max(Some(micros));
                self.days.add(age_of(micros, 0));
                self.years.add(f64::from(year_of(micros)));
                return;
            }
            _ => return,
        };
        self.numbers.add(x);
        if let Some(sample) = &mut self.sample {
            let hash = keyed::key(&[row]);
            if sample.len() < MAX_SAMPLE {
                sample.push((hash, x.to_bits()));
            } else if sample.peek().is_some_and(|&(most, _)| hash < most) {
                sample.pop();
                sample.push((hash, x.to_bits()));
            }
        }
    }

    /// Mean of the numbers; 0 without any.
    pub(super) fn mean(&self) -> f64 {
        self.numbers.mean
    }

    /// Deviation of the numbers.
    pub(super) fn deviation(&self) -> f64 {
        self.numbers.deviation()
    }

    /// Last time, in microseconds.
    pub(super) fn last_time(&self) -> i64 {
        self.last.unwrap_or(0)
    }

    /// Mean and deviation of the age in days.
    pub(super) fn age(&self) -> [f64; 2] {
        // `age_of(t, last)` is `age_of(t, 0) + age_of(0, last)`.
        [self.days.mean + age_of(0, self.last_time()), self.days.deviation()]
    }

    /// Mean and deviation of the year.
    pub(super) fn year(&self) -> [f64; 2] {
        [self.years.mean, self.years.deviation()]
    }

    /// Quantiles of the sample, at equal distances; empty without values.
    pub(super) fn quantiles(&self) -> Vec<f64> {
        let sample = self.sample.iter().flatten();
        let mut values: Vec<f64> = sample.map(|&(_, bits)| f64::from_bits(bits)).collect();
        values.sort_unstable_by(f64::total_cmp);
        let count = QUANTILES.min(values.len());
        let last = values.len().saturating_sub(1);
        (0..count).map(|i| values[i * last / count.saturating_sub(1).max(1)]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::date::DAY;

    #[test]
    fn statistics_are_those_of_the_values() {
        let mut stats = Stats::new(true);
        for (row, x) in [2.0, 4.0, 6.0, 8.0].into_iter().enumerate() {
            stats.add(row as u64, Cell::Float(x));
        }
        stats.add(4, Cell::Missing);
        assert_eq!((stats.mean(), stats.deviation()), (5.0, 5f64.sqrt()));
        assert_eq!(stats.quantiles(), [2.0, 4.0, 6.0, 8.0]);
        let mut dates = Stats::new(false);
        [0, 10].into_iter().for_each(|day| dates.add(day, Cell::Time(day as i64 * DAY)));
        assert_eq!((dates.last_time(), dates.age()), (10 * DAY, [5.0, 5.0]));
        assert_eq!(Stats::default().deviation(), 1.0);
    }
}
