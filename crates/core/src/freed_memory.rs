//! Memory that this process has freed, and that its allocator keeps for later requests.

#![allow(unsafe_code, reason = "system calls")]

/// Returns freed memory to the system, so that [`crate::memory::anonymous`] counts memory in use.
/// Without effect where the allocator is not glibc's.
///
/// Costs a walk over the allocator's free lists, and a page fault for each page that is used again.
pub fn return_to_system() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the call takes the allocator's own locks, and touches free memory only.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::return_to_system;

    #[test]
    fn memory_in_use_keeps_its_values() {
        let kept: Vec<Vec<u64>> = (0..200).map(|i| vec![i; 500]).collect();
        drop((0..200).map(|i| vec![i; 500]).collect::<Vec<Vec<u64>>>());
        return_to_system();
        assert!(kept.iter().zip(0..).all(|(values, i)| values.iter().all(|x| *x == i)));
    }
}
