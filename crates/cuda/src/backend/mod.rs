//! Operations on a device.
//!
//! Each operation is a few kernels in the backend's stream. Only operations whose result is on the
//! host wait for them: [`Backend::resolve_loss`], [`ElementOps::dot`] and [`ElementOps::squares`].
//! Sums have one fixed order, so every run gives the same bits.
//!
//! | file | operations |
//! |---|---|
//! | `product` | dense products |
//! | `aggregate` | sums, means and maxima over edges |
//! | `attention` | attention (GAT) |
//! | `attend_input` | attention over input rows |
//! | `dot_attention` | attention by dot products |
//! | `pair_attention` | attention to both ends of an edge at once |
//! | `edge_rows` | edges as kernels read them, and sums over them |
//! | `edge_sum` | sums over edges of functions of both ends and the edge |
//! | `rows` | gathers, sums and copies; sparse rows |
//! | `elements` | bias, activation and dropout; column sums |
//! | `columns` | the two stages of column sums |
//! | `factors` | products with learned factors |
//! | `norm` | normalizations |
//! | `loss` | losses |
//! | `update` | optimiser steps |
//! | `shape` | lengths of a block's arrays on the device |
//! | `work` | addresses, and kernel launches |

use std::sync::{Arc, Mutex, PoisonError};

use graphmill_core::{View, ViewMut};
use graphmill_nn::backend::{
    AggregationOps, AttentionOps, Backend, DenseOps, ElementOps, LossOps, Matrices, NormOps, UpdateOps,
    ops::{
        AdamUpdate, Add, AddDot, AddTimes, Aggregate, AggregateMax, AggregateMaxTransposed,
        AggregateTransposed, Attend, AttendBackward, AttendInput, AttendInputBackward, AttendInputTransposed,
        BatchNormApply, BatchNormBackward, BatchNormForward, Checked, DotSoftmax, DotSoftmaxBackward,
        DropStored, EdgeSoftmax, EdgeSoftmaxBackward, EpilogueBackward, EpilogueForward, GatedSum,
        GatedSumBackward, Gather, GeluBackward, GeluForward, Gemm, HeadDot, HeadDotBackward, HeadGemm,
        HeadMean, HeadMeanBackward, Hop, HopTransposed, L2NormBackward, L2NormForward, LayerNormBackward,
        LayerNormForward, PairSoftmax, PairSoftmaxBackward, ReluSum, ReluSumBackward, ScaleHeads,
        ScaleHeadsBackward, SgdUpdate, SigmoidCrossEntropy, Skip, SkipBackward, SoftmaxCrossEntropy,
    },
};

use crate::{Buffer, Device, Queue, Result, driver::Arithmetic};
use work::Work;

mod aggregate;
mod attend_input;
mod attention;
mod columns;
mod dot_attention;
mod edge_rows;
mod edge_sum;
mod elements;
mod factors;
mod loss;
mod norm;
mod pair_attention;
mod product;
mod rows;
mod shape;
mod update;
mod work;

/// Operations on a device. The first error is sticky: later operations are no-ops, and
/// [`Backend::check`] returns it.
#[derive(Debug)]
pub struct Cuda {
    queue: Arc<Queue>,
    arithmetic: Arithmetic,
    /// Loss that has not been read yet.
    loss: Mutex<Option<Buffer<f64>>>,
    /// Table of late-bound values of replayable steps, which graphs read.
    late: Mutex<Option<Buffer>>,
    /// If true, replayable steps become graphs.
    graphs: bool,
}

impl Cuda {
    /// Creates a backend on this device's compute stream, with dense products in the given
    /// arithmetic.
    ///
    /// # Errors
    /// The driver fails.
    pub fn new(device: &Arc<Device>, arithmetic: Arithmetic) -> Result<Self> {
        Ok(Self::on(&Queue::compute(device)?, arithmetic))
    }

    /// Creates a backend on an existing queue.
    pub fn on(queue: &Arc<Queue>, arithmetic: Arithmetic) -> Self {
        let (loss, late) = Default::default();
        Self { queue: queue.clone(), arithmetic, loss, late, graphs: true }
    }

    /// Enables or disables graphs for replayable steps ([`crate::replay`]).
    #[must_use]
    pub fn with_graphs(self, graphs: bool) -> Self {
        Self { graphs, ..self }
    }

