//! Rows of a dataset from several tiers, with their traffic.

#![forbid(unsafe_code)]

use std::{
    cell::RefCell,
    process,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use graphmill_loader::{
    Feature,
    feature::{OutputRows, Traffic},
};
use half::{f16, slice::HalfFloatSliceExt};
use rustc_hash::FxHashMap;

use crate::fault::Fault;

/// Rows of a dataset in tiers, and the traffic of all reads.
pub struct Tiered {
    rows: Arc<dyn Feature>,
    /// True if the dataset stores f16: tiers return f32, which is narrowed back without loss.
    is_half: bool,
    traffic: Mutex<Traffic>,
    /// Process that opened the tiers.
    process: u32,
}

thread_local! {
    /// Rows before narrowing.
    static WIDE: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

impl Tiered {
    /// Wraps `rows`; gathers f16 if the dataset stores it (`is_half`).
    pub fn new(rows: Arc<dyn Feature>, is_half: bool) -> Self {
        Self { rows, is_half, traffic: Mutex::default(), process: process::id() }
    }

    /// Number of rows.
    pub fn num_rows(&self) -> usize {
        self.rows.num_rows()
    }

    /// Bytes of a gathered row.
    pub fn row_bytes(&self) -> usize {
        self.rows.dim() * if self.is_half { size_of::<f16>() } else { size_of::<f32>() }
    }

    /// Traffic of all reads so far.
    pub fn traffic(&self) -> Traffic {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Traffic> {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies the rows of `ids` to `out`, consecutively. Every id is a row of the table.
    ///
    /// # Errors
    /// A tier cannot be read, or this is a forked process, which lacks the threads of the tiers.
    pub fn gather(&self, ids: &[u32], out: &mut [u8]) -> Result<(), Fault> {
        if self.process != process::id() {
            return Err(Fault::Value(
                "this process was forked from the one that opened the tiers; create a new loader here".into(),
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

    /// Reads every distinct row once; rows of repeated nodes (in several trees, or among the seeds)
    /// are copied.
    fn read(&self, ids: &[u32], out: &mut [f32]) -> Result<(), Fault> {
        let mut positions = FxHashMap::with_capacity_and_hasher(ids.len(), Default::default());
        let mut distinct = Vec::with_capacity(ids.len());
        let position_of = |&id: &u32| {
            *positions.entry(id).or_insert_with(|| {
                distinct.push(id);
                distinct.len() - 1
            })
        };
        let of_rows: Vec<usize> = ids.iter().map(position_of).collect();
        let dim = self.rows.dim();
        let traffic = self.rows.read_to(&distinct, OutputRows::InOrder, &mut out[..distinct.len() * dim])?;
        *self.lock() += traffic;
        if distinct.len() < ids.len() {
            // a source never lies behind its copy, so copying from the end overwrites no row that
            // is still needed
            for (i, &position) in of_rows.iter().enumerate().rev() {
                out.copy_within(position * dim..(position + 1) * dim, i * dim);
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

    /// A table of 40 rows behind an LRU cache of ten.
    fn tiered(features: &Features, is_half: bool) -> Tiered {
        let make = graphmill_loader::policy::TABLE.get("lru").unwrap().make;
        let kind = features.data.kind().unwrap();
        let cache = Dynamic::new(make, 10, kind, Arc::new(Host::new(features)), Level::Host).unwrap();
        Tiered::new(Arc::new(cache), is_half)
    }

    #[test]
    fn repeated_rows_are_read_once() {
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
        // the cache and the table behind it are both host tiers
        assert_eq!((rows.traffic().total().rows, rows.num_rows(), rows.row_bytes()), (15, 40, 12));
        rows.gather(&[], bytemuck::cast_slice_mut::<f32, u8>(&mut [])).unwrap();
    }

    #[test]
    fn f16_rows_stay_f16() {
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
