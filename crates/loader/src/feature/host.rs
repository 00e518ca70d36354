//! Features in host memory: f32 rows are copied, f16 rows widened.

use graphmill_graph::{Buffer, Features, NodeId, Result, dataset::FeatureData};
use half::{f16, slice::HalfFloatSliceExt};
use rayon::prelude::*;

use super::{Feature, Rows, Traffic};
use crate::prefetch::prefetch;

/// Rows ahead whose lines are asked for.
const AHEAD: usize = 8;
/// Rows one task copies.
const TASK: usize = 1024;

/// A table in host memory (owned, in huge pages, or mapped from a file).
#[derive(Clone, Debug)]
pub struct Host {
    dim: usize,
    data: FeatureData,
}

impl Host {
    /// Reads from `features` where they are.
    pub fn new(features: &Features) -> Self {
        Self { dim: features.dim, data: features.data.clone() }
    }

    /// Copies `features` into huge pages first: random rows then miss the TLB less.
    ///
    /// # Errors
    /// The memory cannot be had.
    pub fn resident(features: &Features) -> Result<Self> {
        let data = match &features.data {
            FeatureData::F32(data) => FeatureData::F32(data.to_huge_pages()?),
            FeatureData::F16(data) => FeatureData::F16(data.to_huge_pages()?),
        };
        Ok(Self { dim: features.dim, data })
    }
}

impl Feature for Host {
    fn dim(&self) -> usize {
        self.dim
    }

    fn num_rows(&self) -> usize {
        let values = match &self.data {
            FeatureData::F32(data) => data.len(),
            FeatureData::F16(data) => data.len(),
        };
        values.checked_div(self.dim).unwrap_or(0)
    }

    fn read(&self, ids: &[NodeId], out: &mut [f32]) -> Traffic {
        assert_eq!(out.len(), ids.len() * self.dim, "room for {} rows of {}", ids.len(), self.dim);
        let width = match &self.data {
            FeatureData::F32(data) => {
                gather(data, self.dim, ids, out, |from: &[f32], to| to.copy_from_slice(from));
                4
            }
            FeatureData::F16(data) => {
                gather(data, self.dim, ids, out, |from: &[f16], to| from.convert_to_f32_slice(to));
                2
            }
        };
        let rows = ids.len() as u64;
        Traffic { host: Rows { rows, bytes: rows * (self.dim * width) as u64 }, ..Traffic::default() }
    }

    fn table(&self) -> Option<Buffer<f32>> {
        match &self.data {
            FeatureData::F32(data) => Some(data.clone()),
            FeatureData::F16(_) => None,
        }
    }
}

/// Row by row in parallel, the lines of the rows ahead prefetched.
fn gather<T: bytemuck::Pod + Send + Sync>(
    data: &Buffer<T>,
    dim: usize,
    ids: &[NodeId],
    out: &mut [f32],
    copy: impl Fn(&[T], &mut [f32]) + Sync,
) {
    if dim == 0 {
        return;
    }
    let data: &[T] = data;
    let step = (64 / size_of::<T>()).max(1);
    ids.par_chunks(TASK).zip(out.par_chunks_mut(TASK * dim)).for_each(|(ids, out)| {
        for (i, (&v, out)) in ids.iter().zip(out.chunks_exact_mut(dim)).enumerate() {
            if let Some(&ahead) = ids.get(i + AHEAD) {
                let start = ahead as usize * dim;
                (start..start + dim).step_by(step).for_each(|at| prefetch(data, at));
            }
            copy(&data[v as usize * dim..(v as usize + 1) * dim], out);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_in_the_order_asked_for_from_every_storage() {
        let values: Vec<f32> = (0..3000 * 5).map(|x| x as f32 * 0.5).collect();
        let ids: Vec<u32> = (0..2500).map(|i| (i * 37) % 3000).collect();
        let expected: Vec<f32> =
            ids.iter().flat_map(|&v| values[v as usize * 5..][..5].iter().copied()).collect();
        let plain = Features::f32(5, values.clone());
        for feature in [Host::new(&plain), Host::resident(&plain).unwrap()] {
            let mut out = vec![0.0; 2500 * 5];
            let traffic = feature.read(&ids, &mut out);
            assert_eq!(out, expected);
            assert_eq!(traffic.host, Rows { rows: 2500, bytes: 50_000 });
            assert_eq!(feature.table().unwrap().len(), values.len());
        }
        // f16 keeps 11 bits: exact for small multiples of a half
        let small: Vec<f16> = (0..1000).map(|x| f16::from_f32(x as f32 * 0.5)).collect();
        let half = Host::new(&Features { dim: 5, data: FeatureData::F16(small.into()) });
        let mut out = vec![0.0; 10];
        assert_eq!(half.read(&[3, 0], &mut out).host.bytes, 20);
        assert_eq!(out, [7.5, 8.0, 8.5, 9.0, 9.5, 0.0, 0.5, 1.0, 1.5, 2.0]);
        assert!(half.table().is_none());
        assert_eq!(half.num_rows(), 200);
    }
}