    /// Queue of the operations.
    pub fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// Runs an operation, or nothing if an earlier one failed.
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
    /// Runs a loss whose value is read later ([`Backend::resolve_loss`]).
    fn late(&self, operation: impl FnOnce(&Work) -> Result<Option<Buffer<f64>>>) -> f64 {
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
            let required = replay.required_table_bytes();
            if required > 0 {
                // the previous table is freed after the graphs that read it
                *late = Some(self.queue.scratch(required)?);
            }
            self.queue.sort_free_memory();
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
    fn gemm(&self, op: Checked<Gemm>) {
        self.attempt(|work| product::gemm(work, self.arithmetic, op.into_inner()));
    }

    fn head_gemm(&self, op: Checked<HeadGemm>) {
        self.attempt(|work| product::head_gemm(work, self.arithmetic, op.into_inner()));
    }
}

impl AggregationOps for Cuda {
    fn aggregate(&self, op: Checked<Aggregate>) {
        self.attempt(|work| aggregate::aggregate(work, op.into_inner()));
    }

    fn aggregate_transposed(&self, op: Checked<AggregateTransposed>) {
        self.attempt(|work| aggregate::aggregate_transposed(work, op.into_inner()));
    }

    fn hop(&self, op: Checked<Hop>) {
        self.attempt(|work| aggregate::hop(work, op.into_inner()));
    }

    fn hop_transposed(&self, op: Checked<HopTransposed>) {
        self.attempt(|work| aggregate::hop_transposed(work, op.into_inner()));
    }

    fn relu_sum(&self, op: Checked<ReluSum>) {
        self.attempt(|work| edge_sum::relu_sum(work, op.into_inner()));
    }

    fn relu_sum_backward(&self, op: Checked<ReluSumBackward>) {
        self.attempt(|work| edge_sum::relu_sum_backward(work, op.into_inner()));
    }

    fn gated_sum(&self, op: Checked<GatedSum>) {
        self.attempt(|work| edge_sum::gated_sum(work, op.into_inner()));
    }

    fn gated_sum_backward(&self, op: Checked<GatedSumBackward>) {
        self.attempt(|work| edge_sum::gated_sum_backward(work, op.into_inner()));
    }

    fn aggregate_max(&self, op: Checked<AggregateMax>) {
        self.attempt(|work| aggregate::aggregate_max(work, op.into_inner()));
    }

    fn aggregate_max_transposed(&self, op: Checked<AggregateMaxTransposed>) {
        self.attempt(|work| aggregate::aggregate_max_transposed(work, op.into_inner()));
    }
}

impl AttentionOps for Cuda {
    fn head_dot(&self, op: Checked<HeadDot>) {
        self.attempt(|work| attention::head_dot(work, op.into_inner()));
    }

    fn head_dot_backward(&self, op: Checked<HeadDotBackward>) {
        self.attempt(|work| attention::head_dot_backward(work, op.into_inner()));
    }

    fn edge_softmax(&self, op: Checked<EdgeSoftmax>) {
        self.attempt(|work| attention::edge_softmax(work, op.into_inner()));
    }

    fn edge_softmax_backward(&self, op: Checked<EdgeSoftmaxBackward>) {
        self.attempt(|work| attention::edge_softmax_backward(work, op.into_inner()));
    }

    fn attend(&self, op: Checked<Attend>) {
        self.attempt(|work| attention::attend(work, op.into_inner()));
    }

    fn attend_backward(&self, op: Checked<AttendBackward>) {
        self.attempt(|work| attention::attend_backward(work, op.into_inner()));
    }

    fn attend_input(&self, op: Checked<AttendInput>) {
        self.attempt(|work| attend_input::attend_input(work, op.into_inner()));
    }

    fn attend_input_backward(&self, op: Checked<AttendInputBackward>) {
        self.attempt(|work| attend_input::attend_input_backward(work, op.into_inner()));
    }

    fn attend_input_transposed(&self, op: Checked<AttendInputTransposed>) {
        self.attempt(|work| attend_input::attend_input_transposed(work, op.into_inner()));
    }

    fn dot_softmax(&self, op: Checked<DotSoftmax>) {
        self.attempt(|work| dot_attention::dot_softmax(work, op.into_inner()));
    }

    fn dot_softmax_backward(&self, op: Checked<DotSoftmaxBackward>) {
        self.attempt(|work| dot_attention::dot_softmax_backward(work, op.into_inner()));
    }

    fn pair_softmax(&self, op: Checked<PairSoftmax>) {
        self.attempt(|work| pair_attention::pair_softmax(work, op.into_inner()));
    }

    fn pair_softmax_backward(&self, op: Checked<PairSoftmaxBackward>) {
        self.attempt(|work| pair_attention::pair_softmax_backward(work, op.into_inner()));
    }

