//! NumPy arrays in and out without a copy.

use std::{any::Any, ffi::c_int, ptr, sync::Arc};

use bytemuck::Pod;
use graphmill_core::Buffer;
use numpy::{
    Element, PY_ARRAY_API, PyArray1, PyArrayDescr, PyArrayDescrMethods, PyArrayMethods, PyUntypedArray,
    PyUntypedArrayMethods,
    npyffi::{self, npy_intp},
};
use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
};

use crate::{
    pool::Lease,
    table::Rows,
    topology::{Id, check},
};

/// Keeps memory alive that an array views.
#[pyclass(frozen, module = "graphmill._graphmill")]
struct Keep {
    _memory: Box<dyn Any + Send + Sync>,
}

/// An array of `shape` over memory that `keep` owns.
///
/// # Safety
/// From `start` on there are initialised values of `descr`, as many as `shape` says, in C order and
/// aligned, for as long as `keep` lives. If `writable`, nobody else reads or writes them.
pub(super) unsafe fn view<'py>(
    py: Python<'py>,
    start: *const u8,
    descr: Bound<'py, PyArrayDescr>,
    shape: &[usize],
    writable: bool,
    keep: Box<dyn Any + Send + Sync>,
) -> PyResult<Bound<'py, PyAny>> {
    let keep = Bound::new(py, Keep { _memory: keep })?;
    let mut dims: Vec<npy_intp> = shape.iter().map(|&d| d as npy_intp).collect();
    let flags = if writable { npyffi::NPY_ARRAY_WRITEABLE } else { 0 };
    // SAFETY: the caller vouches for the memory; NumPy takes over the references to `descr` and
    // `keep`, and copies the dimensions.
    unsafe {
        let kind = npyffi::get_type_object(py, npyffi::NpyTypes::PyArray_Type);
        let (descr, count) = (descr.into_dtype_ptr(), dims.len() as c_int);
        let none = ptr::null_mut();
        let data = start.cast_mut().cast();
        let array = PY_ARRAY_API.PyArray_NewFromDescr(
            py,
            kind,
            descr,
            count,
            dims.as_mut_ptr(),
            none,
            data,
            flags,
            ptr::null_mut(),
        );
        let array = Bound::from_owned_ptr_or_err(py, array)?;
        if PY_ARRAY_API.PyArray_SetBaseObject(py, array.as_ptr().cast(), keep.into_ptr()) < 0 {
            return Err(PyErr::fetch(py));
        }
        Ok(array)
    }
}

/// The array of a lease's values, which goes back to its pool with the array's last view.
pub(super) fn of_lease<'py>(
    py: Python<'py>,
    lease: Lease,
    descr: Bound<'py, PyArrayDescr>,
    shape: &[usize],
) -> PyResult<Bound<'py, PyAny>> {
    let bytes = lease.bytes();
    if shape.iter().product::<usize>() * descr.itemsize() != bytes.len() {
        return Err(PyValueError::new_err(format!("{} bytes are no array of shape {shape:?}", bytes.len())));
    }
    let start = bytes.as_ptr();
    // SAFETY: as many bytes as were just counted, on the heap, where they stay when the lease
    // moves; it is this array's alone.
    unsafe { view(py, start, descr, shape, true, Box::new(lease)) }
}

/// The array of a lease's 64-bit ids.
pub(super) fn of_ids<'py>(py: Python<'py>, lease: Lease, shape: &[usize]) -> PyResult<Bound<'py, PyAny>> {
    of_lease(py, lease, i64::get_dtype(py), shape)
}

/// A read-only array of a buffer's values.
pub(super) fn of_buffer<'py, T: Element + Pod + Send + Sync>(
    py: Python<'py>,
    buffer: &Buffer<T>,
    shape: &[usize],
) -> PyResult<Bound<'py, PyAny>> {
    let values: &[T] = buffer;
    if shape.iter().product::<usize>() != values.len() {
        return Err(PyValueError::new_err(format!(
            "{} values are no array of shape {shape:?}",
            values.len()
        )));
    }
    // SAFETY: as many values as were just counted; a clone of the buffer keeps them where they are,
    // and nobody writes to them.
    unsafe { view(py, values.as_ptr().cast(), T::get_dtype(py), shape, false, Box::new(buffer.clone())) }
}

/// The rows of an array, whatever its type: along its first axis.
pub(super) struct Table {
    pub(super) rows: Rows,
    pub(super) descr: Py<PyArrayDescr>,
    /// The shape of a row.
    pub(super) shape: Vec<usize>,
}

