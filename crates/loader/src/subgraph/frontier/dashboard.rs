//! The Dashboard (paper 003, sections 4.2 and 4.3): the frontier as a table that is popped by
//! throwing darts at it.
//!
//! A node of the frontier has a *tile*, and *pins* to it in consecutive cells of the board, in
//! number as its weight. A dart at a uniform place then finds a node with probability proportional
//! to its weight, whatever the weights, in O(1) as long as enough of the board is live. A new
//! node's pins are appended; when the board, `eta` times what was live, is full, a *clean-up* lays
//! the live tiles out anew: once in about `(eta - 1)` times the live cells' appends.
//!
//! Where we deviate, with the structure as it is:
//! - Nothing is written when a node leaves. A pin is live exactly where it stands within its tile's
//!   present run, so a dart asks the tile (8 bytes; all tiles stay in the nearest cache), and old
//!   pins die by themselves. The paper sets them to NULL, `deg` stores a pop.
//! - The popped node's tile goes to the node that takes its place, so there are as many tiles as
//!   the frontier has nodes: a pin fits in 16 bits, and the tiles are the index array. They never
//!   hold the departed, so a clean-up costs the live cells' stores and reads none.
//! - The board's size follows the live weight at each clean-up, where the paper takes the graph's
//!   average degree: walks meet nodes with probability proportional to degree, so on skewed graphs
//!   the frontier outweighs the average manifold. No node's pins are cut short.
//! - Darts fall anywhere on the board, used or not, in rounds of [`ROUND`] of which the first hit
//!   counts. Where they fall hangs on nothing that was popped before, so the processor looks at the
//!   next round while the last pop's stores are under way.
//!
//! Memory: 2 bytes x eta x the frontier's weight, and 8 bytes a node.

use graphmill_core::{Error, Result};

use super::{
    Popping,
    simd::{LINE, Line, SLACK, Simd},
    words::{Words, below},
};

/// Darts thrown together: at eta = 2 one round in sixteen misses.
const ROUND: usize = 4;

/// Above the key of every dart that hits.
const MISSED: u32 = 1 << 31;

/// The most tiles: pins are 16-bit.
pub(super) const MAX_TILES: usize = 1 << 16;

/// Where a node's pins stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tile {
    /// The first cell.
    start: u32,
    /// The node's weight: cells `start..start + len` are its.
    len: u32,
}

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub(super) struct Dashboard {
    /// At least `capacity` cells and [`SLACK`] lines. What stands in a cell is the number of a
    /// tile.
    cells: Vec<Line>,
    /// Never fewer than before, so that what an earlier board left in the cells still has a tile;
    /// its length is 0.
    tiles: Vec<Tile>,
    /// Tiles of this board.
    count: usize,
    /// Cells that were written since the last clean-up.
    used: usize,
    /// Cells that darts are thrown at; full, they are cleaned up.
    capacity: usize,
    /// The sum of the tiles' lengths.
    live: usize,
    /// By how much the board exceeds its live cells.
    eta: f64,
}

impl Dashboard {
    /// Lays the tiles out from the first cell on.
    #[inline(always)]
    fn clean_up<S: Simd>(&mut self) -> Result<()> {
        self.capacity = (self.live as f64 * self.eta) as usize;
        let lines = self.capacity.div_ceil(LINE) + SLACK;
        if self.cells.len() < lines || self.capacity > u32::MAX as usize {
            grow(&mut self.cells, lines, self.live, self.capacity)?;
        }
        let (mut at, cells) = (0, &mut self.cells[..]);
        for (pin, tile) in self.tiles[..self.count].iter_mut().enumerate() {
            tile.start = at as u32;
            S::fill(cells, at, tile.len as usize, pin as u16);
            at += tile.len as usize;
        }
        self.used = at;
        Ok(())
    }

    /// The tile whose pin is in a cell, and whether the pin belongs to the node that has the tile
    /// now.
    #[inline(always)]
    fn look(&self, cell: u64) -> (usize, bool) {
        debug_assert!(cell < self.capacity as u64);
        let cells: &[u16] = bytemuck::cast_slice(&self.cells);
        // SAFETY: the cell is below `capacity`, and so many there are since the clean-up that set
        // it. What stands in a cell is 0 or the number of a tile, of this board or an earlier one,
        // and tiles are never taken away. (One check a dart is a third of a look.)
        let (pin, tile) = unsafe {
            let pin = usize::from(*cells.get_unchecked(cell as usize));
            (pin, self.tiles.get_unchecked(pin))
        };
        (pin, (cell as u32).wrapping_sub(tile.start) < tile.len)
    }
}