    fn head_mean(&self, op: Checked<HeadMean>) {
        self.attempt(|work| attention::head_mean(work, op.into_inner()));
    }

    fn head_mean_backward(&self, op: Checked<HeadMeanBackward>) {
        self.attempt(|work| attention::head_mean_backward(work, op.into_inner()));
    }
}

impl ElementOps for Cuda {
    fn gather(&self, op: Checked<Gather>) {
        self.attempt(|work| rows::gather(work, op.into_inner()));
    }

    fn add(&self, op: Checked<Add>) {
        self.attempt(|work| rows::add(work, op.into_inner()));
    }

    fn add_dot(&self, op: Checked<AddDot>) {
        self.attempt(|work| rows::add_dot(work, op.into_inner()));
    }

    fn add_times(&self, op: Checked<AddTimes>) {
        self.attempt(|work| factors::add_times(work, op.into_inner()));
    }

    fn scale_heads(&self, op: Checked<ScaleHeads>) {
        self.attempt(|work| factors::scale_heads(work, op.into_inner()));
    }

    fn scale_heads_backward(&self, op: Checked<ScaleHeadsBackward>) {
        self.attempt(|work| factors::scale_heads_backward(work, op.into_inner()));
    }

    fn skip(&self, op: Checked<Skip>) {
        self.attempt(|work| factors::skip(work, op.into_inner()));
    }

    fn skip_backward(&self, op: Checked<SkipBackward>) {
        self.attempt(|work| factors::skip_backward(work, op.into_inner()));
    }

    fn drop_stored(&self, op: Checked<DropStored>) {
        rows::drop_stored(op.into_inner());
    }

    fn epilogue(&self, op: Checked<EpilogueForward>) {
        self.attempt(|work| elements::epilogue(work, op.into_inner()));
    }

    fn epilogue_backward(&self, op: Checked<EpilogueBackward>) {
        self.attempt(|work| elements::epilogue_backward(work, op.into_inner()));
    }

    fn gelu(&self, op: Checked<GeluForward>) {
        self.attempt(|work| elements::gelu(work, op.into_inner()));
    }

    fn gelu_backward(&self, op: Checked<GeluBackward>) {
        self.attempt(|work| elements::gelu_backward(work, op.into_inner()));
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

    fn squares(&self, matrices: &mut Matrices) -> f64 {
        self.attempt(|work| rows::squares(work, matrices))
    }
}

impl NormOps for Cuda {
    fn batch_norm(&self, op: Checked<BatchNormForward>) {
        self.attempt(|work| norm::batch_norm(work, op.into_inner()));
    }

    fn batch_norm_apply(&self, op: Checked<BatchNormApply>) {
        self.attempt(|work| norm::batch_norm_apply(work, op.into_inner()));
    }

    fn batch_norm_backward(&self, op: Checked<BatchNormBackward>) {
        self.attempt(|work| norm::batch_norm_backward(work, op.into_inner()));
    }

    fn layer_norm(&self, op: Checked<LayerNormForward>) {
        self.attempt(|work| norm::layer_norm(work, op.into_inner()));
    }

    fn layer_norm_backward(&self, op: Checked<LayerNormBackward>) {
        self.attempt(|work| norm::layer_norm_backward(work, op.into_inner()));
    }

    fn l2_norm(&self, op: Checked<L2NormForward>) {
        self.attempt(|work| norm::l2_norm(work, op.into_inner()));
    }

    fn l2_norm_backward(&self, op: Checked<L2NormBackward>) {
        self.attempt(|work| norm::l2_norm_backward(work, op.into_inner()));
    }
}

impl LossOps for Cuda {
    fn softmax_cross_entropy(&self, op: Checked<SoftmaxCrossEntropy>) -> f64 {
        self.late(|work| loss::softmax_cross_entropy(work, op.into_inner()))
    }

    fn sigmoid_cross_entropy(&self, op: Checked<SigmoidCrossEntropy>) -> f64 {
        self.late(|work| loss::sigmoid_cross_entropy(work, op.into_inner()))
    }

    fn softmax(&self, x: ViewMut) {
        self.attempt(|work| loss::softmax(work, x));
    }

    fn sigmoid(&self, x: ViewMut) {
        self.attempt(|work| loss::sigmoid(work, x));
    }
}

impl UpdateOps for Cuda {
    fn adam(&self, op: Checked<AdamUpdate>) {
        self.attempt(|work| update::adam(work, op.into_inner()));
    }

    fn sgd(&self, op: Checked<SgdUpdate>) {
        self.attempt(|work| update::sgd(work, op.into_inner()));
    }
}
