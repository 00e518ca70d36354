//! The input nodes of a run's minibatches, batch by batch, drawn side by side.

use std::{cell::RefCell, collections::BTreeMap};

use graphmill_core::{NodeId, Result, progress::Progress};
use graphmill_loader::{
    MiniBatch, Workspace,
    hotness::{Footprint, Visits},
};
use rayon::prelude::*;

use crate::stage::Loader;

/// Draws as many batches at once as there are threads, and shows them in their order.
pub struct InOrder<'l, 'a> {
    loader: &'l Loader<'a>,
    watch: &'l dyn Progress,
    slots: RefCell<Vec<(Workspace, MiniBatch)>>,
}

impl<'l, 'a> InOrder<'l, 'a> {
    /// What `loader` draws, as long as `watch` does not end it.
    pub fn new(loader: &'l Loader<'a>, watch: &'l dyn Progress) -> Self {
        Self { loader, watch, slots: RefCell::default() }
    }
}

impl Visits for InOrder<'_, '_> {
    fn visit(&self, epoch: u64, see: &mut dyn FnMut(&[NodeId])) -> Result<()> {
        let (loader, mut slots) = (self.loader, self.slots.borrow_mut());
        let mut order = Vec::new();
        loader.order(epoch, &mut order);
        let batches = loader.num_batches();
        let ahead = (rayon::current_num_threads() as u64).min(batches).max(1) as usize;
        slots.resize_with(ahead, || (Workspace::new(loader.graph.num_nodes()), MiniBatch::default()));
        let mut next = 0;
        while next < batches {
            self.watch.check()?;
            let group = &mut slots[..ahead.min((batches - next) as usize)];
            let alone = group.len() < rayon::current_num_threads();
            group.par_iter_mut().enumerate().try_for_each(|(i, (workspace, batch))| {
                workspace.set_parallel(alone);
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

/// Keeps what epochs came to (`4 V` bytes each), for several metrics that count the same ones.
pub(super) struct Remembered<'v> {
    visits: &'v dyn Visits,
    seen: RefCell<BTreeMap<u64, Footprint>>,
}

impl<'v> Remembered<'v> {
    pub(super) fn new(visits: &'v dyn Visits) -> Self {
        Self { visits, seen: RefCell::default() }
    }
}

impl Visits for Remembered<'_> {
    fn visit(&self, epoch: u64, see: &mut dyn FnMut(&[NodeId])) -> Result<()> {
        self.visits.visit(epoch, see)
    }

    fn footprint(&self, epoch: u64, num_nodes: usize) -> Result<Footprint> {
        if let Some(seen) = self.seen.borrow().get(&epoch) {
            return Ok(seen.clone());
        }
        let found = self.visits.footprint(epoch, num_nodes)?;
        self.seen.borrow_mut().insert(epoch, found.clone());
        Ok(found)
    }
}
