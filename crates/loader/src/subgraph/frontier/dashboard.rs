//! The Dashboard (paper 003, sections 4.2 and 4.3): the frontier as a table that is popped by throwing darts at it.
//!
//! A node of the frontier has a *tile*, and *pins* to it in consecutive cells of the board, in number as its weight. A dart at a uniform
//! place then finds a node with probability proportional to its weight, whatever the weights, in O(1) as long as enough of the
//! board is live. A new node's pins are appended; when the board, `eta` times what was live, is full, a *clean-up* lays the live tiles out
//! anew: once in about `(eta - 1)` times the live cells' appends.
//!
//! Where we deviate (the first three points are switched off in a board *as published*, which the bench compares with):
//! - A cell may stand for `2^shift` positions. Darts fall on positions, and a node has as many positions as its weight, so the
//!   distribution stays exact: the last cell of a run is merely live in part. The average node gets some two to four cells, and the
//!   board fits in the nearest cache whatever the degrees.
//! - A node that is no heavier than the one it replaces takes over its pins as they stand: nothing is written.
//! - Where clean-ups come fast, less than `m / 4` pops apart, the board grows to 2 and 4 times `eta`. On skewed graphs hubs join and leave
//!   at once, and fill the board with the departed while each clean-up still costs a pass over the tiles.
//! - Nothing is written when a node leaves. A pin is live exactly where it stands within its tile's present run, so a dart asks the tile
//!   (8 bytes; all tiles stay in the nearest cache), and old pins die by themselves. The paper sets them to NULL, `deg` stores a pop.
//! - The popped node's tile goes to the node that takes its place, so there are as many tiles as the frontier has nodes: a pin fits
//!   in 16 bits, and the tiles are the index array. They never hold the departed, so a clean-up costs the live cells' stores and reads
//!   none.
//! - The board's size follows the live weight at each clean-up, where the paper takes the graph's average degree: walks meet nodes
//!   with probability proportional to degree, so on skewed graphs the frontier outweighs the average manifold. No node's pins
//!   are cut short.
//! - Darts fall anywhere on the board, used or not, in rounds of [`ROUND`] of which the first hit counts. Where they fall hangs on nothing
//!   that was popped before, so the processor looks at the next round while the last pop's stores are under way.
//!
//! Memory: 2 bytes x eta x the frontier's weight / 2^shift, and 12 bytes a node.

use graphmill_graph::{
    Error, Result,
    keyed::{self, GOLDEN},
};

use super::simd::{Fill, LINE, Line, SLACK};

/// Darts thrown together: at eta = 2 one round in sixteen misses.
const ROUND: usize = 4;

/// Above the key of every dart that hits.
const MISSED: u32 = 1 << 31;

/// Where a node's pins stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tile {
    /// The first cell's first position.
    start: u32,
    /// The node's weight: positions `start..start + len` are its.
    len: u32,
}

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub(super) struct Dashboard {
    /// At least `capacity` cells and [`SLACK`] lines. What stands in a cell is the number of a tile.
    cells: Vec<Line>,
    /// Never fewer than before, so that what an earlier board left in the cells still has a tile; its length is 0.
    tiles: Vec<Tile>,
    /// Tiles of this board.
    count: usize,
    /// Per tile, the cells that bear its pins, live or not, from its start on; 0 where pins are not taken over.
    runs: Vec<u32>,
    /// Cells that were written since the last clean-up.
    used: usize,
    /// Cells that darts are thrown at; full, they are cleaned up.
    capacity: usize,
    /// The sum of the tiles' lengths.
    live: usize,
    /// A cell has `2^shift` positions.
    shift: u32,
    eta: f64,
    /// By how much the board exceeds its live cells: `eta` times 1, 2 or 4.
    factor: f64,
    /// Pops since the last clean-up.
    pops: usize,
    /// See the module's text.
    as_published: bool,
    /// All bits, or none in a board as published.
    takes_over: u32,
}

impl Dashboard {
    /// The most tiles: pins are 16-bit.
    pub(super) const MAX_TILES: usize = 1 << 16;

    /// A board of the first [`Dashboard::MAX_TILES`] of `weights`. O(sum of the weights), less by the shift.
    ///
    /// # Errors
    /// There are more positions than 32 bits number, or memory is short.
    #[inline(always)]
    pub(super) fn start<F: Fill>(
        &mut self,
        eta: f64,
        as_published: bool,
        weights: impl ExactSizeIterator<Item = u32>,
    ) -> Result<()> {
        self.count = weights.len().min(Self::MAX_TILES);
        if self.tiles.len() < self.count {
            self.tiles.resize(self.count, Tile::default());
        }
        self.tiles.fill(Tile::default());
        self.live = 0;
        for (tile, len) in self.tiles.iter_mut().zip(weights) {
            tile.len = len;
            self.live += len as usize;
        }
        self.runs.clear();
        self.runs.resize(self.count, 0);
        (self.eta, self.factor, self.as_published, self.pops) = (eta, eta, as_published, self.count);
        self.takes_over = if as_published { 0 } else { u32::MAX };
        self.clean_up::<F>()
    }

