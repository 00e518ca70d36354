//! All kernels, in the order of their files in `kernels/`. In brackets, the least number of values
//! behind a pointer, if it follows from other fields, and for a [`RowKernel`](super::RowKernel) from
//! the number of rows.

use super::{
    In, Late, Out, Table, Wide,
    declare::{groups, kernels, names},
};

groups! {
    /// Edges of rows, in a block or its transpose (`EDGES` of `kernels/attention.cuh`).
    Edges {
        indptr: In<u32>,
        indices: In<u32>,
        /// Entry of each edge, if it is not the edge's own position.
        entry: Option<In<u32>>,
        /// Own row of each row, if it is not the row itself.
        own_rows: Option<In<u32>>,
        num_edges: usize,
        num_own: usize,
    }

    /// Weighted sum of rows over edges, with their own rows (`Coefficients` and `Finish` of
    /// `kernels/aggregate.cu`).
    WeightedSum {
        /// Edge range of each row.
        indptr: In<u32>,
        /// Source row of each edge.
        indices: In<u32>,
        /// Position of each edge's weight, if it is not the edge's own position.
        position: Option<In<u32>>,
        of_edge: Option<In<f32>>,
        of_source: Option<In<f32>>,
        mean: bool,
        of_row: Option<In<f32>>,
        own_rows: Option<In<u32>>,
        num_own: usize,
        /// Weight of each own row; if `None`, all use the constant and the shared value.
        own_weight: Option<In<f32>>,
        own_constant: f32,
        own_shared: Option<In<f32>>,
    }

    /// Rows of a gated sum (`GATED` of `kernels/edge_sum.cu`).
    GatedRows {
        target: In<f32>,
        source: In<f32>,
        value: In<f32>,
        edge_gate: Option<In<f32>>,
        edge_value: Option<In<f32>>,
    }

    /// Rows and vector of scores of both ends of an edge (`PAIR` of `kernels/pair_attention.cu`).
    PairRows {
        left: In<f32>,
        right: In<f32>,
        edge: Option<In<f32>>,
        vector: In<f32>,
        heads: u32,
        width: usize,
        slope: f32,
    }

    /// Copy mode of rows: `group` lanes, `unit` bytes each (`kernels/stored.cuh`).
    Copying {
        row_bytes: usize,
        unit: u32,
        group: u32,
        /// Number of the value type.
        kind: u32,
    }

    /// Parts of a graph (`kernels/topology.cuh`).
    GraphParts {
        /// Three addresses of each part.
        shards: In<u64>,
        parts: u32,
    }

    /// Destination of drawn sources (`TABLE` of `kernels/table.cuh`).
    Slots {
        /// Hash table; if `None`, sources remain global ids.
        entries: Option<Out<u64>>,
        /// Number of slots minus one.
        mask: u32,
        /// True if ids are slots.
        dense: bool,
    }
}

impl Edges {
    /// Number of entries: one for each edge, and one for each own row.
    fn entries(self) -> usize {
        self.num_edges + self.num_own
    }

    /// Number of values if each entry has one for each head.
    fn values(self, heads: u32) -> usize {
        self.entries() * heads as usize
    }
}

impl PairRows {
    /// Number of columns of the rows.
    fn cols(self) -> usize {
        self.heads as usize * self.width
    }
}

/// Number of row starts.
fn starts(rows: usize) -> usize {
    if rows == 0 { 0 } else { rows + 1 }
}

