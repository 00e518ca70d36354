//! Row-major matrices, re-exported from [`graphmill_core::matrix`], because loaders fill them and
//! layers read them.

#![forbid(unsafe_code)]

pub use graphmill_core::matrix::{Matrix, Slots, Sparse, Table, TableData, TableType, View, ViewMut};