    /// Lays the tiles out from the first cell on.
    #[inline(always)]
    fn clean_up<F: Fill>(&mut self) -> Result<()> {
        let shift = if self.as_published { 0 } else { (self.live / (2 * self.count).max(1)).max(1).ilog2() };
        self.shift = shift;
        let tiles = &mut self.tiles[..self.count];
        let cells: usize = tiles.iter().map(|tile| cells_of(tile.len, shift)).sum();
        if self.as_published {
            // as wide as ever
        } else if self.pops < self.count / 4 {
            self.factor = (2.0 * self.factor).min(4.0 * self.eta);
        } else if self.pops > self.count {
            self.factor = (self.factor / 2.0).max(self.eta);
        }
        self.pops = 0;
        self.capacity = (cells as f64 * self.factor) as usize;
        let lines = self.capacity.div_ceil(LINE) + SLACK;
        if self.cells.len() < lines || self.capacity << shift > u32::MAX as usize {
            grow(&mut self.cells, lines, self.live, self.capacity << shift)?;
        }
        let (mut at, cells) = (0, &mut self.cells[..]);
        for ((pin, tile), run) in tiles.iter_mut().enumerate().zip(&mut self.runs) {
            tile.start = (at << shift) as u32;
            let len = cells_of(tile.len, shift);
            *run = len as u32 & self.takes_over;
            F::fill(cells, at, len, pin as u16);
            at += len;
        }
        self.used = at;
        Ok(())
    }

    /// Throws darts until one hits a live pin, and returns its tile; `None` where nothing is live.
    #[inline(always)]
    pub(super) fn pop<F: Fill>(&self, darts: &mut Words) -> Option<usize> {
        if self.live == 0 {
            return None;
        }
        let positions = (self.capacity as u64) << self.shift;
        loop {
            let words = darts.take::<ROUND>();
            if F::LAZY {
                for &word in words {
                    let (pin, live) = self.look(below(word, positions));
                    if live {
                        return Some(pin);
                    }
                }
            } else {
                // all at once, and no branch asks which one hit: the least key is the first that did
                let mut least = MISSED;
                for (i, &word) in words.iter().enumerate() {
                    let (pin, live) = self.look(below(word, positions));
                    least = least.min(u32::from(!live) << 31 | (i as u32) << 16 | pin as u32);
                }
                if least < MISSED {
                    return Some((least & 0xffff) as usize);
                }
            }
        }
    }

    /// The tile whose pin is at a position of the board, and whether the pin belongs to the node that has the tile now.
    #[inline(always)]
    fn look(&self, position: u64) -> (usize, bool) {
        debug_assert!(position >> self.shift < self.capacity as u64);
        let cells: &[u16] = bytemuck::cast_slice(&self.cells);
        // SAFETY: a position's cell is below `capacity`, and so many cells there are since the clean-up that set it. What stands in a cell is
        // 0 or the number of a tile, of this board or an earlier one, and tiles are never taken away. (One check a dart is a
        // third of a look.)
        let (pin, tile) = unsafe {
            let pin = usize::from(*cells.get_unchecked((position >> self.shift) as usize));
            (pin, self.tiles.get_unchecked(pin))
        };
        (pin, (position as u32).wrapping_sub(tile.start) < tile.len)
    }

    /// Gives tile `pin` to a node of weight `len` in the place of the one that had it. O(len), less by the shift; amortised.
    ///
    /// # Errors
    /// As [`Dashboard::start`].
    #[inline(always)]
    pub(super) fn replace<F: Fill>(&mut self, pin: usize, len: u32) -> Result<()> {
        let tile = &mut self.tiles[pin];
        self.live = self.live - tile.len as usize + len as usize;
        tile.len = len;
        self.pops += 1;
        let cells = cells_of(len, self.shift);
        if cells <= self.runs[pin] as usize {
            return Ok(());
        }
        tile.start = (self.used << self.shift) as u32;
        self.runs[pin] = cells as u32 & self.takes_over;
        if self.used + cells > self.capacity {
            return self.clean_up::<F>();
        }
        F::fill(&mut self.cells, self.used, cells, pin as u16);
        self.used += cells;
        Ok(())
    }
}

/// Cells of a node's pins.
#[inline(always)]
fn cells_of(weight: u32, shift: u32) -> usize {
    (weight as usize + (1 << shift) - 1) >> shift
}

/// Makes room for a larger board.
#[cold]
fn grow(cells: &mut Vec<Line>, lines: usize, live: usize, positions: usize) -> Result<()> {
    let refused = |why: &dyn std::fmt::Display| {
        Error::invalid(format!(
            "a frontier of total degree {live} needs a board of {positions} positions: {why}; give a smaller degree cap, frontier or eta"
        ))
    };
    if positions > u32::MAX as usize {
        return Err(refused(&"32 bits number them"));
    }
    if let Some(more) = lines.checked_sub(cells.len()) {
        cells.try_reserve(more).map_err(|e| refused(&e))?;
        cells.resize(lines, Line([0; LINE]));
    }
    Ok(())
}

