//! A formula over one pair, applied to all pairs of a batch.

use graphmill_core::End;
use rayon::prelude::*;

use super::{Decoder, Pairs, Queries};
use crate::{Matrix, Param, Pass, Saved, View, link::kernel::Kernel};

/// Minimum number of pairs per task.
const MIN_TASK_LEN: usize = 64;

/// Score of one pair, with its gradients.
///
/// ```
/// use graphmill_nn::{
///     Matrix, Pass, Saved,
///     backend::Reference,
///     link::decoder::{Decoder, PairDecoder, PairScore, Pairs},
/// };
///
/// /// The first value of the source times that of the destination.
/// #[derive(Clone)]
/// struct First;
///
/// impl PairScore for First {
///     fn score(&self, h: &[f32], _: &[f32], t: &[f32]) -> f32 {
///         h[0] * t[0]
///     }
///
///     fn gradients(&self, h: &[f32], _: &[f32], t: &[f32], g: f32, [of_h, _, of_t]: [&mut [f32]; 3]) {
///         of_h[0] += g * t[0];
///         of_t[0] += g * h[0];
///     }
///
///     fn boxed(&self) -> Box<dyn PairScore> {
///         Box::new(self.clone())
///     }
/// }
///
/// let decoder = PairDecoder::new(Box::new(First), 2, None);
/// let rows = Matrix::from_slice(1, 2, &[3.0, 9.0]);
/// let (source, destination) = (rows.view(), rows.view());
/// let pairs = Pairs { source, destination, relation: &[], nodes: [&[], &[]] };
/// let (pass, mut scores) = (Pass { backend: &Reference, training: true, key: 0 }, Matrix::default());
/// decoder.forward(&pass, &pairs, &mut Saved::default(), &mut scores);
/// assert_eq!(scores.view().host(), [9.0]);
/// ```
pub trait PairScore: Send + Sync {
    /// Score of source row `h`, relation parameters `r` and destination row `t`.
    fn score(&self, h: &[f32], r: &[f32], t: &[f32]) -> f32;

    /// Adds `g` times the gradients of the score with respect to `h`, `r` and `t` to `grads`.
    fn gradients(&self, h: &[f32], r: &[f32], t: &[f32], g: f32, grads: [&mut [f32]; 3]);

    /// Computes the row from which [`PairScore::kernel`] gives a candidate's score as `end` of an
    /// edge with the other end `fixed` and relation parameters `r`, and returns true, if there is
    /// such a row.
    fn query(&self, end: End, fixed: &[f32], r: &[f32], out: &mut [f32]) -> bool {
        let _ = (end, fixed, r, out);
        false
    }

    /// Adds the gradients of `fixed` and `r` to `grads`, from that of the row of
    /// [`PairScore::query`]. Only the decoders of [`DecoderKind::on_tables`] have them.
    ///
    /// [`DecoderKind::on_tables`]: super::DecoderKind::on_tables
    fn query_gradients(&self, end: End, fixed: &[f32], r: &[f32], grad: &[f32], grads: [&mut [f32]; 2]) {
        let _ = (end, fixed, r, grad, grads);
    }

    /// Score of a candidate from the row of a query.
    fn kernel(&self) -> Kernel {
        Kernel::Product
    }

    /// Replaces a candidate's embedding by the row of a product, and returns true, if they differ.
    fn candidate(&self, row: &mut [f32]) -> bool {
        let _ = row;
        false
    }

    /// Replaces the gradient of the row of [`PairScore::candidate`] by that of the embedding `row`.
    /// Only the decoders of [`DecoderKind::on_tables`] have them.
    ///
    /// [`DecoderKind::on_tables`]: super::DecoderKind::on_tables
    fn candidate_gradient(&self, row: &[f32], grad: &mut [f32]) {
        let _ = (row, grad);
    }

    /// A boxed copy.
    fn boxed(&self) -> Box<dyn PairScore>;
}

/// Computes the rows of candidates for products (`C x F`) and returns true, if they differ from
/// their embeddings.
pub(in crate::link) fn candidate_rows(score: &dyn PairScore, candidates: View, out: &mut Matrix) -> bool {
    let dim = candidates.num_cols();
    let Some(first) = candidates.host().get(..dim) else { return false };
    if !score.candidate(&mut first.to_vec()) {
        return false;
    }
    out.resize(candidates.num_rows(), dim);
    let values = out.view_mut().host();
    values.copy_from_slice(candidates.host());
    let rows = values.par_chunks_mut(dim).with_min_len(MIN_TASK_LEN);
    rows.for_each(|row| {
        score.candidate(row);
    });
    true
}

impl Clone for Box<dyn PairScore> {
    fn clone(&self) -> Self {
        self.boxed()
    }
}

/// Decoder that scores each pair by a [`PairScore`], with a row of parameters for each relation.
#[derive(Clone)]
pub struct PairDecoder {
    score: Box<dyn PairScore>,
    /// Width of the embeddings.
    dim: usize,
    /// Parameters of the relations, `R x W`; `None` if the score has none.
    relation: Option<Param>,
}

impl PairDecoder {
    /// Creates a decoder of embeddings of width `dim`.
    pub fn new(score: Box<dyn PairScore>, dim: usize, relation: Option<Param>) -> Self {
        Self { score, dim, relation }
    }

