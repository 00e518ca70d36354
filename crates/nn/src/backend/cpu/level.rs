//! Instruction sets of the kernels, chosen at run time.
//!
//! [`kernel!`] generates one function per instruction set from one generic body, and a function
//! that dispatches to them. Everything that the body calls must be `inline(always)`.

#![allow(unsafe_code, reason = "vector instructions")]

use std::cell::Cell;

/// Instruction set that the kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Instructions of every machine.
    Portable,
    /// AVX2, FMA and F16C: x86-64 since 2013.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
}

impl Level {
    /// All levels, from the lowest.
    pub const ALL: [Self; 3] = [Self::Portable, Self::Avx2, Self::Avx512];

    /// Returns true if this machine has the instructions.
    pub fn is_available(self) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                Self::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }

    /// Highest level of this machine.
    pub fn best() -> Self {
        // the standard library caches the detection
        *Self::ALL
            .iter()
            .rev()
            .find(|level| level.is_available())
            .expect("the portable level is always available")
    }
}

thread_local! {
    static FORCED: Cell<Option<Level>> = const { Cell::new(None) };
}

/// Runs `f` with the operations that it calls on this thread limited to `level`, for tests and
/// measurements. (Dense products in f32 choose their instructions themselves, except at
/// [`Level::Avx2`].)
///
/// # Panics
/// The machine lacks the instructions ([`Level::is_available`]).
pub fn with_level<T>(level: Level, f: impl FnOnce() -> T) -> T {
    assert!(level.is_available(), "this machine lacks {level:?}");
    /// Restores the previous level, even if `f` panics.
    struct Restore(Option<Level>);
    impl Drop for Restore {
        fn drop(&mut self) {
            FORCED.set(self.0);
        }
    }
    let _restore = Restore(FORCED.replace(Some(level)));
    f()
}

/// A [`Level`] that this machine has. It is created only by detection, so kernels may rely on it.
#[derive(Clone, Copy)]
pub(crate) struct Isa(Level);

impl Isa {
    /// The highest level of this machine, or that of [`with_level`].
    pub(crate) fn current() -> Self {
        Self(FORCED.get().unwrap_or_else(Level::best))
    }

    /// The level.
    pub(crate) fn level(self) -> Level {
        self.0
    }
}

/// `kernel! { fn name[generics](s: S, arg: type, ...) -> out { body } }` defines
/// `fn name(isa, arg, ...)`, in whose body `s` is the [`Simd`](super::simd::Simd) value of type
/// `S`. Generics must follow from the arguments.
macro_rules! kernel {
    ($(
        $(#[$meta:meta])*
        fn $name:ident [$($generics:tt)*] ($s:ident : $S:ident, $($arg:ident : $ty:ty),* $(,)?) $(-> $out:ty)?
        $body:block
    )*) => {$(
        $(#[$meta])*
        #[allow(clippy::too_many_arguments, reason = "an inner loop with its inputs and outputs")]
        #[allow(unsafe_code, reason = "vector instructions")]
        pub(super) fn $name<$($generics)*>(
            isa: $crate::backend::cpu::level::Isa, $($arg: $ty),*
        ) $(-> $out)? {
            use $crate::backend::cpu::simd::{Portable, Simd};
            #[inline(always)]
            fn body<$S: Simd, $($generics)*>($s: $S, $($arg: $ty),*) $(-> $out)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
            fn avx512<$($generics)*>($($arg: $ty),*) $(-> $out)? {
                // SAFETY: the caller has these features.
                body(unsafe { $crate::backend::cpu::simd_x86::Avx512::new() }, $($arg),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn avx2<$($generics)*>($($arg: $ty),*) $(-> $out)? {
                // SAFETY: the caller has these features.
                body(unsafe { $crate::backend::cpu::simd_x86::Avx2::new() }, $($arg),*)
            }

            match isa.level() {
                // SAFETY: an `Isa` is only created for a level of this machine.
                #[cfg(target_arch = "x86_64")]
                $crate::backend::cpu::level::Level::Avx512 => unsafe { avx512($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                $crate::backend::cpu::level::Level::Avx2 => unsafe { avx2($($arg),*) },
                _ => body(Portable, $($arg),*),
            }
        }
    )*};
}
pub(crate) use kernel;

/// Prefetches the cache lines of `len` values from `start` on, as far as they are inside `data`. A
/// hint: any address is valid.
#[inline(always)]
pub(crate) fn prefetch<T>(data: &[T], start: usize, len: usize) {
    prefetch_at(data.as_ptr().wrapping_add(start), len);
}

/// [`prefetch`] for `len` values from `first` on.
#[inline(always)]
pub(crate) fn prefetch_at<T>(first: *const T, len: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let mut at = 0;
        while at < len {
            // SAFETY: every x86-64 has the instruction, and it does not fault.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(first.wrapping_add(at).cast()) };
            at += 64 / size_of::<T>();
        }
        // a row that does not start on a cache line ends on one more
        // SAFETY: as above.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(first.wrapping_add(len.saturating_sub(1)).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (first, len);
}
