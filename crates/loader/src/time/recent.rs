//! Draws by recency from one row at a time, for callers with loops of their own.

use std::{ops::Range, sync::Arc};

use graphmill_core::{Graph, NodeId, Result, keyed::Stream};

use super::{
    TimeIndex,
    decay::Decay,
    draw::{Marks, sort, uniform},
    recency::{Aged, Candidates},
};

/// Draws of [`TimeDraw::Recency`](super::TimeDraw::Recency) from the rows of a graph.
#[derive(Clone, Debug)]
pub struct RecencyDraws {
    half_life: f64,
    /// Tables of the rows; `None` if all edges always existed.
    decay: Option<Arc<Decay>>,
}

impl RecencyDraws {
    /// Prepares draws from the rows of `graph` in the order of `index`, where an edge counts half
    /// as much as one that is later by `half_life`. O(E).
    ///
    /// # Errors
    /// The rows are in files, and the disk has too little space for their tables.
    pub fn new(index: &TimeIndex, graph: &Graph, half_life: f64) -> Result<Self> {
        Ok(Self { half_life, decay: index.decay(graph, half_life)? })
    }

    /// Fills `out` with distinct places of the row of `v` in the order of its times, ascending.
    /// `admitted` ([`TimeIndex::admitted`]) has at least as many places.
    pub fn draw(
        &self,
        (graph, index): (&Graph, &TimeIndex),
        (v, admitted): (NodeId, Range<u32>),
        stream: Stream,
        out: &mut [u32],
    ) {
        let [start, end] = [graph.indptr()[v as usize], graph.indptr()[v as usize + 1]];
        let table = self.decay.as_ref().map_or(&[][..], |decay| decay.row(v as usize));
        let row = Aged::new(self.half_life, index.row(start, end), table);
        fill(&row, [admitted.start, admitted.end], stream, out);
    }

    /// Fills `out` as [`RecencyDraws::draw`] does from a row that has the edges of these ascending
    /// `times` alone, with places in it.
    pub fn draw_of_times(&self, times: &[i64], admitted: Range<u32>, stream: Stream, out: &mut [u32]) {
        let alone = Decay::new(&[0, times.len() as u64], times, self.half_life);
        let row = Aged::new(self.half_life, times, alone.row(0));
        fill(&row, [admitted.start, admitted.end], stream, out);
    }
}

/// Fills `out` with admitted places of a row.
fn fill(row: &Aged, admitted: [u32; 2], mut stream: Stream, out: &mut [u32]) {
    let mut marks = Marks::new();
    let count = (admitted[1] - admitted[0]) as usize;
    debug_assert!(out.len() <= count, "{} draws of {count} edges", out.len());
    if out.len() == count {
        out.iter_mut().zip(admitted[0]..).for_each(|(to, place)| *to = place);
    } else if row.has_no_times() {
        uniform(admitted, &mut stream, &mut marks, out);
    } else {
        let mut candidates = Candidates::new();
        candidates.start(row, admitted, stream, out.len());
        candidates.look_up(row);
        candidates.finish(row, admitted, &mut marks, out);
        sort(out);
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::Buffer;

    use super::{
        super::{TimeDraw, TimeOptions, draw::draw_alone},
        *,
    };

    #[test]
    fn rows_are_drawn_as_the_sampler_draws_them() {
        let times: Vec<i64> = (0..60).map(|i| i * i / 9).collect();
        let graph = Graph::new(vec![0, 60].into(), vec![0; 60].into()).unwrap();
        let index = TimeIndex::new(&graph, Some(&Buffer::from(times.clone())), None).unwrap();
        let options =
            TimeOptions { time_draw: TimeDraw::Recency, time_half_life: 40.0, ..TimeOptions::default() };
        let draws = RecencyDraws::new(&index, &graph, 40.0).unwrap();
        for (admitted, count) in [(0..60u32, 3), (0..41, 12), (20..50, 4), (7..9, 2), (5..9, 0)] {
            for seed in 0..20 {
                let mut found = [vec![0; count], vec![0; count], vec![0; count]];
                let of = (0, admitted.clone());
                draws.draw((&graph, &index), of, Stream::new(seed), &mut found[0]);
                draws.draw_of_times(&times, admitted.clone(), Stream::new(seed), &mut found[1]);
                draw_alone(&options, &times, admitted.clone(), &mut Stream::new(seed), &mut found[2]);
                assert!(found[0] == found[2] && found[1] == found[2], "{admitted:?}: {count} of seed {seed}");
            }
        }
    }
}
