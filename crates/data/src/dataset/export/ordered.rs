//! Chunks computed in parallel and consumed in order.

use std::io;

use rayon::prelude::*;

/// Computes the chunks `0..count` and passes them to `take` in order, while the next ones are
/// computed. At most two chunks per thread are in progress and as many are waiting.
///
/// # Errors
/// The error of `take`.
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
    fn every_chunk_is_consumed_once_and_in_order() {
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
