//! Fuzzing of every reader: any bytes give an error or a value, never a panic, and never more
//! memory than the bytes justify ([`alloc`]).
//!
//! A target is a function of bytes in a separate file; [`targets::TABLE`] lists them. `cargo xtask
//! fuzz` runs them under libFuzzer; the test `regressions` runs every seed, every input that once
//! caused a fault, and some mutations of them.

pub mod alloc;
pub mod input;
pub mod mutate;
pub mod pack;
pub mod scratch;
pub mod seeds;
pub mod targets;

/// Defines a program of the fuzzer that runs one target; without `--cfg fuzzing` it only prints how
/// to run it.
#[macro_export]
macro_rules! program {
    ($target:ident) => {
        #[cfg(fuzzing)]
        libfuzzer_sys::fuzz_target!(|data: &[u8]| {
            $crate::one_thread();
            let _ = $crate::targets::$target::run(data);
        });

        #[cfg(not(fuzzing))]
        fn main() {
            println!("cargo xtask fuzz {}", stringify!($target));
        }
    };
}

/// Restricts parallel loops to this thread: small inputs are read in microseconds, and handing each
/// to another thread would take longer.
///
/// # Panics
/// The pool cannot be created.
pub fn one_thread() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread();
        pool.build_global().expect("the pool is made once");
    });
}
