//! The operations on a device.
//!
//! Each is a few kernels in the backend's stream, and nothing waits for them but those whose result is the host's: [`Backend::resolve_loss`],
//! [`ElementOps::dot`] and [`ElementOps::squares`]. Sums are in one fixed order: the same bits for every run.
//!
//! | file | operations |
//! |---|---|
//! | `product` | dense products |
//! | `aggregate` | sums, means and maxima over edges |
//! | `attention` | attention (GAT) |
//! | `attend_input` | attention over input rows |
//! | `rows` | gathers, sums and copies; sparse rows |
//! | `elements` | bias, activation and dropout; column sums |
//! | `columns` | how columns are summed |
//! | `norm` | normalisations |
//! | `loss` | losses |
//! | `update` | optimiser steps |
//! | `shape` | what operations assert of their inputs |
//! | `work` | addresses, and how kernels are started |

use std::sync::{Arc, Mutex, PoisonError};

use graphmill_core::{Block, NodeId, View, ViewMut};
use graphmill_nn::backend::{
    Activation, AdamStep, AggregationOps, AggregationWeights, ArgMax, AttentionOps, Backend, DenseOps,
    Dropout, ElementOps, LossOps, Matrices, NormOps, SgdStep, Side, UpdateOps,
    ops::{
        AttendInput, AttendInputBackward, AttendInputTransposed, EdgeSoftmaxBackward, HeadGemm, NormBackward,
    },
};

use crate::{Buffer, Device, Queue, Result, driver::Arithmetic};
use work::Work;

mod aggregate;
mod attend_input;
mod attention;
mod columns;
mod elements;
mod loss;
mod norm;
mod product;
mod rows;
mod shape;
mod update;
mod work;

/// The operations on a device. What fails there is remembered: later operations do nothing, and [`Backend::check`] tells.
#[derive(Debug)]
pub struct Cuda {
    queue: Arc<Queue>,
    arithmetic: Arithmetic,
    /// The loss that nobody has asked for yet.
    loss: Mutex<Option<Buffer>>,
    /// What differs from step to step, of steps that come again: where graphs read it.
    late: Mutex<Option<Buffer>>,
    /// Whether such steps become graphs.
    graphs: bool,
}

impl Cuda {
    /// On this device's stream that trains, with dense products in that arithmetic.
    ///
    /// # Errors
    /// The driver fails.
    pub fn new(device: &Arc<Device>, arithmetic: Arithmetic) -> Result<Self> {
        Ok(Self::on(&Queue::compute(device)?, arithmetic))
    }

    /// In a queue that is there.
    pub fn on(queue: &Arc<Queue>, arithmetic: Arithmetic) -> Self {
        let (loss, late) = Default::default();
        Self { queue: queue.clone(), arithmetic, loss, late, graphs: true }
    }

    /// The same, whose steps that come again become graphs or do not ([`crate::replay`]).
    #[must_use]
    pub fn with_graphs(self, graphs: bool) -> Self {
        Self { graphs, ..self }
    }

    /// Where the operations are queued.
    pub fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// Nothing, where something failed before.
    fn attempt<T: Default>(&self, operation: impl FnOnce(&Work) -> Result<T>) -> T {
        let device = self.queue.device();
        if device.has_failed() {
            return T::default();
        }
        operation(&Work::new(&self.queue)).unwrap_or_else(|error| {
            device.fail(error);
            T::default()
        })
    }
}

impl Cuda {
    /// A loss that is asked for later ([`Backend::resolve_loss`]).
    fn late(&self, operation: impl FnOnce(&Work) -> Result<Option<Buffer>>) -> f64 {
        let loss = self.attempt(operation);
        *self.loss.lock().unwrap_or_else(PoisonError::into_inner) = loss;
        0.0
    }
}

impl Backend for Cuda {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn resolve_loss(&self, loss: f64) -> f64 {
        let late = self.loss.lock().unwrap_or_else(PoisonError::into_inner).take();
        match late {
            Some(late) => self.attempt(|_| rows::number(&late)),
            None => {
                self.attempt(|_| self.queue.synchronize());
                loss
            }
        }
    }

    fn begin_replayable_step(&self) {
        if !self.graphs {
            return;
        }
        self.attempt(|_| {
            let replay = self.queue.device().replay();
            let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
            let wanted = replay.wanted();
            if wanted > 0 {
                // the one that was is free behind the graphs that read it
                *late = Some(self.queue.scratch(wanted)?);
            }
            self.queue.arrange();
            replay.begin(self.queue.stream(), late.as_ref().map(|late| (late.address(), late.len())))
        });
    }

