// Attention over a block (GAT): logits by heads, softmax over edges, weighted sums, and their gradients. See attention.cuh for entries.
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

// The first stage of the column sums of grad[r, head of c] z[r, c].
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

// alpha = softmax over a destination's entries of leaky(logit(entry, v, h)); lanes keep to their own entries.
template <typename Logit>
static __device__ inline void softmax_entries(const Edges& edges, uint32_t heads, float slope, uint64_t rows, float* alpha,
                                              float* used, const Mask& mask, uint32_t lanes, Logit logit) {
    const Group group = group_of(lanes);
    for (uint64_t item = group.index; item < rows * heads; item += group.count) {
        const uint64_t v = item / heads;
        const uint32_t h = (uint32_t)(item - v * heads);
        const Entries run = entries_of(edges, v);
        float largest = __uint_as_float(0xff800000u);
        for (uint32_t j = group.lane; j < run.all; j += lanes) {
            const Entry entry = entry_at(edges, run, v, j);
            const float x = logit(entry, v, h);
            const float leaky = x > 0.0f ? x : slope * x;
            alpha[entry.at * heads + h] = leaky;
            largest = fmaxf(largest, leaky);
        }
        largest = group_max(group, largest);
        float sum = 0.0f;
        for (uint32_t j = group.lane; j < run.all; j += lanes) {
            float* at = alpha + entry_at(edges, run, v, j).at * heads + h;
            const float e = expf(*at - largest);
            *at = e;
            sum += e;
        }
        const float inverse = 1.0f / group_sum(group, sum);
        for (uint32_t j = group.lane; j < run.all; j += lanes) {
            const uint64_t row = entry_at(edges, run, v, j).at;
            const float p = alpha[row * heads + h] * inverse;
            alpha[row * heads + h] = p;
            if (mask.threshold != 0) {
                const bool dropped = mask_hash(row_key(mask.key, row), h) < mask.threshold;
                used[row * heads + h] = dropped ? 0.0f : p * mask.scale;
            }
        }
    }
}

extern "C" __global__ void edge_softmax(EDGES, const float* source, const float* target, uint32_t heads, float slope,
                                        uint64_t rows, float* alpha, uint32_t lanes) {
    const Edges edges = EDGES_OF;
    softmax_entries(edges, heads, slope, rows, alpha, nullptr, Mask{0, 0, 1.0f}, lanes, [=](Entry entry, uint64_t v, uint32_t h) {
        const uint64_t own = own_rows != nullptr ? __ldg(own_rows + v) : v;
        return __ldg(source + entry.row * heads + h) + __ldg(target + own * heads + h);
    });
}

extern "C" __global__ void score_softmax(EDGES, const float* score, uint32_t heads, float slope, uint64_t rows, float* alpha,
                                         float* used, uint64_t key, uint32_t threshold, float scale, uint32_t lanes) {
    const Edges edges = EDGES_OF;
    softmax_entries(edges, heads, slope, rows, alpha, used, Mask{key, threshold, scale}, lanes,
                    [=](Entry entry, uint64_t, uint32_t h) { return __ldg(score + entry.at * heads + h); });
}

// The gradient of leaky logits from that of what the softmax gave: `used` is that after dropout, `used_grad` its gradient, which may be
// where the result goes. Its sum over a destination's entries goes to `sums`, if that is not null.
template <typename Positive>
static __device__ inline void softmax_back(const Edges& edges, uint32_t heads, float slope, uint64_t rows, const float* alpha,
                                           const float* used, const float* used_grad, float* out, float* sums, uint32_t lanes,
                                           Positive positive) {
    const Group group = group_of(lanes);
    for (uint64_t item = group.index; item < rows * heads; item += group.count) {
        const uint64_t v = item / heads;
        const uint32_t h = (uint32_t)(item - v * heads);
        const Entries run = entries_of(edges, v);
        float mean = 0.0f;
        for (uint32_t j = group.lane; j < run.all; j += lanes) {
            const uint64_t at = entry_at(edges, run, v, j).at * heads + h;
            mean += __ldg(used + at) * used_grad[at];
        }
        mean = group_sum(group, mean);
        float sum = 0.0f;
        for (uint32_t j = group.lane; j < run.all; j += lanes) {
            const Entry entry = entry_at(edges, run, v, j);
            const uint64_t at = entry.at * heads + h;
            float g = __ldg(used + at) * used_grad[at] - __ldg(alpha + at) * mean;
            g = positive(entry, v, h) ? g : slope * g;
            out[at] = g;
            sum += g;
        }
        if (sums != nullptr) {
            sum = group_sum(group, sum);
            if (group.lane == 0) {
                sums[item] = sum;
            }
        }
    }
}

extern "C" __global__ void edge_softmax_back(EDGES, const float* source, const float* target, uint32_t heads, float slope,
                                             uint64_t rows, const float* alpha, const float* alpha_grad, float* out, float* sums,
                                             uint32_t lanes) {
    const Edges edges = EDGES_OF;
    softmax_back(edges, heads, slope, rows, alpha, alpha, alpha_grad, out, sums, lanes, [=](Entry entry, uint64_t v, uint32_t h) {
        return __ldg(source + entry.row * heads + h) + __ldg(target + v * heads + h) > 0.0f;
    });
}

