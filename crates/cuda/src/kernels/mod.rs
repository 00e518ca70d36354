//! Kernels as typed structs: a field for each parameter, so that a launch with other arguments, or
//! another number of them, does not compile.
//!
//! [`table`] declares all kernels of the sources but those of `selftest.cu`, which tests launch
//! through the driver; the tests of this module compare names, types and order with the sources.
//!
//! | field | parameters in CUDA C++ |
//! |---|---|
//! | [`In<T>`], [`Out<T>`] | `const T*`, `T*`; with `Option`, the kernel accepts null |
//! | `usize`, `u64` | `uint64_t` |
//! | `u32`, `bool` | `uint32_t` |
//! | `f32` | `float` |
//! | [`Late<T>`] | that of `T`, and last `const uint64_t* late` |
//! | [`Table`] | `const float*` (`_f32`), `const Half*` (`_f16`) or `const Bfloat*` (`_bf16`) |
//! | [`Wide`] | none; if true, the kernel reads four values at a time (`_4`) |
//! | a group, such as [`Edges`] | those of its fields |

#![forbid(unsafe_code)]

mod declare;
mod pointer;
mod table;
#[cfg(test)]
mod tests;

use graphmill_core::matrix::TableType;

use crate::replay::PARAMETERS;
pub(crate) use pointer::{In, Out, Table};
pub(crate) use table::*;