impl Popping for Dashboard {
    /// Of the first [`MAX_TILES`] of `weights`. O(sum of the weights).
    ///
    /// # Errors
    /// There are more cells than 32 bits number, or memory is short.
    #[inline(always)]
    fn start<S: Simd>(&mut self, eta: f64, weights: impl ExactSizeIterator<Item = u32>) -> Result<()> {
        self.count = weights.len().min(MAX_TILES);
        if self.tiles.len() < self.count {
            self.tiles.resize(self.count, Tile::default());
        }
        self.tiles.fill(Tile::default());
        self.live = 0;
        for (tile, len) in self.tiles.iter_mut().zip(weights) {
            tile.len = len;
            self.live += len as usize;
        }
        self.eta = eta;
        self.clean_up::<S>()
    }

    /// Throws darts until one hits a live pin.
    #[inline(always)]
    fn pop<S: Simd>(&mut self, words: &mut Words) -> Option<usize> {
        if self.live == 0 {
            return None;
        }
        loop {
            let words = words.take::<ROUND>();
            if S::LAZY {
                for &word in words {
                    let (pin, live) = self.look(below(word, self.capacity as u64));
                    if live {
                        return Some(pin);
                    }
                }
            } else {
                // all at once, and no branch asks which one hit: the least key is the first that
                // did
                let mut least = MISSED;
                for (i, &word) in words.iter().enumerate() {
                    let (pin, live) = self.look(below(word, self.capacity as u64));
                    least = least.min(u32::from(!live) << 31 | (i as u32) << 16 | pin as u32);
                }
                if least < MISSED {
                    return Some((least & 0xffff) as usize);
                }
            }
        }
    }

    /// O(weight), amortised.
    #[inline(always)]
    fn replace<S: Simd>(&mut self, pin: usize, weight: u32) -> Result<()> {
        let (tile, cells) = (&mut self.tiles[pin], weight as usize);
        self.live = self.live - tile.len as usize + cells;
        *tile = Tile { start: self.used as u32, len: weight };
        if self.used + cells > self.capacity {
            return self.clean_up::<S>();
        }
        S::fill(&mut self.cells, self.used, cells, pin as u16);
        self.used += cells;
        Ok(())
    }
}

/// Makes room for a larger board.
#[cold]
fn grow(cells: &mut Vec<Line>, lines: usize, live: usize, capacity: usize) -> Result<()> {
    let refused = |why: &dyn std::fmt::Display| {
        Error::invalid(format!(
            "a frontier of total degree {live} needs a board of {capacity} cells: {why}; give a smaller degree cap, frontier or eta"
        ))
    };
    if capacity > u32::MAX as usize {
        return Err(refused(&"32 bits number them"));
    }
    if let Some(more) = lines.checked_sub(cells.len()) {
        cells.try_reserve(more).map_err(|e| refused(&e))?;
        cells.resize(lines, Line([0; LINE]));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::simd::Portable, *};

    /// What must hold at any time: the frontier is `weights`, and each of its nodes has as many
    /// live pins.
    fn check(board: &Dashboard, weights: &[u32]) {
        assert_eq!(board.live, weights.iter().map(|&w| w as usize).sum::<usize>());
        assert!(board.tiles[..weights.len()].iter().zip(weights).all(|(tile, &w)| tile.len == w));
        let mut seen = vec![0; weights.len()];
        for cell in 0..board.capacity as u64 {
            let (pin, live) = board.look(cell);
            if live {
                seen[pin] += 1;
            }
        }
        assert_eq!(seen, weights);
    }

    proptest! {
        #[test]
        fn every_node_has_as_many_live_pins_as_its_weight(
            mut weights in prop::collection::vec(0u32..40, 1..20),
            steps in prop::collection::vec((0usize..20, 0u32..200), 0..40),
            eta in 1.01f64..4.0,
        ) {
            let mut board = Dashboard::default();
            // left over from a larger board
            board.start::<Portable>(2.0, vec![9; 50].into_iter()).unwrap();
            board.start::<Portable>(eta, weights.clone().into_iter()).unwrap();
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
    fn a_board_too_large_is_refused() {
        let mut board = Dashboard::default();
        let error = board.start::<Portable>(2.0, vec![1 << 31; 2].into_iter()).unwrap_err().to_string();
        assert!(error.contains("4294967296") && error.contains("degree cap"), "{error}");
    }
}