    /// Parameters of the relation of pair `i`.
    fn parameters<'a>(&self, all: &'a [f32], pairs: &Pairs, i: usize) -> &'a [f32] {
        let Some(relation) = &self.relation else { return &[] };
        let (r, width) = (of_pair(pairs, i), relation.value.num_cols());
        &all[r * width..][..width]
    }

    fn check(&self, pairs: &Pairs) {
        let shape = |x: View| (x.num_rows(), x.num_cols());
        assert_eq!(shape(pairs.source), shape(pairs.destination), "ends of pairs");
        assert_eq!(pairs.source.num_cols(), self.dim, "width of the decoder's embeddings");
        assert!(pairs.relation.is_empty() || pairs.relation.len() == pairs.source.num_rows());
        let relations = self.relation.as_ref().map_or(usize::MAX, |p| p.value.num_rows());
        assert!(pairs.relation.iter().all(|&r| (r as usize) < relations), "a relation out of range");
    }
}

/// Relation of pair `i`.
fn of_pair(pairs: &Pairs, i: usize) -> usize {
    pairs.relation.get(i).map_or(0, |&r| r as usize)
}

/// Gradients of the relations' parameters by pair.
#[derive(Clone, Debug, Default)]
struct State {
    relation: Matrix,
}

impl Decoder for PairDecoder {
    fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param)) {
        self.relation.iter().for_each(see);
    }

    fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        self.relation.iter_mut().for_each(see);
    }

    fn boxed(&self) -> Box<dyn Decoder> {
        Box::new(self.clone())
    }

    fn forward(&self, _pass: &Pass, pairs: &Pairs, _saved: &mut Saved, scores: &mut Matrix) {
        self.check(pairs);
        let (dim, h, t) = (self.dim, pairs.source.host(), pairs.destination.host());
        let all = self.relation.as_ref().map_or(&[][..], |p| p.value.view().host());
        scores.resize(pairs.source.num_rows(), 1);
        let scores = scores.view_mut().host().par_iter_mut().enumerate().with_min_len(MIN_TASK_LEN);
        scores.for_each(|(i, score)| {
            let row = i * dim..(i + 1) * dim;
            *score = self.score.score(&h[row.clone()], self.parameters(all, pairs, i), &t[row]);
        });
    }

    fn backward(
        &mut self,
        _pass: &Pass,
        pairs: &Pairs,
        saved: &mut Saved,
        grad: View,
        ends: [&mut Matrix; 2],
    ) {
        self.check(pairs);
        let (dim, h, t) = (self.dim, pairs.source.host(), pairs.destination.host());
        let count = pairs.source.num_rows();
        let width = self.relation.as_ref().map_or(0, |p| p.value.num_cols());
        let all = self.relation.as_ref().map_or(&[][..], |p| p.value.view().host());
        let State { relation } = saved.state();
        // a column more, so that there is a row for each pair even without parameters
        relation.resize(count, width + 1);
        let [h_grad, t_grad] = ends.map(|grad| {
            grad.resize(count, dim);
            let grad = grad.view_mut().host();
            grad.fill(0.0);
            grad
        });
        let r_grads = relation.view_mut().host();
        r_grads.fill(0.0);
        let rows = h_grad.par_chunks_mut(dim).zip(t_grad.par_chunks_mut(dim));
        let rows = rows.zip(r_grads.par_chunks_mut(width + 1)).zip(grad.host()).enumerate();
        rows.with_min_len(MIN_TASK_LEN).for_each(|(i, (((h_grad, t_grad), r_grad), &g))| {
            let row = i * dim..(i + 1) * dim;
            let r = self.parameters(all, pairs, i);
            let grads = [h_grad, &mut r_grad[..width], t_grad];
            self.score.gradients(&h[row.clone()], r, &t[row], g, grads);
        });
        let Some(param) = &mut self.relation else { return };
        // in the order of the pairs, so that the sums do not depend on the threads
        let sums = param.grad.view_mut().host();
        for (i, row) in relation.view().host().chunks_exact(width + 1).enumerate() {
            let to = &mut sums[of_pair(pairs, i) * width..][..width];
            to.iter_mut().zip(row).for_each(|(to, x)| *to += x);
        }
    }

    fn query_rows(&self, queries: &Queries, out: &mut Matrix) -> bool {
        let &Queries { end, rows, relation } = queries;
        assert_eq!(rows.num_cols(), self.dim, "width of the decoder's embeddings");
        let pairs = Pairs { source: rows, destination: rows, relation, nodes: [&[], &[]] };
        self.check(&pairs);
        let all = self.relation.as_ref().map_or(&[][..], |p| p.value.view().host());
        out.resize(rows.num_rows(), self.dim);
        let lines = out.view_mut().host().par_chunks_mut(self.dim).zip(rows.host().par_chunks(self.dim));
        let query = |(i, (out, fixed)): (usize, (&mut [f32], &[f32]))| {
            self.score.query(end, fixed, self.parameters(all, &pairs, i), out)
        };
        lines.enumerate().with_min_len(MIN_TASK_LEN).map(query).reduce(|| true, |a, b| a && b)
    }

    fn kernel(&self) -> Kernel {
        self.score.kernel()
    }

    fn pair_score(&self) -> Option<&dyn PairScore> {
        Some(&*self.score)
    }

    fn candidate_rows(&self, candidates: View, out: &mut Matrix) -> bool {
        candidate_rows(&*self.score, candidates, out)
    }
}

/// Dot product in f32.
pub(super) fn dot(x: &[f32], y: &[f32]) -> f32 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}
