//! Arrays of a stream while it opens: in memory, or in files if sorting the events in memory
//! exceeds `--host-budget`.
//!
//! Files have no names, so nothing is left of them after a kill. Arrays that the run keeps go to
//! the place of its rows ([`super::files`]).

use std::path::{Path, PathBuf};

use bytemuck::Pod;
use graphmill_core::{Buffer, FileArray, maps, memory};
use graphmill_data::external::least_memory;

use crate::{Result, TrainConfig};

/// Values that are written or read in order before their pages leave memory.
pub(super) const RUN: usize = 1 << 18;
/// Sorts that run at the same time, at most: events and the edges of the graph, by time and ends.
pub(super) const SORTS: usize = 2;
/// A record of a sort, in whose order records are sorted.
pub(super) type Record = [u64; 3];
/// Bytes of the ends, the time and both numbers of the row of an event.
const COLUMNS: usize = 24;
/// Bytes of an event while it is sorted in memory.
const SORTED: usize = size_of::<Record>() + COLUMNS;
/// Bytes of an event whose edge of the graph is found: its columns, its record, and the edge.
const MATCHED: usize = COLUMNS + size_of::<Record>() + 4;

/// Files of a stream that opens beyond the memory budget.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) dir: PathBuf,
    /// Bytes of memory for sorting.
    pub(super) memory: usize,
}

impl Opening {
    /// Files in `dir` if `events` that are sorted in memory, and found among `edges` of the graph
    /// if that is not 0, exceed the budget.
    pub(super) fn new(
        config: &TrainConfig,
        dir: Option<&Path>,
        (events, edges): (usize, usize),
    ) -> Option<Self> {
        let budget = usize::try_from(config.host_budget.0).unwrap_or(usize::MAX);
        let sorted = events.saturating_mul(SORTED);
        let found = events.saturating_mul(MATCHED).saturating_add(edges.saturating_mul(size_of::<Record>()));
        let needed = if edges == 0 { sorted } else { sorted.max(found) };
        let dir = dir.filter(|_| budget > 0 && needed > budget)?;
        Some(Self { dir: dir.to_path_buf(), memory: budget.max(least_to_open(events.max(edges))) })
    }
}

/// Least budget that sorts this many records in files, for [`SORTS`] at the same time.
pub(super) fn least_to_open(records: usize) -> usize {
    least_memory::<Record>(records).saturating_mul(SORTS)
}

/// Directory and bytes of memory of one of `sorts` sorts at the same time, if arrays are in files.
pub(super) fn share(opening: Option<&Opening>, sorts: usize) -> Option<(&Path, usize)> {
    opening.map(|opening| (&*opening.dir, opening.memory / sorts))
}

/// Unsigned number in the order of times.
pub(super) fn of_time(time: i64) -> u64 {
    (time as u64) ^ (1 << 63)
}

/// The time of [`of_time`].
pub(super) fn to_time(order: u64) -> i64 {
    (order ^ (1 << 63)) as i64
}

/// Joins two numbers, the first of which decides the order.
pub(super) fn joined(first: u32, second: u32) -> u64 {
    u64::from(first) << 32 | u64::from(second)
}

/// The numbers of [`joined`].
pub(super) fn divided(both: u64) -> [u32; 2] {
    [(both >> 32) as u32, both as u32]
}

/// An array that is written value by value, in memory or in a file without a name.
pub(super) enum Column<T> {
    Memory(Vec<T>),
    File { values: FileArray<T>, len: usize },
}

impl<T: Pod> Column<T> {
    /// Creates an empty array with space for `len` values, in a file if there is a directory.
    ///
    /// # Errors
    /// Memory or disk space is exhausted.
    pub(super) fn new(dir: Option<&Path>, len: usize) -> Result<Self> {
        Ok(match dir {
            Some(dir) => Self::File { values: FileArray::zeros(len, dir)?, len: 0 },
            None => Self::Memory(memory::reserve(len)?),
        })
    }

    /// Adds a value; there is space for all.
    pub(super) fn push(&mut self, value: T) {
        match self {
            Self::Memory(values) => values.push(value),
            Self::File { values, len } => {
                values[*len] = value;
                *len += 1;
                if len.is_multiple_of(RUN) {
                    maps::release(&values[*len - RUN..*len]);
                }
            }
        }
    }

    /// The written values, to change them.
    pub(super) fn values_mut(&mut self) -> &mut [T] {
        match self {
            Self::Memory(values) => values,
            Self::File { values, len } => &mut values[..*len],
        }
    }

    /// The array, read-only from now on.
    ///
    /// # Errors
    /// The system cannot protect the memory.
    pub(super) fn finish(self) -> Result<Buffer<T>> {
        Ok(match self {
            Self::Memory(values) => values.into(),
            Self::File { values, .. } => values.freeze()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_open_in_files_if_sorting_them_exceeds_the_budget() {
        let of = |budget: u64, counts: (usize, usize)| {
            let mut config = TrainConfig::default();
            config.host_budget.0 = budget;
            Opening::new(&config, Some(Path::new("run")), counts).map(|opening| opening.memory)
        };
        assert_eq!((of(0, (1000, 0)), of(48_000, (1000, 0))), (None, None));
        assert_eq!(of(47_999, (1000, 0)), Some(47_999));
        // with the edges of the graph
        assert_eq!((of(75_999, (1000, 1000)), of(76_000, (1000, 1000))), (Some(75_999), None));
        // less than the least is refused once it is known
        assert_eq!(of(1, (1000, 0)), Some(least_to_open(1000)));
        let mut config = TrainConfig::default();
        config.host_budget.0 = 1;
        assert!(Opening::new(&config, None, (1000, 0)).is_none(), "without a directory");
    }

    #[test]
    fn columns_have_their_values_in_memory_and_in_files() {
        let dir = tempfile::tempdir().unwrap();
        for count in [0, 5, RUN, 2 * RUN + 3] {
            for place in [None, Some(dir.path())] {
                let mut column = Column::<u32>::new(place, count).unwrap();
                (0..count as u32).for_each(|x| column.push(x));
                column.values_mut().iter_mut().for_each(|x| *x ^= 7);
                let values = column.finish().unwrap();
                assert!(values.iter().copied().eq((0..count as u32).map(|x| x ^ 7)), "{count}");
                assert_eq!(values.is_mapped(), place.is_some() && count > 0);
            }
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "no file has a name");
    }

    #[test]
    fn numbers_have_the_order_of_times() {
        let times = [i64::MIN, -5, -1, 0, 3, i64::MAX];
        assert!(times.map(of_time).is_sorted() && times.map(of_time).map(to_time) == times);
        assert_eq!(divided(joined(7, u32::MAX)), [7, u32::MAX]);
    }
}
