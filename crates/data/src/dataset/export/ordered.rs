//! Pieces made on all threads and written in their order.

use std::io;

use rayon::prelude::*;

/// Makes the pieces `0..count` and hands them to `take` in their order, while the next are made. Two pieces a thread
/// are made at a time, and as many wait to be taken.
///
/// # Errors
/// What `take` reports.
pub(super) fn in_order<T: Send>(
    count: usize,
    make: impl Fn(usize) -> T + Sync,
    mut take: impl FnMut(T) -> io::Result<()>,
) -> io::Result<()> {
    let together = 2 * rayon::current_num_threads();
    let (mut ready, mut start) = (Vec::new(), 0);
    while start < count || !ready.is_empty() {
        let end = (start + together).min(count);
        let mut next = Vec::new();
        rayon::in_place_scope(|scope| {
            scope.spawn(|_| next = (start..end).into_par_iter().map(&make).collect());
            ready.drain(..).try_for_each(&mut take)
        })?;
        (ready, start) = (next, end);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_is_taken_once_and_in_order() {
        for threads in [1, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            for count in [0, 1, 5, 40] {
                let mut taken = Vec::new();
                let all = pool.install(|| {
                    in_order(
                        count,
                        |i| i * i,
                        |piece| {
                            taken.push(piece);
                            Ok(())
                        },
                    )
                });
                all.unwrap();
                assert_eq!(taken, (0..count).map(|i| i * i).collect::<Vec<_>>());
            }
        }
        let full = in_order(9, |i| i, |i| if i == 4 { Err(io::Error::other("full")) } else { Ok(()) });
        assert_eq!(full.unwrap_err().to_string(), "full");
    }
}
