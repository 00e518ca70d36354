// Attention over a block (GAT): logits by heads, softmax over edges, weighted sums, and their
// gradients. See attention.cuh for entries.
#include "attention.cuh"

// ---------------------------------------------------------------- dots of heads

// out[r, h] = the dot of head h of z's row r with that of a
extern "C" __global__ void head_dot(const float* z, uint64_t rows, uint32_t heads, uint64_t width, const float* a, float* out,
                                    uint32_t lanes) {
    const Group group = group_of(lanes);
    for (uint64_t item = group.index; item < rows * heads; item += group.count) {
        const uint64_t h = item % heads;
        float sum = 0.0f;
        for (uint64_t o = group.lane; o < width; o += lanes) {
            sum += __ldg(z + item * width + o) * __ldg(a + h * width + o);
        }
        sum = group_sum(group, sum);
        if (group.lane == 0) {
            out[item] = sum;
        }
    }
}

// z_grad[r, c] += grad[r, head of c] a[c]
extern "C" __global__ void head_dot_back(const float* grad, uint64_t rows, uint32_t heads, uint64_t width, const float* a,
                                         float* z_grad, uint32_t lanes) {
    const Group group = group_of(lanes);
    for (uint64_t item = group.index; item < rows * heads; item += group.count) {
        const uint64_t h = item % heads;
        const float g = __ldg(grad + item);
        for (uint64_t o = group.lane; o < width; o += lanes) {
            z_grad[item * width + o] += g * __ldg(a + h * width + o);
        }
    }
}

// First stage of the column sums of grad[r, head of c] z[r, c].
extern "C" __global__ void head_dot_sums(const float* grad, const float* z, uint64_t rows, uint32_t heads, uint64_t width,
                                         double* partial) {
    const uint64_t cols = heads * width;
    sum_columns<1>(rows, cols, partial, [=](uint64_t r, uint64_t c, double* sums) {
        sums[0] += (double)__ldg(grad + r * heads + c / width) * (double)__ldg(z + r * cols + c);
    });
}

// out[r, o] = the mean over heads of x[r, h width + o]
extern "C" __global__ void head_mean(const float* x, uint64_t rows, uint32_t heads, uint64_t width, float* out, uint32_t lanes) {
    const Group group = group_of(lanes);
    for (uint64_t r = group.index; r < rows; r += group.count) {
        for (uint64_t o = group.lane; o < width; o += lanes) {
            float sum = 0.0f;
            for (uint32_t h = 0; h < heads; h++) {
                sum += __ldg(x + (r * heads + h) * width + o);
            }
            out[r * width + o] = sum / (float)heads;
        }
    }
}

// x_grad[r, h width + o] = grad[r, o] / heads
extern "C" __global__ void head_mean_back(const float* grad, uint64_t rows, uint32_t heads, uint64_t width, float* x_grad,
                                          uint32_t lanes) {
    const Group group = group_of(lanes);
    for (uint64_t r = group.index; r < rows; r += group.count) {
        for (uint64_t o = group.lane; o < width; o += lanes) {
            const float g = __ldg(grad + r * width + o) / (float)heads;
            for (uint32_t h = 0; h < heads; h++) {
                x_grad[(r * heads + h) * width + o] = g;
            }
        }
    }
}

// ---------------------------------------------------------------- softmax over entries

// Softmax over one row's entries of leaky(logit(entry, v, h)) for one head; each lane of the team
// processes its own entries.
template <typename Team, typename Logit>
static __device__ inline void softmax_row(const Team& team, const Edges& edges, uint64_t v, uint32_t h, uint32_t heads, float slope,
                                          float* alpha, float* used, const Mask& mask, Logit logit) {
    const Entries run = entries_of(edges, v);
    float largest = __uint_as_float(0xff800000u);
    for (uint32_t j = team.lane; j < run.all; j += team.lanes) {
        const Entry entry = entry_at(edges, run, v, j);
        const float x = logit(entry, v, h);
        const float leaky = x > 0.0f ? x : slope * x;
        alpha[entry.at * heads + h] = leaky;
        largest = fmaxf(largest, leaky);
    }
    largest = team_max(team, largest);
    float sum = 0.0f;
    for (uint32_t j = team.lane; j < run.all; j += team.lanes) {
        float* at = alpha + entry_at(edges, run, v, j).at * heads + h;
        const float e = expf(*at - largest);
        *at = e;
        sum += e;
    }
    const float inverse = 1.0f / team_sum(team, sum);
    for (uint32_t j = team.lane; j < run.all; j += team.lanes) {
        const uint64_t row = entry_at(edges, run, v, j).at;
        const float p = alpha[row * heads + h] * inverse;
        alpha[row * heads + h] = p;
        if (mask.threshold != 0) {
            const bool dropped = mask_hash(row_key(mask.key, row), h) < mask.threshold;
            used[row * heads + h] = dropped ? 0.0f : p * mask.scale;
        }
    }
}

