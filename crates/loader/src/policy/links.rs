//! Doubly linked rings over the numbers `0..n`, in arrays.

/// Predecessor and successor of each number in its ring: 8 bytes. Initially each number is a ring
/// of one. A list is the ring of a number that stands for the list itself.
#[derive(Debug)]
pub(super) struct Links {
    /// Both links side by side, so that a change reads one cache line per number.
    neighbors: Vec<[u32; 2]>,
}

impl Links {
    pub(super) fn new(n: usize) -> Self {
        Self { neighbors: (0..n as u32).map(|i| [i, i]).collect() }
    }

    /// Successor of `i` in its ring.
    #[inline(always)]
    pub(super) fn next(&self, i: u32) -> u32 {
        self.neighbors[i as usize][1]
    }

    /// Removes `i` from its ring; its own links become meaningless.
    #[inline(always)]
    pub(super) fn remove(&mut self, i: u32) {
        let [previous, next] = self.neighbors[i as usize];
        self.neighbors[previous as usize][1] = next;
        self.neighbors[next as usize][0] = previous;
    }

    /// Inserts `i`, which is in no ring, before `at`.
    #[inline(always)]
    pub(super) fn put_before(&mut self, i: u32, at: u32) {
        let previous = std::mem::replace(&mut self.neighbors[at as usize][0], i);
        self.neighbors[previous as usize][1] = i;
        self.neighbors[i as usize] = [previous, at];
    }
}
