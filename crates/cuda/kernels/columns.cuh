// Sums over rows, in two stages of fixed order: blocks sum runs of rows, then the runs' sums are
// added.
#pragma once

#include "warp.cuh"

// Columns of a block, one per lane, and its warps, each with every eighth row.
#define COLUMNS 32
#define COLUMN_WARPS 8

// Run of rows of this block.
struct Run {
    uint64_t from;
    uint64_t to;
};

static __device__ inline Run run_of_block(uint64_t rows) {
    const uint64_t share = (rows + gridDim.y - 1) / gridDim.y;
    const uint64_t from = min(rows, blockIdx.y * share);
    return {from, min(rows, from + share)};
}

// Adds the sums of the block's warps: partial[run, n, column], with a run's N sums of `width`
// columns one after the other. All threads must call it.
template <int N>
static __device__ inline void add_warps(const double (&sums)[N], uint64_t column, uint64_t width, double* partial,
                                        double (&room)[COLUMN_WARPS][N][COLUMNS]) {
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t warp = threadIdx.x / 32;
    for (int n = 0; n < N; n++) {
        room[warp][n][lane] = sums[n];
    }
    __syncthreads();
    if (warp == 0 && column < width) {
        for (int n = 0; n < N; n++) {
            double sum = 0.0;
            for (int w = 0; w < COLUMN_WARPS; w++) {
                sum += room[w][n][lane];
            }
            partial[(blockIdx.y * N + n) * width + column] = sum;
        }
    }
}

// First stage: N sums of each column of term(row, column, sums). Blocks of 256 threads, of 32
// columns (x) and a run of rows (y).
template <int N, typename Term>
static __device__ inline void sum_columns(uint64_t rows, uint64_t cols, double* partial, Term term) {
    __shared__ double room[COLUMN_WARPS][N][COLUMNS];
    const uint64_t column = (uint64_t)blockIdx.x * COLUMNS + threadIdx.x % 32;
    const Run run = run_of_block(rows);
    double sums[N] = {};
    if (column < cols) {
#pragma unroll 4
        for (uint64_t r = run.from + threadIdx.x / 32; r < run.to; r += COLUMN_WARPS) {
            term(r, column, sums);
        }
    }
    add_warps(sums, column, cols, partial, room);
}
