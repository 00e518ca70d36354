//! Input nodes of a run's minibatches, drawn in parallel and visited in order.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    ops::Range,
};

use graphmill_core::{NodeId, Result, progress::Progress};
use graphmill_loader::{
    MiniBatch, Workspace,
    hotness::{Footprint, Visits},
};
use rayon::prelude::*;

use crate::{reuse::ReusePlan, stage::Loader};

/// Draws one batch per thread in parallel, and visits the batches in their order.
pub struct OrderedVisits<'l, 'a> {
    loader: &'l Loader<'a>,
    watch: &'l dyn Progress,
    slots: RefCell<Vec<(Workspace, MiniBatch)>>,
    /// Plan of the rows that batches reuse, if they do.
    reuse: Option<&'l ReusePlan>,
    /// Number of batches drawn so far.
    drawn: Cell<u64>,
}

impl<'l, 'a> OrderedVisits<'l, 'a> {
    /// Visits the batches of `loader`, unless `watch` stops the work.
    pub fn new(loader: &'l Loader<'a>, watch: &'l dyn Progress) -> Self {
        Self { loader, watch, slots: RefCell::default(), reuse: None, drawn: Cell::new(0) }
    }

    /// Number of batches drawn so far.
    pub(crate) fn drawn(&self) -> u64 {
        self.drawn.get()
    }

    /// Visits batches that reuse rows by this plan.
    pub(super) fn with_reuse(self, reuse: Option<&'l ReusePlan>) -> Self {
        Self { reuse, ..self }
    }
}

impl Visits for OrderedVisits<'_, '_> {
    fn visit(&self, epoch: u64, see: &mut dyn FnMut(&[NodeId])) -> Result<()> {
        let mut order = Vec::new();
        self.loader.order(epoch, &mut order);
        let batches = self.loader.num_batches();
        let Some(plan) = self.reuse else {
            return self.visit_batches(self.loader, epoch, &order, 0..batches, see);
        };
        let mut next = 0;
        while next < batches {
            let preview = plan.preview(self.loader, &order, epoch, next);
            let loader = Loader { ahead: Some(preview.reuse.ahead.clone()), ..self.loader.clone() };
            self.visit_batches(&loader, epoch, &order, preview.batches.clone(), see)?;
            next = preview.batches.end;
        }
        Ok(())
    }
}

impl OrderedVisits<'_, '_> {
    /// Visits these batches of an epoch.
    pub(crate) fn visit_batches(
        &self,
        loader: &Loader,
        epoch: u64,
        order: &[NodeId],
        batches: Range<u64>,
        see: &mut dyn FnMut(&[NodeId]),
    ) -> Result<()> {
        let mut slots = self.slots.borrow_mut();
        let count = batches.end - batches.start;
        let parallel = (rayon::current_num_threads() as u64).min(count).max(1) as usize;
        slots.resize_with(parallel, || (Workspace::new(loader.graph.num_nodes()), MiniBatch::default()));
        let mut next = batches.start;
        while next < batches.end {
            self.watch.check()?;
            let group = &mut slots[..parallel.min((batches.end - next) as usize)];
            let has_idle_threads = group.len() < rayon::current_num_threads();
            group.par_iter_mut().enumerate().try_for_each(|(i, (workspace, batch))| {
                workspace.set_parallel(has_idle_threads);
                let number = next + i as u64;
                let memory = std::mem::take(batch).recycle();
                let drawn = match &loader.ahead {
                    Some(ahead) => ahead.complete(loader, order, number, workspace, memory),
                    None => loader
                        .pick(epoch, order, number, memory)
                        .and_then(|seeds| loader.sample(epoch, workspace, seeds)),
                };
                *batch = drawn.map_err(|e| graphmill_core::Error::invalid(e.to_string()))?.into();
                Ok::<_, graphmill_core::Error>(())
            })?;
            next += group.len() as u64;
            self.drawn.set(self.drawn.get() + group.len() as u64);
            for (_, batch) in group {
                if let MiniBatch::Sampled(batch) = batch {
                    // aggregates of nodes follow all nodes
                    let nodes = &batch.input_nodes;
                    see(&nodes[..nodes.partition_point(|&v| (v as usize) < loader.graph.num_nodes())]);
                }
            }
        }
        Ok(())
    }
}

/// Stores the footprints of epochs (`4 V` bytes each), for several metrics of the same epochs.
pub(crate) struct CachedFootprints<'v> {
    visits: &'v dyn Visits,
    known: RefCell<BTreeMap<u64, Footprint>>,
}

impl<'v> CachedFootprints<'v> {
    /// Stores no footprint of `visits` yet.
    pub(crate) fn new(visits: &'v dyn Visits) -> Self {
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
