//! Rows of a dataset that come from several tiers, and what that costs.

use std::{
    cell::RefCell,
    process,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use graphmill_loader::{
    Feature,
    feature::{Places, Traffic},
};
use half::{f16, slice::HalfFloatSliceExt};
use rustc_hash::FxHashMap;

use crate::fault::Fault;

/// See the module's text.
pub struct Tiered {
    rows: Arc<dyn Feature>,
    /// Whether the dataset stores f16: tiers give f32, of which its values are some, so they are
    /// narrowed without loss.
    is_half: bool,
    traffic: Mutex<Traffic>,
    /// The process that it was opened in.
    process: u32,
}

thread_local! {
    /// Rows before they are narrowed.
    static WIDE: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

impl Tiered {
    /// The rows of `rows`, as f16 where that is what the dataset stores.
    pub fn new(rows: Arc<dyn Feature>, is_half: bool) -> Self {
        Self { rows, is_half, traffic: Mutex::default(), process: process::id() }
    }

    /// Rows.
    pub fn num_rows(&self) -> usize {
        self.rows.num_rows()
    }

    /// Bytes of a row of a batch.
    pub fn row_bytes(&self) -> usize {
        self.rows.dim() * if self.is_half { size_of::<f16>() } else { size_of::<f32>() }
    }

    /// What all reads have cost so far.
    pub fn traffic(&self) -> Traffic {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Traffic> {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies the rows of `ids` (each a row of the table) to `out`, one behind the other.
    ///
    /// # Errors
    /// A tier cannot be read. This is another process: its tiers' threads are not here.
    pub fn gather(&self, ids: &[u32], out: &mut [u8]) -> Result<(), Fault> {
        if self.process != process::id() {
            return Err(Fault::Value(
                "rows in tiers were opened in the process that this one was forked from: make a loader of its own here".into(),
            ));
        }
        if !self.is_half {
            return self.read(ids, bytemuck::cast_slice_mut(out));
        }
        WIDE.with_borrow_mut(|wide| {
            let values = ids.len() * self.rows.dim();
            wide.resize(values.max(wide.len()), 0.0);
            self.read(ids, &mut wide[..values])?;
            bytemuck::cast_slice_mut::<u8, f16>(out).convert_from_f32_slice(&wide[..values]);
            Ok(())
        })
    }

    /// Tiers are asked for every row once: a node that comes again (in several trees, or among the
    /// seeds) is copied.
    fn read(&self, ids: &[u32], out: &mut [f32]) -> Result<(), Fault> {
        let mut places = FxHashMap::with_capacity_and_hasher(ids.len(), Default::default());
        let mut distinct = Vec::with_capacity(ids.len());
        let place_of = |&id: &u32| {
            *places.entry(id).or_insert_with(|| {
                distinct.push(id);
                distinct.len() - 1
            })
        };
        let of_rows: Vec<usize> = ids.iter().map(place_of).collect();
        let dim = self.rows.dim();
        let traffic = self.rows.read_to(&distinct, Places::InOrder, &mut out[..distinct.len() * dim])?;
        *self.lock() += traffic;
        if distinct.len() < ids.len() {
            // a row's place is never behind the row, so from the end on no row is written before it
            // was copied
            for (i, &place) in of_rows.iter().enumerate().rev() {
                out.copy_within(place * dim..(place + 1) * dim, i * dim);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::{Features, features::FeatureData};
    use graphmill_loader::feature::{
        Host,
        cached::{Dynamic, Level},
    };

    use super::*;

    /// A table of 40 rows behind a cache of ten whose rows come and go.
    fn tiered(features: &Features, is_half: bool) -> Tiered {
        let make = graphmill_loader::policy::TABLE.get("lru").unwrap().make;
        let kind = features.data.kind().unwrap();
        let cache = Dynamic::new(make, 10, kind, Arc::new(Host::new(features)), Level::Host).unwrap();
        Tiered::new(Arc::new(cache), is_half)
    }

    #[test]
    fn rows_that_come_again_are_read_once() {
        let table: Vec<f32> = (0..120).map(|i| i as f32 / 4.0).collect();
        let rows = tiered(&Features::f32(3, table.clone()), false);
        let ids = [7, 7, 3, 39, 7, 0, 3, 3, 1];
        for round in 0..3 {
            let mut out = vec![0f32; 3 * ids.len()];
            rows.gather(&ids, bytemuck::cast_slice_mut(&mut out)).unwrap();
            let expected: Vec<f32> =
                ids.iter().flat_map(|&id| table[3 * id as usize..][..3].to_vec()).collect();
            assert_eq!(out, expected, "{round}");
        }
        // the cache and what is behind it are both the host's here
        assert_eq!((rows.traffic().total().rows, rows.num_rows(), rows.row_bytes()), (15, 40, 12));
        rows.gather(&[], bytemuck::cast_slice_mut::<f32, u8>(&mut [])).unwrap();
    }

    #[test]
    fn halves_stay_halves() {
        let table: Vec<f16> = (0..120).map(|i| f16::from_f32(i as f32 / 7.0)).collect();
        let rows = tiered(&Features { dim: 3, data: FeatureData::F16(table.clone().into()) }, true);
        for ids in [&[5u32, 39, 5][..], &[1], &[30, 31, 32, 33]] {
            let mut out = vec![f16::ZERO; 3 * ids.len()];
            rows.gather(ids, bytemuck::cast_slice_mut(&mut out)).unwrap();
            let expected: Vec<f16> =
                ids.iter().flat_map(|&id| table[3 * id as usize..][..3].to_vec()).collect();
            assert_eq!(out, expected);
        }
        assert_eq!(rows.row_bytes(), 6);
    }
}
