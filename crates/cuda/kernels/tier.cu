// Feature rows in any tier: this device's memory, its peers' or the host's, read in place by one
// kernel.
#include "common.cuh"
#include "stored.cuh"

// Mark of a row that is not on a device.
#define COLD 0xffffffffu

// Copies rows from the host, unchanged, to the device: row i is that of ids[i]. A warp copies 32
// rows, `group` lanes per row.
extern "C" __global__ void tier_load(const uint32_t* ids, uint64_t count, const unsigned char* host, uint64_t row_bytes,
                                     uint32_t unit, uint32_t group, unsigned char* rows) {
    const uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    const uint64_t lane = threadIdx.x % 32;
    for (uint64_t first = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x - lane; first < count; first += step) {
        const uint64_t i = first + lane;
        const uint64_t from = i < count ? (uint64_t)host + ids[i] * row_bytes : 0;
        rows_copy(from, (uint64_t)rows + i * row_bytes, row_bytes, unit, group, (float*)0, 0, ROWS_F32);
    }
}

// out (count x dim): the rows of `ids`. places[v]: the location of row v, the device's number plus
// `devices` times its row there, or COLD; without `places`, all rows are on this device in order.
// shards[d]: the rows of device d. Adds to found[0..3] the numbers of rows from this device, its
// peers and the host.
extern "C" __global__ void tier_gather(const uint32_t* ids, uint64_t count, const uint32_t* places, const uint64_t* shards,
                                       uint32_t devices, uint32_t own, const unsigned char* host, uint64_t row_bytes,
                                       uint32_t unit, uint32_t group, uint32_t kind, uint64_t dim, float* out, uint64_t* found) {
    __shared__ uint32_t counts[3];
    if (threadIdx.x < 3) {
        counts[threadIdx.x] = 0;
    }
    __syncthreads();
    const uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    const uint64_t lane = threadIdx.x % 32;
    uint32_t mine[3] = {0, 0, 0};
    for (uint64_t first = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x - lane; first < count; first += step) {
        uint64_t from = 0;
        if (first + lane < count) {
            const uint32_t v = ids[first + lane];
            const uint32_t place = places != 0 ? __ldg(places + v) : 0;
            if (places == 0) {
                from = __ldg(shards + own) + v * row_bytes;
                mine[0]++;
            } else if (place == COLD) {
                from = (uint64_t)host + v * row_bytes;
                mine[2]++;
            } else {
                const uint32_t device = place % devices;
                from = __ldg(shards + device) + place / devices * row_bytes;
                mine[0] += device == own ? 1 : 0;
                mine[1] += device == own ? 0 : 1;
            }
        }
        rows_copy(from, 0, row_bytes, unit, group, out + first * dim, dim, kind);
    }
    for (uint32_t tier = 0; tier < 3; tier++) {
        if (mine[tier] != 0) {
            atomicAdd(counts + tier, mine[tier]);
        }
    }
    __syncthreads();
    if (threadIdx.x < 3 && counts[threadIdx.x] != 0) {
        atomicAdd(found + threadIdx.x, (uint64_t)counts[threadIdx.x]);
    }
}
