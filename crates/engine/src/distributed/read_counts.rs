//! Counts of reads that the ranks of a run store together in its checkpoints.

use super::Ranks;
use crate::{Result, tiers::CountingRanks};

impl CountingRanks for Ranks {
    fn trainer(&self) -> Option<usize> {
        self.book().trains().then(|| self.rank())
    }

    fn num_trainers(&self) -> usize {
        self.book().num_trainers()
    }

    fn collect(&self, own: &[u32]) -> Result<Option<Vec<Vec<u32>>>> {
        // graph stores read no rows
        let (book, trainers) = (self.book(), self.book().num_trainers());
        let counts: Vec<usize> =
            (0..self.size()).map(|rank| if rank < trainers { own.len() } else { 0 }).collect();
        let own = if book.trains() { own } else { &[] };
        let collected = self.collect_words(own, &counts)?;
        Ok(collected.map(|mut all| {
            all.truncate(trainers);
            all
        }))
    }
}
