//! Memory of intermediate results, and its refusal.
//!
//! Matrices, blocks and scratch grow deep inside of operations that return no errors, because their
//! memory is reused and almost never grows. They grow through the functions of this module. If the
//! system refuses the memory, the thread unwinds to the boundary of the work: a stage of a batch, a
//! request, a command. There [`refusal`] or [`catch`] makes an [`Error::Memory`] of it. Values that
//! the work left half written are those of a panic at the same place, which boundaries handle.
//!
//! A vector with enough capacity costs one comparison. Without it the process would be aborted, and
//! with it everything that was trained since the last checkpoint.

#![forbid(unsafe_code)]

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use bytemuck::Zeroable;

use crate::{Error, Result};

/// Requests of more bytes are compared with the memory of the machine: the system may promise more
/// than it has, and end the process at the first use.
const LARGE: u128 = 1 << 20;

/// Number of bytes that were refused: the payload of an unwinding thread.
struct Refused(u128);

/// Reserves capacity for `more` values behind those of `data`: as [`Vec::reserve`], or only what is
/// needed if the system has no more.
///
/// Unwinds to [`refusal`] or [`catch`] if the system refuses the memory; then `data` is unchanged.
#[inline]
pub fn demand<T>(data: &mut Vec<T>, more: usize) {
    if more > data.capacity() - data.len() {
        enlarge(data, more);
    }
}

/// Changes the length of `data` to `len`, with copies of `value` at the end. Unwinds as [`demand`].
#[inline]
pub fn demand_len<T: Clone>(data: &mut Vec<T>, len: usize, value: T) {
    demand(data, len.saturating_sub(data.len()));
    data.resize(len, value);
}

/// Makes `data` a copy of `from`, in its memory. Unwinds as [`demand`]; then `data` is empty.
pub fn demand_copy<T: Clone>(data: &mut Vec<T>, from: &[T]) {
    data.clear();
    demand(data, from.len());
    data.extend_from_slice(from);
}

/// Allocates `count` zeros. Unwinds as [`demand`].
pub fn demand_zeros<T: Zeroable>(count: usize) -> Vec<T> {
    let bytes = bytes_of::<T>(count);
    let zeros = exists(bytes).then(|| bytemuck::allocation::try_zeroed_vec(count).ok());
    zeros.flatten().unwrap_or_else(|| refuse(bytes))
}

#[cold]
fn enlarge<T>(data: &mut Vec<T>, more: usize) {
    let bytes = bytes_of::<T>(data.len().saturating_add(more));
    if !exists(bytes) || (data.try_reserve(more).is_err() && data.try_reserve_exact(more).is_err()) {
        refuse(bytes);
    }
}

fn bytes_of<T>(count: usize) -> u128 {
    count as u128 * size_of::<T>() as u128
}

/// Returns false if the machine, or the limit of this process, has fewer bytes in all.
fn exists(bytes: u128) -> bool {
    bytes < LARGE || super::total().is_none_or(|total| bytes <= u128::from(total))
}

/// Unwinds. No message is printed: the boundary returns an error.
#[cold]
fn refuse(bytes: u128) -> ! {
    resume_unwind(Box::new(Refused(bytes)))
}

/// Error of a thread that unwound with this payload because memory was refused; `None` for a panic.
pub fn refusal(payload: &(dyn Any + Send)) -> Option<Error> {
    let Refused(bytes) = payload.downcast_ref()?;
    Some(Error::Memory(format!(
        "{bytes} bytes of memory for an intermediate result were refused: the memory, or the limit of this \
         process, is exhausted; lower --batch-size, --fanout or --hidden, give train a --host-budget, or \
         raise the limit"
    )))
}

/// Runs `work`, which may unwind because memory is refused. A panic goes on.
///
/// ```
/// use graphmill_core::{Error, memory};
///
/// let mut data: Vec<u64> = Vec::new();
/// let refused = memory::catch(|| memory::demand(&mut data, usize::MAX / 8));
/// assert!(matches!(refused, Err(Error::Memory(_))));
/// assert_eq!(memory::catch(|| 7)?, 7);
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// Memory was refused. Values that `work` changed may be half written.
pub fn catch<R>(work: impl FnOnce() -> R) -> Result<R> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| match refusal(&*payload) {
        Some(error) => error,
        None => resume_unwind(payload),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_grow_as_those_of_the_standard_library() {
        let (mut data, mut plain) = (vec![1u32], vec![1u32]);
        for (len, value) in [(3, 5), (1000, 7), (2, 9), (40, 1)] {
            demand_len(&mut data, len, value);
            plain.resize(len, value);
            assert_eq!(data, plain);
        }
        let before = (data.as_ptr(), data.capacity());
        demand_copy(&mut data, &plain[..30]);
        assert_eq!((data.as_ptr(), data.capacity()), before, "memory is reused");
        assert_eq!(data, plain[..30]);
        assert_eq!(demand_zeros::<u16>(3), [0; 3]);
        assert!(demand_zeros::<u64>(0).is_empty());
    }

    #[test]
    fn a_refusal_is_an_error_with_its_size_and_leaves_the_values() {
        let mut data = vec![7u64];
        // more than an address space, and more than any machine
        for len in [usize::MAX, usize::MAX / 64] {
            for work in [demand_len::<u64> as fn(&mut _, _, u64), |data, len, _| demand(data, len)] {
                let error = catch(|| work(&mut data, len, 0_u64)).unwrap_err();
                assert!(matches!(error, Error::Memory(_)), "{error}");
                assert!(
                    error.to_string().contains("bytes of memory") && error.to_string().contains("; lower")
                );
                assert_eq!(data, [7]);
            }
            assert!(catch(|| demand_zeros::<u64>(len)).is_err());
        }
    }

    #[test]
    fn a_refusal_on_another_thread_of_a_pool_is_an_error_and_a_panic_goes_on() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let refused = || pool.install(|| rayon::join(|| (), || demand(&mut vec![0u8], usize::MAX)));
        assert!(matches!(catch(refused), Err(Error::Memory(_))));
        let panic = catch_unwind(|| catch::<()>(|| panic!("a fault")));
        assert_eq!(*panic.unwrap_err().downcast_ref::<&str>().unwrap(), "a fault");
    }
}
