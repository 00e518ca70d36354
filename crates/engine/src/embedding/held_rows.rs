//! Rows of a table in files: which of them are in memory.

use std::collections::BTreeSet;

use graphmill_nn::{Matrix, optim::rows::Make};

use crate::{Error, Result, TrainConfig, config::embedding::EmbeddingOptions, relational::Buckets};

/// Buckets that are in memory at once: those of an update, and one that is read ahead.
const HELD: usize = 3;

/// Rows in memory, by buckets.
pub(super) struct HeldRows {
    buckets: Buckets,
    /// True if rows are in files.
    in_file: bool,
    /// Buckets that are in memory.
    held: BTreeSet<usize>,
}

impl HeldRows {
    /// Decides where the `count` rows of a run are.
    ///
    /// # Errors
    /// The buckets that updates use exceed `--host-budget`.
    pub(super) fn new(config: &TrainConfig, count: usize, optimizer: Make) -> Result<Self> {
        let buckets = Buckets::new(count, config.own.get::<EmbeddingOptions>().buckets);
        let of_row = bytes_of_row(config.hidden, optimizer)?;
        let budget = usize::try_from(config.host_budget.0).unwrap_or(usize::MAX);
        let bytes = count.saturating_mul(of_row);
        let in_file = budget > 0 && bytes > budget;
        let largest = buckets.rows(0).len().saturating_mul(of_row);
        let used = largest.saturating_mul(HELD.min(buckets.len()));
        if in_file && used > budget {
            let remedy = match budget / of_row.saturating_mul(HELD) {
                0 => format!("raise --host-budget to {} or more", of_row.saturating_mul(HELD)),
                rows => {
                    format!("set --buckets to {} or more, or raise --host-budget", count.div_ceil(rows))
                }
            };
            return Err(Error::usage(format!(
                "--host-budget {}: rows with the state of their optimiser need {bytes} bytes, and {used} are \
                 in memory at once with --buckets {}; {remedy}",
                config.host_budget.0,
                buckets.len()
            )));
        }
        Ok(Self { buckets, in_file, held: BTreeSet::new() })
    }

    /// Returns true if rows are in files.
    pub(super) fn is_in_file(&self) -> bool {
        self.in_file
    }

    /// Takes the rows of `tables` out of memory that are neither in the buckets `now` nor in those
    /// of `next`, and reads ahead those of `next`.
    pub(super) fn hold(&mut self, tables: &[&Matrix], now: &BTreeSet<usize>, next: &BTreeSet<usize>) {
        if !self.in_file {
            return;
        }
        let wanted: BTreeSet<usize> = now.union(next).copied().collect();
        for &bucket in self.held.difference(&wanted) {
            tables.iter().for_each(|table| table.release(self.buckets.rows(bucket)));
        }
        for &bucket in wanted.difference(&self.held) {
            tables.iter().for_each(|table| table.expect(self.buckets.rows(bucket)));
        }
        self.held = wanted;
    }

    /// Takes all rows of `tables` out of memory.
    pub(super) fn release(&mut self, tables: &[&Matrix]) {
        if self.in_file {
            tables.iter().for_each(|table| table.release(0..table.num_rows()));
            self.held.clear();
        }
    }
}

/// Bytes of a row of `dim` values with the state of its optimiser.
fn bytes_of_row(dim: usize, optimizer: Make) -> Result<usize> {
    let mut optimizer = optimizer();
    optimizer.prepare(0, &Matrix::zeros(1, 1))?;
    Ok(dim.saturating_mul(size_of::<f32>() * (1 + optimizer.state().len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_buckets_that_a_refusal_names_fits() {
        let optimizer = graphmill_nn::optim::rows::TABLE.get("adam").unwrap().make;
        let refusal = |rows: usize, budget: u64, buckets: usize| {
            let mut config = TrainConfig { hidden: 4, ..TrainConfig::default() };
            config.host_budget.0 = budget;
            config.own.get_mut::<EmbeddingOptions>().buckets = buckets;
            HeldRows::new(&config, rows, optimizer).err().map(|error| error.to_string())
        };
        for rows in [5, 16, 17, 100] {
            for budget in (60..rows as u64 * 48).step_by(13) {
                let Some(message) = refusal(rows, budget, 1) else { continue };
                let number = |after: &str| -> Option<u64> {
                    message.split_once(after)?.1.split(' ').next()?.parse().ok()
                };
                let again = match number("set --buckets to ") {
                    Some(buckets) => refusal(rows, budget, buckets as usize),
                    None => refusal(rows, number("raise --host-budget to ").unwrap(), rows),
                };
                assert_eq!(again, None, "{rows} rows, {budget} bytes: {message}");
            }
        }
    }
}