/// Uniform in `0..n` from a uniform word, as [`keyed::Stream::below`].
#[inline(always)]
pub(super) fn below(word: u64, n: u64) -> u64 {
    ((u128::from(word) * u128::from(n)) >> 64) as u64
}

/// The words of a [`keyed::Stream`], made many at a time, since they are a function of a counter: the compiler makes vectors of it.
#[derive(Clone, Debug)]
pub(super) struct Words {
    state: u64,
    next: usize,
    words: [u64; Words::MANY],
}

impl Words {
    const MANY: usize = 64;

    /// The words of `Stream::new(key)`.
    pub(super) fn new(key: u64) -> Self {
        Self { state: key, next: Self::MANY, words: [0; Self::MANY] }
    }

    /// The next `N` words, always the same `N` for one stream.
    #[inline(always)]
    pub(super) fn take<const N: usize>(&mut self) -> &[u64; N] {
        const { assert!(Self::MANY.is_multiple_of(N)) }
        if self.next >= Self::MANY {
            for (word, i) in self.words.iter_mut().zip(1u64..) {
                *word = keyed::mix(self.state.wrapping_add(i.wrapping_mul(GOLDEN)));
            }
            self.state = self.state.wrapping_add(GOLDEN.wrapping_mul(Self::MANY as u64));
            self.next = 0;
        }
        let words = self.words[self.next..].first_chunk().expect("a multiple of N is left");
        self.next += N;
        words
    }
}

#[cfg(test)]
mod tests {
    use graphmill_graph::keyed::Stream;
    use proptest::prelude::*;

    use super::{super::simd::Portable, *};
    use crate::subgraph::testing::fits;

    /// What must hold at any time: the frontier is `weights`, and each of its nodes has as many live positions.
    fn check(board: &Dashboard, weights: &[u32]) {
        assert_eq!(board.live, weights.iter().map(|&w| w as usize).sum::<usize>());
        assert!(board.tiles[..weights.len()].iter().zip(weights).all(|(tile, &w)| tile.len == w));
        let mut seen = vec![0; weights.len()];
        for position in 0..(board.capacity as u64) << board.shift {
            let (pin, live) = board.look(position);
            if live {
                seen[pin] += 1;
            }
        }
        assert_eq!(seen, weights);
    }

    proptest! {
        #[test]
        fn every_node_has_as_many_live_positions_as_its_weight(
            mut weights in prop::collection::vec(0u32..40, 1..20),
            steps in prop::collection::vec((0usize..20, 0u32..200), 0..40),
            eta in 1.01f64..4.0,
            as_published: bool,
        ) {
            let mut board = Dashboard::default();
            // left over from a larger board
            board.start::<Portable>(2.0, false, vec![9; 50].into_iter()).unwrap();
            board.start::<Portable>(eta, as_published, weights.clone().into_iter()).unwrap();
            check(&board, &weights);
            let mut darts = Words::new(1);
            for (i, weight) in steps {
                let popped = board.pop::<Portable>(&mut darts);
                prop_assert_eq!(popped.is_none(), weights.iter().all(|&w| w == 0));
                prop_assert!(popped.is_none_or(|pin| weights[pin] > 0));
                let pin = popped.unwrap_or(i % weights.len());
                board.replace::<Portable>(pin, weight).unwrap();
                weights[pin] = weight;
                check(&board, &weights);
            }
        }
    }

    #[test]
    fn pops_come_as_often_as_the_weights_say() {
        for as_published in [false, true] {
            let mut weights = vec![1, 0, 7, 30, 2, 300, 11];
            let mut board = Dashboard::default();
            board.start::<Portable>(1.7, as_published, weights.clone().into_iter()).unwrap();
            let mut darts = Words::new(5);
            for (pin, weight) in [(5, 60), (3, 0), (1, 19), (0, 13), (2, 8)] {
                board.replace::<Portable>(pin, weight).unwrap();
                weights[pin] = weight;
                let mut counts = vec![0; weights.len()];
                for _ in 0..50_000 {
                    counts[board.pop::<Portable>(&mut darts).unwrap()] += 1;
                }
                fits(&counts, &weights.iter().map(|&w| f64::from(w)).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn words_are_the_streams() {
        let (mut words, mut stream) = (Words::new(3), Stream::new(3));
        for _ in 0..100 {
            assert!(words.take::<4>().iter().all(|&word| word == stream.next_u64()));
        }
    }

    #[test]
    fn a_board_too_large_is_refused() {
        let mut board = Dashboard::default();
        let error =
            board.start::<Portable>(2.0, false, vec![1 << 31; 2].into_iter()).unwrap_err().to_string();
        assert!(error.contains("4294967296") && error.contains("degree cap"), "{error}");
    }
}
