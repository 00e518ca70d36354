//! Features, labels and keys from and to Python.

use graphmill_core::{FeatureData, Features, Labels};
use graphmill_data::typed::Keys;
use numpy::{PyArray1, PyArray2, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::{exceptions::PyTypeError, prelude::*, types::PyList};

use super::{array, array::with_ids, error};
use crate::topology::Id;

/// Copies the features of a two-dimensional array of f32 or f16.
pub(super) fn features_of(x: &Bound<'_, PyAny>) -> PyResult<Features> {
    if let Ok(rows) = x.cast::<PyArray2<f32>>() {
        let dim = rows.shape()[1];
        return Ok(Features::f32(
            dim,
            rows.try_readonly().map_err(error::value)?.as_array().iter().copied().collect::<Vec<_>>(),
        ));
    }
    if let Ok(rows) = x.cast::<PyArray2<half::f16>>() {
        let (dim, values) = (rows.shape()[1], rows.try_readonly().map_err(error::value)?);
        let values: Vec<half::f16> = values.as_array().iter().copied().collect();
        return Ok(Features { dim, data: FeatureData::F16(values.into()) });
    }
    Err(PyTypeError::new_err("x: expected two dimensions of float32 or float16"))
}

/// Classes of an integer vector (-1 if unknown), labels of a matrix of zeros and ones, or values of
/// a matrix of floats.
pub(super) fn labels_of(y: &Bound<'_, PyAny>, classes: Option<usize>) -> PyResult<Labels> {
    if let Ok(rows) = y.cast::<PyArray2<u8>>() {
        let classes = rows.shape()[1];
        let member: Vec<u8> = rows.try_readonly().map_err(error::value)?.as_array().iter().copied().collect();
        return Ok(Labels::Multi { member: member.into(), classes });
    }
    if let Ok(rows) = y.cast::<PyArray2<f32>>() {
        let width = rows.shape()[1];
        let values: Vec<f32> =
            rows.try_readonly().map_err(error::value)?.as_array().iter().copied().collect();
        return Ok(Labels::Values { values: values.into(), width });
    }
    let class: Vec<i32> = with_ids!("y", y, |ids| {
        let narrow = |(v, id): (usize, _)| {
            let class = Id::number(id);
            i32::try_from(class).ok().filter(|&c| c >= -1).ok_or_else(|| {
                error::value(format!("y[{v}] is {class}: classes start at 0, and -1 means unknown"))
            })
        };
        ids.iter().copied().enumerate().map(narrow).collect::<PyResult<_>>()?
    });
    let max = class.iter().copied().max().unwrap_or(-1);
    Ok(Labels::Single { class: class.into(), classes: classes.unwrap_or((max + 1) as usize) })
}

/// Keys as an array of integers or a list of texts.
pub(super) fn keys_of<'py>(py: Python<'py>, keys: &Keys) -> PyResult<Bound<'py, PyAny>> {
    match keys {
        Keys::Integers(keys) => array::of_buffer(py, keys, &[keys.len()]),
        Keys::Texts(texts) => {
            let all = (0..texts.len()).map(|i| texts.get(i));
            Ok(PyList::new(py, all.collect::<Vec<_>>())?.into_any())
        }
    }
}