/// Takes an array's rows as they are.
///
/// # Errors
/// It is no array, has no axis, is not contiguous, or holds Python objects.
pub(super) fn table(name: &str, given: &Bound<'_, PyAny>) -> PyResult<Table> {
    let Ok(array) = given.cast::<PyUntypedArray>() else {
        return Err(PyTypeError::new_err(format!(
            "{name}: a NumPy array is expected, not {}",
            given.get_type()
        )));
    };
    let descr = array.dtype();
    let Some((&rows, shape)) = array.shape().split_first() else {
        return Err(PyValueError::new_err(format!(
            "{name}: an array with a row for each node or edge is expected, not a scalar"
        )));
    };
    if descr.has_object() {
        return Err(PyTypeError::new_err(format!("{name}: an array of numbers is expected, not of {descr}")));
    }
    if !array.is_c_contiguous() {
        return Err(PyValueError::new_err(format!(
            "{name}: rows must lie one behind the other: pass numpy.ascontiguousarray(...)"
        )));
    }
    let row_bytes = shape.iter().product::<usize>() * descr.itemsize();
    // SAFETY: the object is an array, whose pointer is valid while it lives.
    let start = unsafe { (*array.as_array_ptr()).fields.data }.cast::<u8>().cast_const();
    // SAFETY: a contiguous array of that shape; a reference to it keeps its memory where it is
    // (NumPy refuses to resize an array that others refer to).
    let rows = unsafe { Rows::new(start, row_bytes, rows, Arc::new(given.clone().unbind())) };
    Ok(Table { rows, descr: descr.unbind(), shape: shape.to_vec() })
}

/// Calls `$body` with the values of a one-dimensional array of whole numbers as a slice, of
/// whichever type it is.
macro_rules! with_ids {
    ($name:expr, $given:expr, |$ids:ident| $body:expr) => {{
        let given: &Bound<'_, PyAny> = $given;
        if let Ok(array) = given.cast::<PyArray1<i64>>() {
            let array =
                array.try_readonly().map_err(|e| crate::bind::error::value(format!("{}: {e}", $name)))?;
            let $ids = array.as_slice().map_err(|_| crate::bind::array::gaps($name))?;
            $body
        } else if let Ok(array) = given.cast::<PyArray1<i32>>() {
            let array =
                array.try_readonly().map_err(|e| crate::bind::error::value(format!("{}: {e}", $name)))?;
            let $ids = array.as_slice().map_err(|_| crate::bind::array::gaps($name))?;
            $body
        } else if let Ok(array) = given.cast::<PyArray1<u32>>() {
            let array =
                array.try_readonly().map_err(|e| crate::bind::error::value(format!("{}: {e}", $name)))?;
            let $ids = array.as_slice().map_err(|_| crate::bind::array::gaps($name))?;
            $body
        } else if let Ok(array) = given.cast::<PyArray1<u64>>() {
            let array =
                array.try_readonly().map_err(|e| crate::bind::error::value(format!("{}: {e}", $name)))?;
            let $ids = array.as_slice().map_err(|_| crate::bind::array::gaps($name))?;
            $body
        } else {
            return Err(crate::bind::array::no_ids($name, given));
        }
    }};
}
pub(super) use with_ids;

/// What is wrong with an array that is not contiguous.
pub(super) fn gaps(name: &str) -> PyErr {
    PyValueError::new_err(format!(
        "{name}: values must lie one behind the other: pass numpy.ascontiguousarray(...)"
    ))
}

/// What is wrong with an array that holds no ids.
pub(super) fn no_ids(name: &str, given: &Bound<'_, PyAny>) -> PyErr {
    let what = match given.cast::<PyUntypedArray>() {
        Ok(array) => format!("{} dimensions of {}", array.ndim(), array.dtype()),
        Err(_) => given.get_type().to_string(),
    };
    PyTypeError::new_err(format!(
        "{name}: one dimension of int64, int32, uint32 or uint64 is expected, not {what}"
    ))
}

/// Node ids of an array, each below `num_nodes`.
///
/// # Errors
/// It is no array of whole numbers, or one of them is no node.
pub(super) fn nodes(name: &str, given: &Bound<'_, PyAny>, num_nodes: usize) -> PyResult<Vec<u32>> {
    with_ids!(name, given, |ids| {
        check(num_nodes, name, ids).map_err(super::error::value)?;
        Ok(ids.iter().map(|id| id.number() as u32).collect())
    })
}