#define SOFTMAX_PARAMETERS \
    EDGES, const float *source, const float *target, uint32_t heads, float slope, float *alpha, uint32_t lanes
#define SOFTMAX_ROW(team, v, h) \
    softmax_row(team, edges, v, h, heads, slope, alpha, nullptr, Mask{0, 0, 1.0f}, [=](Entry entry, uint64_t v, uint32_t h) { \
        const uint64_t own = own_rows != nullptr ? __ldg(own_rows + v) : v; \
        return __ldg(source + entry.row * heads + h) + __ldg(target + own * heads + h); \
    })

extern "C" __global__ void edge_softmax(SOFTMAX_PARAMETERS, uint64_t rows, uint32_t long_from) {
    const Edges edges = EDGES_OF;
    each_short(edges, rows, heads, long_from, lanes, [=](const Group& group, uint64_t v, uint32_t h) { SOFTMAX_ROW(group, v, h); });
}
extern "C" __global__ void __launch_bounds__(LONG_THREADS) edge_softmax_long(SOFTMAX_PARAMETERS, LISTED) {
    __shared__ float room[LONG_THREADS / 32];
    const Edges edges = EDGES_OF;
    each_long(long_count, long_rows, heads, room, [=](const Whole& block, uint64_t v, uint32_t h) { SOFTMAX_ROW(block, v, h); });
}

#define SCORES_PARAMETERS \
    EDGES, const float *score, uint32_t heads, float slope, float *alpha, float *used, uint64_t key, uint32_t threshold, float scale, uint32_t lanes
#define SCORES_ROW(team, v, h) \
    softmax_row(team, edges, v, h, heads, slope, alpha, used, Mask{key, threshold, scale}, \
                [=](Entry entry, uint64_t, uint32_t h) { return __ldg(score + entry.at * heads + h); })

extern "C" __global__ void score_softmax(SCORES_PARAMETERS, uint64_t rows, uint32_t long_from, const uint64_t* late) {
    const Edges edges = EDGES_OF;
    key = late_word(late, 0, key);
    each_short(edges, rows, heads, long_from, lanes, [=](const Group& group, uint64_t v, uint32_t h) { SCORES_ROW(group, v, h); });
}
extern "C" __global__ void __launch_bounds__(LONG_THREADS) score_softmax_long(SCORES_PARAMETERS, LISTED, const uint64_t* late) {
    __shared__ float room[LONG_THREADS / 32];
    const Edges edges = EDGES_OF;
    key = late_word(late, 0, key);
    each_long(long_count, long_rows, heads, room, [=](const Whole& block, uint64_t v, uint32_t h) { SCORES_ROW(block, v, h); });
}

// Gradient of one row's leaky logits for one head, from that of the softmax: `used` is the softmax
// after dropout, and `used_grad` its gradient, which the result may overwrite. Its sum over the
// entries goes to `sums`, if that is not null.
template <typename Team, typename Positive>
static __device__ inline void softmax_back_row(const Team& team, const Edges& edges, uint64_t v, uint32_t h, uint32_t heads,
                                               float slope, const float* alpha, const float* used, const float* used_grad,
                                               float* out, float* sums, Positive positive) {
    const Entries run = entries_of(edges, v);
    float mean = 0.0f;
    for (uint32_t j = team.lane; j < run.all; j += team.lanes) {
        const uint64_t at = entry_at(edges, run, v, j).at * heads + h;
        mean += __ldg(used + at) * used_grad[at];
    }
    mean = team_sum(team, mean);
    float sum = 0.0f;
    for (uint32_t j = team.lane; j < run.all; j += team.lanes) {
        const Entry entry = entry_at(edges, run, v, j);
        const uint64_t at = entry.at * heads + h;
        float g = __ldg(used + at) * used_grad[at] - __ldg(alpha + at) * mean;
        g = positive(entry, v, h) ? g : slope * g;
        out[at] = g;
        sum += g;
    }
    if (sums != nullptr) {
        sum = team_sum(team, sum);
        if (team.lane == 0) {
            sums[v * heads + h] = sum;
        }
    }
}

