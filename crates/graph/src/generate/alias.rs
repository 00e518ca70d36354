//! Draws from a discrete distribution in O(1): Walker's alias table (Walker, *An efficient method
//! for generating discrete random variables with general distributions*, ACM TOMS 3(3), 1977),
//! built in O(n) as in Vose, IEEE TSE 17(9), 1991.

use crate::keyed::Stream;

/// A distribution over `0..n`, eight bytes per outcome.
#[derive(Clone, Debug, Default)]
pub(super) struct Alias {
    cells: Vec<Cell>,
}

/// Outcome `i` of its own cell below the threshold, `other` from there on. A cell that always
/// gives `i` has `other == i`, so that the threshold need not express 1.
#[derive(Clone, Copy, Debug)]
struct Cell {
    threshold: u32,
    other: u32,
}

impl Alias {
    /// The distribution proportional to `weights`: finite, not negative, not all zero, at most 2^32
    /// of them. Each probability is met to within 2^-32 / n per cell.
    pub(super) fn new(weights: &[f64]) -> Self {
        let total: f64 = weights.iter().sum();
        let n = weights.len() as f64;
        let mut share: Vec<f64> = weights.iter().map(|w| w / total * n).collect();
        let mut cells: Vec<Cell> =
            (0..weights.len()).map(|i| Cell { threshold: 0, other: i as u32 }).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..share.len()).partition(|&i| share[i] < 1.0);
        while let Some(&giver) = large.last() {
            let Some(taker) = small.pop() else { break };
            cells[taker] = Cell { threshold: (share[taker] * 4_294_967_296.0) as u32, other: giver as u32 };
            share[giver] -= 1.0 - share[taker];
            if share[giver] < 1.0 {
                large.pop();
                small.push(giver);
            }
        }
        // What is left holds 1 but for rounding; yet what weighs nothing must never come up.
        let heaviest = (0..weights.len()).max_by(|&a, &b| weights[a].total_cmp(&weights[b]));
        for i in small.into_iter().filter(|&i| weights[i] == 0.0) {
            cells[i].other = heaviest.unwrap_or(i) as u32;
        }
        Self { cells }
    }

    /// One outcome, from one draw of 64 bits: its product with `n` has the cell in the upper half and
    /// the place within the cell in the lower.
    #[inline(always)]
    pub(super) fn draw(&self, stream: &mut Stream) -> u32 {
        let product = u128::from(stream.next_u64()) * self.cells.len() as u128;
        let own = (product >> 64) as u32;
        let cell = self.cells[own as usize];
        if ((product as u64) >> 32) < u64::from(cell.threshold) { own } else { cell.other }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyed::key;

    #[test]
    fn outcomes_come_up_as_often_as_their_weights_say() {
        for weights in [&[1.0, 0.0, 3.0, 0.5, 0.0, 5.5][..], &[7.0], &[1.0; 10], &[0.0, 1e-9, 0.0]] {
            let total: f64 = weights.iter().sum();
            let table = Alias::new(weights);
            let mut counts = vec![0u32; weights.len()];
            let mut stream = Stream::new(key(&[1, weights.len() as u64]));
            for _ in 0..100_000 {
                counts[table.draw(&mut stream) as usize] += 1;
            }
            for (i, &weight) in weights.iter().enumerate() {
                let p = weight / total;
                let sigma = (1e5 * p * (1.0 - p)).sqrt();
                assert!((f64::from(counts[i]) - 1e5 * p).abs() <= 5.0 * sigma, "{weights:?}: {counts:?}");
            }
        }
    }
}
