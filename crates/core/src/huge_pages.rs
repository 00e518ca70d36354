//! Huge pages for large vectors of intermediate results. Rows that are gathered and summed at
//! random read one address translation for 2 MiB in the place of one for 4 KiB, and the first use
//! of new memory costs a five-hundredth of the page faults.

#![allow(unsafe_code, reason = "system calls")]

use crate::memory;

/// Vectors of fewer bytes are left alone: two huge pages.
const SMALLEST: usize = 4 << 20;

/// Lengthens `data` to `len` values, and asks the system for huge pages for it if it is large. The
/// new values are `value`.
///
/// A refusal of huge pages costs speed only, and other systems than Linux are not asked. Unwinds as
/// [`memory::demand`] if the system refuses the memory. O(`len`).
pub fn lengthen<T: Copy>(data: &mut Vec<T>, len: usize, value: T) {
    if len <= data.len() {
        return;
    }
    let old = data.capacity();
    memory::demand(data, len - data.len());
    if data.capacity() > old {
        prefer(data);
    }
    data.resize(len, value);
}

/// Asks for huge pages for the whole allocation of a vector.
#[cfg(all(target_os = "linux", not(miri)))]
fn prefer<T>(data: &mut Vec<T>) {
    let bytes = data.capacity() * size_of::<T>();
    if bytes < SMALLEST {
        return;
    }
    let page = rustix::param::page_size();
    let start = data.as_mut_ptr() as usize;
    let (first, end) = (start.next_multiple_of(page), (start + bytes) / page * page);
    // SAFETY: the pages lie within the vector's allocation, and the size of pages changes no value.
    let _ = unsafe { rustix::mm::madvise(first as *mut _, end - first, rustix::mm::Advice::LinuxHugepage) };
}

/// Other systems choose the size of pages themselves.
#[cfg(not(all(target_os = "linux", not(miri))))]
fn prefer<T>(_: &mut Vec<T>) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_resize() {
        for lens in [[0, 3, 2], [1000, 3 << 20, 7 << 20], [1, 2 << 20, 5]] {
            let (mut data, mut plain) = (Vec::new(), Vec::new());
            for (value, len) in lens.into_iter().enumerate() {
                lengthen(&mut data, len, value as u32);
                plain.resize(len.max(plain.len()), value as u32);
                assert!(data == plain, "{lens:?}");
            }
        }
    }
}
