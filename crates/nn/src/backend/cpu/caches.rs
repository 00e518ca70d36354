//! How large the machine's caches are.

use std::sync::OnceLock;

/// Sizes in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caches {
    /// The second level: a core's own.
    pub(super) l2: usize,
    /// The last level, of all cores that share one.
    pub(super) l3: usize,
}

impl Caches {
    /// A plain machine, where the system does not say.
    const TYPICAL: Self = Self { l2: 1 << 20, l3: 16 << 20 };

    /// This machine's, read once.
    pub(super) fn get() -> Self {
        static FOUND: OnceLock<Caches> = OnceLock::new();
        *FOUND.get_or_init(|| {
            let l2 = size_of_level(2).unwrap_or(Self::TYPICAL.l2);
            Self { l2, l3: size_of_level(3).unwrap_or(Self::TYPICAL.l3).max(l2) }
        })
    }
}

/// What Linux says of the first core's cache of this level.
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

/// "1024K" is 1 MiB.
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
    fn sizes_as_linux_writes_them() {
        assert_eq!(bytes("1024K"), Some(1 << 20));
        assert_eq!(bytes("32M"), Some(32 << 20));
        assert_eq!(bytes("64"), Some(64));
        assert_eq!([bytes(""), bytes("K"), bytes("0K"), bytes("x")], [None; 4]);
    }

    #[test]
    fn the_last_level_holds_the_second() {
        let caches = Caches::get();
        assert!(caches.l2 > 0 && caches.l3 >= caches.l2);
    }
}
