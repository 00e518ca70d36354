//! Addresses of values on a device, with the values' type.

use std::{fmt, marker::PhantomData};

use graphmill_core::matrix::TableType;

use crate::driver::Address;

macro_rules! pointers {
    ($($(#[$doc:meta])* $name:ident)*) => { $(
        $(#[$doc])*
        pub(crate) struct $name<T>(Address, PhantomData<fn() -> T>);

        impl<T> $name<T> {
            /// Values at this address.
            pub(crate) fn at(address: Address) -> Self {
                Self(address, PhantomData)
            }

            /// Address of the first value.
            pub(crate) fn address(self) -> Address {
                self.0
            }

            /// The values from this one on.
            pub(crate) fn offset(self, values: usize) -> Self {
                Self::at(self.0.offset(values * size_of::<T>()))
            }

            /// Returns true if the address is a multiple of four values.
            pub(crate) fn is_wide(self) -> bool {
                self.0.0.is_multiple_of(4 * size_of::<T>() as u64)
            }
        }

        impl<T> Clone for $name<T> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<T> Copy for $name<T> {}

        impl<T> fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", self.0)
            }
        }
    )* };
}

pointers! {
    /// Values on a device that a kernel reads.
    In
    /// Values on a device that a kernel writes, or reads and writes.
    Out
}

impl<T> Out<T> {
    /// The same memory with values of another type.
    pub(crate) fn cast<U>(self) -> Out<U> {
        Out::at(self.0)
    }
}

impl<T> In<T> {
    /// The same memory with values of another type.
    pub(crate) fn cast<U>(self) -> In<U> {
        In::at(self.0)
    }
}

/// Values that were written before.
impl<T> From<Out<T>> for In<T> {
    fn from(written: Out<T>) -> Self {
        Self::at(written.0)
    }
}

/// Rows of f32 or of 16-bit floats that a kernel reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    /// Type of the values.
    pub(crate) kind: TableType,
    /// Address of the first value.
    pub(crate) at: Address,
}

impl Table {
    /// Returns true if the address is a multiple of four values.
    pub(crate) fn is_wide(self) -> bool {
        self.at.0.is_multiple_of(4 * self.kind.width() as u64)
    }

    /// The values, which are f32.
    ///
    /// # Panics
    /// They are 16-bit floats, which only operations on tables support: a bug in the caller.
    pub(crate) fn as_f32(self) -> In<f32> {
        assert_eq!(self.kind, TableType::F32, "tables of 16-bit floats must be gathered first");
        In::at(self.at)
    }
}

impl From<In<f32>> for Table {
    fn from(values: In<f32>) -> Self {
        Self { kind: TableType::F32, at: values.0 }
    }
}