kernels! {
    RowKernel Aggregate(rows) = aggregate {
        sum: WeightedSum, src: Table, cols: usize, first: usize, beta: f32, dst: Out<f32> [rows * cols],
        lanes: u32, wide: Wide,
    }
    Kernel AggregateScales = aggregate_scales {
        indptr: In<u32> [starts(rows)], weight: Option<In<f32>>, rows: usize, lanes: u32,
        scales: Out<f32> [rows],
    }
    Kernel AggregateKeep = aggregate_keep {
        own_rows: Option<In<u32>>, num_own: usize, src: In<f32>, cols: usize, first: usize,
        dst: Out<f32> [rows * cols], rows: usize,
    }
    RowKernel AggregateMax(rows) = aggregate_max {
        indptr: In<u32>, indices: In<u32>, src: In<f32>, cols: usize, dst: Out<f32> [rows * cols],
        arg: Out<u32> [rows * cols], lanes: u32, wide: Wide,
    }
    RowKernel AggregateMaxBack(rows) = aggregate_max_back {
        indptr: In<u32>, dst: In<u32>, edge: In<u32>, arg: In<u32>, grad: In<f32>, cols: usize,
        out: Out<f32> [rows * cols], lanes: u32,
    }

    Kernel InputScores = input_scores {
        edges: Edges, x: Table, cols: usize, source: In<f32> [cols * heads as usize],
        target: In<f32> [cols * heads as usize], heads: u32, rows: usize,
        score: Out<f32> [edges.values(heads)],
    }
    Kernel InputDots = input_dots {
        edges: Edges, x: Table, cols: usize, grad: In<f32> [rows * heads as usize * cols], heads: u32,
        rows: usize, out: Out<f32> [edges.values(heads)],
    }
    RowKernel InputRows(rows) = input_rows {
        edges: Edges, x: Table, cols: usize, used: In<f32> [edges.values(heads)], heads: u32,
        out: Out<f32> [rows * heads as usize * cols], lanes: u32, wide: Wide,
    }
    Kernel InputWeightSums = input_weight_sums {
        edges: Edges, x: Table, cols: usize, score_grad: In<f32> [edges.values(heads)], heads: u32,
        rows: usize, partial: Out<f64>,
    }
    RowKernel InputBack(rows) = input_back {
        edges: Edges, used: In<f32> [edges.values(heads)], heads: u32, grad: In<f32>, cols: usize,
        by_source: In<f32> [rows * heads as usize], source: In<f32> [cols * heads as usize],
        by_target: In<f32> [edges.num_own * heads as usize], target: In<f32> [cols * heads as usize],
        x_grad: Out<f32> [rows * cols], lanes: u32,
    }

    Kernel HeadDot = head_dot {
        z: In<f32> [rows * heads as usize * width], rows: usize, heads: u32, width: usize,
        a: In<f32> [heads as usize * width], out: Out<f32> [rows * heads as usize], lanes: u32,
    }
    Kernel HeadDotBack = head_dot_back {
        grad: In<f32> [rows * heads as usize], rows: usize, heads: u32, width: usize,
        a: In<f32> [heads as usize * width], z_grad: Out<f32> [rows * heads as usize * width], lanes: u32,
    }
    Kernel HeadDotSums = head_dot_sums {
        grad: In<f32> [rows * heads as usize], z: In<f32> [rows * heads as usize * width], rows: usize,
        heads: u32, width: usize, partial: Out<f64>,
    }
    Kernel HeadMean = head_mean {
        x: In<f32> [rows * heads as usize * width], rows: usize, heads: u32, width: usize,
        out: Out<f32> [rows * width], lanes: u32,
    }
    Kernel HeadMeanBack = head_mean_back {
        grad: In<f32> [rows * width], rows: usize, heads: u32, width: usize,
        x_grad: Out<f32> [rows * heads as usize * width], lanes: u32,
    }
    RowKernel EdgeSoftmax = edge_softmax {
        edges: Edges, source: In<f32>, target: In<f32>, heads: u32, slope: f32,
        alpha: Out<f32> [edges.values(heads)], lanes: u32,
    }
    RowKernel ScoreSoftmax = score_softmax {
        edges: Edges, score: In<f32> [edges.values(heads)], heads: u32, slope: f32,
        alpha: Out<f32> [edges.values(heads)], used: Option<Out<f32>> [edges.values(heads)], key: Late<u64>,
        threshold: u32, scale: f32, lanes: u32,
    }
    RowKernel EdgeSoftmaxBack(rows) = edge_softmax_back {
        edges: Edges, source: In<f32>, target: In<f32>, heads: u32, slope: f32,
        alpha: In<f32> [edges.values(heads)], alpha_grad: In<f32> [edges.values(heads)],
        out: Out<f32> [edges.values(heads)], sums: Out<f32> [rows * heads as usize], lanes: u32,
    }
    RowKernel ScoreSoftmaxBack = score_softmax_back {
        edges: Edges, score: In<f32> [edges.values(heads)], heads: u32, slope: f32,
        alpha: In<f32> [edges.values(heads)], used: In<f32> [edges.values(heads)],
        grad: Out<f32> [edges.values(heads)], lanes: u32,
    }
    RowKernel SumEntries(rows) = sum_entries {
        edges: Edges, values: In<f32> [edges.values(heads)], heads: u32,
        out: Out<f32> [rows * heads as usize], lanes: u32,
    }
    RowKernel AttendRows(rows) = attend_rows {
        edges: Edges, alpha: In<f32> [edges.values(heads)], heads: u32, width: usize, x: In<f32>,
        out: Out<f32> [rows * heads as usize * width], lanes: u32, wide: Wide,
    }
    RowKernel AttendDots(rows) = attend_dots {
        edges: Edges, grad: In<f32> [rows * heads as usize * width], heads: u32, width: usize, z: In<f32>,
        out: Out<f32> [edges.values(heads)], lanes: u32, wide: Wide,
    }

    Kernel CacheLookUp = cache_look_up {
        ids: In<u32> [count], count: usize, slot_of: Out<u32>, used: Option<Out<u32>>,
        found: Out<u32> [count],
    }
    Kernel CacheFirst = cache_first {
        ids: In<u32> [count], count: usize, slot_of: In<u32>, found: In<u32> [count], first: Out<u32> [count],
        hits: Out<u64>,
    }
    Kernel CacheUnused = cache_unused {
        used: In<u32> [slots], slots: usize, hand: In<u32>, free: Out<u32> [slots],
    }
    Kernel CacheVictims = cache_victims {
        used: Out<u32> [slots], slots: usize, before: In<u32> [slots + 1], missing: In<u32> [1],
        hand: Out<u32> [2], victims: Out<u32> [slots],
    }
    Kernel CacheAdmit = cache_admit {
        ids: In<u32> [count], count: usize, before: In<u32> [count + 1], slots: usize, round: bool,
        victims: Option<In<u32>> [slots], slot_of: Out<u32>, holder: Out<u32> [slots], hand: Out<u32> [2],
        to: Out<u32> [count],
    }
    Kernel CacheHits = cache_hits {
        found: In<u32> [count], count: usize, rows: In<u8>, copying: Copying, dim: usize,
        out: Out<f32> [count * dim],
    }
    Kernel CacheMisses = cache_misses {
        ids: In<u32> [count], found: In<u32> [count], to: In<u32> [count], count: usize, host: In<u8>,
        rows: Out<u8>, copying: Copying, dim: usize, out: Out<f32> [count * dim], hand: Out<u32> [2],
    }

    RowKernel SumEdgeRows(rows) = sum_edge_rows {
        edges: Edges, values: In<f32> [edges.entries() * cols], onto: bool, out: Out<f32> [rows * cols],
        cols: usize, lanes: u32,
    }
    RowKernel ReluSum(rows) = relu_sum {
        edges: Edges, x: In<f32>, edge: In<f32> [edges.entries() * cols], out: Out<f32> [rows * cols],
        cols: usize, lanes: u32,
    }
    RowKernel ReluSumBack(rows) = relu_sum_back {
        edges: Edges, x: In<f32>, edge: In<f32> [edges.entries() * cols], grad: In<f32> [rows * cols],
        edge_grad: Out<f32> [edges.entries() * cols], cols: usize, lanes: u32,
    }
    RowKernel GatedSum(rows) = gated_sum {
        edges: Edges, of: GatedRows, out: Out<f32> [rows * cols], cols: usize, lanes: u32,
    }
    RowKernel GatedSumBack(rows) = gated_sum_back {
        edges: Edges, of: GatedRows, grad: In<f32> [rows * cols],
        gate_grad: Out<f32> [edges.entries() * cols], value_grad: Out<f32> [edges.entries() * cols],
        target_grad: Out<f32> [rows * cols], cols: usize, lanes: u32,
    }

    Kernel EpilogueForward = epilogue_forward {
        x: Out<f32> [rows * cols], rows: usize, cols: usize, bias: Option<In<f32>> [cols], activation: u32,
        key: Late<u64>, threshold: u32, scale: f32, lanes: u32, wide: Wide,
    }
    Kernel EpilogueBackward = epilogue_backward {
        y: In<f32> [rows * cols], grad: Out<f32> [rows * cols], rows: usize, cols: usize, activation: u32,
        key: Late<u64>, threshold: u32, scale: f32, lanes: u32, wide: Wide,
    }
    Kernel EpilogueBackwardSums = epilogue_backward_sums {
        y: In<f32> [rows * cols], grad: Out<f32> [rows * cols], rows: usize, cols: usize, activation: u32,
        key: Late<u64>, threshold: u32, scale: f32, partial: Out<f64>,
    }
    Kernel GeluForward = gelu_forward { x: In<f32> [count], count: usize, out: Out<f32> [count] }
    Kernel GeluBackward = gelu_backward { x: In<f32> [count], count: usize, grad: Out<f32> [count] }
    Kernel ColumnsValues = columns_values {
        x: In<f32> [rows * cols], rows: usize, cols: usize, partial: Out<f64>,
    }
    Kernel ColumnsTotal = columns_total {
        partial: In<f64> [runs * width], runs: usize, width: usize, cols: usize, count: usize, keeps: bool,
        out: Out<f32> [cols], rest: Out<f32> [width - cols],
    }

    Kernel AddTimes = add_times {
        factor: In<f32> [1], plus: f32, x: In<f32> [count], y: Out<f32> [count], count: usize,
    }
    Kernel ScaleHeads = scale_heads {
        factors: In<f32>, x: In<f32> [count], count: usize, cols: usize, width: usize, onto: bool,
        out: Out<f32> [count],
    }
    Kernel AddHeadDots = add_head_dots {
        x: In<f32> [rows * cols], y: In<f32> [rows * cols], rows: usize, cols: usize, width: usize,
        out: Out<f32>,
    }
    Kernel SkipForward = skip_forward {
        skip: In<f32> [1], x: In<f32> [count], count: usize, y: Out<f32> [count],
    }
    Kernel SkipBackward = skip_backward {
        skip: In<f32> [1], count: usize, grad: Out<f32> [count], x_grad: Out<f32> [count],
    }
    Kernel AddSkipGrad = add_skip_grad {
        skip: In<f32> [1], with: In<f64> [count], without: In<f64> [count], count: usize, out: Out<f32> [1],
    }

    Kernel ListLongRows = list_long_rows {
        indptr: In<u32> [starts(rows)], rows: usize, from: u32, count: Out<u32> [1], list: Out<u32>,
    }

    Kernel SoftmaxLoss = softmax_loss {
        logits: In<f32> [rows * cols], rows: usize, cols: usize, label: In<i32> [rows],
        weight: Option<In<f32>> [rows], scale: f32, grad: Out<f32> [rows * cols], losses: Out<f64>,
    }
    Kernel SigmoidLoss = sigmoid_loss {
        logits: In<f32> [rows * cols], rows: usize, cols: usize, target: In<u8> [rows * cols],
        weight: Option<In<f32>> [rows], scale: f32, grad: Out<f32> [rows * cols], losses: Out<f64>,
    }
    Kernel SoftmaxRows = softmax_rows { x: Out<f32> [rows * cols], rows: usize, cols: usize }
    Kernel SigmoidValues = sigmoid_values { x: Out<f32> [count], count: usize }

    Kernel ColumnsSquares = columns_squares {
        x: In<f32> [rows * cols], rows: usize, cols: usize, mean: In<f32> [cols], partial: Out<f64>,
    }
    Kernel BatchNormSums = batch_norm_sums {
        x: In<f32> [rows * cols], grad: In<f32> [rows * cols], rows: usize, cols: usize,
        stats: In<f32> [2 * cols], eps: f32, partial: Out<f64>,
    }
    Kernel BatchNormApply = batch_norm_apply {
        x: In<f32> [rows * cols], rows: usize, cols: usize, gamma: In<f32> [cols], beta: In<f32> [cols],
        eps: f32, stats: In<f32> [2 * cols], out: Out<f32> [rows * cols], lanes: u32,
    }
    Kernel BatchNormBack = batch_norm_back {
        x: In<f32> [rows * cols], rows: usize, cols: usize, gamma: In<f32> [cols], eps: f32,
        stats: In<f32> [2 * cols], sums: In<f32> [2 * cols], grad: Out<f32> [rows * cols], lanes: u32,
    }
    Kernel LayerNormForward = layer_norm_forward {
        x: In<f32> [rows * cols], rows: usize, cols: usize, gamma: In<f32> [cols], beta: In<f32> [cols],
        eps: f32, stats: Out<f32> [2 * rows], out: Out<f32> [rows * cols],
    }
    Kernel LayerNormSums = layer_norm_sums {
        x: In<f32> [rows * cols], grad: In<f32> [rows * cols], rows: usize, cols: usize,
        stats: In<f32> [2 * rows], eps: f32, partial: Out<f64>,
    }
    Kernel LayerNormBack = layer_norm_back {
        x: In<f32> [rows * cols], rows: usize, cols: usize, gamma: In<f32> [cols], eps: f32,
        stats: In<f32> [2 * rows], grad: Out<f32> [rows * cols],
    }
    Kernel L2NormForward = l2_norm_forward {
        x: In<f32> [rows * cols], rows: usize, cols: usize, norms: Out<f32> [rows],
        out: Out<f32> [rows * cols],
    }
    Kernel L2NormBack = l2_norm_back {
        y: In<f32> [rows * cols], rows: usize, cols: usize, norms: In<f32> [rows],
        grad: Out<f32> [rows * cols],
    }

    Kernel AdamUpdate = adam_update {
        grad: In<f32> [count], m: Out<f32> [count], v: Out<f32> [count], value: Out<f32> [count],
        count: usize, lr: Late<f32>, beta1: f32, beta2: f32, eps: f32, decay: f32, decoupled: bool,
        correction1: Late<f32>, correction2: Late<f32>,
    }
    Kernel SgdUpdate = sgd_update {
        grad: In<f32> [count], velocity: Out<f32> [count], value: Out<f32> [count], count: usize,
        lr: Late<f32>, momentum: f32, nesterov: bool, decay: f32,
    }

    RowKernel PairScores = pair_scores {
        edges: Edges, of: PairRows, score: Out<f32> [edges.values(of.heads)], lanes: u32,
    }
    RowKernel PairBack(rows) = pair_back {
        edges: Edges, of: PairRows, score_grad: In<f32> [edges.values(of.heads)],
        pair_grad: Out<f32> [edges.entries() * of.cols()],
        vector_grad: Out<f32> [edges.entries() * of.cols()], right_grad: Out<f32> [rows * of.cols()],
        lanes: u32,
    }

    Kernel ProductTiles = product_tiles {
        m: usize, n: usize, k: usize, a: In<f32>, lda: usize, transpose_a: bool, stride_a: usize, b: In<f32>,
        ldb: usize, transpose_b: bool, stride_b: usize, beta: f32, c: Out<f32>, ldc: usize, stride_c: usize,
        splits: u32, partial: Option<Out<f32>>,
    }
    Kernel ProductSum = product_sum {
        m: usize, n: usize, batch: u32, splits: u32,
        partial: In<f32> [splits as usize * batch as usize * m * n], beta: f32, c: Out<f32>, ldc: usize,
        stride_c: usize,
    }

    Kernel RelabelNodes = relabel_nodes { slots: Slots, nodes: In<u32>, count: usize }
    Kernel RelabelNumber = relabel_number {
        entries: Out<u64>, indices: Out<u32>, nodes: Out<u32>, sizes: Out<u64> [3], counters: Out<u64>,
    }

    Kernel Gather = gather {
        src: Table, cols: usize, ids: In<u32> [rows], rows: usize, dst: Out<f32> [rows * cols], lanes: u32,
        wide: Wide,
    }
    Kernel ScaleValues = scale_values { alpha: Late<f32>, x: Out<f32> [count], count: usize, wide: bool }
    Kernel AddValues = add_values {
        alpha: f32, x: In<f32> [count], y: Out<f32> [count], count: usize, wide: bool,
    }
    Kernel DotValues = dot_values { x: In<f32> [count], y: In<f32> [count], count: usize, sums: Out<f64> }
    Kernel TotalOf = total_of {
        values: In<f64> [count], count: usize, factor: f32, onto: bool, total: Out<f64> [1],
    }
    Kernel AddTotal = add_total { values: In<f64> [count], count: usize, out: Out<f32> [1] }
    Kernel AddSparse = add_sparse {
        indptr: In<u64> [rows + 1], columns: In<u32>, values: In<f32>, alpha: f32, rows: usize, cols: usize,
        dst: Out<f32> [rows * cols],
    }

    Kernel SampleCopy = sample_copy {
        graph: GraphParts, nodes: In<u32>, sizes: In<u64>, indptr: In<u32>, slots: Slots, out: Out<u32>,
    }
    Kernel SampleFew = sample_few {
        graph: GraphParts, nodes: In<u32>, sizes: In<u64>, indptr: In<u32>, fanout: u32, group: u32, key: u64,
        slots: Slots, out: Out<u32>,
    }
    Kernel SampleMany = sample_many {
        graph: GraphParts, nodes: In<u32>, sizes: In<u64>, indptr: In<u32>, fanout: u32, key: u64,
        tables: Out<u32>, slots: u32, of_batch: Slots, out: Out<u32>,
    }
    Kernel SampleAgain = sample_again {
        graph: GraphParts, nodes: In<u32>, sizes: In<u64>, indptr: In<u32>, fanout: u32, mode: u32, key: u64,
        slots: Slots, out: Out<u32>,
    }
    Kernel SampleWeights = sample_weights {
        graph: GraphParts, nodes: In<u32>, sizes: In<u64>, indptr: In<u32>, slots: Slots, indices: In<u32>,
        inv_sqrt: In<f32>, degrees: Option<In<u32>>, known: bool, own_weights: Out<f32>, weights: Out<f32>,
    }
    Kernel SampleSizes = sample_sizes {
        sizes: In<u64> [count], count: usize, last: usize, nodes: In<u32>, sizes_to: Out<u64>,
        nodes_to: Out<u32>,
    }

    Kernel ScanSums = scan_sums { values: In<u32> [count], count: usize, tiles: Out<u64> }
    Kernel ScanTiles = scan_tiles { tiles: Out<u64> [count], count: usize, total: Out<u64> [1] }
    Kernel ScanValues = scan_values {
        values: Out<u32> [count + 1], count: usize, tiles: In<u64>, total: In<u64> [1],
    }

    Kernel SampleStarts = sample_starts {
        graph: GraphParts, nodes: In<u32>, fanout: u32, mode: u32, counted: bool, indptr: Out<u32>,
        sizes: Out<u64> [2], counters: Out<u64>,
    }

    Kernel TierLoad = tier_load {
        ids: In<u32> [count], count: usize, host: In<u8>, row_bytes: usize, unit: u32, group: u32,
        rows: Out<u8> [count * row_bytes],
    }
    Kernel TierGather = tier_gather {
        ids: In<u32> [count], count: usize, places: Option<In<u32>>, boundary: u32, replicated: u32,
        shared: bool, shards: In<u64> [devices as usize], devices: u32, own: u32, host: In<u8>,
        copying: Copying, dim: usize, out: Out<f32> [count * dim], found: Out<u64> [3],
    }

    Kernel TransposeCount = transpose_count { keys: In<u32>, sizes: In<u64>, passes: u32, counts: Out<u64> }
    Kernel TransposePlace = transpose_place {
        keys: In<u32>, values: Option<In<u32>>, sizes: In<u64>, shift: u32, counts: In<u64>,
        counters: Out<u64>, keys_to: Out<u32>, values_to: Out<u32>, indptr: In<u32>, dst: Option<Out<u32>>,
    }
    Kernel TransposeStarts = transpose_starts { keys: In<u32>, sizes: In<u64>, starts: Out<u32> }

    Kernel WalkDraw = walk_draw {
        graph: GraphParts, nodes: In<u32>, sizes: In<u64>, walks: u32, length: u32, restart: u64, key: u64,
        width: u32, nodes_to: Out<u32>, visits_to: Out<u32>, counts: Out<u32>,
    }
    Kernel WalkEdges = walk_edges {
        graph: GraphParts, nodes: In<u32>, sizes: In<u64>, indptr: In<u32>, width: u32, nodes_from: In<u32>,
        visits_from: In<u32>, makes: u32, slots: Slots, indices: Out<u32>, weights: Out<f32>,
    }
}
