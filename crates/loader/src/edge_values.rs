//! Values of the edges of rows, one row after the other.

#![forbid(unsafe_code)]

use bytemuck::Zeroable;
use graphmill_core::memory;

/// Maximum number of rows of a task.
const MAX_TASK_LEN: usize = 256;

/// Allocates a value for each edge. Edges of row `i` are `starts[i]..starts[i + 1]`, and `fill`
/// overwrites their values, which are zeros before. Parallel; unwinds as [`memory::demand`] if the
/// system refuses the memory.
pub(crate) fn edge_values<T: Zeroable + Send>(
    starts: &[u64],
    fill: &(impl Fn(usize, &mut [T]) + Sync),
) -> Vec<T> {
    let mut values = memory::demand_zeros(starts[starts.len() - 1] as usize);
    fill_rows(0, starts, &mut values, fill);
    values
}

/// Fills the rows from `first` on, whose values are `out`, recursively halved over the threads.
fn fill_rows<T: Send>(
    first: usize,
    starts: &[u64],
    mut out: &mut [T],
    fill: &(impl Fn(usize, &mut [T]) + Sync),
) {
    let rows = starts.len() - 1;
    if rows > MAX_TASK_LEN {
        let middle = rows / 2;
        let (before, behind) = out.split_at_mut((starts[middle] - starts[0]) as usize);
        rayon::join(
            || fill_rows(first, &starts[..=middle], before, fill),
            || fill_rows(first + middle, &starts[middle..], behind, fill),
        );
        return;
    }
    for (i, ends) in (first..).zip(starts.windows(2)) {
        let row;
        (row, out) = out.split_at_mut((ends[1] - ends[0]) as usize);
        fill(i, row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_any_number_of_tasks_are_filled() {
        for rows in [0, 1, MAX_TASK_LEN, 3 * MAX_TASK_LEN + 7] {
            let starts: Vec<u64> = (0..=rows as u64).scan(0, |end, i| Some(*end + i % 5)).collect();
            let starts: Vec<u64> =
                starts.iter().scan(0, |end, len| Some(std::mem::replace(end, *end + len))).collect();
            let values = edge_values(&starts, &|i, row: &mut [u32]| row.fill(i as u32 + 1));
            let owner = |e: usize| starts.partition_point(|&start| start <= e as u64) as u32;
            assert_eq!(values.len() as u64, starts[rows]);
            assert!(values.iter().enumerate().all(|(e, &value)| value == owner(e)));
        }
    }
}
