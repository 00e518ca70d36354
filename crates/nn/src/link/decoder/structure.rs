//! Two dense layers over the products of both rows and the structure of the graph around the pair.
//!
//! # Algorithm
//!
//! `relu([h t | s] W + b) w + c`, with `h t` by elements and `s` the features of the pair
//! ([`PairStructure`]), computed from the graph without the pair's own edge.
//!
//! # Source
//!
//! Zhang and Chen, *Link prediction based on graph neural networks*, NeurIPS 2018: the structure
//! around a pair without its edge, beside embeddings. The features are those of
//! [`crate::link::structure`].
//!
//! # Cost
//!
//! O((F + K) H) per pair and the searches of its features, in every pass.
//!
//! # Memory
//!
//! `4 (F + K)` bytes per pair, twice in a backward pass.

use std::sync::Arc;

use graphmill_core::{NodeId, keyed};
use rayon::prelude::*;

use super::{Decoder, DecoderConfig, Pairs};
use crate::{
    Epilogue, Matrix, Param, Pass, Result, Saved, View,
    backend::{Activation, Dropout},
    layer::Linear,
    link::structure::{PairStructure, WIDTH},
};

/// Minimum number of pairs per task.
const MIN_TASK_LEN: usize = 16;

#[derive(Clone)]
struct Structure {
    /// Width of the embeddings, `F`.
    dim: usize,
    hidden: Linear,
    out: Linear,
    /// The graph, once it is known.
    graph: Option<Arc<PairStructure>>,
}

/// Makes the decoder. Features are 0 until it knows its graph ([`Decoder::read_structure`]).
pub(super) fn make(config: &DecoderConfig) -> Result<Box<dyn Decoder>> {
    config.check()?;
    let &DecoderConfig { dim, hidden, key, .. } = config;
    let linear = |names, from, to, part| Linear::named(names, from, to, true, keyed::key(&[key, part]));
    let out = linear(["out.weight", "out.bias"], hidden, 1, 1);
    let hidden = linear(["hidden.weight", "hidden.bias"], dim + WIDTH, hidden, 0);
    Ok(Box::new(Structure { dim, hidden, out, graph: None }))
}

/// Matrices of a pass.
#[derive(Clone, Debug, Default)]
struct State {
    /// Products and features, `P x (F + K)`.
    input: Matrix,
    hidden: Matrix,
    scores: Matrix,
    grads: [Matrix; 3],
}

const HIDDEN: Epilogue = Epilogue { activation: Activation::Relu, dropout: Dropout::NONE };

impl Structure {
    /// Computes the products and features of all pairs.
    fn fill(&self, pairs: &Pairs, input: &mut Matrix) {
        let (count, dim, width) = (pairs.source.num_rows(), self.dim, self.dim + WIDTH);
        let ends = [pairs.source, pairs.destination];
        assert!(ends.iter().all(|rows| rows.num_cols() == dim && rows.num_rows() == count), "rows of pairs");
        let graph = self.graph.as_deref();
        let numbers: [&[NodeId]; 2] = if graph.is_some() { pairs.nodes } else { Default::default() };
        let known = if graph.is_some() { count } else { 0 };
        assert!(numbers.iter().all(|nodes| nodes.len() == known), "numbers of the nodes of pairs");
        input.resize(count, width);
        let [h, t] = ends.map(|rows| rows.host());
        let rows = input.view_mut().host().par_chunks_mut(width).enumerate().with_min_len(MIN_TASK_LEN);
        rows.for_each(|(i, row)| {
            let (products, features) = row.split_at_mut(dim);
            let factors = h[i * dim..][..dim].iter().zip(&t[i * dim..][..dim]);
            products.iter_mut().zip(factors).for_each(|(out, (x, y))| *out = x * y);
            match graph {
                Some(graph) => graph.write(numbers.map(|nodes| nodes[i]), features),
                None => features.fill(0.0),
            }
        });
    }
}

impl Decoder for Structure {
    fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param)) {
        self.hidden.visit(see);
        self.out.visit(see);
    }

    fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        self.hidden.visit_mut(see);
        self.out.visit_mut(see);
    }

    fn boxed(&self) -> Box<dyn Decoder> {
        Box::new(self.clone())
    }

    fn forward(&self, pass: &Pass, pairs: &Pairs, saved: &mut Saved, scores: &mut Matrix) {
        let State { input, hidden, scores: kept, .. } = saved.state();
        self.fill(pairs, input);
        hidden.resize(input.num_rows(), self.hidden.out_dim());
        self.hidden.forward(pass, input.view(), 0.0, HIDDEN, hidden.view_mut());
        scores.resize(input.num_rows(), 1);
        self.out.forward(pass, hidden.view(), 0.0, Epilogue::NONE, scores.view_mut());
        kept.resize(input.num_rows(), 1);
    }

    fn backward(
        &mut self,
        pass: &Pass,
        pairs: &Pairs,
        saved: &mut Saved,
        grad: View,
        ends: [&mut Matrix; 2],
    ) {
        let State { input, hidden, scores, grads: [out_grad, hidden_grad, input_grad] } = saved.state();
        out_grad.resize(grad.num_rows(), 1);
        pass.backend.copy(grad, out_grad.view_mut());
        let (x, y) = (hidden.view(), scores.view());
        self.out.backward(pass, x, y, Epilogue::NONE, out_grad, Some(hidden_grad));
        let (x, y) = (input.view(), hidden.view());
        self.hidden.backward(pass, x, y, HIDDEN, hidden_grad, Some(input_grad));
        // features have no parameters, so that the gradients of the products are left
        let (dim, width) = (self.dim, self.dim + WIDTH);
        for (end, other) in ends.into_iter().zip([pairs.destination, pairs.source]) {
            end.resize(grad.num_rows(), dim);
            let rows =
                end.view_mut().host().par_chunks_mut(dim).zip(input_grad.view().host().par_chunks(width));
            rows.zip(other.host().par_chunks(dim)).with_min_len(MIN_TASK_LEN).for_each(
                |((out, grad), other)| {
                    let factors = grad[..dim].iter().zip(other);
                    out.iter_mut().zip(factors).for_each(|(out, (x, y))| *out = x * y);
                },
            );
        }
    }

    fn reads_nodes(&self) -> bool {
        true
    }

    fn read_structure(&mut self, graph: &Arc<PairStructure>) {
        self.graph = Some(graph.clone());
    }
}
