//! Sizes of the machine's caches.

use std::sync::OnceLock;

/// Cache sizes in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caches {
    /// Second-level cache of a core.
    pub(super) l2: usize,
    /// Last-level cache that cores share.
    pub(super) l3: usize,
}

impl Caches {
    /// Typical sizes, used if the system does not report any.
    const TYPICAL: Self = Self { l2: 1 << 20, l3: 16 << 20 };

    /// Sizes of this machine, read once.
    pub(super) fn get() -> Self {
        static FOUND: OnceLock<Caches> = OnceLock::new();
        *FOUND.get_or_init(|| {
            let l2 = size_of_level(2).unwrap_or(Self::TYPICAL.l2);
            Self { l2, l3: size_of_level(3).unwrap_or(Self::TYPICAL.l3).max(l2) }
        })
    }
}

/// Size of the first core's cache of this level, as reported by Linux.
fn size_of_level(level: u32) -> Option<usize> {
    (0..8).find_map(|index| {
        let read = |name| {
            let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{name}");
            std::fs::read_to_string(path).ok()
        };
        let is_level = read("level")?.trim().parse() == Ok(level);
        if is_level { bytes(read("size")?.trim()) } else { None }
    })
}

/// Parses a size such as "1024K" (1 MiB).
fn bytes(size: &str) -> Option<usize> {
    let (number, unit) = match size.as_bytes().last()? {
        b'K' => (&size[..size.len() - 1], 1 << 10),
        b'M' => (&size[..size.len() - 1], 1 << 20),
        _ => (size, 1),
    };
    number.parse::<usize>().ok()?.checked_mul(unit).filter(|&bytes| bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linux_cache_sizes_are_parsed() {
        assert_eq!(bytes("1024K"), Some(1 << 20));
        assert_eq!(bytes("32M"), Some(32 << 20));
        assert_eq!(bytes("64"), Some(64));
        assert_eq!([bytes(""), bytes("K"), bytes("0K"), bytes("x")], [None; 4]);
    }

    #[test]
    fn last_level_is_at_least_the_second_level() {
        let caches = Caches::get();
        assert!(caches.l2 > 0 && caches.l3 >= caches.l2);
    }
}
