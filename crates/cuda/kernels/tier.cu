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
// `devices` times its row there, or COLD. Without `places`, the rows below `boundary` are hot: those
// below `replicated` are on every device, and the others on the devices in turns; unless `shared`, no
// device reads the memory of another. shards[d]: the rows of device d. Adds to found[0..3] the
// numbers of rows from this device, its peers and the host.
extern "C" __global__ void tier_gather(const uint32_t* ids, uint64_t count, const uint32_t* places, uint32_t boundary,
                                       uint32_t replicated, uint32_t shared, const uint64_t* shards, uint32_t devices,
                                       uint32_t own, const unsigned char* host, uint64_t row_bytes, uint32_t unit,
                                       uint32_t group, uint32_t kind, uint64_t dim, float* out, uint64_t* found) {
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
            uint32_t device = own, row = v;
            bool hot;
            if (places != 0) {
                const uint32_t place = __ldg(places + v);
                hot = place != COLD;
                device = place % devices;
                row = place / devices;
            } else {
                if (v >= replicated) {
                    device = (v - replicated) % devices;
                    row = replicated + (v - replicated) / devices;
                }
                hot = v < boundary && (device == own || shared != 0);
            }
            from = hot ? __ldg(shards + device) + row * row_bytes : (uint64_t)host + v * row_bytes;
            mine[0] += hot && device == own ? 1 : 0;
            mine[1] += hot && device != own ? 1 : 0;
            mine[2] += hot ? 0 : 1;
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
