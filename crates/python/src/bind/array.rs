//! Conversion of NumPy arrays from and to Rust memory, without copies.

#![allow(unsafe_code, reason = "foreign libraries")]

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

/// Owner of memory that an array views.
#[pyclass(frozen, module = "graphmill._graphmill")]
struct MemoryOwner {
    _memory: Box<dyn Any + Send + Sync>,
}

/// Creates an array of `shape` over memory that `owner` owns.
///
/// # Safety
/// From `start` on there are as many initialised values of `descr` as `shape` needs, in C order and
/// aligned, while `owner` lives. If `writable`, nothing else reads or writes them.
pub(super) unsafe fn view<'py>(
    py: Python<'py>,
    start: *const u8,
    descr: Bound<'py, PyArrayDescr>,
    shape: &[usize],
    writable: bool,
    owner: Box<dyn Any + Send + Sync>,
) -> PyResult<Bound<'py, PyAny>> {
    let owner = Bound::new(py, MemoryOwner { _memory: owner })?;
    let mut dims: Vec<npy_intp> = shape.iter().map(|&d| d as npy_intp).collect();
    let flags = if writable { npyffi::NPY_ARRAY_WRITEABLE } else { 0 };
    // SAFETY: the caller guarantees the memory; NumPy takes over the references to `descr` and
    // `owner`, and copies the dimensions.
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
        if PY_ARRAY_API.PyArray_SetBaseObject(py, array.as_ptr().cast(), owner.into_ptr()) < 0 {
            return Err(PyErr::fetch(py));
        }
        Ok(array)
    }
}

/// Creates an array of a lease's values; the lease returns to its pool with the array's last view.
pub(super) fn of_lease<'py>(
    py: Python<'py>,
    mut lease: Lease,
    descr: Bound<'py, PyArrayDescr>,
    shape: &[usize],
) -> PyResult<Bound<'py, PyAny>> {
    let bytes = lease.bytes_mut();
    if shape.iter().product::<usize>() * descr.itemsize() != bytes.len() {
        return Err(PyValueError::new_err(format!(
            "{} bytes do not fit an array of shape {shape:?}",
            bytes.len()
        )));
    }
    // exclusive, because programs write to the array
    let start = bytes.as_mut_ptr();
    // SAFETY: the number of bytes was just checked; they are on the heap, stay in place when the
    // lease moves, and belong to this array alone.
    unsafe { view(py, start, descr, shape, true, Box::new(lease)) }
}

/// Creates an array of a lease's 64-bit ids.
pub(super) fn of_ids<'py>(py: Python<'py>, lease: Lease, shape: &[usize]) -> PyResult<Bound<'py, PyAny>> {
    of_lease(py, lease, i64::get_dtype(py), shape)
}

/// Creates a read-only array of a buffer's values.
pub(super) fn of_buffer<'py, T: Element + Pod + Send + Sync>(
    py: Python<'py>,
    buffer: &Buffer<T>,
    shape: &[usize],
) -> PyResult<Bound<'py, PyAny>> {
    let values: &[T] = buffer;
    if shape.iter().product::<usize>() != values.len() {
        return Err(PyValueError::new_err(format!(
            "{} values do not fit an array of shape {shape:?}",
            values.len()
        )));
    }
    // SAFETY: the number of values was just checked; a clone of the buffer keeps them in place, and
    // they are never written.
    unsafe { view(py, values.as_ptr().cast(), T::get_dtype(py), shape, false, Box::new(buffer.clone())) }
}

/// Rows of an array of any type, along its first axis.
pub(super) struct Table {
    pub(super) rows: Rows,
    pub(super) descr: Py<PyArrayDescr>,
    /// Shape of a row.
    pub(super) shape: Vec<usize>,
}