#define SOFTMAX_BACK_PARAMETERS \
    EDGES, const float *source, const float *target, uint32_t heads, float slope, const float *alpha, const float *alpha_grad, \
        float *out, float *sums, uint32_t lanes
#define SOFTMAX_BACK_ROW(team, v, h) \
    softmax_back_row(team, edges, v, h, heads, slope, alpha, alpha, alpha_grad, out, sums, \
                     [=](Entry entry, uint64_t v, uint32_t h) { \
                         return __ldg(source + entry.row * heads + h) + __ldg(target + v * heads + h) > 0.0f; \
                     })

extern "C" __global__ void edge_softmax_back(SOFTMAX_BACK_PARAMETERS, uint64_t rows, uint32_t long_from) {
    const Edges edges = EDGES_OF;
    each_short(edges, rows, heads, long_from, lanes,
               [=](const Group& group, uint64_t v, uint32_t h) { SOFTMAX_BACK_ROW(group, v, h); });
}
extern "C" __global__ void __launch_bounds__(LONG_THREADS) edge_softmax_back_long(SOFTMAX_BACK_PARAMETERS, LISTED) {
    __shared__ float room[LONG_THREADS / 32];
    const Edges edges = EDGES_OF;
    each_long(long_count, long_rows, heads, room,
              [=](const Whole& block, uint64_t v, uint32_t h) { SOFTMAX_BACK_ROW(block, v, h); });
}

#define SCORES_BACK_PARAMETERS \
    EDGES, const float *score, uint32_t heads, float slope, const float *alpha, const float *used, float *grad, uint32_t lanes
#define SCORES_BACK_ROW(team, v, h) \
    softmax_back_row(team, edges, v, h, heads, slope, alpha, used, grad, grad, nullptr, \
                     [=](Entry entry, uint64_t, uint32_t h) { return __ldg(score + entry.at * heads + h) > 0.0f; })

extern "C" __global__ void score_softmax_back(SCORES_BACK_PARAMETERS, uint64_t rows, uint32_t long_from) {
    const Edges edges = EDGES_OF;
    each_short(edges, rows, heads, long_from, lanes,
               [=](const Group& group, uint64_t v, uint32_t h) { SCORES_BACK_ROW(group, v, h); });
}
extern "C" __global__ void __launch_bounds__(LONG_THREADS) score_softmax_back_long(SCORES_BACK_PARAMETERS, LISTED) {
    __shared__ float room[LONG_THREADS / 32];
    const Edges edges = EDGES_OF;
    each_long(long_count, long_rows, heads, room,
              [=](const Whole& block, uint64_t v, uint32_t h) { SCORES_BACK_ROW(block, v, h); });
}

// out[v, h] = the sum over v's entries of values[entry, h]
template <typename Team>
static __device__ inline void sum_row(const Team& team, const Edges& edges, uint64_t v, uint32_t h, uint32_t heads,
                                      const float* values, float* out) {
    const Entries run = entries_of(edges, v);
    float sum = 0.0f;
    for (uint32_t j = team.lane; j < run.all; j += team.lanes) {
        sum += __ldg(values + entry_at(edges, run, v, j).at * heads + h);
    }
    sum = team_sum(team, sum);
    if (team.lane == 0) {
        out[v * heads + h] = sum;
    }
}

#define SUM_PARAMETERS EDGES, const float *values, uint32_t heads, float *out, uint32_t lanes

