// Attention whose scores read both ends of an edge at once, with rows of the entries (GATv2), and its
// gradients. The softmax of the scores is that of attention.cu. `edge` is null without such rows.
#include "edge_sum.cuh"

#define PAIR \
    EDGES, const float *left, const float *right, const float *edge, const float *vector, uint32_t heads, uint64_t width, float slope

// Sum of both ends and the entry in one column of all heads.
static __device__ inline float pair_at(const float* left, const float* right, const float* edge, uint64_t cols, Entry entry,
                                       uint64_t own, uint64_t c) {
    const float z = __ldg(left + entry.row * cols + c) + __ldg(right + own * cols + c);
    return edge != nullptr ? z + __ldg(edge + entry.at * cols + c) : z;
}

// score[entry, h] = vector[h] . leaky(pair[entry, h]) for v's entries from..to
static __device__ inline void pair_score(const Group& group, const Edges& edges, const Entries& run, uint64_t v, uint32_t h,
                                         uint32_t from, uint32_t to, const float* left, const float* right, const float* edge,
                                         const float* vector, uint32_t heads, uint64_t width, float slope, float* score) {
    const uint64_t cols = heads * width;
    const uint64_t own = edges.own_rows != nullptr ? __ldg(edges.own_rows + v) : v;
    for (uint32_t j = from; j < to; j++) {
        const Entry entry = entry_at(edges, run, v, j);
        float sum = 0.0f;
        for (uint64_t o = group.lane; o < width; o += group.lanes) {
            const uint64_t c = h * width + o;
            const float z = pair_at(left, right, edge, cols, entry, own, c);
            sum += __ldg(vector + c) * (z > 0.0f ? z : slope * z);
        }
        sum = group_sum(group, sum);
        if (group.lane == 0) {
            score[entry.at * heads + h] = sum;
        }
    }
}

extern "C" __global__ void pair_scores(PAIR, float* score, uint32_t lanes, uint64_t rows, uint32_t long_from) {
    const Edges edges = EDGES_OF;
    each_short(edges, rows, heads, long_from, lanes, [=](const Group& group, uint64_t v, uint32_t h) {
        const Entries run = entries_of(edges, v);
        pair_score(group, edges, run, v, h, 0, run.all, left, right, edge, vector, heads, width, slope, score);
    });
}
extern "C" __global__ void __launch_bounds__(LONG_THREADS) pair_scores_long(PAIR, float* score, uint32_t lanes, LISTED) {
    const Edges edges = EDGES_OF;
    each_long(long_count, long_rows, heads, nullptr, [=](const Whole&, uint64_t v, uint32_t h) {
        const Group group = group_of(lanes);
        const Entries run = entries_of(edges, v);
        const Share share = share_of_group(group, 0, run.all);
        pair_score(group, edges, run, v, h, share.from, share.to, left, right, edge, vector, heads, width, slope, score);
    });
}

// Gradients of each entry's pair, and of the vector by each entry, from those of the scores; those of
// a row's pairs are summed into right_grad. The block is local.
#define PAIR_BACK_PARAMETERS PAIR, const float *score_grad, float *pair_grad, float *vector_grad, float *right_grad, uint32_t lanes
#define PAIR_BACK_TERM \
    [=](Entry entry, uint64_t v, uint64_t c) { \
        const float z = pair_at(left, right, edge, cols, entry, v, c); \
        const float g = __ldg(score_grad + entry.at * heads + c / width) * (z > 0.0f ? 1.0f : slope); \
        const float of_pair = g * __ldg(vector + c); \
        pair_grad[entry.at * cols + c] = of_pair; \
        vector_grad[entry.at * cols + c] = g * z; \
        return of_pair; \
    }

extern "C" __global__ void pair_back(PAIR_BACK_PARAMETERS, uint64_t rows, uint32_t long_from) {
    const uint64_t cols = heads * width;
    SUM_ROWS(0, right_grad, PAIR_BACK_TERM);
}
extern "C" __global__ void __launch_bounds__(LONG_THREADS) pair_back_long(PAIR_BACK_PARAMETERS, LISTED) {
    const uint64_t cols = heads * width;
    SUM_ROWS_LONG(0, right_grad, PAIR_BACK_TERM);
}
