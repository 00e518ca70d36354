//! The Dashboard: the frontier as a table that is popped by throwing darts at it.
//!
//! # Algorithm
//!
//! A node of the frontier has a *tile*, and as many *pins* to it as its weight, in consecutive
//! cells of the board. A dart at a uniform cell then finds a node with a probability proportional
//! to its weight, for any weights, in O(1) if enough of the board is live. A new node's pins are
//! appended. When the board, `eta` times its live part, is full, a *clean-up* writes the live tiles
//! again from the first cell on: once per about `(eta - 1)` times the live cells' appends.
//!
//! # Source
//!
//! Zeng et al., *Accurate, efficient and scalable training of graph neural networks*, JPDC 2021,
//! sections 4.2 and 4.3.
//!
//! # Cost
//!
//! O(1) reads per pop, and amortised stores in proportion to the weight of the node that joins.
//!
//! # Memory
//!
//! 2 bytes x eta x the frontier's weight, and 8 bytes per node.
//!
//! # Deviations
//!
//! The structure is the paper's, with these differences:
//! - Nothing is written when a node leaves. A pin is live if and only if it lies within its tile's
//!   present run, so a dart checks the tile (8 bytes; all tiles stay in the nearest cache), and old
//!   pins become dead without a store. The paper sets them to NULL, `deg` stores per pop.
//! - The popped node's tile is reused for the node that replaces it, so there are as many tiles as
//!   nodes in the frontier: a pin fits in 16 bits, and the tiles are the index array. They never
//!   hold departed nodes, so a clean-up costs the live cells' stores and reads no cell.
//! - The board's size follows the live weight at each clean-up, while the paper uses the graph's
//!   average degree: walks meet nodes with a probability proportional to degree, so on skewed
//!   graphs the frontier outweighs the average many times. No node's pins are truncated.
//! - Darts fall anywhere on the board, used or not, in rounds of [`ROUND`], of which the first hit
//!   counts. Their positions do not depend on earlier pops, so the processor reads the next round
//!   while the last pop's stores are in flight.

#![allow(unsafe_code, reason = "indices without checks")]

use graphmill_core::{Error, Result};

use super::{
    FrontierIndex,
    simd::{LINE, Line, SLACK, Simd},
    words::{WordStream, below},
};

/// Number of darts thrown together: at eta = 2 one round in sixteen misses.
const ROUND: usize = 4;

/// Key of a round without a hit, above the key of every dart that hits.
const MISSED: u32 = 1 << 31;

/// Maximum number of tiles, because pins have 16 bits.
pub(super) const MAX_TILES: usize = 1 << 16;

/// Position of a node's pins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tile {
    /// First cell.
    start: u32,
    /// Weight of the node: its cells are `start..start + len`.
    len: u32,
}

/// Board of the frontier's pins.
#[derive(Clone, Debug, Default)]
pub(super) struct Dashboard {
    /// Tile number of each cell: at least `capacity` cells and [`SLACK`] lines.
    cells: Vec<Line>,
    /// Tiles, never fewer than in an earlier board, so that the tile of every stale cell exists;
    /// its length is 0.
    tiles: Vec<Tile>,
    /// Number of tiles of this board.
    count: usize,
    /// Number of cells written since the last clean-up.
    used: usize,
    /// Number of cells that darts hit; a full board is cleaned up.
    capacity: usize,
    /// Sum of the tiles' lengths.
    live: usize,
    /// Ratio of the board's size to its live cells.
    eta: f64,
}

impl Dashboard {
    /// Writes the pins of all tiles from the first cell on.
    #[inline(always)]
    fn clean_up<S: Simd>(&mut self) -> Result<()> {
        let capacity = (self.live as f64 * self.eta) as usize;
        let lines = capacity.div_ceil(LINE) + SLACK;
        if self.cells.len() < lines || capacity > u32::MAX as usize {
            grow(&mut self.cells, lines, self.live, capacity)?;
        }
        // only now, because look-ups rely on as many cells
        self.capacity = capacity;
        let (mut at, cells) = (0, &mut self.cells[..]);
        for (pin, tile) in self.tiles[..self.count].iter_mut().enumerate() {
            tile.start = at as u32;
            S::fill(cells, at, tile.len as usize, pin as u16);
            at += tile.len as usize;
        }
        self.used = at;
        Ok(())
    }

    /// Tile whose pin is in a cell, and true if the pin belongs to the tile's present node.
    #[inline(always)]
    fn look(&self, cell: u64) -> (usize, bool) {
        debug_assert!(cell < self.capacity as u64);
        let cells: &[u16] = bytemuck::cast_slice(&self.cells);
        // SAFETY: the cell is below `capacity`, and `cells` has at least `capacity` cells since the
        // clean-up that set it. The value of a cell is 0 or the number of a tile, of this board or
        // an earlier one, and tiles are never removed. (A bounds check per dart costs a third of a
        // look-up.)
        let (pin, tile) = unsafe {
            let pin = usize::from(*cells.get_unchecked(cell as usize));
            (pin, self.tiles.get_unchecked(pin))
        };
        (pin, (cell as u32).wrapping_sub(tile.start) < tile.len)
    }
}

impl FrontierIndex for Dashboard {
    /// Starts with the first [`MAX_TILES`] of `weights`. O(sum of the weights).
    ///
    /// # Errors
    /// 32 bits do not number the cells, or memory runs out.
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
    fn pop<S: Simd>(&mut self, words: &mut WordStream) -> Option<usize> {
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
                // all at once without a branch per dart: the smallest key is that of the first hit
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

    /// Replaces a node's tile. O(weight), amortised.
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

/// Grows the board.
#[cold]
fn grow(cells: &mut Vec<Line>, lines: usize, live: usize, capacity: usize) -> Result<()> {
    let refused = |why: &dyn std::fmt::Display| {
        Error::invalid(format!(
            "a frontier of total degree {live} needs a board of {capacity} cells: {why}; use a smaller \
             degree cap, frontier or eta"
        ))
    };
    if capacity > u32::MAX as usize {
        return Err(refused(&"32 bits cannot number them"));
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

    /// Checks the invariant: the frontier is `weights`, and each node has as many live pins as its
    /// weight.
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
        fn nodes_have_as_many_live_pins_as_their_weight(
            mut weights in prop::collection::vec(0u32..40, 1..20),
            steps in prop::collection::vec((0usize..20, 0u32..200), 0..if cfg!(miri) { 5 } else { 40 }),
            eta in 1.01f64..4.0,
        ) {
            let mut board = Dashboard::default();
            // remains of a larger board
            board.start::<Portable>(2.0, vec![9; 50].into_iter()).unwrap();
            board.start::<Portable>(eta, weights.clone().into_iter()).unwrap();
            check(&board, &weights);
            let mut darts = WordStream::new(1);
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
    fn oversized_boards_are_rejected() {
        let mut board = Dashboard::default();
        let error = board.start::<Portable>(2.0, vec![1 << 31; 2].into_iter()).unwrap_err().to_string();
        assert!(error.contains("4294967296") && error.contains("degree cap"), "{error}");
        assert!(board.capacity <= board.cells.len() * LINE, "no cell is looked up that does not exist");
    }
}
