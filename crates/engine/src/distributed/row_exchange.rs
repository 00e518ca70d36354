//! Exchange of reused rows between the ranks of a run.

use std::sync::atomic::Ordering::Relaxed;

use graphmill_core::NodeId;

use super::Ranks;
use crate::{Result, reuse::RowExchange};

impl RowExchange for Ranks {
    fn rank(&self) -> usize {
        self.book().rank()
    }

    fn owner(&self, node: NodeId) -> usize {
        self.book().owner(node)
    }

    fn gather(&self, words: &[u32]) -> Result<Vec<Vec<u32>>> {
        Ok(self.all.gather(self.reused.fetch_add(1, Relaxed), words)?)
    }
}