extern "C" __global__ void sum_entries(SUM_PARAMETERS, uint64_t rows, uint32_t long_from) {
    const Edges edges = EDGES_OF;
    each_short(edges, rows, heads, long_from, lanes,
               [=](const Group& group, uint64_t v, uint32_t h) { sum_row(group, edges, v, h, heads, values, out); });
}
extern "C" __global__ void __launch_bounds__(LONG_THREADS) sum_entries_long(SUM_PARAMETERS, LISTED) {
    __shared__ float room[LONG_THREADS / 32];
    const Edges edges = EDGES_OF;
    each_long(long_count, long_rows, heads, room,
              [=](const Whole& block, uint64_t v, uint32_t h) { sum_row(block, edges, v, h, heads, values, out); });
}

// ---------------------------------------------------------------- sums weighted by entries

// Sum over v's entries from..to of alpha[entry, head of c] x[row, c], for V columns.
template <int V>
static __device__ inline Values<V> attend_entries(const Edges& edges, const Entries& run, uint64_t v, uint32_t from, uint32_t to,
                                                  const float* alpha, uint32_t heads, uint64_t width, const float* x, uint64_t c) {
    const float* of_head = alpha + c / width;
    const uint64_t cols = heads * width;
    Values<V> sum = zeros<V>();
    for (uint32_t j = from; j < to; j += 4) {
        // beyond the last entry, that entry is read again and not added
        float weight[4];
        Values<V> values[4];
        for (uint32_t i = 0; i < 4; i++) {
            const Entry entry = entry_at(edges, run, v, min(j + i, to - 1));
            weight[i] = __ldg(of_head + entry.at * heads);
            values[i] = load<V>(x + entry.row * cols + c);
        }
        for (uint32_t i = 0; i < 4; i++) {
            if (j + i < to) {
                add(sum, weight[i], values[i]);
            }
        }
    }
    return sum;
}

// out[v, c] = the sum over v's entries of alpha[entry, head of c] x[row, c]
template <int V>
static __device__ inline void attend(const Edges& edges, const float* alpha, uint32_t heads, uint64_t width, const float* x,
                                     float* out, uint32_t lanes, uint64_t rows, uint32_t long_from) {
    const Group group = group_of(lanes);
    const uint64_t cols = heads * width;
    const uint64_t chunk = (uint64_t)lanes * V;
    const uint64_t chunks = (cols + chunk - 1) / chunk;
    for (uint64_t item = group.index; item < rows * chunks; item += group.count) {
        const uint64_t v = item / chunks;
        const uint64_t c = (item - v * chunks) * chunk + group.lane * V;
        const Entries run = entries_of(edges, v);
        if (c < cols && run.edges < long_from) {
            store(out + v * cols + c, attend_entries<V>(edges, run, v, 0, run.all, alpha, heads, width, x, c));
        }
    }
}

// The long rows.
template <int V>
static __device__ inline void attend_long(const Edges& edges, const float* alpha, uint32_t heads, uint64_t width, const float* x,
                                          float* out, uint32_t lanes, LISTED, float* room) {
    const Group group = group_of(lanes);
    const uint64_t cols = heads * width;
    const uint64_t chunk = (uint64_t)lanes * V;
    const uint64_t chunks = (cols + chunk - 1) / chunk;
    for (uint64_t item = blockIdx.x; item < *long_count * chunks; item += gridDim.x) {
        const uint64_t v = long_rows[item / chunks];
        const uint64_t c = item % chunks * chunk + group.lane * V;
        const Entries run = entries_of(edges, v);
        const Share share = share_of_group(group, 0, run.all);
        Values<V> sum = zeros<V>();
        if (c < cols) {
            sum = attend_entries<V>(edges, run, v, share.from, share.to, alpha, heads, width, x, c);
        }
        sum = sum_of_groups(group, sum, room);
        if (threadIdx.x < lanes && c < cols) {
            store(out + v * cols + c, sum);
        }
    }
}

#define ATTEND_PARAMETERS \
    EDGES, const float *alpha, uint32_t heads, uint64_t width, const float *x, float *out, uint32_t lanes

