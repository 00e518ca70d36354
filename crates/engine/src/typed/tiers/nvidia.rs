//! Caches in the memory of an NVIDIA device in front of the rows of all types, within one budget.
//!
//! ```text
//!   rows in host memory:  device  ─►  host, page-locked: the kernel reads it in place
//!   rows in files:        device  ─►  host cache and disk: the host reads what the device lacks
//!   sparse rows:          host; a batch copies its rows to the device
//! ```
//!
//! The maps of static caches, and of the policies that kernels run, are on the device and count in
//! the budget.

use std::{cell::Cell, slice, sync::Arc};

use graphmill_core::{matrix::TableType, node_order::by_scores};
use graphmill_loader::{
    Feature,
    feature::{
        Host,
        cached::{CacheLayout, Placement},
    },
};

use crate::{
    Result,
    accelerator::{Gpu, RowsBehind},
    cache_kind::{Kind, kind},
    typed::task::TypedTask,
};

/// Caches of a device in the making.
#[derive(Clone, Copy)]
pub(super) struct NvidiaCaches<'c> {
    pub(super) gpu: &'c Gpu,
    /// Types whose rows are in files.
    in_files: &'c [bool],
    pub(super) built: &'c Built,
}

/// Caches built so far.
#[derive(Default)]
pub(super) struct Built {
    /// Bytes of the cached rows.
    pub(super) bytes: Cell<u64>,
    /// Number of tables that are page-locked in place, and in a copy.
    locked: [Cell<usize>; 2],
}

impl<'c> NvidiaCaches<'c> {
    /// No caches yet on the device.
    pub(super) fn new(gpu: &'c Gpu, in_files: &'c [bool], built: &'c Built) -> Self {
        Self { gpu, in_files, built }
    }

    /// Builds the cache by `policy` of `slots` rows in front of the rows of type `t`. `scores`
    /// computes their hotness by a metric.
    ///
    /// # Errors
    /// Those of `scores`; the rows cannot be read; an allocation fails.
    pub(super) fn build(
        self,
        task: &TypedTask,
        (t, rows): (usize, &Arc<dyn Feature>),
        (policy, slots): (&str, usize),
        scores: &dyn Fn(&str) -> Result<Vec<f64>>,
    ) -> Result<Arc<dyn Feature>> {
        let behind = self.behind(task, t, rows)?;
        let bytes = (slots * behind.row_bytes()) as u64;
        self.built.bytes.set(self.built.bytes.get() + bytes);
        if slots > 0 && matches!(kind(policy)?, Kind::Dynamic(_)) {
            return behind.dynamic(self.gpu, slots, policy);
        }
        let ranking = if slots > 0 { by_scores(&scores(policy)?)? } else { Vec::new() };
        let layout = CacheLayout::new(&ranking, slots, 1, Placement::Private);
        Ok(behind.tiered(slice::from_ref(self.gpu), &[], &layout)?.remove(0))
    }

    /// Rows of type `t` behind a cache: their table in host memory, or the tier `rows`.
    fn behind(self, task: &TypedTask, t: usize, rows: &Arc<dyn Feature>) -> Result<RowsBehind> {
        let kind = task.kind(t);
        let features = task.features[t].as_ref().filter(|of| !self.in_files[t] && of.data.kind() == kind);
        let Some((table, dim)) = features.and_then(|of| Some((Host::new(of).table()?, of.dim))) else {
            return Ok(RowsBehind::tier(self.gpu, rows.clone(), kind.unwrap_or(TableType::F32)));
        };
        let behind = RowsBehind::table(self.gpu, &table, dim)?;
        let locked = &self.built.locked[usize::from(behind.is_copy())];
        locked.set(locked.get() + 1);
        Ok(behind)
    }

    /// Describes the rows that the device reads in host memory, if there are some.
    pub(super) fn describe_host(self) -> Option<&'static str> {
        match self.built.locked.each_ref().map(Cell::get) {
            [0, 0] => None,
            [_, 0] => Some("the host all, page-locked in place"),
            [0, _] => Some("the host all, in page-locked copies"),
            [..] => Some("the host all, page-locked in place or in copies"),
        }
    }
}
