//! The `run` method of each operation, which calls the backend's method.

use super::{
    interface::Backend,
    ops::{
        AdamUpdate, Add, AddDot, AddTimes, Aggregate, AggregateMax, AggregateMaxTransposed,
        AggregateTransposed, Attend, AttendBackward, AttendInput, AttendInputBackward, AttendInputTransposed,
        BatchNormApply, BatchNormBackward, BatchNormForward, Checked, Dense, DotSoftmax, DotSoftmaxBackward,
        DropStored, EdgeAttention, EdgeAttentionBackward, EdgeSoftmax, EdgeSoftmaxBackward, EpilogueBackward,
        EpilogueForward, GatedSum, GatedSumBackward, Gather, GeluBackward, GeluForward, Gemm, HeadDot,
        HeadDotBackward, HeadGemm, HeadMean, HeadMeanBackward, Hop, HopTransposed, L2NormBackward,
        L2NormForward, LayerNormBackward, LayerNormForward, PairSoftmax, PairSoftmaxBackward,
        RelationAttention, RelationAttentionBackward, ReluSum, ReluSumBackward, ScaleHeads,
        ScaleHeadsBackward, SgdUpdate, SigmoidCrossEntropy, Skip, SkipBackward, SoftmaxCrossEntropy,
        WeightGradients,
    },
};

/// Generates `run` for each operation from the name of the backend's method.
macro_rules! operations {
    ($($name:ident: $method:ident $(-> $out:ty)?;)*) => {$(
        impl $name<'_> {
            /// Checks the shapes and runs the operation on a backend.
            ///
            /// # Panics
            /// The shapes are incompatible.
            pub fn run(self, backend: &dyn Backend) $(-> $out)? {
                backend.$method(Checked::new(self))
            }
        }
    )*};
}

operations! {
    Gemm: gemm;
    HeadGemm: head_gemm;
    WeightGradients: weight_gradients;
    Dense: dense;
    Aggregate: aggregate;
    AggregateTransposed: aggregate_transposed;
    Hop: hop;
    HopTransposed: hop_transposed;
    AggregateMax: aggregate_max;
    AggregateMaxTransposed: aggregate_max_transposed;
    HeadDot: head_dot;
    HeadDotBackward: head_dot_backward;
    EdgeSoftmax: edge_softmax;
    EdgeSoftmaxBackward: edge_softmax_backward;
    Attend: attend;
    AttendBackward: attend_backward;
    AttendInput: attend_input;
    AttendInputBackward: attend_input_backward;
    AttendInputTransposed: attend_input_transposed;
    DotSoftmax: dot_softmax;
    DotSoftmaxBackward: dot_softmax_backward;
    EdgeAttention: edge_attention;
    EdgeAttentionBackward: edge_attention_backward;
    RelationAttention: relation_attention;
    RelationAttentionBackward: relation_attention_backward;
    PairSoftmax: pair_softmax;
    PairSoftmaxBackward: pair_softmax_backward;
    ReluSum: relu_sum;
    ReluSumBackward: relu_sum_backward;
    GatedSum: gated_sum;
    GatedSumBackward: gated_sum_backward;
    GeluForward: gelu;
    GeluBackward: gelu_backward;
    HeadMean: head_mean;
    HeadMeanBackward: head_mean_backward;
    Gather: gather;
    Add: add;
    AddDot: add_dot;
    AddTimes: add_times;
    ScaleHeads: scale_heads;
    ScaleHeadsBackward: scale_heads_backward;
    Skip: skip;
    SkipBackward: skip_backward;
    DropStored: drop_stored;
    EpilogueForward: epilogue;
    EpilogueBackward: epilogue_backward;
    BatchNormForward: batch_norm;
    BatchNormApply: batch_norm_apply;
    BatchNormBackward: batch_norm_backward;
    LayerNormForward: layer_norm;
    LayerNormBackward: layer_norm_backward;
    L2NormForward: l2_norm;
    L2NormBackward: l2_norm_backward;
    SoftmaxCrossEntropy: softmax_cross_entropy -> f64;
    SigmoidCrossEntropy: sigmoid_cross_entropy -> f64;
    AdamUpdate: adam;
    SgdUpdate: sgd;
}
