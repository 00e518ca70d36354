//! Input nodes of a run's minibatches, drawn in parallel and visited in order.

use std::{cell::RefCell, collections::BTreeMap};

use graphmill_core::{NodeId, Result, progress::Progress};
use graphmill_loader::{
    MiniBatch, Workspace,
    hotness::{Footprint, Visits},
};
use rayon::prelude::*;

use crate::stage::Loader;

/// Draws one batch per thread in parallel, and visits the batches in their order.
pub struct OrderedVisits<'l, 'a> {
    loader: &'l Loader<'a>,
    watch: &'l dyn Progress,
    slots: RefCell<Vec<(Workspace, MiniBatch)>>,
}

impl<'l, 'a> OrderedVisits<'l, 'a> {
    /// Visits the batches of `loader`, unless `watch` stops the work.
    pub fn new(loader: &'l Loader<'a>, watch: &'l dyn Progress) -> Self {
        Self { loader, watch, slots: RefCell::default() }
    }
}

impl Visits for OrderedVisits<'_, '_> {
    fn visit(&self, epoch: u64, see: &mut dyn FnMut(&[NodeId])) -> Result<()> {
        let (loader, mut slots) = (self.loader, self.slots.borrow_mut());
        let mut order = Vec::new();
        loader.order(epoch, &mut order);
        let batches = loader.num_batches();
        let parallel = (rayon::current_num_threads() as u64).min(batches).max(1) as usize;
        slots.resize_with(parallel, || (Workspace::new(loader.graph.num_nodes()), MiniBatch::default()));
        let mut next = 0;
        while next < batches {
            self.watch.check()?;
            let group = &mut slots[..parallel.min((batches - next) as usize)];
            let has_idle_threads = group.len() < rayon::current_num_threads();
            group.par_iter_mut().enumerate().try_for_each(|(i, (workspace, batch))| {
                workspace.set_parallel(has_idle_threads);
                let seeds = loader.pick(&order, next + i as u64, std::mem::take(batch).recycle());
                let drawn = loader.sample(epoch, workspace, seeds);
                *batch = drawn.map_err(|e| graphmill_core::Error::invalid(e.to_string()))?.into();
                Ok::<_, graphmill_core::Error>(())
            })?;
            next += group.len() as u64;
            for (_, batch) in group {
                if let MiniBatch::Sampled(batch) = batch {
                    see(&batch.input_nodes);
                }
            }
        }
        Ok(())
    }
}

/// Stores the footprints of epochs (`4 V` bytes each), for several metrics of the same epochs.
pub(super) struct CachedFootprints<'v> {
    visits: &'v dyn Visits,
    known: RefCell<BTreeMap<u64, Footprint>>,
}

impl<'v> CachedFootprints<'v> {
    pub(super) fn new(visits: &'v dyn Visits) -> Self {
        Self { visits, known: RefCell::default() }
    }
}

impl Visits for CachedFootprints<'_> {
    fn visit(&self, epoch: u64, see: &mut dyn FnMut(&[NodeId])) -> Result<()> {
        self.visits.visit(epoch, see)
    }

    fn footprint(&self, epoch: u64, num_nodes: usize) -> Result<Footprint> {
        if let Some(known) = self.known.borrow().get(&epoch) {
            return Ok(known.clone());
        }
        let found = self.visits.footprint(epoch, num_nodes)?;
        self.known.borrow_mut().insert(epoch, found.clone());
        Ok(found)
    }
}
