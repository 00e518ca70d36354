//! Normalization of imported features.

use graphmill_core::{
    Error, Features, NodeId, Result, SparseRows, features::FeatureData, units::decimal_bytes,
};
use rayon::prelude::*;
use serde::Serialize;

use super::Normalize;
use crate::{Dataset, dataset::Normalization, external::Scratch};

/// Values processed together on the way to a scratch.
pub(super) const CHUNK_LEN: usize = 1 << 20;

/// Record of the normalization of an import.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NormalizationReport {
    /// "rows" or "standard".
    pub kind: &'static str,
    /// True if means were subtracted.
    pub centred: bool,
    /// Number of training nodes from which the statistics were computed; 0 for rows.
    pub fitted_on: u64,
    /// Bytes of the features as stored.
    pub stored_bytes: u64,
    /// Bytes of an equivalent dense table.
    pub dense_bytes: u64,
}

impl NormalizationReport {
    /// Describes the normalization in one sentence.
    pub(super) fn describe(&self) -> String {
        let Self { kind, centred, fitted_on, stored_bytes, dense_bytes } = self;
        let [stored, dense] = [*stored_bytes, *dense_bytes].map(decimal_bytes);
        match (*kind, centred) {
            ("standard", true) => format!(
                "features: scaled to mean 0 and deviation 1 of {fitted_on} training nodes; the statistics \
                 are stored"
            ),
            ("standard", false) => format!(
                "features: sparse, so scaled to deviation 1 of {fitted_on} training nodes without centring \
                 ({stored}); \
                 dense-features also centres them and stores a dense table of {dense}"
            ),
            _ => "features: every row divided by its sum".into(),
        }
    }
}

/// Normalizes the features of `dataset`, if it has any, and records the normalization in it.
///
/// Sparse features stay sparse: they are scaled without centring, because shifted zeros would make
/// the table dense. With the `dense-features` option importers read dense tables, which are
/// centred.
///
/// # Errors
/// Standardization without training nodes, or the features do not fit the scratch.
pub(super) fn normalize(
    dataset: &mut Dataset,
    how: Normalize,
    scratch: &Scratch,
) -> Result<Option<NormalizationReport>> {
    let (features, train) = (&dataset.features, &dataset.split.train[..]);
    if features.is_empty() || how == Normalize::None {
        return Ok(None);
    }
    let normalization = match how {
        Normalize::None | Normalize::Rows => Normalization::Rows,
        Normalize::Standard => fit(features, train)?,
    };
    dataset.features = match &features.data {
        FeatureData::Csr(rows) => Features::csr(normalize_sparse(rows, &normalization)?),
        FeatureData::F32(_) | FeatureData::F16(_) => normalize_dense(features, &normalization, scratch)?,
    };
    let centred = matches!(normalization, Normalization::Standard { mean: Some(_), .. });
    let report = NormalizationReport {
        kind: normalization.name(),
        centred,
        fitted_on: if how == Normalize::Standard { train.len() as u64 } else { 0 },
        stored_bytes: dataset.features.bytes() as u64,
        dense_bytes: dataset.features.len() as u64 * size_of::<f32>() as u64,
    };
    dataset.normalization = Some(normalization);
    Ok(Some(report))
}

/// Normalizes a dense table row by row, as 32-bit floats, through the scratch.
fn normalize_dense(
    features: &Features,
    normalization: &Normalization,
    scratch: &Scratch,
) -> Result<Features> {
    let dim = features.dim;
    let mut out = scratch.rows::<f32>("normalized", dim)?;
    let mut piece: Vec<f32> = Vec::new();
    let step = CHUNK_LEN.div_ceil(dim) * dim;
    for start in (0..features.len()).step_by(step) {
        let range = start..(start + step).min(features.len());
        piece.clear();
        match &features.data {
            FeatureData::F32(data) => piece.extend_from_slice(&data[range]),
            FeatureData::F16(data) => piece.extend(data[range].iter().map(|x| x.to_f32())),
            FeatureData::Csr(_) => {
                return Err(Error::invalid("sparse features where dense ones are expected"));
            }
        }
        piece.par_chunks_mut(dim).for_each(|row| normalization.apply(row));
        out.extend(&piece)?;
    }
    Ok(Features::f32(dim, out.finish()?))
}