    fn end_replayable_step(&self) {
        if self.graphs {
            self.attempt(|_| self.queue.device().replay().end());
        }
    }

    fn check(&self) -> graphmill_nn::Result<()> {
        let checked = self.queue.device().check();
        checked.map_err(|error| graphmill_nn::Error::Device(error.to_string()))
    }
}

impl DenseOps for Cuda {
    fn gemm(&self, a: View, side_a: Side, b: View, side_b: Side, beta: f32, c: ViewMut) {
        self.attempt(|work| product::gemm(work, self.arithmetic, (a, side_a), (b, side_b), beta, c));
    }

    fn head_gemm(&self, op: HeadGemm) {
        let HeadGemm { heads, a, side_a, b, side_b, beta, c } = op;
        self.attempt(|work| {
            product::head_gemm(work, self.arithmetic, heads, (a, side_a), (b, side_b), beta, c)
        });
    }
}

impl AggregationOps for Cuda {
    fn aggregate(&self, block: &Block, weighting: AggregationWeights, src: View, beta: f32, dst: ViewMut) {
        self.attempt(|work| aggregate::aggregate(work, block, weighting, src, beta, dst));
    }

    fn aggregate_transposed(
        &self,
        block: &Block,
        weighting: AggregationWeights,
        dst_grad: View,
        beta: f32,
        src_grad: ViewMut,
    ) {
        self.attempt(|work| {
            aggregate::aggregate_transposed(work, block, weighting, dst_grad, beta, src_grad)
        });
    }

    fn hop(&self, first: usize, block: &Block, src: View, dst: ViewMut) {
        self.attempt(|work| aggregate::hop(work, first, block, src, dst));
    }

    fn hop_transposed(&self, first: usize, block: &Block, dst_grad: View, src_grad: ViewMut) {
        self.attempt(|work| aggregate::hop_transposed(work, first, block, dst_grad, src_grad));
    }

    fn aggregate_max(&self, block: &Block, src: View, dst: ViewMut, arg: &mut ArgMax) {
        self.attempt(|work| aggregate::aggregate_max(work, block, src, dst, arg));
    }

    fn aggregate_max_transposed(&self, block: &Block, arg: &ArgMax, dst_grad: View, src_grad: ViewMut) {
        self.attempt(|work| aggregate::aggregate_max_transposed(work, block, arg, dst_grad, src_grad));
    }
}

impl AttentionOps for Cuda {
    fn head_dot(&self, z: View, a: View, heads: usize, out: ViewMut) {
        self.attempt(|work| attention::head_dot(work, z, a, heads, out));
    }

    fn head_dot_backward(
        &self,
        z: View,
        a: View,
        heads: usize,
        grad: View,
        z_grad: ViewMut,
        a_grad: ViewMut,
    ) {
        self.attempt(|work| attention::head_dot_backward(work, z, a, heads, grad, z_grad, a_grad));
    }

    fn edge_softmax(&self, block: &Block, source: View, target: View, slope: f32, alpha: ViewMut) {
        self.attempt(|work| attention::edge_softmax(work, block, source, target, slope, alpha));
    }

    fn edge_softmax_backward(&self, op: EdgeSoftmaxBackward) {
        self.attempt(|work| attention::edge_softmax_backward(work, op));
    }

    fn attend(&self, block: &Block, alpha: View, z: View, out: ViewMut) {
        self.attempt(|work| attention::attend(work, block, alpha, z, out));
    }

    fn attend_backward(
        &self,
        block: &Block,
        alpha: View,
        z: View,
        grad: View,
        alpha_grad: ViewMut,
        z_grad: ViewMut,
    ) {
        self.attempt(|work| attention::attend_backward(work, block, alpha, z, grad, alpha_grad, z_grad));
    }

    fn attend_input(&self, op: AttendInput) {
        self.attempt(|work| attend_input::attend_input(work, op));
    }

    fn attend_input_backward(&self, op: AttendInputBackward) {
        self.attempt(|work| attend_input::attend_input_backward(work, op));
    }

    fn attend_input_transposed(&self, op: AttendInputTransposed) {
        self.attempt(|work| attend_input::attend_input_transposed(work, op));
    }

    fn head_mean(&self, x: View, heads: usize, out: ViewMut) {
        self.attempt(|work| attention::head_mean(work, x, heads, out));
    }

    fn head_mean_backward(&self, grad: View, heads: usize, x_grad: ViewMut) {
        self.attempt(|work| attention::head_mean_backward(work, grad, heads, x_grad));
    }
}

