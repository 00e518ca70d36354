//! Exchange of reused rows between the ranks of a run.

use std::sync::atomic::Ordering::Relaxed;

use graphmill_core::NodeId;

use super::Ranks;
use crate::{Result, reuse::RowExchange};

impl RowExchange for Ranks {
    fn rank(&self) -> usize {
        self.book().rank()
    }

    fn maker(&self, node: NodeId) -> usize {
        let book = self.book();
        match book.num_stores() {
            0 => book.owner(node),
            _ => node as usize % book.num_trainers(),
        }
    }

    fn gather(&self, words: &[u32]) -> Result<Vec<Vec<u32>>> {
        // graph stores reuse no rows
        let trainers = self.all.among(self.book().num_trainers());
        Ok(trainers.gather(self.reused.fetch_add(1, Relaxed), words)?)
    }
}