extern "C" __global__ void attend_rows(ATTEND_PARAMETERS, uint64_t rows, uint32_t long_from) {
    const Edges edges = EDGES_OF;
    attend<1>(edges, alpha, heads, width, x, out, lanes, rows, long_from);
}
extern "C" __global__ void __launch_bounds__(LONG_THREADS) attend_rows_long(ATTEND_PARAMETERS, LISTED) {
    __shared__ float room[LONG_THREADS];
    const Edges edges = EDGES_OF;
    attend_long<1>(edges, alpha, heads, width, x, out, lanes, long_count, long_rows, room);
}
extern "C" __global__ void attend_rows_4(ATTEND_PARAMETERS, uint64_t rows, uint32_t long_from) {
    const Edges edges = EDGES_OF;
    attend<4>(edges, alpha, heads, width, x, out, lanes, rows, long_from);
}
extern "C" __global__ void __launch_bounds__(LONG_THREADS) attend_rows_4_long(ATTEND_PARAMETERS, LISTED) {
    __shared__ float room[LONG_THREADS * 4];
    const Edges edges = EDGES_OF;
    attend_long<4>(edges, alpha, heads, width, x, out, lanes, long_count, long_rows, room);
}

// out[entry, h] = grad[v, head h] . z[row, head h] for v's entries from..to, four at a time.
template <int V>
static __device__ inline void attend_dot(const Group& group, const Edges& edges, const Entries& run, uint64_t v, uint32_t h,
                                         uint32_t from, uint32_t to, const float* grad, uint32_t heads, uint64_t width,
                                         const float* z, float* out) {
    const float* mine = grad + (v * heads + h) * width;
    for (uint32_t j = from; j < to; j += 4) {
        // beyond the last entry, that entry's dot product is computed again
        Entry entry[4];
        float dot[4] = {};
        for (int i = 0; i < 4; i++) {
            entry[i] = entry_at(edges, run, v, min(j + i, to - 1));
        }
        for (uint64_t o = group.lane * V; o < width; o += (uint64_t)group.lanes * V) {
            const Values<V> g = load<V>(mine + o);
            for (int i = 0; i < 4; i++) {
                const Values<V> x = load<V>(z + (entry[i].row * heads + h) * width + o);
                for (int k = 0; k < V; k++) {
                    dot[i] += g.at[k] * x.at[k];
                }
            }
        }
        for (int i = 0; i < 4; i++) {
            dot[i] = group_sum(group, dot[i]);
            if (group.lane == 0) {
                out[entry[i].at * heads + h] = dot[i];
            }
        }
    }
}

#define DOTS_PARAMETERS \
    EDGES, const float *grad, uint32_t heads, uint64_t width, const float *z, float *out, uint32_t lanes
// A group of lanes computes the entries of one destination and head.
#define DOTS(V) \
    const Edges edges = EDGES_OF; \
    each_short(edges, rows, heads, long_from, lanes, [=](const Group& group, uint64_t v, uint32_t h) { \
        const Entries run = entries_of(edges, v); \
        attend_dot<V>(group, edges, run, v, h, 0, run.all, grad, heads, width, z, out); \
    })
// The groups of a block share the entries.
#define DOTS_LONG(V) \
    const Edges edges = EDGES_OF; \
    each_long(long_count, long_rows, heads, nullptr, [=](const Whole&, uint64_t v, uint32_t h) { \
        const Group group = group_of(lanes); \
        const Entries run = entries_of(edges, v); \
        const Share share = share_of_group(group, 0, run.all); \
        attend_dot<V>(group, edges, run, v, h, share.from, share.to, grad, heads, width, z, out); \
    })

extern "C" __global__ void attend_dots(DOTS_PARAMETERS, uint64_t rows, uint32_t long_from) {
    DOTS(1);
}
extern "C" __global__ void __launch_bounds__(LONG_THREADS) attend_dots_long(DOTS_PARAMETERS, LISTED) {
    DOTS_LONG(1);
}
extern "C" __global__ void attend_dots_4(DOTS_PARAMETERS, uint64_t rows, uint32_t long_from) {
    DOTS(4);
}
extern "C" __global__ void __launch_bounds__(LONG_THREADS) attend_dots_4_long(DOTS_PARAMETERS, LISTED) {
    DOTS_LONG(4);
}
