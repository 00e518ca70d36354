//! Elementwise parts of recurrent cells, after the products with their weights.
//!
//! The forward pass of the gated unit replaces the input's part by the gates, which the backward
//! pass reads, so that it needs no exponential.

use super::{
    level::{Isa, kernel},
    math,
    parallel::{self, Rows},
};

/// Cost of a value relative to reading it.
const COST: usize = 16;

/// The gated unit: `of_x` and `of_h` are `R x 3M` (reset, update, new), states and `out` `R x M`.
/// `of_x` becomes the gates. With `R x 4M` values, the last of `of_h` are added to `of_x`'s new
/// ones.
pub(crate) fn gru(width: usize, of_x: &mut [f32], of_h: &[f32], states: &[f32], out: &mut [f32]) {
    let count = out.len() / width.max(1);
    let wide = of_h.len().checked_div(count).unwrap_or(0);
    let parts = (Rows { data: of_x, width: 3 * width }, Rows { data: out, width });
    let isa = Isa::current();
    parallel::rows(count, COST * width, parts, |rows, (gates, out)| {
        let (of_h, states) = (&of_h[rows.start * wide..], &states[rows.start * width..]);
        gru_rows(isa, [width, wide], gates.data, of_h, states, out.data);
    });
}

/// Gradients of the input's and the state's part of [`gru`], of their shapes, from that of its
/// result.
pub(crate) fn gru_backward(
    width: usize,
    [gates, of_h, states, grad]: [&[f32]; 4],
    [to_x, to_h]: [&mut [f32]; 2],
) {
    let count = grad.len() / width.max(1);
    let wide = of_h.len().checked_div(count).unwrap_or(0);
    let parts = (Rows { data: to_x, width: 3 * width }, Rows { data: to_h, width: wide });
    let isa = Isa::current();
    parallel::rows(count, COST * width, parts, |rows, (to_x, to_h)| {
        let (of_x, narrow) = (rows.start * 3 * width, rows.start * width);
        let given = [&gates[of_x..], &of_h[rows.start * wide..], &states[narrow..], &grad[narrow..]];
        gru_back_rows(isa, [width, wide], given, to_x.data, to_h.data);
    });
}

/// The plain cell: `out = tanh(of_x + of_h)`.
pub(crate) fn rnn(of_x: &[f32], of_h: &[f32], out: &mut [f32]) {
    let isa = Isa::current();
    parallel::rows(out.len(), COST, Rows { data: out, width: 1 }, |range, out| {
        rnn_values(isa, &of_x[range.clone()], &of_h[range], out.data);
    });
}

/// Gradient of both parts of [`rnn`].
pub(crate) fn rnn_backward(of_x: &[f32], of_h: &[f32], grad: &[f32], to: &mut [f32]) {
    rnn(of_x, of_h, to);
    for (to, g) in to.iter_mut().zip(grad) {
        *to = g * (1.0 - *to * *to);
    }
}

kernel! {
    fn gru_rows[](
        s: S, widths: [usize; 2], gates: &mut [f32], of_h: &[f32], states: &[f32], out: &mut [f32],
    ) {
        let [width, wide] = widths;
        for (r, (out, gates)) in
            out.chunks_exact_mut(width).zip(gates.chunks_exact_mut(3 * width)).enumerate()
        {
            let h = &of_h[wide * r..wide * (r + 1)];
            let (h, more) = h.split_at(3 * width);
            let state = &states[width * r..width * (r + 1)];
            let (resets, gates) = gates.split_at_mut(width);
            let (updates, news) = gates.split_at_mut(width);
            let mut c = 0;
            while c < width {
                let reset = math::sigmoid(s, s.add(s.load(resets, c), s.load(&h[..width], c)));
                let update = math::sigmoid(s, s.add(s.load(updates, c), s.load(&h[width..2 * width], c)));
                let mut of_x = s.load(news, c);
                if !more.is_empty() {
                    of_x = s.add(of_x, s.load(more, c));
                }
                let of_new = s.mul_add(reset, s.load(&h[2 * width..], c), of_x);
                let new = math::tanh(s, of_new);
                // (1 - update) new + update state
                let difference = s.sub(s.load(state, c), new);
                s.store(out, c, s.mul_add(update, difference, new));
                s.store(resets, c, reset);
                s.store(updates, c, update);
                s.store(news, c, new);
                c += S::LANES;
            }
        }
    }

    fn gru_back_rows[](s: S, widths: [usize; 2], given: [&[f32]; 4], to_x: &mut [f32], to_h: &mut [f32]) {
        let [width, wide] = widths;
        let rows = to_x.chunks_exact_mut(3 * width).zip(to_h.chunks_exact_mut(wide));
        let one = s.splat(1.0);
        for (r, (to_x, to_h)) in rows.enumerate() {
            let gates = &given[0][3 * width * r..3 * width * (r + 1)];
            let h = &given[1][wide * r..wide * r + 3 * width];
            let [state, grad] = [given[2], given[3]].map(|x| &x[width * r..width * (r + 1)]);
            let (to_x_reset, to_x) = to_x.split_at_mut(width);
            let (to_x_update, to_x_new) = to_x.split_at_mut(width);
            let (to_h_reset, to_h) = to_h.split_at_mut(width);
            let (to_h_update, to_h) = to_h.split_at_mut(width);
            let (to_h_new, more) = to_h.split_at_mut(width);
            let mut c = 0;
            while c < width {
                let (g, new) = (s.load(grad, c), s.load(&gates[2 * width..], c));
                let (reset, update) = (s.load(&gates[..width], c), s.load(&gates[width..2 * width], c));
                let to_new = s.mul(s.mul(g, s.sub(one, update)), s.sub(one, s.mul(new, new)));
                let slope = s.mul(update, s.sub(one, update));
                let to_update = s.mul(s.mul(g, s.sub(s.load(state, c), new)), slope);
                let slope = s.mul(reset, s.sub(one, reset));
                let to_reset = s.mul(s.mul(to_new, s.load(&h[2 * width..], c)), slope);
                s.store(to_x_reset, c, to_reset);
                s.store(to_h_reset, c, to_reset);
                s.store(to_x_update, c, to_update);
                s.store(to_h_update, c, to_update);
                s.store(to_x_new, c, to_new);
                s.store(to_h_new, c, s.mul(to_new, reset));
                if !more.is_empty() {
                    s.store(more, c, to_new);
                }
                c += S::LANES;
            }
        }
    }

    fn rnn_values[](s: S, of_x: &[f32], of_h: &[f32], out: &mut [f32]) {
        let mut c = 0;
        while c < out.len() {
            s.store(out, c, math::tanh(s, s.add(s.load(of_x, c), s.load(of_h, c))));
            c += S::LANES;
        }
    }
}
