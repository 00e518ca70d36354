//! Addresses of values on a device, with the values' type and number.

use std::{fmt, marker::PhantomData};

use graphmill_core::matrix::TableType;

use crate::driver::Address;

macro_rules! pointers {
    ($($(#[$doc:meta])* $name:ident)*) => { $(
        $(#[$doc])*
        pub(crate) struct $name<T> {
            at: Address,
            len: usize,
            of: PhantomData<fn() -> T>,
        }

        impl<T> $name<T> {
            /// `len` values at an address.
            pub(crate) fn new(at: Address, len: usize) -> Self {
                Self { at, len, of: PhantomData }
            }

            /// Values at an address, whose number is not checked.
            pub(crate) fn at(at: Address) -> Self {
                Self::new(at, usize::MAX)
            }

            /// Number of values, or more if it is not known.
            pub(crate) fn len(&self) -> usize {
                self.len
            }

            /// Address of the first value.
            pub(crate) fn address(self) -> Address {
                self.at
            }

            /// The values from this one on.
            ///
            /// # Panics
            /// There are fewer values: a bug in the caller.
            pub(crate) fn offset(self, values: usize) -> Self {
                assert!(values <= self.len, "value {values} of {}", self.len);
                Self::new(self.at.offset(values * size_of::<T>()), self.len - values)
            }

            /// Returns true if the address is a multiple of four values.
            pub(crate) fn is_wide(self) -> bool {
                self.at.0.is_multiple_of(4 * size_of::<T>() as u64)
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
                write!(f, "{:?}", self.at)
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
    /// The same memory with values of another type of this size.
    pub(crate) fn cast<U>(self) -> Out<U> {
        const { assert!(size_of::<T>() == size_of::<U>()) };
        Out::new(self.at, self.len)
    }
}

impl<T> In<T> {
    /// The same memory with values of another type of this size.
    pub(crate) fn cast<U>(self) -> In<U> {
        const { assert!(size_of::<T>() == size_of::<U>()) };
        In::new(self.at, self.len)
    }
}

/// Values that were written before.
impl<T> From<Out<T>> for In<T> {
    fn from(written: Out<T>) -> Self {
        Self::new(written.at, written.len)
    }
}

/// Rows of f32 or of 16-bit floats that a kernel reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    /// Type of the values.
    pub(crate) kind: TableType,
    /// Address of the first value.
    pub(crate) at: Address,
    /// Number of values.
    pub(crate) len: usize,
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
    pub(crate) fn floats(self) -> In<f32> {
        assert_eq!(self.kind, TableType::F32, "tables of 16-bit floats must be gathered first");
        In::new(self.at, self.len)
    }
}

impl From<In<f32>> for Table {
    fn from(values: In<f32>) -> Self {
        Self { kind: TableType::F32, at: values.at, len: values.len }
    }
}