/// Normalizes sparse rows, with the same entries stored.
fn normalize_sparse(rows: &SparseRows, normalization: &Normalization) -> Result<SparseRows> {
    match normalization {
        Normalization::Rows => rows.normalized(),
        Normalization::Standard { deviation, .. } => rows.scaled(deviation),
    }
}

/// Computes statistics of every column over the training nodes: mean and deviation of a dense
/// table, deviation only of sparse rows. The deviation of a constant column is 1. GraphSAINT fits
/// the same scaler on its training nodes (Zeng et al., ICLR 2020: the repository's utils.py).
fn fit(features: &Features, train: &[NodeId]) -> Result<Normalization> {
    if train.is_empty() {
        return Err(Error::invalid(
            "normalize standard: the statistics need training nodes, but the dataset has none; pass a split",
        ));
    }
    let (moments, centred) = match &features.data {
        FeatureData::F32(data) => (moments(features.dim, train, |i| f64::from(data[i])), true),
        FeatureData::F16(data) => (moments(features.dim, train, |i| data[i].to_f64()), true),
        FeatureData::Csr(rows) => (sparse_moments(rows, train), false),
    };
    let (mean, deviation): (Vec<f64>, Vec<f64>) = moments.into_iter().unzip();
    Ok(Normalization::Standard { mean: centred.then_some(mean), deviation })
}

/// Mean and deviation of every column over the rows of `train`; `value` returns value `i` of the
/// table. Two passes over these rows, one group of columns per thread.
fn moments(dim: usize, train: &[NodeId], value: impl Fn(usize) -> f64 + Sync) -> Vec<(f64, f64)> {
    // Sums run over the nodes in ascending order, so the result does not depend on the number of
    // threads.
    const GROUP: usize = 16;
    let groups: Vec<Vec<(f64, f64)>> = (0..dim.div_ceil(GROUP))
        .into_par_iter()
        .map(|group| {
            let columns = group * GROUP..((group + 1) * GROUP).min(dim);
            let sum = |term: &dyn Fn(usize, f64) -> f64| {
                let mut sums = vec![0.0; columns.len()];
                for &v in train {
                    for (sum, j) in sums.iter_mut().zip(columns.clone()) {
                        *sum += term(j - columns.start, value(v as usize * dim + j));
                    }
                }
                sums.iter_mut().for_each(|sum| *sum /= train.len() as f64);
                sums
            };
            let mean = sum(&|_, x| x);
            let variance = sum(&|i, x| (x - mean[i]).powi(2));
            mean.into_iter().zip(variance).map(|(mean, variance)| (mean, deviation(mean, variance))).collect()
        })
        .collect();
    groups.concat()
}

/// Variant of [`moments`] for sparse rows: O(F + values stored in the rows of `train`),
/// single-threaded.
fn sparse_moments(rows: &SparseRows, train: &[NodeId]) -> Vec<(f64, f64)> {
    let count = train.len() as f64;
    let stored = || {
        train.iter().flat_map(|&v| {
            let (columns, values) = rows.row(v as usize);
            columns.iter().zip(values).map(|(&j, &x)| (j as usize, f64::from(x)))
        })
    };
    let mut mean = vec![0.0; rows.num_cols()];
    stored().for_each(|(j, x)| mean[j] += x);
    mean.iter_mut().for_each(|sum| *sum /= count);
    let mut squares = vec![0.0; rows.num_cols()];
    let mut zeros = vec![count; rows.num_cols()];
    for (j, x) in stored() {
        squares[j] += (x - mean[j]).powi(2);
        zeros[j] -= 1.0;
    }
    let all = mean.into_iter().zip(squares.into_iter().zip(zeros));
    all.map(|(mean, (squares, zeros))| (mean, deviation(mean, (squares + zeros * mean * mean) / count)))
        .collect()
}

/// Deviation of a column from its mean and variance, or 1 if the column is constant: rounding
/// leaves a tiny variance, which is compared with the mean.
fn deviation(mean: f64, variance: f64) -> f64 {
    if variance.sqrt() <= 1e-7 * mean.abs() { 1.0 } else { variance.sqrt() }
}
