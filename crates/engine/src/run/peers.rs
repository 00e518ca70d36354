//! The ranks that train together, as the loop of a run sees them.

use std::sync::Arc;

use graphmill_loader::feature::LinkTraffic;

use crate::{
    Result, RunDir, TrainConfig,
    checkpoint::Checkpoint,
    config::Work,
    distributed::{AssignedParts, RankDataset, Ranks},
    record::{EpochTotals, RankRecord},
    run::{Earlier, RunState},
};

/// The ranks of a run. A run of a single process has none: its methods then return at once, so the
/// loop has no cases for ranks.
#[derive(Default)]
pub(crate) struct Peers {
    ranks: Option<Arc<Ranks>>,
    /// The parts that this rank draws subgraphs from, if the sampler draws subgraphs.
    assigned: Option<Arc<AssignedParts>>,
}

impl Peers {
    /// The ranks of this view of the dataset.
    pub(crate) fn new(view: Option<&RankDataset>) -> Self {
        Self {
            ranks: view.map(|view| view.ranks.clone()),
            assigned: view.and_then(|view| view.assigned().cloned()),
        }
    }

    /// Returns true if the run is a single process.
    pub(crate) fn is_alone(&self) -> bool {
        self.ranks.is_none()
    }

    /// The checkpoint of the run directory, the same on all ranks, if there is one.
    ///
    /// # Errors
    /// It cannot be read, or a rank did not take part.
    pub(crate) fn checkpoint(&self, run: Option<&RunDir>) -> Result<Option<Checkpoint<RunState>>> {
        match (&self.ranks, run) {
            (Some(ranks), run) => ranks.checkpoint(run),
            (None, Some(run)) => Checkpoint::load(&run.checkpoint()),
            (None, None) => Ok(None),
        }
    }

    /// Model of the run that the option `start_from` names, the same on all ranks, if there is one.
    ///
    /// # Errors
    /// As for [`Earlier::open`].
    pub(crate) fn earlier(&self, config: &TrainConfig) -> Result<Option<Earlier>> {
        Earlier::open(config, self.ranks.as_deref())
    }

    /// Continues from totals of all ranks: from here on `totals` are this rank's.
    pub(crate) fn resume(&self, totals: &mut EpochTotals) {
        if let Some(ranks) = &self.ranks {
            ranks.resume(totals);
        }
    }

    /// Starts an epoch: assigns its parts and starts to count the bytes sent.
    ///
    /// # Errors
    /// A rank did not take part.
    pub(crate) fn begin_epoch(&self, epoch: u64) -> Result<()> {
        if let Some(ranks) = &self.ranks {
            ranks.count_bytes(true)?;
        }
        self.assign(epoch)
    }

    /// Prepares draws of an epoch outside of it: assigns its parts. Returns false if this rank is a
    /// graph store, which draws none for itself.
    ///
    /// # Errors
    /// A rank did not take part.
    pub(crate) fn begin_draws(&self, epoch: u64) -> Result<bool> {
        let Some(ranks) = &self.ranks else { return Ok(true) };
        // no rank draws from the previous assignment any more
        ranks.meet()?;
        self.assign(epoch)?;
        Ok(ranks.book().trains())
    }

    /// Assigns the parts of an epoch.
    fn assign(&self, epoch: u64) -> Result<()> {
        self.assigned.as_ref().map_or(Ok(()), |parts| parts.assign_for(epoch))?;
        match &self.ranks {
            // ranks that train draw from the parts of the stores
            Some(ranks) if ranks.book().num_stores() > 0 => ranks.meet(),
            _ => Ok(()),
        }
    }

    /// Ends the batches of an epoch: bytes sent from here on are not counted.
    ///
    /// # Errors
    /// A rank did not take part.
    pub(crate) fn end_batches(&self) -> Result<()> {
        self.ranks.as_ref().map_or(Ok(()), |ranks| ranks.count_bytes(false))
    }

    /// Decides whether the run stops, the same on all ranks.
    pub(crate) fn agree_to_stop(&self, wants: bool) -> bool {
        self.ranks.as_ref().map_or(wants, |ranks| ranks.agree_to_stop(wants))
    }

    /// Decides whether a checkpoint is due, the same on all ranks, which follow the clock of rank
    /// 0.
    pub(crate) fn agree_to_save(&self, is_due: bool) -> bool {
        self.ranks.as_ref().map_or(is_due, |ranks| ranks.agree_to_save(is_due && ranks.rank() == 0))
    }

    /// Replaces `totals` by those of all ranks, for a checkpoint in the middle of an epoch.
    ///
    /// # Errors
    /// A rank did not take part.
    pub(crate) fn total(&self, totals: &mut EpochTotals) -> Result<()> {
        self.ranks.as_ref().map_or(Ok(()), |ranks| ranks.total(totals))
    }

    /// Sum of the work of all ranks.
    ///
    /// # Errors
    /// A rank did not take part.
    pub(crate) fn sum_work(&self, own: Work) -> Result<Work> {
        self.ranks.as_ref().map_or(Ok(own), |ranks| ranks.sum_work(own))
    }

    /// Returns rank 0's numbers. Decisions use them, because different processors round
    /// differently.
    ///
    /// # Errors
    /// A rank did not take part.
    pub(crate) fn agree(&self, numbers: [f64; 2]) -> Result<[f64; 2]> {
        self.ranks.as_ref().map_or(Ok(numbers), |ranks| ranks.agree(numbers))
    }

    /// Number of graph stores among the ranks.
    pub(crate) fn num_stores(&self) -> usize {
        self.ranks.as_ref().map_or(0, |ranks| ranks.book().num_stores())
    }

    /// Ends an epoch: `totals` become those of all ranks. `links` carried the copies of this rank's
    /// devices. Returns the work of each rank.
    ///
    /// # Errors
    /// A rank did not take part.
    pub(crate) fn end_epoch(&self, totals: &mut EpochTotals, links: LinkTraffic) -> Result<Vec<RankRecord>> {
        self.ranks.as_ref().map_or(Ok(Vec::new()), |ranks| ranks.end_epoch(totals, links))
    }
}
