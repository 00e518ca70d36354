//! Misses of a simulated cache while the features of a subgraph are aggregated.
//!
//! # Algorithm
//!
//! The lines of memory that the aggregation reads and writes are passed to a set-associative cache
//! that replaces the line unused for the longest time.
//!
//! # Source
//!
//! Zeng et al., *Accurate, efficient and scalable training of graph neural networks*, JPDC 2021,
//! section 5.3 (slices of features) and Figure 6.
//!
//! # Cost
//!
//! O(edges of the subgraph x lines of a row x ways of the cache).
//!
//! # Deviations
//!
//! The paper simulates a whole training iteration by DynamoRIO and counts every load. Here only the
//! aggregation is simulated, and an access is one of a line of 64 bytes, as a vector instruction
//! makes it. Consecutive numbers of a line therefore count once, and rates are higher than the
//! paper's for the same traffic.

use anyhow::Result;
use graphmill_core::Block;
use serde_json::{Value, json};

use crate::subgraph::{self, Draws};

/// Bytes of a line.
const LINE: usize = 64;
/// Numbers of a line of features.
const LINE_FLOATS: usize = LINE / size_of::<f32>();
/// Lines of a set: a private cache of the second level has 8 to 16.
const WAYS: usize = 8;

/// Set-associative cache that replaces the line that was not used for the longest time.
struct Cache {
    /// Lines of each set, the last used first.
    sets: Vec<Vec<u64>>,
    accesses: u64,
    misses: u64,
}

impl Cache {
    /// An empty cache of `bytes`, rounded down to whole sets, of which it has at least one.
    fn new(bytes: usize) -> Self {
        let sets = (bytes / (LINE * WAYS)).max(1);
        Self { sets: vec![Vec::with_capacity(WAYS); sets], accesses: 0, misses: 0 }
    }

    /// Reads or writes a line.
    fn access(&mut self, line: u64) {
        self.accesses += 1;
        let count = self.sets.len() as u64;
        let set = &mut self.sets[(line % count) as usize];
        match set.iter().position(|&held| held == line) {
            Some(at) => set[..=at].rotate_right(1),
            None => {
                self.misses += 1;
                if set.len() == WAYS {
                    set.pop();
                }
                set.insert(0, line);
            }
        }
    }
}

/// Order in which an aggregation walks over the columns, and the way they are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Walk {
    /// All columns of a node at once.
    Rows,
    /// Slices by the paper's theorem: as many as let the sources' columns fit the cache. Features
    /// are stored slice by slice, as the paper's are stored by columns.
    Slices,
    /// The same slices of features that are stored by rows: a slice of the sources is first copied
    /// to adjacent rows, as the engine does.
    Copied,
}

impl Walk {
    /// The walk of this name.
    pub(crate) fn named(name: &str) -> Result<Self> {
        match name {
            "rows" => Ok(Self::Rows),
            "theorem" => Ok(Self::Slices),
            "copied" => Ok(Self::Copied),
            _ => anyhow::bail!("--slices {name}: rows, theorem or copied"),
        }
    }

    /// Lines of columns that are processed together, of `lines` in all, for `rows` sources.
    fn width(self, rows: usize, lines: usize, cache: usize) -> usize {
        match self {
            Self::Rows => lines,
            Self::Slices | Self::Copied => {
                let slices = (rows * lines * LINE).div_ceil(cache).max(1);
                (lines / slices).max(1)
            }
        }
    }
}

/// Accesses of `y = A x` for a block of `lines` lines of columns, `width` at a time, in the order
/// of the program: the row's bounds, then each edge's source and its columns, then the sums.
fn aggregate(block: &Block, lines: usize, width: usize, walk: Walk, cache: &mut Cache) {
    let bytes = |count: usize| count.div_ceil(LINE);
    let sums = block.num_src * lines;
    let sources = sums + block.num_dst * lines;
    let bounds = sources + bytes(block.indices.len() * size_of::<u32>());
    let copy = bounds + bytes(block.indptr.len() * size_of::<u32>());
    let (mut last_source, mut last_bound) = (usize::MAX, usize::MAX);
    for first in (0..lines).step_by(width) {
        let columns = 0..width.min(lines - first);
        // line of a column of the slice in a table of `rows` rows that begins at `start`
        let table = |start: usize, rows: usize, row: usize, column: usize| match walk {
            Walk::Rows | Walk::Copied => start + row * lines + first + column,
            Walk::Slices => start + first * rows + row * columns.end + column,
        };
        if walk == Walk::Copied {
            for src in 0..block.num_src {
                for column in columns.clone() {
                    cache.access(table(0, block.num_src, src, column) as u64);
                    cache.access((copy + src * width + column) as u64);
                }
            }
        }
        for dst in 0..block.num_dst {
            let bound = bounds + (dst + 1) * size_of::<u32>() / LINE;
            if bound != last_bound {
                cache.access(bound as u64);
                last_bound = bound;
            }
            for edge in block.indptr[dst] as usize..block.indptr[dst + 1] as usize {
                let source = sources + edge * size_of::<u32>() / LINE;
                if source != last_source {
                    cache.access(source as u64);
                    last_source = source;
                }
                let row = block.indices[edge] as usize;
                for column in columns.clone() {
                    let line = match walk {
                        Walk::Copied => copy + row * width + column,
                        Walk::Rows | Walk::Slices => table(0, block.num_src, row, column),
                    };
                    cache.access(line as u64);
                }
            }
            for column in columns.clone() {
                cache.access(table(sums, block.num_dst, dst, column) as u64);
            }
        }
    }
}

