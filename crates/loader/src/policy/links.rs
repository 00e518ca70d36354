//! Doubly linked rings over the numbers `0..n`, in arrays.

/// For each number the one before and the one behind it in its ring: 8 bytes. At first each is a
/// ring of its own. A list is the ring of a number that stands for none of its members.
#[derive(Debug)]
pub(super) struct Links {
    /// Both in one place: a change reads one line for each number it concerns.
    around: Vec<[u32; 2]>,
}

impl Links {
    pub(super) fn new(n: usize) -> Self {
        Self { around: (0..n as u32).map(|i| [i, i]).collect() }
    }

    /// The one behind.
    #[inline(always)]
    pub(super) fn behind(&self, i: u32) -> u32 {
        self.around[i as usize][1]
    }

    /// Takes `i` out of its ring; its own links are then of no meaning.
    #[inline(always)]
    pub(super) fn remove(&mut self, i: u32) {
        let [before, behind] = self.around[i as usize];
        self.around[before as usize][1] = behind;
        self.around[behind as usize][0] = before;
    }

    /// Puts `i`, which is in no ring, before `at`.
    #[inline(always)]
    pub(super) fn put_before(&mut self, i: u32, at: u32) {
        let before = std::mem::replace(&mut self.around[at as usize][0], i);
        self.around[before as usize][1] = i;
        self.around[i as usize] = [before, at];
    }
}
