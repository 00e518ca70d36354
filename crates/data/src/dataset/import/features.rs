//! Features from dense or sparse arrays, with the checks of all importers.

use graphmill_core::{Buffer, Features, Result, SparseRows, location::Location, search::position};

use super::{ImportReport, csr::Csr};
use crate::npy;

/// Report entry: stored entries of a sparse matrix that are zero or duplicates.
const MERGED: &str =
    "entries of sparse features that were zero, or added to another of the same node and column";

/// Creates `nodes x dim` features from an array of this shape.
///
/// # Errors
/// The shape differs, or a value is not finite.
pub(crate) fn from_array(
    data: impl Into<Buffer<f32>>,
    shape: &[usize],
    nodes: usize,
    at: &Location,
) -> Result<Features> {
    let data = data.into();
    let dim = match *shape {
        [rows, dim] if rows == nodes => dim,
        _ => return Err(at.error(format!("shape [{nodes}, features] expected, {shape:?} found"))),
    };
    // Values written by a scratch have been checked.
    let unchecked: &[f32] = if npy::written(&data).is_some() { &[] } else { &data };
    if let Some(i) = position(unchecked, |x| !x.is_finite()) {
        return Err(at.error(format!(
            "feature {} of node {} is {}: features are finite numbers",
            i % dim,
            i / dim,
            data[i]
        )));
    }
    Ok(Features::f32(dim, data))
}

/// Creates `nodes` rows of features from sparse rows, whose columns may be unsorted and duplicated;
/// without `data` they are ones. They stay sparse if that takes fewer bytes than a dense table of
/// f32, unless `dense` is set.
///
/// # Errors
/// The arrays are inconsistent, the number of rows is not `nodes`, most columns are never used, a
/// value is not finite, or an allocation fails. Errors of the shape and of the values have separate
/// locations.
pub(crate) fn from_csr(
    csr: Csr,
    nodes: usize,
    dense: bool,
    shape: &Location,
    data: &Location,
    report: &mut ImportReport,
) -> Result<Features> {
    let entries = csr.indices.len();
    csr.check(shape, shape)?;
    if csr.rows != nodes {
        let found = [csr.rows, csr.columns];
        return Err(shape.error(format!("shape [{nodes}, features] expected, {found:?} found")));
    }
    csr.check_width(shape)?;
    let Csr { rows, columns, indptr, indices, data: values } = csr.canonical(data)?;
    if let Some(k) = position(&values, |x| !x.is_finite()) {
        let node = indptr.partition_point(|&start| start <= k as u64) - 1;
        let (column, value) = (indices[k], values[k]);
        return Err(
            data.error(format!("feature {column} of node {node} is {value}: features are finite numbers"))
        );
    }
    report.count(MERGED, (entries - values.len()) as u64);
    let table = rows.saturating_mul(columns).saturating_mul(4);
    let is_smaller = SparseRows::bytes_of(rows, values.len()) < table;
    let sparse = data.locate(SparseRows::new(columns, indptr.into(), indices.into(), values.into()))?;
    if is_smaller && !dense {
        return Ok(Features::csr(sparse));
    }
    Ok(Features::f32(columns, shape.locate(sparse.to_dense())?))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use graphmill_core::features::FeatureData;

    use super::*;

    /// One value in each of ten rows: 168 bytes against 40 per column.
    fn diagonal(columns: usize) -> Csr {
        let indices = (0..10).collect();
        Csr { rows: 10, columns, indptr: (0..11).collect(), indices, data: vec![2.0; 10] }
    }

    #[test]
    fn the_smaller_storage_is_used() {
        let at = Location::new(Path::new("a"), "features");
        let features = |columns, dense| {
            from_csr(diagonal(columns), 10, dense, &at, &at, &mut ImportReport::default()).unwrap()
        };
        let dense_of = |features: &Features| match &features.data {
            FeatureData::Csr(rows) => rows.to_dense().unwrap(),
            FeatureData::F32(data) => data.to_vec(),
            FeatureData::F16(_) => unreachable!(),
        };
        let (sparse, dense) = (features(16, false), features(16, true));
        assert!(matches!(sparse.data, FeatureData::Csr(_)) && matches!(dense.data, FeatureData::F32(_)));
        assert_eq!(dense_of(&sparse), dense_of(&dense));
        assert_eq!((sparse.dim, sparse.len(), sparse.stored(), sparse.bytes()), (16, 160, 10, 168));
        let narrow = Csr { indices: vec![0; 10], ..diagonal(4) };
        assert!(matches!(
            from_csr(narrow, 10, false, &at, &at, &mut ImportReport::default()).unwrap().data,
            FeatureData::F32(_)
        ));
        let ones = Csr { data: Vec::new(), ..diagonal(16) };
        assert_eq!(
            dense_of(&from_csr(ones, 10, false, &at, &at, &mut ImportReport::default()).unwrap())[..17],
            dense_of(&dense)[..17].iter().map(|x| x / 2.0).collect::<Vec<_>>()
        );
        let fails = |csr, nodes, why: &str| {
            let error =
                from_csr(csr, nodes, false, &at, &at, &mut ImportReport::default()).unwrap_err().to_string();
            assert!(error.contains(why) && error.starts_with("a: features"), "{error}");
        };
        fails(diagonal(16), 9, "shape [9, features] expected, [10, 16]");
        fails(diagonal(1 << 40), 10, "claims");
        fails(Csr { indptr: vec![0; 11], ..diagonal(16) }, 10, "row starts");
        let data = [vec![1.0; 9], vec![f32::NAN]].concat();
        fails(Csr { data, ..diagonal(16) }, 10, "feature 9 of node 9 is NaN");
    }

    #[test]
    fn features_are_checked() {
        let at = Location::new(Path::new("a"), "features");
        assert_eq!(from_array(vec![1.0; 6], &[3, 2], 3, &at).unwrap().dim, 2);
        let fails = |data: Vec<f32>, shape: &[usize], why: &str| {
            let error = from_array(data, shape, 3, &at).unwrap_err().to_string();
            assert!(error.contains(why) && error.starts_with("a: features"), "{error}");
        };
        fails(vec![1.0; 4], &[2, 2], "shape [3, features] expected, [2, 2]");
        fails(vec![1.0; 3], &[3], "shape");
        fails(vec![1.0, 1.0, 1.0, f32::NAN, 1.0, 1.0], &[3, 2], "feature 1 of node 1 is NaN");
    }
}