/// Names of a kernel's variants: by type of the table (none, or that of `TableType`), width of
/// reads (one value or four), and rows (short or long).
pub(crate) type Names = [[[&'static str; 2]; 2]; 4];

/// Fields of a kernel.
pub(crate) trait Arguments {
    /// Names of the variants.
    const NAMES: &'static Names;

    /// Checks the number of values behind pointers. `num_rows` is the number of rows of a
    /// [`RowKernel`].
    ///
    /// # Panics
    /// Memory is smaller than the sizes that the fields give: a bug in the caller.
    fn check(&self, num_rows: usize);

    /// Adds the values of the fields in their order.
    fn add_to(&self, call: &mut Call);

    /// Values of the fields, checked.
    fn arguments(&self, num_rows: usize) -> Call {
        let mut call =
            Call { names: Self::NAMES, variant: [0; 3], values: [0; PARAMETERS], count: 0, late: 0 };
        self.check(num_rows);
        self.add_to(&mut call);
        call
    }
}

/// A kernel whose parameters are its fields.
pub(crate) trait Kernel: Arguments {
    /// Values of the parameters.
    fn call(&self) -> Call {
        self.arguments(0)
    }
}

/// A kernel for rows of edges, and a second one for the long rows (`_long`). In the sources,
/// `uint64_t rows, uint32_t long_from` follow the fields, and in the second kernel `LISTED` of
/// `kernels/long_rows.cuh`.
pub(crate) trait RowKernel: Arguments {
    /// Values for the first `rows` rows but those of `long_from` edges or more.
    fn short_rows(&self, rows: usize, long_from: u32) -> Call {
        let mut call = self.arguments(rows);
        rows.add_to(&mut call);
        long_from.add_to(&mut call);
        call
    }

    /// Values of the second kernel, for the long ones of `rows` rows, which are in a list.
    fn long_rows(&self, rows: usize, count: In<u32>, list: In<u32>) -> Call {
        let mut call = self.arguments(rows);
        call.variant[2] = 1;
        count.add_to(&mut call);
        list.add_to(&mut call);
        call
    }
}

/// A kernel with the values of its parameters.
#[derive(Debug)]
pub(crate) struct Call {
    names: &'static Names,
    variant: [usize; 3],
    values: [u64; PARAMETERS],
    count: usize,
    /// A bit for each late-bound value.
    late: u32,
}

impl Call {
    /// Name of the kernel in the source.
    pub(crate) fn name(&self) -> &'static str {
        let [table, width, rows] = self.variant;
        self.names[table][width][rows]
    }

    /// Values of the parameters, and a bit for each late-bound one. If there is one, the last
    /// parameter is the address of their table.
    pub(crate) fn values(&mut self) -> (&mut [u64], u32) {
        let count = self.count + usize::from(self.late != 0);
        (&mut self.values[..count], self.late)
    }

    /// Adds a value. A 32-bit parameter is read from its first bytes (little-endian).
    fn add(&mut self, value: u64) {
        assert!(self.count + 1 < PARAMETERS, "{}: more than {} arguments", self.name(), PARAMETERS - 1);
        self.values[self.count] = value;
        self.count += 1;
    }
}

/// Field of a kernel: the value of a parameter, or a group of values.
pub(crate) trait Parameter: Copy {
    /// Adds the values to those of a call.
    fn add_to(self, call: &mut Call);

    /// Adds the parameters' declarations for a field of this name to those of the sources.
    #[cfg(test)]
    fn declare(field: &str, to: &mut tests::Declaration);
}

/// A type of values in memory or of parameters.
pub(crate) trait Element {
    /// Name of the type in the sources.
    #[cfg(test)]
    const NAME: &'static str;
}

macro_rules! elements {
    ($($type:ty = $name:literal),*) => { $(
        impl Element for $type {
            #[cfg(test)]
            const NAME: &'static str = $name;
        }
    )* };
}
elements! {
    u8 = "uint8_t", u32 = "uint32_t", u64 = "uint64_t", i32 = "int32_t", f32 = "float", f64 = "double"
}

macro_rules! parameters {
    ($($type:ty as $element:ty: $bits:expr;)*) => { $(
        impl Parameter for $type {
            fn add_to(self, call: &mut Call) {
                let bits: fn(Self) -> u64 = $bits;
                call.add(bits(self));
            }

            #[cfg(test)]
            fn declare(field: &str, to: &mut tests::Declaration) {
                to.add(<$element>::NAME, field);
            }
        }
    )* };
}
parameters! {
    usize as u64: |x| x as u64;
    u64 as u64: |x| x;
    u32 as u32: u64::from;
    bool as u32: u64::from;
    f32 as f32: |x| x.to_bits().into();
}

/// Late-bound argument, which may differ each time the same launch is replayed. A kernel with such
/// arguments has one more parameter, the last: the address of their values, a 64-bit word each in
/// parameter order, or null if they are those of the launch itself (`kernels/common.cuh`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Late<T>(pub(crate) T);

impl<T: Parameter> Parameter for Late<T> {
    fn add_to(self, call: &mut Call) {
        call.late |= 1 << call.count;
        self.0.add_to(call);
    }

    #[cfg(test)]
    fn declare(field: &str, to: &mut tests::Declaration) {
        T::declare(field, to);
        to.late = true;
    }
}

/// True if the kernel reads four values at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wide(pub(crate) bool);

impl Wide {
    /// Values that a lane reads at a time.
    pub(crate) fn vector(self) -> usize {
        if self.0 { 4 } else { 1 }
    }
}

impl Parameter for Wide {
    fn add_to(self, call: &mut Call) {
        call.variant[1] = self.0.into();
    }

    #[cfg(test)]
    fn declare(_: &str, to: &mut tests::Declaration) {
        to.wide = true;
    }
}

impl Parameter for Table {
    fn add_to(self, call: &mut Call) {
        call.variant[0] = match self.kind {
            TableType::F32 => 1,
            TableType::F16 => 2,
            TableType::Bf16 => 3,
        };
        call.add(self.at.0);
    }

    #[cfg(test)]
    fn declare(field: &str, to: &mut tests::Declaration) {
        to.add_table(field);
    }
}

impl<T: Element> Parameter for In<T> {
    fn add_to(self, call: &mut Call) {
        call.add(self.address().0);
    }

    #[cfg(test)]
    fn declare(field: &str, to: &mut tests::Declaration) {
        to.add(&format!("const {}*", T::NAME), field);
    }
}

impl<T: Element> Parameter for Out<T> {
    fn add_to(self, call: &mut Call) {
        call.add(self.address().0);
    }

    #[cfg(test)]
    fn declare(field: &str, to: &mut tests::Declaration) {
        to.add(&format!("{}*", T::NAME), field);
    }
}

/// A pointer that may be null.
impl<P: Parameter + Pointer> Parameter for Option<P> {
    fn add_to(self, call: &mut Call) {
        match self {
            Some(at) => at.add_to(call),
            None => call.add(0),
        }
    }

    #[cfg(test)]
    fn declare(field: &str, to: &mut tests::Declaration) {
        P::declare(field, to);
    }
}

/// Parameters that are one pointer, which may be null.
pub(crate) trait Pointer {
    /// Number of values, if there are any.
    fn values(&self) -> Option<usize>;
}

impl<T> Pointer for In<T> {
    fn values(&self) -> Option<usize> {
        Some(self.len())
    }
}

impl<T> Pointer for Out<T> {
    fn values(&self) -> Option<usize> {
        Some(self.len())
    }
}

impl<P: Pointer> Pointer for Option<P> {
    fn values(&self) -> Option<usize> {
        self.as_ref().and_then(Pointer::values)
    }
}

/// Asserts that at least `values` values are behind a field.
fn require(names: &Names, field: &str, given: impl Pointer, values: usize) {
    if let Some(len) = given.values() {
        assert!(len >= values, "kernel {}: {field} has {len} values, fewer than {values}", names[0][0][0]);
    }
}
