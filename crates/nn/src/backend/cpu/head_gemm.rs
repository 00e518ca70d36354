//! Dense products head by head: each head's columns of the factors and of the result are matrices inside
//! larger ones, so nothing is copied.
//!
//! Cut as [`super::gemm`] cuts, by shape alone, and a head is a piece of its own.

use gemm::Parallelism;

use super::{
    gemm::{add_partials, gemm},
    level::Isa,
    parallel::{self, Chunks, Rows},
    scratch,
};
use crate::{
    View, ViewMut,
    backend::{Side, shape},
};

/// Multiplications in a piece of work: about a tenth of a millisecond.
const GRAIN: usize = 8 << 20;
/// The shortest part of an inner dimension that is cut.
const LONG: usize = 1024;

/// A factor: `data[i * rs + j * cs]`.
#[derive(Clone, Copy)]
struct Factor<'a> {
    data: &'a [f32],
    rs: usize,
    cs: usize,
}

impl<'a> Factor<'a> {
    /// Head `h` of `x`, `width` columns.
    fn new(x: View<'a>, side: Side, h: usize, width: usize) -> Self {
        let (cols, data) = (x.num_cols(), &x.host()[h * width..]);
        match side {
            Side::Plain => Self { data, rs: cols, cs: 1 },
            Side::Transposed => Self { data, rs: 1, cs: cols },
        }
    }

    /// Element (`i`, `j`) on.
    fn from(self, i: usize, j: usize) -> Self {
        Self { data: &self.data[i * self.rs + j * self.cs..], ..self }
    }
}

/// `c = beta c + a b`, serially; `c` is `m x n` in rows `stride` apart.
fn product(a: Factor, b: Factor, [m, n, k]: [usize; 3], beta: f32, c: &mut [f32], stride: usize) {
    assert!((m - 1) * a.rs + (k - 1) * a.cs < a.data.len());
    assert!((k - 1) * b.rs + (n - 1) * b.cs < b.data.len());
    assert!((m - 1) * stride + n <= c.len() && n <= stride);
    // SAFETY: the last element of each matrix is inside its slice, by the lines above.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            c.as_mut_ptr(),
            1,
            stride as isize,
            beta != 0.0,
            a.data.as_ptr(),
            a.cs as isize,
            a.rs as isize,
            b.data.as_ptr(),
            b.cs as isize,
            b.rs as isize,
            beta,
            1.0,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

#[allow(clippy::too_many_arguments, reason = "a product, by heads")]
pub(super) fn head_gemm(heads: usize, a: View, side_a: Side, b: View, side_b: Side, beta: f32, c: ViewMut) {
    let (of_a, of_b, n) = shape::head_gemm(heads, a, side_a, b, side_b, &c);
    if heads == 1 {
        return gemm(a, side_a, b, side_b, beta, c);
    }
    let (m, stride) = (c.num_rows(), c.num_cols());
    let k = if side_a == Side::Plain { of_a } else { a.num_rows() };
    let c = c.host();
    if c.is_empty() {
        return;
    }
    if k == 0 {
        c.iter_mut().for_each(|x| *x = if beta == 0.0 { 0.0 } else { beta * *x });
        return;
    }
    let factors = |h: usize| (Factor::new(a, side_a, h, of_a), Factor::new(b, side_b, h, of_b));
    if side_a == Side::Plain {
        // whole tiles of any kernel, of at least `GRAIN` multiplications
        let len = (GRAIN / (stride * k)).max(m.div_ceil(256)).next_multiple_of(48);
        Chunks::of(m, len).each(Rows { data: c, width: stride }, &mut [], |rows, c, _: &mut [()]| {
            for h in 0..heads {
                let (a, b) = factors(h);
                let size = [rows.len(), n, k];
                product(a.from(rows.start, 0), b, size, beta, &mut c.data[h * n..], stride);
            }
        });
        return;
    }
    // a small result of long sums: every part of them gets a result of its own
    let size = c.len();
    let chunks = Chunks::new(k, LONG);
    let mut scratch = scratch::take((chunks.count() * size).div_ceil(2));
    let partials = &mut bytemuck::cast_slice_mut::<f64, f32>(&mut scratch)[..chunks.count() * size];
    chunks.each((), partials, |inner, (), partial| {
        for h in 0..heads {
            let (a, b) = factors(h);
            let (a, b) = (a.from(0, inner.start), b.from(inner.start, 0));
            product(a, b, [m, n, inner.len()], 0.0, &mut partial[h * n..], stride);
        }
    });
    let (isa, partials) = (Isa::current(), &partials[..]);
    parallel::rows(size, chunks.count(), Rows { data: c, width: 1 }, |range, c| {
        add_partials(isa, partials, size, range.start, beta, c.data);
    });
}
