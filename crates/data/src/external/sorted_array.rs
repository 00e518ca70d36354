//! External sort of records of fixed length, such as the events of a stream by their times.
//!
//! # Algorithm
//!
//! Records that come in order are not sorted: one pass finds that out, and they are read again.
//! Others are sorted in memory or, within a budget, in a file without a name: half of the budget
//! is filled with records and sorted in place, run by run, and all runs are merged at once while
//! they are read. Each run has a window of the other half in memory.
//!
//! # Source
//!
//! Knuth, *The art of computer programming*, vol. 3, section 5.4.1: multiway merging.
//!
//! # Cost
//!
//! O(N log N). In files, every record is written once and read once.
//!
//! # Memory
//!
//! The budget. With `R = N / run` runs, those of the [least budget](least_memory) have windows of a
//! record. The system maps whole pages, so a window occupies at least one.

use std::path::Path;

use bytemuck::Pod;
use graphmill_core::{Buffer, FileArray, Result, maps, memory};
use rayon::prelude::*;

use super::merge::{Merge, Source};

/// Bytes of a run in memory beside its window.
const OF_RUN: usize = 80;
/// Bytes of a page, the least that a window occupies.
const PAGE: usize = 4096;

/// Least bytes of memory that sort `len` records of the type `T` in files: one run of half of them,
/// and for each run two records and its place in the other half.
pub fn least_memory<T>(len: usize) -> usize {
    let of_run = 2 * size_of::<T>() + OF_RUN;
    4usize.saturating_mul(len).saturating_mul(size_of::<T>()).saturating_mul(of_run).isqrt() + 1
}

/// Records in ascending order.
///
/// ```
/// use graphmill_data::external::SortedArray;
///
/// let dir = std::env::temp_dir();
/// for files in [None, Some((dir.as_path(), 1 << 20))] {
///     let records = [[3u64, 0], [1, 1], [3, 2]];
///     let mut sorted = SortedArray::new(records.into_iter(), 3, files)?;
///     let mut found = Vec::new();
///     while let Some(record) = sorted.take_next()? {
///         found.push(record);
///     }
///     assert_eq!(found, [[1, 1], [3, 0], [3, 2]]);
/// }
/// # Ok::<(), graphmill_core::Error>(())
/// ```
pub struct SortedArray<T: Pod + Ord, I> {
    records: Records<T, I>,
}

enum Records<T: Pod + Ord, I> {
    /// The input, which is in order.
    Input(I),
    Memory(std::vec::IntoIter<T>),
    Files(Merge<Run<T>>),
}

/// Sorted records in a file, of which a window is in memory.
struct Run<T> {
    values: Buffer<T>,
    /// First record of the window, the next one that is read, and the end of the window.
    window: [usize; 3],
    /// End of the run.
    end: usize,
    /// Largest number of records of a window.
    width: usize,
}

impl<T: Pod + Ord + Send, I: Iterator<Item = T> + Clone> SortedArray<T, I> {
    /// Sorts `len` records, in memory or in `files`: a directory, and bytes of memory. The file
    /// there has no name, so nothing is left after a kill. `records` are read twice, and equal ones
    /// are interchangeable.
    ///
    /// # Errors
    /// Memory or disk space is exhausted, or the directory cannot be written.
    pub fn new(records: I, len: usize, files: Option<(&Path, usize)>) -> Result<Self> {
        if records.clone().is_sorted() {
            return Ok(Self { records: Records::Input(records) });
        }
        let records = match files {
            Some((dir, memory)) => Records::Files(merged(records, len, dir, memory)?),
            None => {
                let mut all = memory::reserve(len)?;
                all.extend(records.take(len));
                all.par_sort_unstable();
                Records::Memory(all.into_iter())
            }
        };
        Ok(Self { records })
    }

    /// Returns the next record; `None` at the end.
    ///
    /// # Errors
    /// The records cannot be read.
    pub fn take_next(&mut self) -> Result<Option<T>> {
        match &mut self.records {
            Records::Input(records) => Ok(records.next()),
            Records::Memory(records) => Ok(records.next()),
            Records::Files(runs) => runs.next(),
        }
    }
}

/// Sorts runs of `len` records in a file, and begins to merge them.
fn merged<T: Pod + Ord + Send>(
    mut records: impl Iterator<Item = T>,
    len: usize,
    dir: &Path,
    memory: usize,
) -> Result<Merge<Run<T>>> {
    let size = size_of::<T>().max(1);
    let length = (memory / 2 / size).max(1);
    let mut array = FileArray::<T>::zeros(len, dir)?;
    let mut filled = 0;
    for part in array.chunks_mut(length) {
        let mut count = 0;
        for (to, record) in part.iter_mut().zip(&mut records) {
            *to = record;
            count += 1;
        }
        part[..count].par_sort_unstable();
        maps::release(part);
        filled += count;
    }
    let values = array.freeze()?;
    let runs = filled.div_ceil(length).max(1);
    let width = (memory / 2 / runs / size).max(PAGE / size).max(1);
    let run = |first: usize| {
        let end = filled.min(first + length);
        Run { values: values.clone(), window: [first; 3], end, width }
    };
    Merge::new((0..filled).step_by(length).map(run).collect())
}

impl<T: Pod + Ord> Source for Run<T> {
    type Record = T;

    fn next(&mut self) -> Result<Option<T>> {
        let [first, next, end] = &mut self.window;
        if next == end {
            maps::release(&self.values[*first..*end]);
            (*first, *end) = (*end, self.end.min(*end + self.width));
            maps::expect(&self.values[*first..*end]);
        }
        if next == end {
            return Ok(None);
        }
        *next += 1;
        Ok(Some(self.values[*next - 1]))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All records of a sort.
    fn sorted(records: &[[u64; 2]], files: Option<(&Path, usize)>) -> Vec<[u64; 2]> {
        let mut sorted = SortedArray::new(records.iter().copied(), records.len(), files).unwrap();
        let mut found = Vec::new();
        while let Some(record) = sorted.take_next().unwrap() {
            found.push(record);
        }
        assert_eq!(sorted.take_next().unwrap(), None);
        found
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn records_have_the_same_order_for_any_budget(
            mut records in prop::collection::vec([0u64..9, 0u64..300], 0..3000),
            memory in 0usize..40_000,
        ) {
            let dir = tempfile::tempdir().unwrap();
            let mut expected = records.clone();
            expected.sort();
            let least = least_memory::<[u64; 2]>(3000);
            for files in [None, Some((dir.path(), memory)), Some((dir.path(), least))] {
                prop_assert_eq!(&sorted(&records, files), &expected);
            }
            // in order already
            records.clone_from(&expected);
            prop_assert_eq!(&sorted(&records, Some((Path::new("/nowhere"), memory))), &expected);
            prop_assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn the_least_memory_holds_a_run_and_the_place_of_each() {
        for len in [1usize, 600, 1 << 20, 1 << 31] {
            let memory = least_memory::<[u64; 3]>(len);
            let run = (memory / 2 / 24).max(1);
            let places = len.div_ceil(run) * (2 * 24 + OF_RUN);
            // of the last run, a part may be missing
            assert!(
                places <= memory / 2 + memory / 2 / run + 2 * (2 * 24 + OF_RUN),
                "{len}: {places} of {memory}"
            );
            assert!(memory < 300 * (len.isqrt() + 1), "{len}: {memory}");
        }
    }
}