/// Takes the rows of an array without a copy.
///
/// # Errors
/// The object is not an array, or the array has no axis, is not contiguous or holds Python objects.
pub(super) fn table(name: &str, given: &Bound<'_, PyAny>) -> PyResult<Table> {
    let Ok(array) = given.cast::<PyUntypedArray>() else {
        return Err(PyTypeError::new_err(format!(
            "{name}: expected a NumPy array, not {}",
            given.get_type()
        )));
    };
    let descr = array.dtype();
    let Some((&rows, shape)) = array.shape().split_first() else {
        return Err(PyValueError::new_err(format!(
            "{name}: expected an array with a row per node or edge, not a scalar"
        )));
    };
    if descr.has_object() {
        return Err(PyTypeError::new_err(format!("{name}: expected an array of numbers, not of {descr}")));
    }
    if !array.is_c_contiguous() {
        return Err(PyValueError::new_err(format!(
            "{name}: the rows are not contiguous; pass numpy.ascontiguousarray(...)"
        )));
    }
    let row_bytes = shape.iter().product::<usize>() * descr.itemsize();
    // SAFETY: the object is an array, whose pointer is valid while it lives.
    let start = unsafe { (*array.as_array_ptr()).fields.data }.cast::<u8>().cast_const();
    // SAFETY: the array is contiguous and has that shape; a reference to it keeps its memory in
    // place, because NumPy refuses to resize a referenced array. The one exception is
    // `resize(refcheck=False)`, whose documentation makes the caller responsible for other
    // references; the Python tutorial warns of it.
    let rows = unsafe { Rows::new(start, row_bytes, rows, Arc::new(given.clone().unbind())) };
    Ok(Table { rows, descr: descr.unbind(), shape: shape.to_vec() })
}

/// Evaluates `$body` with the values of a one-dimensional integer array as a slice of its type.
macro_rules! with_ids {
    ($name:expr, $given:expr, |$ids:ident| $body:expr) => {{
        let given: &Bound<'_, PyAny> = $given;
        if let Ok(array) = given.cast::<PyArray1<i64>>() {
            let array =
                array.try_readonly().map_err(|e| crate::bind::error::value(format!("{}: {e}", $name)))?;
            let $ids = array.as_slice().map_err(|_| crate::bind::array::not_contiguous($name))?;
            $body
        } else if let Ok(array) = given.cast::<PyArray1<i32>>() {
            let array =
                array.try_readonly().map_err(|e| crate::bind::error::value(format!("{}: {e}", $name)))?;
            let $ids = array.as_slice().map_err(|_| crate::bind::array::not_contiguous($name))?;
            $body
        } else if let Ok(array) = given.cast::<PyArray1<u32>>() {
            let array =
                array.try_readonly().map_err(|e| crate::bind::error::value(format!("{}: {e}", $name)))?;
            let $ids = array.as_slice().map_err(|_| crate::bind::array::not_contiguous($name))?;
            $body
        } else if let Ok(array) = given.cast::<PyArray1<u64>>() {
            let array =
                array.try_readonly().map_err(|e| crate::bind::error::value(format!("{}: {e}", $name)))?;
            let $ids = array.as_slice().map_err(|_| crate::bind::array::not_contiguous($name))?;
            $body
        } else {
            return Err(crate::bind::array::not_ids($name, given));
        }
    }};
}
pub(super) use with_ids;

/// Error for an array that is not contiguous.
pub(super) fn not_contiguous(name: &str) -> PyErr {
    PyValueError::new_err(format!("{name}: the values are not contiguous; pass numpy.ascontiguousarray(...)"))
}

/// Error for an array that does not hold ids.
pub(super) fn not_ids(name: &str, given: &Bound<'_, PyAny>) -> PyErr {
    let what = match given.cast::<PyUntypedArray>() {
        Ok(array) => format!("{} dimensions of {}", array.ndim(), array.dtype()),
        Err(_) => given.get_type().to_string(),
    };
    PyTypeError::new_err(format!(
        "{name}: expected one dimension of int64, int32, uint32 or uint64, not {what}"
    ))
}

/// Copies the node ids of an array, each below `num_nodes`.
///
/// # Errors
/// The object is not an integer array, or an id is out of range.
pub(super) fn nodes(name: &str, given: &Bound<'_, PyAny>, num_nodes: usize) -> PyResult<Vec<u32>> {
    with_ids!(name, given, |ids| {
        check(num_nodes, name, ids).map_err(super::error::value)?;
        Ok(ids.iter().map(|id| id.number() as u32).collect())
    })
}
