//! Memory that this process has freed, and that its allocator keeps for later requests.
//!
//! glibc's allocator takes large blocks from the system one by one, and returns each when it is
//! freed. The first one that is freed raises the size from which it does so, up to 32 MiB; later
//! blocks leave holes in memory that stays with the process. [`crate::memory::anonymous`] counts
//! them, so a measurement would depend on what the process did before.
//!
//! Without effect where the allocator is not glibc's.

#![allow(unsafe_code, reason = "system calls")]

/// Bytes of a block, and of free memory at the end, from which glibc returns memory: its defaults
/// at the start of a process, and those it has raised as far as it does.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const RETURNED_FROM: [[i32; 2]; 2] = [[128 << 10, 128 << 10], [32 << 20, 64 << 20]];

/// Returns freed memory to the system, so that [`crate::memory::anonymous`] counts memory in use.
///
/// Costs a walk over the allocator's free lists, and a page fault for each page that is used again.
pub fn return_to_system() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the call takes the allocator's own locks, and touches free memory only.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Calls `f` while the memory of large blocks returns to the system as soon as they are freed.
/// Other threads are slower meanwhile if they allocate large blocks.
pub fn returned_at_once<T>(f: impl FnOnce() -> T) -> T {
    /// Sets the thresholds of a running process, even if `f` panics.
    struct Raised;
    impl Drop for Raised {
        fn drop(&mut self) {
            set_thresholds(1);
        }
    }
    set_thresholds(0);
    let _raised = Raised;
    f()
}

/// Sets the thresholds of a row of `RETURNED_FROM`.
fn set_thresholds(row: usize) {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let [block, end] = RETURNED_FROM[row];
        // SAFETY: the calls take the allocator's own locks, and change two of its numbers.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, block);
            libc::mallopt(libc::M_TRIM_THRESHOLD, end);
        }
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    let _ = row;
}

#[cfg(test)]
mod tests {
    use super::{return_to_system, returned_at_once};
    use crate::memory::anonymous;

    #[test]
    fn memory_in_use_keeps_its_values() {
        let kept: Vec<Vec<u64>> = (0..200).map(|i| vec![i; 500]).collect();
        drop((0..200).map(|i| vec![i; 500]).collect::<Vec<Vec<u64>>>());
        return_to_system();
        assert!(kept.iter().zip(0..).all(|(values, i)| values.iter().all(|x| *x == i)));
    }

    /// Other tests of the process allocate at the same time, but much less.
    #[test]
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn large_blocks_do_not_count_once_they_are_freed() {
        // a freed block of this size would raise the threshold
        drop(vec![1u8; 24 << 20]);
        let taken = returned_at_once(|| {
            return_to_system();
            let before = anonymous().unwrap();
            drop((0..40).map(|i| vec![i as u8 + 1; 4 << 20]).collect::<Vec<_>>());
            anonymous().unwrap().saturating_sub(before)
        });
        assert!(taken < 80 << 20, "{taken} of 160 MiB");
    }
}
