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
    collections::{HashMap, HashSet},
    hash::{BuildHasher, Hash},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use bytemuck::Zeroable;
use rayon::iter::IndexedParallelIterator;

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
    demand_append(data, from);
}

/// Appends copies of the values `from` to `data`. Unwinds as [`demand`].
#[inline]
pub fn demand_append<T: Clone>(data: &mut Vec<T>, from: &[T]) {
    demand(data, from.len());
    data.extend_from_slice(from);
}

/// Appends `value` to `data`. Unwinds as [`demand`].
#[inline]
pub fn demand_push<T>(data: &mut Vec<T>, value: T) {
    demand(data, 1);
    data.push(value);
}

/// Appends `values` to `data`. Unwinds as [`demand`]; then some values may be appended if their
/// iterator does not know its length.
#[inline]
pub fn demand_extend<T>(data: &mut Vec<T>, values: impl IntoIterator<Item = T>) {
    let values = values.into_iter();
    let (least, most) = values.size_hint();
    demand(data, least);
    if most == Some(least) {
        data.extend(values);
    } else {
        values.for_each(|value| demand_push(data, value));
    }
}

/// Collects `values` into a vector. Unwinds as [`demand`].
pub fn demand_collect<T>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut data = Vec::new();
    demand_extend(&mut data, values);
    data
}

/// Collects `values` into a vector, on all threads of the pool. Unwinds as [`demand`].
pub fn demand_par_collect<T: Send>(values: impl IndexedParallelIterator<Item = T>) -> Vec<T> {
    let mut data = Vec::new();
    demand(&mut data, values.len());
    values.collect_into_vec(&mut data);
    data
}

/// Reserves capacity for `more` values beside those of `set`. Unwinds as [`demand`].
#[inline]
pub fn demand_in_set<T: Eq + Hash, S: BuildHasher>(set: &mut HashSet<T, S>, more: usize) {
    if more > set.capacity() - set.len() {
        let bytes = bytes_of::<T>(set.len().saturating_add(more));
        if !exists(bytes) || set.try_reserve(more).is_err() {
            refuse(bytes);
        }
    }
}

/// Reserves capacity for `more` entries beside those of `map`. Unwinds as [`demand`].
#[inline]
pub fn demand_in_map<K: Eq + Hash, V, S: BuildHasher>(map: &mut HashMap<K, V, S>, more: usize) {
    if more > map.capacity() - map.len() {
        let bytes = bytes_of::<(K, V)>(map.len().saturating_add(more));
        if !exists(bytes) || map.try_reserve(more).is_err() {
            refuse(bytes);
        }
    }
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
    use rayon::prelude::*;

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
        demand_append(&mut data, &[]);
        demand_push(&mut data, 9);
        // a known length, and an unknown one
        demand_extend(&mut data, [1, 2]);
        demand_extend(&mut data, (0..9).filter(|value| value % 4 == 0));
        assert_eq!(data[30..], [9, 1, 2, 0, 4, 8]);
        assert_eq!(demand_collect(data[..30].iter().copied()), plain[..30]);
        assert_eq!(demand_par_collect(plain.par_iter().copied()), plain);
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
            assert!(catch(|| demand_extend(&mut data, 0..len as u64)).is_err());
            assert!(catch(|| demand_collect(0..len as u64)).is_err());
            assert!(catch(|| demand_in_set(&mut HashSet::from([1u64]), len)).is_err());
            assert!(catch(|| demand_in_map(&mut HashMap::from([(1u64, 2u64)]), len)).is_err());
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