extern "C" __global__ void score_softmax_back(EDGES, const float* score, uint32_t heads, float slope, uint64_t rows,
                                              const float* alpha, const float* used, float* grad, uint32_t lanes) {
    const Edges edges = EDGES_OF;
    softmax_back(edges, heads, slope, rows, alpha, used, grad, grad, nullptr, lanes,
                 [=](Entry entry, uint64_t, uint32_t h) { return __ldg(score + entry.at * heads + h) > 0.0f; });
}

// out[v, h] = the sum over v's entries of values[entry, h]
extern "C" __global__ void sum_entries(EDGES, const float* values, uint32_t heads, uint64_t rows, float* out, uint32_t lanes) {
    const Edges edges = EDGES_OF;
    const Group group = group_of(lanes);
    for (uint64_t item = group.index; item < rows * heads; item += group.count) {
        const uint64_t v = item / heads;
        const uint64_t h = item - v * heads;
        const Entries run = entries_of(edges, v);
        float sum = 0.0f;
        for (uint32_t j = group.lane; j < run.all; j += lanes) {
            sum += __ldg(values + entry_at(edges, run, v, j).at * heads + h);
        }
        sum = group_sum(group, sum);
        if (group.lane == 0) {
            out[item] = sum;
        }
    }
}

// ---------------------------------------------------------------- sums weighted by entries

// out[v, c] = the sum over v's entries of alpha[entry, head of c] x[row, c]
template <int V>
static __device__ inline void attend(const Edges& edges, const float* alpha, uint32_t heads, uint64_t width, const float* x,
                                     uint64_t rows, float* out, uint32_t lanes) {
    const Group group = group_of(lanes);
    const uint64_t cols = heads * width;
    const uint64_t chunk = (uint64_t)lanes * V;
    const uint64_t chunks = (cols + chunk - 1) / chunk;
    for (uint64_t item = group.index; item < rows * chunks; item += group.count) {
        const uint64_t v = item / chunks;
        const uint64_t c = (item - v * chunks) * chunk + group.lane * V;
        if (c >= cols) {
            continue;
        }
        const Entries run = entries_of(edges, v);
        const float* of_head = alpha + c / width;
        Values<V> sum = zeros<V>();
        uint32_t j = 0;
        for (; j + 4 <= run.all; j += 4) {
            float weight[4];
            Values<V> values[4];
            for (int i = 0; i < 4; i++) {
                const Entry entry = entry_at(edges, run, v, j + i);
                weight[i] = __ldg(of_head + entry.at * heads);
                values[i] = load<V>(x + entry.row * cols + c);
            }
            for (int i = 0; i < 4; i++) {
                add(sum, weight[i], values[i]);
            }
        }
        for (; j < run.all; j++) {
            const Entry entry = entry_at(edges, run, v, j);
            add(sum, __ldg(of_head + entry.at * heads), load<V>(x + entry.row * cols + c));
        }
        store(out + v * cols + c, sum);
    }
}

extern "C" __global__ void attend_rows(EDGES, const float* alpha, uint32_t heads, uint64_t width, const float* x, uint64_t rows,
                                       float* out, uint32_t lanes) {
    const Edges edges = EDGES_OF;
    attend<1>(edges, alpha, heads, width, x, rows, out, lanes);
}
extern "C" __global__ void attend_rows_4(EDGES, const float* alpha, uint32_t heads, uint64_t width, const float* x,
                                         uint64_t rows, float* out, uint32_t lanes) {
    const Edges edges = EDGES_OF;
    attend<4>(edges, alpha, heads, width, x, rows, out, lanes);
}

// out[entry, h] = grad[v, head h] . z[row, head h]: a group of lanes makes the entries of one destination and head.
template <int V>
static __device__ inline void attend_dot(const Edges& edges, const float* grad, uint32_t heads, uint64_t width, const float* z,
                                         uint64_t rows, float* out, uint32_t lanes) {
    const Group group = group_of(lanes);
    for (uint64_t item = group.index; item < rows * heads; item += group.count) {
        const uint64_t v = item / heads;
        const uint64_t h = item - v * heads;
        const Entries run = entries_of(edges, v);
        const float* mine = grad + item * width;
        for (uint32_t j = 0; j < run.all; j += 4) {
            // beyond the last entry that one's dot is made again
            Entry entry[4];
            float dot[4] = {};
            for (int i = 0; i < 4; i++) {
                entry[i] = entry_at(edges, run, v, min(j + i, run.all - 1));
            }
            for (uint64_t o = group.lane * V; o < width; o += (uint64_t)lanes * V) {
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
}

extern "C" __global__ void attend_dots(EDGES, const float* grad, uint32_t heads, uint64_t width, const float* z, uint64_t rows,
                                       float* out, uint32_t lanes) {
    const Edges edges = EDGES_OF;
    attend_dot<1>(edges, grad, heads, width, z, rows, out, lanes);
}
extern "C" __global__ void attend_dots_4(EDGES, const float* grad, uint32_t heads, uint64_t width, const float* z, uint64_t rows,
                                         float* out, uint32_t lanes) {
    const Edges edges = EDGES_OF;
    attend_dot<4>(edges, grad, heads, width, z, rows, out, lanes);
}