/// Sizes of a simulation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Nodes of the subgraph.
    pub(crate) draws: Draws,
    /// Columns of the features.
    pub(crate) dim: usize,
    /// Bytes of the cache.
    pub(crate) cache: usize,
}

/// Draws a subgraph of the dataset by frontier sampling, and counts the misses of one aggregation.
pub(crate) fn misses(dataset: &str, sizes: Sizes, walk: Walk) -> Result<Value> {
    let block = subgraph::draw(dataset, sizes.draws)?;
    let lines = sizes.dim.div_ceil(LINE_FLOATS);
    let width = walk.width(block.num_src, lines, sizes.cache);
    let mut cache = Cache::new(sizes.cache);
    aggregate(&block, lines, width, walk, &mut cache);
    Ok(json!({
        "nodes": block.num_src, "edges": block.num_edges(), "columns": width * LINE_FLOATS,
        "accesses": cache.accesses, "misses": cache.misses,
        "miss_rate": cache.misses as f64 / cache.accesses as f64,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_unused_for_the_longest_time_is_replaced() {
        let mut cache = Cache::new(LINE * WAYS);
        (0..WAYS as u64).for_each(|line| cache.access(line));
        cache.access(0);
        assert_eq!(cache.misses, WAYS as u64);
        cache.access(99); // replaces line 1
        cache.access(0);
        assert_eq!(cache.misses, WAYS as u64 + 1);
        cache.access(1);
        assert_eq!((cache.misses, cache.accesses), (WAYS as u64 + 2, WAYS as u64 + 4));
    }

    #[test]
    fn lines_of_different_sets_do_not_replace_each_other() {
        let mut cache = Cache::new(4 * LINE * WAYS);
        (0..2).for_each(|_| (0..4 * WAYS as u64).for_each(|line| cache.access(line)));
        assert_eq!(cache.misses, 4 * WAYS as u64);
    }

    /// Every edge reads its source's columns and every node writes its sums once, in any slices; a
    /// cache that holds everything misses each line once.
    #[test]
    fn slices_read_the_same_columns() {
        let block = Block {
            num_dst: 3,
            num_src: 3,
            indptr: vec![0, 2, 3, 5],
            indices: vec![1, 2, 0, 0, 1],
            ..Block::default()
        };
        let lines = 4;
        let count = |width, walk| {
            let mut cache = Cache::new(1 << 20);
            aggregate(&block, lines, width, walk, &mut cache);
            (cache.misses, cache.accesses)
        };
        let (table, small) = (3 * lines as u64, 2); // a table's lines; one of ids and one of bounds
        let sums = (5 + 3) * lines as u64;
        assert_eq!(count(lines, Walk::Rows), (2 * table + small, sums + small));
        for width in [1, 2, 4] {
            assert_eq!(count(width, Walk::Slices), (2 * table + small, sums + small), "{width}");
            let copied = count(width, Walk::Copied);
            assert_eq!(copied.1, sums + small + 2 * table, "{width}");
            assert_eq!(copied.0, 2 * table + 3 * width as u64 + small, "one slice of copies: {width}");
        }
    }

    #[test]
    fn the_theorem_cuts_columns_until_they_fit() {
        let (rows, lines) = (1000, 32);
        assert_eq!(Walk::Rows.width(rows, lines, 1), 32);
        assert_eq!(Walk::Slices.width(rows, lines, rows * lines * LINE), 32);
        assert_eq!(Walk::Slices.width(rows, lines, rows * lines * LINE / 4), 8);
        assert_eq!(Walk::Slices.width(rows, lines, 1), 1);
    }
}