impl ElementOps for Cuda {
    fn gather(&self, src: View, ids: &[NodeId], dst: ViewMut) {
        self.attempt(|work| rows::gather(work, src, ids, dst));
    }

    fn add(&self, alpha: f32, x: View, y: ViewMut) {
        self.attempt(|work| rows::add(work, alpha, x, y));
    }

    fn drop_stored(&self, x: View, dropout: Dropout, out: ViewMut) {
        rows::drop_stored(x, dropout, out);
    }

    fn fill(&self, value: f32, x: ViewMut) {
        self.attempt(|work| rows::fill(work, value, x));
    }

    fn scale(&self, alpha: f32, x: ViewMut) {
        self.attempt(|work| rows::scale(work, alpha, x));
    }

    fn copy(&self, src: View, dst: ViewMut) {
        self.attempt(|work| rows::copy(work, src, dst));
    }

    fn add_column_sums(&self, x: View, out: ViewMut) {
        self.attempt(|work| elements::add_column_sums(work, x, out));
    }

    fn dot(&self, x: View, y: View) -> f64 {
        self.attempt(|work| rows::dot(work, x, y))
    }

    fn add_dot(&self, x: View, y: View, out: ViewMut) {
        self.attempt(|work| rows::add_dot(work, x, y, out));
    }

    fn squares(&self, matrices: &mut Matrices) -> f64 {
        self.attempt(|work| rows::squares(work, matrices))
    }

    fn epilogue(&self, bias: Option<View>, activation: Activation, dropout: Dropout, x: ViewMut) {
        self.attempt(|work| elements::epilogue(work, bias, activation, dropout, x));
    }

    fn epilogue_backward(
        &self,
        activation: Activation,
        dropout: Dropout,
        y: View,
        grad: ViewMut,
        bias_grad: Option<ViewMut>,
    ) {
        self.attempt(|work| elements::epilogue_backward(work, activation, dropout, y, grad, bias_grad));
    }
}

impl NormOps for Cuda {
    fn batch_norm(&self, x: View, gamma: View, beta: View, eps: f32, stats: ViewMut, out: ViewMut) {
        self.attempt(|work| norm::batch_norm(work, x, gamma, beta, eps, stats, out));
    }

    fn batch_norm_apply(&self, x: View, gamma: View, beta: View, eps: f32, stats: View, out: ViewMut) {
        self.attempt(|work| norm::batch_norm_apply(work, x, gamma, beta, eps, stats, out));
    }

    fn batch_norm_backward(&self, op: NormBackward) {
        self.attempt(|work| norm::batch_norm_backward(work, op));
    }

    fn layer_norm(&self, x: View, gamma: View, beta: View, eps: f32, stats: ViewMut, out: ViewMut) {
        self.attempt(|work| norm::layer_norm(work, x, gamma, beta, eps, stats, out));
    }

    fn layer_norm_backward(&self, op: NormBackward) {
        self.attempt(|work| norm::layer_norm_backward(work, op));
    }

    fn l2_norm(&self, x: View, norms: ViewMut, out: ViewMut) {
        self.attempt(|work| norm::l2_norm(work, x, norms, out));
    }

    fn l2_norm_backward(&self, y: View, norms: View, grad: ViewMut) {
        self.attempt(|work| norm::l2_norm_backward(work, y, norms, grad));
    }
}

impl LossOps for Cuda {
    fn softmax_cross_entropy(
        &self,
        logits: View,
        label: &[i32],
        weight: &[f32],
        scale: f32,
        grad: ViewMut,
    ) -> f64 {
        self.late(|work| loss::softmax_cross_entropy(work, logits, label, weight, scale, grad))
    }

    fn sigmoid_cross_entropy(
        &self,
        logits: View,
        target: &[u8],
        weight: &[f32],
        scale: f32,
        grad: ViewMut,
    ) -> f64 {
        self.late(|work| loss::sigmoid_cross_entropy(work, logits, target, weight, scale, grad))
    }

    fn softmax(&self, x: ViewMut) {
        self.attempt(|work| loss::softmax(work, x));
    }

    fn sigmoid(&self, x: ViewMut) {
        self.attempt(|work| loss::sigmoid(work, x));
    }
}

impl UpdateOps for Cuda {
    fn adam(&self, step: AdamStep, grad: View, m: ViewMut, v: ViewMut, value: ViewMut) {
        self.attempt(|work| update::adam(work, step, grad, m, v, value));
    }

    fn sgd(&self, step: SgdStep, grad: View, velocity: ViewMut, value: ViewMut) {
        self.attempt(|work| update::sgd(work, step, grad, velocity, value));
    }
}
