//! Rows that a file stores in more bits than a run reads them in.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use graphmill_core::{Error, NodeId, Result, matrix::TableType};
use half::{bf16, f16, slice::HalfFloatSliceExt};

use super::{Capabilities, Feature, OutputRows, TierTraffic, Traffic, host::row_of, in_runs};

/// Number of rows that one task rounds.
const TASK_LEN: usize = 256;
/// Number of values that are rounded at once.
const ROUND_LEN: usize = 128;
/// Position of no value.
const NONE: u64 = u64::MAX;

/// Rows of another tier, rounded to nearest in the caller's buffer on each read. They have the bits
/// of a table in memory that was converted to the type ([`Host::resident`](super::Host::resident)),
/// so caches in front can store them in that type without loss.
pub struct Rounded {
    rows: Arc<dyn Feature>,
    kind: TableType,
}

impl Rounded {
    /// Rounds `rows` to values of type `kind`.
    pub fn new(rows: Arc<dyn Feature>, kind: TableType) -> Self {
        Self { rows, kind }
    }

    /// Rounds the rows of `ids` at their places in `out`.
    fn round(&self, ids: &[NodeId], places: OutputRows, out: &mut [f32]) -> Result<()> {
        let (dim, first) = (self.dim(), AtomicU64::new(NONE));
        in_runs(ids, places, dim, out, TASK_LEN, &|ids, at, out| {
            for (i, &v) in ids.iter().enumerate() {
                let row = row_of(out, dim, at, i);
                match self.kind {
                    TableType::F32 => continue,
                    TableType::F16 => round_f16(row),
                    TableType::Bf16 => round_bf16(row),
                }
                if let Some(j) = row.iter().position(|x| !x.is_finite()) {
                    first.fetch_min(u64::from(v) * dim as u64 + j as u64, Relaxed);
                }
            }
        });
        let (at, dim) = (first.into_inner(), dim.max(1) as u64);
        if at == NONE {
            return Ok(());
        }
        let kind = match self.kind {
            TableType::F16 => "f16 (up to 65504)",
            kind => kind.name(),
        };
        Err(Error::invalid(format!(
            "feature {} of node {} is beyond the range of {kind}; read the rows in f32",
            at % dim,
            at / dim
        )))
    }
}

/// Rounds values to f16.
fn round_f16(row: &mut [f32]) {
    for values in row.chunks_mut(ROUND_LEN) {
        let mut half = [f16::ZERO; ROUND_LEN];
        let half = &mut half[..values.len()];
        half.convert_from_f32_slice(values);
        half.convert_to_f32_slice(values);
    }
}

/// Rounds values to bf16.
fn round_bf16(row: &mut [f32]) {
    for values in row.chunks_mut(ROUND_LEN) {
        let mut half = [bf16::ZERO; ROUND_LEN];
        let half = &mut half[..values.len()];
        half.convert_from_f32_slice(values);
        half.convert_to_f32_slice(values);
    }
}

impl Feature for Rounded {
    fn dim(&self) -> usize {
        self.rows.dim()
    }

    fn num_rows(&self) -> usize {
        self.rows.num_rows()
    }

    fn read_to(&self, ids: &[NodeId], places: OutputRows, out: &mut [f32]) -> Result<Traffic> {
        let mut traffic = self.rows.read_to(ids, places, out)?;
        let began = Instant::now();
        self.round(ids, places, out)?;
        traffic.disk += TierTraffic::since(began, 0, 0);
        Ok(traffic)
    }

    fn row_bytes(&self) -> u64 {
        self.rows.row_bytes()
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities::stored_in(self.kind)
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::Features;

    use super::*;
    use crate::feature::Host;

    #[test]
    fn rows_have_the_bits_of_a_converted_table() {
        let values: Vec<f32> = (0..900 * 7).map(|x| (x as f32).sin() * 300.0).collect();
        let features = Features::f32(7, values);
        let ids: Vec<NodeId> = (0..700).map(|i| i * 13 % 900).collect();
        let at: Vec<u32> = (0..700).map(|i| 2 * i + 1).collect();
        for (_, kind) in TableType::ALL {
            let table = Host::resident(&features, kind).unwrap();
            let rounded = Rounded::new(Arc::new(Host::new(&features)), kind);
            for places in [OutputRows::InOrder, OutputRows::At(&at)] {
                let rows = if matches!(places, OutputRows::InOrder) { 700 } else { 1400 };
                let (mut expected, mut found) = (vec![0.1; 7 * rows], vec![0.1; 7 * rows]);
                table.read_to(&ids, places, &mut expected).unwrap();
                assert_eq!(rounded.capabilities().half, table.capabilities().half);
                let traffic = rounded.read_to(&ids, places, &mut found).unwrap();
                assert_eq!(found, expected, "{kind:?}");
                assert_eq!(traffic.total().bytes, 28 * 700, "what the tier behind reads");
            }
        }
    }

    #[test]
    fn values_beyond_the_range_are_errors() {
        let features = Features::f32(2, vec![1.0, 2.0, 3.0, 70_000.0]);
        let of = |kind| Rounded::new(Arc::new(Host::new(&features)), kind);
        let error = of(TableType::F16).read(&[0, 1], &mut [0.0; 4]).unwrap_err().to_string();
        assert!(error.contains("feature 1 of node 1") && error.contains("65504"), "{error}");
        assert!(of(TableType::F16).read(&[0], &mut [0.0; 2]).is_ok());
        assert!(of(TableType::Bf16).read(&[0, 1], &mut [0.0; 4]).is_ok());
    }
}
