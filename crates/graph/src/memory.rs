//! Allocation whose size a file asked for: refused with a message where it cannot be meant, never
//! an abort. (Every reader first bounds the size by the bytes that are really there; this is the
//! last line of defence.)

use std::sync::OnceLock;

use bytemuck::Zeroable;

use crate::{Error, Result};

/// The machine's memory in bytes, where the system tells it.
fn total() -> Option<u64> {
    static TOTAL: OnceLock<Option<u64>> = OnceLock::new();
    *TOTAL.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/meminfo").ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    })
}

/// Refuses `count` elements of `T` when they are more than the machine has memory.
fn check<T>(count: usize) -> Result<()> {
    let bytes = (count as u128) * size_of::<T>() as u128;
    match total() {
        Some(total) if bytes > u128::from(total) => Err(Error::invalid(format!(
            "{bytes} bytes would be needed, but this machine has {total}: either the size is damaged or the data needs a larger machine"
        ))),
        _ => Ok(()),
    }
}

/// An empty vector with room for `count` elements.
///
/// # Errors
/// They are more than the machine's memory, or the system refuses.
pub(crate) fn reserve<T>(count: usize) -> Result<Vec<T>> {
    check::<T>(count)?;
    let mut data = Vec::new();
    data.try_reserve_exact(count)
        .map_err(|e| Error::invalid(format!("cannot reserve memory for {count} values: {e}")))?;
    Ok(data)
}

/// `count` zeros.
///
/// # Errors
/// They are more than the machine's memory, or the system refuses.
pub(crate) fn zeroed<T: Zeroable>(count: usize) -> Result<Vec<T>> {
    check::<T>(count)?;
    bytemuck::allocation::try_zeroed_vec(count)
        .map_err(|()| Error::invalid(format!("cannot reserve memory for {count} values")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absurd_sizes_are_errors() {
        assert!(zeroed::<u64>(usize::MAX).is_err());
        assert!(reserve::<u64>(usize::MAX / 16).is_err());
        assert_eq!(zeroed::<u8>(3).unwrap(), [0, 0, 0]);
    }
}
